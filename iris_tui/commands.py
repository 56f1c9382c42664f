"""`:` commands and the palette: both are the action table, asked for by word.

Nothing here knows what an action does; it finds who answers it and passes on what was typed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.suggester import Suggester

from iris_core.model.errors import ModelError, did_you_mean, shown
from iris_core.model.text import one_line
from iris_tui.actions import ACTIONS, ALIASES, BY_COMMAND, Action
from iris_tui.user_keys import Keymap

if TYPE_CHECKING:
    from iris_tui.app import IrisApp

MOST_ROWS = 20
MOST_MEANT = 4
"""Commands that are proposed in the place of one that does not exist."""


def parse_command(text: str) -> tuple[Action, str]:
    """The action that a command line names, and what follows its word.

    Raises:
        ModelError: no such command; position and a suggestion.
    """
    stripped = text.strip()
    word, _, argument = stripped.partition(" ")
    action = BY_COMMAND.get(ALIASES.get(word, word))
    if action is None:
        raise ModelError(f"no command {shown(word)}", field="command", position=0, hint=_meant(word))
    argument = argument.strip()
    if argument and not action.arguments:
        raise ModelError(f"{word} takes no argument", field="command", position=text.find(argument))
    if action.needs_argument and not argument:
        raise ModelError(f"{word} needs {action.arguments}", field="command", position=len(text))
    return action, argument


def _meant(word: str) -> str:
    """Which commands somebody may have had in mind: those that begin so, else have it in them, else are spelt alike."""
    words = sorted([*BY_COMMAND, *ALIASES])
    begin = [known for known in words if known.startswith(word)]
    found = begin or [known for known in words if len(word) > 2 and word in known]
    if not found:
        return did_you_mean(word, words) or "? lists all keys and commands"
    more = f" and {len(found) - MOST_MEANT} more" if len(found) > MOST_MEANT else ""
    return f"did you mean {', '.join(found[:MOST_MEANT])}{more}?"


class CommandSuggester(Suggester):
    """Completes the word of a command."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._words = sorted([*BY_COMMAND, *ALIASES])

    async def get_suggestion(self, value: str) -> str | None:
        if not value or " " in value:
            return None
        return next((word for word in self._words if word.startswith(value)), None)


def summary(action: Action, selector: str, keymap: Keymap = Keymap()) -> str:  # noqa: B008 (frozen)
    """Keys, command and equivalent command line of an action, in one line."""
    keys = keymap.shown(action)
    parts = [keys] if keys else []
    if action.command:
        parts.append(f":{action.command}{' ' + action.arguments if action.arguments else ''}")
    if action.cli:
        parts.append(action.command_line(selector))
    return "   ".join(parts)


class ActionProvider(Provider):
    """The actions that can be done now."""

    @property
    def _console(self) -> IrisApp:
        from iris_tui.app import IrisApp

        app = self.app
        assert isinstance(app, IrisApp)
        return app

    def _available(self) -> list[Action]:
        console = self._console
        return [
            action
            for action in ACTIONS
            if not action.moves
            and action.id != "app.palette"
            and (action.anywhere or console.host_of(action.scope) is not None)
            and not console.refusal(action)
        ]

    def _do(self, action: Action) -> Any:
        console = self._console
        if action.needs_argument:
            # What it needs is typed where its command is.
            return lambda: console.ask_command(f"{action.command} ")
        return lambda: console.do_anywhere(action)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in self._available():
            text = f"{action.title} :{action.command}"
            score = matcher.match(text)
            if score > 0:
                yield Hit(
                    score, matcher.highlight(text), self._do(action), text=text,
                    help=self._summary(action),
                )  # fmt: skip

    def _summary(self, action: Action) -> str:
        """Literal, where markup is read."""
        return summary(action, self._console.session.selector, self._console.keymap).replace("[", "\\[")

    async def discover(self) -> Hits:
        for action in self._available()[:10]:
            yield DiscoveryHit(
                Content(action.title), self._do(action), text=action.title,
                help=self._summary(action),
            )  # fmt: skip


class RowProvider(ActionProvider):
    """The jobs, tasks and attempts that are known: choosing one goes to it."""

    async def search(self, query: str) -> Hits:
        console = self._console
        wanted = query.lower()
        found = 0
        for row in console.session.tree.store.rows.values():
            if row.kind == "note" or wanted not in row.id.lower():
                continue
            found += 1
            if found > MOST_ROWS:
                return
            text = one_line(row.id)
            yield Hit(0.5, Content(text), self._go(row.id), text=text, help=f"go to this {row.kind}")

    async def discover(self) -> Hits:
        return
        yield

    def _go(self, name: str) -> Any:
        console = self._console
        return lambda: console.show_row(name)
