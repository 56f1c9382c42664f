"""One attached worker as the controller knows it, and the complete set of attempts it is told.

A set goes down when it differs from what the worker was last told; what all tasks of a job share goes down once a stream. Must
never decide what is desired: `state/desired.py` does.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from iris_controller.loop import ControllerLoop
from iris_controller.rpc.errors import unavailable
from iris_controller.rpc.hello import TERMINAL_NUMBERS
from iris_controller.rpc.roles import MAX_MESSAGE_BYTES
from iris_controller.state import kernel
from iris_controller.state.desired import desired_for
from iris_controller.state.records import Attempt, Job
from iris_core.client.calls import WORKER_GONE
from iris_core.model.states import TaskState
from iris_core.wire.gen.iris.v1 import worker_pb2

log = logging.getLogger("iris.workers")

SPEC_BYTES = 8 << 20
"""So many bytes of specs go into one desired set; what is over follows in the next."""
SPEC_RETRY_S = 1.0
GATHER_S = 0.05
"""What an attached worker need not know at once (that an observation is stored) waits so long for something to go with."""
TIDY_S = 0.5
"""A set that only leaves out what the worker itself said is over waits so long for one that says more."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What a session needs to turn an attempt into a `RunTask`."""

    run_spec: Callable[[Job], Awaitable[worker_pb2.RunSpec]]
    """Opens what is sealed. Raises SealedElsewhere."""
    token: Callable[[Job, str], str]
    log_addresses: Callable[[], list[str]]
    controller_boot_id: str
    cluster: str
    dead_after_s: float
    task_outputs: worker_pb2.TaskOutputsPolicy = field(default_factory=worker_pb2.TaskOutputsPolicy)
    profile_interval_ms: int = 0
    stats_interval_ms: int = 0
    """Between two looks of a worker's periodic profiles, 0 = none."""


Shape = list[tuple[str, str, int]]
"""Of a set: each attempt's uid, whether it is kept or stopped, and why."""


class Session:
    """One attached stream."""

    def __init__(self, hello: worker_pb2.WorkerHello, peer: str = "") -> None:
        self.worker_id = hello.worker_id
        self.peer = peer
        """The real `address:port` it dialled from."""
        self.boot_id = hello.boot_id
        self.wake = asyncio.Event()
        self.wake.set()
        self.outbox: list[worker_pb2.AttachResponse] = []
        self.desired_dirty = True
        self.registered = False
        """The state knows it; before that it is told nothing."""
        self.generation = 0
        self.applied = 0
        self.zombies: set[str] = set()
        self.complaint = ""
        """What the worker itself says is wrong with it."""
        self.stopping = False
        """It was told to end."""
        self.held = {o.attempt_uid for o in hello.holding if o.state not in TERMINAL_NUMBERS}
        self.sent_shape: Shape | None = None
        self.sent_specs: dict[str, str] = {}
        self.sent_runs: set[str] = set()
        self.over: set[str] = set()
        """What the worker said is over while its last set still had it."""
        self._ack_due = 0
        self._acked = 0
        self.ack_late = False
        """The acknowledgement has waited long enough."""
        self._acking: asyncio.TimerHandle | None = None
        self._tidying: asyncio.TimerHandle | None = None
        self._tidy = False
        self.waiting: dict[int, asyncio.Future[worker_pb2.WorkerReply]] = {}
        self._parts: dict[int, list[bytes]] = {}
        """Of answers that come in parts."""
        self.closed = False

    @property
    def confirmed(self) -> bool:
        """The first desired set of this stream is in effect and nothing unwanted is alive."""
        return self.applied >= 1 and not self.zombies and not self.closed

    def send(self, message: worker_pb2.AttachResponse) -> None:
        self.outbox.append(message)
        self.wake.set()

    def dirty(self) -> None:
        self.desired_dirty = True
        self.wake.set()

    def ack(self, seq: int) -> None:
        """Every observation up to `seq` is committed."""
        self._ack_due = max(self._ack_due, seq)
        if self._acking is None and not self.closed:
            self._acking = asyncio.get_running_loop().call_later(GATHER_S, self._ack_now)

    def _ack_now(self) -> None:
        self._acking, self.ack_late = None, True
        self.wake.set()

    def due_ack(self) -> worker_pb2.AttachResponse | None:
        """The acknowledgement that is to go out, if there is one."""
        self.ack_late = False
        if self._ack_due <= self._acked:
            return None
        self._acked = self._ack_due
        return worker_pb2.AttachResponse(ack=worker_pb2.ObservationAck(seq=self._acked))

    def news(self, shape: Shape) -> bool:
        """Whether a set of this shape has to go out now. One that only leaves out what is over waits for company."""
        if shape == self.sent_shape:
            return False
        if self.sent_shape is None or self._tidy:
            return True
        if shape != [entry for entry in self.sent_shape if entry[0] not in self.over]:
            return True
        if self._tidying is None and not self.closed:
            self._tidying = asyncio.get_running_loop().call_later(TIDY_S, self._tidy_up)
        return False

    def _tidy_up(self) -> None:
        self._tidying, self._tidy = None, True
        self.dirty()

    def told(self, shape: Shape, *, complete: bool) -> None:
        """A set of this shape goes out; one that is not complete is followed by another."""
        self.sent_shape = shape if complete else None
        self.over.intersection_update(uid for uid, _, _ in shape)
        self._tidy = False
        if self._tidying is not None:
            self._tidying.cancel()
            self._tidying = None

    def replied(self, reply: worker_pb2.WorkerReply) -> None:
        """Takes in an answer, or a part of one."""
        number = reply.request_id
        if number not in self.waiting:
            self._parts.pop(number, None)
            return
        if reply.HasField("profile") and not reply.error:
            parts = self._parts.setdefault(number, [])
            parts.append(reply.profile.data)
            if sum(map(len, parts)) > MAX_MESSAGE_BYTES:
                reply = worker_pb2.WorkerReply(error="the answer is too large")
            elif not reply.profile.last:
                return
            else:
                reply.profile.data = b"".join(parts)
        self._parts.pop(number, None)
        waiting = self.waiting.pop(number)
        if not waiting.done():
            waiting.set_result(reply)

    def close(self) -> None:
        self.closed = True
        self.wake.set()
        for timer in (self._acking, self._tidying):
            if timer is not None:
                timer.cancel()
        for future in self.waiting.values():
            if not future.done():
                # No `retry_after_ms`: it may have been heard, and what it asked for may have been done.
                gone = f"worker {self.worker_id} went away before it answered"
                future.set_exception(unavailable(gone, code=WORKER_GONE, retry_after_ms=0))


