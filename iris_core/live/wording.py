"""How jobs, tasks and attempts are put into words: states and their tones, ages, durations, exit codes, reasons, the task bar.

Texts are for people: one line, control characters made visible. A tone says what a text means and never stands alone for it.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

from iris_core.model.bands import band_label
from iris_core.model.resources import format_age, format_cpu, format_duration, format_size
from iris_core.model.states import JOB_TERMINAL, TERMINAL, JobState, TaskState
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_core.wire.gen.iris.v1.common_pb2 import Resources, TaskOutputs
    from iris_core.wire.gen.iris.v1.controller_pb2 import AttemptStatus, JobStatus, TaskStatus

NOTHING: Final = "-"
"""What a person reads where there is no value."""


class Tone(StrEnum):
    """What a text means; each surface chooses its colour. Never the only carrier of that meaning."""

    PLAIN = "plain"
    DIM = "dim"
    GOOD = "good"
    BUSY = "busy"
    WAIT = "wait"
    WARN = "warn"
    BAD = "bad"


FIRST_S: Final = -62_135_596_800
LAST_S: Final = 253_402_300_799
"""The years 1 to 9999: what a date can say. A line carries the time of whatever clock its worker has."""


def iso(epoch_ms: int) -> str | None:
    """The time as machines read it, `2026-01-31T12:00:00.123Z`; None for 0, which means "not yet", and for a clock gone mad."""
    seconds, ms = divmod(epoch_ms, 1000)
    if not epoch_ms or not FIRST_S <= seconds <= LAST_S:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms:03d}Z"


def when(epoch_ms: int) -> str:
    """The time as a person reads it, in UTC to the second."""
    if not epoch_ms or not FIRST_S <= epoch_ms // 1000 <= LAST_S:
        return NOTHING
    return datetime.fromtimestamp(epoch_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def band_text(requested: int, placed: int) -> str:
    """A task's band: the one it was submitted in, and where it differs the one it was placed in (0 = not placed)."""
    text = band_label(requested)
    return f"{text}, placed as {band_label(placed)}" if placed not in (0, requested) else text


def job_band_text(requested: int, tasks: Iterable[TaskStatus]) -> str:
    """The same of a job, with how many of its tasks were placed otherwise."""
    placed = Counter(task.placed_band for task in tasks if task.placed_band not in (0, requested))
    parts = [f"{count} task{'' if count == 1 else 's'} placed as {band_label(band)}" for band, count in placed.items()]
    return ", ".join([band_label(requested), *parts])


_JOB_TONES: Final = {
    JobState.PENDING: Tone.WAIT,
    JobState.BUILDING: Tone.BUSY,
    JobState.RUNNING: Tone.BUSY,
    JobState.SUCCEEDED: Tone.GOOD,
    JobState.FAILED: Tone.BAD,
    JobState.KILLED: Tone.DIM,
    JobState.WORKER_FAILED: Tone.BAD,
    JobState.UNSCHEDULABLE: Tone.BAD,
}
_TASK_TONES: Final = {
    TaskState.PENDING: Tone.WAIT,
    TaskState.ASSIGNED: Tone.BUSY,
    TaskState.BUILDING: Tone.BUSY,
    TaskState.RUNNING: Tone.BUSY,
    TaskState.SUCCEEDED: Tone.GOOD,
    TaskState.FAILED: Tone.BAD,
    TaskState.KILLED: Tone.DIM,
    TaskState.WORKER_FAILED: Tone.BAD,
    TaskState.UNSCHEDULABLE: Tone.BAD,
    TaskState.PREEMPTED: Tone.WARN,
    TaskState.COSCHED_FAILED: Tone.BAD,
}
# Attention first: what is broken, what waits, what runs, what is over.
ATTENTION: Final = {Tone.BAD: 0, Tone.WARN: 1, Tone.WAIT: 2, Tone.BUSY: 3, Tone.PLAIN: 4, Tone.GOOD: 5, Tone.DIM: 6}


def job_tone(state: int) -> Tone:
    """Meaning of a job state; an unknown one is plain."""
    return _JOB_TONES.get(state, Tone.PLAIN)  # type: ignore[call-overload,no-any-return]


def task_tone(state: int) -> Tone:
    """Meaning of a task or attempt state; an unknown one is plain."""
    return _TASK_TONES.get(state, Tone.PLAIN)  # type: ignore[call-overload,no-any-return]


# --- how the tasks of a job stand -----------------------------------------------------------------------------------

Share = Literal["done", "failed", "running", "starting", "pending"]
SHARES: Final[tuple[Share, ...]] = ("done", "failed", "running", "starting", "pending")
_SHARE_OF: Final[dict[int, Share]] = {
    TaskState.SUCCEEDED: "done",
    TaskState.RUNNING: "running",
    TaskState.BUILDING: "starting",
    TaskState.ASSIGNED: "starting",
    TaskState.PENDING: "pending",
}


