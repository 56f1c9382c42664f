"""What the Tasks, Job and Task screens look like: three sizes, every part, and the five states of each screen.

Everything that moves stands still here. After a deliberate change regenerate with `pytest tests/snapshots --snapshot-update` on
Python 3.11 and look at the pictures.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from iris_core.contracts import RpcFailed
from iris_core.live.backoff import Backoff
from iris_tui.app import IrisApp
from iris_tui.glyphs import UNICODE
from iris_tui.pages import TextPage
from iris_tui.session import Session
from iris_tui.widgets import plotting
from iris_tui.widgets.pane import State
from providers.fake.client import FakeClient
from providers.fake.clock import FakeClock
from providers.fake.task_samples import GANG, troubled
from tests.unit.console_waits import press, until

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from iris_core.contracts import AsyncClient

SIZES = [(80, 24), (120, 40), (200, 50)]
Play = Callable[["Stage"], Awaitable[None]]
Snap = Callable[..., bool]
sizes = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
SUBJECTS = {"tasks": "", "job": GANG, "task": f"{GANG}/3"}
screens = pytest.mark.parametrize("name", SUBJECTS)


class Stage:
    """One console before its picture is taken."""

    def __init__(self, client: FakeClient, clock: FakeClock) -> None:
        self.client = client
        self.clock = clock

        async def connect() -> AsyncClient:
            return client

        self.app = IrisApp(Session("lab", connect, clock, backoff=Backoff(rng=random.Random(1))), glyphs=UNICODE)
        self.app.animation_level = "none"
        self.pilot: Pilot[Any]

    @property
    def screen(self) -> Any:
        return self.app.console_screen

    async def until(self, condition: Callable[[], object]) -> None:
        await until(self.app, self.pilot, condition)

    async def keys(self, *keys: str) -> None:
        await press(self.app, self.pilot, *keys)

    async def at(self, name: str, subject: str) -> None:
        """Go there; it need not have anything to show yet."""
        await self.until(lambda: self.screen is not None and self.screen.place[0] == "jobs")
        self.app.go(name, subject)
        await self.until(lambda: self.screen.place[0] == name and self.screen.is_mounted and self.screen.is_current)

    async def shown(self, name: str, subject: str) -> None:
        """Go there, and wait for all that it shows."""
        await self.until(lambda: self.app.session.role)
        await self.at(name, subject)
        await self.until(lambda: self.screen.store.order and self.screen.pane.status.state is State.READY)
        if name == "job":
            await self.until(lambda: self.screen.reads.cause.loaded and self.screen.reads.found.loaded)

    async def part(self, key: str) -> None:
        await self.keys(key)
        await self.until(lambda: self.screen.part.pane.status.state is State.READY)
        if self.screen.part.name == "Charts":
            await self.until(plotting.ready)
            self.screen.refresh(layout=True)

    async def settled(self) -> None:
        """Nothing more will change."""
        for _ in range(3):
            await self.pilot.pause()
            if self.screen is not None:
                self.screen.tick()  # it comes once a second, and the scripted clock may have moved since
                self.screen.flush_now()
        await self.pilot.pause()


def picture(snap_compare: Snap, stage: Stage, size: tuple[int, int], play: Play) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        stage.pilot = pilot
        await play(stage)
        await stage.settled()

    assert snap_compare(stage.app, terminal_size=size, run_before=before)


def fresh() -> Stage:
    clock = FakeClock()
    return Stage(troubled(clock), clock)


@sizes
@screens
def test_screen(snap_compare: Snap, name: str, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        await stage.shown(name, SUBJECTS[name])

    picture(snap_compare, fresh(), size, play)


@pytest.mark.parametrize("key", "23456")
@pytest.mark.parametrize("name", ["job", "task"])
def test_part(snap_compare: Snap, name: str, key: str) -> None:
    async def play(stage: Stage) -> None:
        await stage.shown(name, SUBJECTS[name])
        await stage.part(key)

    picture(snap_compare, fresh(), (120, 40), play)


def test_comparison(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        await stage.shown("task", SUBJECTS["task"])
        await stage.keys("C")
        await stage.until(lambda: isinstance(stage.app.screen, TextPage) and stage.app.screen.text.count())

    picture(snap_compare, fresh(), (120, 40), play)


@screens
def test_loading(snap_compare: Snap, name: str) -> None:
    stage = fresh()
    stage.client.freeze()

    async def play(stage: Stage) -> None:
        await stage.at(name, SUBJECTS[name])
        await stage.until(lambda: stage.screen.pane.status.state is State.LOADING)

    picture(snap_compare, stage, (80, 24), play)


@screens
def test_error(snap_compare: Snap, name: str) -> None:
    stage = fresh()
    stage.client.break_connection("connection refused by lab:10000")

    async def play(stage: Stage) -> None:
        await stage.at(name, SUBJECTS[name])
        await stage.until(lambda: "connection refused" in str(stage.screen.pane.status.lines))

    picture(snap_compare, stage, (80, 24), play)


@screens
def test_stale(snap_compare: Snap, name: str) -> None:
    async def play(stage: Stage) -> None:
        await stage.shown(name, SUBJECTS[name])
        stage.client.break_connection("connection refused by lab:10000")
        stage.clock.advance(42)
        await stage.until(lambda: stage.screen.pane.status.note == "STALE 42s: connection refused by lab:10000")

    picture(snap_compare, fresh(), (80, 24), play)


@screens
def test_empty(snap_compare: Snap, name: str) -> None:
    clock = FakeClock()
    client = FakeClient(now_ms=clock.now_ms())
    if name != "tasks":
        full = troubled(clock)
        job = full.jobs["/ada/train-llama"]
        client.put(job, full.tasks["/ada/train-llama/6"])
        if name == "job":
            client.take("tasks", "/ada/train-llama/6")

    async def play(stage: Stage) -> None:
        await stage.until(lambda: stage.app.session.role)
        await stage.at(name, {"tasks": "", "job": "/ada/train-llama", "task": "/ada/train-llama/6"}[name])
        await stage.until(lambda: stage.screen.pane.status.state is State.EMPTY)
        if name == "job":
            await stage.until(lambda: stage.screen.reads.found.loaded)

    picture(snap_compare, Stage(client, clock), (80, 24), play)


def test_partial_tasks(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        await stage.shown("tasks", "")
        stage.client.fail("ListJobs", RpcFailed("UNAVAILABLE", "the database is busy"))
        await stage.keys("end")
        await stage.until(lambda: stage.screen.pane.status.state is State.PARTIAL and stage.screen.feed.older.error)

    picture(snap_compare, fresh(), (80, 24), play)


@pytest.mark.parametrize("name", ["job", "task"])
def test_partial_part(snap_compare: Snap, name: str) -> None:
    stage = fresh()
    answer = stage.client._query  # type: ignore[attr-defined]

    def noted(request: Any) -> Any:
        found = answer(request)
        found.notes.append("1 damaged segment was left out")
        return found

    stage.client._query = noted  # type: ignore[attr-defined]

    async def play(stage: Stage) -> None:
        await stage.shown(name, SUBJECTS[name])
        await stage.keys("6" if name == "job" else "2")
        await stage.until(lambda: stage.screen.part.pane.status.state is State.PARTIAL)

    picture(snap_compare, stage, (80, 24), play)
