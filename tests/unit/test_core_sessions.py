"""Worker sessions: when a worker may be placed on, what a broken stream leaves behind, and a store that refuses meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from iris_controller.loop import ControllerLoop
from iris_controller.rpc import session
from iris_controller.rpc.attach import WorkerSessions
from iris_controller.rpc.auth import Identity, Role
from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.session import Dispatch
from iris_controller.rpc.views import worker_view
from iris_controller.state import submit
from iris_controller.state.model import Model
from iris_controller.state.records import Job
from iris_controller.store.writer import CommitFailed, Statement
from iris_controller.ticker import SchedulerTicker
from iris_core.model.errors import ModelError
from iris_core.model.states import TaskState, WorkerHealth
from iris_core.wire.gen.iris.v1 import common_pb2, worker_pb2
from tests.unit.test_store_loop import job

pytestmark = pytest.mark.asyncio
DEAD_AFTER = 10.0


class Clock:
    """Monotonic time that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Store:
    def __init__(self) -> None:
        self.why = ""
        self.open = asyncio.Event()
        self.open.set()

    async def commit(self, statements: Sequence[Statement]) -> None:
        await self.open.wait()
        await asyncio.sleep(0)
        if self.why:
            raise CommitFailed(self.why)


class Call:
    identity = Identity("root", Role.ADMIN, "loopback", "127.0.0.1:1")
    peer = "127.0.0.1:1"


class Stream:
    """One worker's stream, message by message."""

    def __init__(self, rig: Rig, worker_id: str, boot: str, holding: Sequence[worker_pb2.Observation]) -> None:
        self.rig = rig
        self.up: asyncio.Queue[worker_pb2.AttachRequest | None] = asyncio.Queue()
        self.generation = 0
        self.desired: worker_pb2.DesiredSet = worker_pb2.DesiredSet()
        self.got: list[worker_pb2.AttachResponse] = []
        self.hello = worker_pb2.WorkerHello(worker_id=worker_id, boot_id=boot, holding=holding)
        self.hello.total.cpu_millicores = 100_000
        self.hello.total.memory_bytes = 1 << 40
        self.answers: AsyncGenerator[worker_pb2.AttachResponse, None] | None = None

    async def _messages(self) -> AsyncIterator[worker_pb2.AttachRequest]:
        while (message := await self.up.get()) is not None:
            yield message

    def open(self) -> Stream:
        self.up.put_nowait(worker_pb2.AttachRequest(hello=self.hello))
        self.answers = cast(
            AsyncGenerator[worker_pb2.AttachResponse, None], self.rig.sessions.attach(self._messages(), Call())
        )
        return self

    async def next(self) -> worker_pb2.AttachResponse:
        assert self.answers is not None
        message = await asyncio.wait_for(anext(self.answers), 60)
        self.got.append(message)
        if message.HasField("desired"):
            self.desired = message.desired
            self.generation = message.desired.generation
        return message

    async def until(self, kind: str) -> worker_pb2.AttachResponse:
        while not (message := await self.next()).HasField(kind):
            pass
        return message

    def report(self, *observations: worker_pb2.Observation) -> None:
        report = worker_pb2.WorkerReport(observations=observations, applied_generation=self.generation)
        self.up.put_nowait(worker_pb2.AttachRequest(report=report))

    def beat(self, error: str = "", stopping: bool = False) -> None:
        beat = worker_pb2.WorkerHeartbeat(
            applied_generation=self.generation, healthy=not error, health_error=error, stopping=stopping
        )
        self.up.put_nowait(worker_pb2.AttachRequest(heartbeat=beat))


