"""The console on a checkpoint: what it says while it opens, what it shows then, and what it refuses."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_controller.checkpoint.opening import Phase
from iris_controller.offline_client import OfflineAsyncClient, Told, open_checkpoint, spawn
from iris_core.contracts import ConnectFailed, RpcFailed, UsageFailed
from iris_core.live.watch import Link
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import controller_pb2
from iris_tui import registry
from iris_tui.actions import ACTIONS, BY_ID
from iris_tui.actions.live import LIVE
from iris_tui.app import IrisApp
from iris_tui.glyphs import UNICODE
from iris_tui.list_screen import ListScreen
from iris_tui.offline import OfflineSession, OpeningScreen, checkpoint_text, offline_session, progress_text, title_of
from iris_tui.session import Session
from iris_tui.widgets.header import link_text
from iris_tui.widgets.pane import State
from providers.fake.clock import FakeClock
from providers.fake.samples import sample
from providers.objects import open_store
from screens.jobs import JobsScreen
from tests.unit.checkpoint_world import T0, add_machines, checkpoint, make_state
from tests.unit.console_waits import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from textual.pilot import Pilot

    from iris_core.contracts import AsyncClient

pytestmark = pytest.mark.asyncio
HOUR_MS = 3_600_000


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The folder of a checkpoint of five finished jobs."""
    made = checkpoint(make_state(tmp_path / "state", jobs=5), open_store(f"file://{tmp_path}/remote"), T0 + HOUR_MS)
    return tmp_path / "remote" / "controller-state" / str(made.epoch_ms)


