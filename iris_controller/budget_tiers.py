"""What the cluster file says about budgets becomes the state, at every start (control-plane §5).

Tiers are set in order in one transaction, so of a user in several the last counts, and what an operator set at run time is set back;
a user the file does not name keeps what they have. Must never delete a budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.state.budgets import Budget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_controller.loop import ControllerLoop
    from iris_controller.state.overlay import Overlay
    from iris_core.config.budgets import BudgetTier
    from iris_core.config.cluster import ClusterConfig


def apply_config(config: ClusterConfig, loop: ControllerLoop) -> None:
    """Sets the defaults, and queues the tiers before any other command. Call it before the loop runs."""
    plain = config.budget_defaults
    loop.model.budget_defaults = Budget("", plain.limit, plain.max_band)
    if config.user_budgets:
        loop.post("set the budgets of the cluster file", lambda o, now_ms: set_tiers(o, config.user_budgets, now_ms))


def set_tiers(o: Overlay, tiers: Sequence[BudgetTier], now_ms: int) -> None:
    """Sets what differs from what is there."""
    wanted = {user: tier for tier in tiers for user in tier.user_ids}
    for user, tier in wanted.items():
        before = o.budget_of(user)
        if before.updated_at_ms and (before.limit, before.max_band) == (tier.limit, tier.max_band):
            continue
        o.put_budget(Budget(user, tier.limit, tier.max_band, now_ms))
        o.note("budget_set", user, "config", limit=tier.limit, max_band=tier.max_band.label)
