"""Every screen of the registry against what nobody wished for: hostile names, tiny terminals, no colours, huge pastes, wrong filters, and
controllers of other releases. A screen that is added to the registry is tried by itself.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from rich.color import ColorType
from textual import events
from textual.screen import ModalScreen
from textual.widgets import Input, TextArea

from iris_core.model.errors import ModelError
from iris_tui.actions import in_scope
from iris_tui.glyphs import ASCII
from iris_tui.list_screen import ListScreen
from iris_tui.registry import SCREENS
from iris_tui.widgets.pane import State
from tests.unit.console_world import (
    EVIL,
    SUBJECTS,
    Hostile,
    LongIds,
    Newer,
    Older,
    console,
    every_screen,
    spoil,
)

if TYPE_CHECKING:
    from iris_core.live.checkpoint_columns import CheckpointRow
    from iris_tui.actions import Action
    from tests.unit.console_world import Rig

pytestmark = pytest.mark.asyncio

SMALL: Final = (40, 10)
LARGE: Final = (120, 40)
MEGABYTE: Final = "paste " * 175_000
MOST_OF_A_LINE: Final = 4096
MOST_OF_A_STATEMENT: Final = 100_000


def subject_of(name: str) -> str:
    """What a screen is about in the sample."""
    assert SCREENS[name].lists or name in SUBJECTS, f"say in SUBJECTS what {name} can be about"
    return SUBJECTS.get(name, "")


def assert_harmless(rig: Rig, size: tuple[int, int] = LARGE) -> None:
    """Nothing that drives a terminal, and as many lines as there are, each as wide as it is."""
    strips = rig.strips()
    assert (len(strips), {strip.cell_length for strip in strips}) == (size[1], {size[0]})
    bad = [(y, character) for y, strip in enumerate(strips) for character in strip.text if _drives(character)]
    assert not bad, rig.text()


def _drives(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs")


def assert_plain(rig: Rig) -> None:
    """Nothing but ASCII, and no colours: what is said is said in words, bold, dim or reversed."""
    for strip in rig.strips():
        assert strip.text.isascii(), strip.text
        for segment in strip:
            for colour in (segment.style.color, segment.style.bgcolor) if segment.style else ():
                assert colour is None or colour.type is ColorType.DEFAULT, (strip.text, segment)


async def back_to(rig: Rig, screen: Any, name: str, subject: str) -> None:
    """Close whatever an action opened."""
    for _ in range(10):
        top: Any = rig.app.screen
        if top is screen and not screen.prompt.is_open:
            return
        if isinstance(top, ModalScreen):
            top.dismiss(None)
        elif top is screen:
            screen.prompt.leave()
        elif getattr(top, "place", None) == ("", ""):
            rig.app.pop_screen()
        else:
            rig.app.go(name, subject)
        await rig.pilot.pause()
    raise AssertionError(f"there is no way back: {rig.app.screen_stack}")


COMMON: Final = {"list", "tree", "target", "tabs", "table"}
COMMON_EVERYWHERE: Final = {"list.filter", "list.menu"}
"""What of the common scopes is tried on every screen; the rest of them on these, one of each kind."""
EACH_KIND: Final = {"jobs", "task", "query"}


def actions_of(screen: Any) -> list[Action]:
    """What can be done on a screen, from what has the focus outwards; what only moves is left out."""
    scopes = [scope for host in screen.hosts() for scope in host.SCOPES if scope not in ("app", "go")]
    return [
        action
        for scope in scopes
        for action in in_scope(scope)
        if not action.moves and (scope not in COMMON or screen.place[0] in EACH_KIND or action.id in COMMON_EVERYWHERE)
    ]


async def paste(rig: Rig, known: set[str]) -> None:
    """A megabyte into everything that is open for typing, once each: it takes what a line, or a statement, has room for."""
    top: Any = rig.app.screen
    boxes: list[Input | TextArea] = [rig.screen.prompt.input] if top is rig.screen else list(top.query(Input))
    boxes += top.query(TextArea)
    for box in boxes:
        what = box.id or rig.screen.prompt.label.text
        if what in known or not box.focusable:
            continue
        known.add(what)
        before = box.text if isinstance(box, TextArea) else box.value
        box.post_message(events.Paste(MEGABYTE))
        await rig.pilot.pause()
        text = box.text if isinstance(box, TextArea) else box.value
        assert before != text and len(text) <= _room(box)
        assert_harmless(rig)
        if isinstance(box, TextArea):
            box.load_text(before)
        else:
            box.value = before


def _room(box: Input | TextArea) -> int:
    return MOST_OF_A_STATEMENT if isinstance(box, TextArea) else box.max_length or MOST_OF_A_LINE


# --- names and actions -----------------------------------------------------------------------------------------------


def spoil_rows(rows: list[CheckpointRow]) -> list[CheckpointRow]:
    return [replace(row, url=spoil(row.url), schema=spoil(row.schema), fault=spoil(row.fault)) for row in rows]


@every_screen
async def test_names_drive_nothing_whatever_is_done_with_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markup, escapes, wide and reversed characters, 300 of them, in every text; every action of the screen; a megabyte in every box."""
    monkeypatch.chdir(tmp_path)  # some save files
    lists = SCREENS[name].lists
    subject = subject_of(name) if lists else spoil(subject_of(name), keep_ids=True)
    async with console(Hostile if lists else LongIds, rows=spoil_rows) as rig:
        screen = await rig.go(name, subject)
        pasted: set[str] = set()
        assert_harmless(rig)
        assert not lists or EVIL[:5] in rig.text(), "markup is shown as it is written"
        for action in actions_of(screen):
            host = rig.app.host_of(action.scope)
            if host is None:
                continue  # another part is shown by now
            host.perform_or_say(action)
            await rig.pilot.pause()
            if isinstance(rig.app.focused, (Input, TextArea)):
                await paste(rig, pasted)
            assert_harmless(rig)
            await back_to(rig, screen, name, subject)
        screen.flush_now()
        assert_harmless(rig)
        assert all(not _drives(character) for file in os.listdir() for character in file)


