"""The heart of the worker: which attempts it holds, what the controller wants of them, and what it still has to tell.

The controller's set is complete and this module makes reality follow it: start what is new, end what is unwanted, answer MISSING
for what cannot be had. An observation is kept until the controller says it is committed, across streams and controllers. Everything
here runs on the loop and nothing waits: starting and ending are tasks of their own. Losing the controller changes nothing here.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from typing import TYPE_CHECKING

from iris_controller.worker import outcome, staging
from iris_controller.worker.attempt import Attempt
from iris_controller.worker.config import GRACE_S, reason
from iris_core.wire.gen.iris.v1 import common_pb2, worker_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_controller.worker.attempt import Host

_log = logging.getLogger("iris.worker")

ZOMBIE_GRACE_S = 2.0
"""A zombie's successor may run already elsewhere: it gets less time than one that is asked to stop."""
GATHER_S = 0.025
"""A task that begins may be over in a moment: what is no end is told after this, together with whatever follows meanwhile."""
APPLIED_S = 0.05
"""Within this the controller learns that a set is in force, unless an observation says so before."""
CLEAN_S = 0.1
"""What ended attempts leave on disk is removed in heaps, so many seconds apart."""
_REMEMBERED = 10_000
_UID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_GOING_ON = frozenset({common_pb2.TASK_STATE_ASSIGNED, common_pb2.TASK_STATE_BUILDING, common_pb2.TASK_STATE_RUNNING})

Observation = worker_pb2.Observation


