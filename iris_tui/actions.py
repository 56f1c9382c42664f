"""Everything an operator can do in the console, in one place.

Key bindings, the palette, `:` commands, the action menu, the key bar, the help page and the equivalent command lines are all
made from this table; nothing is bound anywhere else. An action that mutates has a tier, is offered only through the action
menu, the palette or a command, always passes the gate, and is never bound with priority, because a priority key would fire
under an open gate. Adding one: see CONTRIBUTING, "A new action of the console".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to do.

    Attributes:
        id: `scope.name`: the scope is where it works ("app", "jobs", "table", "log", "text"), the name its handler `do_<name>` there.
        title: What it does, as an imperative.
        keys: Textual key names; none = reachable by menu, palette and command only.
        tier: 0 harmless or reversible, 1 one workload, 2 many, 3 the cluster (console §2.3d).
        mutates: Whether it changes anything on the cluster; then read-only mode offers it nowhere.
        command: Word after `:`; none for moves.
        arguments: What may follow the word.
        cli: Equivalent command line; `{at}` is the cluster selector, `{id}` the row's id. "" = it concerns the screen alone.
        menu: Its key in the action menu of a row.
        footer: Place in the key bar, from 1; 0 = not there.
        moves: It moves the cursor or the view: in the help, not in palette or commands.
        kinds: Kinds of row it works on; empty = no row needed.
    """

    id: str
    title: str
    keys: tuple[str, ...] = ()
    tier: int = 0
    mutates: bool = False
    command: str = ""
    arguments: str = ""
    cli: str = ""
    menu: str = ""
    footer: int = 0
    moves: bool = False
    kinds: tuple[str, ...] = ()

    @property
    def scope(self) -> str:
        """Where it works."""
        return self.id.partition(".")[0]

    @property
    def name(self) -> str:
        """Its handler is `do_<name>`."""
        return self.id.partition(".")[2]


def _sort(column: str, title: str, key: str) -> Action:
    return Action(id=f"jobs.sort_{column}", title=f"Sort by {title}", keys=(key,), command=f"sort-{column}")


