"""What the rollout screen looks like: the list, a watch that somebody else drives, a question of one's own, an end, and no journal."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from iris_core.cli import rollout_fleet, rollout_runs
from iris_core.procedures.approvals import Answer, Unanswered
from iris_core.procedures.events import Gate
from iris_core.procedures.rollout_scope import Candidate
from iris_tui.widgets import plotting
from iris_tui.widgets.pane import State
from providers.fake.rollout_samples import CANDIDATES, NAME, write_sample
from tests.snapshots.test_console_pictures import Snap, Stage, fresh, picture, sizes
from tests.unit.rollout_world import PROCEDURE, Operator, RolloutWorld

SMALL = (80, 24)


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Candidate(*words) for words in CANDIDATES]
    monkeypatch.setattr(rollout_fleet, "candidates", lambda session: found)
    monkeypatch.setattr(rollout_fleet, "_reached", lambda *words: None)


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Stage]:
    """Somebody drives the sample rollout."""
    stage = at(tmp_path)
    write_sample(tmp_path, stage.clock.now_ms())
    with (tmp_path / f"{NAME}.jsonl").open("rb") as driven:
        fcntl.flock(driven, fcntl.LOCK_EX)
        yield stage


def at(folder: Path) -> Stage:
    stage = fresh()
    stage.app.rollouts.journal_dir, stage.app.rollouts.account = str(folder), "ada"
    return stage


async def go(stage: Stage, argument: str = "", state: State = State.READY) -> Any:
    await plotting.load()
    await stage.ready()
    stage.app.go("rollout", argument)
    await stage.until(lambda: stage.app.console_screen is not None and stage.app.console_screen.place[0] == "rollout")
    screen: Any = stage.app.console_screen
    await stage.until(lambda: screen.is_mounted and screen.pane.status.state is state)
    return screen


@sizes
def test_a_watch_that_somebody_else_drives(snap_compare: Snap, watching: Stage, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        screen = await go(stage, NAME)
        await stage.until(lambda: "you look on" in screen.facts.text and screen.has_class("-watching"))

    picture(snap_compare, watching, size, play)


def test_all_rollouts(snap_compare: Snap, watching: Stage) -> None:
    async def play(stage: Stage) -> None:
        screen = await go(stage)
        await stage.until(lambda: "you look on" in screen.facts.text)
        await stage.keys("a")
        await stage.until(lambda: "tpu-west" in screen.text.text and NAME in screen.text.text)

    picture(snap_compare, watching, SMALL, play)


def test_no_such_rollout(snap_compare: Snap, tmp_path: Path) -> None:
    async def play(stage: Stage) -> None:
        await go(stage, "rollout-20260101-000000-0000", State.ERROR)

    stage = at(tmp_path)
    stage.app.rollouts.folder = lambda: Path("/journals")  # type: ignore[method-assign]
    picture(snap_compare, stage, SMALL, play)


class Until(Operator):
    """Answers until a gate."""

    def __init__(self, gate: str) -> None:
        super().__init__()
        self._until = gate

    async def ask(self, gate: Gate) -> Answer:
        if gate.id == self._until:
            raise Unanswered("gone")
        return await super().ask(gate)


def left_at(folder: Path, gate: str, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Stage:
    """A console that goes on with a rollout which was left at that gate."""
    world = RolloutWorld(folder)
    world["h1"].changes = changes
    monkeypatch.setattr(rollout_runs.Run, "_fleet", lambda run: world.fleet(run.account, run.id))
    with suppress(Unanswered):
        asyncio.run(world.run(Until(gate)))
    return at(folder)


async def asked(stage: Stage, gate: str) -> Any:
    screen = await go(stage, PROCEDURE)
    stage.app.run_command(f"rollout-resume {PROCEDURE}")
    await stage.until(lambda: screen.gate.gate is not None and screen.gate.gate.id == gate)
    # Where it scrolls to depends on what there is to scroll.
    await stage.until(lambda: screen.gate.size.height and screen.gate.query_one("#rollout-stop").region.height)
    stage.app.clear_notifications()  # they go by themselves, in their own time, and lie over the question
    await stage.pilot.pause()
    await stage.keys("enter")
    return screen


@sizes
def test_the_question_before_a_restart(
    snap_compare: Snap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    async def play(stage: Stage) -> None:
        screen = await asked(stage, "h1/restart")
        # The keys of the question follow its focus with the next flush.
        await stage.until(lambda: "Wrap" not in screen.keybar.render_line(0).text)

    picture(snap_compare, left_at(tmp_path, "h1/restart", monkeypatch), size, play)


def test_the_question_after_a_watch_that_failed(
    snap_compare: Snap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(stage: Stage) -> None:
        await asked(stage, "h1/failed")

    stage = left_at(tmp_path, "h1/failed", monkeypatch, workers_healthy=1)
    picture(snap_compare, stage, (120, 40), play)


def test_one_that_has_failed(snap_compare: Snap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(stage: Stage) -> None:
        screen = await go(stage, PROCEDURE)
        await stage.until(lambda: "failed: nothing was changed" in screen.text.text)

    world = RolloutWorld(tmp_path)
    world["h1"].refuse_build = "the disk is full"
    asyncio.run(world.run())
    picture(snap_compare, at(tmp_path), SMALL, play)