class Agent:
    """See the module. `wake` is called whenever there is something new to send."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.attempts: dict[str, Attempt] = {}
        self.closing = False
        self._host: Host | None = None
        self._specs: dict[str, worker_pb2.RunSpec] = {}
        self._unacked: dict[str, Observation] = {}
        self._unsent: dict[str, Observation] = {}
        self._all_told = asyncio.Event()
        self._all_told.set()
        self._seq = 0
        self._over: OrderedDict[str, None] = OrderedDict()
        self._generation = 0
        self._declined: set[str] = set()
        self._zombies: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._cleaned = asyncio.Event()
        self._cleaned.set()
        self._cleaning: asyncio.Queue[str] = asyncio.Queue()
        self._waking: asyncio.TimerHandle | None = None

    def start(self, host: Host, lost: list[Observation]) -> None:
        """`lost` are ends that an earlier worker of this cache directory left to be told."""
        self._host = host
        for observation in lost:
            self._tell(observation)

    @property
    def idle(self) -> bool:
        """It holds no attempt that has not ended."""
        return all(attempt.done for attempt in self.attempts.values())

    # What the controller wants ------------------------------------------------------------------------------------

    def new_stream(self) -> None:
        """A stream was accepted: specs and generations start anew on it, and what was never acknowledged is told again."""
        self._specs.clear()
        self._generation = 0
        self._zombies.clear()
        self._unsent = dict(self._unacked)
        self.wake()

    def apply(self, desired: worker_pb2.DesiredSet) -> None:
        """Follows a complete set."""
        for spec in desired.specs:
            self._specs[spec.spec_id] = spec
        wanted = set()
        for want in desired.attempts:
            wanted.add(want.attempt_uid)
            try:
                self._follow(want)
            except Exception:
                _log.exception("cannot follow the order for attempt %s", want.attempt_uid)
        for spec_id in desired.forget_specs:
            self._specs.pop(spec_id, None)
        for uid, attempt in self.attempts.items():
            if uid not in wanted and not attempt.done and uid not in self._zombies:
                _log.warning("attempt %s of %s is not wanted any more: ending it", uid, attempt.key)
                self._zombies[uid] = desired.generation
                attempt.stop(outcome.unwanted(), ZOMBIE_GRACE_S)
        first = not self._generation
        self._generation = desired.generation
        if first:
            # The controller places nothing on this worker before it knows.
            self.wake()
        else:
            self._wake_within(APPLIED_S)

    def _follow(self, want: worker_pb2.DesiredAttempt) -> None:
        uid = want.attempt_uid
        attempt = self.attempts.get(uid)
        match want.WhichOneof("want"):
            case "run":
                if attempt is None and uid not in self._unacked:
                    self._run(uid, want.run)
            case "stop" if attempt is not None and not attempt.done:
                grace_ms = want.stop.grace_ms
                attempt.stop(outcome.stopped(want.stop.reason), grace_ms / 1000 if grace_ms else GRACE_S)
            case "keep" if uid in self._declined:
                pass
            case "keep" | "stop" if attempt is None and uid not in self._unacked:
                self._tell(missing(uid, "the worker does not know this attempt"))

    def _run(self, uid: str, task: worker_pb2.RunTask) -> None:
        spec = self._specs.get(task.spec_id)
        if uid in self._over:
            self._tell(missing(uid, "the attempt has ended already"))
        elif self.closing:
            # No answer, or the next attempt came here at once, again and again until the stream ends.
            self._declined.add(uid)
        elif spec is None or not _UID.fullmatch(uid):
            fault = "the order names no known spec" if spec is None else "the attempt's uid is not usable"
            _log.error("cannot run attempt %s: %s", uid[:80], fault)
            self._tell(_refusal(uid, outcome.machine_fault(fault)))
        else:
            assert self._host is not None
            attempt = Attempt(self._host, uid, spec, task)
            self.attempts[uid] = attempt
            running = asyncio.create_task(attempt.run(), name=f"attempt {uid}")
            self._tasks.add(running)
            running.add_done_callback(self._tasks.discard)

    # What there is to tell ----------------------------------------------------------------------------------------

    def changed(self, attempt: Attempt) -> None:
        """An attempt has a new observation."""
        if attempt.done:
            self._zombies.pop(attempt.uid, None)
        self._tell(attempt.observation)

    def _tell(self, observation: Observation) -> None:
        self._seq += 1
        self._all_told.clear()
        observation.seq = self._seq
        self._unacked[observation.attempt_uid] = observation
        self._unsent[observation.attempt_uid] = observation
        if observation.state in _GOING_ON:
            self._wake_within(GATHER_S)
        else:
            self.wake()

    def _wake_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._waking is not None:
            if self._waking.when() <= loop.time() + seconds:
                return
            self._waking.cancel()
        self._waking = loop.call_later(seconds, self._woken)

    def _woken(self) -> None:
        self._waking = None
        self.wake()

    def holding(self) -> list[Observation]:
        """What a hello says: every live attempt and every end that was not acknowledged, in order."""
        held = {uid: attempt.observation for uid, attempt in self.attempts.items()} | self._unacked
        return sorted(held.values(), key=lambda observation: observation.seq)

    def report(self) -> worker_pb2.WorkerReport:
        """What was not sent on this stream yet, in order; the latest of each attempt."""
        unsent, self._unsent = self._unsent, {}
        report = worker_pb2.WorkerReport(applied_generation=self.applied)
        report.observations.extend(sorted(unsent.values(), key=lambda observation: observation.seq))
        return report

    @property
    def applied(self) -> int:
        """The newest generation that is in force: one whose zombies still live is not."""
        return min([self._generation, *(generation - 1 for generation in self._zombies.values())])

    async def all_told(self) -> None:
        """Waits until every observation is acknowledged."""
        await self._all_told.wait()

    def ack(self, seq: int) -> None:
        """The controller has committed every observation up to `seq`."""
        for uid in [uid for uid, observation in self._unacked.items() if observation.seq <= seq]:
            del self._unacked[uid]
            self._unsent.pop(uid, None)
            attempt = self.attempts.get(uid)
            if attempt is None or attempt.done:
                self._forget(uid)
        if not self._unacked:
            self._all_told.set()

    def _forget(self, uid: str) -> None:
        self.attempts.pop(uid, None)
        self._over[uid] = None
        while len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)
        self._cleaning.put_nowait(uid)
        self._cleaned.clear()

    # Ending -------------------------------------------------------------------------------------------------------

    async def close(self, grace_s: float) -> None:
        """Ends every attempt and waits until all are over. May be called again with less grace."""
        self.closing = True
        for attempt in self.attempts.values():
            if not attempt.done:
                attempt.stop(outcome.worker_stopping(), grace_s)
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def clean(self) -> None:
        """For ever: removes the folder and then the record of attempts whose end is acknowledged."""
        assert self._host is not None
        while True:
            uids = [await self._cleaning.get()]
            if not self.closing:
                await asyncio.sleep(CLEAN_S)
            while not self._cleaning.empty():
                uids.append(self._cleaning.get_nowait())
            await asyncio.to_thread(_clean, self._host, uids)
            if self._cleaning.empty():
                self._cleaned.set()

    async def cleaned(self) -> None:
        """Waits until nothing of acknowledged attempts is left on disk."""
        await self._cleaned.wait()


def _clean(host: Host, uids: list[str]) -> None:
    for uid in uids:
        folder = host.cache_dir / "work" / uid
        try:
            staging.remove(folder)
        except OSError as error:
            _log.warning("cannot remove %s: %s", folder, reason(error))
        host.records.remove(uid)
        if host.cgroups is not None:
            host.cgroups.remove(uid)


def missing(uid: str, why: str) -> Observation:
    """The worker holds nothing under that uid."""
    return Observation(attempt_uid=uid, state=common_pb2.TASK_STATE_MISSING, error=why)


def _refusal(uid: str, result: outcome.Outcome) -> Observation:
    return Observation(
        attempt_uid=uid,
        state=result.state,  # type: ignore[arg-type]
        error=result.error,
        failure_kind=result.kind,  # type: ignore[arg-type]
    )
