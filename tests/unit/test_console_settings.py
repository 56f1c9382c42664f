"""What an operator may settle for the console: nothing wrong in it keeps the console from opening, and everything wrong is said."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from iris_core.config.console import ConsoleSettings, console_file, load_settings, parse_settings
from iris_core.connect import Target
from iris_core.contracts import UsageFailed
from iris_core.live.filters import JOB_FIELDS, JOB_WORDS
from iris_tui.actions import ACTIONS, BY_ID, Action
from iris_tui.ascii_only import ascii_text
from iris_tui.glyphs import ASCII, UNICODE, choose, chosen
from iris_tui.help import help_lines
from iris_tui.how_to import HOW_TO, how_to
from iris_tui.keys_page import as_json, as_markdown, as_table, main, run_keys
from iris_tui.main import run, session_for
from iris_tui.registry import SCREENS
from iris_tui.saved import load_saved
from iris_tui.themes import ANSI, MONOCHROME, PRODUCTION, THEMES, paint, theme_for
from iris_tui.user_keys import Keymap, lay, together
from tests.unit.test_docs import follow

# --- the file --------------------------------------------------------------------------------------------------------


def test_without_a_file_everything_is_as_it_comes() -> None:
    assert load_settings() == ConsoleSettings()


def test_the_file_is_found_in_the_configuration_or_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = console_file()
    path.parent.mkdir(parents=True)
    path.write_text("theme: light\n")
    assert (load_settings().theme, load_settings().source) == ("light", str(path))
    other = tmp_path / "mine.yaml"
    monkeypatch.setenv("IRIS_CONSOLE_CONFIG", str(other))
    assert "is not there" in load_settings().problems[0]
    other.write_text("theme: contrast\nwrite_minutes: 5\nmouse: false\n")
    found = load_settings()
    assert (found.theme, found.write_minutes, found.mouse, found.problems) == ("contrast", 5, False, ())


def test_what_is_wrong_is_said_with_its_line_and_the_rest_applies() -> None:
    found = parse_settings(
        "theme: contarst\n"
        "colour: red\n"
        "write_minutes: 90000\n"
        "keys:\n"
        "  list.filter: [slash, 3]\n"
        "  list.mark: {a: b}\n"
        "clusters:\n"
        "  lab: {environment: production, thme: x, read_only: true}\n"
        "  other: 7\n"
    )
    assert found.keys["list.filter"].keys == ("slash", "3")
    assert (found.cluster("lab").environment, found.cluster("lab").read_only) == ("production", True)
    assert (found.theme, found.write_minutes) == ("", 15)
    said = "\n".join(found.problems)
    for words in (
        "console.yaml:1: theme: 'contarst' is none of dark",
        "did you mean 'contrast'?",
        "console.yaml:2: unknown key 'colour'",
        "console.yaml:3: write_minutes: '90000' is outside",
        "console.yaml:6: keys.list.mark: expected a list",
        "console.yaml:8: unknown key 'thme' in clusters.lab; did you mean 'theme'?",
        "console.yaml:9: clusters.other: expected a mapping",
    ):
        assert words in said


@pytest.mark.parametrize("text", ["keys: [", "- a\n- b\n", "keys: {a: &x [*x]}", "\tx: 1", "theme: !!python/name:os"])
def test_no_text_is_an_exception(text: str) -> None:
    assert parse_settings(text).problems


def test_a_cluster_is_production_by_its_setting_or_its_name() -> None:
    settings = parse_settings("clusters: {calm: {environment: production}, my-prod: {environment: staging}}")
    assert settings.environment_of("calm") == "production"
    assert settings.environment_of("eu-prod.west") == "production"
    assert settings.environment_of("my-prod") == "staging"
    assert settings.environment_of("products", "local") == "local"


# --- keys ------------------------------------------------------------------------------------------------------------


def keys(text: str) -> Keymap:
    settings = parse_settings("keys:\n" + text)
    assert settings.problems == ()
    return lay(settings.keys)


def test_an_action_has_the_keys_that_are_wished_for() -> None:
    found = keys("  list.filter: [f22, /]\n  app.goto: f20\n  app.suspend: []\n")
    assert found.problems == ()
    assert found.keys(BY_ID["list.filter"]) == ("f22", "slash")
    assert found.shown(BY_ID["list.filter"]) == "F22 /"
    assert found.keys(BY_ID["app.suspend"]) == ()
    assert found.shown(BY_ID["go.jobs"]) == "F20 j", "what is behind a menu is shown behind the menu's key"
    assert found.textual() == {"list.filter": "f22,slash", "app.goto": "f20", "app.suspend": "unbound"}


def test_keys_can_be_swapped() -> None:
    found = keys("  table.up: [j]\n  table.down: [k]\n")
    assert found.problems == ()
    assert (found.keys(BY_ID["table.up"]), found.keys(BY_ID["table.down"])) == (("j",), ("k",))


@pytest.mark.parametrize(
    "text, words",
    [
        ("  table.up: [j]\n", "console.yaml:2: table.up: j already means 'Down' (table.down) at the same time; it keeps ↑ k"),
        ("  app.goto: [slash]\n", "already means 'Filter' (list.filter)"),
        ("  list.sort_right: [ctrl+c]\n", "already means 'Quit, after asking' (app.quit)"),
        ("  lst.filter: [f]\n", "no action 'lst.filter'; did you mean 'list.filter'?"),
        ("  target.cancel: [K]\n", "target.cancel changes the cluster and cannot have a key"),
        ("  list.filter: [control-f]\n", "list.filter: no key 'control-f'; did you mean 'ctrl+f'?"),
        ("  list.filter: ['super+f']\n", "list.filter: no key 'super+f'"),
    ],
)  # fmt: skip
def test_a_wish_that_cannot_be_granted_is_said_and_changes_nothing(text: str, words: str) -> None:
    found = keys(text)
    assert found.changed == {}
    assert len(found.problems) == 1 and words in found.problems[0]


def test_a_key_that_two_widgets_never_have_at_once_is_no_clash() -> None:
    assert keys("  log.wrap: [s]\n  text.wrap: [s]\n").problems == ()
    assert together("list", "jobs") and together("app", "log") and not together("log", "text")


def test_no_keymap_takes_away_the_last_way_out() -> None:
    found = keys("  app.quit: []\n  app.back: []\n")
    assert found.keys(BY_ID["app.quit"]) == ("ctrl+q", "ctrl+c")
    assert found.problems == ()
    assert "^q ^c go on quitting" in found.notes[0]
    assert keys("  app.quit: [f21]\n").keys(BY_ID["app.quit"]) == ("f21", "ctrl+q", "ctrl+c")


# --- the page of keys ------------------------------------------------------------------------------------------------


def test_the_page_of_keys_lists_every_action() -> None:
    page = json.loads(as_json(keys("  list.filter: [f22]\n")))
    assert [row["id"] for row in page["actions"]] == [row["id"] for row in page["actions"] if row["id"] in BY_ID]
    assert len(page["actions"]) == len(ACTIONS)
    assert next(row for row in page["actions"] if row["id"] == "list.filter")["keys"] == ["f22"]
    for text in (as_table(Keymap()), as_markdown(Keymap())):
        assert all(action.id in text and action.title in text for action in ACTIONS)


def test_the_page_in_the_documentation_is_as_the_program_says() -> None:
    assert main(["--check"]) == 0, "run python -m iris_tui.keys_page"


def test_the_settings_are_documented_from_where_they_are_defined() -> None:
    text = as_markdown(Keymap())
    for name in (
        *ConsoleSettings.__slots__,
        *(f"clusters.NAME.{name}" for name in ("environment", "theme", "read_only")),
    ):
        assert (f"| `{name}` |" in text) is (name not in ("source", "problems"))


def test_the_program_prints_the_keys_with_what_is_wrong_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    path = console_file()
    path.parent.mkdir(parents=True)
    path.write_text("keys: {list.filter: [f18], no.such: [a]}\n")
    assert run_keys(["-o", "json"]) == 1
    said = capsys.readouterr()
    assert "f18" in said.out and "no action 'no.such'" in said.err
    path.unlink()
    assert run_keys([]) == 0
    with pytest.raises(UsageFailed, match="did you mean 'json'"):
        run_keys(["--output=jsn"])
    with pytest.raises(UsageFailed, match="takes no 'x'"):
        run_keys(["x"])


# --- colours and characters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, environment, colours, chosen, theme",
    [
        ("", "", "256", "", "iris-dark"),
        ("", "production", "truecolor", "", PRODUCTION.name),
        ("", "production", "standard", "", ANSI.name),
        ("theme: light", "", "256", "", "iris-light"),
        ("theme: contrast", "production", "256", "", "iris-contrast"),
        ("theme: light\nclusters: {lab: {theme: contrast}}", "", "256", "", "iris-contrast"),
        ("theme: light", "", "256", "iris-dark", "iris-dark"),
        ("theme: light", "production", None, "iris-dark", MONOCHROME.name),
    ],
)
def test_the_theme_follows_the_operator_then_the_terminal_then_the_cluster(
    text: str, environment: str, colours: str | None, chosen: str, theme: str
) -> None:
    settings = parse_settings(text)
    assert theme_for(settings, "lab", environment, colours=colours, chosen=chosen) == theme


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_every_theme_tells_the_cursor_a_hit_and_production_from_the_rest(theme: object) -> None:
    look = paint(theme)  # type: ignore[arg-type]
    assert look.base not in (look.cursor, look.idle_cursor, look.hit)
    assert look.cursor != look.idle_cursor and look.hit != look.current_hit
    if theme is MONOCHROME:
        assert all(style.color is None for style in look.tones.values())


def test_every_character_has_one_in_ascii_of_the_same_width() -> None:
    assert ascii_text("▸ /ada/x …  ↑ │█ 日本 é") == "> /ada/x ~  ^ |# ???? ?"


# --- help ------------------------------------------------------------------------------------------------------------


def test_the_help_answers_what_operators_come_for_with_their_own_keys() -> None:
    several = dict(how_to(keys("")))["Follow several logs at once"]
    assert several.startswith("v t, "), "the list of jobs marks no tasks"
    found = how_to(keys("  list.filters: [f18]\n  target.logs: []\n"))
    assert [question for question, _ in found] == [question for question, _ in HOW_TO], "each has an answer"
    assert len(found) == 10
    answers = dict(found)
    assert answers["That filter again"].startswith("F18 chooses")
    assert answers["Save a log"].startswith("x l, ")


def test_the_help_shows_the_fields_of_the_filter_that_is_there() -> None:
    text = "\n".join(
        line for line, _ in help_lines(["jobs", "list"], read_only=False, fields=JOB_FIELDS, words=JOB_WORDS)
    )
    grammar = text.partition("The filter here")[2].partition("How do I")[0]
    assert set(JOB_FIELDS) <= set(grammar.split())
    assert "The filter here" not in "\n".join(line for line, _ in help_lines(["text"], read_only=False))


def test_the_help_shows_every_screen_with_its_letter() -> None:
    text = "\n".join(line for line, _ in help_lines([], read_only=False, keymap=keys("  app.goto: [f19]\n")))
    places = text.partition("Where to go: F19 and a letter")[2].partition("\n\n")[0]
    for screen in SCREENS.values():
        assert f"{screen.letter} {screen.title}" in places if screen.letter else f":{screen.word}" in text


# --- equivalent command lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [action for action in ACTIONS if action.cli], ids=lambda action: action.id)
def test_the_equivalent_command_line_of_an_action_exists(action: Action) -> None:
    words = shlex.split(action.command_line("--cluster=lab").replace("[", "").replace("]", ""))
    follow(words)


# --- the program -----------------------------------------------------------------------------------------------------


def test_the_program_lists_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--keys", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["actions"]
    assert run(["--keys", "-o", "yaml"]) == 2
    assert "no format 'yaml'" in capsys.readouterr().err


def test_a_session_is_as_it_is_settled_and_as_it_was_left() -> None:
    saved = load_saved("lab")
    saved.screen = "jobs"
    saved.write()
    settings = parse_settings("clusters: {lab: {environment: production, read_only: true}}")
    session = session_for(Target("http://127.0.0.1:1", "lab", "local"), settings=settings)
    assert (session.environment, session.read_only, session.saved.screen) == ("production", True, "jobs")
    plain = session_for(Target("http://127.0.0.1:1", "lab", "local"), remember=False)
    assert (plain.environment, plain.read_only, plain.saved.path) == ("local", False, None)


@pytest.mark.parametrize(
    "variables, ascii_only",
    [
        ({"LC_ALL": "C.UTF-8"}, False),
        ({"LC_ALL": "", "LANG": "en_US.UTF-8"}, False),
        ({"LC_ALL": "C"}, True),
        ({"LC_ALL": "", "LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ({"LC_ALL": "", "LANG": "C", "LC_CTYPE": "en_US.UTF-8"}, False),
        ({"TERM": "linux"}, True),
        ({"TERM": "screen-256color"}, False),
    ],
)
def test_ascii_where_the_locale_or_the_terminal_says_so(
    variables: dict[str, str], ascii_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (choose() is ASCII) is ascii_only
    assert chosen("unicode") is UNICODE and chosen("ascii") is ASCII