class Rig:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.model = Model()
        self.store = Store()
        self.loop = ControllerLoop(self.model, self.store, SchedulerTicker(self.model))
        self.spec_error: Exception | None = None
        self.spec_bytes = 0
        dispatch = Dispatch(
            run_spec=self._spec,
            token=lambda job, uid: "t",
            log_addresses=list,
            controller_boot_id="c" * 16,
            cluster="x",
            dead_after_s=DEAD_AFTER,
        )
        self.sessions = WorkerSessions(self.loop, dispatch, clock=clock)

    async def _spec(self, job: Job) -> worker_pb2.RunSpec:
        if self.spec_error is not None:
            raise self.spec_error
        spec = worker_pb2.RunSpec(spec_id=f"{job.job_id}@{job.submitted_at_ms}", job_id=job.job_id)
        spec.entrypoint.workdir_files["x"] = bytes(self.spec_bytes)
        return spec

    def stream(
        self, worker_id: str = "w1", boot: str = "a" * 16, holding: Sequence[worker_pb2.Observation] = ()
    ) -> Stream:
        return Stream(self, worker_id, boot, holding).open()

    async def healthy(self, worker_id: str = "w1", **values: Any) -> Stream:
        stream = self.stream(worker_id, **values)
        await stream.until("desired")
        stream.report()
        await self.until(lambda: self.model.workers[worker_id].placeable)
        return stream

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await self.loop.next_commit(0.05)

    def silence(self, seconds: float) -> None:
        """Time passes in which only the controller acts."""
        for _ in range(int(seconds / (DEAD_AFTER / 10))):
            self.clock.now += DEAD_AFTER / 10
            self.sessions.health.assess_all()

    async def settled(self) -> None:
        """Every message that was sent up is read, and what it asked for is committed."""
        for _ in range(20):
            await asyncio.sleep(0)
        await self.loop.submit("barrier", lambda o, now: None)

    async def launch(self, name: str, tasks: int = 1) -> None:
        await self.loop.submit("launch", lambda o, now: submit.admit(o, job(name, tasks), now))


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    made = Rig(Clock())
    running = asyncio.create_task(made.loop.run())
    try:
        yield made
    finally:
        made.store.why = ""
        made.store.open.set()
        made.sessions.close()
        made.loop.close()
        await asyncio.wait_for(running, 60)


def saw(uid: str, state: common_pb2.TaskState, seq: int) -> worker_pb2.Observation:
    return worker_pb2.Observation(attempt_uid=uid, state=state, seq=seq)


async def test_a_store_that_refuses_is_not_flooded_with_health() -> None:
    async with rig() as r:
        stream = await r.healthy()
        r.store.why = "disk is full"
        for _ in range(50):
            r.silence(4)
        stream.beat()
        for _ in range(20):
            await asyncio.sleep(0)
        assert r.loop.depth <= 2
        r.store.why = ""
        await r.settled()
        assert r.model.workers["w1"].health is WorkerHealth.HEALTHY, "it was heard meanwhile"


async def test_a_verdict_from_before_the_store_recovered_does_not_kill() -> None:
    async with rig() as r:
        stream = await r.healthy()
        await r.launch("/u/a")
        await r.until(lambda: bool(r.model.by_worker.get("w1")))
        uid = next(iter(r.model.by_worker["w1"]))
        r.store.why = "disk is full"
        r.silence(DEAD_AFTER + 1)
        r.clock.now += 0.1
        stream.beat()
        await asyncio.sleep(0.01)
        r.store.why = ""
        await r.settled()
        assert r.model.workers["w1"].health is WorkerHealth.HEALTHY
        assert list(r.model.by_worker["w1"]) == [uid], "its task runs on"


async def test_an_unwell_worker_stays_unwell_until_it_says_otherwise() -> None:
    async with rig() as r:
        stream = await r.healthy()
        stream.beat("disk is read-only")
        await r.until(lambda: r.model.workers["w1"].health is WorkerHealth.DEGRADED)
        for _ in range(3):
            r.sessions.health.assess_all()
            stream.report()
            await r.settled()
            assert not r.model.workers["w1"].placeable
        assert r.model.workers["w1"].health_reason == "disk is read-only"
        stream.beat()
        await r.until(lambda: r.model.workers["w1"].placeable)


