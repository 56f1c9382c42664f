"""Why tasks failed: which ranks, in which words, and what the log of the first one says (cli-auth-logs §4.7).

A log that cannot be read costs its lines and nothing else, and that is said. No line of an earlier job of the same name is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_core.contracts import IrisError
from iris_core.live.job_feed import trouble
from iris_core.live.wording import Tone, exit_text
from iris_core.model.states import TaskState, task_label
from iris_core.model.text import one_line, truncate_cells

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_tui.pages import Lines
    from iris_tui.session import Session

LAST_LINES: Final = 1000
MOST_RANKS: Final = 20
MOST_GROUPS: Final = 30
WIDEST: Final = 400
FAILED: Final = frozenset({TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.COSCHED_FAILED})


@dataclass(slots=True)
class Cause:
    """What is known of the end of one attempt; `note` says what is missing."""

    task: pb.TaskStatus
    attempt: pb.AttemptStatus
    lines: list[str] = field(default_factory=list)
    note: str = ""

    @property
    def last_line(self) -> str:
        """The line that says most, "" if there is none."""
        return one_line(self.lines[-1]) if self.lines else ""


def suspects(tasks: Iterable[pb.TaskStatus]) -> list[pb.TaskStatus]:
    """The tasks that failed, or failed and were tried again; the telling one first."""
    return sorted((task for task in tasks if int(task.state) in FAILED or task.failure_count), key=trouble)


async def cause_of(session: Session, task_id: str) -> Cause | None:
    """What the newest failed attempt of a task says of its end; None = no attempt failed. Raises IrisError: the task is not known."""
    answer = await session.tree.task_status(task_id)
    failed = [attempt for attempt in answer.attempts if int(attempt.state) in FAILED]
    if not failed:
        return None
    attempt = max(failed, key=lambda attempt: attempt.attempt_id)
    cause = Cause(answer.task, attempt)
    try:
        cause.lines, cause.note = await _highlights(session, answer.task, attempt)
    except IrisError as error:
        cause.note = f"its log cannot be read: {one_line(error.message)}"
    return cause


async def _highlights(session: Session, task: pb.TaskStatus, attempt: pb.AttemptStatus) -> tuple[list[str], str]:
    from iris_core.analysis.root_cause import highlights

    lines, waiting = await last_lines(session, task, attempt)
    note = f"{waiting:,} of its lines are still on their way to the log store" if waiting else ""
    return highlights(lines), note


async def last_lines(session: Session, task: pb.TaskStatus, attempt: pb.AttemptStatus) -> tuple[list[str], int]:
    """The last lines of an attempt, oldest first, and how many have not reached the store yet. Raises IrisError."""
    from iris_core.cli.log_lines import ordered
    from iris_core.wire.gen.iris.v1 import logs_pb2
    from iris_core.wire.gen.iris.v1.common_pb2 import MATCH_SCOPE_EXACT

    request = logs_pb2.FetchLogsRequest(
        source=f"{task.task_id}:{attempt.attempt_id}",
        match_scope=MATCH_SCOPE_EXACT,
        min_incarnation=task.incarnation,
        attempt_uid=attempt.attempt_uid,
        max_lines=LAST_LINES,
        tail=True,
        producers=[attempt.attempt_uid],
    )
    answer = await session.client.call("LogService/FetchLogs", request, logs_pb2.FetchLogsResponse, timeout_s=60.0)
    here = next((mark.next_number for mark in answer.marks if mark.producer == attempt.attempt_uid), None)
    waiting = attempt.log_lines - here if here is not None and attempt.HasField("log_lines") else 0
    return [line.data for line in ordered(answer.entries) if not line.gap], max(waiting, 0)


def headline(task: pb.TaskStatus, cause: Cause | None) -> str:
    """Which rank it is, and how it ended, in one line."""
    attempt = cause.attempt if cause is not None and cause.task.task_id == task.task_id else None
    number = attempt.attempt_id if attempt is not None else task.current_attempt_id
    worker = attempt.worker_id if attempt is not None else task.worker_id
    text = f"rank {task.task_index}, attempt {number}"
    if worker:
        text += f" on {one_line(worker)}"
    ended: pb.AttemptStatus | pb.TaskStatus = attempt if attempt is not None else task
    text += f": {task_label(ended.state)}"
    if ended.HasField("exit_code"):
        text += f", exit {exit_text(ended.exit_code, ended.error)}"
    return f"{text}: {one_line(ended.error)}" if ended.error else text


def failure_lines(tasks: Sequence[pb.TaskStatus], cause: Cause | None) -> Lines:
    """The page: the rank that failed first with the lines of its log that say why, then all that failed, alike ones together."""
    if not tasks:
        return []
    lines: list[tuple[str, Tone]] = [(f"First: {headline(tasks[0], cause)}", Tone.BAD)]
    if cause is not None and cause.lines:
        lines.append((f"By the last lines of {one_line(cause.task.task_id)}:{cause.attempt.attempt_id}:", Tone.DIM))
        lines += [(f"  {truncate_cells(one_line(line), WIDEST)}", Tone.PLAIN) for line in cause.lines]
    elif cause is not None and not cause.note:
        lines.append(("  its log has no line that speaks of a fault", Tone.DIM))
    if cause is not None and cause.note:
        lines.append((f"  {cause.note}", Tone.WARN))
    lines += [("", Tone.PLAIN), (f"All that failed ({len(tasks):,}), by how they ended:", Tone.DIM)]
    groups: dict[tuple[str, str], list[pb.TaskStatus]] = {}
    for task in tasks:
        groups.setdefault(_ended_as(task), []).append(task)
    for (state, why), alike in list(groups.items())[:MOST_GROUPS]:
        ranks = ", ".join(str(task.task_index) for task in alike[:MOST_RANKS])
        more = f" and {len(alike) - MOST_RANKS:,} more" if len(alike) > MOST_RANKS else ""
        noun = "rank" if len(alike) == 1 else "ranks"
        lines.append((f"  {noun} {ranks}{more}: {state}{': ' + why if why else ''}", Tone.PLAIN))
    left = len(groups) - MOST_GROUPS
    if left > 0:
        lines.append((f"  and {left:,} more ways to end", Tone.WARN))
    return lines


def _ended_as(task: pb.TaskStatus) -> tuple[str, str]:
    state = task_label(task.state)
    if int(task.state) not in FAILED:
        times = f"{task.failure_count} time{'' if task.failure_count == 1 else 's'}"
        return f"{state} now, failed {times}", one_line(task.error)
    if task.HasField("exit_code"):
        state += f", exit {exit_text(task.exit_code, task.error)}"
    return state, one_line(task.error)
