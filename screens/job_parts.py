"""What the pages of a job and of a task say above their parts, and the parts that are text or charts."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from textual.containers import Horizontal, Vertical

from iris_core.live.columns import exit_text, share_cells, span, task_shares, when
from iris_core.live.run_line import run_line
from iris_core.live.wording import NOTHING, Tone, age, band_text, job_tone, resources_text, task_tone
from iris_core.model.bands import band_label
from iris_core.model.resources import format_cpu, format_size
from iris_core.model.states import JOB_TERMINAL, TERMINAL, job_label, task_label
from iris_core.model.text import counted, one_line
from iris_tui.drawing import Run
from iris_tui.widgets.chart import Chart, Unit
from iris_tui.widgets.pane import Pane

if TYPE_CHECKING:
    from iris_core.live.measured import Usage
    from iris_core.wire.gen.iris.v1 import common_pb2
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_tui.glyphs import Glyphs
    from iris_tui.pages import Lines

BAR: Final = 20
_BAR_TONES: Final = {
    "done": Tone.GOOD,
    "failed": Tone.BAD,
    "running": Tone.BUSY,
    "starting": Tone.WAIT,
    "pending": Tone.DIM,
}

Rows = list[list[Run]]


def _times(submitted_ms: int, started_ms: int, finished_ms: int, now_ms: int) -> list[Run]:
    runs: list[Run] = []
    if started_ms:
        runs += [Run("ran " if finished_ms else "runs ", Tone.DIM), Run(span(started_ms, finished_ms, now_ms))]
        if started_ms > submitted_ms:
            runs += [Run(" after waiting ", Tone.DIM), Run(span(submitted_ms, started_ms, now_ms))]
        runs.append(Run("  "))
    if finished_ms:
        runs += [Run("ended ", Tone.DIM), Run(f"{age(finished_ms, now_ms)} ago, {when(finished_ms)} UTC  ")]
    return [*runs, Run("submitted ", Tone.DIM), Run(f"{age(submitted_ms, now_ms)} ago, {when(submitted_ms)} UTC")]


def job_facts(job: pb.JobStatus, glyphs: Glyphs, now_ms: int, callout: str) -> Rows:
    """State, owner, tasks, times, and what went wrong or is waited for."""
    state = job_label(job.state)
    over = int(job.state) in JOB_TERMINAL
    if over and job.HasField("exit_code"):
        state += f", exit {exit_text(job.exit_code, job.error)}"
    shares = task_shares(job)
    drawn = {
        "done": glyphs.done, "failed": glyphs.failed, "running": glyphs.running, "starting": glyphs.starting,
        "pending": glyphs.pending,
    }  # fmt: skip
    counts = ", ".join(f"{one.count:,} {task_label(one.state)}" for one in job.task_counts if one.count) or "none yet"
    rows: Rows = [
        [
            Run(state, job_tone(job.state)),
            Run(f"  {band_label(job.priority_band)}"),
            Run("  of ", Tone.DIM), Run(one_line(job.user_id)),
            *(
                [Run(" by ", Tone.DIM), Run(one_line(job.submitting_user))]
                if job.submitting_user not in ("", job.user_id)
                else []
            ),
            Run(f"  {resources_text(job.resources)}"), Run(" each", Tone.DIM),
        ],
        [
            *(Run(drawn[name] * cells, _BAR_TONES[name]) for name, cells in share_cells(shares, BAR)),
            Run(f" {counted(job.num_tasks, 'task')}: {counts}"),
            Run(f"  failures {job.failure_count:,}", Tone.WARN if job.failure_count else Tone.DIM),
            Run(f"  preemptions {job.preemption_count:,}", Tone.WARN if job.preemption_count else Tone.DIM),
        ],
        _times(job.submitted_at_ms, job.started_at_ms, job.finished_at_ms, now_ms),
    ]  # fmt: skip
    if callout:
        rows.append([Run("✗ " if glyphs.done != "#" else "! ", Tone.BAD), Run(callout, Tone.BAD)])
    if job.error and one_line(job.error) not in callout:
        rows.append([Run("error ", Tone.DIM), Run(one_line(job.error), Tone.BAD)])
    elif job.pending_reason and not over:
        rows.append([Run("reason ", Tone.DIM), Run(one_line(job.pending_reason), Tone.WAIT)])
    return rows


def task_facts(task: pb.TaskStatus, resources: common_pb2.Resources, now_ms: int) -> Rows:
    """State, worker, what it holds against what it asked for, times, and what it says of itself."""
    state = task_label(task.state)
    over = int(task.state) in TERMINAL
    if over and task.HasField("exit_code"):
        state += f", exit {exit_text(task.exit_code, task.error)}"
    rows: Rows = [
        [
            Run(state, task_tone(task.state)),
            *([Run(f"  {band_text(task.priority_band, task.placed_band)}")] if task.priority_band else []),
            *([Run("  on ", Tone.DIM), Run(one_line(task.worker_id))] if task.worker_id else []),
            *([Run(f" {one_line(task.worker_address)}", Tone.DIM)] if task.worker_address else []),
            Run(f"  failures {task.failure_count:,}", Tone.WARN if task.failure_count else Tone.DIM),
            Run(f"  preemptions {task.preemption_count:,}", Tone.WARN if task.preemption_count else Tone.DIM),
        ],
        _held(task, resources),
        _times(task.submitted_at_ms, task.started_at_ms, task.finished_at_ms, now_ms),
    ]
    if task.status_md:
        rows.append([Run("says ", Tone.DIM), Run(one_line(task.status_md), Tone.BUSY)])
    if task.error:
        rows.append([Run("error ", Tone.DIM), Run(one_line(task.error), Tone.BAD)])
    elif task.pending_reason and not over:
        rows.append([Run("reason ", Tone.DIM), Run(one_line(task.pending_reason), Tone.WAIT)])
    return rows


def _held(task: pb.TaskStatus, resources: common_pb2.Resources) -> list[Run]:
    """Memory and CPU now, the peak, and the request they are held against."""
    asked = resources.memory_bytes
    near = asked and task.memory_peak_bytes >= asked * 9 // 10
    runs = [Run("memory ", Tone.DIM), Run(format_size(task.memory_bytes) if task.memory_bytes else NOTHING)]
    runs += [Run("  peak ", Tone.DIM)]
    runs += [
        Run(
            format_size(task.memory_peak_bytes) if task.memory_peak_bytes else NOTHING,
            Tone.WARN if near else Tone.PLAIN,
        )
    ]
    if asked:
        share = f" ({task.memory_peak_bytes * 100 // asked}%)" if task.memory_peak_bytes else ""
        runs.append(Run(f" of {format_size(asked)}{share}", Tone.DIM))
    runs += [Run("  cpu ", Tone.DIM), Run(format_cpu(task.cpu_millicores) if task.cpu_millicores else NOTHING)]
    runs.append(Run(f" of {format_cpu(resources.cpu_millicores)}", Tone.DIM))
    device = resources.device
    if device.count:
        runs += [Run("  ", Tone.DIM), Run(one_line(f"{device.kind} {device.variant or 'any'} x{device.count}"))]
    return runs


def request_lines(found: pb.GetJobStatusResponse, selector: str) -> Lines:
    """The command, how it was submitted, the line that submits one like it, and everything that was asked for."""
    from iris_core.live.asked import asked

    request = found.request

    def pair(label: str, text: str, tone: Tone = Tone.PLAIN) -> tuple[str, Tone]:
        return f"{label:<14}{one_line(text)}", tone

    lines = [pair("Command", shlex.join(request.entrypoint.run_command.argv) or NOTHING)]
    if request.submit_argv:
        lines.append(pair("Submitted as", shlex.join(request.submit_argv)))
    again, left_out = run_line(request, selector)
    lines.append(pair("Same as", again))
    lines += [pair("", f"without: {text}", Tone.WARN) for text in left_out]
    lines.append(
        pair("Resources", f"{resources_text(request.resources)} per task, {max(request.replicas, 1):,} of them")
    )
    lines.append(pair("Band", band_label(request.priority_band or found.job.priority_band)))
    lines += [pair(label, text) for label, text in asked(request)]
    if request.environment.env_vars:
        lines.append(pair("Environment", " ".join(sorted(request.environment.env_vars))))
    lines += [pair("Setup step", script) for script in request.environment.setup_scripts]
    lines.append(pair("Bundle", request.bundle_id or NOTHING))
    for name, data in sorted(request.entrypoint.workdir_files.items()):
        lines.append(pair("File", f"{name} ({format_size(len(data))})"))
    lines += [pair("File", f"{name} (kept by its sha256)") for name in sorted(request.entrypoint.workdir_file_refs)]
    if found.job.parent_job_id:
        lines.append(pair("Parent", found.job.parent_job_id))
    return [*lines, ("", Tone.PLAIN), ("y shows the whole request", Tone.DIM)]


class UsagePane(Pane):
    """CPU, memory and accelerator over time, each against what was asked for."""

    def __init__(self, glyphs: Glyphs) -> None:
        self.cpu = Chart("CPU", Unit.CORES, glyphs)
        self.memory = Chart("Memory", Unit.BYTES, glyphs)
        self.busy = Chart("Accelerator", Unit.PERCENT, glyphs)
        self.held = Chart("Accelerator memory", Unit.BYTES, glyphs)
        self._upper = Horizontal(self.cpu, self.memory, classes="charts")
        self._lower = Horizontal(self.busy, self.held, classes="charts")
        super().__init__(Vertical(self._upper, self._lower))

    def fill(self, usage: Usage, resources: common_pb2.Resources) -> None:
        """Show these; the lower charts stand only where there is an accelerator."""
        asked: dict[str, Any] = {"limit_name": "request"}
        self.cpu.show(usage.cpu, limit=resources.cpu_millicores / 1000 or None, **asked)
        self.memory.show(usage.memory, limit=float(resources.memory_bytes) or None, **asked)
        self._lower.display = bool(resources.device.count or len(usage.accelerator) or len(usage.accelerator_memory))
        words = "no readings" if resources.device.count else ""
        self.busy.show(usage.accelerator, limit=None, words=words)
        self.held.show(usage.accelerator_memory, limit=None, words=words)
