"""The Checkpoints screen: what is there, which one a rollback takes, opening one beside the live cluster, and taking one now."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from iris_core.model.errors import ModelError
from iris_core.procedures import record
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_tui.gate import MenuScreen
from iris_tui.widgets.pane import State
from providers.fake.clock import FakeClock
from providers.fake.samples import sample
from providers.objects import open_store
from screens.checkpoints import CheckpointsScreen
from tests.unit.checkpoint_world import T0, checkpoint, make_state
from tests.unit.test_console_app import Rig, console

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.asyncio


class Checkpoints(Rig):
    folder: Path

    @property
    def list(self) -> CheckpointsScreen:
        screen = self.app.console_screen
        assert isinstance(screen, CheckpointsScreen)
        return screen


def fill(folder: Path) -> None:
    """Two that are valid, one that was never finished, and a record that names the older one."""
    store = open_store(f"file://{folder / 'remote'}")
    state = make_state(folder / "state", jobs=3)
    for n in range(3):
        checkpoint(state, store, T0 + n)
    (folder / "remote" / "controller-state" / str(T0 + 1) / "manifest.json").unlink()
    wanted = record.RolloutRecord(record.Phase.COMMITTED, "new", "old", f"controller-state/{T0}", T0)
    record.write(store, wanted, record.read(store))


@asynccontextmanager
async def checkpoints(folder: Path, *, full: bool = True) -> AsyncIterator[Checkpoints]:
    if full:
        fill(folder)
    else:
        (folder / "remote").mkdir()
    client = sample(FakeClock())
    scripted: Any = client
    status = client._get_cluster_status(pb.GetClusterStatusRequest())
    status.state_dir = str(folder / "remote")
    scripted._get_cluster_status = lambda request: status
    async with console(client) as rig:
        rig.app.go("checkpoints")
        found = Checkpoints(rig.app, rig.pilot, client, rig.clock)
        await found.until(lambda: isinstance(rig.app.screen, CheckpointsScreen) and found.list.source.loaded)
        yield found


async def test_each_is_listed_with_what_is_wrong_and_what_a_rollback_takes(tmp_path: Path) -> None:
    async with checkpoints(tmp_path) as rig:
        await rig.until(lambda: len(rig.list.store.order) == 3)
        rows = [rig.list.store.rows[name].value for name in rig.list.store.order]
        assert [row.epoch_ms for row in rows] == [T0 + 2, T0 + 1, T0]
        assert [row.rollback for row in rows] == [False, False, True]
        assert [bool(row.fault) for row in rows] == [False, True, False]
        assert rows[0].schema and rows[0].source == "local"
        await rig.until(lambda: "3 checkpoints" in rig.screen_text() and "a rollback takes it" in rig.screen_text())
        assert f"in {rows[0].url.partition('/controller-state')[0]}" in str(rig.list.title_runs())
        rig.list.set_filter("state:rollback")
        await rig.until(lambda: len(rig.list.store.order) == 1)


async def test_one_is_opened_beside_the_cluster_and_the_way_back_is_said(tmp_path: Path) -> None:
    async with checkpoints(tmp_path) as rig:
        await rig.until(lambda: len(rig.list.store.order) == 3)
        assert "[ there comes back here" in rig.screen_text()
        opened: list[str] = []
        rig.app.open_checkpoint = opened.append  # type: ignore[method-assign,assignment]
        await rig.keys("enter")
        assert opened == [f"file://{tmp_path}/remote/controller-state/{T0 + 2}"]
        await rig.keys("down")
        with pytest.raises(ModelError, match="cannot be opened"):
            rig.list.do_open("")
        await rig.until(lambda: "It is never chosen" in rig.screen_text())


async def test_one_is_taken_now_from_the_menu(tmp_path: Path) -> None:
    async with checkpoints(tmp_path) as rig:
        await rig.until(lambda: len(rig.list.store.order) == 3)
        await rig.keys("x")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen))
        await rig.keys("k")
        await rig.until(
            lambda: rig.client.called("Plan") and rig.client.called("Plan")[0].method.endswith("BeginCheckpoint")
        )


async def test_where_there_is_none_it_says_how_one_is_made(tmp_path: Path) -> None:
    async with checkpoints(tmp_path, full=False) as rig:
        await rig.until(lambda: rig.list.pane.status.state is State.EMPTY)
        assert "There is no checkpoint in" in rig.screen_text() and ":checkpoint-now" in rig.screen_text()


async def test_a_place_that_is_not_known_is_asked_for_and_may_be_named(tmp_path: Path) -> None:
    fill(tmp_path)
    async with console() as rig:
        rig.app.go("checkpoints")
        screen: Any = rig.app.console_screen
        await rig.until(lambda: screen.pane is not None and screen.pane.status.state is State.ERROR)
        await rig.until(lambda: ":checkpoints gs://bucket/path names the place" in " ".join(rig.screen_text().split()))
        rig.app.run_command(f"checkpoints {tmp_path / 'remote'}")
        await rig.until(lambda: len(screen.store.order) == 3)


async def test_of_another_place_no_row_of_the_one_before_is_shown_not_even_under_the_cursor(tmp_path: Path) -> None:
    async with checkpoints(tmp_path) as rig:
        await rig.until(lambda: len(rig.list.store.order) == 3)
        (tmp_path / "elsewhere").mkdir()
        rig.app.run_command(f"checkpoints {tmp_path / 'elsewhere'}")
        await rig.until(lambda: "There is no checkpoint in" in rig.screen_text())
        assert not rig.list.store.rows
