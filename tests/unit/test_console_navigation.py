"""Going from screen to screen: each is found again as it was left, also one that had to be made anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_core.live.watch import Link
from iris_core.model.errors import ModelError
from iris_tui import registry
from iris_tui.gate import MenuScreen
from iris_tui.list_screen import ListScreen
from iris_tui.navigation import MOST_KEPT
from iris_tui.pages import TextPage
from iris_tui.places import MOST, History, Place
from tests.unit.test_console_app import Rig, console

if TYPE_CHECKING:
    from collections.abc import Callable

# --- the history -----------------------------------------------------------------------------------------------------


def places(history: History, *names: str) -> None:
    for name in names:
        history.visit(Place("lab", name))


def test_going_somewhere_from_the_middle_forgets_what_was_ahead() -> None:
    history = History()
    places(history, "a", "b", "c")
    back = history.step(-1)
    assert back is not None and back.screen == "b"
    places(history, "d")
    assert history.step(1) is None
    found = [history.step(-1), history.step(-1), history.step(-1)]
    assert [place.screen if place else "" for place in found] == ["b", "a", ""]


def test_to_where_one_is_already_changes_nothing_and_the_oldest_are_forgotten() -> None:
    history = History()
    places(history, "a", "a")
    assert history.step(-1) is None
    places(history, *(str(number) for number in range(MOST + 10)))
    steps = 0
    while history.step(-1) is not None:
        steps += 1
    assert steps == MOST - 1


def test_swapping_goes_there_and_back() -> None:
    history = History()
    places(history, "a", "b")
    found = [history.swap(), history.swap(), history.swap()]
    assert [place.screen if place else "" for place in found] == ["a", "b", "a"]


# --- under an operator's hands ---------------------------------------------------------------------------------------


def here(rig: Rig) -> tuple[str, str]:
    screen = rig.app.console_screen
    return screen.place if screen is not None else ("", "")


async def at(rig: Rig, name: str, subject: str = "") -> None:
    await rig.until(lambda: here(rig) == (name, subject) and rig.app.screen.is_mounted)


def command(rig: Rig, text: str) -> Callable[[], None]:
    return lambda: rig.app.run_command(text)


@pytest.mark.asyncio
async def test_back_and_forward_find_filter_order_and_cursor() -> None:
    async with console() as rig:
        rig.app.run_command("jobs state:running")
        rig.jobs.sort_by("name", reverse=True)
        await rig.until(lambda: rig.jobs.store.order)
        await rig.row("/cleo/sweep-lr")
        rig.app.run_command("tasks")
        await at(rig, "tasks")
        rig.app.run_command("job /ada/train-llama")
        await at(rig, "job", "/ada/train-llama")
        await rig.keys("left_square_bracket")
        await at(rig, "tasks")
        await rig.keys("left_square_bracket")
        await at(rig, "jobs")
        jobs = rig.jobs
        assert jobs.filter is not None and jobs.filter.text == "state:running"
        assert (jobs.table.sorted_by, jobs.table.reversed, jobs.table.cursor_id) == ("name", True, "/cleo/sweep-lr")
        await rig.keys("right_square_bracket", "right_square_bracket")
        await at(rig, "job", "/ada/train-llama")
        await rig.keys("right_square_bracket")
        await at(rig, "job", "/ada/train-llama")
        await rig.keys("minus")
        await at(rig, "tasks")
        await rig.keys("minus")
        await at(rig, "job", "/ada/train-llama")


@pytest.mark.asyncio
async def test_the_menu_of_screens_has_them_all_and_goes_there() -> None:
    async with console() as rig:
        await rig.keys("v")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen))
        menu = rig.app.screen
        assert isinstance(menu, MenuScreen)
        assert {letter for letter, _, _ in menu.entries} == {
            spec.letter for spec in registry.SCREENS.values() if spec.letter
        }
        await rig.keys("t")
        await at(rig, "tasks")


@pytest.mark.asyncio
async def test_a_page_over_a_screen_is_closed_with_it_and_never_a_place() -> None:
    async with console() as rig:
        await rig.row("/ada/train-llama")
        await rig.keys("d")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage))
        await rig.keys("colon", *"tasks", "enter")
        await at(rig, "tasks")
        assert not any(isinstance(screen, TextPage) for screen in rig.app.screen_stack)
        await rig.keys("left_square_bracket")
        await at(rig, "jobs")
        await rig.keys("question_mark")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage))
        await rig.keys("q")
        await rig.until(lambda: rig.app.screen is rig.jobs)


@pytest.mark.asyncio
async def test_what_cannot_be_gone_to_is_said_and_nothing_changes() -> None:
    async with console() as rig:
        for text in ("tasks no:such", "job not/an/id", "jobs state~["):
            with pytest.raises(ModelError):
                rig.app.run_command(text)
        await at(rig, "jobs")
        assert rig.app.history.step(-1) is None


@pytest.mark.asyncio
async def test_screens_about_one_thing_are_dropped_after_a_while_and_made_anew_by_the_history() -> None:
    async with console() as rig:
        names = [name for name in rig.jobs.store.rows if rig.jobs.store.rows[name].kind == "job"]
        assert len(names) > 1
        subjects = [f"/some/job{number}" for number in range(MOST_KEPT + 2)]
        first = None
        for subject in subjects:
            rig.app.run_command(f"job {subject}")
            await at(rig, "job", subject)
            first = first or rig.app.console_screen
        kept = [key for key in rig.app._screens if key[2]]
        assert len(kept) == MOST_KEPT + 1
        assert first is not None and not first.is_attached
        for _ in subjects[1:]:
            await rig.keys("left_square_bracket")
        await at(rig, "job", subjects[0])
        assert rig.app.console_screen is not first
        assert len([key for key in rig.app._screens if key[2]]) <= MOST_KEPT + 1


@pytest.mark.asyncio
async def test_a_list_rests_while_it_is_not_shown_and_goes_on_from_where_it_was() -> None:
    async with console() as rig:
        rig.app.run_command("tasks")
        await at(rig, "tasks")
        screen = rig.app.console_screen
        assert isinstance(screen, ListScreen) and screen.subscription is not None
        await rig.until(lambda: screen.source.loaded and screen.store.order)
        rows = set(screen.store.rows)
        streams = len(rig.client.called("Watch"))
        rig.app.run_command("jobs")
        await at(rig, "jobs")
        await rig.until(lambda: screen.subscription is not None and screen.subscription._resting)
        rig.app.run_command("tasks")
        await at(rig, "tasks")
        assert rig.app.console_screen is screen
        assert set(screen.store.rows) == rows, "what was there is shown at once"
        await rig.until(lambda: len(rig.client.called("Watch")) > streams and screen.link.link is Link.LIVE)
        resumed = rig.client.called("Watch")[-1]
        assert all(selector.resume.n for selector in resumed.selectors), "only the difference is asked for"
        assert set(screen.store.rows) == rows