class Rig:
    def __init__(self, app: IrisApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    def text(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.app.screen._compositor.render_strips())

    async def until(self, condition: Callable[[], object]) -> None:
        await until(self.app, self.pilot, condition)

    async def until_rows(self, count: int) -> JobsScreen:
        def shown() -> bool:
            screen = self.app.screen
            return isinstance(screen, JobsScreen) and len(screen.store.order) == count

        await self.until(shown)
        assert isinstance(self.app.screen, JobsScreen)
        return self.app.screen

    @property
    def session(self) -> OfflineSession:
        assert isinstance(self.app.session, OfflineSession)
        return self.app.session


@asynccontextmanager
async def console(session: Session, **options: object) -> AsyncIterator[Rig]:
    app = IrisApp(session, glyphs=UNICODE, **options)  # type: ignore[arg-type]
    async with app.run_test(size=(120, 30), notifications=True) as pilot:
        yield Rig(app, pilot)


class Held:
    """Opens a checkpoint, and stays in the middle of it until it is let go or given up."""

    def __init__(self) -> None:
        self.reached, self.go = asyncio.Event(), asyncio.Event()
        self.given_up = False

    async def open(self, place: str, tell: Callable[[Told], None]) -> OfflineAsyncClient:
        tell(("unpacking", 50, 100))
        self.reached.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.given_up = True
            raise
        return await open_checkpoint(place, tell)


async def test_the_frame_says_how_far_it_is_and_then_shows_the_jobs(saved: Path) -> None:
    held = Held()
    async with console(offline_session(str(saved), opener=held.open)) as rig:
        await rig.until(held.reached.is_set)
        await rig.until(lambda: "50 %" in rig.text())
        text = rig.text()
        assert f"Opening{saved}" in "".join(text.split()), "a long path takes several lines"
        assert "unpacking" in text and "Esc gives it up" in text
        assert "OFFLINE  opening a checkpoint" in text
        with pytest.raises(ModelError, match="not open yet"):
            rig.app.go("jobs")
        held.go.set()
        await rig.until_rows(5)
        await rig.until(lambda: "/u/job4" in rig.text())
        text = rig.text()
        assert "OFFLINE  checkpoint 2023-11-14 23:13 UTC (" in text and "old)" in text
        assert "LIVE" not in text and "STALE" not in text
        assert "lab (checkpoint)" in text.splitlines()[0], "whose it is, not the number of its folder"
        assert "Describe" in text.splitlines()[-1] and "Logs" not in text.splitlines()[-1], (
            "what would be refused is not offered"
        )
        assert "60m" in text or "1h" in text, "ages are those of the checkpoint's time"
        assert rig.session.opened is not None and not rig.session.opened.cached


@pytest.mark.parametrize("key", ["escape", "q"])
async def test_it_is_given_up_with_a_key(saved: Path, key: str) -> None:
    held = Held()
    async with console(offline_session(str(saved), opener=held.open)) as rig:
        await rig.until(held.reached.is_set)
        await rig.pilot.press(key)
        await rig.until(lambda: rig.app._exit and held.given_up)
        assert rig.app.return_code == 0


async def test_a_process_that_is_given_up_leaves_nothing_behind(saved: Path) -> None:
    popen = spawn(str(saved))
    assert popen.stdin is not None and popen.stdout is not None
    popen.stdin.close()
    assert await asyncio.to_thread(popen.wait, 30) == 0
    popen.stdout.close()
    assert not [path for path in cache().glob(".*")]


def cache() -> Path:
    return Path(os.environ["XDG_CACHE_HOME"]) / "iris" / "checkpoints"


async def test_what_is_wrong_is_said_and_tried_again(saved: Path) -> None:
    away = saved.with_name("away")
    os.rename(saved, away)
    async with console(offline_session(str(saved))) as rig:
        await rig.until(lambda: "tries again" in rig.text())
        assert "Checkpoint not found" in rig.text() and "OFFLINE  cannot be opened" in rig.text()
        screen = rig.app.screen
        assert isinstance(screen, OpeningScreen) and screen.pane.status.state is State.ERROR
        os.rename(away, saved)
        await rig.pilot.press("ctrl+r")
        await rig.until_rows(5)


async def test_one_is_opened_beside_a_live_cluster_and_left_again(saved: Path) -> None:
    clock = FakeClock()
    fake = sample(clock)

    async def connect() -> AsyncClient:
        return fake

    live = Session("lab", connect, clock)
    async with console(live) as rig:
        await rig.until(lambda: live.link.link is Link.LIVE)
        rig.app.open_checkpoint("/nowhere/1")
        await rig.until(lambda: "tries again" in rig.text())
        await rig.pilot.press("escape")
        await rig.until(lambda: isinstance(rig.app.screen, JobsScreen) and rig.app.session is live)
        rig.app.open_checkpoint(str(saved))
        screen = await rig.until_rows(5)
        first = rig.session
        await rig.pilot.press("minus")
        await rig.until(lambda: rig.app.session is live)
        rig.app.open_checkpoint(str(saved))
        assert rig.app.session is first and rig.app.screen is screen, "it is open already"


async def test_nothing_is_changed_and_what_needs_a_cluster_is_refused(saved: Path) -> None:
    assert BY_ID.keys() >= LIVE and not any(BY_ID[name].mutates for name in LIVE)
    async with console(offline_session(str(saved))) as rig:
        screen = await rig.until_rows(5)
        for action in ACTIONS:
            if action.mutates and action.scope in screen.SCOPES:
                assert "read-only" in rig.app.refusal(action)
                screen.perform(action, "/u/job1")
        assert not screen.link.fresh, "what is shown cannot be acted upon"
        assert len(rig.app.screen_stack) == 2 and len(screen.store.order) == 5
        with pytest.raises(UsageFailed, match="cannot be changed"):
            await rig.session.client.call(
                "ControllerService/TerminateJob",
                controller_pb2.TerminateJobRequest(job_id="/u/job1"),
                controller_pb2.TerminateJobResponse,
            )
        for spec in registry.SCREENS.values():
            if not spec.offline:
                with pytest.raises(ModelError, match="needs a live cluster"):
                    rig.app.go(spec.name, "" if spec.lists else "/u/job1")
        screen.perform(BY_ID["target.logs"], "")
        await rig.until(lambda: "that needs a live cluster" in rig.text())
        assert "Logs /u" not in rig.text()
        assert screen.table.move_to("/u/job3")
        screen.perform(BY_ID["target.describe"], "")
        await rig.until(lambda: "/u/job3" in rig.text() and "SUCCEEDED" in rig.text().upper())


@pytest.mark.parametrize("name", ["scheduler", "tasks", "users"])
async def test_an_empty_screen_advises_nothing_that_a_checkpoint_refuses(saved: Path, name: str) -> None:
    async with console(offline_session(str(saved))) as rig:
        await rig.until_rows(5)
        rig.app.go(name, "")
        await rig.until(lambda: rig.app.screen.__class__.__name__.lower().startswith(name))
        screen = rig.app.screen
        assert isinstance(screen, ListScreen) and screen.empty_words()
        assert not [words for words in screen.empty_words() if "job run" in words or "set-budget" in words]


async def test_capacity_counts_what_is_there_and_invents_no_number(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state", jobs=3)
    add_machines(state)
    checkpoint(state, open_store(f"file://{tmp_path}/remote"), T0 + HOUR_MS)
    async with console(offline_session(str(tmp_path / "remote"))) as rig:
        await rig.until_rows(4)
        rig.app.go("capacity", "")
        await rig.until(lambda: "cpu-1 " in rig.text())
        await rig.pilot.press("down", "right")
        await rig.until(lambda: "cpu-0-w-0" in rig.text())
        (row,) = [line for line in rig.text().splitlines() if " cpu " in line]
        assert "2 of -" in row and "0" not in row.split("2 of -")[0], row
        assert row.split("2 of -")[1].split()[0] == "-", "no demand is known"
        assert "What was done to the machines is not in a checkpoint." in rig.text()
        assert "only groups that grew or failed" in rig.text()
        assert "0 actions" not in rig.text() and "since the controller started" not in rig.text()
        assert "taken as healthy: how it was" in rig.text() and "dry run" not in rig.text()
        await rig.pilot.press("home", "d")
        await rig.until(lambda: "Scale group" in rig.text() and "By state" in rig.text())
        said = {line.strip(" │┃|")[:18].strip(): line.strip(" │┃|")[18:].strip() for line in rig.text().splitlines()}
        assert said["Slices"] == "2 now" and said["By state"] == "2 ready"
        for label in ("Slices of", "Wanted, at most", "Demand", "Availability"):
            assert said[label] == "not in a checkpoint", said
        assert "Kept to spare" not in said
        await rig.pilot.press("escape")
        screen = rig.app.console_screen
        assert isinstance(screen, ListScreen)
        screen.set_filter("demand=0")
        await rig.until(lambda: screen.is_ordered and not screen.store.order)
        rig.app.go("explain", "/u/wide")
        await rig.until(lambda: "every worker is taken as healthy" in rig.text())


async def test_tasks_are_not_said_to_be_all_before_the_older_ones_were_read(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state", jobs=3)
    add_machines(state)
    checkpoint(state, open_store(f"file://{tmp_path}/remote"), T0 + HOUR_MS)
    async with console(offline_session(str(tmp_path / "remote"))) as rig:
        await rig.until_rows(4)
        rig.app.go("tasks", "")
        await rig.until(lambda: "1 task, older ones not read" in rig.text())
        await rig.pilot.press("end")
        await rig.until(lambda: "4 tasks (3 older)" in rig.text())
        screen = rig.app.console_screen
        assert isinstance(screen, ListScreen)
        screen.set_filter("state:succeeded")
        await rig.until(lambda: "0 of 1 task, 3 older" in rig.text())
        screen.set_filter("state:pending")
        await rig.until(lambda: "1 of 1 task, older ones not read" in rig.text())
        await rig.pilot.press("end")
        await rig.until(lambda: "1 of 1 task, no older one" in rig.text())


async def test_capacity_of_a_checkpoint_without_machines_says_what_it_cannot_know(saved: Path) -> None:
    async with console(offline_session(str(saved))) as rig:
        await rig.until_rows(5)
        rig.app.go("capacity", "")
        await rig.until(lambda: "This checkpoint has no slices" in rig.text())
        assert "nothing makes machines" not in rig.text()


async def test_the_client_answers_and_is_closed(saved: Path) -> None:
    told: list[Told] = []
    client = await open_checkpoint(str(saved), told.append)
    assert told[0][0] == Phase.LOOKING and told[-1][0] == Phase.LOADING and client.moment_ms == T0 + HOUR_MS
    size = (saved / "controller.sqlite3.zst").stat().st_size
    assert ("unpacking", size, size) in told
    request = controller_pb2.WatchRequest()
    request.selectors.add(id="jobs", kind=controller_pb2.WATCH_KIND_JOBS)
    events = []
    async for message in client.stream("ControllerService/Watch", request, controller_pb2.WatchResponse):
        events.append(message.WhichOneof("event"))
        if events[-1] == "heartbeat":
            assert message.heartbeat.now_ms == T0 + HOUR_MS
            break
    assert events == ["snapshot", "heartbeat"]
    with pytest.raises(RpcFailed, match="no job") as failed:
        await client.call(
            "ControllerService/GetJobStatus",
            controller_pb2.GetJobStatusRequest(job_id="/u/job9"),
            controller_pb2.GetJobStatusResponse,
        )
    assert failed.value.status == "NOT_FOUND" and failed.value.subject == "/u/job9"
    for _ in range(2):
        await client.close()
    with pytest.raises(ConnectFailed, match="has ended"):
        await client.call(
            "ControllerService/ListJobs", controller_pb2.ListJobsRequest(), controller_pb2.ListJobsResponse
        )


async def test_a_call_that_is_given_up_leaves_the_others_alone(saved: Path) -> None:
    client = await open_checkpoint(str(saved), lambda _: None)
    request = controller_pb2.WatchRequest()
    request.selectors.add(id="jobs", kind=controller_pb2.WATCH_KIND_JOBS)
    reading = asyncio.Event()

    async def read() -> None:
        async for _ in client.stream("ControllerService/Watch", request, controller_pb2.WatchResponse):
            reading.set()

    task = asyncio.create_task(read())
    await reading.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    jobs = await client.call(
        "ControllerService/ListJobs", controller_pb2.ListJobsRequest(), controller_pb2.ListJobsResponse
    )
    assert len(jobs.jobs) == 5
    await client.close()


async def test_a_process_that_dies_is_said(saved: Path) -> None:
    client = await open_checkpoint(str(saved), lambda _: None)
    request = controller_pb2.WatchRequest()
    request.selectors.add(id="jobs", kind=controller_pb2.WATCH_KIND_JOBS)
    with pytest.raises(ConnectFailed, match="has ended"):
        async for _ in client.stream("ControllerService/Watch", request, controller_pb2.WatchResponse):
            os.kill(client.pid, signal.SIGKILL)
    await client.close()


async def test_a_damaged_entry_is_noticed_and_the_checkpoint_opens(saved: Path) -> None:
    async with console(offline_session(str(saved))) as rig:
        await rig.until_rows(5)
    (entry,) = cache().iterdir()
    os.truncate(entry / "controller.sqlite3", 8192)
    async with console(offline_session(str(saved))) as rig:
        await rig.until_rows(5)
        assert rig.session.opened is not None and not rig.session.opened.cached


async def test_a_process_that_dies_is_replaced(saved: Path) -> None:
    async with console(offline_session(str(saved))) as rig:
        screen = await rig.until_rows(5)
        first = rig.session.opened
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        await rig.until(lambda: rig.session.opened is not first and screen.link.link is Link.OFFLINE)
        assert rig.session.opened is not None and rig.session.opened.cached and len(screen.store.order) == 5


async def test_a_bare_file_has_the_time_of_the_last_thing_in_it(saved: Path, tmp_path: Path) -> None:
    shutil.copy(saved / "controller.sqlite3.zst", tmp_path / "kept.sqlite3.zst")
    async with console(offline_session(str(tmp_path / "kept.sqlite3.zst"))) as rig:
        await rig.until_rows(5)
        await rig.until(lambda: "checkpoint of about 2023-11-14 22:13 UTC" in rig.text())


async def test_the_words_of_the_header() -> None:
    now = T0 + 23 * HOUR_MS
    assert checkpoint_text(T0, now, True) == "checkpoint 2023-11-14 22:13 UTC (23h old)"
    assert checkpoint_text(T0, T0 + 1, True) == "checkpoint 2023-11-14 22:13 UTC (new)"
    assert "of about" in checkpoint_text(T0, now, False)
    from iris_core.live.watch import LinkState

    assert link_text(LinkState(Link.OFFLINE, 9.0, "checkpoint X")) == "OFFLINE  checkpoint X"
    assert LinkState(Link.OFFLINE).current and not LinkState(Link.OFFLINE).fresh
    assert progress_text(None) == "starting …"
    assert progress_text(("loading", 0, 0)) == "loading …"
    assert "100 %" in progress_text(("unpacking", 10, 10))


async def test_a_checkpoint_that_does_not_say_whose_it_is_is_called_by_where_it_lies() -> None:
    assert title_of("lab", "gs://b/iris/state/controller-state/1764385200000") == "lab (checkpoint)"
    assert title_of("", "gs://b/iris/state/controller-state/1764385200000") == "iris/state (checkpoint)"
    assert title_of("", "/tmp/kept.sqlite3.zst") == "tmp/kept.sqlite3.zst (checkpoint)"
