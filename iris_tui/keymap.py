"""Keys: from the action table to Textual's bindings and to what a person reads.

A binding's action is always `act('<id>')`, answered by the widget or screen whose scope the action has. No binding that
mutates has priority; in fact none of them has a key at all outside the action menu.
"""

from __future__ import annotations

from typing import Final

from textual.binding import Binding, BindingType

from iris_tui.actions import ACTIONS, in_scope

PRIORITY: Final = frozenset({"app.quit"})
"""Answer also while a text is typed or a dialog is open. Must not mutate."""

_SHOWN: Final = {
    "question_mark": "?",
    "colon": ":",
    "slash": "/",
    "ampersand": "&",
    "space": "Space",
    "enter": "Enter",
    "minus": "-",
    "equals_sign": "=",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "escape": "Esc",
    "tab": "Tab",
    "shift+tab": "Shift+Tab",
    "backspace": "Backspace",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
}


def bindings(*scopes: str) -> list[BindingType]:
    """Textual's bindings for the widget or screen that answers these scopes."""
    return [
        Binding(
            ",".join(with_escape(action.keys)),
            f"act('{action.id}')",
            action.title,
            show=False,
            priority=action.id in PRIORITY,
            id=action.id,
        )
        for scope in scopes
        for action in in_scope(scope)
        if action.keys and not action.mutates
    ]


def with_escape(keys: tuple[str, ...]) -> tuple[str, ...]:
    """An Escape that reaches the terminal together with the next key arrives as `^`, and means the same."""
    return (*keys, "circumflex_accent") if "escape" in keys else keys


ESCAPE: Final = ",".join(with_escape(("escape",)))
"""What leaves a dialog."""


def shown(key: str) -> str:
    """A key as a person reads it: `ctrl+p` → `^p`, `slash` → `/`."""
    if key.startswith("ctrl+"):
        return "^" + key.removeprefix("ctrl+")
    if len(key) > 1 and key[0] == "f" and key[1:].isdigit():
        return key.upper()
    return _SHOWN.get(key, key)


def shown_keys(keys: tuple[str, ...]) -> str:
    """All keys of an action as a person reads them."""
    return " ".join(shown(key) for key in keys)


def clashes(*scopes: str) -> list[tuple[str, str, str]]:
    """Keys that two actions claim where all these scopes are active at once: (key, first id, second id)."""
    owners: dict[str, str] = {}
    found: list[tuple[str, str, str]] = []
    for action in ACTIONS:
        if action.scope not in scopes:
            continue
        for key in action.keys:
            if key in owners:
                found.append((key, owners[key], action.id))
            owners.setdefault(key, action.id)
    return found
