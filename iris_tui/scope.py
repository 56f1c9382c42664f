"""Where actions are answered: a widget, screen or app with scopes and a `do_<name>` for each action of them.

Every binding calls `action_act`, and `:` commands, menu and palette call `perform`: so an action behaves the same however it
was asked for, and one that mutates passes the same checks everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from iris_core.model.errors import ModelError
from iris_tui.actions import BY_ID, Action

if TYPE_CHECKING:
    from textual.dom import DOMNode


class Guard(Protocol):
    """The app, as far as actions ask it."""

    def refusal(self, action: Action) -> str:
        """Why this action may not be done now, "" if it may."""
        ...

    def say(self, text: str, *, severity: str = "information") -> None: ...

    def noted(self, action: Action) -> None:
        """This action was asked for."""
        ...


class ActionHost:
    """Mix into an App, Screen or Widget; answers the actions of its `SCOPES`, the innermost first."""

    SCOPES: ClassVar[tuple[str, ...]] = ()

    def action_act(self, action_id: str) -> None:
        """What every key binding calls."""
        self.perform_or_say(BY_ID[action_id])

    def perform_or_say(self, action: Action) -> None:
        """Do an action as a key asks for it: what is wrong becomes a toast."""
        try:
            self.perform(action, "")
        except ModelError as error:
            cast("Guard", cast("DOMNode", self).app).say(str(error), severity="warning")

    def perform(self, action: Action, argument: str) -> None:
        """Do an action of this scope, with what was typed after its word. Says why if it may not be done now.

        Raises ModelError: what was typed is wrong, or there is nothing it could be done to.
        """
        guard = cast("Guard", cast("DOMNode", self).app)
        guard.noted(action)
        refused = guard.refusal(action)
        if refused:
            guard.say(refused, severity="warning")
            return
        handler = self.handler(action)
        if action.arguments:
            handler(argument)
        else:
            handler()

    def handler(self, action: Action) -> Callable[..., Any]:
        """What does it."""
        handler: Callable[..., Any] = getattr(self, f"do_{action.name}")
        return handler
