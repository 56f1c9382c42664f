"""What the Overview, the Controller, the Profiles and one profile look like, in their states and sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iris_core.live.watch import Link
from iris_tui.themes import MONOCHROME
from iris_tui.widgets import plotting
from iris_tui.widgets.pane import State
from providers.fake.client import FakeClient
from providers.fake.clock import FakeClock
from providers.fake.fleet_samples import put_pulse
from providers.fake.profile_samples import FakeProfiles
from providers.fake.samples import sample
from tests.snapshots.test_console_pictures import Snap, Stage, picture, sizes

if TYPE_CHECKING:
    from collections.abc import Callable

MIDDLE = (120, 40)
SMALL = (80, 24)


def pulsing(**options: Any) -> Stage:
    clock = FakeClock()
    client = sample(clock)
    put_pulse(client)
    FakeProfiles(client).attach()
    return Stage(client, clock, **options)


def bare() -> Stage:
    clock = FakeClock()
    return Stage(FakeClient(now_ms=clock.now_ms()), clock)


async def go(stage: Stage, name: str, argument: str = "", state: State = State.READY) -> Any:
    """The screen, once its pane has this state."""
    await plotting.load()
    await stage.ready()
    stage.app.go(name, argument)
    await stage.until(lambda: stage.app.console_screen is not None and stage.app.console_screen.place[0] == name)
    screen: Any = stage.app.console_screen
    await stage.until(lambda: screen.pane is not None and screen.pane.status.state is state)
    return screen


def watched(stage: Stage, screen: Any) -> None:
    """Some minutes are remembered, with something to see in the charts."""
    now_ms = stage.clock.now_ms()
    for place, samples in enumerate(screen.samples()):
        last = samples.last
        highest = last.value if last is not None and last.value else 8.0
        values = (highest * (0.3 + 0.7 * abs((number + 7 * place) % 40 - 20) / 20) for number in range(60))
        samples.put_before((now_ms - (60 - number) * 5000, value) for number, value in enumerate(values))


# --- overview and controller -----------------------------------------------------------------------------------------


@sizes
def test_overview(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        watched(stage, await go(stage, "overview"))

    picture(snap_compare, pulsing(), size, play)


def broken(name: str, how: Callable[[Stage], None], state: State, argument: str = "") -> Callable[[Stage], Any]:
    """A screen that is shown after something happened to the connection."""

    async def play(stage: Stage) -> None:
        if state is State.STALE:
            await go(stage, name, argument)
            how(stage)
            screen: Any = stage.app.console_screen
            await stage.until(lambda: stage.app.session.link.link is Link.RECONNECTING)
            if name == "profiles":
                screen.reload()
                await stage.until(lambda: screen.source.polled.fault)
            await stage.until(lambda: screen.pane.status.state is state)
            return
        await stage.ready()
        how(stage)
        if state is State.ERROR:
            await stage.until(lambda: stage.app.session.link.link is Link.RECONNECTING)
        await go(stage, name, argument, state)

    return play


@pytest.mark.parametrize("name", ["overview", "controller", "profiles"])
@pytest.mark.parametrize("state", [State.LOADING, State.STALE, State.ERROR], ids=lambda state: state.value)
def test_without_an_answer(snap_compare: Snap, name: str, state: State) -> None:
    def how(stage: Stage) -> None:
        if state is State.LOADING:
            stage.client.freeze()
        else:
            stage.client.break_connection()

    picture(snap_compare, pulsing(), SMALL, broken(name, how, state))


@pytest.mark.parametrize("name", ["overview", "controller"])
def test_a_controller_that_sends_nothing(snap_compare: Snap, name: str) -> None:
    async def play(stage: Stage) -> None:
        await stage.until(lambda: stage.jobs.jobs.loaded and stage.app.session.role)
        stage.app.go(name)
        await stage.until(lambda: getattr(stage.app.console_screen, "feed", None) is not None)
        screen: Any = stage.app.console_screen
        await stage.until(lambda: screen.pane is not None and screen.pane.status.state is State.EMPTY)

    picture(snap_compare, bare(), SMALL, play)


def test_controller(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        watched(stage, await go(stage, "controller"))

    picture(snap_compare, pulsing(), MIDDLE, play)


# --- profiles --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.READY, State.PARTIAL], ids=lambda state: state.value)
def test_profiles(snap_compare: Snap, state: State) -> None:
    stage = pulsing()
    profiles = FakeProfiles(stage.client).attach()
    profiles.capped = state is State.PARTIAL

    async def play(stage: Stage) -> None:
        await go(stage, "profiles", state=state)

    picture(snap_compare, stage, MIDDLE, play)


def test_profiles_empty(snap_compare: Snap) -> None:
    stage = pulsing()
    FakeProfiles(stage.client).attach().kept.clear()

    async def play(stage: Stage) -> None:
        await go(stage, "profiles", state=State.EMPTY)

    picture(snap_compare, stage, SMALL, play)


@pytest.mark.parametrize("size", [SMALL, MIDDLE], ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_flame_graph(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        screen = await go(stage, "profile", "p-cpu-1")
        screen.flame.find("model.py")
        screen.flame.do_next()

    picture(snap_compare, pulsing(), size, play)


def test_a_flame_graph_without_colours(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        stage.app.theme = MONOCHROME.name
        await go(stage, "profile", "p-cpu-1")

    picture(snap_compare, pulsing(), SMALL, play)


def test_functions_of_a_profile(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        screen = await go(stage, "profile", "p-cpu-1")
        screen.do_next_view()

    picture(snap_compare, pulsing(), SMALL, play)


@pytest.mark.parametrize(("name", "state"), [("p-mem-1", State.READY), ("nowhere", State.ERROR)])
def test_a_profile_as_text(snap_compare: Snap, name: str, state: State) -> None:
    async def play(stage: Stage) -> None:
        await go(stage, "profile", name, state)

    picture(snap_compare, pulsing(), SMALL, play)
