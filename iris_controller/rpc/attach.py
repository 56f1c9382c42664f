"""The worker's stream, from the controller's side: one session per worker.

Down goes the complete desired set whenever it changed, and exec and status requests; up come observations, heartbeats and
replies. An observation is acknowledged only after its batch is committed. A worker that attaches under another boot id says what
it still holds, and its other attempts resolve as MISSING at once. A DEAD worker that returns first confirms an empty set and the
end of what it should not hold, and only then is placed on (DESIGN §4). How a worker is judged is `worker_health`. Must never tell a
worker what is not committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from iris_controller.commits import Committed
from iris_controller.loop import ControllerLoop
from iris_controller.rpc.errors import RpcError, precondition
from iris_controller.rpc.hello import TERMINAL_NUMBERS, check_hello, device_attributes, observed
from iris_controller.rpc.session import DesiredSets, Dispatch, Session
from iris_controller.rpc.worker_health import HealthKeeper
from iris_controller.state import availability, kernel
from iris_controller.state.observed import cut
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import Worker
from iris_core.client.calls import WORKER_SILENT
from iris_core.model.constraints import canonical_attributes
from iris_core.model.errors import shown
from iris_core.model.resources import Resources
from iris_core.model.states import WorkerHealth
from iris_core.wire.convert import resources_from_wire, value_from_wire
from iris_core.wire.gen.iris.v1 import pipeline_pb2, worker_pb2

log = logging.getLogger("iris.workers")

Messages = AsyncIterator[worker_pb2.AttachRequest]

ENDED_WITH_CALLER = frozenset({"exec", "profile"})
"""Requests that the worker is told to give up when nobody waits for the answer any more: what they began would go on for nothing."""


class WorkerSessions:
    """All sessions; how every known worker is, is `health`."""

    def __init__(
        self,
        loop: ControllerLoop,
        dispatch: Dispatch,
        *,
        clock: Callable[[], float] = time.monotonic,
        measured: Callable[[str, Iterable[worker_pb2.AttemptUsage]], None] = lambda worker_id, usage: None,
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._dispatch = dispatch
        self._sessions: dict[str, Session] = {}
        self._desired = DesiredSets(loop, dispatch)
        self._clock = clock
        self._measured = measured
        """Is told what a worker measured of its attempts."""
        self.health = HealthKeeper(loop, dispatch.dead_after_s, self._sessions, clock)
        """How each known worker is."""
        self._shippers: dict[str, tuple[pipeline_pb2.ShipperHealth, float]] = {}
        self._requests = itertools.count(1)
        self.on_capture: Callable[[str, worker_pb2.ProfileCapture], None] | None = None
        """Takes the profiles that workers send by themselves."""
        self.ignored_observations = 0
        self._hushed = False
        loop.on_commit(self._committed)

    @property
    def count(self) -> int:
        """Workers that are attached, also those that are not registered yet."""
        return len(self._sessions)

    def hush(self) -> None:
        """From now on workers attach and report, and are told nothing: what they say waits in a loop that is held."""
        self._hushed = True

    def speak(self) -> None:
        """Ends that: once the loop goes on, workers are registered, and told what they are to run."""
        self._hushed = False

    def attached(self, worker_id: str) -> bool:
        return worker_id in self._sessions

    def pipeline(self, worker_id: str) -> pipeline_pb2.WorkerPipeline:
        """How that worker's lines get away, by its last word."""
        found = pipeline_pb2.WorkerPipeline(worker_id=worker_id, attached=self.attached(worker_id))
        said = self._shippers.get(worker_id)
        if said is not None:
            found.shipper.CopyFrom(said[0])
            found.age_ms = int((self._clock() - said[1]) * 1000)
        return found

    def shippers(self) -> dict[str, pipeline_pb2.ShipperHealth]:
        """How every worker's lines get away, by its last word."""
        return {worker_id: said for worker_id, (said, _) in self._shippers.items()}

    def peer_of(self, worker_id: str) -> str | None:
        """The real `address:port` that an attached worker dialled from; None when it is not attached."""
        session = self._sessions.get(worker_id)
        return session.peer if session is not None else None

    def close(self) -> None:
        """Ends every stream; workers dial again until somebody answers."""
        for session in self._sessions.values():
            session.close()

    # The stream ---------------------------------------------------------------------------------------------

    async def attach(self, requests: Messages, call: Any) -> AsyncIterator[worker_pb2.AttachResponse]:
        """The RPC handler. Raises RpcError on a bad hello."""
        try:
            first = await anext(requests)
        except StopAsyncIteration:
            return
        hello = first.hello
        check_hello(first, call)
        session = Session(hello, call.peer)
        await self._register(session, hello)
        reader = asyncio.create_task(self._read(session, requests), name=f"attach-read-{session.worker_id}")
        try:
            yield self._welcome()
            async for message in self._outgoing(session):
                yield message
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await reader
            self._detached(session)

    def _welcome(self) -> worker_pb2.AttachResponse:
        dead_after_ms = int(self._dispatch.dead_after_s * 1000)
        return worker_pb2.AttachResponse(
            welcome=worker_pb2.Welcome(
                controller_boot_id=self._dispatch.controller_boot_id,
                cluster=self._dispatch.cluster,
                dead_after_ms=dead_after_ms,
                heartbeat_ms=max(50, dead_after_ms // 10),
                log_addresses=self._dispatch.log_addresses(),
                profile_interval_ms=self._dispatch.profile_interval_ms,
                stats_interval_ms=self._dispatch.stats_interval_ms,
                task_outputs=self._dispatch.task_outputs,
            )
        )

    async def _register(self, session: Session, hello: worker_pb2.WorkerHello) -> None:
        attributes = canonical_attributes(
            {k: value_from_wire(v, f"the attribute {shown(k)}") for k, v in hello.attributes.items()}
        )
        total = resources_from_wire(hello.total)
        attributes = device_attributes(total) | attributes
        previous = self._sessions.get(session.worker_id)
        if previous is not None:
            superseded = worker_pb2.Rejected(
                code="superseded",
                message=f"worker {session.worker_id} attached again"
                + ("" if previous.boot_id == session.boot_id else " from another process"),
                permanent=previous.boot_id != session.boot_id,
            )
            previous.send(worker_pb2.AttachResponse(rejected=superseded))
            previous.close()
        self._sessions[session.worker_id] = session
        self.health.attached(session.worker_id)
        held = {o.attempt_uid: o for o in hello.holding}

        def plan(o: Overlay, now_ms: int) -> None:
            # One that waited may be of a stream that has ended meanwhile.
            if not session.closed:
                self._plan_register(o, now_ms, hello, attributes, total, held)

        if self._hushed:
            self._loop.post("worker attach", plan).add_done_callback(lambda f: self._registered_late(session, hello, f))
            return
        try:
            await self._loop.submit(
                "worker attach", lambda o, now: self._plan_register(o, now, hello, attributes, total, held)
            )
        except BaseException:
            self._detached(session)
            raise
        self._registered(session, hello)

    def _registered_late(self, session: Session, hello: worker_pb2.WorkerHello, done: asyncio.Future[None]) -> None:
        if done.cancelled() or done.exception() is not None:
            session.close()
        elif not session.closed:
            self._registered(session, hello)

    def _registered(self, session: Session, hello: worker_pb2.WorkerHello) -> None:
        # What has ended since its hello is none: of one that waited, reports were read meanwhile.
        session.zombies = {uid for uid in session.held - session.over if not self._bound(uid, session.worker_id)}
        seq = max((o.seq for o in hello.holding), default=0)
        if seq:
            session.send(worker_pb2.AttachResponse(ack=worker_pb2.ObservationAck(seq=seq)))
        session.registered = True
        session.dirty()

    def _bound(self, uid: str, worker_id: str) -> bool:
        attempt = self._model.attempts.get(uid)
        return attempt is not None and attempt.worker_id == worker_id

    def _plan_register(
        self,
        o: Overlay,
        now_ms: int,
        hello: worker_pb2.WorkerHello,
        attributes: dict[str, str | int | float],
        total: Resources,
        held: dict[str, worker_pb2.Observation],
    ) -> None:
        known = o.worker(hello.worker_id)
        changed_boot = known is None or known.boot_id != hello.boot_id
        worker = Worker(
            worker_id=hello.worker_id,
            address=hello.address,
            hostname=hello.hostname,
            total=total,
            cpu_count=hello.cpu_count,
            attributes=attributes,
            slice_id=hello.slice_id,
            scale_group=hello.scale_group,
            boot_id=hello.boot_id,
            pid=hello.pid,
            version=hello.version,
            release=hello.release,
            attached=True,
            health=WorkerHealth.DEGRADED,
            health_reason="attached, has not confirmed its tasks yet",
            build_failures=0 if changed_boot or known is None else known.build_failures,
            staging_streak=0 if changed_boot or known is None else known.staging_streak,
            excluded=False if changed_boot or known is None else known.excluded,
            excluded_reason="" if changed_boot or known is None else known.excluded_reason,
        )
        o.workers[worker.worker_id] = worker
        availability.mark(o, worker.worker_id, known)
        note, action = (o.note, "worker_registered") if changed_boot else (o.note_often, "worker_attached")
        note(action, worker.worker_id, "worker", boot_id=worker.boot_id, address=worker.address, holding=len(held))
        if changed_boot and known is not None:
            kernel.attempts_missing(o, worker.worker_id, set(held), now_ms)
        self._observe(o, worker.worker_id, list(held.values()), now_ms)

    def _observe(self, o: Overlay, worker_id: str, observations: list[worker_pb2.Observation], now_ms: int) -> None:
        for observation in observations:
            if not kernel.observe(o, worker_id, observed(observation), now_ms):
                self.ignored_observations += 1

    async def _read(self, session: Session, requests: Messages) -> None:
        try:
            async for message in requests:
                if session.closed:
                    # Replaced or given up: what it says now may be of a world that is over. It attaches anew.
                    return
                self.health.heard(session.worker_id)
                self._received(session, message)
        except Exception as error:  # the stream broke: a normal event
            log.debug("stream of %s ended: %s", session.worker_id, error)
        finally:
            session.close()

    def _received(self, session: Session, message: worker_pb2.AttachRequest) -> None:
        kind = message.WhichOneof("message")
        if kind == "report":
            self._report(session, message.report)
        elif kind == "heartbeat":
            beat = message.heartbeat
            session.applied = max(session.applied, beat.applied_generation)
            session.complaint = "" if beat.healthy else cut(beat.health_error) or "unwell"
            session.stopping = beat.stopping
            if beat.usage:
                self._measured(session.worker_id, beat.usage)
            if beat.HasField("shipper"):
                self._shippers[session.worker_id] = (beat.shipper, self._clock())
            self.health.assess(session.worker_id)
        elif kind == "reply":
            session.replied(message.reply)
        elif kind == "capture" and self.on_capture is not None:
            self.on_capture(session.worker_id, message.capture)

    def _report(self, session: Session, report: worker_pb2.WorkerReport) -> None:
        session.applied = max(session.applied, report.applied_generation)
        observations = list(report.observations)
        for observation in observations:
            if observation.state in TERMINAL_NUMBERS:
                session.zombies.discard(observation.attempt_uid)
                session.over.add(observation.attempt_uid)
        if observations:
            seq = max(o.seq for o in observations)
            worker_id = session.worker_id
            done = self._loop.post("observe", lambda o, now: self._observe(o, worker_id, observations, now))
            done.add_done_callback(lambda f: None if f.cancelled() or f.exception() else session.ack(seq))
        self.health.assess(session.worker_id)

    # Down ---------------------------------------------------------------------------------------------------

    async def _outgoing(self, session: Session) -> AsyncIterator[worker_pb2.AttachResponse]:
        while True:
            await session.wake.wait()
            session.wake.clear()
            outbox, session.outbox = session.outbox, []
            for message in outbox:
                yield message
            if session.closed:
                return
            desired = None
            if session.desired_dirty and session.registered:
                session.desired_dirty = False
                desired = await self._desired.of(session)
            if (desired is not None or session.ack_late) and (ack := session.due_ack()) is not None:
                yield ack
            if desired is not None:
                yield worker_pb2.AttachResponse(desired=desired)

    def _committed(self, batch: Committed) -> None:
        for worker_id in batch.changes.dispatch:
            session = self._sessions.get(worker_id)
            if session is not None:
                session.dirty()
        for worker_id in batch.changes.workers:
            if worker_id not in self._model.workers and worker_id not in self._sessions:
                self.health.forget(worker_id)
                self._shippers.pop(worker_id, None)

    def _detached(self, session: Session) -> None:
        session.close()
        if self._sessions.get(session.worker_id) is not session:
            return
        del self._sessions[session.worker_id]
        self.health.detached(session.worker_id)

    # Requests -----------------------------------------------------------------------------------------------

    async def request(
        self, worker_id: str, request: worker_pb2.WorkerRequest, timeout_s: float | None
    ) -> worker_pb2.WorkerReply:
        """Asks an attached worker. Raises RpcError: not attached, gone meanwhile, or too late."""
        session = self._sessions.get(worker_id)
        if session is None or session.closed:
            raise precondition(worker_id, f"worker {worker_id} is not attached", code="worker_not_attached")
        number = next(self._requests)
        request.request_id = number
        future: asyncio.Future[worker_pb2.WorkerReply] = asyncio.get_running_loop().create_future()
        session.waiting[number] = future
        session.send(worker_pb2.AttachResponse(request=request))
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise RpcError(
                "DEADLINE_EXCEEDED", f"worker {worker_id} did not answer within {timeout_s:.0f} s", code=WORKER_SILENT
            ) from None
        finally:
            left = session.waiting.pop(number, None) is not None
            if left and request.WhichOneof("request") in ENDED_WITH_CALLER and not session.closed:
                session.send(worker_pb2.AttachResponse(request=worker_pb2.WorkerRequest(give_up=number)))


def process_request() -> worker_pb2.WorkerRequest:
    return worker_pb2.WorkerRequest(process_status=True)


def exec_request(uid: str, command: list[str], timeout_ms: int) -> worker_pb2.WorkerRequest:
    return worker_pb2.WorkerRequest(
        exec=worker_pb2.ExecRequest(attempt_uid=uid, command=command, timeout_ms=timeout_ms)
    )
