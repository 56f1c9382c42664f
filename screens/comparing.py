"""Two attempts side by side: how each ended, where, how long and how much it held, what its log says last, and what was decided about it.

Rows in which they differ are marked with a word and not by colour alone. The attempts may be of one task or of two: a rank that
failed beside one that did not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.contracts import IrisError, RpcFailed
from iris_core.live import measured
from iris_core.live.columns import attempt_reason, exit_text, span, when
from iris_core.live.wording import NOTHING, Tone, charge_text, outputs_text
from iris_core.model.errors import ModelError
from iris_core.model.ids import AttemptId, JobId, TaskId, parse_target
from iris_core.model.resources import format_duration, format_size
from iris_core.model.states import task_label
from iris_core.model.text import cell_width, counted_are, one_line, truncate_cells
from screens import causes

if TYPE_CHECKING:
    from iris_core.live.event_columns import TaskEvent
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_tui.pages import Lines
    from iris_tui.session import Session

LAST: Final = 12
"""Lines of each log."""
MOST_EVENTS: Final = 200
_LABEL: Final = 12
_NARROWEST: Final = 24


@dataclass(slots=True)
class Side:
    """One attempt with what is known of it."""

    id: str
    task: pb.TaskStatus
    attempt: pb.AttemptStatus
    lines: list[str]
    lines_note: str
    events: list[TaskEvent]
    events_note: str


def pair_of(names: Sequence[str]) -> tuple[str, ...]:
    """The two ids that are meant: one attempt is compared with the one before it. A task alone is given back, its last two attempts are
    meant, and so is a first attempt: it is compared with the one that followed. Raises ModelError."""
    if len(names) == 1 and isinstance(parse_target(names[0]), TaskId):
        return (names[0],)
    if len(names) == 1 and isinstance(parse_target(names[0]), AttemptId):
        task, _, number = names[0].rpartition(":")
        if number == "0":
            return (names[0],)
        return f"{task}:{int(number) - 1}", names[0]
    if len(names) != 2:
        raise ModelError(f"two attempts are compared, not {len(names)}", hint="mark two with Space, or name two")
    if any(isinstance(parse_target(name), JobId) for name in names):
        raise ModelError("attempts are compared, or tasks by their newest attempts", hint="name two, such as ID:0 ID:1")
    first, second = sorted(names) if names[0].rpartition(":")[0] == names[1].rpartition(":")[0] else names
    return first, second


def title_of(pair: Sequence[str]) -> str:
    """What is compared, in words, of what `pair_of` gave."""
    if len(pair) > 1:
        return f"Compare {' and '.join(map(one_line, pair))}"
    target = parse_target(pair[0])
    if isinstance(target, AttemptId):
        return f"Compare the first two attempts of {one_line(target.task.text)}"
    return f"Compare the last two attempts of {one_line(pair[0])}"


async def compare(session: Session, names: tuple[str, ...], width: int) -> Lines:
    """The page, for a screen of `width` cells. Raises IrisError: one of them is not known, or a task had one attempt alone."""
    if len(names) == 1:
        target = parse_target(names[0])
        first = isinstance(target, AttemptId)
        task_id = target.task.text if isinstance(target, AttemptId) else names[0]
        answer = await session.tree.task_status(task_id)
        known = sorted(one.attempt_id for one in answer.attempts)
        numbers = known[:2] if first else known[-2:]
        if len(numbers) < 2:
            raise IrisError(
                f"{task_id} has had {'one attempt alone' if numbers else 'no attempt yet'}",
                hint="mark another task or attempt with Space",
            )
        names = tuple(f"{task_id}:{number}" for number in numbers)
    left, right = await asyncio.gather(*(_side(session, name) for name in names))
    return page(left, right, session.clock.now_ms(), width)


async def _side(session: Session, name: str) -> Side:
    target = parse_target(name)
    task_id = target.task.text if isinstance(target, AttemptId) else name
    answer = await session.tree.task_status(task_id)
    number = target.number if isinstance(target, AttemptId) else answer.task.current_attempt_id
    attempt = next((one for one in answer.attempts if one.attempt_id == number), None)
    if attempt is None:
        raise RpcFailed(
            "NOT_FOUND", f"{name} has no attempt{f' {number}' if number >= 0 else ' yet'}", code="not_found"
        )
    side = Side(f"{task_id}:{number}", answer.task, attempt, [], "", [], "")

    async def log() -> None:
        try:
            lines, waiting = await causes.last_lines(session, answer.task, attempt)
            side.lines = lines[-LAST:]
            side.lines_note = f"{counted_are(waiting, 'line')} still on the way" if waiting else ""
        except IrisError as error:
            side.lines_note = f"cannot be read: {one_line(error.message)}"

    async def events() -> None:
        where = measured.whose(task_id, answer.task.incarnation, task=True, attempt=number)
        try:
            found = await measured.events(session.client, where, MOST_EVENTS)
            side.events = found.events
            side.events_note = f"the newest {MOST_EVENTS} are compared" if found.older else ""
        except IrisError as error:
            side.events_note = f"cannot be read: {one_line(error.message)}"

    await asyncio.gather(log(), events())
    return side


def page(left: Side, right: Side, now_ms: int, width: int) -> Lines:
    """The lines; `width` cells are there."""
    room = max((width - _LABEL - 5) // 2, _NARROWEST)
    lines: list[tuple[str, Tone]] = [(_row("", left.id, right.id, room, differs=None), Tone.BUSY)]
    for label, first, second in _facts(left, right, now_ms):
        differs = first != second
        lines.append((_row(label, first, second, room, differs=differs), Tone.WARN if differs else Tone.PLAIN))
    lines += [("", Tone.PLAIN), ("≠ marks what differs", Tone.DIM)]
    lines += _events(left, right)
    for side in (left, right):
        lines += [("", Tone.PLAIN), (f"Last lines of {one_line(side.id)}", Tone.BUSY)]
        lines += [(f"  {one_line(line)}", Tone.PLAIN) for line in side.lines]
        if not side.lines and not side.lines_note:
            lines.append(("  it wrote nothing", Tone.DIM))
        if side.lines_note:
            lines.append((f"  {side.lines_note}", Tone.WARN))
    return lines


def _facts(left: Side, right: Side, now_ms: int) -> list[tuple[str, str, str]]:
    def both(label: str, say: object) -> tuple[str, str, str]:
        return label, str(say(left) or NOTHING), str(say(right) or NOTHING)  # type: ignore[operator]

    def ended(side: Side) -> str:
        one = side.attempt
        return exit_text(one.exit_code, one.error) if one.HasField("exit_code") else ""

    def waited(side: Side) -> str:
        one = side.attempt
        return format_duration(one.started_at_ms - one.created_at_ms) if one.started_at_ms else ""

    return [
        both("State", lambda s: task_label(s.attempt.state) + (" (current)" if s.attempt.current else "")),
        both("Exit", ended),
        both("Reason", lambda s: one_line(attempt_reason(s.attempt))),
        both("Ended as", lambda s: one_line(s.attempt.terminal_reason)),
        both("Charged to", lambda s: charge_text(s.attempt)),
        both("Ran", lambda s: span(s.attempt.started_at_ms, s.attempt.finished_at_ms, now_ms)),
        both("Made ready", waited),
        both("Worker", lambda s: one_line(s.attempt.worker_id)),
        both("Peak memory", lambda s: format_size(s.attempt.memory_peak_bytes) if s.attempt.memory_peak_bytes else ""),
        both("Log lines", lambda s: f"{s.attempt.log_lines:,}" if s.attempt.HasField("log_lines") else ""),
        both("Outputs", lambda s: one_line(outputs_text(s.attempt.outputs)) if s.attempt.HasField("outputs") else ""),
        both("Started", lambda s: when(s.attempt.started_at_ms)),
        both("Finished", lambda s: when(s.attempt.finished_at_ms)),
        both("UID", lambda s: one_line(s.attempt.attempt_uid)),
    ]


def _row(label: str, first: str, second: str, room: int, *, differs: bool | None) -> str:
    mark = "≠" if differs else " "
    left = truncate_cells(first, room)
    # The right side is never cut: the page scrolls sideways.
    return f"{label:<{_LABEL}}{mark} {left}{' ' * max(room - cell_width(left), 0)}  {second}"


def _events(left: Side, right: Side) -> list[tuple[str, Tone]]:
    """What was decided about one and not about the other, then what both have in common, each by its order."""
    lines: list[tuple[str, Tone]] = [("", Tone.PLAIN), ("Events", Tone.BUSY)]
    had = [{event.reason for event in side.events} for side in (left, right)]
    for side, others in ((left, had[1]), (right, had[0])):
        alone = [event for event in side.events if event.reason not in others]
        lines += [
            (f"  only {one_line(side.id)}: {one_line(event.reason)}{': ' + one_line(event.message) if event.message else ''}", Tone.WARN)
            for event in alone
        ]  # fmt: skip
        if side.events_note:
            lines.append((f"  {one_line(side.id)}: {side.events_note}", Tone.WARN))
    shared = list(dict.fromkeys(event.reason for event in left.events if event.reason in had[1]))
    if shared:
        lines.append((f"  both: {', '.join(one_line(reason) for reason in shared)}", Tone.PLAIN))
    if len(lines) == 2:
        lines.append(("  none are kept of either; they are for 30 days", Tone.DIM))
    return lines


def needs_task(name: str) -> str:
    """The task that an id names or belongs to. Raises ModelError: it is a job."""
    target = parse_target(name)
    if isinstance(target, TaskId):
        return name
    if isinstance(target, AttemptId):
        return target.task.text
    raise ModelError(f"{name} is a job", hint=f"name a task of it, such as {name}/0")