class DesiredSets:
    """Builds the sets of all sessions."""

    def __init__(self, loop: ControllerLoop, dispatch: Dispatch) -> None:
        self._loop = loop
        self._model = loop.model
        self._dispatch = dispatch

    async def of(self, session: Session) -> worker_pb2.DesiredSet | None:
        """The complete set as of now; None when the worker has been told exactly that."""
        message = worker_pb2.DesiredSet(generation=session.generation + 1)
        wanted = desired_for(self._model, session.worker_id)
        shape = [(want.uid, "stop" if want.want == "stop" else "keep", int(want.stop_reason)) for want in wanted]
        if not session.news(shape):
            return None
        complete = True
        live_specs: set[str] = set()
        live = {want.uid for want in wanted}
        for want in wanted:
            attempt = self._model.attempts.get(want.uid)
            if attempt is None:
                continue
            entry = worker_pb2.DesiredAttempt(attempt_uid=want.uid)
            job = self._model.jobs.get(attempt.job_id)
            spec_id = f"{attempt.job_id}@{job.submitted_at_ms}" if job is not None else ""
            live_specs.add(spec_id)
            if want.want == "stop":
                entry.stop.reason = want.stop_reason  # type: ignore[assignment]
            elif want.want == "run" and want.uid not in session.sent_runs and job is not None:
                if spec_id in session.sent_specs or await self._add_spec(session, message, job, want.uid):
                    session.sent_specs[spec_id] = attempt.job_id
                    self._add_run(entry, job, attempt, spec_id)
                    session.sent_runs.add(want.uid)
                elif want.uid in session.held:
                    complete, entry.keep = False, True
                else:
                    # The worker cannot have it yet, so that leaving it out ends nothing.
                    complete = False
                    continue
            else:
                entry.keep = True
            message.attempts.append(entry)
        session.generation += 1
        session.told(shape, complete=complete)
        session.sent_runs &= live
        for spec_id in [s for s in session.sent_specs if s not in live_specs]:
            del session.sent_specs[spec_id]
            message.forget_specs.append(spec_id)
        return message

    def _add_run(self, entry: worker_pb2.DesiredAttempt, job: Job, attempt: Attempt, spec_id: str) -> None:
        entry.run.spec_id = spec_id
        entry.run.task_id = attempt.task_id
        entry.run.attempt_id = attempt.number
        entry.run.task_index = attempt.task_index
        entry.run.token = self._dispatch.token(job, attempt.uid)
        entry.run.timeout_remaining_ms = job.spec.timeout_ms

    async def _add_spec(self, session: Session, message: worker_pb2.DesiredSet, job: Job, uid: str) -> bool:
        """Puts the job's spec into the message. False when it has to wait for the next one, or cannot be had at all."""
        if sum(spec.ByteSize() for spec in message.specs) >= SPEC_BYTES:
            session.dirty()
            return False
        try:
            message.specs.append(await self._dispatch.run_spec(job))
        except (OSError, sqlite3.Error) as error:
            log.warning("%s cannot be sent to %s now: %s", job.job_id, session.worker_id, error)
            asyncio.get_running_loop().call_later(SPEC_RETRY_S, session.dirty)
            return False
        except Exception as error:
            self._cannot_dispatch(session.worker_id, uid, error)
            return False
        return True

    def _cannot_dispatch(self, worker_id: str, uid: str, error: Exception) -> None:
        log.error("attempt %s cannot be dispatched: %s", uid, error)
        failure = kernel.Observed(attempt_uid=uid, state=TaskState.FAILED, error=f"cannot be started: {error}")
        self._loop.post("dispatch failed", lambda o, now: kernel.observe(o, worker_id, failure, now))