async def test_a_worker_that_is_told_to_end_gets_nothing_new_and_says_so() -> None:
    async with rig() as r:
        stream = await r.healthy()
        await r.launch("/u/a")
        await stream.until("desired")
        uid = stream.desired.attempts[0].attempt_uid
        stream.report(saw(uid, common_pb2.TASK_STATE_RUNNING, 1))
        await r.until(lambda: r.model.attempts[uid].state is TaskState.RUNNING)
        stream.beat(stopping=True)
        stream.report(saw(uid, common_pb2.TASK_STATE_WORKER_FAILED, 2))
        await r.launch("/u/b")
        await r.settled()
        worker = r.model.workers["w1"]
        assert (worker.stopping, worker.placeable, worker.health) == (True, False, WorkerHealth.DEGRADED)
        view = worker_view(r.model, worker, 0)
        assert view.stopping and view.health_reason == "stopping: it was told to end and gets no new work"
        await r.settled()
        assert not r.model.attempts and {"/u/a", "/u/b"} == set(r.model.pending), (
            "neither old nor new work came back to it"
        )
        again = await r.healthy(boot="b" * 16)
        assert not r.model.workers["w1"].stopping
        await again.until("desired")
        assert r.model.attempts


async def test_a_worker_given_up_while_its_stream_stood_open_must_attach_anew() -> None:
    async with rig() as r:
        stream = await r.healthy()
        await r.launch("/u/a")
        await stream.until("desired")
        uid = stream.desired.attempts[0].attempt_uid
        stream.report(saw(uid, common_pb2.TASK_STATE_RUNNING, 1))
        await r.until(lambda: r.model.attempts[uid].state is TaskState.RUNNING)
        r.silence(DEAD_AFTER + 1)
        await r.until(lambda: r.model.workers["w1"].health is WorkerHealth.DEAD)
        stream.beat()
        await r.settled()
        assert not r.model.workers["w1"].placeable, "its old task may still run"
        rejected = await stream.until("rejected")
        assert not rejected.rejected.permanent
        with pytest.raises(StopAsyncIteration):
            while True:
                await stream.next()
        again = r.stream(holding=[saw(uid, common_pb2.TASK_STATE_RUNNING, 2)])
        await again.until("desired")
        assert not again.desired.attempts
        again.report()
        await r.settled()
        assert not r.model.workers["w1"].placeable
        again.report(saw(uid, common_pb2.TASK_STATE_KILLED, 3))
        await r.until(lambda: r.model.workers["w1"].placeable)


async def test_a_set_that_only_leaves_out_what_is_over_goes_with_one_that_says_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "TIDY_S", 600)
    async with rig() as r:
        stream = await r.healthy()
        await r.launch("/u/a")
        await stream.until("desired")
        generation = stream.generation
        following = asyncio.ensure_future(stream.until("desired"))
        stream.report(saw(stream.desired.attempts[0].attempt_uid, common_pb2.TASK_STATE_SUCCEEDED, 1))
        await r.until(lambda: not r.model.attempts)
        await r.settled()
        assert not following.done()
        await r.launch("/u/b")
        await following
        assert [attempt.run.task_id for attempt in stream.desired.attempts] == ["/u/b/0"]
        assert stream.generation == generation + 1
        assert [message.ack.seq for message in stream.got if message.HasField("ack")] == [1], "before the set"


async def test_what_is_over_is_left_out_after_a_while_with_what_it_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "TIDY_S", 0.01)
    async with rig() as r:
        stream = await r.healthy()
        await r.launch("/u/a")
        await stream.until("desired")
        stream.report(saw(stream.desired.attempts[0].attempt_uid, common_pb2.TASK_STATE_SUCCEEDED, 1))
        await r.until(lambda: not r.model.attempts)
        await stream.until("desired")
        assert not stream.desired.attempts
        assert len(stream.desired.forget_specs) == 1


async def test_an_attach_whose_caller_left_leaves_no_session() -> None:
    async with rig() as r:
        r.store.open.clear()
        stream = r.stream()
        assert stream.answers is not None
        waiting = asyncio.ensure_future(anext(stream.answers))
        for _ in range(5):
            await asyncio.sleep(0)
        assert r.sessions.attached("w1")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        r.store.open.set()
        assert not r.sessions.attached("w1")


async def test_a_controller_that_stood_still_blames_nobody() -> None:
    async with rig() as r:
        await r.healthy()
        r.sessions.health.assess_all()
        r.clock.now += 60
        r.sessions.health.assess_all()
        await r.settled()
        assert r.model.workers["w1"].health is WorkerHealth.HEALTHY
        r.silence(15)
        await r.until(lambda: r.model.workers["w1"].health is WorkerHealth.DEAD)


