"""The Overview: what is wrong is said first and in words, every line leads on, and nothing is lost when the line breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iris_core.live.fleet import pulse
from iris_core.live.fleet_history import FleetHistory
from iris_core.wire.gen.iris.v1 import pipeline_pb2, stats_pb2
from iris_core.wire.gen.iris.v1 import watch_rows_pb2 as rows
from iris_tui.widgets.pane import State
from providers.fake.clock import FakeClock
from providers.fake.fleet_samples import MINUTE, controller, fleet, group, put_pulse, quiet_fleet
from providers.fake.samples import sample
from screens.overview import OverviewScreen
from tests.unit.test_console_app import Rig, console

if TYPE_CHECKING:
    from iris_core.live.fleet import Pulse

NOW = 1_767_322_800_000


def lines(**given: Any) -> dict[str, Pulse]:
    found = pulse(given.get("fleet"), given.get("controller"), given.get("groups", ()), NOW)
    return {line.id: line for line in found}


def sentences(**given: Any) -> list[str]:
    return [line.text for line in lines(**given).values() if not line.label and not line.id.startswith("pending/")]


# --- what is said ----------------------------------------------------------------------------------------------------


def test_what_is_wrong_is_a_sentence_and_comes_first() -> None:
    blocked = group("v5e-16", quota_exceeded_until_ms=NOW + 10 * MINUTE, quota_reason="no more [v5e]")
    backoff = group("v6e", backoff_until_ms=NOW + MINUTE, consecutive_failures=4, failure_reason="stockout")
    found = list(lines(fleet=fleet(NOW), controller=controller(NOW), groups=[backoff, blocked]).values())
    texts = [line.text for line in found]
    assert texts[:4] == [
        "3 workers DEAD of 32",
        "1 worker DEGRADED of 32",
        "quota block on v5e-16 for 10m: no more [v5e]",
        "v6e is in backoff for 1m after 4 failures: stockout",
    ]
    assert found[4].label == "Tasks"
    assert (found[0].screen, found[0].argument) == ("workers", "health=dead")
    assert (found[2].screen, found[2].argument) == ("capacity", "v5e-16")


def test_a_quiet_cluster_says_that_nothing_is_wrong() -> None:
    assert sentences(fleet=quiet_fleet(NOW)) == ["Nothing is wrong that the controller knows of."]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"problems": ["fenced by ctl-1"]}, "controller not ready: fenced by ctl-1"),
        ({"store_error": "disk full"}, "the controller cannot save: disk full"),
        ({"lag": rows.LoopLag(p99_ms=400, samples=5)}, "loop is 400 ms late"),
        ({"store": pipeline_pb2.StoreHealth(state="down", problem="killed")}, "the log store is down: killed"),
        ({"shipping_lag_ms": 300_000, "shipping_lag_worker": "w-7"}, "lines of worker w-7 arrive 5m late"),
        ({"checkpoint": rows.CheckpointCondition(failure="403")}, "the last checkpoint failed: 403"),
        ({"stats_rows_lost": 12}, "12 rows of measurements lost"),
        ({"stats_rows_lost": 1}, "1 row of measurements lost"),
    ],
)
def test_each_trouble_of_the_controller_is_said(fields: dict[str, object], words: str) -> None:
    assert any(words in text for text in sentences(controller=controller(NOW, **fields)))


def test_a_log_store_of_which_nothing_is_known_is_a_trouble() -> None:
    row = controller(NOW)
    row.ClearField("store")
    assert sentences(controller=row, fleet=quiet_fleet(NOW)) == ["nothing is known of the log store"]


def test_work_that_can_never_run_is_a_trouble_and_leads_to_why() -> None:
    row = quiet_fleet(NOW)
    row.never_fits.CopyFrom(rows.NeverFits(tasks=4, jobs=2, job_id="/ada/huge", reason="needs 4096 cores"))
    assert sentences(fleet=row) == ["4 tasks can never run here: /ada/huge and 1 more job; needs 4096 cores"]
    assert (lines(fleet=row)["never"].screen, lines(fleet=row)["never"].argument) == ("explain", "/ada/huge")
    row.never_fits.unjudged = 9
    assert sentences(fleet=row)[0].startswith("at least 4 tasks")


def test_workers_that_get_no_work_are_a_trouble_and_lead_to_what_brings_them_back() -> None:
    row = quiet_fleet(NOW)
    row.workers_excluded = 1
    assert sentences(fleet=row) == ["1 worker gets no work after failing to stage"]
    found = lines(fleet=row)["workers/excluded"]
    assert (found.screen, found.argument) == ("workers", "health=healthy excluded=yes")
    row.workers_excluded = 3
    assert sentences(fleet=row) == ["3 workers get no work after failing to stage"]


def test_an_overdue_checkpoint_is_said() -> None:
    late = rows.CheckpointCondition(last_at_ms=NOW - 90 * MINUTE, next_due_ms=NOW - 60 * MINUTE)
    row = controller(NOW)
    row.checkpoint.CopyFrom(late)
    assert sentences(controller=row) == ["a checkpoint is 1h overdue"]


def test_the_oldest_of_each_band_has_its_age_and_its_job() -> None:
    found = lines(fleet=fleet(NOW))
    assert found["pending/production"].text == "1 production, the oldest 42m  /ada/train-llama"
    assert found["pending/batch"].argument == "band=batch"
    assert found["device/gpu/h100"].share == 56 / 64
    assert "9 failures, 3 preemptions" in found["ends"].text


def test_names_that_a_user_chose_cannot_draw() -> None:
    row = fleet(NOW)
    row.pending[0].job_id = "/ada/\x1b[31mred\nline"
    assert "\x1b" not in lines(fleet=row)["pending/production"].text
    assert "\n" not in lines(fleet=row)["pending/production"].text


# --- what it was -----------------------------------------------------------------------------------------------------


def test_history_is_sampled_now_and_then_and_has_gaps() -> None:
    history = FleetHistory()
    for second in range(20):
        history.take(fleet(NOW), NOW + second * 1000)
    assert [point.value for point in history.waiting.points] == [81.0] * 4
    history.gap(NOW + 20_000)
    history.take(fleet(NOW), NOW + 90_000)
    assert [point.value for point in history.running.points][-2:] == [None, 100.0]
    assert len(history.failures) == 60
    assert history.failures.points[-2].value == 1.0


def test_what_the_log_store_has_goes_before() -> None:
    history = FleetHistory()
    history.take(fleet(NOW), NOW)
    answer = stats_pb2.QueryResponse(row_count=3)
    times = [NOW - 600_000, NOW - 60_000, NOW - 30_000]
    for name, values in {"at": times, "pending": [4, 5, 6], "running": [7, 7, 8]}.items():
        answer.columns.add(name=name, type=stats_pb2.COLUMN_TYPE_INT64, integers=values)
    answer.columns.add(name="oldest_pending_age_ms", type=stats_pb2.COLUMN_TYPE_INT64, integers=[0, 0, 1000], nulls=[0])
    history.fill(answer)
    assert [point.value for point in history.waiting.points] == [4.0, None, 5.0, 6.0, 81.0], "a gap where nobody wrote"
    assert [point.value for point in history.wait_ms.points][:4] == [0.0, None, 0.0, 1000.0]
    with pytest.raises(ValueError, match="other columns"):
        history.fill(stats_pb2.QueryResponse())


# --- the screen ------------------------------------------------------------------------------------------------------


async def opened(rig: Rig) -> OverviewScreen:
    rig.app.go("overview")
    await rig.until(lambda: isinstance(rig.app.screen, OverviewScreen) and rig.app.screen.store.order)
    screen = rig.app.screen
    assert isinstance(screen, OverviewScreen)
    return screen


@pytest.mark.asyncio
async def test_everything_is_on_one_small_screen() -> None:
    clock = FakeClock()
    client = sample(clock)
    put_pulse(client)
    async with console(client, size=(80, 24)) as rig:
        await opened(rig)
        await rig.until(lambda: "waiting tasks" in rig.screen_text())
        text = rig.screen_text()
        assert "3 workers DEAD of 32" in text
        assert "quota block on v5e-16 for" in text
        for words in (
            "Waiting",
            "Running",
            "CPU",
            "h100",
            "Workers",
            "Last hour",
            "Autoscaler",
            "Checkpoint",
            "Log store",
            "failures a minute",
        ):
            assert words in text
        assert rig.client.called("Query")


@pytest.mark.asyncio
async def test_enter_leads_to_the_list_behind_a_line() -> None:
    clock = FakeClock()
    client = sample(clock)
    put_pulse(client)
    async with console(client) as rig:
        screen = await opened(rig)
        assert screen.table.move_to("running")
        await rig.keys("enter")
        await rig.until(lambda: rig.app.screen is rig.jobs)
        assert rig.jobs.filter is not None
        assert rig.jobs.filter.text == "state=running"
        await rig.keys("left_square_bracket")
        await rig.until(lambda: rig.app.screen is screen)
        assert screen.table.cursor_id == "running"


@pytest.mark.asyncio
async def test_a_broken_connection_keeps_the_pulse_and_says_how_old_it_is() -> None:
    clock = FakeClock()
    client = sample(clock)
    put_pulse(client)
    async with console(client) as rig:
        screen = await opened(rig)
        await rig.until(lambda: screen.pane.status.state is State.READY)
        client.break_connection()
        await rig.until(lambda: screen.pane.status.state is State.STALE)
        assert "3 workers DEAD" in rig.screen_text()
        client.restore()
        rig.clock.advance(20)
        await rig.until(lambda: screen.pane.status.state is State.READY)
        assert any(point.value is None for point in screen.history.waiting.points)


@pytest.mark.asyncio
async def test_a_controller_without_a_pulse_says_so() -> None:
    async with console() as rig:
        rig.app.go("overview")
        await rig.until(lambda: "sends no pulse" in rig.screen_text())


@pytest.mark.asyncio
async def test_a_trouble_that_ends_goes_away_and_the_cursor_stays() -> None:
    clock = FakeClock()
    client = sample(clock)
    put_pulse(client)
    async with console(client) as rig:
        screen = await opened(rig)
        assert screen.table.move_to("checkpoint")
        well = fleet(client.now_ms)
        del well.workers[1:]
        client.put(well)
        await rig.until(lambda: "workers/dead" not in screen.store.order)
        assert screen.table.cursor_id == "checkpoint"
        assert "DEAD" not in rig.screen_text()


@pytest.mark.asyncio
@pytest.mark.parametrize("chosen", [False, True])
async def test_nothing_is_wrong_is_never_said_beside_a_trouble(chosen: bool) -> None:
    """The cursor is on the line that says so when the trouble comes."""
    clock = FakeClock()
    client = sample(clock)
    client.put(quiet_fleet(client.now_ms))
    client.put(controller(client.now_ms))
    async with console(client) as rig:
        screen = await opened(rig)
        await rig.until(lambda: screen.table.cursor_id == "well")
        if chosen:
            screen.table.touch()
        client.put(controller(client.now_ms, store=pipeline_pb2.StoreHealth(state="down", problem="silent")))
        await rig.until(lambda: "the log store is down: silent" in rig.screen_text())
        assert "Nothing is wrong" not in rig.screen_text()
        assert screen.table.cursor_id == "store"