ACTIONS: Final[tuple[Action, ...]] = (
    # --- the console itself
    Action(id="app.help", title="Show help", keys=("question_mark", "f1"), command="help", footer=90),
    Action(id="app.palette", title="Search all actions and jobs", keys=("ctrl+p",), command="palette", footer=80),
    Action(id="app.command", title="Type a command", keys=("colon",), command="command"),
    Action(id="app.refresh", title="Try the connection again now", keys=("ctrl+r",), command="refresh"),
    Action(id="app.cluster", title="Go to another cluster", command="cluster", arguments="NAME", cli="iris-core cluster list"),
    Action(id="app.theme", title="Change colours", command="theme", arguments="[NAME]"),
    Action(id="app.suspend", title="Suspend the console (fg resumes it)", keys=("ctrl+z",), command="suspend"),
    Action(id="app.quit", title="Quit, after asking", keys=("ctrl+q", "ctrl+c"), command="ask-quit"),
    Action(id="app.quit_now", title="Quit", command="quit", arguments=""),
    Action(id="app.back", title="Go back; at the root: quit, after asking", keys=("q",), command="back"),
    # --- jobs
    Action(
        id="jobs.show", title="Show jobs", command="jobs", arguments="[FILTER]", cli="iris-core {at} job list",
    ),
    Action(
        id="jobs.open", title="Open or close the row: tasks, child jobs, attempts", keys=("enter",), command="open",
        cli="iris-core {at} task list {id}", footer=10, kinds=("job", "task", "attempt", "note"),
    ),
    Action(id="jobs.into", title="Open the row, or go to the first one below it", keys=("right",), command="into"),
    Action(id="jobs.close", title="Close the row, or go to the one above it", keys=("left",), command="close"),
    Action(
        id="jobs.logs", title="Show logs", keys=("l",), command="logs", arguments="[ID]", cli="iris-core {at} {noun} logs {id} --follow",
        menu="l", footer=20, kinds=("job", "task", "attempt"),
    ),
    Action(
        id="jobs.describe", title="Describe", keys=("d",), command="describe", arguments="[ID]", cli="iris-core {at} {noun} describe {id}",
        menu="d", footer=30, kinds=("job", "task", "attempt"),
    ),
    Action(
        id="jobs.explain", title="Explain why it waits", keys=("w",), command="explain", arguments="[ID]",
        cli="iris-core {at} {noun} explain {id}", menu="w", kinds=("job", "task"),
    ),
    Action(
        id="jobs.spec", title="Show the submitted request", keys=("y",), command="spec", arguments="[ID]",
        cli="iris-core {at} rpc controller get-job-status --job-id {job}", menu="y", kinds=("job", "task", "attempt"),
    ),
    Action(
        id="jobs.filter", title="Filter", keys=("slash",), command="filter", arguments="[FILTER]", cli="iris-core {at} job list",
        footer=40,
    ),
    Action(id="jobs.unfilter", title="Clear the filter", keys=("escape",), command="unfilter"),
    Action(id="jobs.mark", title="Mark or unmark the row", keys=("space",), command="mark", kinds=("job",)),
    Action(id="jobs.unmark", title="Unmark all", keys=("u",), command="unmark"),
    Action(id="jobs.reorder", title="Sort again now, also while rows are marked", keys=("r",), command="reorder"),
    Action(id="jobs.menu", title="Actions for the row or the marked rows", keys=("x",), command="actions", footer=50),
    _sort("name", "name", "N"),
    _sort("state", "state", "S"),
    _sort("tasks", "tasks done", "T"),
    _sort("age", "age", "A"),
    _sort("time", "run time", "D"),
    _sort("failures", "failures", "F"),
    _sort("preemptions", "preemptions", "P"),
    _sort("reason", "reason", "R"),
    Action(
        id="jobs.cancel", title="Cancel", tier=1, mutates=True, command="cancel", arguments="[ID…]",
        cli="iris-core {at} job cancel {id}", menu="c", kinds=("job",),
    ),
    Action(
        id="jobs.complete", title="Complete: end it as succeeded", tier=1, mutates=True, command="complete", arguments="[ID…]",
        cli="iris-core {at} job complete {id}", menu="o", kinds=("job",),
    ),
    Action(
        id="jobs.preempt", title="Preempt: end the attempt, the task is tried again", tier=1, mutates=True, command="preempt",
        arguments="[ID…]", cli="iris-core {at} {noun} preempt {id}", menu="p", kinds=("task", "attempt"),
    ),
    Action(
        id="jobs.fail", title="Fail: end the task, it is not tried again", tier=1, mutates=True, command="fail",
        arguments="[ID…]", cli="iris-core {at} {noun} fail {id}", menu="f", kinds=("task", "attempt"),
    ),
    # --- moving in tables
    Action(id="table.up", title="Up", keys=("up", "k"), moves=True),
    Action(id="table.down", title="Down", keys=("down", "j"), moves=True),
    Action(id="table.page_up", title="Page up", keys=("pageup", "ctrl+u"), moves=True),
    Action(id="table.page_down", title="Page down", keys=("pagedown", "ctrl+d"), moves=True),
    Action(id="table.top", title="First row", keys=("home", "g"), moves=True),
    Action(id="table.bottom", title="Last row", keys=("end", "G"), moves=True),
    # --- logs
    Action(id="log.follow", title="Follow: jump to the end and stay there", keys=("F",), command="follow", footer=10),
    Action(
        id="log.filter", title="Filter all lines by a regular expression, on the server", keys=("ampersand",), command="grep",
        arguments="[REGEX]", cli="iris-core {at} {noun} logs {id} --regex REGEX", footer=20,
    ),
    Action(id="log.find", title="Find in the loaded lines", keys=("slash",), command="find", arguments="[TEXT]", footer=30),
    Action(id="log.next", title="Next hit", keys=("n",), command="find-next"),
    Action(id="log.previous", title="Previous hit", keys=("N",), command="find-previous"),
    Action(id="log.wrap", title="Wrap long lines", keys=("w",), command="wrap", footer=40),
    Action(id="log.times", title="Timestamps: off, UTC, local", keys=("t",), command="timestamps"),
    Action(id="log.full", title="Logs alone, or below the table", keys=("f",), command="fullscreen"),
    Action(id="log.close", title="Close the logs", keys=("escape", "q"), command="close-logs", footer=50),
    Action(id="log.up", title="Line up", keys=("up", "k"), moves=True),
    Action(id="log.down", title="Line down", keys=("down", "j"), moves=True),
    Action(id="log.page_up", title="Page up", keys=("pageup", "b", "ctrl+u"), moves=True),
    Action(id="log.page_down", title="Page down", keys=("pagedown", "space", "ctrl+d"), moves=True),
    Action(id="log.top", title="First line the store still holds", keys=("home", "g"), moves=True),
    Action(id="log.bottom", title="Last line", keys=("end", "G"), moves=True),
    Action(id="log.left", title="Scroll left", keys=("left", "h"), moves=True),
    Action(id="log.right", title="Scroll right", keys=("right",), moves=True),
    # --- text pages: describe, spec, help, results
    Action(id="text.close", title="Close the page", keys=("escape", "q"), command="close-page", footer=30),
    Action(id="text.find", title="Find", keys=("slash",), command="find-text", arguments="[TEXT]", footer=10),
    Action(id="text.next", title="Next hit", keys=("n",), command="find-text-next"),
    Action(id="text.previous", title="Previous hit", keys=("N",), command="find-text-previous"),
    Action(id="text.wrap", title="Wrap long lines", keys=("w",), command="wrap-text", footer=20),
    Action(id="text.up", title="Line up", keys=("up", "k"), moves=True),
    Action(id="text.down", title="Line down", keys=("down", "j"), moves=True),
    Action(id="text.page_up", title="Page up", keys=("pageup", "b", "ctrl+u"), moves=True),
    Action(id="text.page_down", title="Page down", keys=("pagedown", "space", "ctrl+d"), moves=True),
    Action(id="text.top", title="First line", keys=("home", "g"), moves=True),
    Action(id="text.bottom", title="Last line", keys=("end", "G"), moves=True),
    Action(id="text.left", title="Scroll left", keys=("left", "h"), moves=True),
    Action(id="text.right", title="Scroll right", keys=("right",), moves=True),
)  # fmt: skip

BY_ID: Final[dict[str, Action]] = {action.id: action for action in ACTIONS}
BY_COMMAND: Final[dict[str, Action]] = {action.command: action for action in ACTIONS if action.command}
ALIASES: Final[dict[str, str]] = {"q": "quit", "q!": "quit", "h": "help", "stop": "cancel", "kill": "cancel"}
"""Other words for the same command."""

SCOPES: Final[dict[str, str]] = {
    "app": "Everywhere",
    "jobs": "Jobs",
    "table": "Moving in a table",
    "log": "Logs",
    "text": "Text pages",
}
"""Scopes in the order of the help page, with their headings."""


def in_scope(scope: str) -> list[Action]:
    """The actions of one scope, in the order of the table."""
    return [action for action in ACTIONS if action.scope == scope]
