"""Everything an operator can do in the console, in one table.

Key bindings, the palette, `:` commands, the action menu, the key bar, the help page and the equivalent command lines are all
made from it; nothing is bound anywhere else. It is written in one file per scope. An action that mutates has a tier, is offered
only through the action menu, the palette or a command, always passes the gate, and is never bound with priority, because a
priority key would fire under an open gate. Adding one: see CONTRIBUTING, "A new action of the console".
"""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action
from iris_tui.actions.controller import CONTROLLER
from iris_tui.actions.everywhere import EVERYWHERE
from iris_tui.actions.fleet import CAPACITY, ENDPOINTS, USERS, WORKER, WORKERS
from iris_tui.actions.lists import JOBS, LISTS, TREE
from iris_tui.actions.log import LOG
from iris_tui.actions.overview import OVERVIEW
from iris_tui.actions.profiles import FLAME, PROFILES, VIEWER
from iris_tui.actions.query import AUDIT, CHECKPOINTS, QUERY
from iris_tui.actions.rollout import ROLLOUT
from iris_tui.actions.scheduler import EXPLAIN
from iris_tui.actions.table import TABLE
from iris_tui.actions.target import TARGET
from iris_tui.actions.tasks import JOB, TABS, TASK, TASKS
from iris_tui.actions.text import TEXT
from iris_tui.actions.upkeep import UPKEEP
from iris_tui.registry import SCREENS

__all__ = ["ACTIONS", "ALIASES", "BY_COMMAND", "BY_ID", "SCOPES", "Action", "in_scope"]

GO: Final = tuple(
    Action(
        id=f"go.{screen.name}",
        title=f"Show {screen.title[0].lower()}{screen.title[1:]}",
        command=screen.word,
        arguments=screen.argument,
        cli=screen.cli,
    )
    for screen in SCREENS.values()
    if screen.word
)
"""Going to each screen; in the go-to menu each has its letter."""

ACTIONS: Final[tuple[Action, ...]] = (
    *EVERYWHERE,
    *UPKEEP,
    *GO,
    *LISTS,
    *TREE,
    *TARGET,
    *JOBS,
    *CONTROLLER,
    *OVERVIEW,
    *PROFILES,
    *VIEWER,
    *FLAME,
    *TASKS,
    *JOB,
    *TASK,
    *TABS,
    *EXPLAIN,
    *CAPACITY,
    *WORKERS,
    *WORKER,
    *USERS,
    *ENDPOINTS,
    *QUERY,
    *AUDIT,
    *CHECKPOINTS,
    *ROLLOUT,
    *TABLE,
    *LOG,
    *TEXT,
)

SCOPES: Final[dict[str, str]] = {
    "app": "Everywhere",
    "go": "Screens",
    "list": "Lists",
    "tree": "Lists with rows below rows",
    "target": "Jobs, tasks and attempts",
    "jobs": "The tree of jobs",
    "controller": "The controller",
    "overview": "Overview and controller",
    "profiles": "Profiles",
    "viewer": "A profile",
    "flame": "Flame graphs",
    "tasks": "All tasks",
    "job": "The page of a job",
    "task": "The page of a task",
    "tabs": "Pages in parts",
    "explain": "Why it waits",
    "capacity": "Scale groups, slices and machines",
    "workers": "Workers",
    "worker": "The page of a worker",
    "users": "Users and budgets",
    "endpoints": "Endpoints",
    "query": "Statements and their answers",
    "audit": "The audit log",
    "checkpoints": "Checkpoints",
    "rollout": "Rollouts",
    "table": "Moving in a table",
    "log": "Logs",
    "text": "Text pages",
}
"""Scopes in the order of the help page, with their headings."""

BY_ID: Final[dict[str, Action]] = {action.id: action for action in ACTIONS}
BY_COMMAND: Final[dict[str, Action]] = {action.command: action for action in ACTIONS if action.command}
ALIASES: Final[dict[str, str]] = {
    "q": "quit",
    "q!": "quit",
    "h": "help",
    "stop": "cancel",
    "kill": "cancel",
    **{alias: screen.word for screen in SCREENS.values() if screen.word for alias in screen.aliases},
}
"""Other words for the same command."""

_IN_SCOPE: Final[dict[str, list[Action]]] = {
    scope: [action for action in ACTIONS if action.scope == scope] for scope in SCOPES
}


def in_scope(scope: str) -> list[Action]:
    """The actions of one scope, in the order of the table."""
    return _IN_SCOPE.get(scope, [])
