"""What Query, Audit and Checkpoints look like, in their states and sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iris_core.contracts import RpcFailed
from iris_core.live.audit_entries import SOURCE
from iris_tui.widgets.pane import State
from providers.fake.clock import FakeClock
from providers.fake.query_samples import AUDITED, KEPT_IN, FakeDatabase, kept_checkpoints
from providers.fake.samples import sample
from screens import checkpoints
from tests.snapshots.test_console_pictures import Snap, Stage, picture, sizes

if TYPE_CHECKING:
    from collections.abc import Callable

MIDDLE = (120, 40)
SMALL = (80, 24)
SQL = "SELECT t.task_id, t.state, w.worker_id FROM tasks t\nJOIN workers w ON t.current_worker_id = w.worker_id\nWHERE w.slice_id = 's-7' AND t.state IN (2, 3, 9)"


def asking() -> tuple[Stage, FakeDatabase]:
    clock = FakeClock()
    client = sample(clock)
    stage = Stage(client, clock)
    return stage, FakeDatabase(client).attach()


async def go(stage: Stage, name: str, argument: str = "") -> Any:
    await stage.ready()
    stage.app.go(name, argument)
    await stage.until(lambda: stage.app.console_screen is not None and stage.app.console_screen.place[0] == name)
    screen: Any = stage.app.console_screen
    await stage.until(lambda: screen.pane is not None)
    return screen


async def in_state(stage: Stage, screen: Any, state: State) -> None:
    await stage.until(lambda: screen.pane.status.state is state)
    if screen.place[0] == "query":
        screen.editor.cursor_blink = False


# --- query -----------------------------------------------------------------------------------------------------------


@sizes
def test_query(snap_compare: Snap, size: tuple[int, int]) -> None:
    stage, _ = asking()

    async def play(stage: Stage) -> None:
        screen = await go(stage, "query", SQL)
        await in_state(stage, screen, State.READY)
        await stage.until(lambda: screen.store.order)
        await stage.keys("space")

    picture(snap_compare, stage, size, play)


def _holds(database: FakeDatabase) -> None:
    database.hold()


def _fails(database: FakeDatabase) -> None:
    database.error = RpcFailed("INVALID_ARGUMENT", 'SQL: near "JOIN": syntax error', code="query_syntax", position=52)


def _caps(database: FakeDatabase) -> None:
    database.truncated = True


def _nothing(database: FakeDatabase) -> None:
    database.rows = []


@pytest.mark.parametrize(
    ("how", "state"),
    [(_holds, State.LOADING), (_fails, State.ERROR), (_caps, State.PARTIAL), (_nothing, State.EMPTY)],
    ids=lambda value: value.value if isinstance(value, State) else "",
)
def test_query_in_its_states(snap_compare: Snap, how: Callable[[FakeDatabase], None], state: State) -> None:
    stage, database = asking()
    how(database)

    async def play(stage: Stage) -> None:
        await in_state(stage, await go(stage, "query", SQL), state)

    picture(snap_compare, stage, SMALL, play)


def test_query_stale(snap_compare: Snap) -> None:
    stage, database = asking()

    async def play(stage: Stage) -> None:
        screen = await go(stage, "query", SQL)
        await in_state(stage, screen, State.READY)
        _fails(database)
        screen.do_run()
        await in_state(stage, screen, State.STALE)

    picture(snap_compare, stage, MIDDLE, play)


def test_query_templates(snap_compare: Snap) -> None:
    stage, _ = asking()

    async def play(stage: Stage) -> None:
        screen = await go(stage, "query")
        await in_state(stage, screen, State.EMPTY)
        await stage.keys("f9")

    picture(snap_compare, stage, SMALL, play)


# --- audit -----------------------------------------------------------------------------------------------------------


def audited(*lines: str) -> Stage:
    clock = FakeClock()
    client = sample(clock)
    client.log(SOURCE, "the loop is late", *lines, epoch_ms=clock.now_ms() - 90_000)
    return Stage(client, clock)


@pytest.mark.parametrize("size", [SMALL, MIDDLE], ids=lambda size: f"{size[0]}x{size[1]}")
def test_audit(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def play(stage: Stage) -> None:
        screen = await go(stage, "audit")
        await in_state(stage, screen, State.READY)
        await stage.until(lambda: len(screen.store.order) == 3)

    picture(snap_compare, audited(*AUDITED), size, play)


def test_audit_empty(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        await in_state(stage, await go(stage, "audit"), State.EMPTY)

    picture(snap_compare, audited(), SMALL, play)


def test_audit_entry(snap_compare: Snap) -> None:
    async def play(stage: Stage) -> None:
        screen = await go(stage, "audit")
        await stage.until(lambda: len(screen.store.order) == 3)
        await stage.keys("enter")
        page: Any = stage.app.screen
        await stage.until(lambda: page.text.text)

    picture(snap_compare, audited(*AUDITED), MIDDLE, play)


@pytest.mark.parametrize("state", [State.LOADING, State.STALE, State.ERROR], ids=lambda state: state.value)
@pytest.mark.parametrize("name", ["audit", "checkpoints"])
def test_without_an_answer(snap_compare: Snap, name: str, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "read", lambda place: (KEPT_IN, kept_checkpoints(FakeClock().now_ms()), ""))
    stage = audited(*AUDITED)

    async def play(stage: Stage) -> None:
        await stage.ready()
        if state is State.STALE:
            screen = await go(stage, name, KEPT_IN if name == "checkpoints" else "")
            await in_state(stage, screen, State.READY)
            stage.client.break_connection()
            if name == "audit":
                stage.clock.advance(60)
        else:
            if state is State.LOADING:
                stage.client.freeze()
            else:
                stage.client.break_connection()
            stage.app.go(name)
            screen = stage.app.console_screen
            await stage.until(lambda: screen is not None and getattr(screen, "pane", None) is not None)
        await in_state(stage, screen, state)

    picture(snap_compare, stage, SMALL, play)


# --- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "state"),
    [(SMALL, State.READY), (MIDDLE, State.READY), (SMALL, State.EMPTY), (SMALL, State.PARTIAL)],
    ids=lambda value: value.value if isinstance(value, State) else f"{value[0]}x{value[1]}",
)
def test_checkpoints(snap_compare: Snap, size: tuple[int, int], state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [] if state is State.EMPTY else kept_checkpoints(FakeClock().now_ms())
    wrong = "rollout-record.json cannot be understood" if state is State.PARTIAL else ""
    monkeypatch.setattr(checkpoints, "read", lambda place: (KEPT_IN, rows, wrong))
    clock = FakeClock()

    async def play(stage: Stage) -> None:
        await in_state(stage, await go(stage, "checkpoints", KEPT_IN), state)

    picture(snap_compare, Stage(sample(clock), clock), size, play)
