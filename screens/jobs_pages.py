"""Describe and spec: what is known of a job, task or attempt as pages of text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iris_core.live.asked import asked
from iris_core.live.columns import (
    ATTEMPTS,
    NOTHING,
    TASKS,
    ColumnSpec,
    Tone,
    exit_text,
    job_tone,
    resources_text,
    span,
    task_shares,
    task_tone,
    when,
)
from iris_core.live.wording import band_text, job_band_text
from iris_core.model.resources import format_size
from iris_core.model.states import job_label, task_label
from iris_core.model.text import counted, one_line, visible
from iris_tui.aligned import aligned

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_tui.pages import Lines
    from iris_tui.session import Session
    from screens.jobs_target import Target

MOST_TASKS = 200
_LABEL = 16
_TASK_COLUMNS = ("state", "exit", "attempt", "time", "memory_peak", "worker", "reason")
_ATTEMPT_COLUMNS = ("uid", "state", "exit", "time", "memory_peak", "worker", "reason")


@dataclass(frozen=True, slots=True)
class Page:
    """A page's title, how its lines are read, and the command line that prints the same."""

    title: str
    load: Callable[[], Awaitable[Lines]]
    command: str


def describe(session: Session, target: Target) -> Page:
    """A job with its tasks, or a task or attempt with its history."""

    async def load() -> Lines:
        if target.kind == "job":
            return await _job_lines(session, target.id)
        return await _task_lines(session, target.task or target.id, target.attempt_number)

    name = target.id
    return Page(f"Describe {one_line(name)}", load, f"iris-core {session.selector} {target.kind} describe {name}")


def spec(session: Session, target: Target) -> Page:
    """The request that a job was submitted with, secrets replaced by the server."""

    async def load() -> Lines:
        import yaml
        from google.protobuf.json_format import MessageToDict

        answer = await _get_job(session, target.job)
        request = MessageToDict(answer.request, preserving_proto_field_name=True)
        files = answer.request.entrypoint.workdir_files
        if files:
            request["entrypoint"]["workdir_files"] = {file: format_size(len(data)) for file, data in files.items()}
        text = yaml.safe_dump(request, sort_keys=False, allow_unicode=True, width=10_000)
        return [(visible(line), Tone.PLAIN) for line in text.splitlines()]

    command = f"iris-core {session.selector} rpc controller get-job-status --job-id {target.job}"
    return Page(f"Spec {one_line(target.job)}", load, command)


async def _get_job(session: Session, name: str) -> pb.GetJobStatusResponse:
    from iris_core.wire.gen.iris.v1 import controller_pb2

    return await session.client.call(
        "ControllerService/GetJobStatus",
        controller_pb2.GetJobStatusRequest(job_id=name),
        controller_pb2.GetJobStatusResponse,
    )


def _pair(label: str, text: str, tone: Tone = Tone.PLAIN) -> tuple[str, Tone]:
    return f"{label:<{_LABEL}}{text}", tone


def _block(label: str, text: str, tone: Tone) -> list[tuple[str, Tone]]:
    """A text of several lines, all of them."""
    lines = [visible(line) for line in text.splitlines()]
    if not lines:
        return []
    if len(lines) == 1:
        return [_pair(label, lines[0], tone)]
    return [_pair(label, ""), *((f"  {line}", tone) for line in lines)]


async def _job_lines(session: Session, name: str) -> Lines:
    from iris_core.wire.gen.iris.v1 import controller_pb2

    answer = await _get_job(session, name)
    tasks = await session.client.call(
        "ControllerService/ListTasks",
        controller_pb2.ListTasksRequest(job_id=name, page_size=MOST_TASKS),
        controller_pb2.ListTasksResponse,
    )
    job, request = answer.job, answer.request
    now = session.clock.now_ms()
    shares = task_shares(job)
    counts = ", ".join(f"{count} {share}" for share, count in shares.items() if count) or "none"
    state = job_label(job.state)
    if job.HasField("exit_code"):
        state += f", exit {exit_text(job.exit_code, job.error)}"
    lines = [
        _pair("Job", one_line(job.job_id)),
        _pair("State", state, job_tone(job.state)),
        *_block("Error", job.error, Tone.BAD),
        *_block("Waits for", job.pending_reason, Tone.WAIT),
        _pair("Tasks", f"{job.num_tasks}: {counts}"),
        _pair("Failures", f"{job.failure_count}, preemptions {job.preemption_count}"),
        _pair("Submitted", f"{when(job.submitted_at_ms)} UTC by {one_line(job.submitting_user or job.user_id)}"),
        _pair("Started", f"{when(job.started_at_ms)}{' UTC' if job.started_at_ms else ''}"),
        _pair("Finished", f"{when(job.finished_at_ms)}{' UTC' if job.finished_at_ms else ''}"),
        _pair("Ran", span(job.started_at_ms, job.finished_at_ms, now)),
        _pair("Band", job_band_text(job.priority_band, tasks.tasks)),
        _pair("Resources", f"{resources_text(job.resources)} per task"),
        _pair("Parent", one_line(job.parent_job_id) or NOTHING),
        *_request_lines(request),
    ]
    if tasks.tasks:
        lines += [
            ("", Tone.PLAIN),
            *_table("TASK", TASKS, _TASK_COLUMNS, list(tasks.tasks), now, lambda task: str(task.task_index)),
        ]
        left = tasks.total_count - len(tasks.tasks)
        if left > 0:
            atleast = "at least " if tasks.total_capped else ""
            lines.append(
                (f"{atleast}{counted(left, 'more task')}: iris-core {session.selector} task list {name}", Tone.WARN)
            )
    return lines


