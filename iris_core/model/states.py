"""Task and job states, worker health, and the sets that rules speak about.

The numbers are those of the database and the wire (control-plane §1.2); the
names are what operators type and read. Rules elsewhere test membership in the
sets below and never list states themselves, so a state added here cannot be
forgotten there.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final, TypeVar

from iris_core.model.errors import ModelError, did_you_mean, shown


class TaskState(IntEnum):
    """State of a task or of one attempt. Only PENDING tasks may be scheduled."""

    UNSPECIFIED = 0
    PENDING = 1
    BUILDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    KILLED = 6
    WORKER_FAILED = 7
    UNSCHEDULABLE = 8
    ASSIGNED = 9
    PREEMPTED = 10
    COSCHED_FAILED = 11
    MISSING = 12
    """A worker's "I do not have this attempt". On the wire only, never stored."""


class JobState(IntEnum):
    """State of a job, rolled up from its tasks."""

    UNSPECIFIED = 0
    PENDING = 1
    BUILDING = 2
    """Kept for old readers; roll-up never produces it."""
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    KILLED = 6
    WORKER_FAILED = 7
    UNSCHEDULABLE = 8


class WorkerHealth(StrEnum):
    """What the controller believes about a worker. Only HEALTHY ones get work."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    DEAD = "dead"


ACTIVE: Final = frozenset({TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING})
"""Bound to a worker."""

EXECUTING: Final = frozenset({TaskState.BUILDING, TaskState.RUNNING})
"""Started on a worker: from here on a lost attempt costs preemption budget."""

DISPATCHED: Final = frozenset({TaskState.ASSIGNED, TaskState.BUILDING})
"""Handed to a worker, its command not yet running."""

NON_TERMINAL: Final = ACTIVE | {TaskState.PENDING}

FAILURE: Final = frozenset({TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.PREEMPTED})
"""Ends that a retry budget may turn back into PENDING."""

TERMINAL: Final = frozenset(
    {
        TaskState.SUCCEEDED,
        TaskState.FAILED,
        TaskState.KILLED,
        TaskState.WORKER_FAILED,
        TaskState.UNSCHEDULABLE,
        TaskState.PREEMPTED,
        TaskState.COSCHED_FAILED,
    }
)
"""Ends. A task whose stored state is one of these is finished: a retried task is PENDING."""

JOB_TERMINAL: Final = frozenset(
    {
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.KILLED,
        JobState.WORKER_FAILED,
        JobState.UNSCHEDULABLE,
    }
)

CANCEL_GUARD: Final = JOB_TERMINAL - {JobState.WORKER_FAILED}
"""Job states that a cancel leaves as they are; WORKER_FAILED may still become KILLED."""

JOB_ERROR: Final = frozenset({JobState.FAILED, JobState.KILLED, JobState.UNSCHEDULABLE, JobState.WORKER_FAILED})
"""Job states that carry an error text."""


def label(state: TaskState | JobState) -> str:
    """Return the state as operators read it, such as ``worker_failed``."""
    return _LABELS[state.name]


def task_label(number: int) -> str:
    """Label of a stored or received task state; an unknown one shows as its number."""
    try:
        return label(TaskState(number))
    except ValueError:
        return str(number)


def job_label(number: int) -> str:
    """Label of a stored or received job state; an unknown one shows as its number."""
    try:
        return label(JobState(number))
    except ValueError:
        return str(number)


def parse_task_state(text: str) -> TaskState:
    """Parse a task state's name, in any case, with or without ``TASK_STATE_``.

    Raises:
        ModelError: no such state; the hint has the closest one.
    """
    return _parse(text, TaskState, "task")


def parse_job_state(text: str) -> JobState:
    """Parse a job state's name, in any case, with or without ``JOB_STATE_``.

    Raises:
        ModelError: no such state; the hint has the closest one.
    """
    return _parse(text, JobState, "job")


_LABELS: Final = {state.name: state.name.lower() for state in TaskState}

_E = TypeVar("_E", TaskState, JobState)


def _parse(text: str, states: type[_E], what: str) -> _E:
    name = text.strip().upper().replace("-", "_").removeprefix(f"{what.upper()}_STATE_")
    state = states.__members__.get(name)
    if state is not None and state:
        return state
    words = [state.name.lower() for state in states if state]
    raise ModelError(
        f"no {what} state {shown(text)}",
        field="state",
        hint=did_you_mean(text, words) or f"one of {', '.join(words)}",
    )
