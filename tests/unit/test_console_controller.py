"""The Controller screen: what is wrong with the process, how it is, and what can be asked of it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from iris_core.live.controller_words import condition
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import checkpoints_pb2, pipeline_pb2
from iris_core.wire.gen.iris.v1 import watch_rows_pb2 as rows
from iris_tui.widgets.pane import State
from providers.fake.clock import FakeClock
from providers.fake.fleet_samples import controller
from providers.fake.profile_samples import FakeProfiles
from providers.fake.samples import sample
from screens.controller import ControllerScreen
from screens.profiles import ProfilesScreen
from tests.unit.test_console_app import Rig, console

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOW = 1_767_322_800_000


def text(row: rows.ControllerRow) -> dict[str, str]:
    return {line.id: line.text for line in condition(row, NOW)}


def test_everything_the_row_has_is_in_words() -> None:
    found = text(controller(NOW))
    assert found["well"] == "The controller is ready, and knows of nothing wrong with itself."
    assert found["version"] == "0.1.0, release 4f5e6d7c8b9a  boot 00000000000000b7"
    assert "ctl-0 pid 4711, Python 3.11.9, state in /var/lib/iris" in found["process"]
    assert found["cpu"] == "0.18 of 4 cores, 14 threads, 93 files"
    assert found["loop"] == "late by 0.4 ms (p50), 3.1 ms (p99), 18.0 ms at most  of the last 1m"
    assert found["queue"] == "2 commands wait, 0 are being written"
    assert "the last planned in 4.2 ms, written in 2.8 ms" in found["batches"]
    assert found["checkpoint"] == "12m ago, 3.4MB, the next in 18m  in gs://lab-state/controller-state"
    assert found["store"].startswith("serving, 12GB of 100GB")


def test_the_address_that_another_terminal_needs_is_there() -> None:
    lines = {line.id: line.text for line in condition(controller(NOW), NOW, "http://127.0.0.1:46819")}
    assert lines["address"] == "http://127.0.0.1:46819  for --controller-url"
    assert "address" not in text(controller(NOW))


def test_background_work_is_named_and_what_ended_says_why() -> None:
    row = controller(NOW, background=[rows.BackgroundTask(name="leases", ended="OSError: [bad]")])
    found = text(row)
    assert found["background"] == "3 go on  checkpoints, loop, timers"
    assert found["ended/leases"] == "leases ended: OSError: [bad]"


def test_what_is_wrong_comes_first() -> None:
    store = pipeline_pb2.StoreHealth(
        state="refusing", problem="disk full", shipping=pipeline_pb2.ShippingHealth(state="stopped", problem="403")
    )
    row = controller(NOW, problems=["fenced"], store_error="I/O error", store=store)
    sentences = [line.text for line in condition(row, NOW) if not line.label][:4]
    assert sentences == [
        "controller not ready: fenced",
        "the controller cannot save: I/O error",
        "the log store is refusing: disk full",
        "the log store's copies are stopped: 403",
    ]


@asynccontextmanager
async def screen(
    *, size: tuple[int, int] = (120, 40), read_only: bool = False
) -> AsyncIterator[tuple[Rig, ControllerScreen]]:
    clock = FakeClock()
    client = sample(clock)
    client.put(controller(client.now_ms))
    FakeProfiles(client).attach()
    async with console(client, size=size, read_only=read_only) as rig:
        rig.app.go("controller")
        await rig.until(lambda: isinstance(rig.app.screen, ControllerScreen) and rig.app.screen.store.order)
        found = rig.app.screen
        assert isinstance(found, ControllerScreen)
        yield rig, found


@pytest.mark.asyncio
async def test_it_lives_with_the_row_and_ages_without_it() -> None:
    async with screen() as (rig, shown):
        await rig.until(lambda: shown.pane.status.state is State.READY and "loop late (p99)" in rig.screen_text())
        rig.client.put(controller(rig.clock.now_ms(), queued_commands=70))
        await rig.until(lambda: "72 commands wait" in rig.screen_text() or "70 commands wait" in rig.screen_text())
        rig.client.break_connection()
        await rig.until(lambda: shown.pane.status.state is State.STALE)
        assert "release 4f5e6d7c8b9a" in rig.screen_text()


@pytest.mark.asyncio
async def test_a_checkpoint_is_taken_from_its_menu_without_a_gate() -> None:
    async with screen() as (rig, _):
        method = "ControllerService/BeginCheckpoint"
        rig.client.plans.harmless.add(method)
        answer = checkpoints_pb2.BeginCheckpointResponse(checkpoint_path="gs://lab-state/1", job_count=3, task_count=9)
        rig.client._begin_checkpoint = lambda request: answer  # type: ignore[attr-defined]
        await rig.keys("x", "k")
        await rig.until(lambda: rig.client.called("BeginCheckpoint"))
        await rig.until(lambda: "gs://lab-state/1" in rig.screen_text())


@pytest.mark.asyncio
async def test_it_can_be_profiled_and_its_profiles_are_a_key_away() -> None:
    async with screen() as (rig, _):
        await rig.keys("p")
        await rig.until(
            lambda: isinstance(rig.app.screen, ProfilesScreen) and rig.app.screen.store.order == ["p-html-1"]
        )
        await rig.keys("left_square_bracket")
        await rig.until(lambda: isinstance(rig.app.screen, ControllerScreen))
        rig.app.run_command("controller-capture threads")
        await rig.until(lambda: rig.client.called("ProfileTask"))
        assert rig.client.called("ProfileTask")[0].target == "/system/controller"


@pytest.mark.asyncio
async def test_a_read_only_console_is_offered_no_change() -> None:
    async with screen(read_only=True, size=(80, 24)) as (rig, shown):
        assert [action.id for action in shown.menu_entries("controller", marked=False)] == [
            "controller.logs",
            "controller.profiles",
        ]
        rig.app.run_command("checkpoint-now")
        await rig.until(lambda: "console is read-only" in rig.screen_text())
        assert not rig.client.called("BeginCheckpoint")


@pytest.mark.asyncio
async def test_what_is_asked_of_it_can_be_asked_from_everywhere_unless_nothing_may_change() -> None:
    for read_only in (False, True):
        client = sample(FakeClock())
        FakeProfiles(client).attach()
        async with console(client, read_only=read_only) as rig:
            if read_only:
                with pytest.raises(ModelError, match="read-only"):
                    rig.app.run_command("capture /ada/train-llama/1 threads")
                assert not client.called("ProfileTask")
            else:
                rig.app.run_command("capture /ada/train-llama/1 threads")
                await rig.until(lambda client=client: client.called("ProfileTask"))  # type: ignore[misc]


@pytest.mark.asyncio
async def test_a_controller_that_says_nothing_of_itself() -> None:
    async with console() as rig:
        rig.app.go("controller")
        await rig.until(lambda: "says nothing of itself" in rig.screen_text())
