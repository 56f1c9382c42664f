"""What logs look like: the pane in each of its states, a find, a filter that is wrong, several logs in one view, one line whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_core.contracts import RpcFailed
from iris_tui.pages import TextPage
from iris_tui.widgets.log_pane import LogPane
from iris_tui.widgets.pane import State
from providers.fake.clock import FakeClock
from providers.fake.samples import sample
from screens.logs import LogsScreen
from tests.snapshots.test_console_pictures import SIZES, Snap, Stage, picture

if TYPE_CHECKING:
    from collections.abc import Callable

JOB = "/ada/train-llama"
sizes = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")


def fresh() -> Stage:
    clock = FakeClock()
    client = sample(clock)
    for number in range(60):
        client.log(f"{JOB}/1:0", f"rank 1 step {number}", epoch_ms=client.now_ms - (60 - number) * 900, level=2)
    worker = client.pipeline.workers.add(worker_id="w0", attached=True)
    worker.shipper.lag_ms = 1300
    return Stage(client, clock)


async def below_the_table(stage: Stage) -> LogPane:
    await stage.ready()
    await stage.row(JOB)
    await stage.keys("l")
    await stage.until(lambda: stage.jobs.query(LogPane) and stage.jobs.query_one(LogPane).view.is_whole)
    pane = stage.jobs.query_one(LogPane)
    await stage.until(lambda: stage.app.focused is pane.lines and pane.view.pipeline.account.known)
    return pane


async def alone(stage: Stage, subject: str = JOB) -> LogPane:
    await stage.ready()
    stage.app.go("logs", subject)
    await stage.until(lambda: isinstance(stage.app.screen, LogsScreen))
    screen = stage.app.screen
    assert isinstance(screen, LogsScreen)
    await stage.until(lambda: stage.app.focused is screen.pane.lines)
    return screen.pane


async def known(stage: Stage, pane: LogPane, condition: Callable[[], object] = lambda: True) -> None:
    await stage.until(lambda: pane.view.is_whole and pane.view.pipeline.account.known and condition())


@sizes
def test_logs(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        pane = await below_the_table(stage)
        await stage.keys("slash", *"rank2", "enter")
        await stage.until(lambda: pane.hit is not None and not pane.seeking)

    picture(snap_compare, fresh(), size, play)


@sizes
def test_two_tasks(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        pane = await alone(stage, f"{JOB}/0 {JOB}/1")
        await stage.keys("t")
        await known(stage, pane)

    picture(snap_compare, fresh(), size, play)


def test_wrong_pattern(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        await below_the_table(stage)
        await stage.keys("ampersand", *"-C 2 loss [", "enter")
        await stage.until(lambda: stage.jobs.prompt.has_class("-wrong"))

    picture(snap_compare, fresh(), (120, 40), play)


def test_filter_with_context(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        pane = await alone(stage)
        stage.app.run_command("grep -C 1 rank 1 step .5")
        await known(stage, pane, lambda: pane.view.query.regex)
        await stage.keys("up", "up", "m")

    picture(snap_compare, fresh(), (120, 40), play)


def test_one_line(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        stage.client.log(f"{JOB}/0:0", 'metrics {"loss": 0.25, "lr": {"head": 1e-4}}', epoch_ms=stage.client.now_ms)
        pane = await alone(stage)
        await known(stage, pane)
        await stage.keys("enter")
        await stage.until(lambda: isinstance(stage.app.screen, TextPage) and stage.app.screen.text.count())

    picture(snap_compare, fresh(), (120, 40), play)


def test_loading(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        stage.client.freeze()
        pane = await alone(stage)
        await stage.until(lambda: pane.status.state is State.LOADING)

    picture(snap_compare, fresh(), (80, 24), play)


def test_empty(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        stage.client.lines.clear()
        stage.client.pipeline.problems.append("worker w0 is 75 s behind with its log lines")
        pane = await alone(stage)
        await stage.until(lambda: pane.view.why and pane.status.state is State.EMPTY)

    picture(snap_compare, fresh(), (80, 24), play)


def test_error(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        await stage.ready()
        stage.client.fail("OpenLogView", RpcFailed("UNAVAILABLE", "the log store is starting"))
        pane = await alone(stage)
        await stage.until(lambda: pane.status.state is State.ERROR)

    picture(snap_compare, fresh(), (80, 24), play)


def test_stale(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        pane = await alone(stage)
        await known(stage, pane)
        stage.client.freeze()
        stage.clock.advance(95)
        await stage.until(lambda: pane.status.state is State.STALE)

    picture(snap_compare, fresh(), (80, 24), play)


def test_partial(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        pane = await alone(stage)
        await known(stage, pane)
        pane.view.facts.capped = "1,204 older lines were removed by retention, up to seq 88"
        await stage.until(lambda: pane.status.state is State.PARTIAL)

    picture(snap_compare, fresh(), (80, 24), play)
