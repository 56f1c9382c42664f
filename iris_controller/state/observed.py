"""What a worker says about an attempt, as plain values, and how much of it is believed.

A worker may be wrong, late, repetitive or hostile: its texts are cut here and its clock is bounded here, so that the kernel
decides over values that cannot hurt. Must never decide a transition.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from iris_core.model.states import TaskState

MAX_TEXT_BYTES: Final = 4096
"""Longest text stored of what a worker says, in bytes of UTF-8, the mark that it was cut included."""

WORKER_LOST_SPEC: Final = "worker_lost_spec"
"""The error of an attempt that its worker does not know (control-plane §1.4)."""


class FailureKind(IntEnum):
    """What went wrong, as the worker saw it; the numbers of the wire."""

    UNSPECIFIED = 0
    COMMAND = 1
    STAGING = 2
    """The machine's fault: bundle, disk, spawn. Never the task's failure budget (DESIGN §5.14)."""
    OUT_OF_MEMORY = 3
    TIMEOUT = 4
    STOPPED = 5


@dataclass(frozen=True, slots=True)
class Observed:
    """One attempt as its worker sees it. Times in epoch ms of the worker's clock, 0 = not said; `state` and
    `failure_kind` may be numbers this release does not know."""

    attempt_uid: str
    state: int
    exit_code: int | None = None
    error: str = ""
    failure_kind: int = FailureKind.UNSPECIFIED
    started_at_ms: int = 0
    finished_at_ms: int = 0
    memory_peak_bytes: int = 0
    log_lines: int | None = None
    outputs: str = ""
    """A `TaskOutputs` as JSON, "" = not said."""


_REPORTABLE: Final = {
    int(state): state
    for state in (
        TaskState.ASSIGNED,
        TaskState.BUILDING,
        TaskState.RUNNING,
        TaskState.SUCCEEDED,
        TaskState.FAILED,
        TaskState.KILLED,
        TaskState.WORKER_FAILED,
        TaskState.MISSING,
    )
}
"""What a worker can truthfully say. The other ends are decisions of the controller."""


def reported_state(number: int) -> TaskState | None:
    """The state in an observation, or None for one that no worker can know."""
    return _REPORTABLE.get(number)


def cut(text: str) -> str:
    """The text within `MAX_TEXT_BYTES`, with its full length said where something was cut off."""
    if len(text) * 4 <= MAX_TEXT_BYTES:
        return text
    data = text.encode(errors="replace")
    if len(data) <= MAX_TEXT_BYTES:
        return data.decode()
    mark = f"… (cut, {len(data)} bytes)"
    return data[: MAX_TEXT_BYTES - len(mark.encode())].decode(errors="ignore") + mark


def believed_time(said_ms: int, earliest_ms: int, now_ms: int) -> int:
    """A worker's time, held between what must have come before it and now; now when it says none.

    Its clock is not trusted, but within these bounds it knows better than a controller that was away when it happened. Never
    before `earliest_ms`, even when the controller's own clock was set back, so that no duration is negative.
    """
    return max(earliest_ms, min(said_ms, now_ms) if said_ms > 0 else now_ms)
