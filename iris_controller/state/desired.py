"""What a worker should be doing, derived from its unfinished attempts and nothing else.

The set is complete every time, so a lost message needs no repair: whatever a worker runs that is not in it is a zombie. Must
never remember what was sent before; that is the session's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

from iris_core.model.states import EXECUTING, TaskState

if TYPE_CHECKING:
    from iris_controller.state.model import Model
    from iris_controller.state.records import Attempt

Want = Literal["run", "keep", "stop"]


class StopReason(IntEnum):
    """Why the controller wants an attempt stopped; the numbers of the wire (control-plane §4.1)."""

    UNSPECIFIED = 0
    CANCELLED = 1
    PREEMPTED = 2
    SUPERSEDED = 3
    JOB_TERMINATED = 4
    TASK_TIMEOUT = 5
    WORKER_DRAIN = 6


@dataclass(frozen=True, slots=True)
class Desired:
    """One line of a desired set. `run` is safe to repeat; `keep` asks for MISSING when the attempt is not there."""

    uid: str
    want: Want
    stop_reason: StopReason = StopReason.UNSPECIFIED


def desired_for(model: Model, worker_id: str) -> list[Desired]:
    """The complete desired set of a worker, oldest attempt first (control-plane §4.1).

    ASSIGNED is to be run and BUILDING or RUNNING kept. An attempt that ended by decision of the controller is to be stopped until
    the worker confirms that it is gone. One that is withheld is not in the set: the worker has not heard of it yet.
    """
    return [_desired(attempt) for attempt in model.attempts_on(worker_id) if not withheld(model, attempt)]


def withheld(model: Model, attempt: Attempt) -> bool:
    """Whether an attempt is not dispatched yet because one that was preempted for it is still on its worker (control-plane §2.7).

    An attempt that was dispatched once is never withheld again: what it displaced is gone for good.
    """
    return attempt.state is TaskState.ASSIGNED and any(uid in model.attempts for uid in attempt.displaces)


def _desired(attempt: Attempt) -> Desired:
    if attempt.state is TaskState.ASSIGNED:
        return Desired(attempt.uid, "run")
    if attempt.state in EXECUTING:
        return Desired(attempt.uid, "keep")
    return Desired(attempt.uid, "stop", StopReason(attempt.stop_reason))
