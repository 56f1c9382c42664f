"""Every screen in each of its states has a picture, here or beside its own; three sizes for the main ones; and the pages of changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from iris_core.contracts import Denied, IrisError
from iris_tui.registry import SCREENS
from iris_tui.results_page import ResultsPage
from iris_tui.widgets.pane import State
from providers.fake.clock import FakeClock
from providers.fake.whole_sample import SUBJECTS, whole
from screens import audit, checkpoints
from screens.rerun import RerunForm
from tests.snapshots.test_console_pictures import SIZES, Snap, Stage, picture

SMALL: Final = (80, 24)
MIDDLE: Final = (120, 40)
PICTURES: Final = Path(__file__).parent / "__snapshots__"


def stage() -> Stage:
    clock = FakeClock()
    return Stage(whole(clock), clock)


async def go(stage: Stage, name: str, subject: str, state: State) -> Any:
    await stage.ready()
    stage.app.go(name, subject)
    await stage.until(lambda: stage.app.console_screen is not None and stage.app.console_screen.place[0] == name)
    screen: Any = stage.app.console_screen
    await stage.until(lambda: _pane(screen) is not None and _pane(screen).status.state is state)
    return screen


def _pane(screen: Any) -> Any:
    return getattr(screen, "pane", None)


# --- states that nothing else shows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["overview", "controller"])
def test_a_controller_that_says_little_of_itself(snap_compare: Snap, name: str) -> None:
    made = stage()
    if name == "overview":
        made.client.take("controller", "controller")
    else:
        for part in ("store", "lag"):
            made.client.rows["controller"]["controller"].ClearField(part)

    async def play(stage: Stage) -> None:
        await go(stage, name, "", State.PARTIAL)

    picture(snap_compare, made, SMALL, play)


def test_an_audit_log_that_is_longer_than_the_list(snap_compare: Snap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MOST", 2)

    async def play(stage: Stage) -> None:
        await go(stage, "audit", "", State.PARTIAL)

    picture(snap_compare, stage(), SMALL, play)


@pytest.mark.parametrize("name", ["audit", "overview", "profile", "checkpoints"])
def test_nothing_of_it_may_be_seen(snap_compare: Snap, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(place: str) -> Any:
        raise IrisError(f"permission denied: {place}", hint="this login may not list its objects")

    monkeypatch.setattr(checkpoints, "read", refuse)

    async def play(stage: Stage) -> None:
        await stage.ready()
        if name != "checkpoints":
            stage.client._failure = Denied("PERMISSION_DENIED", "ada may not read this")
        await go(stage, name, SUBJECTS.get(name, ""), State.ERROR)

    picture(snap_compare, stage(), SMALL, play)


def test_a_profile_on_its_way(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        stage.client.freeze()
        await go(stage, "profile", "p-cpu-1", State.LOADING)

    picture(snap_compare, stage(), SMALL, play)


def test_a_profile_while_nobody_answers(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        screen = await go(stage, "profile", "p-cpu-1", State.READY)
        stage.client.break_connection("connection refused by lab:10000")
        stage.clock.advance(42)
        await stage.until(lambda: screen.pane.status.state is State.STALE)

    picture(snap_compare, stage(), SMALL, play)


def test_rollouts_that_are_being_read(snap_compare: Snap, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("screens.rollout_reads.in_thread", never)

    async def play(stage: Stage) -> None:
        await go(stage, "rollout", "", State.LOADING)

    picture(snap_compare, stage(), SMALL, play)


# --- sizes that nothing else shows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [SIZES[0], SIZES[2]], ids=lambda size: f"{size[0]}x{size[1]}")
def test_profiles_in_other_sizes(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        await go(stage, "profiles", "", State.READY)

    picture(snap_compare, stage(), size, play)


# --- the pages of changes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_form_of_a_rerun(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        stage.app.run_command("rerun /ada/pretrain")
        await stage.until(lambda: isinstance(stage.app.screen, RerunForm) and stage.app.focused is not None)
        from textual.widgets import Input

        for box in stage.app.screen.query(Input):
            box.cursor_blink = False

    picture(snap_compare, stage(), size, play)


@pytest.mark.parametrize("empty", [True, False], ids=["empty", "ready"])
def test_the_results_of_changes(snap_compare: Snap, empty: bool) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        if not empty:
            stage.client.fail("TerminateJob", IrisError("the controller is busy"), times=1)
            await stage.row("/cleo/sweep-lr")
            await stage.keys("x", "c")
            await stage.until(lambda: stage.app.focused is not None and stage.app.focused.id == "gate-cancel")
            await stage.keys("right", "enter")
            await stage.until(lambda: len(stage.app.operations) and not stage.app.operations.running)
            stage.app.clear_notifications()  # they go by themselves, in their own time
        stage.app.run_command("results")
        await stage.until(lambda: isinstance(stage.app.screen, ResultsPage) and stage.app.screen.text.count())

    picture(snap_compare, stage(), MIDDLE, play)


# --- the map ---------------------------------------------------------------------------------------------------------

FIVE: Final = (State.LOADING, State.EMPTY, State.PARTIAL, State.STALE, State.ERROR)
_FLEET: Final = {state: f"test_fleet_pictures/test_{state.value}[{{name}}]" for state in FIVE}
_PAGE: Final = {
    State.LOADING: "test_page_pictures/test_a_page_that_loads[{name}]",
    State.STALE: "test_page_pictures/test_a_page_that_has_grown_old[{name}]",
    State.ERROR: "test_page_pictures/test_a_page_that_cannot_be_had[{name}]",
}
_PULSE: Final = {
    **{state: f"test_pulse_pictures/test_without_an_answer[{state.value}-{{name}}]" for state in FIVE},
    State.EMPTY: "test_pulse_pictures/test_a_controller_that_sends_nothing[{name}]",
    State.PARTIAL: "test_state_pictures/test_a_controller_that_says_little_of_itself[{name}]",
}
_TASKS: Final = {
    **{state: f"test_task_pictures/test_{state.value}[{{name}}]" for state in FIVE},
    State.PARTIAL: "test_task_pictures/test_partial_part[{name}]",
}
_KEPT: Final = {state: f"test_query_pictures/test_without_an_answer[{{name}}-{state.value}]" for state in FIVE}
NO_SUCH: Final = "-"
"""The screen cannot be in this state: what it is about is read whole, and is either there or not; a journal here never grows old."""
WHERE: Final[dict[str, dict[State, str]]] = {
    "overview": _PULSE,
    "jobs": {state: f"test_console_pictures/test_jobs_{state.value}[80x24]" for state in FIVE},
    "job": _TASKS,
    "tasks": {**_TASKS, State.PARTIAL: "test_task_pictures/test_partial_tasks"},
    "task": _TASKS,
    "logs": {state: f"test_log_pictures/test_{state.value}" for state in FIVE},
    "scheduler": _FLEET,
    "explain": {**_PAGE, State.EMPTY: NO_SUCH, State.PARTIAL: NO_SUCH},
    "capacity": _FLEET,
    "workers": _FLEET,
    "worker": {
        **_PAGE,
        State.EMPTY: "test_page_pictures/test_a_worker_without_tasks",
        State.PARTIAL: "test_page_pictures/test_a_worker_whose_tasks_are_on_their_way",
    },
    "users": _FLEET,
    "endpoints": _FLEET,
    "profiles": {
        **_PULSE,
        State.EMPTY: "test_pulse_pictures/test_profiles_empty",
        State.PARTIAL: "test_pulse_pictures/test_profiles[partial]",
    },
    "profile": {
        State.LOADING: "test_state_pictures/test_a_profile_on_its_way",
        State.EMPTY: NO_SUCH,
        State.PARTIAL: NO_SUCH,
        State.STALE: "test_state_pictures/test_a_profile_while_nobody_answers",
        State.ERROR: "test_pulse_pictures/test_a_profile_as_text[nowhere-State.ERROR]",
    },
    "query": {
        **{state: f"test_query_pictures/test_query_in_its_states[-{state.value}]" for state in FIVE},
        State.STALE: "test_query_pictures/test_query_stale",
    },
    "audit": {
        **_KEPT,
        State.EMPTY: "test_query_pictures/test_audit_empty",
        State.PARTIAL: "test_state_pictures/test_an_audit_log_that_is_longer_than_the_list",
    },
    "checkpoints": {
        **_KEPT,
        State.EMPTY: "test_query_pictures/test_checkpoints[80x24-empty]",
        State.PARTIAL: "test_query_pictures/test_checkpoints[80x24-partial]",
    },
    "controller": _PULSE,
    "rollout": {
        State.LOADING: "test_state_pictures/test_rollouts_that_are_being_read",
        State.EMPTY: NO_SUCH,
        State.PARTIAL: NO_SUCH,
        State.STALE: NO_SUCH,
        State.ERROR: "test_rollout_pictures/test_no_such_rollout",
    },
}
"""Where the picture of each state of each screen is."""
MAIN: Final = {
    "overview": "test_pulse_pictures/test_overview[{size}]",
    "jobs": "test_console_pictures/test_jobs[{size}]",
    "job": "test_task_pictures/test_screen[job-{size}]",
    "tasks": "test_task_pictures/test_screen[tasks-{size}]",
    "task": "test_task_pictures/test_screen[task-{size}]",
    "logs": "test_log_pictures/test_logs[{size}]",
    "scheduler": "test_fleet_pictures/test_scheduler[{size}]",
    "capacity": "test_fleet_pictures/test_capacity[{size}]",
    "profiles": "test_state_pictures/test_profiles_in_other_sizes[{size}]",
    "query": "test_query_pictures/test_query[{size}]",
}
"""The main screens, each in three sizes."""


def _is_there(where: str) -> bool:
    return (PICTURES / f"{where}.svg").is_file()


@pytest.mark.parametrize("name", SCREENS)
def test_every_screen_has_a_picture_of_each_of_its_states(name: str) -> None:
    states = WHERE[name]
    assert set(states) >= set(FIVE)
    missing = [
        state.value for state in FIVE if states[state] != NO_SUCH and not _is_there(states[state].format(name=name))
    ]
    assert not missing


@pytest.mark.parametrize("name", MAIN)
def test_the_main_screens_have_pictures_in_three_sizes(name: str) -> None:
    sizes = [f"{width}x{height}" for width, height in SIZES if name != "profiles" or (width, height) != MIDDLE]
    assert all(_is_there(MAIN[name].format(size=size)) for size in sizes)
    assert name != "profiles" or _is_there("test_pulse_pictures/test_profiles[ready]")
