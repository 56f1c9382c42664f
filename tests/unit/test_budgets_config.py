"""Budgets of the cluster file: what is read, what is refused with its line, and what a start makes of them."""

from __future__ import annotations

import pytest

from iris_controller.budget_tiers import set_tiers
from iris_controller.state.budgets import Budget
from iris_core.config.budgets import BudgetDefaults, BudgetTier
from iris_core.config.cluster import parse_config
from iris_core.contracts import UsageFailed
from iris_core.model.bands import PriorityBand
from tests.unit.kernel_world import World

MINIMAL = "name: a\nplatform: {local: }\n"
BATCH, INTERACTIVE, PRODUCTION = PriorityBand.BATCH, PriorityBand.INTERACTIVE, PriorityBand.PRODUCTION


def test_tiers_and_defaults_are_read_in_order() -> None:
    config = parse_config(
        MINIMAL
        + "user_budgets:\n"
        + "- {user_ids: [ann@example.org, bob], budget_limit: 0, max_band: PRIORITY_BAND_PRODUCTION}\n"
        + "- {user_ids: [bob], budget_limit: 5}\n"
        + "defaults: {user_budget: {budget_limit: 9, max_band: batch}}\n"
    )
    assert config.user_budgets == (
        BudgetTier(("ann@example.org", "bob"), 0, PRODUCTION),
        BudgetTier(("bob",), 5, INTERACTIVE),
    )
    assert config.budget_defaults == BudgetDefaults(9, BATCH)
    assert parse_config(MINIMAL).budget_defaults == BudgetDefaults(1_000, INTERACTIVE)


@pytest.mark.parametrize(
    ("section", "message", "hint"),
    [
        ("user_budgets: [{user_ids: [''], budget_limit: 1}]", "user_budgets[0].user_ids[0]: a user is empty", ""),
        ("user_budgets: [{user_ids: [system], budget_limit: 1}]", "user_budgets[0].user_ids[0]: ", ""),
        ("user_budgets: [{user_ids: [7], budget_limit: 1}]", "expected text", "quotes"),
        ("user_budgets: [{user_ids: [], budget_limit: 1}]", "the tier names no user", ""),
        ("user_budgets: [{budget_limit: 1}]", "the key 'user_ids' is missing", ""),
        ("user_budgets: [{user_ids: [a]}]", "the key 'budget_limit' is missing", ""),
        ("user_budgets: [{user_ids: [a], budget_limit: -1}]", "'-1' is outside 0..", ""),
        ("user_budgets: [{user_ids: [a], budget_limit: lots}]", "expected a whole number, found 'lots'", ""),
        (
            "user_budgets: [{user_ids: [a], budget_limit: 1, max_band: prodution}]",
            "user_budgets[0].max_band: no priority band 'prodution'",
            "production",
        ),
        ("user_budgets: [{user_ids: [a], budget_limit: 1, max_band: inherit}]", "no priority band 'inherit'", ""),
        ("user_budgets: [{user_ids: [a], budget_limt: 1}]", "unknown key 'budget_limt'", "budget_limit"),
        ("user_budgets: {a: 1}", "user_budgets: expected a list", ""),
        ("defaults: {user_budget: {max_band: 3}}", "no priority band '3'", ""),
    ],
)
def test_a_budget_that_cannot_be_understood_is_one_line_with_its_place(section: str, message: str, hint: str) -> None:
    with pytest.raises(UsageFailed) as caught:
        parse_config(MINIMAL + section + "\n", "c.yaml")
    assert caught.value.message.startswith("c.yaml:3: ") and "\n" not in caught.value.message
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_of_several_tiers_the_last_counts_and_nobody_else_is_touched() -> None:
    world = World()
    with world.batch() as o:
        o.put_budget(Budget("eve", 3, BATCH, world.now_ms))
        o.put_budget(Budget("bob", 1, BATCH, world.now_ms))
    tiers = [BudgetTier(("bob", "ann"), 10, INTERACTIVE), BudgetTier(("bob",), 20, PRODUCTION)]
    with world.batch() as o:
        set_tiers(o, tiers, world.now_ms)
    found = {user: (budget.limit, budget.max_band) for user, budget in world.model.budgets.items()}
    assert found == {"eve": (3, BATCH), "bob": (20, PRODUCTION), "ann": (10, INTERACTIVE)}
    assert world.audit == ["budget_set bob", "budget_set ann"]
    before = dict(world.model.budgets)
    with world.batch() as o:
        set_tiers(o, tiers, world.now_ms + 1)
        assert not o.dirty, "what is there already is not written again"
    assert world.model.budgets == before
