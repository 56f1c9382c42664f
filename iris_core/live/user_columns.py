"""The columns of users and their budgets, for the command line's tables and the console; rules as in `columns`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from iris_core.live.columns import ColumnSpec, Tone, iso, when
from iris_core.live.wording import NOTHING, or_nothing
from iris_core.model.bands import band_label

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.budgets_pb2 import UserBudget
    from iris_core.wire.gen.iris.v1.watch_rows_pb2 import UserRow

NEARLY: Final = 75
"""Per cent of a budget from which on it is worth a look (cli-auth-logs §6)."""
FULL: Final = 100


def limit_text(limit: int) -> str:
    """A budget's limit as a person reads it."""
    return str(limit) if limit else "unlimited"


def utilisation_text(budget: UserBudget) -> str:
    """How much of the limit is spent, "-" without a limit."""
    return f"{budget.utilization_percent:.0f}%" if budget.budget_limit else NOTHING


def spends_text(budget: UserBudget) -> str:
    """What is spent of how much, in words: `spends 8,300 of 8,000 (104%)`."""
    if not budget.budget_limit:
        return f"spends {budget.budget_spent:,}, has no limit"
    return f"spends {budget.budget_spent:,} of {budget.budget_limit:,} ({budget.utilization_percent:.0f}%)"


def _tone(budget: UserBudget) -> Tone:
    if budget.utilization_percent >= FULL:
        return Tone.BAD
    return Tone.WARN if budget.utilization_percent >= NEARLY else Tone.PLAIN


def _column(**fields: Any) -> ColumnSpec[Any]:
    return ColumnSpec(**fields)


BUDGETS: Final[dict[str, ColumnSpec[UserBudget]]] = {
    spec.id: spec
    for spec in (
        _column(
            id="user", title="USER", min_width=12, flex=2,
            value=lambda budget: budget.user_id,
            text=lambda budget, _: or_nothing(budget.user_id),
            sort=lambda budget, _: budget.user_id,
        ),
        _column(
            id="limit", title="LIMIT", min_width=9, max_width=16, align="right",
            value=lambda budget: budget.budget_limit,
            text=lambda budget, _: limit_text(budget.budget_limit),
            sort=lambda budget, _: budget.budget_limit,
        ),
        _column(
            id="spent", title="SPENT", min_width=6, max_width=16, align="right",
            value=lambda budget: budget.budget_spent,
            text=lambda budget, _: str(budget.budget_spent),
            sort=lambda budget, _: -budget.budget_spent, falls=True,
        ),
        _column(
            id="utilisation", title="USED", min_width=5, max_width=7, align="right", hide=2,
            value=lambda budget: budget.utilization_percent if budget.budget_limit else None,
            text=lambda budget, _: utilisation_text(budget),
            sort=lambda budget, _: -budget.utilization_percent, falls=True,
            tone=_tone,
        ),
        _column(
            id="max_band", title="MAX BAND", min_width=8, max_width=11,
            value=lambda budget: band_label(budget.max_band),
            text=lambda budget, _: band_label(budget.max_band),
            sort=lambda budget, _: budget.max_band,
        ),
        _column(
            id="effective_band", title="EFFECTIVE", min_width=9, max_width=11, hide=1,
            value=lambda budget: band_label(budget.effective_band),
            text=lambda budget, _: band_label(budget.effective_band),
            sort=lambda budget, _: budget.effective_band,
        ),
        _column(
            id="updated", title="UPDATED", min_width=8, max_width=19, hide=3,
            value=lambda budget: iso(budget.updated_at_ms),
            text=lambda budget, _: when(budget.updated_at_ms),
            sort=lambda budget, _: -budget.updated_at_ms, falls=True,
        ),
    )
}  # fmt: skip


def _of_user(spec: ColumnSpec[Any]) -> ColumnSpec[Any]:
    """A column of a budget as a column of the user whose it is."""
    sort, tone = spec.sort, spec.tone
    return replace(
        spec,
        value=lambda row: spec.value(row.budget),
        text=lambda row, now: spec.text(row.budget, now),
        sort=None if sort is None else lambda row, now: sort(row.budget, now),
        tone=None if tone is None else lambda row: tone(row.budget),
    )


def _active_tone(row: UserRow) -> Tone:
    return Tone.WARN if row.max_active_tasks and row.active_tasks * 100 >= row.max_active_tasks * NEARLY else Tone.PLAIN


USERS: Final[dict[str, ColumnSpec[UserRow]]] = {
    **{name: _of_user(spec) for name, spec in BUDGETS.items()},
    "user": replace(
        _of_user(BUDGETS["user"]),
        value=lambda row: row.user_id,
        text=lambda row, _: or_nothing(row.user_id),
        sort=lambda row, _: row.user_id,
    ),
    **{
        spec.id: spec
        for spec in (
            _column(
                id="jobs", title="JOBS", min_width=4, max_width=8, align="right", hide=5,
                value=lambda row: row.summary.active_jobs,
                text=lambda row, _: f"{row.summary.active_jobs:,}",
                sort=lambda row, _: -row.summary.active_jobs, falls=True,
            ),
            _column(
                id="running", title="RUNNING", min_width=7, max_width=10, align="right", hide=4,
                value=lambda row: row.summary.running_tasks,
                text=lambda row, _: f"{row.summary.running_tasks:,}",
                sort=lambda row, _: -row.summary.running_tasks, falls=True,
            ),
            _column(
                id="active", title="ACTIVE TASKS", min_width=12, max_width=20, align="right", hide=3,
                value=lambda row: {"tasks": row.active_tasks, "limit": row.max_active_tasks or None},
                text=lambda row, _: f"{row.active_tasks:,}" + (f"/{row.max_active_tasks:,}" if row.max_active_tasks else ""),
                sort=lambda row, _: -row.active_tasks, falls=True,
                tone=_active_tone,
            ),
            _column(
                id="role", title="ROLE", min_width=5, max_width=9, hide=6,
                value=lambda row: row.summary.role or None,
                text=lambda row, _: or_nothing(row.summary.role),
                sort=lambda row, _: row.summary.role,
            ),
        )
    },
}  # fmt: skip
