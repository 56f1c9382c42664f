"""Watch over kinds that follow no batch: what is shown equals what the unary calls say, differences arrive, and nothing is done unasked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris_controller.rpc.auth import Identity, Role, TaskClaims
from iris_controller.rpc.budgets import budget_view
from iris_controller.rpc.call import Call
from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.scheduler_state import SchedulerStateService
from iris_controller.scheduling import never
from iris_controller.state.budgets import Budget
from iris_controller.state.records import Charge
from iris_controller.watching import pulse, source, subscription
from iris_controller.watching.buckets import PendingBuckets, RunningBuckets
from iris_controller.watching.ends import MINUTE_MS, Ends
from iris_controller.watching.people import Users
from iris_controller.watching.pulse import Fleet, pending_by_band, running_by_band
from iris_controller.watching.queued import Queued
from iris_controller.watching.source import Look, Source
from iris_core.live.watch_keys import KIND_FIELDS, ROW_IDS, each
from iris_core.model.bands import PriorityBand
from iris_core.model.errors import ModelError
from iris_core.model.states import TaskState
from iris_core.wire.gen.iris.v1 import backends_pb2, common_pb2, watch_rows_pb2
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.services import method
from tests.unit.kernel_world import healthy_worker
from tests.unit.test_watch import Rig, Viewer, jobs

pytestmark = pytest.mark.asyncio
PENDING, RUNNING, USERS = pb.WATCH_KIND_PENDING_BUCKETS, pb.WATCH_KIND_RUNNING_BUCKETS, pb.WATCH_KIND_USERS


class Kinds(Rig):
    """The core of a controller with the looks that need nothing else, and a worker that runs whatever is placed."""

    def __init__(self) -> None:
        super().__init__()
        self.queued = Queued(self.model, {})
        self.loop.on_commit(self.queued.note)
        self.hub.looks.update(
            {
                PENDING: Look(PendingBuckets(self.model, self.queued.since).look),
                RUNNING: Look(RunningBuckets(self.model).look),
                USERS: Look(Users(self.model, frozenset({"root"}), 7).look),
            }
        )

    async def worker(self, name: str = "w", cpu: float = 1) -> None:
        await self.loop.submit("worker", lambda o, now: o.workers.__setitem__(name, healthy_worker(name, cpu=cpu)))

    async def budget(self, user: str, limit: int) -> None:
        await self.loop.submit(
            "budget", lambda o, now: o.put_budget(Budget(user, limit, PriorityBand.INTERACTIVE, now))
        )

    async def run_all(self) -> None:
        """What is placed says that it runs."""

        def plan(o: Any, now: int) -> None:
            for tasks in list(self.model.tasks.values()):
                for task in list(tasks):
                    if task.state is TaskState.ASSIGNED:
                        attempt = self.model.attempts[task.attempt_uid]
                        o.set_attempt(attempt, state=TaskState.RUNNING, executed=True)
                        o.set_task(task, state=TaskState.RUNNING)

        await self.loop.submit("run", plan)

    def source(self, kind: int) -> Source:
        return self.hub._sources[(kind, frozenset())]


@asynccontextmanager
async def rig() -> AsyncIterator[Kinds]:
    made = Kinds()
    running = asyncio.create_task(made.loop.run())
    try:
        yield made
    finally:
        made.hub.close()
        made.loop.close()
        await asyncio.wait_for(running, 60)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "EVERY_S", 0.0)
    monkeypatch.setattr(source, "SHARE", 0.0)
    monkeypatch.setattr(subscription, "INTERVAL_S", 0.0)
    monkeypatch.setattr(subscription, "HEARTBEAT_S", 0.02)


def select(kind: int, **values: Any) -> pb.WatchSelector:
    return pb.WatchSelector(id="s", kind=cast("Any", kind), **values)


class Reader(Viewer):
    """A client of any kind of rows."""

    async def read(self) -> str:
        kind = await super().read()
        message = self.messages[-1]
        batches = [message.snapshot.rows] if kind == "snapshot" else list(message.delta.rows)
        for rows in batches:
            self.rows.update({row_id: row for _, row_id, row in each(rows)})
            for gone in rows.removed:
                self.rows.pop(gone, None)
        return kind

    async def until_equal(self, wanted: Callable[[], Awaitable[Iterable[Any]]], kind: int) -> None:
        """Reads until what it has is what a fresh look gives."""
        async with asyncio.timeout(60):
            while self.rows != {ROW_IDS[KIND_FIELDS[kind]](row): row for row in await wanted()}:
                await self.read()


def look(r: Kinds, kind: int) -> Callable[[], Awaitable[Iterable[Any]]]:
    return lambda: r.hub.looks[kind].rows(frozenset())


async def scheduler_state(r: Kinds) -> pb.GetSchedulerStateResponse:
    service = SchedulerStateService(r.loop, r.hub.revision)
    answer = await service.get_scheduler_state(pb.GetSchedulerStateRequest(), cast("Call", None))
    return pb.GetSchedulerStateResponse.FromString(answer)


async def test_buckets_are_those_of_the_scheduler_state() -> None:
    async with rig() as r:
        for n, name in enumerate(("/u/a", "/v/b", "/u/c")):
            await r.launch(name, tasks=40 * (n + 1))
        await r.worker(cpu=0.05)
        while not r.model.tally.running_total:
            await r.run_all()
        waiting, running = Reader(r, select(PENDING)), Reader(r, select(RUNNING))
        await waiting.read()
        await running.read()
        said = await scheduler_state(r)
        assert said.total_pending and said.total_running
        shown = list(waiting.rows.values())
        assert [(b.job_id, b.band, b.user_id, b.backend_id, b.count) for b in shown] == [
            (b.job_id, b.band, b.user_id, b.backend_id, b.count) for b in said.pending_buckets
        ]
        assert [(b.job_id, b.position, b.reason, b.requested_band, b.resources) for b in shown] == [
            (b.job_id, b.position, b.reason, b.requested_band, b.resources) for b in said.pending_queue
        ]
        assert [(b.job_id, b.band, b.user_id, b.worker_id, b.backend_id, b.count) for b in running.rows.values()] == [
            (b.job_id, b.band, b.user_id, b.worker_id, b.backend_id, b.count) for b in said.running_buckets
        ]
        assert sum(row.tasks for row in pending_by_band(r.model, r.queued.since)) == said.total_pending
        assert sum(row.tasks for row in running_by_band(r.model.tally.running.values())) == said.total_running


async def fleet_row(r: Kinds, looked: Fleet) -> watch_rows_pb2.FleetRow:
    (row,) = await looked.look(frozenset())
    return row


async def test_the_pulse_says_what_can_never_run_and_not_what_only_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "JUDGED_S", 0.0)

    async def backend() -> backends_pb2.BackendStatus:
        return backends_pb2.BackendStatus()

    async with rig() as r:
        looked = Fleet(r.model, r.queued.since, watch_rows_pb2.HourOfEnds, backend, lambda: None)
        await r.worker(cpu=2)
        await r.launch("/u/fits", tasks=3, cpu=2000)  # one runs, two wait for it
        await r.launch("/u/huge", tasks=2, cpu=4096_000)
        await r.launch("/u/huge-too", tasks=1, cpu=4096_000)
        await r.launch("/u/larger", tasks=1, cpu=3000)
        async with asyncio.timeout(60):
            while set(r.model.reasons) < {"/u/fits", "/u/huge", "/u/huge-too", "/u/larger"}:  # noqa: ASYNC110 (kept by the scheduler's cycle)
                await asyncio.sleep(0)
        found = (await fleet_row(r, looked)).never_fits
        assert (found.tasks, found.jobs, found.job_id, found.unjudged) == (4, 3, "/u/huge", 0)
        assert found.reason == "needs 4096 cores, the largest of 1 worker has 2"
        monkeypatch.setattr(never, "MOST_SHAPES", 1)
        found = (await fleet_row(r, looked)).never_fits
        assert (found.tasks, found.unjudged) == (3, 1), "what was not looked at is said"
        monkeypatch.setattr(never, "MOST_SHAPES", 32)
        await r.worker("larger", cpu=4)
        async with asyncio.timeout(60):
            while (await fleet_row(r, looked)).never_fits.tasks != 3:  # noqa: ASYNC110
                await asyncio.sleep(0)


async def test_users_are_whoever_has_a_budget_spends_or_owns_a_job() -> None:
    async with rig() as r:
        await r.budget("rich", 5)
        await r.budget("root", 0)
        await r.launch("/someone/a", tasks=3)
        viewer = Reader(r, select(USERS))
        await viewer.read()
        assert set(viewer.rows) == {"rich", "root", "someone"}
        assert viewer.rows["rich"].budget == budget_view(r.model, r.model.budgets["rich"])
        assert viewer.rows["someone"].active_tasks == 3 and viewer.rows["someone"].max_active_tasks == 7
        assert viewer.rows["someone"].summary.active_jobs == 1 and viewer.rows["root"].summary.role == "admin"
        version = viewer.rows["rich"].budget.updated_at_ms
        await r.budget("rich", 6)
        await r.cancel("/someone/a")
        await viewer.until_equal(look(r, USERS), USERS)
        assert set(viewer.rows) == {"rich", "root"} and viewer.rows["rich"].budget.updated_at_ms > version


async def test_only_what_differs_is_sent_and_what_is_gone_is_removed() -> None:
    async with rig() as r:
        await r.launch("/u/a", tasks=3)
        await r.launch("/v/b", tasks=2)
        viewer = Reader(r, select(PENDING))
        await viewer.read()
        await viewer.until_equal(look(r, PENDING), PENDING)
        before = len(viewer.messages)
        await r.cancel("/u/a")
        await viewer.until_equal(look(r, PENDING), PENDING)
        deltas = [rows for m in viewer.messages[before:] for rows in m.delta.rows]
        assert [name for rows in deltas for name in rows.removed] == ["/u/a"]
        assert {row.job_id for rows in deltas for row in rows.pending_buckets} <= {"/v/b"}


async def test_a_resume_sends_what_was_missed_and_no_snapshot() -> None:
    async with rig() as r:
        for name in ("/u/a", "/v/b", "/w/c"):
            await r.launch(name, tasks=2)
        viewer = Reader(r, select(PENDING))
        await viewer.read()
        await viewer.until_equal(look(r, PENDING), PENDING)
        await viewer.until(r.loop.n)
        await viewer.close()
        await r.cancel("/v/b")
        await r.launch("/x/d")
        again = Reader(r, select(PENDING, resume=viewer.revision))
        again.rows = viewer.rows
        await again.until_equal(look(r, PENDING), PENDING)
        assert set(again.rows) == {"/u/a", "/w/c", "/x/d"}
        assert all(m.WhichOneof("event") in ("delta", "heartbeat") for m in again.messages)


async def test_a_resume_after_the_source_was_let_go_is_a_resync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LINGER_S", 0.0)
    async with rig() as r:
        await r.launch("/u/a")
        viewer = Reader(r, select(PENDING))
        await viewer.read()
        await viewer.close()
        async with asyncio.timeout(60):
            while r.hub._sources:  # noqa: ASYNC110
                await asyncio.sleep(0)
        again = Reader(r, select(PENDING, resume=viewer.revision))
        assert [await again.read(), await again.read()] == ["resync", "snapshot"]


async def test_nothing_is_looked_at_while_nobody_watches() -> None:
    async with rig() as r:
        await r.launch("/u/a")
        assert not r.hub._sources
        one, two = Reader(r, select(PENDING)), Reader(r, select(PENDING))
        await one.read()
        await two.read()
        shared = r.source(PENDING)
        assert shared.watchers == 2 and len(r.hub._sources) == 1
        await one.close()
        await two.close()
        done = shared.looks
        for n in range(5):
            await r.launch(f"/u/b{n}")
        assert shared.looks == done and shared.watchers == 0


async def test_a_commit_that_is_none_of_its_business_asks_for_no_look() -> None:
    async with rig() as r:
        await r.launch("/u/a")
        r.hub.looks[PENDING] = Look(
            PendingBuckets(r.model, r.queued.since).look,
            idle_s=1_000.0,
            touched=lambda batch, _: "/u/mine" in batch.changes.jobs,
        )
        viewer = Reader(r, select(PENDING), jobs())
        await viewer.read()
        shared = r.source(PENDING)
        await r.launch("/u/b")
        await viewer.until(r.loop.n)
        assert shared.looks == 1
        await r.launch("/u/mine")
        async with asyncio.timeout(60):
            while shared.looks < 2:
                await viewer.read()


async def test_a_filter_shows_and_takes_away() -> None:
    async with rig() as r:
        await r.launch("/u/a", tasks=3)
        await r.launch("/v/b", tasks=9)
        viewer = Reader(r, select(PENDING, filter="tasks>=5 job:/v"))
        await viewer.read()
        assert set(viewer.rows) == {"/v/b"} and viewer.messages[0].snapshot.total_count == 2
        await r.cancel("/v/b")
        async with asyncio.timeout(60):
            while viewer.rows:
                await viewer.read()


@pytest.mark.parametrize("kind", sorted(KIND_FIELDS))
async def test_an_unknown_field_is_refused_with_its_place(kind: int) -> None:
    async with rig() as r:
        asked = select(kind, filter="nonsense=1", task_ids=["/u/a/0"])
        with pytest.raises(ModelError) as caught:
            await Reader(r, asked).read()
        assert caught.value.position == 0


@pytest.mark.parametrize("kind", sorted(set(KIND_FIELDS) - {1, 2, 4, 11}))
async def test_a_task_watches_nothing_that_it_may_not_list(kind: int) -> None:
    claims = TaskClaims("u", "/u/a", "/u/a", "0" * 16)
    identity = Identity("u", Role.TASK, "token", "127.0.0.1:1", task=claims)
    async with rig() as r:
        with pytest.raises(RpcError) as caught:
            await Reader(r, select(kind), call=Call(identity, method("ControllerService/Watch"), "p")).read()
        assert caught.value.status == "PERMISSION_DENIED"


async def test_attempts_are_of_named_tasks_and_a_task_sees_its_own() -> None:
    rows = [pb.AttemptStatus(attempt_uid="0" * 16, task_id="/u/a/0", state=common_pb2.TASK_STATE_RUNNING)]

    async def attempts(task_ids: frozenset[str]) -> list[pb.AttemptStatus]:
        return [row for row in rows if row.task_id in task_ids]

    claims = TaskClaims("u", "/u/a", "/u/a", "0" * 16)
    call = Call(Identity("u", Role.TASK, "token", "p", task=claims), method("ControllerService/Watch"), "p")
    kind = pb.WATCH_KIND_ATTEMPTS
    async with rig() as r:
        r.hub.looks[kind] = Look(attempts)
        viewer = Reader(r, select(kind, task_ids=["/u/a/0"]), call=call)
        await viewer.read()
        assert set(viewer.rows) == {"0" * 16}
        with pytest.raises(RpcError, match="may not reach"):
            await Reader(r, select(kind, task_ids=["/v/b/0"]), call=call).read()
        with pytest.raises(RpcError, match="1 to"):
            await Reader(r, select(kind)).read()


async def test_a_kind_that_is_not_known_here_is_refused_in_words() -> None:
    async with rig() as r:
        with pytest.raises(RpcError, match="the controller cannot be watched here"):
            await Reader(r, select(pb.WATCH_KIND_CONTROLLER)).read()


async def test_a_look_that_fails_says_so_and_the_next_one_goes_on() -> None:
    failing = [True]

    async def rows(task_ids: frozenset[str]) -> list[Any]:
        if failing[0]:
            raise ValueError("a fault of ours")
        return [watch_rows_pb2.FleetRow(fleet_id="fleet")]

    async with rig() as r:
        r.hub.looks[pb.WATCH_KIND_FLEET] = Look(rows)
        with pytest.raises(RpcError, match="cannot be looked at"):
            await Reader(r, select(pb.WATCH_KIND_FLEET)).read()
        failing[0] = False
        viewer = Reader(r, select(pb.WATCH_KIND_FLEET))
        await viewer.read()
        assert set(viewer.rows) == {"fleet"}


async def fresh(r: Kinds, kind: int) -> Iterable[Any]:
    """What somebody who comes now is shown."""
    reader = Reader(r, select(kind))
    await reader.read()
    await reader.close()
    return reader.rows.values()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("launch"), st.integers(0, 4), st.integers(1, 4)),
        st.tuples(st.just("cancel"), st.integers(0, 4)),
        st.tuples(st.just("worker"), st.integers(0, 2)),
        st.tuples(st.just("run")),
        st.tuples(st.just("budget"), st.integers(0, 2), st.integers(0, 3)),
        st.tuples(st.just("read")),
        st.tuples(st.just("break")),
    ),
    max_size=14,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
async def test_a_snapshot_and_its_deltas_are_a_fresh_snapshot(steps: list[tuple[Any, ...]]) -> None:
    kinds = (PENDING, RUNNING, USERS, pb.WATCH_KIND_TASKS)
    async with rig() as r:
        viewers = {kind: Reader(r, select(kind)) for kind in kinds}
        for viewer in viewers.values():
            await viewer.read()
        for step in steps:
            match step:
                case ("launch", n, tasks) if f"/u{n}/j" not in r.model.tasks:
                    await r.launch(f"/u{n}/j", tasks=tasks)
                case ("cancel", n) if f"/u{n}/j" in r.model.tasks:
                    await r.cancel(f"/u{n}/j")
                case ("worker", n):
                    await r.worker(f"w{n}", cpu=0.003)
                case ("run",):
                    await r.run_all()
                case ("budget", n, limit):
                    await r.budget(("u", "u1", "u2")[n], limit)
                case ("read",):
                    for viewer in viewers.values():
                        if viewer.revision.n < r.loop.n:
                            await viewer.read()
                case ("break",):
                    for kind, viewer in list(viewers.items()):
                        await viewer.close()
                        viewers[kind] = again = Reader(r, select(kind, resume=viewer.revision))
                        again.rows, again.revision = viewer.rows, viewer.revision
        for kind, viewer in viewers.items():
            await viewer.until_equal(partial(fresh, r, kind), kind)
            await viewer.close()


async def test_how_long_the_oldest_waits_is_kept_without_looking_at_every_task() -> None:
    async with rig() as r:
        await r.launch("/u/a", tasks=2)
        submitted = r.model.jobs["/u/a"].submitted_at_ms
        assert r.queued.since("/u/a") == submitted and r.queued.since("/u/b") == 0
        await r.worker(cpu=0.002)
        while "/u/a" in r.model.pending:
            await r.run_all()
        assert r.queued.since("/u/a") == 0
        r.loop._wall_ms = lambda: 50_000

        def back(o: Any, now: int) -> None:
            o.set_worker(r.model.workers["w"], placeable=False)
            for task in r.model.tasks["/u/a"]:
                o.set_task(task, state=TaskState.PENDING)

        await r.loop.submit("back", back)
        assert r.queued.since("/u/a") == 50_000
        await r.cancel("/u/a")
        assert not r.queued._again


async def test_ends_are_counted_once_and_forgotten_after_an_hour() -> None:
    ends = Ends(5 * MINUTE_MS + 7)

    def note(now_ms: int, **attempts: Charge) -> None:
        found = {uid: SimpleNamespace(charge=charge) for uid, charge in attempts.items()}
        ends.note(cast("Any", SimpleNamespace(now_ms=now_ms, changes=SimpleNamespace(attempts=found))))

    note(5 * MINUTE_MS + 8, a=Charge.FAILURE, b=Charge.PREEMPTION, c=Charge.NONE)
    note(6 * MINUTE_MS, a=Charge.FAILURE, d=Charge.FAILURE)
    said = ends.read(7 * MINUTE_MS)
    assert (said.failures, said.preemptions, said.counted_since_ms) == (2, 1, 5 * MINUTE_MS + 7)
    assert list(said.failures_by_minute) == [1, 1, 0] and said.minute_started_ms == 7 * MINUTE_MS
    said = ends.read(65 * MINUTE_MS)
    assert (said.failures, said.preemptions) == (1, 0) and len(said.failures_by_minute) == 60
    assert said.counted_since_ms == 6 * MINUTE_MS
    assert ends.read(500 * MINUTE_MS).failures == 0
    assert not ends._known
