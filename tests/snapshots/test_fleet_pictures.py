"""What Scheduler, Explain, Capacity, Workers, Users and Endpoints look like: each in its five states, the main ones at three sizes."""

from __future__ import annotations

from typing import Any

import pytest

from iris_core.live.watch import Link
from iris_tui.widgets.pane import State
from providers.fake.client import FakeClient
from providers.fake.clock import FakeClock
from providers.fake.machine_samples import GANG, SLICE, machine_sample
from tests.snapshots.test_console_pictures import Snap, Stage, picture, sizes

LISTS = ("scheduler", "capacity", "workers", "users", "endpoints")
SMALL, MIDDLE = (80, 24), (120, 40)
lists = pytest.mark.parametrize("name", LISTS)


def fleet(**options: Any) -> Stage:
    clock = FakeClock()
    return Stage(machine_sample(clock), clock, **options)


def shown(stage: Stage) -> Any:
    return stage.app.console_screen


async def go(stage: Stage, name: str, subject: str = "") -> Any:
    await stage.ready()
    stage.app.go(name, subject)
    await stage.until(lambda: shown(stage).place[0] == name and shown(stage).is_mounted)
    return shown(stage)


async def whole(stage: Stage, name: str) -> Any:
    screen = await go(stage, name)
    await stage.until(lambda: screen.source.loaded and screen.store.order and not screen.store.dirty)
    return screen


@sizes
def test_scheduler(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        screen = await whole(stage, "scheduler")
        screen.table.move_to(f"pending {GANG}")

    picture(snap_compare, fleet(), size, play)


@sizes
def test_capacity(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        screen = await whole(stage, "capacity")
        screen.store.expand(f"slice {SLICE}")
        screen.soon()
        screen.table.move_to("group tpu-v5p-8")

    picture(snap_compare, fleet(), size, play)


@pytest.mark.parametrize("name", ["workers", "users", "endpoints"])
def test_list(snap_compare: Snap, name: str) -> None:
    async def play(stage: Stage) -> None:
        await whole(stage, name)

    picture(snap_compare, fleet(), MIDDLE, play)


@sizes
def test_explain(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        screen = await go(stage, "explain", GANG)
        await stage.until(lambda: screen.now.polled.loaded)
        stage.app.run_command("what-if --region us-east5")
        await stage.until(lambda: screen.what_if.polled.loaded)

    picture(snap_compare, fleet(), size, play)


def test_what_if_form(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        screen = await go(stage, "explain", GANG)
        await stage.until(lambda: screen.now.polled.loaded)
        await stage.keys("e")
        from textual.widgets import Input

        await stage.until(lambda: isinstance(stage.app.focused, Input))
        for box in stage.app.screen.query(Input):
            box.cursor_blink = False

    picture(snap_compare, fleet(), SMALL, play)


def test_worker(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        screen = await go(stage, "worker", f"{SLICE}-w-1")
        await stage.until(lambda: screen.source.loaded and screen.store.order)

    picture(snap_compare, fleet(), SMALL, play)


# --- the states ------------------------------------------------------------------------------------------------------


@lists
def test_loading(snap_compare: Snap, name: str) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        stage.client.freeze()
        screen = await go(stage, name)
        await stage.until(lambda: screen.pane.status.state is State.LOADING)

    picture(snap_compare, fleet(), SMALL, play)


@lists
def test_empty(snap_compare: Snap, name: str) -> None:
    async def play(stage: Stage) -> None:
        await stage.until(lambda: stage.jobs.jobs.loaded and stage.app.session.role)
        stage.app.go(name)
        await stage.until(lambda: shown(stage).place[0] == name and shown(stage).is_mounted)
        screen = shown(stage)
        await stage.until(lambda: screen.source.loaded and screen.pane.status.state is State.EMPTY)

    clock = FakeClock()
    picture(snap_compare, Stage(FakeClient(now_ms=clock.now_ms()), clock), SMALL, play)


@lists
def test_stale(snap_compare: Snap, name: str) -> None:
    async def play(stage: Stage) -> None:
        screen = await whole(stage, name)
        stage.client.break_connection("connection refused by lab:10000")
        await stage.until(lambda: screen.link.link is Link.RECONNECTING)
        stage.clock.advance(0.25)
        screen.source.watch._last_message = stage.clock.monotonic() - 42
        stage.app.session.watch._last_message = stage.clock.monotonic() - 42
        screen.flush_now()

    picture(snap_compare, fleet(), SMALL, play)


@lists
def test_error(snap_compare: Snap, name: str) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        stage.client.deny("the token has expired")
        stage.app.go(name)
        await stage.until(lambda: shown(stage).place[0] == name and shown(stage).is_mounted)
        screen = shown(stage)
        await stage.until(lambda: screen.pane.status.state is State.ERROR)

    picture(snap_compare, fleet(), SMALL, play)


@lists
def test_partial(snap_compare: Snap, name: str) -> None:
    async def play(stage: Stage) -> None:
        screen = await go(stage, name)
        await stage.until(lambda: screen.source.loaded and screen.store.order)
        # As while a snapshot is on its way: some rows are there, and more will come.
        screen.source._complete.clear()
        screen.flush_now()
        await stage.until(lambda: screen.pane.status.state is State.PARTIAL)

    picture(snap_compare, fleet(), SMALL, play)
