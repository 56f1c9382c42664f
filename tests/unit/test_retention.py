"""What has been over for long enough goes, and nothing else does (control-plane §2.1)."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from iris_controller import retention
from iris_controller.loop import ControllerLoop
from iris_controller.retention import Pruner
from iris_controller.state import kernel, submit
from iris_controller.state.observed import Observed
from iris_controller.state.retention import EndedTree, prune_jobs
from iris_controller.state.slices import Lifecycle, Slice
from iris_controller.store.database import migrate
from iris_controller.store.load import load_model
from iris_controller.store.reads import Readers
from iris_controller.store.writer import Writer
from iris_controller.ticker import SchedulerTicker
from iris_core.config.cluster import parse_config
from iris_core.config.retention import Retention
from iris_core.contracts import UsageFailed
from iris_core.model.states import TaskState, WorkerHealth
from iris_core.wire.gen.iris.v1 import controller_pb2
from tests.unit.kernel_world import healthy_worker, job_spec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from iris_controller.state.overlay import Overlay
    from iris_controller.store.writer import Statement

NOW = 1_700_000_000_000
DAY = 24 * 3_600_000
pytestmark = pytest.mark.asyncio


class Rig:
    """A loop over a real database; nothing is scheduled, and the wall clock is the test's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_ms = NOW
        self.silent_ms: dict[str, int] = {}
        self.real = Writer(path)
        migrate(self.real.connection, NOW)
        self.model = load_model(self.real.connection)
        self.real.start()
        self.readers = Readers(path)
        ticker = SchedulerTicker(self.model)
        ticker.pause()
        self.loop = ControllerLoop(self.model, self.real, ticker, wall_ms=lambda: self.now_ms)
        self._uids = 0

    def pruner(self, **values: int) -> Pruner:
        return Pruner(self.loop, self.readers, replace(Retention(), **values), lambda w: self.silent_ms.get(w, 0))

    async def add_worker(self, worker_id: str, **values: object) -> None:
        row = replace(healthy_worker(worker_id), **values)  # type: ignore[arg-type]
        await self.loop.submit("worker", lambda o, _: o.workers.update({worker_id: row}))

    async def job(self, job_id: str, tasks: int = 1) -> None:
        request = controller_pb2.LaunchJobRequest(name=job_id).SerializeToString()
        new = submit.NewJob(job_id, "u", tasks, job_spec(cpu=0, request=request))
        await self.loop.submit("submit", lambda o, now: submit.admit(o, new, now))

    async def finish(self, job_id: str, end: TaskState = TaskState.SUCCEEDED) -> None:
        """Runs every task of the job and has it end now."""

        def plan(o: Overlay, now: int) -> None:
            for task in list(o.tasks_of(job_id)):
                self._uids += 1
                attempt = kernel.assign(o, task, "w", f"{self._uids:016x}", now)
                assert attempt is not None
                kernel.observe(o, "w", Observed(attempt.uid, int(end)), now)

        await self.loop.submit("finish", plan)

    def stored(self, table: str, column: str = "job_id") -> list[str]:
        with closing(sqlite3.connect(self.path)) as db:
            return [row[0] for row in db.execute(f"SELECT {column} FROM {table} ORDER BY 1")]


@asynccontextmanager
async def rig(path: Path) -> AsyncIterator[Rig]:
    made = Rig(path / "c.sqlite3")
    running = asyncio.create_task(made.loop.run())
    try:
        yield made
    finally:
        made.loop.close()
        await asyncio.wait_for(running, 60)
        made.readers.close()
        made.real.close()


