"""The loop and the store together: what is committed is what is loaded, and what failed never happened."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from iris_controller.loop import ControllerLoop
from iris_controller.rpc.errors import RpcError, invalid
from iris_controller.state import kernel, submit
from iris_controller.state.model import Model
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import ChildrenPolicy, JobSpec, Worker
from iris_controller.store.database import (
    StateDir,
    StateDirError,
    check_integrity,
    migrate,
    open_writer,
    shipped_migrations,
)
from iris_controller.store.load import load_model
from iris_controller.store.reads import similar_jobs
from iris_controller.store.writer import CommitFailed, Statement, Writer
from iris_controller.ticker import SchedulerTicker
from iris_core.model.bands import PriorityBand
from iris_core.model.resources import Resources
from iris_core.model.states import JobState, TaskState, WorkerHealth
from iris_core.wire.gen.iris.v1 import controller_pb2

NOW = 1_700_000_000_000


@pytest.fixture(autouse=True)
def _one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits together is one batch, however slow the machine is."""
    monkeypatch.setattr("iris_controller.loop.BATCH_SECONDS", 600.0)


def spec(**values: object) -> JobSpec:
    request = controller_pb2.LaunchJobRequest(name="/u/j")
    request.entrypoint.run_command.argv.append("true")
    known: dict[str, object] = {
        "resources": Resources(100, 1 << 20, 0, None),
        "constraints": (),
        "band": PriorityBand.INHERIT,
        "max_retries_failure": 0,
        "max_retries_preemption": 100,
        "max_task_failures": 0,
        "timeout_ms": 0,
        "scheduling_timeout_ms": 0,
        "children_policy": ChildrenPolicy.UNSPECIFIED,
        "has_setup": False,
        "bundle_id": "",
        "request": request.SerializeToString(),
    }
    return JobSpec(**{**known, **values})  # type: ignore[arg-type]


def job(name: str, tasks: int = 1, **values: object) -> submit.NewJob:
    return submit.NewJob(job_id=name, submitting_user="u", num_tasks=tasks, spec=spec(**values), existing_policy=0)


def admitting(name: str) -> Callable[[Overlay, int], object]:
    return lambda o, now: submit.admit(o, job(name), now)


def worker(worker_id: str) -> Worker:
    return Worker(
        worker_id=worker_id,
        total=Resources(4000, 1 << 30, 1 << 30, None),
        attributes={"region": "eu", "slots": 3, "speed": 1.5},
        boot_id="0" * 16,
        attached=True,
        health=WorkerHealth.HEALTHY,
        placeable=True,
    )


