"""The operator's own keys, laid over the action table: checked once at start, and asked by everything that shows a key.

A wish that cannot be granted leaves its action the keys it had, and is said. No wish can give a key to what changes the cluster,
and none can take away the last way out: Ctrl-C and Ctrl-Q answer always (console §1.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_core.model.errors import did_you_mean, shown
from iris_tui.actions import ACTIONS, BY_ID, Action
from iris_tui.keymap import shown_keys, with_escape
from iris_tui.registry import SCREENS

if TYPE_CHECKING:
    from iris_core.config.console import KeyWish

ALWAYS: Final[dict[str, tuple[str, ...]]] = {"app.quit": ("ctrl+q", "ctrl+c")}
"""Keys that cannot be taken away."""
UNBOUND: Final = "unbound"
"""A key that no terminal sends."""
_SHARED: Final = frozenset({"table", "list", "target", "tree", "tabs"})
"""Scopes that are active beside those of a screen."""
_OWN_MOVES: Final = frozenset(action.scope for action in ACTIONS if action.moves) - _SHARED
"""Scopes of widgets that have the keys for themselves while they have the focus."""


@dataclass(frozen=True, slots=True)
class Keymap:
    """The keys of every action.

    Attributes:
        changed: Keys of the actions that have others than the table says; () = none.
        problems: Wishes that could not be granted, one line each.
        notes: What is worth knowing about those that were.
    """

    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def keys(self, action: Action) -> tuple[str, ...]:
        """The keys of an action, in Textual's names."""
        return self.changed.get(action.id, action.keys)

    def shown(self, action: Action) -> str:
        """All keys of an action as a person reads them; for one that is reached through a menu only, both steps."""
        keys = self.keys(action)
        if keys:
            return shown_keys(keys)
        if action.menu:
            return f"{self.first('list.menu')} {action.menu}"
        letter = SCREENS[action.name].letter if action.scope == "go" else ""
        return f"{self.first('app.goto')} {letter}" if letter else ""

    def first(self, action_id: str) -> str:
        """The key to name in a sentence; its command if it has none."""
        action = BY_ID[action_id]
        keys = self.keys(action)
        return shown_keys(keys[:1]) if keys else f":{action.command}"

    def textual(self) -> dict[str, str]:
        """The same for `App.set_keymap`."""
        return {name: ",".join(with_escape(keys)) if keys else UNBOUND for name, keys in self.changed.items()}


def together(first: str, second: str) -> bool:
    """Whether two scopes can be active at once."""
    if first == second or "app" in (first, second):
        return True
    if first in _OWN_MOVES or second in _OWN_MOVES:
        return False
    return first in _SHARED or second in _SHARED


def lay(wishes: Mapping[str, KeyWish]) -> Keymap:
    """The keymap that these wishes make; what cannot be granted is in `problems`."""
    problems: list[str] = []
    notes: list[str] = []
    changed: dict[str, tuple[str, ...]] = {}
    for name, wish in wishes.items():
        action = BY_ID.get(name)
        where = f"{wish.where}: " if wish.where else ""
        if action is None:
            hint = did_you_mean(name, BY_ID) or "`iris --keys` lists all"
            problems.append(f"{where}no action {shown(name)}; {hint}")
        elif action.mutates:
            if wish.keys:
                problems.append(
                    f"{where}{name} changes the cluster and cannot have a key: it is in the menu of a row, "
                    f"and a command (:{action.command})"
                )
        else:
            keys, wrong = _normal(wish.keys)
            problems += [f"{where}{name}: no key {shown(key)}{hint}" for key, hint in wrong]
            if keys or not wrong:
                changed[name] = tuple(dict.fromkeys((*keys, *ALWAYS.get(name, ()))))
                if name in ALWAYS and not keys:
                    kept = shown_keys(ALWAYS[name])
                    notes.append(f"{where}{name}: {kept} go on quitting, whatever is unbound")
    problems += _without_clashes(changed, wishes)
    different = {name: keys for name, keys in changed.items() if keys != BY_ID[name].keys}
    return Keymap(different, tuple(problems), tuple(notes))


def _without_clashes(changed: dict[str, tuple[str, ...]], wishes: Mapping[str, KeyWish]) -> list[str]:
    """Give the actions whose wishes clash the keys that they had, and say so."""
    problems: list[str] = []
    while True:
        found = _clash(changed)
        if found is None:
            return problems
        key, loser, other = found
        del changed[loser.id]
        where = wishes[loser.id].where
        problems.append(
            f"{where + ': ' if where else ''}{loser.id}: {shown_keys((key,))} already means {other.title!r} ({other.id}) "
            f"at the same time; it keeps {shown_keys(loser.keys) or 'no key'}"
        )


def _clash(changed: dict[str, tuple[str, ...]]) -> tuple[str, Action, Action] | None:
    for name in reversed(list(changed)):
        action = BY_ID[name]
        for other in ACTIONS:
            if other.id == name or not together(action.scope, other.scope):
                continue
            for key in changed[name]:
                if key in changed.get(other.id, other.keys) and not (key in action.keys and key in other.keys):
                    return key, action, other
    return None


def _normal(keys: tuple[str, ...]) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """The keys in Textual's names, and those that no terminal sends, each with a hint."""
    from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

    names = {key.value for key in Keys} | set(KEY_NAME_REPLACEMENTS.values())
    known: list[str] = []
    wrong: list[tuple[str, str]] = []
    for key in keys:
        *modifiers, base = key.strip().split("+") if len(key.strip()) > 1 else [key]
        if len(base) == 1 and not modifiers:
            base = _name_of(base)
        name = "+".join((*(modifier.lower() for modifier in modifiers), base))
        fits = name in names or key_to_character(base) is not None or len(base) == 1
        if fits and base and all(modifier in ("ctrl", "shift", "alt") for modifier in modifiers):
            known.append(name)
        else:
            near = did_you_mean(key, names)
            wrong.append((key, f"; {near}" if near else "; write it as f, slash, ctrl+f or f5"))
    return tuple(known), wrong


def _name_of(character: str) -> str:
    from textual.keys import _character_to_key

    return _character_to_key(character)
