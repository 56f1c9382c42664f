"""How each known worker is: its contact, what it says of itself, and what follows from both, written into the state.

Judged when a worker says something, when its stream ends, and at an interval; a command goes out only where the state says something
else, and it judges anew when it is carried out, because it may have waited for the store. `liveness` has the arithmetic. Must
never give up a worker for a time in which this process itself did not run.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from iris_controller.liveness import Liveness
from iris_controller.state import availability, kernel
from iris_controller.state.slices import is_going
from iris_core.model.states import WorkerHealth
from iris_core.wire.gen.iris.v1 import worker_pb2

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from iris_controller.loop import ControllerLoop
    from iris_controller.rpc.session import Session
    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Worker

log = logging.getLogger("iris.workers")

STOPPING = "stopping: it was told to end and gets no new work"


class HealthKeeper:
    """Of the workers of one controller; `sessions` are those that are attached. `clock` is monotonic seconds."""

    def __init__(
        self, loop: ControllerLoop, dead_after_s: float, sessions: Mapping[str, Session], clock: Callable[[], float]
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._dead_after_s = dead_after_s
        self._sessions = sessions
        self._clock = clock
        now = self._assessed = clock()
        self._contacts = {worker_id: Liveness(now) for worker_id in self._model.workers}
        """Of every worker that is known or attached."""
        self._posted: set[str] = set()
        """Workers with a health command on its way: a second would say the same."""

    def age_ms(self, worker_id: str) -> int:
        """Since the worker's last message, at most since boot."""
        known = self._contacts.get(worker_id)
        return int((self._clock() - known.last_message) * 1000) if known is not None else 0

    def attached(self, worker_id: str) -> None:
        """It has a stream, and said so just now."""
        self._contacts.setdefault(worker_id, Liveness(self._clock())).attached = True
        self.heard(worker_id)

    def heard(self, worker_id: str) -> None:
        """It said something just now. Only of one that is known or attached."""
        self._contacts[worker_id].heard(self._clock())

    def detached(self, worker_id: str) -> None:
        """Its stream has ended."""
        self._contacts[worker_id].attached = False
        self.assess(worker_id)

    def forget(self, worker_id: str) -> None:
        """It is neither known nor attached any more."""
        self._contacts.pop(worker_id, None)

    def assess_all(self) -> None:
        """Called every `dead_after`/10.

        When it is called late, this process stood still (stopped, suspended, starved) and what the workers said meanwhile is not
        read yet: that time counts for nobody.
        """
        now = self._clock()
        interval = self._dead_after_s / 10
        late = now - self._assessed - interval
        self._assessed = now
        if late > interval:
            log.warning("the controller did not run for %.1f s; no worker is judged by that time", late)
            for contact in self._contacts.values():
                contact.forgive(late, now)
        for worker_id in list(self._contacts):
            self.assess(worker_id)

    def _verdict(self, worker: Worker) -> tuple[WorkerHealth, str]:
        """Health as of now, and why."""
        contact = self._contacts[worker.worker_id]
        now = self._clock()
        health = contact.health(now, self._dead_after_s)
        session = self._sessions.get(worker.worker_id)
        silent = f"no message for {now - contact.last_message:.0f} s"
        if health is WorkerHealth.DEAD:
            return health, silent
        if not contact.attached:
            # One that was given up and dials in vain is not better for it.
            dead = worker.health is WorkerHealth.DEAD
            return (worker.health, worker.health_reason) if dead else (WorkerHealth.DEGRADED, "not attached")
        if health is WorkerHealth.DEGRADED:
            return health, silent
        if session is not None and session.stopping:
            return WorkerHealth.DEGRADED, STOPPING
        if session is not None and session.complaint:
            return WorkerHealth.DEGRADED, session.complaint
        if session is None or not session.confirmed:
            if worker.health is WorkerHealth.DEAD:
                return worker.health, worker.health_reason
            return WorkerHealth.DEGRADED, worker.health_reason or "has not confirmed its tasks yet"
        return WorkerHealth.HEALTHY, ""

    def assess(self, worker_id: str) -> None:
        """Posts the worker's health when it is not what the model says."""
        worker = self._model.workers.get(worker_id)
        if worker is None or worker_id in self._posted:
            return
        contact = self._contacts[worker_id]
        health, reason = self._verdict(worker)
        if worker.health is health and worker.attached == contact.attached:
            silent = self._clock() - contact.last_message > self._dead_after_s / 5
            if health is not WorkerHealth.DEGRADED or worker.health_reason == reason or silent:
                return
        self._posted.add(worker_id)
        done = self._loop.post("worker health", lambda o, ms: self._plan(o, ms, worker_id))
        done.add_done_callback(lambda f: self._committed(worker_id, f))

    def _plan(self, o: Overlay, now_ms: int, worker_id: str) -> bool:
        """Judges anew: the command may have waited long for the store. Returns whether the worker is given up now."""
        worker = o.worker(worker_id)
        if worker is None:
            return False
        health, reason = self._verdict(worker)
        session = self._sessions.get(worker_id)
        stopping = session is not None and session.stopping
        if stopping and not worker.stopping:
            o.note("worker_stopping", worker_id, "worker")
        elif worker.health is not health:
            if health is WorkerHealth.DEGRADED and worker.health is WorkerHealth.HEALTHY:
                o.note_often("reconcile_rpc_failed", worker_id, "controller", reason=reason)
            elif health is WorkerHealth.HEALTHY:
                o.note_often("worker_healthy", worker_id, "controller")
        o.set_worker(
            worker,
            health=health,
            health_reason=reason,
            attached=self._contacts[worker_id].attached,
            stopping=stopping,
            placeable=health is WorkerHealth.HEALTHY and not is_going(o, worker.slice_id),
        )
        availability.mark(o, worker_id, worker)
        lost = health is WorkerHealth.DEAD and worker.health is not WorkerHealth.DEAD
        if lost:
            kernel.worker_lost(o, worker_id, reason, now_ms)
        return lost

    def _committed(self, worker_id: str, done: asyncio.Future[bool]) -> None:
        self._posted.discard(worker_id)
        if done.cancelled() or done.exception() is not None:
            return
        session = self._sessions.get(worker_id)
        if done.result() and session is not None:
            # It may only be frozen. When it wakes it has to say what it still runs before it is placed on again.
            rejected = worker_pb2.Rejected(code="lost", message=f"worker {worker_id} was given up; attach again")
            session.send(worker_pb2.AttachResponse(rejected=rejected))
            session.close()
        self.assess(worker_id)
