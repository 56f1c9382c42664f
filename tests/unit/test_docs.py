"""What the documentation says is there, is there: commands, flags, make targets and links."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

if TYPE_CHECKING:
    import click

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")})
PROGRAMS = ("iris-core", "iris")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands_in(text: str) -> list[list[str]]:
    """Every `iris-core …` line of an indented or fenced block, and every one between back-ticks, as words."""
    lines = [match[1] for match in re.finditer(r"^(?: {4}|\$ )(iris.*)$", text, flags=re.M)]
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, flags=re.M | re.S):
        lines += [line.removeprefix("$ ") for line in block.splitlines()]
    lines += re.findall(r"`(iris(?:-core)? [^`]+)`", text)
    found = []
    for line in lines:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue  # a quote that belongs to the sentence
        if words and words[0] in PROGRAMS and words not in found:
            found.append(words)
    return found


def follow(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the words lead to, and the options that they use. Fails the test where they lead nowhere."""
    import click

    from iris_core.cli.main import root

    command: click.Command = root()
    context = click.Context(command, info_name=words[0])
    used: list[str] = []
    expects_value = False
    for word in words[1:]:
        if word in ("--", "…", "...") or word.startswith(("[", "<")):
            break
        if expects_value:
            expects_value = False
        elif word.startswith("-"):
            flag, _, value = word.partition("=")
            option = next((p for p in command.params if flag in (*p.opts, *p.secondary_opts)), None)
            assert option is not None or flag in ("--help", "-h"), f"{shlex.join(words)}: no option {flag}"
            used.append(flag)
            expects_value = not value and isinstance(option, click.Option) and not option.is_flag and option.nargs == 1
        elif isinstance(command, click.Group):
            if word.isupper() or "|" in word:
                break  # a placeholder
            step = command.get_command(context, word)
            assert step is not None, f"{shlex.join(words)}: no command {word}"
            command, context = step, click.Context(step, info_name=word, parent=context)
    return command, used


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_in_the_documentation_exist(page: Path) -> None:
    for words in commands_in(page.read_text()):
        follow(words)


def test_the_readme_shows_commands_at_all() -> None:
    """Guards the reading of the page: a change of its form must not turn the test above into one of nothing."""
    shown = commands_in((ROOT / "README.md").read_text())
    assert ["iris-core", "cluster", "start", "--local"] in shown
    assert len(shown) >= 8


def test_a_flag_that_does_not_exist_is_found_out() -> None:
    with pytest.raises(AssertionError, match="no option --colour-of-the-sky"):
        follow(["iris-core", "job", "list", "--colour-of-the-sky"])
    with pytest.raises(AssertionError, match="no command jbo"):
        follow(["iris-core", "jbo", "list"])


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ +(.*)$", page.read_text(), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name(page)}: {target}"
        assert there.is_relative_to(ROOT)
        if anchor:
            assert anchor in anchors(there), f"{name(page)}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_in_the_documentation_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    assert {"demo", "test"} <= targets
    mentioned = set(re.findall(r"(?:`|^ {4})make ([a-z]+)", page.read_text(), flags=re.M))
    assert mentioned - targets == set()


def test_what_is_bigger_in_the_soak_is_run_by_it(soak: bool, request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("soak"), "who takes the fixture is marked by that"
    for path in sorted((ROOT / "tests").glob("**/test_*.py")):
        text = path.read_text()
        if "IRIS" + "_SOAK" in text:
            assert "mark.soak" in text, f"{path.name}: `make soak` would run none of it"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_programs_of_the_house_are_named_as_they_are(page: Path) -> None:
    """Modules and files that a page names in back-ticks exist."""
    for path in re.findall(
        r"`((?:iris_core|iris_controller|iris_tui|screens|providers|tests|requirements)/[\w./-]+)`", page.read_text()
    ):
        assert (ROOT / path).exists(), f"{name(page)}: {path}"
