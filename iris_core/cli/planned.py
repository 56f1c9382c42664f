"""`--dry-run` of a change that the server can plan: what it would do, in the server's words and counts (DESIGN §5.18).

The effects are data and go to standard output where a command has nothing else to print; beside a list of ids they are notes. Must never
carry anything out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.cli import output
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

    from iris_core.cli.session import Session


def preview(session: Session, method: str, requests: Sequence[Message]) -> int:
    """Prints the plan of a change; returns the exit code. Raises IrisError: the change would be refused."""
    from iris_core.client import plans

    plan = plans.make_now(session.client, method, requests)
    for name, why in plan.skipped:
        session.diagnostics.note(f"{one_line(name)}: {one_line(why)}")
    for hint in plan.hints:
        session.diagnostics.note(one_line(hint))
    if plan.unchecked:
        session.diagnostics.warn(plan.unchecked)
    output.write("".join(f"{one_line(effect)}\n" for effect in (*plan.effects, *plan.lasting)))
    session.diagnostics.note("nothing was changed" if plan.requests else "there is nothing to do")
    return 0


def effects(session: Session, method: str, requests: Sequence[Message]) -> None:
    """Says the effects of a change beside what a command prints itself; nothing where the server cannot say."""
    from iris_core.client import plans
    from iris_core.contracts import RpcFailed

    try:
        plan = plans.make_now(session.client, method, requests)
    except RpcFailed:
        # The command itself has said what is wrong with which target.
        return
    for effect in plan.effects:
        session.diagnostics.note(one_line(effect))