# --- terminals -------------------------------------------------------------------------------------------------------


async def resized(rig: Rig, size: tuple[int, int]) -> None:
    await rig.pilot.resize_terminal(*size)
    await rig.until(lambda: len(rig.strips()) == size[1] and rig.app.screen.size == size)
    rig.screen.flush_now()
    await rig.pilot.pause()
    assert_harmless(rig, size)


@every_screen
async def test_a_tiny_terminal_without_colours_loses_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """$NO_COLOR and ASCII at 120x40, at 40x10, and back: filter, sort, the row and its line are what they were."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with console(glyphs=ASCII) as rig:
        screen = await rig.go(name, subject_of(name))
        table = getattr(screen, "table", None)
        if isinstance(screen, ListScreen):
            screen.set_filter("!zzz")
        if table is not None:
            for _ in range(min(3, len(table.store.order) - 1)):
                table.do_down()
        await rig.pilot.pause()
        screen.flush_now()
        assert_plain(rig)
        state, focused = screen.view_state(), rig.app.focused
        top = table.scroll_offset.y if table is not None else 0
        await resized(rig, SMALL)
        assert_plain(rig)
        if table is not None and table.cursor_id and table.display and table.size.height:
            line = table.store.index(table.cursor_id) - table.scroll_offset.y
            assert 0 <= line < table.size.height, "the chosen row is in sight"
        await resized(rig, LARGE)
        assert (screen.view_state(), rig.app.focused) == (state, focused)
        assert table is None or table.scroll_offset.y == top


@pytest.mark.parametrize("name", [name for name, spec in SCREENS.items() if spec.argument == "[FILTER]"])
async def test_a_wrong_filter_marks_its_place_and_the_old_result_stays(name: str) -> None:
    async with console() as rig:
        screen = await rig.go(name, "")
        assert isinstance(screen, ListScreen)
        screen.set_filter("!zzz")
        rows = list(screen.store.order)
        assert rows
        screen.do_filter("")
        await rig.until(lambda: rig.app.focused is screen.prompt.input)
        await rig.keys("end", "space", "quotation_mark")
        await rig.until(lambda: screen.prompt.has_class("-wrong") and "still the last valid filter" in rig.text())
        assert "▲" in screen.prompt.fault.text and "position 5" in screen.prompt.fault.text
        assert screen.store.order == rows
        await rig.keys("enter")
        assert screen.prompt.is_open, "what is wrong is not taken"
        await rig.keys("escape")
        assert screen.filter is not None and screen.filter.text == "!zzz"


# --- other releases --------------------------------------------------------------------------------------------------


@every_screen
async def test_a_controller_of_an_earlier_release_is_said_to_be_one_and_breaks_nothing_else(name: str) -> None:
    async with console(Older) as rig:
        screen = await rig.go(name, subject_of(name))
        assert_harmless(rig)
        if State.ERROR in rig.states():
            assert "this controller is of an earlier release and does not know it" in " ".join(rig.text().split())
            assert "Cannot reach" not in rig.text()
        assert "RECONNECTING" not in rig.lines()[0]
        for action in actions_of(screen):
            host = rig.app.host_of(action.scope)
            if host is not None and action.tier:
                host.perform_or_say(action)
                await rig.pilot.pause()
                await back_to(rig, screen, name, subject_of(name))
        jobs = await rig.go("jobs", "")
        await rig.until(lambda: jobs.store.order and jobs.pane.status.state is State.READY)
        assert rig.app.session.link.fresh


@every_screen
async def test_a_controller_of_a_later_release_is_shown_as_far_as_it_is_understood(name: str) -> None:
    async with console(Newer) as rig:
        await rig.go(name, subject_of(name))
        assert_harmless(rig)
        assert rig.states() <= {State.READY, State.PARTIAL, State.EMPTY}
        assert "LIVE" in rig.lines()[0]


# --- settings --------------------------------------------------------------------------------------------------------


async def test_settings_that_cannot_be_applied_are_said_and_the_console_can_be_left() -> None:
    from iris_core.config.console import parse_settings
    from iris_tui.gate import QuitScreen

    settings = parse_settings(
        "colour: red\nkeys:\n  app.quit: []\n  app.back: []\n  app.quit_now: []\n  no.such: [x]\nmouse: false\n"
    )
    async with console(settings=settings) as rig:
        await rig.until(lambda: "unknown key 'colour'" in rig.text() and "no action 'no.such'" in rig.text())
        assert "^q ^c go on quitting" in rig.text()
        await rig.keys("escape")
        await rig.until(lambda: rig.screen.place[0] == "jobs" and rig.screen.store.order)
        await rig.keys("q")
        assert not isinstance(rig.app.screen, QuitScreen), "it has no key any more"
        await rig.keys("ctrl+q")
        await rig.until(lambda: isinstance(rig.app.screen, QuitScreen))
        await rig.keys("y")
        await rig.until(lambda: rig.app._exit)


async def test_a_subject_that_is_none_is_refused_in_the_line_and_changes_nothing() -> None:
    async with console() as rig:
        before = await rig.go("jobs", "")
        for name, spec in SCREENS.items():
            if spec.word and not spec.lists and name != "profile":  # a profile's id may be any text
                with pytest.raises(ModelError) as caught:
                    rig.app.run_command(f"{spec.word} {EVIL}")
                assert not any(_drives(character) for character in str(caught.value)), name
                assert len(str(caught.value)) < 400
        assert rig.screen is before
        await rig.go("profile", EVIL)
        assert rig.states() == {State.ERROR}
        assert_harmless(rig)


# --- the map ---------------------------------------------------------------------------------------------------------


async def test_every_test_that_the_documentation_names_is_there() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "console.md").read_text()
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", page.partition("## The bar, line by line")[2])
    assert len(named) > 30
    for file, name in named:
        path = root / file if "/" in file else root / "tests" / "unit" / file
        assert f"def {name}(" in path.read_text(), f"{file}::{name}"
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == list(range(1, 13))