async def test_a_finished_job_goes_with_every_row_when_it_was_kept_long_enough(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(tmp_path) as r:
        await r.add_worker("w")
        await r.job("/u/old", tasks=3)
        await r.finish("/u/old")
        r.now_ms += 4 * DAY
        await r.job("/u/young")
        await r.finish("/u/young")
        await r.job("/u/waits")
        r.now_ms = NOW + 7 * DAY
        assert await r.pruner().prune() == (0, 0)
        r.now_ms += 1
        with caplog.at_level(logging.INFO, "iris.audit"):
            assert await r.pruner().prune() == (1, 0)
        assert "event=job_removed entity=/u/old trigger=retention" in caplog.text
        for table in ("jobs", "job_config"):
            assert r.stored(table) == ["/u/waits", "/u/young"]
        assert set(r.stored("tasks")) == {"/u/waits", "/u/young"}
        assert r.stored("task_attempts", "task_id") == ["/u/young/0"]
        assert set(r.model.jobs) == {"/u/waits", "/u/young"}
        await r.job("/u/old")
        assert "/u/old" in r.model.jobs, "the name is free again"


async def test_a_tree_goes_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.add_worker("w")
        await r.job("/u/a")
        await r.job("/u/a/kid")
        await r.finish("/u/a/kid")
        await r.finish("/u/a")
        await r.job("/u/b", tasks=2)
        await r.job("/u/b/kid")
        await r.finish("/u/b", TaskState.FAILED)
        assert r.model.jobs["/u/b/kid"].finished_at_ms is None, "children of a job of several tasks outlive its failure"
        r.now_ms += 8 * DAY
        assert await r.pruner().prune() == (1, 0)
        assert r.stored("jobs") == ["/u/b", "/u/b/kid"]
        await r.finish("/u/b/kid")
        assert await r.pruner().prune() == (0, 0), "the child has only just ended"
        r.now_ms += 8 * DAY
        assert await r.pruner().prune() == (1, 0)
        assert r.stored("jobs") == [] and not r.model.jobs


async def test_a_job_stays_while_a_worker_holds_an_attempt_of_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.add_worker("w")
        await r.job("/u/a")

        def run(o: Overlay, now: int) -> None:
            task = o.task("/u/a", 0)
            assert task is not None and kernel.assign(o, task, "w", "f" * 16, now) is not None

        await r.loop.submit("assign", run)
        await r.loop.submit("cancel", lambda o, now: kernel.cancel(o, "/u/a", "somebody", "", now))
        r.now_ms += 8 * DAY
        assert await r.pruner().prune() == (0, 0)
        gone = Observed("f" * 16, int(TaskState.KILLED))
        await r.loop.submit("confirm", lambda o, now: kernel.observe(o, "w", gone, now))
        assert await r.pruner().prune() == (1, 0)


async def test_many_go_in_small_batches_those_that_only_the_database_holds_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iris_controller.state.model.TERMINAL_KEPT", 3)
    monkeypatch.setattr(retention, "PAGE_JOBS", 4)
    monkeypatch.setattr(retention, "BATCH_TASKS", 5)
    async with rig(tmp_path) as r:
        await r.add_worker("w")
        for number in range(9):
            await r.job(f"/u/{number}", tasks=9 if number == 4 else 2)
            await r.finish(f"/u/{number}")
        assert len(r.model.jobs) == 3 and len(r.stored("jobs")) == 9
        r.now_ms += 8 * DAY
        commits = r.real.commits
        assert await r.pruner().prune() == (9, 0)
        assert r.stored("jobs") == r.stored("tasks") == [] and not r.model.jobs
        assert r.real.commits - commits == 8, (
            "pages of 4, 4 and 1; batches of 2, 2 | 2, 1, a large one in three | 1 jobs"
        )


async def test_a_large_tree_goes_in_parts_from_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH_TASKS", 4)
    monkeypatch.setattr(retention, "BATCH_JOBS", 2)
    async with rig(tmp_path) as r:
        await r.add_worker("w")
        await r.job("/u/a", tasks=3)
        for name in ("/u/a/x", "/u/a/y", "/u/a/x/deep", "/u/a/z"):
            await r.job(name, tasks=5 if name.endswith("y") else 1)
        for name in ("/u/a/x/deep", "/u/a/x", "/u/a/y", "/u/a/z", "/u/a"):
            await r.finish(name)
        r.now_ms += 8 * DAY
        seen: list[tuple[int, int]] = []
        commit = r.real.commit

        async def watched(statements: Sequence[Statement]) -> None:
            await commit(statements)
            seen.append((len(r.stored("jobs")), len(r.stored("tasks"))))

        monkeypatch.setattr(r.real, "commit", watched)
        assert await r.pruner().prune() == (1, 0)
        assert seen == [(5, 7), (5, 3), (5, 0), (3, 0), (1, 0), (0, 0)]
        assert not r.model.jobs and r.stored("task_attempts", "task_id") == []


async def test_a_large_tree_that_is_replaced_meanwhile_keeps_the_new_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_TASKS", 2)
    async with rig(tmp_path) as r:
        await r.add_worker("w")
        await r.job("/u/a", tasks=5)
        await r.finish("/u/a")
        r.now_ms += 8 * DAY
        commit = r.real.commit
        again: list[asyncio.Task[None]] = []

        async def watched(statements: Sequence[Statement]) -> None:
            await commit(statements)
            if not again:
                again.append(asyncio.create_task(r.job("/u/a", tasks=4)))

        monkeypatch.setattr(r.real, "commit", watched)
        assert await r.pruner().prune() == (0, 0)
        await again[0]
        assert len(r.stored("tasks")) == 4 and r.model.jobs["/u/a"].num_tasks == 4


async def test_a_job_of_the_name_that_is_over_too_stays(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.add_worker("w")
        await r.job("/u/a")
        await r.finish("/u/a")
        found = EndedTree("/u/a", r.model.jobs["/u/a"].submitted_at_ms, tasks=1)
        r.now_ms += 1
        await r.job("/u/a", tasks=2)
        await r.finish("/u/a")
        assert await r.loop.submit("prune", lambda o, _: prune_jobs(o, [found])) == 0
        assert r.stored("jobs") == ["/u/a"] and len(r.stored("tasks")) == 2
        current = EndedTree("/u/a", r.model.jobs["/u/a"].submitted_at_ms, tasks=2)
        assert await r.loop.submit("prune", lambda o, _: prune_jobs(o, [current])) == 1


async def test_a_worker_that_never_comes_back_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with rig(tmp_path) as r:
        dead = {"health": WorkerHealth.DEAD, "attached": False, "placeable": False}
        await r.add_worker("gone", attributes={"region": "eu"}, **dead)
        await r.add_worker("lately", **dead)
        await r.add_worker("silent", health=WorkerHealth.DEGRADED, placeable=False)
        await r.add_worker("sliced", slice_id="s", **dead)
        row = Slice("s", "g", Lifecycle.READY, ("sliced",), NOW)
        await r.loop.submit("slice", lambda o, _: o.slices.update({"s": row}))
        r.silent_ms = dict.fromkeys(("gone", "silent", "sliced"), DAY) | {"lately": DAY - 1}
        with caplog.at_level(logging.INFO, "iris.audit"):
            assert await r.pruner().prune() == (0, 1)
        assert "event=worker_pruned entity=gone trigger=retention" in caplog.text
        assert r.stored("workers", "worker_id") == sorted(r.model.workers) == ["lately", "silent", "sliced"]
        assert r.stored("worker_attributes", "worker_id") == []
        assert "gone" not in r.model.usage


async def test_a_worker_that_came_back_meanwhile_stays(tmp_path: Path) -> None:
    """Between the look and the command it attached again."""
    async with rig(tmp_path) as r:
        await r.add_worker("w", health=WorkerHealth.DEAD, attached=False, placeable=False)
        r.silent_ms["w"] = 2 * DAY
        back = healthy_worker("w")
        attach = r.loop.post("attach", lambda o, _: o.workers.update({"w": back}))
        assert await r.pruner().prune() == (0, 0)
        assert attach.done() and "w" in r.model.workers


async def test_nought_keeps_for_ever(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.add_worker("w")
        await r.job("/u/a")
        await r.finish("/u/a")
        await r.add_worker("gone", health=WorkerHealth.DEAD, attached=False, placeable=False)
        r.silent_ms["gone"] = 999 * DAY
        r.now_ms += 999 * DAY
        assert await r.pruner(job_ms=0, worker_ms=0).prune() == (0, 0)


class Clock:
    """Each pause ends when the test says so, and is written down."""

    def __init__(self) -> None:
        self.pauses: asyncio.Queue[float] = asyncio.Queue()
        self.go = asyncio.Semaphore(0)

    def now_ms(self) -> int:
        return NOW

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.pauses.put_nowait(seconds)
        await self.go.acquire()


async def test_it_looks_soon_after_the_start_then_every_interval_and_a_store_that_fails_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(tmp_path) as r:
        await r.add_worker("w")
        await r.job("/u/a")
        await r.finish("/u/a")
        r.now_ms += 8 * DAY
        clock = Clock()
        running = asyncio.create_task(Pruner(r.loop, r.readers, Retention(), lambda _: 0, clock).run())
        async with asyncio.timeout(30):
            assert await clock.pauses.get() == 60
            r.loop.fence("another controller took over")
            clock.go.release()
            assert await clock.pauses.get() == 3_600
            assert "will be later" in caplog.text and "/u/a" in r.model.jobs
            r.loop.fence("")
            clock.go.release()
            await clock.pauses.get()
        assert not r.model.jobs
        running.cancel()


async def test_the_keys_of_the_cluster_file() -> None:
    head = "name: a\nplatform: {local: }\ncontroller: "
    assert parse_config("name: a\nplatform: {local: }\n").retention == Retention(3_600_000, 7 * DAY, DAY)
    keys = "{prune_interval: {seconds: 5}, job_retention: {seconds: 86400}, worker_retention: 0, local: {port: 0}}"
    assert parse_config(head + keys).retention == Retention(5_000, DAY, 0)
    with pytest.raises(UsageFailed, match=r"controller\.job_retention: '-1' is outside"):
        parse_config(head + "{job_retention: -1, local: }")
