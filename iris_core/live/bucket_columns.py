"""The columns of the Scheduler view, for each kind of its rows; rules as in `columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_core.live.columns import ColumnSpec
from iris_core.live.scheduler_tree import PENDING
from iris_core.live.user_columns import spends_text
from iris_core.live.wording import NOTHING, Tone, age, or_nothing
from iris_core.live.worker_columns import device_text
from iris_core.model.bands import band_label
from iris_core.model.quantities import format_cpu, format_size
from iris_core.model.text import counted, one_line

if TYPE_CHECKING:
    from iris_core.live.scheduler_tree import Group


def budget_text(group: Group) -> str:
    """What a user spends and may spend, and what that does to their work; "" for a band, and until it is known."""
    if group.budget is None:
        return ""
    budget = group.budget.budget
    text = spends_text(budget)
    return f"{text}, interactive is served as {band_label(budget.effective_band)}" if over_budget(group) else text


def over_budget(group: Group) -> bool:
    """Whether the user's interactive work is served in a lower band."""
    budget = group.budget.budget if group.budget is not None else None
    return budget is not None and budget.budget_limit > 0 and band_label(budget.effective_band) == "batch"


def _group_says(group: Group) -> str:
    jobs = counted(len(group.jobs), "job")
    budget = budget_text(group)
    return f"{jobs}; {budget}" if budget else jobs


def _place(position: int) -> str:
    return f"{position:,}" if position else NOTHING


def _column(**fields: Any) -> ColumnSpec[Any]:
    return ColumnSpec(**fields)


COLUMNS: Final[tuple[ColumnSpec[Any], ...]] = (
    _column(id="name", title="BAND / USER / JOB", min_width=26, flex=2, value=str, text=lambda row, _: "", sort=lambda row, _: 0),
    _column(id="tasks", title="TASKS", min_width=6, max_width=9, align="right", value=str, text=lambda row, _: "", sort=lambda row, _: 0),
    _column(id="position", title="PLACE", min_width=6, max_width=8, align="right", hide=2, value=str, text=lambda row, _: "",
            sort=lambda row, _: 0),
    _column(id="age", title="WAITS", min_width=6, max_width=6, align="right", value=str, text=lambda row, _: "", sort=lambda row, _: 0),
    _column(id="asks", title="EACH ASKS FOR", min_width=24, flex=1, hide=3, value=str, text=lambda row, _: ""),
    _column(id="reason", title="WHY IT WAITS, WHERE IT RUNS", min_width=30, flex=6, value=str, text=lambda row, _: "",
            sort=lambda row, _: 0),
)  # fmt: skip
"""Widths and titles; what stands in them is the kind's."""


def asks_text(bucket: Any) -> str:
    """What each task asks for, accelerators first: `8 h100, 8 cpu, 64GiB`."""
    asks = bucket.resources
    parts = [device_text(asks.device)] if asks.device.count else []
    return ", ".join([*parts, f"{format_cpu(asks.cpu_millicores)} cpu", format_size(asks.memory_bytes, exact=True)])


def _is_pending(bucket: Any) -> bool:
    return "pending_since_ms" in bucket.DESCRIPTOR.fields_by_name


def _bucket_reason(bucket: Any) -> str:
    if not _is_pending(bucket):
        return f"on {one_line(bucket.worker_id)}"
    gang = "gang: " if bucket.gang else ""
    return f"{gang}{one_line(bucket.reason)}" if bucket.reason or gang else NOTHING


def _since(bucket: Any) -> int:
    return int(bucket.pending_since_ms) if _is_pending(bucket) else 0


def _bucket_place(bucket: Any) -> int:
    return int(bucket.position) if _is_pending(bucket) else 0


_GROUP: Final[tuple[ColumnSpec[Group], ...]] = (
    _column(id="tasks", title="TASKS", value=lambda group: group.tasks, text=lambda group, _: f"{group.tasks:,}",
            sort=lambda group, _: -group.tasks, falls=True),
    _column(id="position", title="PLACE", value=lambda group: group.position or None, text=lambda group, _: _place(group.position),
            sort=lambda group, _: group.position),
    _column(id="age", title="WAITS", value=lambda group: group.since_ms or None, text=lambda group, now: age(group.since_ms, now), moves=True,
            sort=lambda group, now: group.since_ms - now if group.since_ms else 0),
    _column(id="reason", title="", value=_group_says, text=lambda group, _: _group_says(group), sort=lambda group, _: _group_says(group),
            tone=lambda group: Tone.WARN if over_budget(group) else Tone.DIM),
)  # fmt: skip

SPECS: Final[dict[str, dict[str, ColumnSpec[Any]]]] = {
    kind: {spec.id: spec for spec in specs}
    for kind, specs in {
        "band": (
            _column(
                id="name", title="BAND", value=lambda group: band_label(group.band),
                text=lambda group, _: f"{group.section}: {band_label(group.band)}",
                sort=lambda group, _: 0,
                tone=lambda group: Tone.WAIT if group.section == PENDING else Tone.BUSY,
            ),
            *_GROUP,
        ),
        "user": (
            _column(
                id="name", title="USER", value=lambda group: group.user, text=lambda group, _: or_nothing(group.user),
                sort=lambda group, _: group.user,
            ),
            *_GROUP,
        ),
        "job": (
            _column(
                id="name", title="JOB", value=lambda bucket: bucket.job_id, text=lambda bucket, _: or_nothing(bucket.job_id),
                sort=lambda bucket, _: bucket.job_id,
            ),
            _column(
                id="tasks", title="TASKS", value=lambda bucket: bucket.count, text=lambda bucket, _: f"{bucket.count:,}",
                sort=lambda bucket, _: -bucket.count, falls=True,
            ),
            _column(
                id="position", title="PLACE", value=_bucket_place, text=lambda bucket, _: _place(_bucket_place(bucket)),
                sort=lambda bucket, _: _bucket_place(bucket),
            ),
            _column(
                id="age", title="WAITS", value=_since, text=lambda bucket, now: age(_since(bucket), now), moves=True,
                sort=lambda bucket, now: _since(bucket) - now if _since(bucket) else 0,
            ),
            _column(
                id="asks", title="ASKS", value=lambda bucket: asks_text(bucket) if _is_pending(bucket) else None,
                text=lambda bucket, _: asks_text(bucket) if _is_pending(bucket) else "",
                tone=lambda bucket: Tone.DIM,
            ),
            _column(
                id="reason", title="WHY", value=_bucket_reason, text=lambda bucket, _: _bucket_reason(bucket),
                sort=lambda bucket, _: _bucket_reason(bucket),
                tone=lambda bucket: Tone.PLAIN if _is_pending(bucket) else Tone.DIM,
            ),
        ),
    }.items()
}  # fmt: skip
"""By kind of row, then by column."""
