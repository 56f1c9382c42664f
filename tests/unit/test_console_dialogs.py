"""Dialogs in any size of terminal, and what the menu of a row offers: nothing that cannot be read, nothing that cannot work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len
from textual.widgets import Button
from textual.widgets._toast import Toast

from iris_core.model.states import JOB_TERMINAL, JobState, TaskState
from iris_tui.actions import ACTIONS
from iris_tui.gate import GatePlan, GateScreen, GateTarget, MenuScreen, QuitScreen
from iris_tui.toasts import Passing
from iris_tui.write_screen import WriteScreen
from tests.unit.test_console_app import console

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.screen import Screen

    from tests.unit.test_console_app import Rig


pytestmark = pytest.mark.asyncio


def gate(tier: int, effects: int = 30) -> GateScreen:
    targets = tuple(GateTarget(f"/ada/{'long-' * 20}{n}", "1", "running") for n in range(20))
    lines = tuple(f"ends {n} running tasks as killed" for n in range(effects))
    return GateScreen(
        GatePlan("Cancel", "20 jobs", tier, "lab", "production", targets, lines, "iris-core " + "x " * 90)
    )


DIALOGS: dict[str, Callable[[], Screen[Any]]] = {
    "gate-1": lambda: gate(1),
    "gate-2": lambda: gate(2),
    "gate-3": lambda: gate(3),
    "write": lambda: WriteScreen("lab", "production", 15),
    "quit": lambda: QuitScreen("one change is still on its way, " * 20),
    "menu": lambda: MenuScreen("/ada/x", [(chr(97 + n), "target.cancel", f"thing {n}") for n in range(20)]),
}


@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
@pytest.mark.parametrize("name", DIALOGS)
async def test_whatever_has_the_focus_in_a_dialog_is_to_be_seen(name: str, size: tuple[int, int]) -> None:
    """Else a key answers a question that nobody can read."""
    async with console(size=size, environment="production") as rig:
        dialog = DIALOGS[name]()
        rig.app.push_screen(dialog)
        await rig.until(lambda: rig.app.screen is dialog and dialog.focused is not None)
        seen: list[object] = []
        while dialog.focused not in seen:
            focused = dialog.focused
            seen.append(focused)
            await rig.until(lambda focused=focused: _is_seen(dialog, focused))  # type: ignore[misc]
            if name.startswith("gate"):
                await rig.until(lambda: "Cancel 20 jobs?" in rig.screen_text() and "PROD" in rig.screen_text())
            if isinstance(focused, Button) and not name.startswith("menu"):
                label = focused.label
                assert cell_len(str(label)) <= focused.content_size.width, f"{label} is cut"
            await rig.keys("tab")
        assert len(seen) > 1


def _is_seen(dialog: Screen[Any], widget: object) -> bool:
    placed = dialog.find_widget(widget)  # type: ignore[arg-type]
    return placed.visible_region.area > 0 and dialog.region.overlaps(placed.visible_region)


async def test_what_is_said_in_passing_is_not_cut_in_a_small_terminal() -> None:
    said = "one job is run again at a time; unmark the others with u, or name one of them"
    async with console(size=(40, 10)) as rig:
        rig.app.say(said)
        await rig.until(lambda: all(word in rig.screen_text() for word in said.split()))


@pytest.mark.parametrize("lasts_s", [-3600.0, -0.001, 0.0, 1e-9])
async def test_words_whose_time_is_over_before_they_are_shown_do_not_stop_the_console(lasts_s: float) -> None:
    """A busy machine, or a screen that is shown as they leave: Textual's timer would go round for ever."""
    async with console(size=(80, 24)) as rig:
        late = Passing("too late", timeout=lasts_s)
        assert late.has_expired or lasts_s > 0
        await rig.app.screen.mount(Toast(late))
        await rig.until(lambda: not rig.app.screen.query(Toast))
        rig.app.say("in time")
        await rig.until(lambda: "in time" in rig.screen_text())
        assert all(isinstance(shown, Passing) for shown in rig.app._notifications)


async def test_what_works_on_living_things_alone_is_a_change_of_them() -> None:
    alive = [action for action in ACTIONS if action.alive]
    assert {action.id for action in alive} >= {"target.cancel", "target.complete", "target.preempt", "target.fail"}
    assert all(action.mutates and action.kinds for action in alive)


async def offered(rig: Rig) -> tuple[set[str], str]:
    await rig.keys("x")
    menu = rig.app.screen
    assert isinstance(menu, MenuScreen)
    found = {name for _, name, _ in menu.entries}
    text = rig.screen_text()
    await rig.keys("escape")
    return found, text


ALIVE = {action.id for action in ACTIONS if action.alive}


async def test_the_menu_of_what_has_ended_offers_no_way_to_end_it() -> None:
    async with console() as rig:
        jobs = [row for row in rig.jobs.store.rows.values() if row.kind == "job" and row.id in rig.jobs.store.order]
        ended = [row.id for row in jobs if int(row.value.state) in JOB_TERMINAL]
        living = [row.id for row in jobs if int(row.value.state) == JobState.RUNNING]
        assert ended and living
        await rig.row(ended[0])
        found, text = await offered(rig)
        assert "target.rerun" in found and not found & ALIVE
        assert "it has ended: no Cancel and Complete" in text
        await rig.row(living[0])
        found, text = await offered(rig)
        assert found >= {"target.cancel", "target.complete"} and "has ended" not in text
        # What is marked is offered what works on one of it.
        for name in (ended[0], living[0]):
            rig.jobs.store.mark(name, on=True)
        found, _ = await offered(rig)
        assert "target.cancel" in found
        rig.jobs.store.mark(living[0], on=False)
        found, text = await offered(rig)
        assert not found & ALIVE and "they have ended" in text


@pytest.mark.parametrize(("opened", "subject"), [("job", "/cleo/sweep-lr"), ("task", "/ada/train-llama/0")])
async def test_the_page_of_what_has_ended_offers_no_way_to_end_it(opened: str, subject: str) -> None:
    async with console() as rig:
        rig.app.go(opened, subject)
        await rig.until(lambda: (it := rig.app.console_screen) is not None and it.place[0] == opened and it.is_mounted)
        screen: Any = rig.app.console_screen
        await rig.until(lambda: screen.job is not None if opened == "job" else screen.feed.known)
        before, _ = await offered(rig)
        kept: Any = rig.client.jobs if opened == "job" else rig.client.tasks
        ended = type(kept[subject])()
        ended.CopyFrom(kept[subject])
        ended.state = JobState.KILLED if opened == "job" else TaskState.KILLED
        rig.client.put(ended)
        await rig.until(lambda: (screen.job if opened == "job" else screen.feed.task).state == ended.state)
        found, _ = await offered(rig)
        assert before & ALIVE and found and not found & ALIVE
