"""The rollout screen: evidence before each question, the name before each approval, and the same step again for whoever opens it later."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Button, Static

from iris_core.cli import rollout_fleet, rollout_runs
from iris_core.cli.session import Session
from iris_core.config.console import parse_settings
from iris_core.contracts import UsageFailed
from iris_core.model.errors import ModelError
from iris_core.procedures import journal as journals
from iris_core.procedures.rollout_report import held_locks
from iris_core.procedures.rollout_scope import Candidate
from iris_tui.gate import QuitScreen
from iris_tui.rollouts import leaving
from iris_tui.widgets.line_input import LineInput
from tests.unit.procedures_world import Killed
from tests.unit.rollout_world import NEW, Operator, RolloutWorld
from tests.unit.test_console_app import Rig, console

pytestmark = pytest.mark.asyncio


class Wizard:
    """A console on the rollout screen, over clusters on fake hosts."""

    def __init__(self, rig: Rig, world: RolloutWorld) -> None:
        self.rig = rig
        self.world = world

    @property
    def screen(self) -> Any:
        return self.rig.app.console_screen

    @property
    def text(self) -> str:
        return self.rig.screen_text()

    @property
    def asked(self) -> str:
        """The gate that the screen asks, "" if none."""
        gate = self.screen.gate.gate
        return gate.id if gate is not None else ""

    async def open(self, argument: str = "") -> None:
        self.rig.app.go("rollout", argument)
        await self.rig.until(lambda: self.screen.place[0] == "rollout" and self.screen.is_mounted)

    async def begin(self) -> None:
        await self.open()
        await self.rig.until(lambda: "Rollouts, the newest first" in self.text)
        self.rig.app.run_command("rollout-begin h1,h2")
        await self.rig.until(lambda: self.asked == "tree")

    async def approve(self, gate: str) -> None:
        """As an operator does: to the question, the name if one is asked for, then the button."""
        await self.rig.until(lambda: self.asked == gate)
        shown = self.screen.gate.gate
        await self.rig.keys("enter")
        if shown.tier >= 3:
            await self.rig.until(lambda: isinstance(self.screen.focused, LineInput))
            await self.rig.type(shown.name)
            await self.rig.keys("enter")
        else:
            await self.rig.keys("left")
        await self.rig.until(lambda: getattr(self.screen.focused, "id", "") == "rollout-yes")
        await self.rig.keys("enter")
        await self.rig.until(lambda: self.asked != gate)

    @property
    def journal(self) -> list[dict[str, Any]]:
        (path,) = self.world.folder.glob("rollout-*.jsonl")
        return journals.read(path)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RolloutWorld:
    made = RolloutWorld(tmp_path)
    listed = [Candidate("h1", "local", 3), Candidate("h2", "local", 3)]
    monkeypatch.setattr(rollout_fleet, "candidates", lambda session: listed)
    monkeypatch.setattr(rollout_fleet, "_reached", lambda *words: None)
    monkeypatch.setattr(rollout_runs.Run, "_fleet", lambda run: made.fleet(run.account, run.id))
    return made


@asynccontextmanager
async def wizard(world: RolloutWorld, *, account: str = "ada", **options: Any) -> AsyncIterator[Wizard]:
    async with console(**options) as rig:
        rig.app.rollouts.journal_dir, rig.app.rollouts.account = str(world.folder), account
        rig.app.rollouts.tree = world.folder
        yield Wizard(rig, world)


async def test_a_whole_rollout_through_its_questions(world: RolloutWorld) -> None:
    async with wizard(world) as it:
        await it.open()
        await it.rig.until(lambda: "1. h1 (controller=local, capacity=3 slices)" in it.text)
        await it.begin()
        assert f"Ship tree {NEW[:12]} to h1, h2?" in it.text and "ahead of origin/main" in it.text
        assert "PASS the controller runs" in it.screen.text.text, "the evidence is there before the question"
        await it.approve("tree")
        await it.rig.until(lambda: it.asked == "h1/restart")
        assert "same as: iris-core rollout resume rollout-" in it.text and "--approve h1/restart=" in it.text
        assert "undo:" in it.text and "3 running tasks go on" in it.text
        for gate in ("h1/restart", "h1/next", "h2/restart"):
            await it.approve(gate)
        await it.rig.until(lambda: f"done: h1, h2 run {NEW[:12]}" in it.screen.text.text)
        assert world["h1"].shipped and world["h2"].shipped
        assert "h1 passed   h2 passed" in it.screen.facts.text
        await it.rig.keys("R")
        await it.rig.until(
            lambda: "Report of rollout-" in it.rig.screen_text() and f"Hash `{NEW}`" in it.rig.screen_text()
        )


async def test_nothing_but_the_name_opens_the_button_and_stopping_takes_two_presses(world: RolloutWorld) -> None:
    async with wizard(world) as it:
        await it.begin()
        yes, stop = it.screen.query_one("#rollout-yes", Button), it.screen.query_one("#rollout-stop", Button)
        await it.rig.keys("enter")
        await it.rig.type(NEW[:11])
        assert yes.disabled
        assert f"type {NEW[:12]} and Enter twice to approve: {NEW[:11]}" in it.text
        await it.rig.keys("enter")
        assert it.asked == "tree" and yes.disabled
        await it.rig.until(lambda: f"that is not {NEW[:12]}: type exactly this to approve: {NEW[:11]}" in it.text)
        await it.rig.type(NEW[11])
        assert not yes.disabled
        await it.rig.until(lambda: f"Enter twice to approve: {NEW[:12]}" in it.text)
        stop.focus()
        await it.rig.until(lambda: it.rig.app.focused is stop)
        await it.rig.keys("circumflex_accent")  # an Escape that came together with the next key
        await it.rig.until(lambda: it.rig.app.focused is it.screen.text)
        stop.focus()
        await it.rig.keys("enter")
        assert "press again" in str(stop.label) and it.asked == "tree"
        await it.rig.until(lambda: not stop.has_class("-active"))
        await it.rig.keys("enter")
        await it.rig.until(lambda: "stopped: nothing was changed" in it.screen.text.text)
        assert world["h1"].untouched and world["h2"].untouched


@pytest.mark.parametrize("size", [(40, 10), (80, 24)])
async def test_all_of_a_question_is_seen_and_answered_by_keys_on_a_small_terminal(
    world: RolloutWorld, size: tuple[int, int]
) -> None:
    async with wizard(world, size=size) as it:
        await it.open()
        await it.rig.until(lambda: it.screen.reads.landing.value is not None)
        it.rig.app.run_command("rollout-begin h1,h2")
        await it.rig.until(lambda: it.asked == "tree")
        gate = it.screen.gate

        def sees(name: str) -> bool:
            region = gate.query_one(f"#rollout-{name}").region
            return bool(region.area > 0 and gate.scrollable_content_region.contains_region(region))

        def focused(name: str) -> bool:
            return getattr(it.screen.focused, "id", "") == f"rollout-{name}" and sees(name)

        await it.rig.keys("enter")
        await it.rig.until(lambda: focused("name") and gate.query_one("#rollout-name").region.width > 12)
        await it.rig.keys(*["pageup"] * 9)
        await it.rig.until(lambda: f"Ship tree {NEW[:12]} to h1, h2?" in it.text and "• main, c0ffee" in it.text)
        await it.rig.type("x")  # what is typed is seen, wherever one has read
        await it.rig.until(lambda: focused("name"))
        await it.rig.keys("backspace")
        await it.rig.type(NEW[:12])
        await it.rig.keys("enter")
        await it.rig.until(lambda: focused("yes") and "Approve" in it.text)
        await it.rig.keys("right")
        await it.rig.until(lambda: focused("stop") and "Stop the rollout" in it.text)
        await it.rig.keys("left")
        await it.rig.until(lambda: focused("yes"))
        await it.rig.keys("enter")
        # This one has three buttons.
        await it.rig.until(lambda: it.asked == "h1/restart")
        await it.rig.keys("enter")
        await it.rig.until(lambda: focused("name"))
        for name, word in (("skip", "Skip it"), ("stop", "Stop the rollout")):
            await it.rig.keys("down")
            await it.rig.until(lambda name=name, word=word: focused(name) and word in it.text)  # type: ignore[misc]
    assert world["h1"].untouched


async def test_it_is_closed_and_opened_again_at_the_same_question(world: RolloutWorld) -> None:
    async with wizard(world) as it:
        await it.begin()
        await it.approve("tree")
        await it.rig.until(lambda: it.asked == "h1/restart")
        await it.rig.type("h")  # not in the box: nothing is asked of these keys
        it.rig.app.go("jobs")
        await it.rig.until(lambda: it.screen.place[0] == "jobs")
        await it.open()
        await it.rig.until(lambda: it.asked == "h1/restart")
        assert it.screen.query_one("#rollout-name", LineInput).value == ""
    assert not any(record["type"] == "ended" for record in it.journal), "closing the console answers nothing"
    assert world["h1"].untouched
    async with wizard(world, account="grace") as it:
        await it.open()
        await it.rig.until(lambda: "was left" in it.text or "Rollouts, the newest" in it.text)
        it.rig.app.run_command("rollout-resume")
        assert it.screen.opening.startswith("going on with ")
        await it.rig.until(lambda: it.asked == "h1/restart")
        for gate in ("h1/restart", "h1/next", "h2/restart"):
            await it.approve(gate)
        await it.rig.until(lambda: "done: h1, h2 run" in it.screen.text.text)
    answers = [(record["event"], record["by"]) for record in it.journal if record["type"] == "answered"]
    assert answers[:2] == [("tree", "ada"), ("h1/restart", "grace")]


async def test_the_watch_is_drawn_while_it_goes_on_and_says_what_is_left(world: RolloutWorld) -> None:
    async with wizard(world) as it:
        await it.begin()
        await it.approve("tree")
        world.clock.going.clear()
        await it.approve("h1/restart")
        await it.rig.until(lambda: "the watch of h1: 0 of 300 s, 300 s are left, and nothing shortens them" in it.text)
        await it.rig.until(
            lambda: it.screen.has_class("-watching") and all(chart.text.strip() for chart in it.screen.charts)
        )
        assert "healthy workers" in it.text and "log store behind" in it.text
        world.clock.going.set()
        await it.rig.until(lambda: it.asked == "h1/next")
        assert not world["h2"].host.effects


async def test_quitting_during_a_watch_says_what_goes_on_and_what_stops(world: RolloutWorld) -> None:
    async with wizard(world) as it:
        await it.begin()
        await it.approve("tree")
        world.clock.going.clear()
        await it.approve("h1/restart")
        await it.rig.until(lambda: "the watch of h1: 0 of 300 s" in it.text)
        app = it.rig.app
        for command, answer in (("q", "enter"), ("ask-quit", "n")):
            app.run_command(command)
            await it.rig.until(lambda: isinstance(app.screen, QuitScreen) and app.focused is not None)
            await it.rig.until(lambda: "nobody watches it" in it.rig.screen_text())
            said = " ".join(str(app.screen.query_one("#quit-note", Static).render()).split())
            assert "h1 runs the new release, and its jobs go on, but nobody watches it" in said
            assert "begins anew when the rollout is gone on with" in said and "keeps the lock of h1" in said
            assert f"iris-core rollout resume {it.screen.shown}" in said and "rollout abort" in said
            assert app.focused is app.screen.query_one("#quit-stay")
            await it.rig.keys(answer)
            await it.rig.until(lambda: not isinstance(app.screen, QuitScreen))
        assert app.return_code is None and not it.screen.driving.leaving
        app.run_command("q")
        await it.rig.until(lambda: isinstance(app.screen, QuitScreen) and app.focused is not None)
        await it.rig.pilot.press("y")
        async with asyncio.timeout(30):
            while app.return_code is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert it.journal[-1]["type"] != "ended" and not world["h1"].free


@pytest.mark.parametrize("refuses", [(), ("h2/restart",)])
async def test_what_a_console_that_ends_says_of_the_locks_is_so_wherever_it_ends(
    tmp_path: Path, refuses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    (tmp_path / "whole").mkdir()
    whole = RolloutWorld(tmp_path / "whole")
    await whole.run(Operator(*refuses))
    for number in range(0, whole.lines, 6):
        (tmp_path / str(number)).mkdir()
        world = RolloutWorld(tmp_path / str(number))
        with pytest.raises(Killed):
            await world.run(Operator(*refuses), die_at=number, after=True)
        records = journals.read(world.path)
        taken = [name for name in world.clusters if not world[name].free]
        held = held_locks(records)
        assert set(taken) <= set(held), number
        assert held == taken or records[-1]["type"] == "intent", number
        said = "\n".join(leaving("rollout-1", records, ""))
        assert ("It holds no lock." in said) is (not held) and "iris-core rollout resume rollout-1" in said


async def test_who_looks_on_sees_the_same_and_is_asked_nothing(world: RolloutWorld) -> None:
    async with wizard(world) as driver:
        await driver.begin()
        name = driver.screen.shown
        async with wizard(world, account="grace") as follower:
            await follower.open(name)
            await follower.rig.until(lambda: "waits for whoever drives it: you look on" in follower.text)
            assert follower.asked == "" and "PASS the controller runs" in follower.screen.text.text
            await follower.rig.keys("enter")
            follower.rig.app.run_command(f"rollout-resume {name}")
            await follower.rig.until(
                lambda: any("driven by another process" in note.message for note in follower.rig.app._notifications)
            )
        assert driver.asked == "tree"


async def test_a_console_that_is_read_only_only_looks_on(world: RolloutWorld) -> None:
    settings = parse_settings("keys:\n  rollout.begin: f21\n")
    async with wizard(world, read_only=True, settings=settings) as it:
        await it.open()
        await it.rig.until(lambda: "Rollouts, the newest first" in it.text)
        await it.rig.until(lambda: "This console is read-only: it can only look on." in it.text)
        offered = it.screen.keybar
        await it.rig.until(lambda: "Show all rollouts" in offered.text)
        assert "Begin a rollout" not in offered.text and "Go on with" not in offered.text
        for command in ("rollout-begin h1", "rollout-resume"):
            with pytest.raises(ModelError, match="read-only"):
                it.rig.app.run_command(command)
        await it.rig.keys("f21")
        await it.rig.until(
            lambda: any(
                "this console is read-only: it can only look on" in n.message for n in it.rig.app._notifications
            )
        )
        assert not it.screen.prompt.is_open and not list(world.folder.glob("*.jsonl"))
        it.rig.app.run_command("write")
        await it.rig.until(lambda: "F21 begins one, o goes on" in it.text)
        await it.rig.until(lambda: "Begin a rollout" in offered.text)
        await it.rig.keys("f21")
        await it.rig.until(lambda: it.screen.prompt.is_open)


async def test_leaving_stops_at_a_safe_point_and_ending_takes_a_word(world: RolloutWorld) -> None:
    async with wizard(world) as it:
        await it.begin()
        it.rig.app.run_command("readonly")
        with pytest.raises(ModelError, match="read-only"):
            it.rig.app.run_command("rollout-abort")
        await it.rig.keys("L")
        await it.rig.until(lambda: "was left, and waits to be gone on with" in it.text)
        it.rig.app.run_command("write")
        await it.rig.until(lambda: not it.rig.app.session.read_only)
        it.rig.app.run_command("rollout-abort")
        await it.rig.type("yes")
        await it.rig.keys("enter")
        assert it.screen.prompt.is_open, "another word ends nothing"
        await it.rig.keys("escape")
        it.rig.app.run_command("rollout-abort")
        await it.rig.type("abort")
        await it.rig.keys("enter")
        await it.rig.until(lambda: "cancelled: " in it.screen.text.text)
    assert world["h1"].untouched


async def test_what_cannot_begin_is_said_and_nothing_is_there(world: RolloutWorld) -> None:
    async with wizard(world) as it:
        await it.open()
        await it.rig.until(lambda: "Rollouts, the newest first" in it.text)
        it.rig.app.run_command("rollout-begin nope")
        await it.rig.until(lambda: any("no cluster named 'nope'" in note.message for note in it.rig.app._notifications))
        assert not list(world.folder.glob("*.jsonl"))
        await it.open("rollout-nothing")
        await it.rig.until(lambda: "no procedure rollout-nothing" in it.text)
        (world.folder / "rollout-torn.jsonl").write_text("no record\n{}\n")
        it.rig.app.run_command("rollouts")
        await it.rig.until(lambda: "rollout-torn cannot be read: " in " ".join(it.text.split()))
        await it.open("rollout-torn")
        await it.rig.until(lambda: "a person must look" in " ".join(it.text.split()))


async def test_a_rollout_that_does_not_get_under_way_leaves_nothing_open_and_says_why(
    world: RolloutWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    closed: list[str] = []

    def refuse(session: Session, candidate: Candidate, *_: str) -> None:
        opened.append(candidate.name)
        session.at_close(lambda: closed.append(candidate.name))
        raise UsageFailed(f"{candidate.name}: its host is not known")

    def broken(run: rollout_runs.Run) -> None:
        raise ZeroDivisionError("of\x1b[2J nothing")

    async with wizard(world) as it:
        await it.open()
        await it.rig.until(lambda: "Rollouts, the newest first" in it.text)
        with monkeypatch.context() as patched:
            patched.setattr(rollout_fleet, "_reached", refuse)
            it.rig.app.run_command("rollout-begin h1")
            await it.rig.until(lambda: any("its host is not known" in one.message for one in it.rig.app._notifications))
            await it.rig.until(lambda: opened and sorted(opened) == sorted(closed))
        monkeypatch.setattr(rollout_runs.Run, "_fleet", broken)
        it.rig.app.run_command("rollout-begin h1")
        await it.rig.until(lambda: "ZeroDivisionError: of␛[2J nothing; this is a fault of the program" in it.text)