async def test_what_a_replaced_stream_still_says_is_not_heard() -> None:
    async with rig() as r:
        old = await r.healthy()
        await r.launch("/u/a")
        await old.until("desired")
        uid = old.desired.attempts[0].attempt_uid
        new = r.stream(boot="b" * 16)
        await new.until("desired")
        old.generation = 9
        old.report(saw(uid, common_pb2.TASK_STATE_SUCCEEDED, 1))
        await r.settled()
        assert not r.model.workers["w1"].placeable
        assert (await old.until("rejected")).rejected.permanent


async def test_a_spec_that_cannot_be_read_now_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SPEC_RETRY_S", 0.01)
    async with rig() as r:
        stream = await r.healthy()
        r.spec_error = OSError("input/output error")
        await r.launch("/u/a")
        await r.until(lambda: bool(r.model.by_worker.get("w1")))
        await stream.until("desired")
        assert not stream.desired.attempts
        r.spec_error = None
        await stream.until("desired")
        assert [a.run.task_id for a in stream.desired.attempts] == ["/u/a/0"]
        assert len(r.model.attempts) == 1


async def test_large_specs_come_in_several_sets_that_grow() -> None:
    async with rig() as r:
        stream = await r.healthy()
        r.spec_bytes = session.SPEC_BYTES
        for n in range(3):
            await r.launch(f"/u/j{n}")
        await r.until(lambda: len(r.model.by_worker.get("w1", {})) == 3)
        sizes = []
        while len(stream.desired.attempts) < 3:
            await stream.until("desired")
            sizes.append(stream.desired.ByteSize())
        assert max(sizes) < 2 * session.SPEC_BYTES
        assert len({a.attempt_uid for a in stream.desired.attempts}) == 3


async def test_a_set_that_says_nothing_new_is_not_sent_again() -> None:
    async with rig() as r:
        stream = await r.healthy()
        await r.launch("/u/a")
        await stream.until("desired")
        told = stream.generation
        uid = stream.desired.attempts[0].attempt_uid
        stream.report(saw(uid, common_pb2.TASK_STATE_RUNNING, 1))
        await stream.until("ack")
        stream.report(saw(uid, common_pb2.TASK_STATE_SUCCEEDED, 2))
        await stream.until("desired")
        assert not stream.desired.attempts
        assert stream.generation == told + 1, "that it runs changes nothing in what is wanted"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_a_hello_that_cannot_be_stored_is_refused(number: float) -> None:
    async with rig() as r:
        stream = Stream(r, "w1", "a" * 16, ())
        stream.hello.attributes["speed"].number = number
        with pytest.raises((RpcError, ModelError)):
            await stream.open().next()
        assert not r.sessions.attached("w1")
        huge = Stream(r, "w1", "a" * 16, ())
        huge.hello.hostname = "x" * 1_000_000
        with pytest.raises(RpcError, match="hostname"):
            await huge.open().next()


async def test_a_hushed_controller_takes_workers_in_and_tells_them_nothing_until_it_speaks() -> None:
    async with rig() as r:
        await r.launch("/u/a", 2)
        await r.healthy()
        await r.until(lambda: len(r.model.by_worker.get("w1") or ()) == 2)
        ends, stays = sorted(r.model.by_worker["w1"])
        await r.loop.hold("on probation")
        r.sessions.hush()
        running = common_pb2.TASK_STATE_RUNNING
        # It attaches twice, as after a broken connection; a task ends meanwhile.
        for _ in range(2):
            stream = r.stream(holding=[saw(ends, running, 1), saw(stays, running, 2)])
            await stream.until("welcome")
            assert r.sessions.count == 1
        answer = asyncio.ensure_future(stream.next())
        stream.report(saw(ends, common_pb2.TASK_STATE_SUCCEEDED, 3))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not answer.done() and r.loop.depth == 0 and r.model.attempts[ends].state is TaskState.ASSIGNED
        r.sessions.speak()
        r.loop.resume()
        await answer
        await stream.until("desired")
        assert [a.attempt_uid for a in stream.desired.attempts] == [stays], "what ended is not started again"
        stream.report()
        await r.until(lambda: r.model.workers["w1"].placeable)
        while max((m.ack.seq for m in stream.got if m.HasField("ack")), default=0) < 3:
            await stream.next()
