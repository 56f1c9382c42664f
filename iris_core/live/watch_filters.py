"""What a filter can ask of every kind of row that a Watch brings: one grammar, one table, for console and controller.

By field of `WatchRows`: the fields that a term may name, where a bare word is looked for, and how a row answers. Those of jobs, tasks
and workers are in `filters`. Ages need the time now, which the caller passes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iris_core.live.filters import (
    JOB_FIELDS,
    JOB_WORDS,
    TASK_FIELDS,
    TASK_WORDS,
    WORKER_FIELDS,
    WORKER_WORDS,
    job_row,
    task_row,
    worker_row,
)
from iris_core.model.bands import BANDS, band_label
from iris_core.model.filter import Field, FieldType, parse_filter
from iris_core.model.states import TaskState, label, task_label

if TYPE_CHECKING:
    from iris_core.model.filter import Filter

Value = Callable[[Any, int], object]
"""A row's answer for one field, given the time now in ms; None = it has none."""

_BAND: Final = Field(FieldType.WORD, tuple(band.label for band in BANDS))
_TEXT, _WORD, _NUMBER = FieldType.TEXT, FieldType.WORD, FieldType.NUMBER


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Of one kind of row. `row(message, now_ms)` is what `Filter.matches` wants."""

    fields: Mapping[str, FieldType | Field]
    words: tuple[str, ...]
    row: Callable[[Any, int], Callable[[str], object]]

    def parse(self, text: str) -> Filter:
        """Raises ModelError, with the position in `text`."""
        return parse_filter(text, self.fields, default=self.words)


def _of(words: tuple[str, ...], **spec: tuple[FieldType | Field, Value]) -> RowFilter:
    values = {name: value for name, (_, value) in spec.items()}
    return RowFilter(
        {name: field for name, (field, _) in spec.items()},
        words,
        lambda row, now_ms: lambda name: values[name](row, now_ms),
    )


def _text(name: str) -> tuple[FieldType, Value]:
    return _TEXT, lambda row, _: getattr(row, name) or None


def _number(name: str) -> tuple[FieldType, Value]:
    return _NUMBER, lambda row, _: getattr(row, name)


def _time(name: str) -> tuple[FieldType, Value]:
    return FieldType.TIME, lambda row, _: getattr(row, name) or None


def _since(name: str) -> tuple[FieldType, Value]:
    return FieldType.DURATION, lambda row, now_ms: now_ms - getattr(row, name) if getattr(row, name) else None


def _yes(name: str) -> tuple[Field, Value]:
    return Field(_WORD, ("yes", "no")), lambda row, _: "yes" if getattr(row, name) else "no"


def _told(name: str) -> tuple[FieldType, Value]:
    """A number of a scale group that only an autoscaler knows; none where none told of the group."""
    return _NUMBER, lambda row, _: getattr(row, name) if row.availability else None


def _band(name: str) -> tuple[Field, Value]:
    return _BAND, lambda row, _: band_label(getattr(row, name))


def _span(attempt: Any, now_ms: int) -> int | None:
    return (attempt.finished_at_ms or now_ms) - attempt.started_at_ms if attempt.started_at_ms else None


_STATE: Final = Field(_WORD, tuple(label(state) for state in TaskState if state))

ROW_FILTERS: Final[dict[str, RowFilter]] = {
    "jobs": RowFilter(JOB_FIELDS, JOB_WORDS, job_row),
    "tasks": RowFilter(TASK_FIELDS, TASK_WORDS, task_row),
    "workers": RowFilter(WORKER_FIELDS, WORKER_WORDS, lambda worker, _: worker_row(worker)),
    "attempts": _of(
        ("state", "worker", "error", "reason"),
        task=_text("task_id"),
        attempt=_number("attempt_id"),
        state=(_STATE, lambda row, _: task_label(row.state)),
        worker=_text("worker_id"),
        error=_text("error"),
        reason=_text("terminal_reason"),
        exit=(_NUMBER, lambda row, _: row.exit_code if row.HasField("exit_code") else None),
        memory=(FieldType.SIZE, lambda row, _: row.memory_peak_bytes or None),
        current=_yes("current"),
        age=_since("created_at_ms"),
        time=(FieldType.DURATION, _span),
        started=_time("started_at_ms"),
        finished=_time("finished_at_ms"),
    ),
    "pending_buckets": _of(
        ("job", "user", "band", "reason"),
        job=_text("job_id"),
        user=_text("user_id"),
        band=_band("band"),
        requested=_band("requested_band"),
        backend=_text("backend_id"),
        reason=_text("reason"),
        tasks=_number("count"),
        position=_number("position"),
        gang=_yes("gang"),
        device=(_TEXT, lambda row, _: row.resources.device.variant or row.resources.device.kind or None),
        age=_since("pending_since_ms"),
    ),
    "running_buckets": _of(
        ("job", "user", "band", "worker"),
        job=_text("job_id"),
        user=_text("user_id"),
        band=_band("band"),
        worker=_text("worker_id"),
        backend=_text("backend_id"),
        tasks=_number("count"),
    ),
    "scale_groups": _of(
        ("group", "accelerator", "availability", "decision"),
        group=_text("name"),
        accelerator=_text("accelerator"),
        availability=_text("availability"),
        decision=_text("decision"),
        reason=(_TEXT, lambda row, _: row.availability_reason or row.decision_reason or None),
        quota=_text("quota_reason"),
        failure=_text("failure_reason"),
        failures=_number("consecutive_failures"),
        demand=_told("demand"),
        current=_number("current_slices"),
        target=_told("target_slices"),
        max=_told("max_slices"),
        buffer=_told("buffer_slices"),
        zone=_text("zone"),
    ),
    "slices": _of(
        ("slice", "group", "state", "error"),
        slice=_text("slice_id"),
        group=_text("scale_group"),
        state=(
            Field(_WORD, ("booting", "initializing", "ready", "draining", "failed")),
            lambda row, _: row.lifecycle,
        ),
        worker=(_TEXT, lambda row, _: " ".join(vm.worker_id for vm in row.vms) or None),
        workers=(_NUMBER, lambda row, _: len(row.vms)),
        error=_text("error"),
        manual=_yes("manual"),
        busy=_yes("busy"),
        age=_since("created_at_ms"),
        created=_time("created_at_ms"),
    ),
    "actions": _of(
        ("action", "entity", "group", "status", "reason"),
        action=_text("action"),
        entity=_text("entity"),
        group=_text("scale_group"),
        status=(Field(_WORD, ("pending", "completed", "failed")), lambda row, _: row.status),
        reason=_text("reason"),
        age=_since("at_ms"),
        at=_time("at_ms"),
    ),
    "users": _of(
        ("user", "role", "band"),
        user=_text("user_id"),
        role=(_TEXT, lambda row, _: row.summary.role or None),
        band=(_BAND, lambda row, _: band_label(row.budget.effective_band)),
        max_band=(_BAND, lambda row, _: band_label(row.budget.max_band)),
        limit=(_NUMBER, lambda row, _: row.budget.budget_limit),
        spent=(_NUMBER, lambda row, _: row.budget.budget_spent),
        used=(_NUMBER, lambda row, _: row.budget.utilization_percent if row.budget.budget_limit else None),
        jobs=(_NUMBER, lambda row, _: row.summary.active_jobs),
        running=(_NUMBER, lambda row, _: row.summary.running_tasks),
        tasks=_number("active_tasks"),
    ),
    "endpoints": _of(
        ("endpoint", "task", "address"),
        endpoint=_text("name"),
        task=_text("task_id"),
        address=_text("address"),
        access=(Field(_WORD, ("private", "link")), lambda row, _: "link" if row.access == 2 else "private"),
        lease=(FieldType.DURATION, lambda row, _: row.lease_ms or None),
        age=_since("registered_at_ms"),
    ),
    "backends": _of(
        ("backend", "name", "kind", "detail"),
        backend=_text("backend_id"),
        name=(_TEXT, lambda row, _: row.status.name or None),
        kind=(_TEXT, lambda row, _: row.status.kind or None),
        detail=(_TEXT, lambda row, _: row.status.detail or None),
        workers=(_NUMBER, lambda row, _: row.status.workers_total),
        healthy=(_NUMBER, lambda row, _: row.status.workers_healthy),
        pending=(_NUMBER, lambda row, _: row.status.pending_tasks),
        running=(_NUMBER, lambda row, _: row.status.running_tasks),
    ),
    "controller": _of(("controller",), controller=_text("controller_id")),
    "fleet": _of(("fleet",), fleet=_text("fleet_id")),
}
"""Field of `WatchRows` → its filter."""