class Failing:
    """A writer whose commits can be made to fail."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.failing = False

    async def commit(self, statements: Sequence[Statement]) -> None:
        if self.failing:
            raise CommitFailed("database or disk is full")
        await self.writer.commit(statements)


class Rig:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.real = Writer(path)
        migrate(self.real.connection, NOW)
        self.model = load_model(self.real.connection)
        self.real.start()
        self.writer = Failing(self.real)
        self.loop = ControllerLoop(self.model, self.writer, SchedulerTicker(self.model), wall_ms=lambda: NOW)

    def loaded(self) -> Model:
        connection = sqlite3.connect(self.path)
        try:
            return load_model(connection)
        finally:
            connection.close()

    async def until_quiet(self) -> None:
        """Until nothing waits and nothing is planned."""
        while self.loop.depth or self.loop._ticker.wanted():
            await self.loop.next_commit(0.5)
        await self.loop.submit("barrier", lambda o, now: None)


@asynccontextmanager
async def rig(path: Path) -> AsyncIterator[Rig]:
    made = Rig(path)
    running = asyncio.create_task(made.loop.run())
    try:
        yield made
    finally:
        made.loop.close()
        await asyncio.wait_for(running, 60)
        made.real.close()


def same(left: Model, right: Model) -> None:
    """Everything that survives a restart is equal; health is in memory only."""
    assert left.jobs == right.jobs
    assert left.tasks == right.tasks
    assert left.attempts == right.attempts
    assert left.pending == right.pending
    assert {w: c.copy() for w, c in left.usage.items() if c.tasks} == {w: c for w, c in right.usage.items() if c.tasks}
    assert {w.worker_id: (w.total, w.attributes, w.boot_id) for w in left.workers.values()} == {
        w.worker_id: (w.total, w.attributes, w.boot_id) for w in right.workers.values()
    }


@pytest.mark.asyncio
async def test_what_is_committed_is_what_is_loaded(tmp_path: Path) -> None:
    async with rig(tmp_path / "c.sqlite3") as r:
        await r.loop.submit("w", lambda o, now: o.workers.update({"w1": worker("w1")}))
        await r.loop.submit("a", lambda o, now: submit.admit(o, job("/u/a", 3, scheduling_timeout_ms=5000), now))
        await r.loop.submit("b", lambda o, now: submit.admit(o, job("/u/b", 2), now))
        await r.loop.submit("c", lambda o, now: submit.admit(o, job("/u/b/kid", 1), now))
        await r.until_quiet()
        uids = [a.uid for a in r.model.attempts_on("w1")]
        assert len(uids) == 6

        def report(o: Overlay, now: int) -> None:
            for uid in uids:
                kernel.observe(o, "w1", kernel.Observed(attempt_uid=uid, state=TaskState.RUNNING), now)
            done = kernel.Observed(attempt_uid=uids[0], state=TaskState.SUCCEEDED, exit_code=0, log_lines=7)
            kernel.observe(o, "w1", done, now)

        await r.loop.submit("report", report)
        await r.loop.submit("cancel", lambda o, now: kernel.cancel(o, "/u/b", "t", "no", now))
        await r.until_quiet()
        assert r.model.jobs["/u/b"].state is JobState.KILLED
        same(r.model, r.loaded())
        with closing(sqlite3.connect(r.path)) as connection:
            row = connection.execute("SELECT committed_cpu_millicores, committed_mem_bytes FROM workers").fetchone()
        assert row == (500, 5 << 20), "cancelled attempts hold their capacity until the worker confirms"


@pytest.mark.asyncio
async def test_a_failed_commit_changes_nothing_and_is_said(tmp_path: Path) -> None:
    async with rig(tmp_path / "c.sqlite3") as r:
        await r.loop.submit("a", lambda o, now: submit.admit(o, job("/u/a"), now))
        r.writer.failing = True
        internal = r.loop.post("w", lambda o, now: o.workers.update({"w1": worker("w1")}))
        with pytest.raises(RpcError, match="disk is full") as caught:
            await r.loop.submit("b", lambda o, now: submit.admit(o, job("/u/b"), now))
        assert caught.value.status == "UNAVAILABLE"
        assert caught.value.retry_after_ms > 0
        assert "/u/b" not in r.model.jobs
        assert r.loop.stats.store_error
        r.writer.failing = False
        await asyncio.wait_for(internal, 60)
        assert "w1" in r.model.workers, "the controller's own command is retried until it is committed"
        assert not r.loop.stats.store_error
        await r.until_quiet()
        same(r.model, r.loaded())


@pytest.mark.asyncio
async def test_a_refusal_leaves_the_rest_of_its_batch_standing(tmp_path: Path) -> None:
    def refuse(o: Overlay, now: int) -> None:
        raise invalid("x", "no")

    def broken(o: Overlay, now: int) -> None:
        submit.admit(o, job("/u/half"), now)
        raise ZeroDivisionError

    async with rig(tmp_path / "c.sqlite3") as r:
        results = await asyncio.gather(
            r.loop.submit("a", lambda o, now: submit.admit(o, job("/u/a"), now)),
            r.loop.submit("no", refuse),
            r.loop.submit("fault", broken),
            r.loop.submit("b", lambda o, now: submit.admit(o, job("/u/b"), now)),
            return_exceptions=True,
        )
        assert isinstance(results[1], RpcError) and results[1].status == "INVALID_ARGUMENT"
        assert isinstance(results[2], RpcError) and results[2].status == "INTERNAL"
        assert sorted(r.model.jobs) == ["/u/a", "/u/b"], "half a change of a faulty command is nowhere"
        same(r.model, r.loaded())


@pytest.mark.asyncio
async def test_a_finished_job_can_be_replaced(tmp_path: Path) -> None:
    async with rig(tmp_path / "c.sqlite3") as r:
        first = await r.loop.submit("a", lambda o, now: submit.admit(o, job("/u/a"), now))
        await r.loop.submit("cancel", lambda o, now: kernel.cancel(o, "/u/a", "t", "no", now))
        second = await r.loop.submit("a", lambda o, now: submit.admit(o, job("/u/a", 2), now))
        assert isinstance(first, submit.Admitted) and isinstance(second, submit.Admitted)
        assert second.incarnation > first.incarnation
        same(r.model, r.loaded())
        assert len(r.model.tasks["/u/a"]) == 2


def test_a_kill_at_any_statement_of_a_migration_leaves_the_old_or_the_new_schema(tmp_path: Path) -> None:
    steps = [
        ("0001_a", "CREATE TABLE a (x);\nINSERT INTO a VALUES (1);\n"),
        ("0002_b", "CREATE TABLE b (y);\nDROP TABLE a;\n"),
    ]

    class Killed(Exception):
        pass

    class Connection(sqlite3.Connection):
        budget = 10_000

        def execute(self, *args: Any) -> sqlite3.Cursor:
            Connection.budget -= 1
            if Connection.budget < 0:
                raise Killed
            return super().execute(*args)

    def schema(path: Path) -> list[str]:
        connection = sqlite3.connect(path)
        try:
            return [r[0] for r in connection.execute("SELECT name FROM sqlite_master ORDER BY 1")]
        finally:
            connection.close()

    clean = sqlite3.connect(tmp_path / "clean", isolation_level=None)
    migrate(clean, NOW, steps)
    clean.close()
    for budget in range(1, 16):
        path = tmp_path / f"k{budget}"
        Connection.budget = budget
        connection = sqlite3.connect(path, isolation_level=None, factory=Connection)
        try:
            migrate(connection, NOW, steps)
        except Killed:
            pass
        Connection.budget = 10_000
        sqlite3.Connection.close(connection)
        again = sqlite3.connect(path, isolation_level=None)
        migrate(again, NOW, steps)
        again.close()
        assert schema(path) == schema(tmp_path / "clean"), budget


def test_shipped_migrations_apply_twice_without_a_change(tmp_path: Path) -> None:
    connection = open_writer(tmp_path / "c.sqlite3")
    assert migrate(connection, NOW) != []
    assert migrate(connection, NOW) == []
    connection.execute("INSERT INTO schema_migrations VALUES ('9999_future', 0)")
    last = shipped_migrations()[-1][0]
    with pytest.raises(StateDirError, match=f"newer release: it has migration 9999_future, this one ends with {last}"):
        migrate(connection, NOW)
    connection.close()


def test_a_damaged_file_is_found_at_boot_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite3"
    connection = open_writer(path)
    migrate(connection, NOW)
    connection.executescript(
        "CREATE TABLE t (x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 5000)"
        " INSERT INTO t SELECT hex(randomblob(20)) FROM n; PRAGMA wal_checkpoint(TRUNCATE);"
    )
    connection.close()
    check_integrity(path)
    raw = bytearray(path.read_bytes())
    raw[4096 * 3 : 4096 * 5] = bytes(8192)
    path.write_bytes(raw)
    with pytest.raises(StateDirError, match="damaged"):
        check_integrity(path)
    assert path.read_bytes() == bytes(raw)


def test_a_second_controller_is_told_who_holds_the_state(tmp_path: Path) -> None:
    first, second = StateDir(tmp_path / "s"), StateDir(tmp_path / "s")
    first.acquire()
    with pytest.raises(StateDirError, match=r"held by another controller: pid \d+"):
        second.acquire()
    first.release()
    second.acquire()
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "s" / "lock").stat().st_mode & 0o777 == 0o600
    second.release()


def test_an_unwritable_state_dir_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StateDirError, match="state directory"):
        StateDir(tmp_path / "file" / "s").acquire()


@pytest.mark.asyncio
async def test_a_state_file_that_is_gone_takes_no_more_writes(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite3"
    async with rig(path) as r:
        await r.loop.submit("a", lambda o, now: submit.admit(o, job("/u/a"), now))
        moved = tmp_path / "moved.sqlite3"
        path.rename(moved)
        with pytest.raises(RpcError, match="removed or replaced") as caught:
            await r.loop.submit("b", lambda o, now: submit.admit(o, job("/u/b"), now))
        assert caught.value.status == "UNAVAILABLE"
        assert r.loop.stats.store_error and "/u/b" not in r.model.jobs
        moved.rename(path)
        await r.loop.submit("b", lambda o, now: submit.admit(o, job("/u/b"), now))
        assert "/u/b" in r.loaded().jobs


@pytest.mark.asyncio
async def test_jobs_of_a_name_alike_are_named_and_what_all_begin_with_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite3"
    async with rig(path) as r:
        for name in ("/u/train", "/u/train-2", "/u/et", "/u/web", "/other/train", "/u/train/eval", "/u/train/evil"):
            await r.loop.submit(name, admitting(name))
        with closing(sqlite3.connect(path)) as connection:
            connection.row_factory = sqlite3.Row
            assert similar_jobs(connection, "/u/trian")[0] == "/u/train"
            assert set(similar_jobs(connection, "/u/train-1")) == {"/u/train", "/u/train-2"}
            assert similar_jobs(connection, "/u/none") == []
            assert set(similar_jobs(connection, "/u/train/evel")) == {"/u/train/eval", "/u/train/evil"}
