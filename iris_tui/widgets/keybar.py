"""The bottom line: the few keys that matter for what has the focus. The rest is behind `?`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.live.wording import Tone
from iris_tui.actions import in_scope
from iris_tui.drawing import Run, width_of
from iris_tui.keymap import shown
from iris_tui.widgets.line import Line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.style import Style

    from iris_tui.actions import Action
    from iris_tui.user_keys import Keymap

MOST = 8

_SHORT = {
    "app.help": "Help",
    "app.palette": "Search",
    "app.goto": "Go to",
    "tree.open": "Open",
    "target.logs": "Logs",
    "target.describe": "Describe",
    "list.filter": "Filter",
    "list.menu": "Actions",
    "log.follow": "Follow",
    "log.filter": "Filter",
    "log.find": "Find",
    "log.wrap": "Wrap",
    "log.times": "Times",
    "log.close": "Close",
    "explain.what_if": "What if",
    "explain.other": "Other side",
    "explain.scheduler": "In the queue",
    "capacity.machine_log": "Machine log",
    "capacity.describe": "Describe",
    "workers.open": "Open",
    "workers.machine_log": "Machine log",
    "workers.backends": "Backends",
    "worker.open": "Open",
    "worker.process_log": "Worker's log",
    "users.open": "Jobs",
    "endpoints.open": "Task",
    "endpoints.show": "Details",
    "tasks.open": "Open",
    "job.open": "Open",
    "task.open": "Open",
    "tabs.next": "Next part",
    "overview.open": "More",
    "controller.menu": "Actions",
    "controller.logs": "Log",
    "controller.profiles": "Profiles",
    "profiles.open": "Open",
    "viewer.open": "In the graph",
    "viewer.next_view": "Next view",
    "viewer.save": "Save",
    "flame.zoom": "Zoom in",
    "flame.out": "Out",
    "flame.find": "Search",
    "text.close": "Close",
    "text.find": "Find",
    "text.wrap": "Wrap",
}


class KeyBar(Line):
    """Set the actions with `update_from`."""

    DEFAULT_CSS = """
    KeyBar { dock: bottom; }
    """

    _shows: tuple[tuple[str, ...], int, Keymap, frozenset[str]] | None = None
    """What the bar was made from last: ten times a second it would be made anew for nothing."""

    def update_from(self, scopes: tuple[str, ...], keymap: Keymap, without: frozenset[str] = frozenset()) -> None:
        """Show the actions of the scopes that are active, what has the focus first, each by its place in the key bar; those that would do
        nothing now (`without`, by id) are left out."""
        wanted = (scopes, self.size.width, keymap, without)
        # A keymap is compared as it is made: once, when the console opens.
        if self._shows is not None and self._shows[2] is keymap and self._shows == wanted:
            return
        self._make([[action for action in in_scope(scope) if action.id not in without] for scope in scopes], keymap)
        self._shows = wanted

    def _make(self, scopes: list[list[Action]], keymap: Keymap) -> None:
        chosen: list[Action] = []
        for actions in scopes:
            chosen += sorted(
                (action for action in actions if action.footer and keymap.keys(action)), key=lambda a: a.footer
            )
        taken: set[str] = set()
        kept: list[Action] = []
        for action in chosen:
            key = keymap.keys(action)[0]
            if key not in taken:
                taken.add(key)
                kept.append(action)
        # Search and help come last and are never pushed out.
        general = [action for action in kept if action.scope == "app"]
        chosen = [action for action in kept if action.scope != "app"][: MOST - len(general)]

        def words(actions: list[Action]) -> list[tuple[str, str]]:
            return [(shown(keymap.keys(action)[0]), _SHORT.get(action.id, action.title)) for action in actions]

        self.show_keys(words(chosen), words(general))

    def show_keys(self, keys: Iterable[tuple[str, str]], always: Iterable[tuple[str, str]] = ()) -> None:
        """Show these keys and what each does, as many whole ones as there is room for beside those that are shown always."""
        self._shows = None
        last = [run for key, does in always for run in _entry(key, does)]
        room = (self.size.width or 10_000) + 1  # the blank after the last one is not drawn
        runs: list[Run] = []
        for key, does in keys:
            if width_of([*runs, *_entry(key, does), *last]) > room:
                break
            runs += _entry(key, does)
        runs += last
        if runs and width_of(runs) > self.size.width:
            runs[-1] = Run(runs[-1].text.rstrip(), runs[-1].tone)
        self.show(runs)

    def over(self) -> Style:
        return self.paint.band


def _entry(key: str, does: str) -> list[Run]:
    return [Run(f" {key} ", Tone.WARN), Run(f"{does} ", Tone.DIM)]
