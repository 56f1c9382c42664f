"""What a cluster file says about users' budgets: tiers in `user_budgets`, and the defaults of everybody else (control-plane §5, §8).

A budget that cannot be understood is an error with its line, never no budget. Must never know what is spent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.model.bands import PriorityBand, parse_band
from iris_core.model.errors import ModelError
from iris_core.model.ids import check_owner

if TYPE_CHECKING:
    from iris_core.config.document import Value

MAX_LIMIT: Final = 10**15
"""Largest limit of a budget."""


@dataclass(frozen=True, slots=True)
class BudgetTier:
    """One entry: these users get this limit (0 = unlimited) and this highest band, at every start of the controller."""

    user_ids: tuple[str, ...]
    limit: int
    max_band: PriorityBand


@dataclass(frozen=True, slots=True)
class BudgetDefaults:
    """Of users that have no budget of their own."""

    limit: int = 1_000
    max_band: PriorityBand = PriorityBand.INTERACTIVE


def budget_tiers(value: Value) -> tuple[BudgetTier, ...]:
    """The tiers, in order; of a user in several the last counts. Raises UsageFailed."""
    return tuple(_tier(item) for item in value.items())


def budget_defaults(value: Value) -> BudgetDefaults:
    """`defaults.user_budget`. Raises UsageFailed."""
    keys = value.mapping({"budget_limit", "max_band"})
    plain = BudgetDefaults()
    return BudgetDefaults(
        keys["budget_limit"].whole(0, MAX_LIMIT) if "budget_limit" in keys else plain.limit,
        _band(keys["max_band"]) if "max_band" in keys else plain.max_band,
    )


def _tier(value: Value) -> BudgetTier:
    keys = value.mapping({"user_ids", "budget_limit", "max_band"})
    for name in ("user_ids", "budget_limit"):
        if name not in keys:
            raise value.wrong(f"the key {name!r} is missing")
    users = tuple(_user(item) for item in keys["user_ids"].items())
    if not users:
        raise keys["user_ids"].wrong("the tier names no user")
    band = _band(keys["max_band"]) if "max_band" in keys else PriorityBand.INTERACTIVE
    return BudgetTier(users, keys["budget_limit"].whole(0, MAX_LIMIT), band)


def _user(value: Value) -> str:
    try:
        return check_owner(value.text())
    except ModelError as error:
        raise value.wrong(error.message, hint=error.hint) from None


def _band(value: Value) -> PriorityBand:
    return value.parsed(parse_band)
