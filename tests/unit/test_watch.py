"""Watch: what a client has after applying the stream is what the model says, whatever was missed in between (targets I6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from iris_controller.loop import ControllerLoop
from iris_controller.rpc.auth import Identity, Role, TaskClaims
from iris_controller.rpc.call import Call
from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.views import job_view
from iris_controller.state import kernel, submit
from iris_controller.state.model import Model
from iris_controller.state.records import ChildrenPolicy, JobSpec
from iris_controller.store.writer import Statement
from iris_controller.ticker import SchedulerTicker
from iris_controller.watching.hub import WatchHub
from iris_controller.watching.selection import PAGE_ROWS
from iris_core.model.bands import PriorityBand
from iris_core.model.errors import ModelError
from iris_core.model.resources import Resources
from iris_core.wire.gen.iris.v1 import controller_pb2
from iris_core.wire.services import method

pytestmark = pytest.mark.asyncio
BOOT = "b" * 16
JOBS = controller_pb2.WATCH_KIND_JOBS
TASKS = controller_pb2.WATCH_KIND_TASKS


class NoStore:
    async def commit(self, statements: Sequence[Statement]) -> None:
        await asyncio.sleep(0)


class Rig:
    def __init__(self) -> None:
        self.model = Model()
        self.loop = ControllerLoop(self.model, NoStore(), SchedulerTicker(self.model), wall_ms=lambda: 1_000)
        self.hub = WatchHub(self.loop, BOOT, worker_age_ms=lambda w: 0, finished_tasks=self._none)

    @staticmethod
    async def _none(job_id: str) -> list[controller_pb2.TaskStatus]:
        return []

    async def launch(self, name: str, tasks: int = 1, cpu: int = 1) -> None:
        """`cpu` in millicores."""
        request = controller_pb2.LaunchJobRequest(name=name)
        spec = JobSpec(
            Resources(cpu, 1, 0, None), (), PriorityBand.INHERIT, 0, 0, 0, 0, 0, ChildrenPolicy.UNSPECIFIED, False, "",
            request.SerializeToString(),
        )  # fmt: skip
        new = submit.NewJob(name, "u", tasks, spec)
        await self.loop.submit("launch", lambda o, now: submit.admit(o, new, now))

    async def cancel(self, name: str) -> None:
        await self.loop.submit("cancel", lambda o, now: kernel.cancel(o, name, "t", "r", now))


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    running = asyncio.create_task(made.loop.run())
    try:
        yield made
    finally:
        made.loop.close()
        await asyncio.wait_for(running, 60)


class Viewer:
    """A client that applies the stream."""

    def __init__(self, r: Rig, *selectors: controller_pb2.WatchSelector, call: Call | None = None) -> None:
        self.rows: dict[str, Any] = {}
        self.messages: list[controller_pb2.WatchResponse] = []
        self.revision = controller_pb2.WatchSnapshotPage().revision
        """Up to which everything is known, whatever the selector: two snapshots need not be of one moment."""
        self.snapshots: dict[str, Any] = {}
        self.stream = r.hub.watch(controller_pb2.WatchRequest(selectors=selectors), call)

    async def read(self) -> str:
        message = await asyncio.wait_for(anext(self.stream), 60)
        self.messages.append(message)
        kind = message.WhichOneof("event") or ""
        batches: list[controller_pb2.WatchRows] = []
        if kind == "snapshot":
            batches = [message.snapshot.rows]
            self.snapshots[message.snapshot.rows.selector_id] = message.snapshot.revision
            self.revision = min(self.snapshots.values(), key=lambda revision: revision.n)
        elif kind == "delta":
            assert message.delta.revision.n >= self.revision.n
            batches, self.revision = list(message.delta.rows), message.delta.revision
            self.snapshots = dict.fromkeys(self.snapshots, self.revision)
        for rows in batches:
            size = len(rows.jobs) + len(rows.tasks) + len(rows.workers) + len(rows.removed)
            assert size <= PAGE_ROWS
            for job in rows.jobs:
                self.rows[job.job_id] = job
            for task in rows.tasks:
                self.rows[task.task_id] = task
            for gone in rows.removed:
                self.rows.pop(gone, None)
        return kind

    async def close(self) -> None:
        assert isinstance(self.stream, AsyncGenerator)
        await self.stream.aclose()

    async def until(self, n: int) -> None:
        while self.revision.n < n:
            await self.read()

    async def catch_up(self, r: Rig) -> None:
        """Until all is known that is committed by then: the scheduler has its say in batches of its own, at any time."""
        while self.revision.n < r.loop.n:
            await self.read()


def jobs(**values: Any) -> controller_pb2.WatchSelector:
    return controller_pb2.WatchSelector(id="j", kind=JOBS, **values)


async def test_snapshot_then_deltas_equal_the_model() -> None:
    async with rig() as r:
        for name in "abc":
            await r.launch(f"/u/{name}")
        viewer = Viewer(r, jobs())
        assert await viewer.read() == "snapshot"
        assert sorted(viewer.rows) == ["/u/a", "/u/b", "/u/c"]
        await r.cancel("/u/b")
        await r.launch("/u/d")
        await viewer.catch_up(r)
        assert viewer.rows == {j: job_view(r.model, r.model.jobs[j]) for j in r.model.jobs}
        await viewer.close()
        assert r.hub.subscribers == 0


async def test_a_resume_misses_and_repeats_nothing() -> None:
    async with rig() as r:
        await r.launch("/u/a")
        viewer = Viewer(r, jobs())
        await viewer.read()
        await viewer.close()
        await r.cancel("/u/a")
        await r.launch("/u/b")
        again = Viewer(r, jobs(resume=viewer.revision))
        again.rows = viewer.rows
        assert await again.read() == "delta"
        await again.catch_up(r)
        assert again.rows == {j: job_view(r.model, r.model.jobs[j]) for j in r.model.jobs}


@pytest.mark.parametrize(("boot", "n"), [("c" * 16, 0), (BOOT, 10**9)])
async def test_an_impossible_resume_is_a_resync_and_a_snapshot(boot: str, n: int) -> None:
    async with rig() as r:
        await r.launch("/u/a")
        selector = jobs()
        selector.resume.boot_id, selector.resume.n = boot, n
        viewer = Viewer(r, selector)
        assert [await viewer.read(), await viewer.read()] == ["resync", "snapshot"]
        assert sorted(viewer.rows) == ["/u/a"]


async def test_a_slow_reader_gets_the_latest_value_once() -> None:
    async with rig() as r:
        await r.launch("/u/a")
        viewer = Viewer(r, jobs())
        await viewer.read()
        for n in range(300):
            await r.launch(f"/u/n{n}")
            await r.cancel(f"/u/n{n}")
        await viewer.until(r.loop.n)
        deltas = [m for m in viewer.messages if m.HasField("delta")]
        assert len(deltas) <= 3
        assert len(viewer.rows) == 301


async def test_a_row_that_no_longer_matches_is_removed() -> None:
    async with rig() as r:
        await r.launch("/u/a")
        viewer = Viewer(r, jobs(filter="state:pending"))
        await viewer.read()
        assert list(viewer.rows) == ["/u/a"]
        await r.cancel("/u/a")
        await viewer.until(r.loop.n)
        assert viewer.rows == {}


async def test_tasks_of_a_large_job_come_in_pages() -> None:
    async with rig() as r:
        await r.launch("/u/a", tasks=4_500)
        viewer = Viewer(r, controller_pb2.WatchSelector(id="t", kind=TASKS, job_ids=["/u/a"]))
        kinds = [await viewer.read() for _ in range(3)]
        assert kinds == ["snapshot"] * 3 and viewer.messages[-1].snapshot.last
        assert len(viewer.rows) == 4_500
        await r.cancel("/u/a")
        await viewer.until(r.loop.n)
        while any(task.state != 6 for task in viewer.rows.values()):
            await viewer.read()


async def test_a_bad_selector_is_refused_with_its_place() -> None:
    async with rig() as r:
        with pytest.raises(RpcError, match="kind"):
            await anext(
                r.hub.watch(controller_pb2.WatchRequest(selectors=[controller_pb2.WatchSelector(id="x")]), None)
            )
        with pytest.raises(ModelError) as caught:
            await anext(r.hub.watch(controller_pb2.WatchRequest(selectors=[jobs(filter="stat:x")]), None))
        assert caught.value.position == 0
        with pytest.raises(RpcError, match="at least one"):
            await anext(r.hub.watch(controller_pb2.WatchRequest(), None))


async def test_a_task_watches_its_own_subtree_and_nothing_else() -> None:
    claims = TaskClaims("u", "/u/a", "/u/a", "0" * 16)
    identity = Identity("u", Role.TASK, "token", "127.0.0.1:1", task=claims)
    call = Call(identity, method("ControllerService/Watch"), identity.peer)
    async with rig() as r:
        for name in ("/u/a", "/u/a/child", "/u/ab", "/v/b"):
            await r.launch(name)
        viewer = Viewer(r, jobs(), call=call)
        assert await viewer.read() == "snapshot"
        assert set(viewer.rows) == {"/u/a", "/u/a/child"}
        assert viewer.messages[0].snapshot.total_count == 2
        await r.launch("/u/ac")
        await r.cancel("/v/b")
        await r.cancel("/u/a")
        await viewer.until(r.loop.n)
        told = {job.job_id for message in viewer.messages for rows in message.delta.rows for job in rows.jobs}
        assert told == {"/u/a", "/u/a/child"}
        assert not [gone for message in viewer.messages for rows in message.delta.rows for gone in rows.removed]
        await viewer.close()

        own = Viewer(r, controller_pb2.WatchSelector(id="t", kind=TASKS, job_ids=["/u/a/child"]), call=call)
        assert await own.read() == "snapshot"
        await own.close()
        for selector in (
            controller_pb2.WatchSelector(id="t", kind=TASKS, job_ids=["/u/a", "/u/ab"]),
            controller_pb2.WatchSelector(id="w", kind=controller_pb2.WATCH_KIND_WORKERS),
        ):
            with pytest.raises(RpcError) as caught:
                await Viewer(r, selector, call=call).read()
            assert caught.value.status == "PERMISSION_DENIED"