def _request_lines(request: pb.LaunchJobRequest) -> list[tuple[str, Tone]]:
    import shlex

    lines = [_pair("Command", one_line(shlex.join(request.entrypoint.run_command.argv)) or NOTHING)]
    if request.submit_argv:
        lines.append(_pair("Submitted as", one_line(shlex.join(request.submit_argv))))
    lines.append(_pair("Bundle", request.bundle_id[:12] or NOTHING))
    if request.environment.env_vars:
        lines.append(_pair("Environment", one_line(" ".join(sorted(request.environment.env_vars)))))
    return lines + [_pair(label, text) for label, text in asked(request)]


async def _task_lines(session: Session, name: str, number: int | None) -> Lines:
    answer = await session.tree.task_status(name)
    task, now = answer.task, session.clock.now_ms()
    attempts = [attempt for attempt in answer.attempts if number is None or attempt.attempt_id == number]
    state = task_label(task.state)
    if task.HasField("exit_code"):
        state += f", exit {exit_text(task.exit_code, task.error)}"
    lines = [
        _pair("Task", one_line(task.task_id) if number is None else f"{one_line(task.task_id)}, attempt {number}"),
        _pair("State", state, task_tone(task.state)),
        *_block("Error", task.error, Tone.BAD),
        *_block("Waits for", task.pending_reason, Tone.WAIT),
        _pair("Worker", f"{one_line(task.worker_id)} {one_line(task.worker_address)}".strip() or NOTHING),
        _pair("Band", band_text(task.priority_band, task.placed_band) if task.priority_band else NOTHING),
        _pair("Resources", resources_text(answer.resources)),
        _pair("Submitted", f"{when(task.submitted_at_ms)} UTC"),
        _pair("Started", f"{when(task.started_at_ms)}{' UTC' if task.started_at_ms else ''}"),
        _pair("Finished", f"{when(task.finished_at_ms)}{' UTC' if task.finished_at_ms else ''}"),
        _pair("Ran", span(task.started_at_ms, task.finished_at_ms, now)),
        _pair("Failures", f"{task.failure_count}, preemptions {task.preemption_count}"),
        _pair("Peak memory", format_size(task.memory_peak_bytes) if task.memory_peak_bytes else NOTHING),
        ("", Tone.PLAIN),
    ]
    if not attempts:
        return [*lines, ("No attempt yet." if number is None else f"There is no attempt {number}.", Tone.DIM)]
    return [
        *lines,
        *_table(
            "ATTEMPT",
            ATTEMPTS,
            _ATTEMPT_COLUMNS,
            attempts,
            now,
            lambda a: f"{a.attempt_id}{' current' if a.current else ''}",
        ),
    ]


def _table(
    title: str,
    specs: dict[str, ColumnSpec[Any]],
    names: tuple[str, ...],
    rows: list[Any],
    now_ms: int,
    head: Callable[[Any], str],
) -> list[tuple[str, Tone]]:
    """Rows in columns as wide as they need; the last column is never cut."""
    columns = [specs[name] for name in names]
    cells = [[head(row), *(column.text(row, now_ms) for column in columns)] for row in rows]
    texts = aligned((title, *(column.title for column in columns)), frozenset(), cells)
    tone = specs["state"].tone
    assert tone is not None
    return [texts[0], *((text, tone(row)) for (text, _), row in zip(texts[1:], rows, strict=True))]
