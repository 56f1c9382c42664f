"""The gate, question by question: it says what the gate of the console says, and takes no answer for no.

The steps are as many: what will happen, that the list was read (tier 2), the reason, and yes, or at tier 3 the name of the cluster.
It decides and nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.model.text import one_line
from iris_tui.gate import MOST_REASON, Decision
from iris_tui.themes import is_production

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_tui.gate import GatePlan

YES = ("yes", "y")


async def ask_at_gate(
    plan: GatePlan, say: Callable[[str], None], ask: Callable[[str], Awaitable[str | None]]
) -> Decision | None:
    """The decision, None when it was not confirmed, which is said."""
    decision = await _decide(plan, say, ask)
    if decision is None:
        say("not confirmed, nothing was changed")
    return decision


async def _decide(
    plan: GatePlan, say: Callable[[str], None], ask: Callable[[str], Awaitable[str | None]]
) -> Decision | None:
    production = is_production(plan.environment)
    say(f"{plan.verb} {plan.what} on {one_line(plan.cluster)}{', PRODUCTION' if production else ''}")
    if plan.again:
        say(f"  it has changed: {one_line(plan.again)}")
    for target in plan.targets:
        say(f"  {one_line(target.id)}{f'  {one_line(target.note)}' if target.note else ''}")
    for effect in plan.effects:
        say(f"  - {one_line(effect)}")
    if plan.skipped:
        say(f"  left out: {one_line(plan.skipped)}")
    for hint in plan.hints:
        say(f"  {one_line(hint)}")
    if plan.command:
        say(f"  the same: {one_line(plan.command)}")
    if plan.tier == 2 and (await ask("Have you read the list? (yes or no) ") or "").lower() not in YES:
        return None
    reason = await ask(f"Reason{'' if production else ', or Enter for none'}: ")
    if reason is None or (production and not reason):
        return None
    changed = plan.changed() if plan.changed is not None else ""
    if changed:
        say(f"  meanwhile: {one_line(changed)}")
    typed = ""
    if plan.tier >= 3:
        typed = await ask("Type the name of the cluster to go on: ") or ""
        if typed != plan.cluster:
            return None
    elif (await ask(f"{one_line(plan.button or plan.verb)}? (yes or no) ") or "").lower() not in YES:
        return None
    return Decision(reason[:MOST_REASON], False, typed)