def task_shares(job: JobStatus) -> dict[Share, int]:
    """How many tasks of the job are done, failed, running, starting and pending; every ended one that did not succeed counts as failed."""
    shares: dict[Share, int] = dict.fromkeys(SHARES, 0)
    for count in job.task_counts:
        shares[_SHARE_OF.get(count.state, "failed")] += count.count
    return shares


def share_cells(shares: dict[Share, int], width: int) -> list[tuple[Share, int]]:
    """Divide `width` cells over the shares by largest remainder; a share that is not empty gets at least one cell when there is room for all."""
    total = sum(shares.values())
    present = [name for name in SHARES if shares.get(name)]
    if not total or width < 1:
        return []
    floor = 1 if len(present) <= width else 0
    spare = width - floor * len(present)
    exact = {name: shares[name] * spare / total for name in present}
    cells = {name: floor + int(exact[name]) for name in present}
    by_remainder = sorted(present, key=lambda name: int(exact[name]) - exact[name])
    for name in by_remainder[: width - sum(cells.values())]:
        cells[name] += 1
    return [(name, cells[name]) for name in present if cells[name]]


# --- words ---------------------------------------------------------------------------------------------------


def age(since_ms: int, now_ms: int) -> str:
    """How long ago; `-` if it has not happened."""
    return format_age(now_ms - since_ms) if since_ms else NOTHING


def span(started_ms: int, finished_ms: int, now_ms: int) -> str:
    """How long it ran, until now if it has not ended; `-` if it has not started."""
    if not started_ms:
        return NOTHING
    return format_duration(max((finished_ms or now_ms) - started_ms, 0))


def span_ms(started_ms: int, finished_ms: int, now_ms: int) -> int:
    """How long it ran, in ms, until now if it has not ended; -1 if it has not started."""
    return (finished_ms or now_ms) - started_ms if started_ms else -1


def exit_text(code: int, why: str = "") -> str:
    """An exit code, with the signal's name where one ended the process.

    `why` is the reason beside it: where that says `exit code 137`, the process chose the number, and no signal is named.
    """
    from iris_core.model.levels import signal_name

    name = None if f"exit code {code}" in why else signal_name(code)
    return f"{code} ({name})" if name else str(code)


def resources_text(resources: Resources) -> str:
    """What is asked for, as operators write it: `cpu=0.5, memory=1GB, disk=5GB, gpu=H100x8`."""
    parts = [
        f"cpu={format_cpu(resources.cpu_millicores)}",
        f"memory={format_size(resources.memory_bytes, exact=True)}",
        f"disk={format_size(resources.disk_bytes, exact=True)}",
    ]
    device = resources.device
    if device.count:
        variant = device.variant or "any"
        parts.append(f"{device.kind}={variant}" + (f"x{device.count}" if device.kind == "gpu" else ""))
    return one_line(", ".join(parts))


def job_reason(job: JobStatus) -> str:
    """Why the job is as it is: its error, else what it waits for."""
    return job.error or ("" if int(job.state) in JOB_TERMINAL else job.pending_reason)


def task_reason(task: TaskStatus) -> str:
    """Why the task is as it is: what it says of itself while it runs, its error, else what it waits for."""
    return task.status_md or task.error or ("" if int(task.state) in TERMINAL else task.pending_reason)


def attempt_reason(attempt: AttemptStatus) -> str:
    """Why the attempt ended."""
    return attempt.error or attempt.terminal_reason


_CHARGES: Final = ("", "failure", "preemption")


def charge_text(attempt: AttemptStatus) -> str:
    """Which of the task's budgets its end was charged to, "" for none; an unknown one by its number."""
    number = int(attempt.charge)
    return _CHARGES[number] if number < len(_CHARGES) else str(number)


def outputs_text(found: TaskOutputs) -> str:
    """What became of an attempt's outputs, in one line; times as `when` writes them."""
    from iris_core.wire.gen.iris.v1.common_pb2 import TaskOutputsStatus

    word = TaskOutputsStatus.Name(found.status).removeprefix("TASK_OUTPUTS_STATUS_").lower()
    if word != "uploaded":
        return f"{word}: {found.error}" if found.error else word
    left_out = f", {found.skipped:,} devices, sockets or FIFOs left out" if found.skipped else ""
    until = f", kept until {when(found.expires_at_ms)}" if found.expires_at_ms else ""
    entries = "1 entry" if found.entries == 1 else f"{found.entries:,} entries"
    sizes = f"{entries} of {format_size(found.total_bytes)}, {format_size(found.archive_bytes)} packed"
    return f"{word}: {sizes}{left_out}{until}: {found.url}"


def or_nothing(text: str) -> str:
    """A text on one line and harmless; `-` for an empty one."""
    return one_line(text) if text else NOTHING
