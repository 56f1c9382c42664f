"""What the console looks like: every state of the Jobs screen at three sizes, and the themes.

Everything that moves stands still here: the clock, the cursor, the animations. After a deliberate change regenerate with
`pytest tests/snapshots --snapshot-update` on Python 3.11 and look at the pictures.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from iris_core.live.backoff import Backoff
from iris_core.live.watch import Link
from iris_tui.app import IrisApp
from iris_tui.gate import GateScreen, MenuScreen
from iris_tui.glyphs import ASCII, UNICODE
from iris_tui.pages import TextPage
from iris_tui.session import Session
from providers.fake.client import FakeClient
from providers.fake.clock import FakeClock
from providers.fake.samples import sample
from screens.jobs import JobsScreen
from tests.unit.console_waits import press, until

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from iris_core.contracts import AsyncClient

SIZES = [(80, 24), (120, 40), (200, 50)]
Play = Callable[["Stage"], Awaitable[None]]
Snap = Callable[..., bool]


class Stage:
    """One console before its picture is taken."""

    def __init__(self, client: FakeClient, clock: FakeClock, **options: Any) -> None:
        self.client = client
        self.clock = clock

        async def connect() -> AsyncClient:
            return client

        session_options = {name: options.pop(name) for name in ("environment", "read_only") if name in options}
        session = Session("lab", connect, clock, backoff=Backoff(rng=random.Random(1)), **session_options)
        self.app = IrisApp(session, glyphs=options.pop("glyphs", UNICODE), **options)
        self.app.animation_level = "none"
        self.pilot: Pilot[Any]

    @property
    def jobs(self) -> JobsScreen:
        return next(screen for screen in self.app.screen_stack if isinstance(screen, JobsScreen))

    async def until(self, condition: Callable[[], object]) -> None:
        await until(self.app, self.pilot, condition)

    async def keys(self, *keys: str) -> None:
        await press(self.app, self.pilot, *keys)

    async def ready(self) -> None:
        await self.until(lambda: self.jobs.jobs.loaded and self.jobs.store.order and self.app.session.role)

    async def row(self, name: str) -> None:
        assert self.jobs.table.move_to(name)
        await self.pilot.pause()

    async def opened(self) -> None:
        """The tree opened down to an attempt."""
        await self.ready()
        await self.row("/ada/train-llama")
        await self.keys("enter")
        await self.until(lambda: "/ada/train-llama/7" in self.jobs.store.order)
        await self.row("/ada/train-llama/7")
        await self.keys("enter")
        await self.until(lambda: "/ada/train-llama/7:0" in self.jobs.store.order)
        await self.row("/ada/train-llama")

    async def settled(self) -> None:
        """Nothing more will change."""
        for _ in range(3):
            await self.pilot.pause()
            screen = self.app.console_screen
            if screen is not None:
                screen.tick()  # it comes once a second, and the scripted clock may have moved since
                screen.flush_now()
        await self.pilot.pause()


def picture(snap_compare: Snap, stage: Stage, size: tuple[int, int], play: Play) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        stage.pilot = pilot
        await play(stage)
        await stage.settled()

    assert snap_compare(stage.app, terminal_size=size, run_before=before)


def fresh(**options: Any) -> Stage:
    clock = FakeClock()
    return Stage(sample(clock), clock, **options)


sizes = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")


@sizes
def test_jobs(snap_compare: Snap, size: tuple[int, int]) -> None:
    picture(snap_compare, fresh(), size, Stage.opened)


@sizes
def test_jobs_loading(snap_compare: Snap, size: tuple[int, int]) -> None:
    stage = fresh()
    stage.client.freeze()

    async def play(stage: Stage) -> None:
        await stage.until(lambda: "Loading the jobs" in str(stage.jobs.pane.status.lines))

    picture(snap_compare, stage, size, play)


@sizes
def test_jobs_empty(snap_compare: Snap, size: tuple[int, int]) -> None:
    clock = FakeClock()
    stage = Stage(FakeClient(now_ms=clock.now_ms()), clock)

    async def play(stage: Stage) -> None:
        await stage.until(lambda: "No jobs yet." in stage.jobs.pane.status.lines and stage.app.session.role)

    picture(snap_compare, stage, size, play)


@sizes
def test_jobs_filtered_to_nothing(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        stage.app.run_command("jobs state:running user:nobody")
        # While the answer is on its way the pane hides its content as well.
        await stage.until(lambda: "None of 10 jobs" in str(stage.jobs.pane.status.lines))

    picture(snap_compare, fresh(), size, play)


@sizes
def test_jobs_partial(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        from iris_core.contracts import RpcFailed

        stage.client.fail("ListJobs", RpcFailed("UNAVAILABLE", "the database is busy"))
        await stage.keys("end")
        await stage.until(lambda: stage.jobs.jobs.history.error)

    picture(snap_compare, fresh(), size, play)


@sizes
def test_jobs_stale(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        stage.client.break_connection("connection refused by lab:10000")
        await stage.until(lambda: stage.app.session.link.link is Link.RECONNECTING)
        stage.clock.advance(0.25)
        stage.app.session.watch._last_message = stage.clock.monotonic() - 42
        stage.jobs.flush_now()

    picture(snap_compare, fresh(), size, play)


@sizes
def test_jobs_error(snap_compare: Snap, size: tuple[int, int]) -> None:
    stage = fresh()
    stage.client.break_connection("connection refused by lab:10000")

    async def play(stage: Stage) -> None:
        await stage.until(lambda: "connection refused" in str(stage.jobs.pane.status.lines))

    picture(snap_compare, stage, size, play)


@sizes
def test_gate(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        await stage.row("/ada/train-llama")
        await stage.keys("x", "c")
        await stage.until(lambda: isinstance(stage.app.screen, GateScreen) and stage.app.focused)

    picture(snap_compare, fresh(environment="production"), size, play)


@sizes
def test_help(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        await stage.keys("question_mark")
        await stage.until(lambda: isinstance(stage.app.screen, TextPage) and stage.app.screen.text.count())

    picture(snap_compare, fresh(), size, play)


def test_wrong_filter(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        stage.app.run_command("jobs state:running")
        await stage.keys("slash", "end", "space", "exclamation_mark")
        await stage.until(lambda: stage.jobs.prompt.has_class("-wrong"))

    picture(snap_compare, fresh(), (80, 24), play)


def test_marks_and_menu(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        for name in ("/bob/tokenize-web", "/cleo/sweep-lr"):
            await stage.row(name)
            await stage.keys("space")
        await stage.keys("x")
        await stage.until(lambda: isinstance(stage.app.screen, MenuScreen))

    picture(snap_compare, fresh(), (120, 40), play)


def test_describe(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        await stage.row("/ada/train-llama")
        await stage.keys("d")
        await stage.until(lambda: isinstance(stage.app.screen, TextPage) and stage.app.screen.text.count())

    picture(snap_compare, fresh(), (120, 40), play)


def test_quit(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        await stage.keys("q")
        await stage.until(lambda: stage.app.focused is not None and stage.app.focused.id == "quit-go")

    picture(snap_compare, fresh(quit_note="The demo's cluster and its jobs end with it."), (80, 24), play)


def test_palette(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        await stage.keys("ctrl+p", *"cancel")
        from textual.command import CommandList

        await stage.until(
            lambda: stage.app.screen.query(CommandList) and stage.app.screen.query_one(CommandList).option_count
        )
        from textual.widgets import Input

        stage.app.screen.query_one(Input).cursor_blink = False

    picture(snap_compare, fresh(), (120, 40), play)


@pytest.mark.parametrize("theme", ["iris-light", "iris-contrast", "iris-ansi", "iris-monochrome"])
def test_themes(snap_compare: Snap, theme: str) -> None:
    async def play(stage: Stage) -> None:
        await stage.opened()
        stage.app.theme = theme

    picture(snap_compare, fresh(), (80, 24), play)


def test_production(snap_compare: Snap) -> None:
    picture(snap_compare, fresh(environment="production"), (80, 24), Stage.opened)


def test_without_colour(snap_compare: Snap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    picture(snap_compare, fresh(read_only=True), (80, 24), Stage.opened)


def test_ascii(snap_compare: Snap) -> None:
    picture(snap_compare, fresh(glyphs=ASCII), (80, 24), Stage.opened)
