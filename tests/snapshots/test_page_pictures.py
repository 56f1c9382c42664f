"""The pages about one thing that waits or works, Explain and Worker, in the states that a page can be in."""

from __future__ import annotations

from typing import Any

import pytest

from iris_core.contracts import IrisError
from iris_core.live.watch import Link
from iris_tui.widgets.pane import State
from providers.fake.machine_samples import GANG, SLICE
from tests.snapshots.test_console_pictures import Snap, Stage, picture
from tests.snapshots.test_fleet_pictures import SMALL, fleet, go, shown

WORKER = f"{SLICE}-w-1"
pages = pytest.mark.parametrize(("name", "subject"), [("explain", GANG), ("worker", WORKER)], ids=["explain", "worker"])


def pane(screen: Any) -> Any:
    return screen.now if screen.place[0] == "explain" else screen.pane


async def whole(stage: Stage, name: str, subject: str) -> Any:
    screen = await go(stage, name, subject)
    await stage.until(lambda: pane(screen).status.state is State.READY)
    return screen


@pages
def test_a_page_that_loads(snap_compare: Snap, name: str, subject: str) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        stage.client.freeze()
        screen = await go(stage, name, subject)
        await stage.until(lambda: pane(screen).status.state is State.LOADING)

    picture(snap_compare, fleet(), SMALL, play)


@pages
def test_a_page_that_has_grown_old(snap_compare: Snap, name: str, subject: str) -> None:
    async def play(stage: Stage) -> None:
        screen = await whole(stage, name, subject)
        stage.client.break_connection("connection refused by lab:10000")
        await stage.until(lambda: screen.link.link is Link.RECONNECTING)
        for watch in (getattr(screen, "subscription", None), stage.app.session.watch):
            if watch is not None:
                watch._last_message = stage.clock.monotonic() - 42
        screen.flush_now()
        await stage.until(lambda: pane(screen).status.state is State.STALE)

    picture(snap_compare, fleet(), SMALL, play)


@pages
def test_a_page_that_cannot_be_had(snap_compare: Snap, name: str, subject: str) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        if name == "explain":
            stage.client.fail("ExplainJob", IrisError("there is no job of this name"), times=1_000)
        else:
            stage.client.deny("the token has expired")
        stage.app.go(name, subject)
        await stage.until(lambda: shown(stage).place[0] == name and shown(stage).is_mounted)
        await stage.until(lambda: pane(shown(stage)).status.state is State.ERROR)

    picture(snap_compare, fleet(), SMALL, play)


def test_a_worker_without_tasks(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        screen = await go(stage, "worker", "nobody-knows-it")
        await stage.until(lambda: pane(screen).status.state is State.EMPTY)

    picture(snap_compare, fleet(), SMALL, play)


def test_a_worker_whose_tasks_are_on_their_way(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        screen = await whole(stage, "worker", WORKER)
        screen.source._complete.clear()
        screen.flush_now()
        await stage.until(lambda: pane(screen).status.state is State.PARTIAL)

    picture(snap_compare, fleet(), SMALL, play)
