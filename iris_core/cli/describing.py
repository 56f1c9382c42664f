"""`describe` of a job, a task and an attempt: a few lines a person reads, or one JSON object (cli-auth-logs §1.2–1.4)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from iris_core.cli import output
from iris_core.cli.listings import JOB_LIST, JOB_TASKS, TASK_ATTEMPTS, TASK_LIST
from iris_core.cli.reads import job_ended, task_ended
from iris_core.live.asked import asked
from iris_core.live.columns import attempt_reason, exit_text, resources_text
from iris_core.live.wording import band_text, job_band_text, outputs_text
from iris_core.model.bands import PriorityBand, band_label
from iris_core.model.resources import format_cpu, format_size
from iris_core.model.states import job_label, task_label
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

    from iris_core.cli.root_cause import RootCause
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb


def as_object(message: Message) -> dict[str, Any]:
    """A message as JSON with the proto's own field names, enums by name."""
    from google.protobuf import json_format

    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def job_text(found: pb.GetJobStatusResponse, tasks: Sequence[pb.TaskStatus], how: output.Format, now_ms: int) -> str:
    """A job and its tasks."""
    job = found.job
    if how == "json":
        return (
            output.as_json(
                {
                    "job": JOB_LIST.object(job),
                    "tasks": [TASK_LIST.object(task) for task in tasks],
                    "request": as_object(found.request),
                }
            )
            + "\n"
        )
    name = job.job_id.rpartition("/")[2]
    lines = [
        f"Job: {job.job_id}" + (f" ({job.name})" if job.name not in ("", name, job.job_id) else ""),
        f"State: {job_label(job.state)}"
        + (
            f", exit {exit_text(job.exit_code, job.error)}"
            if job_ended(job.state) and job.HasField("exit_code")
            else ""
        )
        + f", failures {job.failure_count}, preemptions {job.preemption_count}",
        _completed(job, tasks),
    ]
    if job.error:
        lines.append(f"Error: {job.error}")
    elif job.pending_reason and not job_ended(job.state):
        lines.append(f"Pending: {job.pending_reason}")
    band = job_band_text(job.priority_band, tasks)
    if band != PriorityBand.INTERACTIVE.label:
        lines.append(f"Band: {band}")
    lines += [f"{label}: {words}" for label, words in asked(found.request)]
    text = "".join(f"{one_line(line)}\n" for line in lines)
    return text + JOB_TASKS.text(tasks, how, now_ms)


def _completed(job: pb.JobStatus, tasks: Sequence[pb.TaskStatus]) -> str:
    counts = Counter({task_label(count.state): count.count for count in job.task_counts}) or Counter(
        task_label(task.state) for task in tasks
    )
    done = counts["succeeded"]
    words = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    return f"Completed: {done}/{job.num_tasks}" + (f" ({words})" if words else "")


def task_text(found: pb.GetTaskStatusResponse, how: output.Format, now_ms: int, cause: RootCause | None = None) -> str:
    """A task and its attempts."""
    task = found.task
    if how == "json":
        return (
            output.as_json(
                {
                    "task": TASK_LIST.object(task),
                    "priority_band": band_label(task.priority_band) if task.priority_band else None,
                    "placed_band": band_label(task.placed_band) if task.placed_band else None,
                    "resources": as_object(found.resources),
                    "attempts": [TASK_ATTEMPTS.object(attempt) for attempt in found.attempts],
                    "root_cause": cause.lines if cause is not None else None,
                }
            )
            + "\n"
        )
    over = task_ended(task.state)
    lines = [
        f"Task: {task.task_id}",
        f"State: {task_label(task.state)}"
        + (f", exit {exit_text(task.exit_code, task.error)}" if over and task.HasField("exit_code") else "")
        + f", failures {task.failure_count}, preemptions {task.preemption_count}",
    ]
    if task.worker_id:
        lines.append(f"Worker: {task.worker_id}" + (f" ({task.worker_address})" if task.worker_address else ""))
    if task.priority_band:
        lines.append(f"Band: {band_text(task.priority_band, task.placed_band)}")
    lines.append(f"Resources: {resources_text(found.resources)}")
    if task.memory_peak_bytes:
        now = f", {format_size(task.memory_bytes)} now" if task.memory_bytes else ""
        lines.append(f"Peak memory: {format_size(task.memory_peak_bytes)}{now}")
    if task.memory_bytes:
        lines.append(f"CPU now: {format_cpu(task.cpu_millicores)}")
    if task.status_md:
        lines.append(f"Status: {task.status_md}")
    if task.pending_reason and not over:
        lines.append(f"Pending: {task.pending_reason}")
    if task.error:
        lines.append(f"Error: {task.error}")
    text = "".join(f"{one_line(line)}\n" for line in lines)
    text += TASK_ATTEMPTS.text(found.attempts, how, now_ms) if found.attempts else ""
    return text + (cause.text() if cause is not None else "")


def attempt_text(
    task: pb.TaskStatus, attempt: pb.AttemptStatus, how: output.Format, cause: RootCause | None = None
) -> str:
    """One attempt of a task."""
    if how == "json":
        return (
            output.as_json(
                {
                    "task_id": task.task_id,
                    **TASK_ATTEMPTS.object(attempt),
                    "current": attempt.current,
                    "outputs": as_object(attempt.outputs) if attempt.HasField("outputs") else None,
                    "root_cause": cause.lines if cause is not None else None,
                }
            )
            + "\n"
        )
    lines = [
        f"Attempt: {task.task_id}:{attempt.attempt_id}" + (" (current)" if attempt.current else ""),
        f"UID: {attempt.attempt_uid}",
        f"State: {task_label(attempt.state)}"
        + (f", exit {exit_text(attempt.exit_code, attempt.error)}" if attempt.HasField("exit_code") else ""),
        f"Worker: {attempt.worker_id or '-'}",
    ]
    if attempt.memory_peak_bytes:
        lines.append(f"Peak memory: {format_size(attempt.memory_peak_bytes)}")
    if attempt.terminal_reason:
        lines.append(f"Terminal reason: {attempt.terminal_reason}")
    reason = attempt_reason(attempt)
    if reason and reason != attempt.terminal_reason:
        lines.append(f"Error: {reason}")
    if attempt.HasField("outputs"):
        lines.append(f"Outputs: {outputs_text(attempt.outputs)}")
    text = "".join(f"{one_line(line)}\n" for line in lines)
    return text + (cause.text() if cause is not None else "")
