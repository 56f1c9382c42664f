"""The action table: everything in it works everywhere it promises to."""

from __future__ import annotations

import shlex
from typing import cast

import click
import pytest

from iris_core.cli.main import root
from iris_core.model.errors import ModelError
from iris_tui.actions import ACTIONS, ALIASES, BY_COMMAND, BY_ID, SCOPES, Action, in_scope
from iris_tui.app import IrisApp
from iris_tui.commands import parse_command, summary
from iris_tui.help import help_lines
from iris_tui.keymap import PRIORITY, bindings, clashes
from iris_tui.pages import PageText
from iris_tui.registry import SCREENS, load
from iris_tui.scope import ActionHost
from iris_tui.widgets.flame_view import FlameView
from iris_tui.widgets.log_lines import LogLines
from iris_tui.widgets.log_pane import LogPane
from iris_tui.widgets.virtual_table import VirtualTable

WIDGETS: tuple[type[ActionHost], ...] = (VirtualTable, FlameView, LogLines, PageText)
SCREEN_CLASSES = cast("list[type[ActionHost]]", [load(name) for name in SCREENS])
ALL_HOSTS: list[type[ActionHost]] = [*WIDGETS, *SCREEN_CLASSES, IrisApp]
HOSTS = {scope: host for host in ALL_HOSTS for scope in host.SCOPES}


HARMLESS = {"profiles.capture", "target.profile", "controller.checkpoint", "controller.capture"}
"""They add something and take nothing away: tier 0 on the server, too."""


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_an_action_is_complete(action: Action) -> None:
    assert action.title[0].isupper()
    assert action.scope in SCOPES
    if action.scope != "go":
        # What does not move in a log is done by its pane.
        hosts = (LogLines, LogPane) if action.scope == "log" else (HOSTS[action.scope],)
        assert any(callable(getattr(host, f"do_{action.name}", None)) for host in hosts)
    assert bool(action.command) is not action.moves, "everything that does not just move is a command"
    assert action.keys or action.command
    assert "{id}" not in action.cli or action.kinds or action.scope == "log"
    if action.cli:
        assert action.cli.startswith("iris-core ")


@pytest.mark.parametrize("action", [action for action in ACTIONS if action.cli], ids=lambda action: action.id)
def test_the_command_line_of_an_action_has_all_that_its_command_requires(action: Action) -> None:
    words = shlex.split(action.command_line("--cluster=lab"))[1:]
    while words[0].startswith("--"):
        del words[0]
    context = click.Context(root(), info_name="iris-core")
    while isinstance(context.command, click.Group):
        command = context.command.get_command(context, words.pop(0))
        assert command is not None, action.cli
        context = click.Context(command, parent=context)
    params = context.command.params
    required = [param for param in params if param.required]
    assert all(set(param.opts) & set(words) for param in required if isinstance(param, click.Option)), action.cli
    assert bool(words) >= any(isinstance(param, click.Argument) for param in required), action.cli
    known = {"--", *(name for param in params for name in (*param.opts, *param.secondary_opts))}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known, action.cli


@pytest.mark.parametrize("action", [action for action in ACTIONS if action.mutates], ids=lambda action: action.id)
def test_what_changes_something_takes_two_deliberate_steps(action: Action) -> None:
    assert action.tier >= 1 or action.id in HARMLESS
    assert action.cli
    assert action.menu
    assert not action.keys, "it is reached through the menu, the palette and by its command only"
    assert action.id not in PRIORITY


def test_ids_commands_and_aliases_are_unique() -> None:
    assert len(BY_ID) == len(ACTIONS)
    assert len(BY_COMMAND) == len([action for action in ACTIONS if action.command])
    assert not set(ALIASES) & set(BY_COMMAND)
    assert set(ALIASES.values()) <= set(BY_COMMAND)


def test_no_key_means_two_things_at_once() -> None:
    for name in SCREENS:
        scopes = load(name).SCOPES  # type: ignore[attr-defined]
        assert clashes("app", "go", "table", *scopes) == []
        menu = [action.menu for action in ACTIONS if action.menu and action.scope in scopes]
        assert len(set(menu)) == len(menu)
    assert clashes("log") == []
    assert clashes("text") == []
    letters = [screen.letter for screen in SCREENS.values() if screen.letter]
    assert len(set(letters)) == len(letters)


def test_no_binding_that_mutates_and_none_with_priority_but_quitting() -> None:
    for scope in SCOPES:
        for binding in bindings(scope):
            assert not isinstance(binding, tuple)
            assert not BY_ID[binding.id or ""].mutates
            assert binding.priority is (binding.id == "app.quit")


def test_every_action_is_in_the_help() -> None:
    text = "\n".join(line for line, _ in help_lines(["jobs", "table", "app"], read_only=False))
    for action in ACTIONS:
        assert action.title in text
        assert f":{action.command}" in text
    assert text.index(SCOPES["jobs"]) < text.index(SCOPES["log"])


def test_help_in_read_only_mode_leaves_out_what_changes_something() -> None:
    text = "\n".join(line for line, _ in help_lines(["jobs"], read_only=True))
    assert "Read-only" in text
    for action in ACTIONS:
        assert (action.title in text) is not action.mutates


def test_every_screen_can_be_loaded_and_is_reached_by_key_word_and_palette() -> None:
    for name, screen in SCREENS.items():
        assert set(load(name).SCOPES) <= set(SCOPES)  # type: ignore[attr-defined]
        assert screen.letter or not screen.lists, "a list is in the go-to menu"
        if screen.word:
            assert BY_COMMAND[screen.word].id == f"go.{name}"


def test_commands_are_parsed_with_their_argument() -> None:
    assert parse_command(" jobs state:running user:ada ") == (BY_ID["go.jobs"], "state:running user:ada")
    assert parse_command("q")[0].id == "app.quit_now"


@pytest.mark.parametrize(
    "text, position, words",
    [
        ("jbos", 0, "did you mean 'jobs'"),
        ("quit now", 5, "takes no argument"),
        ("save-filter", 11, "needs NAME"),
        ("[bold]", 0, "no command"),
    ],
)
def test_a_wrong_command_says_where_and_what(text: str, position: int, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_command(text)
    assert caught.value.position == position
    assert words in str(caught.value)


def test_a_summary_names_keys_command_and_command_line() -> None:
    line = "x c   :cancel [ID…]   iris-core --cluster=lab job cancel ID"
    assert summary(BY_ID["target.cancel"], "--cluster=lab") == line
    assert all(summary(action, "--cluster=lab") for scope in SCOPES for action in in_scope(scope))
