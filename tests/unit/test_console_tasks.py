"""The Tasks, Job and Task screens driven by keys, over a scripted controller."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from iris_core.contracts import RpcFailed
from iris_core.live import task_feed
from iris_core.live.jobtree import HISTORY
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import endpoints_pb2
from iris_tui.app import IrisApp
from iris_tui.gate import MenuScreen
from iris_tui.glyphs import UNICODE
from iris_tui.pages import TextPage
from iris_tui.session import Session
from iris_tui.widgets.pane import State
from providers.fake.clock import FakeClock
from providers.fake.samples import job, task
from providers.fake.task_samples import GANG, answer, troubled
from screens import tasks
from screens.job import JobScreen
from screens.task import TaskScreen
from screens.tasks import TasksScreen
from tests.unit.console_waits import press, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from textual.pilot import Pilot

    from iris_core.contracts import AsyncClient
    from iris_tui.screen import ConsoleScreen
    from providers.fake.client import FakeClient

pytestmark = pytest.mark.asyncio


class Rig:
    """A running console."""

    def __init__(self, app: IrisApp, pilot: Pilot[int], client: FakeClient, clock: FakeClock) -> None:
        self.app = app
        self.pilot = pilot
        self.client = client
        self.clock = clock

    @property
    def screen(self) -> Any:
        screen = self.app.console_screen
        assert screen is not None
        return screen

    async def until(self, condition: Callable[[], object]) -> None:
        await until(self.app, self.pilot, condition)

    async def go(self, name: str, argument: str, kind: type[ConsoleScreen]) -> Any:
        self.app.go(name, argument)
        await self.until(lambda: isinstance(self.app.screen, kind) and self.app.screen.is_mounted)
        return self.screen

    async def tasks(self, text: str = "") -> TasksScreen:
        screen: TasksScreen = await self.go("tasks", text, TasksScreen)
        await self.until(lambda: screen.feed.loaded)
        self.clock.advance(1.1)
        await self.until(lambda: not screen.store.dirty)
        return screen

    async def job(self, name: str = GANG) -> JobScreen:
        screen: JobScreen = await self.go("job", name, JobScreen)
        await self.until(lambda: screen.feed.loaded and screen.reads.found.loaded and screen.store.order)
        return screen

    async def task(self, name: str = f"{GANG}/3") -> TaskScreen:
        screen: TaskScreen = await self.go("task", name, TaskScreen)
        await self.until(lambda: screen.feed.known and screen.store.order)
        return screen

    async def keys(self, *keys: str) -> None:
        await press(self.app, self.pilot, *keys)

    async def part(self, screen: Any, key: str, state: State = State.READY) -> str:
        """Show a part of a page, once it is in that state; what it shows."""
        await self.keys(key)
        await self.until(lambda: screen.part.pane.status.state is state)
        return self.text()

    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(strip.text.rstrip() for strip in self.app.screen._compositor.render_strips())


@asynccontextmanager
async def console(*, size: tuple[int, int] = (120, 40), **options: Any) -> AsyncIterator[Rig]:
    clock = FakeClock()
    fake = troubled(clock)

    async def connect() -> AsyncClient:
        return fake

    app = IrisApp(Session("lab", connect, clock, **options), glyphs=UNICODE)
    async with app.run_test(size=size, notifications=True) as pilot:
        rig = Rig(app, pilot, fake, clock)
        await rig.until(lambda: app.session.role and app.session.tree.loaded)
        yield rig


# --- all tasks -------------------------------------------------------------------------------------------------------


async def test_the_tasks_of_all_jobs_are_in_one_list_and_open_their_page() -> None:
    async with console() as rig:
        screen = await rig.tasks()
        assert {"/ada/train-llama/0", "/dan/oom/0", f"{GANG}/3"} <= set(screen.store.order)
        await rig.keys("slash", *"exit=137", "enter")
        await rig.until(lambda: screen.store.order == ["/dan/oom/0"])
        assert "1 of 17 tasks" in rig.text()
        await rig.keys("enter")
        await rig.until(lambda: isinstance(rig.app.screen, TaskScreen))
        assert rig.screen.task_id == "/dan/oom/0"
        await rig.keys("escape")
        await rig.until(lambda: rig.app.screen is screen)
        assert screen.filter is not None and screen.filter.text == "exit=137"


async def test_older_tasks_follow_the_live_ones_and_say_so() -> None:
    async with console() as rig:
        screen = await rig.tasks()
        old = task(
            "/old/run-001", 0, "FAILED", now_ms=rig.clock.now_ms(), started_min=2999, finished_min=2990, exit_code=3
        )
        await rig.until(lambda: "17 tasks, older ones not read" in rig.text())
        rig.client.rows["tasks"].pop("/dan/oom/0")
        rig.client.tasks[old.task_id] = old  # the stream never names it: only ListTasks does
        await rig.keys("end")
        await rig.until(lambda: "/old/run-001/0" in screen.store.order)
        assert screen.store.order[-1] == "/old/run-001/0"
        await rig.until(lambda: "18 tasks (1 older so far)" in rig.text() or "18 tasks (1 older)" in rig.text())
        assert screen.table.move_to("/old/run-001/0")
        await rig.until(lambda: "older:" in screen.detail.text)
        for _ in range(2):
            await rig.keys("up", "end")
        await rig.until(lambda: screen.feed.older.exhausted and "18 tasks (1 older)" in rig.text())


async def test_a_failure_that_was_just_seen_does_not_vanish_with_its_job() -> None:
    async with console() as rig:
        screen = await rig.tasks()
        name = f"{GANG}/3"
        ended = rig.client.rows["tasks"].pop(name)
        rig.client.watch.publish(("tasks", name))  # what the stream says when the job has ended
        rig.client.tasks[name] = ended
        await rig.until(lambda: (row := screen.store.get(name)) is not None and row.section == HISTORY and not row.gone)
        assert screen.feed.older.rows == 1


async def test_older_tasks_that_cannot_be_had_are_named_and_tried_again() -> None:
    async with console() as rig:
        screen = await rig.tasks()
        rig.client.fail("ListJobs", RpcFailed("UNAVAILABLE", "the database is busy"))
        await rig.keys("end")
        await rig.until(lambda: screen.pane.status.state is State.PARTIAL)
        assert "older tasks not loaded: the database is busy" in screen.pane.status.note
        await rig.keys("ctrl+r", "up", "end")
        await rig.until(lambda: screen.pane.status.state is State.READY)


async def test_a_filter_that_matches_nothing_live_is_looked_for_among_ended_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "MOST_LOOKED_INTO", 3)
    async with console() as rig:
        now = rig.clock.now_ms()
        rig.client.history += [job(f"/old/more-{n}", "FAILED", now_ms=now, age_min=4000 + n) for n in range(30)]
        old = task("/old/run-001", 0, "FAILED", now_ms=now, started_min=2999, finished_min=2990, exit_code=3)
        screen = await rig.tasks()
        rig.client.tasks[old.task_id] = old
        await rig.keys("slash", *"job=/old/run-001", "enter")
        await rig.until(lambda: screen.store.order == ["/old/run-001/0"])
        await rig.until(lambda: "0 of 17 tasks, 1 older" in rig.text())
        assert rig.client.called("ListJobs")[-1].filter == "job=/old/run-001", "no other jobs are looked into"
        await rig.keys("slash", "ctrl+u", *"exit=77", "enter")
        await rig.until(
            lambda: screen.pane.status.state is State.EMPTY and "looked into; ^r looks into older ones" in rig.text()
        )
        looked = screen.feed.older.jobs
        await rig.keys("ctrl+r")
        await rig.until(lambda: screen.feed.older.jobs > looked)


async def test_of_very_many_tasks_the_server_sends_those_alone_that_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_feed, "NARROW_FROM", 10)
    async with console() as rig:
        screen = await rig.tasks()
        await rig.keys("slash", *"state:running")
        assert screen.feed.narrowed == "", "not while it is typed"
        await rig.keys("enter")
        await rig.until(lambda: screen.feed.narrowed == "state:running" and screen.feed.loaded)
        assert rig.client.called("Watch")[-1].selectors[0].filter == "state:running"
        await rig.until(lambda: "6 of 17 tasks" in rig.text())
        assert "at least" not in rig.text()
        await rig.keys("slash", "ctrl+u", *"state!=failed")
        await rig.until(lambda: "/ state!=failed" in rig.text() and "at least 15 of 17 tasks" in rig.text())
        await rig.keys("ctrl+u", *"exit=77")
        await rig.until(lambda: "None of the tasks that match state:running matches this." in rig.text())
        assert "Enter asks for it among all 17 tasks." in rig.text()
        await rig.keys("ctrl+u", *"state:running", "enter")
        await rig.until(lambda: "/ state:running" in rig.text() and "6 of 17 tasks" in rig.text())
        running = screen.store.order[0]
        await rig.keys("home")
        rig.client.take("tasks", running)
        await rig.until(lambda: f"{running} (does not match any more)" in rig.text())
        await rig.keys("escape")
        await rig.until(lambda: not screen.feed.narrowed and screen.feed.loaded)
        assert rig.client.called("Watch")[-1].selectors[0].filter == ""


async def test_a_flush_redraws_the_lines_that_changed_and_no_others() -> None:
    async with console() as rig:
        now = rig.clock.now_ms()
        rig.client.put(
            *(task(f"/many/j{n // 1000}", n % 1000, "RUNNING", now_ms=now, started_min=1) for n in range(5000))
        )
        screen = await rig.tasks()
        await rig.until(lambda: len(screen.store.order) > 5000)
        drawn = screen.table.drawn
        rig.clock.advance(1.1)
        rig.client.put(
            *(task("/many/j4", n, "RUNNING", now_ms=now, started_min=1, memory_bytes=10**9) for n in range(1000)),
            task(f"{GANG}/0", 0, "RUNNING", now_ms=now),
        )
        await rig.until(lambda: screen.store.rows["/many/j4/999"].value.memory_bytes)
        await rig.until(lambda: not screen.store.dirty)
        assert screen.table.drawn - drawn <= screen.table.size.height


async def test_marked_tasks_are_compared_by_their_newest_attempts() -> None:
    async with console() as rig:
        screen = await rig.tasks(GANG)
        for name in (f"{GANG}/2", f"{GANG}/3"):
            assert screen.table.move_to(name)
            await rig.keys("space")
        await rig.keys("x", "C")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage) and rig.app.screen.text.count())
        text = rig.text()
        assert f"{GANG}/2:1" in text and f"{GANG}/3:1" in text
        assert "State       ≠ cosched_failed (current)" in text
        await rig.keys("escape")
        await rig.until(lambda: rig.app.screen is screen)
        await rig.keys("u", "C")
        await rig.until(lambda: f"the last two attempts of {screen.table.cursor_id}" in rig.text())
        await rig.until(lambda: isinstance(rig.app.screen, TextPage) and rig.app.screen.text.count())
        assert f"{screen.table.cursor_id}:0" in rig.text() and f"{screen.table.cursor_id}:1" in rig.text()


# --- one job ---------------------------------------------------------------------------------------------------------


async def test_the_failing_rank_is_on_the_first_line_and_its_log_says_why() -> None:
    async with console() as rig:
        screen = await rig.job()
        assert screen.store.order[0] == f"{GANG}/3"
        await rig.until(lambda: "link down" in rig.text())
        text = rig.text()
        assert "rank 3, attempt 1 on h100-3: failed, exit 1" in text
        assert "its log RuntimeError: NCCL error: unhandled system error, ib0: [red]link down[/red]" in text
        assert "[1 Tasks] 2 Failures 8  3 Children 1  4 Request  5 Charts  6 Events" in text


async def test_the_parts_of_a_job_are_reached_by_number_and_tab() -> None:
    async with console() as rig:
        screen = await rig.job()
        await rig.until(lambda: screen.reads.cause.loaded)
        text = await rig.part(screen, "2")
        assert "By the last lines of /ada/pretrain/3:1:" in text
        assert "ranks 0, 1, 2, 4, 5, 6, 7: cosched_failed, exit 143 (SIGTERM): gang mate 3 failed" in text
        assert f"{GANG}/eval" in await rig.part(screen, "3")
        await rig.keys("tab")
        text = await rig.part(screen, "4")
        assert "Submitted as  iris-core job run --gpu H100x8 --replicas 8 -- torchrun pretrain.py" in text
        assert "--job-name pretrain" in text and "[redacted:WANDB_API_KEY]" in text
        text = await rig.part(screen, "5")
        assert "request 64GB" in text and "the most of 8 tasks" in text
        text = await rig.part(screen, "6")
        assert "48 events" in text and "Failed" in text
        await rig.keys("shift+tab")
        assert screen.part.name == "Charts"


async def test_charts_of_accelerators_stand_only_where_there_are_any() -> None:
    async with console() as rig:
        told = rig.client._query  # type: ignore[attr-defined]

        def without(request: Any) -> Any:
            found = told(request)
            for column in found.columns:
                if column.name in ("busy", "held"):
                    column.nulls.extend(range(found.row_count))
            return found

        answer(rig.client, "Query", without)
        screen: JobScreen = await rig.go("job", "/dan/oom", JobScreen)
        await rig.until(lambda: screen.feed.loaded)
        text = await rig.part(screen, "5")
        await rig.until(lambda: "request 1GB" in rig.text())
        assert "Accelerator" not in rig.text(), text


async def test_a_job_runs_under_the_eyes_of_the_reader() -> None:
    async with console() as rig:
        screen = await rig.job("/ada/train-llama")
        assert screen.store.order[0] == "/ada/train-llama/7", "it failed before and waits now"
        now = rig.clock.now_ms()
        rig.client.put(
            task("/ada/train-llama", 5, "FAILED", now_ms=now, exit_code=9, finished_min=0.1, error="exit code 9")
        )
        rig.client.put(
            job("/ada/train-llama", "RUNNING", now_ms=now, started_min=41, counts={"FAILED": 1}, failure_count=2)
        )
        rig.clock.advance(2)
        await rig.until(lambda: screen.store.order[0] == "/ada/train-llama/5")


async def test_what_is_done_to_the_whole_job_is_in_the_menu_of_its_tasks() -> None:
    async with console() as rig:
        screen = await rig.job("/ada/train-llama")
        await rig.keys("x")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen))
        menu = rig.app.screen
        assert isinstance(menu, MenuScreen)
        entries = {name: title for _, name, title in menu.entries}
        assert entries["target.cancel"].endswith("(the whole job)") and "target.preempt" in entries
        await rig.keys("escape")
        assert screen.chosen_ids(("job",)) == ["/ada/train-llama"]
        assert screen.chosen_ids(("task", "attempt")) == [screen.table.cursor_id]


async def test_a_list_key_on_another_part_leads_back_to_the_tasks() -> None:
    async with console() as rig:
        screen = await rig.job()
        await rig.part(screen, "6")
        await rig.keys("slash", *"exit=1", "enter")
        await rig.until(lambda: screen.store.order == [f"{GANG}/3"])
        assert screen.part.name == "Tasks"


async def test_a_job_that_is_not_there_says_so_and_a_word_that_is_no_job_changes_nothing() -> None:
    async with console() as rig:
        with pytest.raises(ModelError):
            rig.app.go("job", "nonsense")
        screen: JobScreen = await rig.go("job", "/nobody/nothing", JobScreen)
        await rig.until(lambda: screen.pane.status.state is State.ERROR)
        assert "no job /nobody/nothing" in rig.text()


async def test_what_the_log_store_cannot_give_is_an_error_of_its_part_alone() -> None:
    async with console() as rig:
        screen = await rig.job()
        rig.client.fail("Query", RpcFailed("UNAVAILABLE", "the log store is away"), times=2)
        text = await rig.part(screen, "6", State.ERROR)
        assert "The events cannot be read: the log store is away" in text
        await rig.part(screen, "1")
        rig.client.fail("FetchLogs", RpcFailed("UNAVAILABLE", "the log store is away"))
        screen.reads.cause.want()
        await rig.until(lambda: screen.reads.cause.value and screen.reads.cause.value.note)
        assert "its log cannot be read: the log store is away" in await rig.part(screen, "2")


async def test_what_was_read_once_ages_when_it_cannot_be_read_again() -> None:
    async with console() as rig:
        screen = await rig.job()
        await rig.part(screen, "6")
        rig.client.fail("Query", RpcFailed("UNAVAILABLE", "the log store is away"), times=9)
        rig.clock.advance(11)
        rig.client.heartbeat()
        await rig.until(lambda: screen.reads.events.fault and screen.link.current)
        await rig.until(lambda: screen.part.pane.status.state is State.STALE)
        assert "STALE 11s: the log store is away" in rig.text() and "48 events" in rig.text()


async def test_while_nobody_answers_every_part_says_how_old_it_is() -> None:
    async with console() as rig:
        screen = await rig.job()
        for key in "123456":
            await rig.part(screen, key)
        asked = len(rig.client.called("Query"))
        rig.client.break_connection()
        rig.clock.advance(42)
        for key in "123456":
            text = await rig.part(screen, key, State.STALE)
            assert "STALE 42s: connection refused" in text
        assert len(rig.client.called("Query")) == asked, "the subscription is what tries"
        assert f"{GANG}/3" in screen.store.order


async def test_a_page_is_found_again_on_the_part_where_it_was_left() -> None:
    async with console() as rig:
        screen = await rig.job()
        await rig.part(screen, "3")
        await rig.keys("enter")
        await rig.until(lambda: isinstance(rig.app.screen, JobScreen) and rig.app.screen is not screen)
        assert rig.screen.subject == f"{GANG}/eval"
        await rig.keys("left_square_bracket")
        await rig.until(lambda: rig.app.screen is screen)
        assert screen.part.name == "Children"


# --- one task --------------------------------------------------------------------------------------------------------


async def test_a_task_shows_its_attempts_the_newest_first_and_what_it_holds() -> None:
    async with console() as rig:
        screen = await rig.task()
        assert screen.store.order == [f"{GANG}/3:1", f"{GANG}/3:0"]
        text = rig.text()
        assert "peak 43GB of 64GB (67%)" in text and "preempted by /ops/urgent/0" in text
        text = await rig.part(screen, "2")
        assert "Preempted" in text and "6 events" in text
        assert "request 64GB" in await rig.part(screen, "3")
        assert "speedscope" in await rig.part(screen, "4")
        assert "10.0.0.3:9090" in await rig.part(screen, "5")
        text = await rig.part(screen, "6")
        assert "**step 4190** of 10000" in text and "ended as preempted" in text


async def test_an_attempts_id_opens_its_task_with_the_cursor_on_it() -> None:
    async with console() as rig:
        rig.app.run_command(f"attempt {GANG}/3:0")
        await rig.until(lambda: isinstance(rig.app.screen, TaskScreen) and rig.screen.feed.known)
        await rig.until(lambda: rig.screen.table.cursor_id == f"{GANG}/3:0")
        with pytest.raises(ModelError, match="name a task of it"):
            rig.app.go("task", GANG)


async def test_two_marked_attempts_are_compared_side_by_side() -> None:
    async with console() as rig:
        await rig.task()
        await rig.keys("space", "space", "C")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage) and rig.app.screen.text.count())
        text = rig.text()
        assert "State       ≠ preempted" in text and "failed (current)" in text
        assert "only /ada/pretrain/3:1: Failed" in text and "both: Assigned, Started" in text
        assert "SIGTERM: saving a checkpoint" in text and "link down" in text
        await rig.keys("escape", "u", "home", "C")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage) and rig.app.screen.text.count())
        assert f"{GANG}/3:0" in rig.text(), "one alone is compared with the one before it"
        await rig.keys("escape", "end", "C")
        await rig.until(lambda: f"the first two attempts of {GANG}/3" in rig.text())
        await rig.until(lambda: isinstance(rig.app.screen, TextPage) and rig.app.screen.text.count())
        assert f"{GANG}/3:0" in rig.text() and f"{GANG}/3:1" in rig.text(), "the first with the one that followed"


async def test_a_task_follows_its_changes_and_one_that_is_unknown_says_so() -> None:
    async with console() as rig:
        screen = await rig.task("/ada/train-llama/7")
        assert screen.store.order == ["/ada/train-llama/7:1", "/ada/train-llama/7:0"]
        now = rig.clock.now_ms()
        from providers.fake.samples import attempt

        rig.client.put(
            attempt("/ada/train-llama/7", 2, "RUNNING", now_ms=now, started_min=0, current=True, worker_id="w9")
        )
        rig.client.put(
            task("/ada/train-llama", 7, "RUNNING", now_ms=now, attempt=2, worker_id="w9", status_md="*warm*")
        )
        await rig.until(lambda: screen.store.order and screen.store.order[0] == "/ada/train-llama/7:2")
        assert "says *warm*" in rig.text()
        unknown: TaskScreen = await rig.go("task", "/ada/train-llama/99", TaskScreen)
        await rig.until(lambda: unknown.pane.status.state is State.ERROR)


async def test_outputs_are_told_also_where_the_log_store_is_away() -> None:
    async with console() as rig:
        screen = await rig.task()
        rig.client.fail("Query", RpcFailed("UNAVAILABLE", "the log store is away"), times=9)
        text = await rig.part(screen, "6", State.PARTIAL)
        assert "without what the task says of itself: the log store is away" in text and "log lines 900" in text


@pytest.mark.parametrize("name", ["job", "task"])
async def test_a_terminal_that_shrinks_leaves_the_rows_and_grows_again(name: str) -> None:
    async with console() as rig:
        screen: Any = await rig.job() if name == "job" else await rig.task()
        await rig.pilot.resize_terminal(40, 10)
        await rig.until(lambda: screen.table.size.height >= 2)
        for key in "23456":
            await rig.keys(key)
            await rig.until(lambda: screen.part.pane.status.state is not State.LOADING)
        await rig.pilot.resize_terminal(120, 40)
        await rig.keys("1")
        await rig.until(lambda: len(screen.facts.text.splitlines()) >= 4)
        await rig.until(lambda: screen.store.order[0] in rig.text())


async def test_an_empty_part_says_what_is_so_and_what_to_do() -> None:
    async with console() as rig:
        screen: TaskScreen = await rig.go("task", "/ada/train-llama/6", TaskScreen)
        await rig.until(lambda: screen.pane.status.state is State.EMPTY)
        assert "w explains why it waits" in rig.text()
        assert "x t takes one now." in await rig.part(screen, "4", State.EMPTY)
        answer(rig.client, "ListEndpoints", lambda request: endpoints_pb2.ListEndpointsResponse())
        assert "serves nothing" in await rig.part(screen, "5", State.EMPTY)


async def test_an_id_and_a_page_are_copied_with_a_word_on_where_they_went(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[tuple[str, str]] = []
    monkeypatch.setattr(IrisApp, "copy_text", lambda self, text, what: copied.append((text, what)))
    async with console() as rig:
        await rig.task()
        await rig.keys("c", "space", "space", "c")
        assert copied == [(f"{GANG}/3:1", f"{GANG}/3:1"), (f"{GANG}/3:0\n{GANG}/3:1", "2 ids")]
        await rig.keys("y")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage) and rig.app.screen.text.count())
        await rig.keys("c")
        assert copied[-1][1] == "the page" and "torchrun" in copied[-1][0]
