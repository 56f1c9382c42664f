"""Round the rollout itself: clusters that this console may not change, lines that stay at their end, and the way out of the screen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from textual.scrollbar import ScrollTo, ScrollUp

from iris_core.config.console import parse_settings
from iris_tui.app import IrisApp
from iris_tui.gate import QuitScreen
from iris_tui.glyphs import UNICODE
from iris_tui.saved import Saved
from iris_tui.session import Session
from providers.fake.client import FakeClient
from providers.fake.clock import FakeClock
from providers.fake.samples import sample
from tests.unit.rollout_world import RolloutWorld
from tests.unit.test_console_app import Rig
from tests.unit.test_console_rollout import Wizard, wizard, world

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient

__all__ = ["world"]

pytestmark = pytest.mark.asyncio

LOCKED = "h1: read-only in this console; :cluster h1, then :write, allows changes of it"


def another(name: str) -> Session:
    """A cluster that the console goes to."""
    clock = FakeClock()

    async def connect() -> AsyncClient:
        return FakeClient(cluster=name, now_ms=clock.now_ms())

    return Session(name, connect, clock)


async def on(it: Wizard, cluster: str, *commands: str) -> None:
    """Go to a cluster, and do these there."""
    it.rig.app.run_command(f"cluster {cluster}")
    await it.rig.until(lambda: it.rig.app.session.name == cluster and it.screen.is_mounted)
    for command in commands:
        it.rig.app.run_command(command)


async def refused(it: Wizard, command: str) -> None:
    """It is said that h1 is read-only here, and nothing else happens."""
    it.rig.app.clear_notifications()
    it.rig.app._toasts.clear()
    it.rig.app.run_command(command)
    await it.rig.until(lambda: any(LOCKED in note.message for note in it.rig.app._notifications))
    assert it.screen.driving is None


# --- what this console may not change --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["settled", "opened"])
async def test_a_cluster_that_would_be_opened_read_only_is_in_no_rollout_from_another_ones_screen(
    world: RolloutWorld, how: str
) -> None:
    settings = parse_settings("clusters: {h1: {read_only: true}}") if how == "settled" else None
    async with wizard(world, settings=settings, open_session=another) as it:
        await it.open()
        if how == "opened":
            it.rig.app.opens_read_only = True
            await on(it, "h2")
            await on(it, "lab")
        await it.rig.until(lambda: LOCKED.partition(": ")[2] in " ".join(it.screen.text.text.split()))
        await it.rig.keys("B")
        await it.rig.until(lambda: it.screen.prompt.is_open)
        assert it.screen.prompt.input.value == "h2", "what cannot be taken is not proposed"
        await it.rig.keys("escape")
        for named in ("h1", "h2,h1"):
            await refused(it, f"rollout-begin {named}")
        assert not list(world.folder.glob("*.jsonl"))
        it.rig.app.run_command("rollout-begin h2")
        await it.rig.until(lambda: it.asked == "tree")
    assert world["h1"].untouched


async def test_a_cluster_that_was_made_read_only_is_neither_answered_for_nor_gone_on_with_nor_ended(
    world: RolloutWorld,
) -> None:
    async with wizard(world, open_session=another) as it:
        await it.begin()
        await on(it, "h1", "readonly")
        await on(it, "lab")
        await it.rig.until(lambda: it.asked == "tree")
        gate = it.screen.gate.gate
        await it.rig.keys("enter")
        await it.rig.type(gate.name)
        await it.rig.keys("enter", "enter")
        await it.rig.until(lambda: any(LOCKED in note.message for note in it.rig.app._notifications))
        assert it.screen.gate.gate is gate and it.screen.driving.asked is not None, "the question stands"
        it.rig.app.clear_notifications()
        with pytest.raises(ValueError, match="h1: read-only in this console"):
            it.rig.app.run_command("rollout-abort")
        await it.rig.keys("escape", "L")
        await it.rig.until(lambda: "was left, and waits to be gone on with" in it.text)
        await refused(it, "rollout-resume")
        with pytest.raises(ValueError, match="h1: read-only in this console"):
            it.rig.app.run_command("rollout-abort")
        assert {"rollout.resume", "rollout.abort"} <= it.screen.idle_actions()
        assert it.journal[-1]["type"] == "asked"
        await on(it, "h1", "write")
        await on(it, "lab")
        assert not {"rollout.resume", "rollout.abort"} & it.screen.idle_actions()
        it.rig.app.run_command("rollout-resume")
        await it.rig.until(lambda: it.asked == "tree")
        await it.approve("tree")
    assert world["h1"].untouched


# --- the lines -------------------------------------------------------------------------------------------------------


async def resized(it: Wizard, columns: int, rows: int) -> None:
    await it.rig.pilot.resize_terminal(columns, rows)
    await it.rig.until(lambda: (it.screen.size.width, it.screen.size.height) == (columns, rows))


@pytest.mark.parametrize("sizes", [((200, 60), (40, 10), (80, 24)), ((120, 40), (80, 24), (200, 60))])
async def test_the_end_of_the_lines_stays_in_sight_in_every_size_and_when_a_question_comes(
    world: RolloutWorld, sizes: tuple[tuple[int, int], ...]
) -> None:
    async with wizard(world, size=sizes[0]) as it:
        await it.begin()
        assert it.screen.text.at_bottom
        for size in sizes[1:]:
            await resized(it, *size)
            await it.rig.until(lambda: it.screen.text.at_bottom)
        await it.approve("tree")
        await it.rig.until(lambda: it.asked == "h1/restart")
        assert it.screen.text.at_bottom, "the evidence of this question"
        await resized(it, *sizes[0])
        await it.rig.until(lambda: it.screen.text.at_bottom)


async def test_lines_that_somebody_reads_stay_where_they_are_until_he_goes_to_the_end(world: RolloutWorld) -> None:
    async with wizard(world, size=(80, 24)) as it:
        await it.begin()
        text = it.screen.text
        await it.rig.keys("g", "down", "down")
        line = text.top_line()
        assert line and not text.following
        await resized(it, 40, 20)
        await it.rig.until(lambda: text.top_line() == line)
        await it.approve("tree")
        await it.rig.until(lambda: it.asked == "h1/restart")
        assert text.top_line() == line
        await resized(it, 100, 20)
        await it.rig.until(lambda: text.top_line() == line)
        it.rig.app.run_command("rollout-lines")
        await it.rig.keys("G")
        assert text.at_bottom and text.following
        await it.approve("h1/restart")
        await it.rig.until(lambda: it.asked == "h1/next")
        assert text.at_bottom
        text.post_message(ScrollUp())
        await it.rig.until(lambda: not text.following)
        text.post_message(ScrollTo(y=text.max_scroll_y, animate=False))
        await it.rig.until(lambda: text.following)


# --- what is said in passing -----------------------------------------------------------------------------------------


async def test_what_is_on_its_way_is_said_on_the_screen_and_lies_on_no_question(world: RolloutWorld) -> None:
    async with wizard(world, size=(40, 10)) as it:
        await it.open()
        await it.rig.until(lambda: it.screen.reads.landing.value is not None)
        it.rig.app.run_command("rollout-begin h1,h2")
        assert it.screen.opening == "beginning a rollout to h1,h2 …"
        await it.rig.until(lambda: it.asked == "tree")
        assert not it.screen.opening
        it.rig.app.run_command("rollout-leave")
        await it.rig.until(lambda: it.screen.driving is None)
        it.rig.app.run_command("rollout-resume")
        await it.rig.until(lambda: it.asked == "tree")
        assert not it.rig.app._notifications


async def test_going_on_with_what_goes_on_here_already_shows_it(world: RolloutWorld) -> None:
    async with wizard(world) as it:
        await it.begin()
        name = it.screen.shown
        for command in ("rollout-resume", f"rollout-resume {name}"):
            it.rig.app.run_command("rollouts")
            await it.rig.until(lambda: "Rollouts, the newest first" in it.text and not it.asked)
            it.rig.app.run_command(command)
            await it.rig.until(lambda: it.asked == "tree")
        with pytest.raises(ValueError, match=f"this console drives {name} already"):
            it.rig.app.run_command("rollout-resume another")


# --- the way out -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def left_at(world: RolloutWorld, saved: Saved) -> AsyncIterator[Wizard]:
    """A console that opens as it was left."""
    clock = FakeClock()
    client = sample(clock)

    async def connect() -> AsyncClient:
        return client

    session = Session("lab", connect, clock)
    session.saved = saved
    app = IrisApp(session, glyphs=UNICODE)
    app.rollouts.journal_dir, app.rollouts.account = str(world.folder), "ada"
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        yield Wizard(Rig(app, pilot, client, clock), world)


@pytest.mark.parametrize("key", ["q", "escape"])
async def test_a_console_that_opened_on_a_rollout_is_left_by_way_of_the_list(world: RolloutWorld, key: str) -> None:
    async with wizard(world) as it:
        await it.begin()
        name = it.screen.shown
        await it.rig.keys("L")
        await it.rig.until(lambda: it.screen.driving is None)
    async with left_at(world, Saved(screen="rollout", views={"rollout": {"rollout": name}})) as it:
        screen: Any = it.screen
        await it.rig.until(lambda: "was left, and waits to be gone on with" in it.text)
        await it.rig.keys(key)
        await it.rig.until(lambda: "Rollouts, the newest first" in it.text)
        assert screen.shown == ""
        await it.rig.keys(key)
        await it.rig.until(lambda: isinstance(it.rig.app.screen, QuitScreen))
        await it.rig.keys("n")
        it.rig.app.go("jobs")
        await it.open()
        await it.rig.keys(key)
        await it.rig.until(lambda: it.screen.place[0] == "jobs")
