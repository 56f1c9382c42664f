"""The console driven by keys, over a scripted controller: what is on the screen, what is sent, what is never lost."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from textual import events
from textual.widgets import Button, Static

from iris_core.contracts import ConnectFailed, RpcFailed
from iris_core.live import jobtree
from iris_core.live.watch import Link
from iris_core.model.errors import ModelError
from iris_core.model.states import JobState, TaskState
from iris_core.wire.gen.iris.v1 import explain_pb2
from iris_tui.actions import ACTIONS, BY_ID
from iris_tui.app import IrisApp
from iris_tui.commands import ActionProvider
from iris_tui.gate import Decision, GatePlan, GateScreen, GateTarget, MenuScreen, QuitScreen
from iris_tui.glyphs import ASCII, UNICODE
from iris_tui.pages import TextPage
from iris_tui.registry import SCREENS, load
from iris_tui.session import Session
from iris_tui.terminal import KeyParser
from iris_tui.typeahead import WithEscape
from iris_tui.widgets.log_pane import LogPane
from iris_tui.widgets.pane import State
from providers.fake.client import FakeClient
from providers.fake.clock import FakeClock
from providers.fake.samples import job, sample, task
from screens.jobs import JobsScreen
from tests.unit.console_waits import press, text_of, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from textual.pilot import Pilot

    from iris_core.contracts import AsyncClient

pytestmark = pytest.mark.asyncio


class Rig:
    """A running console."""

    def __init__(self, app: IrisApp, pilot: Pilot[int], client: FakeClient, clock: FakeClock) -> None:
        self.app = app
        self.pilot = pilot
        self.client = client
        self.clock = clock

    @property
    def jobs(self) -> JobsScreen:
        screen = next(screen for screen in self.app.screen_stack if isinstance(screen, JobsScreen))
        return screen

    async def until(self, condition: Callable[[], object]) -> None:
        await until(self.app, self.pilot, condition)

    async def keys(self, *keys: str) -> None:
        await press(self.app, self.pilot, *keys)

    async def type(self, text: str) -> None:
        await self.keys(*[{" ": "space"}.get(character, character) for character in text])

    def lines(self) -> list[str]:
        """What is on the screen, line by line, below a dialog too."""
        return self.screen_text().split("\n")

    def screen_text(self) -> str:
        return text_of(self.app)

    def selected(self) -> str:
        return self.jobs.table.cursor_id

    def line_of(self, name: str) -> int:
        """The screen line that shows a row."""
        table = self.jobs.table
        return table.store.index(name) - table.scroll_offset.y

    async def row(self, name: str) -> None:
        assert self.jobs.table.move_to(name)
        await self.pilot.pause()


@asynccontextmanager
async def console(
    client: FakeClient | None = None,
    *,
    size: tuple[int, int] = (120, 40),
    read_only: bool = False,
    environment: str = "",
    ready: bool = True,
    **options: Any,
) -> AsyncIterator[Rig]:
    clock = FakeClock()
    fake = client or sample(clock)

    async def connect() -> AsyncClient:
        return fake

    session = Session("lab", connect, clock, environment=environment, read_only=read_only)
    app = IrisApp(session, **{"glyphs": UNICODE, **options})
    async with app.run_test(size=size, notifications=True) as pilot:
        rig = Rig(app, pilot, fake, clock)
        if ready:
            await rig.until(lambda: rig.jobs.jobs.loaded and rig.jobs.store.order and session.role)
        yield rig


# --- what is shown ---------------------------------------------------------------------------------------------------


async def test_it_opens_on_the_jobs_with_state_tasks_age_and_reason() -> None:
    async with console() as rig:
        text = rig.screen_text()
        assert "lab" in rig.lines()[0] and "LIVE" in rig.lines()[0] and "ada (admin)" in rig.lines()[0]
        line = next(line for line in rig.lines() if "/cleo/sweep-lr" in line)
        assert "running" in line and "31/64" in line and "2h" in line
        assert "waiting for 64 tasks: cpu is short by 12 cores" in text
        assert "10 jobs" in text


async def test_opening_goes_from_job_to_tasks_to_attempts_to_the_log() -> None:
    async with console() as rig:
        await rig.row("/ada/train-llama")
        await rig.keys("enter")
        await rig.until(lambda: "/ada/train-llama/7" in rig.jobs.store.order)
        await rig.row("/ada/train-llama/7")
        await rig.keys("right")
        await rig.until(lambda: "/ada/train-llama/7:0" in rig.jobs.store.order)
        await rig.row("/ada/train-llama/7:0")
        await rig.keys("enter")
        await rig.until(lambda: rig.jobs.query(LogPane) and rig.client.called("OpenLogView"))
        request = rig.client.called("OpenLogView")[0].query
        assert (request.source, request.match_scope) == ("/ada/train-llama/7:0", 1)


async def test_left_closes_and_then_goes_up() -> None:
    async with console() as rig:
        await rig.row("/ada/train-llama")
        await rig.keys("right")
        await rig.until(lambda: "/ada/train-llama/0" in rig.jobs.store.order)
        await rig.row("/ada/train-llama/0")
        await rig.keys("left")
        assert rig.selected() == "/ada/train-llama"
        await rig.keys("left")
        await rig.until(lambda: "/ada/train-llama/0" not in rig.jobs.store.order)


async def test_right_opens_and_then_goes_in_and_never_closes() -> None:
    async with console() as rig:
        await rig.row("/ada/train-llama")
        await rig.keys("right")
        await rig.until(lambda: "/ada/train-llama/0" in rig.jobs.store.order)
        await rig.keys("right")
        assert rig.selected() == "/ada/train-llama/eval-step-2000"
        assert "/ada/train-llama" in rig.jobs.store.expanded


async def test_the_mouse_chooses_a_row() -> None:
    async with console() as rig:
        line = rig.line_of("/dan/oom")
        await rig.pilot.click(rig.jobs.table, offset=(20, line))
        assert rig.selected() == "/dan/oom"


async def test_new_jobs_are_seen_to_arrive_while_nothing_was_chosen() -> None:
    async with console() as rig:
        rig.client.put(job("/new/one", "PENDING", now_ms=rig.clock.now_ms(), age_min=0))
        rig.clock.advance(2)
        await rig.until(lambda: rig.selected() == "/new/one")
        assert rig.line_of("/new/one") == 0


async def test_the_chosen_row_stays_itself_and_on_its_line_through_everything() -> None:
    async with console(size=(100, 16)) as rig:
        for number in range(60):
            rig.client.put(job(f"/z/j{number:02}", "RUNNING", now_ms=rig.clock.now_ms(), age_min=1000 + number))
        rig.clock.advance(2)
        await rig.until(lambda: "/z/j59" in rig.jobs.store.order)
        await rig.row("/z/j30")
        line = rig.line_of("/z/j30")
        rig.client.put(
            *(job(f"/new/n{number}", "RUNNING", now_ms=rig.clock.now_ms(), age_min=0) for number in range(5))
        )
        rig.clock.advance(2)
        await rig.until(lambda: "/new/n4" in rig.jobs.store.order)
        assert (rig.selected(), rig.line_of("/z/j30")) == ("/z/j30", line)
        await rig.keys("N")
        await rig.until(lambda: rig.jobs.store.order[0] == "/ada/train-llama")
        assert rig.selected() == "/z/j30"
        await rig.keys("/")
        await rig.type("job:/z/")
        await rig.keys("enter")
        await rig.until(lambda: len(rig.jobs.store.order) == 60)
        assert rig.selected() == "/z/j30"
        rig.client.break_connection()
        await rig.until(lambda: rig.app.session.link.link is Link.RECONNECTING)
        assert rig.selected() == "/z/j30"
        assert "/z/j30" in rig.screen_text()
        rig.client.restore()
        await rig.keys("ctrl+r")
        await rig.until(lambda: rig.app.session.link.link is Link.LIVE)
        assert rig.selected() == "/z/j30"


async def test_a_chosen_row_that_goes_away_stays_until_the_cursor_leaves() -> None:
    async with console() as rig:
        await rig.row("/dan/export")
        rig.client.drop("/dan/export")
        rig.clock.advance(2)
        await rig.until(lambda: rig.jobs.store.rows["/dan/export"].gone)
        await rig.until(lambda: "gone" in next(line for line in rig.lines() if "/dan/export" in line))
        await rig.keys("up")
        rig.clock.advance(2)
        await rig.until(lambda: "/dan/export" not in rig.jobs.store.order)


async def test_brackets_controls_and_wide_characters_are_shown_literally() -> None:
    async with console(size=(160, 40)) as rig:
        text = rig.screen_text()
        assert "/bob/[red]brackets[/red]" in text
        assert "bad [/tag] [/] [reverse" in text
        assert "/cleo/wide-失敗-name" in text
        await rig.row("/bob/[red]brackets[/red]")
        await rig.keys("x")
        assert "/bob/[red]brackets[/red]" in rig.screen_text()
        await rig.keys("escape", "d")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage) and "[reverse" in rig.screen_text())
        rig.app.say("[bold]toast[/bold] [@click=app.quit]x[/]")
        await rig.until(lambda: "[bold]toast[/bold] [@click=app.quit]x[/]" in rig.screen_text())


async def test_the_count_of_older_jobs_says_that_there_may_be_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobtree, "HISTORY_PAGE", 1)
    async with console() as rig:
        for said in ("(1 older so far)", "(2 older so far)", "(3 older)"):
            await rig.keys("end")
            await rig.until(partial(lambda words: words in rig.screen_text(), said))


async def test_older_jobs_are_appended_when_the_end_is_reached_and_marked() -> None:
    async with console() as rig:
        await rig.keys("end")
        await rig.until(lambda: "/old/run-002" in rig.jobs.store.order)
        await rig.until(lambda: any("/old/run-000" in line for line in rig.lines()))
        assert "13 jobs (3 older)" in rig.screen_text()
        await rig.row("/old/run-000")
        await rig.until(lambda: "/old/run-000  " in rig.jobs.detail.text and "older:" in rig.jobs.detail.text)
        assert not any("history" in line for line in rig.lines()), "a word of the kit beside reasons is read as one"


async def test_a_flush_redraws_only_the_lines_whose_rows_changed() -> None:
    async with console() as rig:
        for number in range(3000):
            rig.client.jobs[f"/z/j{number:04}"] = job(
                f"/z/j{number:04}", "RUNNING", now_ms=rig.clock.now_ms(), age_min=1000 + number
            )
        rig.client.put(*rig.client.jobs.values())
        rig.clock.advance(2)
        await rig.until(lambda: len(rig.jobs.store.order) > 3000)
        rig.jobs.tick()
        await rig.pilot.pause()
        before = rig.jobs.table.drawn
        rig.client.put(
            *(
                job(f"/z/j{number:04}", "FAILED", now_ms=rig.clock.now_ms(), age_min=1000 + number)
                for number in range(0, 3000, 10)
            )
        )
        await rig.until(lambda: "failed" in next(line for line in rig.lines() if "/z/j0000" in line))
        visible = [name for name in rig.jobs.store.order[:34] if name.startswith("/z/") and name.endswith("0")]
        assert 0 < rig.jobs.table.drawn - before <= len(visible) + 2


# --- filter, sort, marks ---------------------------------------------------------------------------------------------


async def test_a_filter_works_while_it_is_typed_and_escape_puts_back_what_was() -> None:
    async with console() as rig:
        await rig.keys("/")
        await rig.type("state:failed")
        await rig.until(lambda: rig.jobs.store.order == ["/bob/[red]brackets[/red]", "/dan/oom"])
        assert "2 of 10 jobs" in rig.screen_text()
        await rig.keys("escape")
        await rig.until(lambda: len(rig.jobs.store.order) > 5)


async def test_a_wrong_filter_turns_red_with_its_place_and_the_old_result_stays_labelled() -> None:
    async with console() as rig:
        await rig.keys("/")
        await rig.type("state:running")
        await rig.keys("enter")
        await rig.until(lambda: len(rig.jobs.store.order) == 2)
        await rig.keys("/", "end")
        await rig.type(" !")
        await rig.until(lambda: rig.jobs.prompt.has_class("-wrong"))
        fault = rig.jobs.prompt.fault.text
        assert "'!' at position 14 negates nothing" in fault
        assert fault.index("▲") == len(" / filter ") + 14
        assert rig.jobs.store.order == ["/ada/train-llama", "/cleo/sweep-lr"]
        await rig.until(lambda: "still the last valid filter" in rig.screen_text())
        await rig.keys("enter")
        assert rig.jobs.prompt.is_open
        assert rig.jobs.filter is not None and rig.jobs.filter.text == "state:running"


async def test_a_filter_with_blanks_and_one_that_matches_nothing_says_so() -> None:
    async with console() as rig:
        rig.app.run_command('jobs reason:"short by 12"')
        await rig.until(lambda: rig.jobs.store.order == ["/bob/tokenize-web"])
        rig.app.run_command("jobs nothing-like-it")
        await rig.until(lambda: rig.jobs.pane.status.state is State.EMPTY)
        await rig.until(lambda: "None of 10 jobs matches nothing-like-it" in rig.screen_text())
        await rig.keys("escape")
        await rig.until(lambda: rig.jobs.pane.status.state is State.READY)


async def test_sorting_by_a_column_turns_around_and_goes_back() -> None:
    async with console() as rig:
        natural = list(rig.jobs.store.order)
        await rig.keys("F")
        await rig.until(lambda: rig.jobs.store.order[0] == "/cleo/sweep-lr")
        assert "FAIL▼" in rig.screen_text(), "the most failures first"
        await rig.keys("F")
        await rig.until(lambda: rig.jobs.store.order[-1] == "/cleo/sweep-lr")
        await rig.keys("F")
        await rig.until(lambda: rig.jobs.store.order == natural)
        # What is typed is about the values.
        rig.app.run_command("sort failures asc")
        await rig.until(lambda: rig.jobs.store.order[-1] == "/cleo/sweep-lr" and "FAIL▲" in rig.screen_text())
        rig.app.run_command("sort failures desc")
        await rig.until(lambda: rig.jobs.store.order[0] == "/cleo/sweep-lr" and "FAIL▼" in rig.screen_text())


async def test_nothing_is_said_to_be_missing_while_the_order_is_being_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = asyncio.Event()

    async def slowly(work: Callable[[], Any], *, name: str) -> Any:
        await computed.wait()
        return work()

    async with console() as rig:
        rig.app.run_command("jobs nosuchjob")
        await rig.until(lambda: "None of 10 jobs matches nosuchjob" in rig.screen_text())
        monkeypatch.setattr("iris_tui.list_screen.THREAD_ROWS", 0)
        monkeypatch.setattr("iris_tui.list_screen.in_thread", slowly)
        rig.app.run_command("jobs ada")
        await rig.until(lambda: "filtering 10 jobs" in rig.screen_text())
        assert "None of" not in rig.screen_text()
        computed.set()
        await rig.until(lambda: "/ada/train-llama" in rig.screen_text())


async def test_marks_survive_a_filter_and_hidden_ones_are_counted() -> None:
    async with console() as rig:
        await rig.row("/cleo/sweep-lr")
        await rig.keys("space")
        rig.app.run_command("jobs user:bob")
        await rig.until(lambda: "1 marked, 1 hidden" in rig.screen_text())
        rig.client.put(job("/bob/late", "PENDING", now_ms=rig.clock.now_ms(), age_min=0))
        rig.clock.advance(2)
        await rig.until(lambda: "order kept, 1 changes, r sorts" in rig.screen_text())
        assert "/bob/late" not in rig.jobs.store.order
        await rig.keys("r")
        await rig.until(lambda: "/bob/late" in rig.jobs.store.order)
        await rig.keys("u")
        assert not rig.jobs.store.marks


# --- changing --------------------------------------------------------------------------------------------------------


async def open_gate(rig: Rig, name: str) -> GateScreen:
    await rig.row(name)
    await rig.keys("x", "c")
    await rig.until(lambda: isinstance(rig.app.screen, GateScreen) and rig.app.focused is not None)
    assert isinstance(rig.app.screen, GateScreen)
    return rig.app.screen


async def test_the_gate_says_what_where_and_what_else_and_enter_alone_does_nothing() -> None:
    async with console() as rig:
        gate = await open_gate(rig, "/cleo/sweep-lr")
        text = rig.screen_text()
        assert "Cancel /cleo/sweep-lr?" in text and "on lab" in text
        assert "ends 15 running tasks and 16 waiting tasks as killed" in text
        assert "iris-core --cluster=lab job cancel /cleo/sweep-lr" in text
        assert gate.plan.tier == 1
        assert isinstance(rig.app.focused, Button) and rig.app.focused.id == "gate-cancel"
        await rig.keys("enter")
        await rig.until(lambda: rig.app.screen is rig.jobs)
        assert rig.client.called("TerminateJob") == []


async def test_two_steps_send_exactly_the_frozen_id_once() -> None:
    async with console() as rig:
        await open_gate(rig, "/cleo/sweep-lr")
        await rig.keys("right", "enter")
        await rig.until(lambda: rig.client.called("TerminateJob"))
        (request,) = rig.client.called("TerminateJob")
        assert request.job_id == "/cleo/sweep-lr"
        assert len(request.request_id) == 32
        await rig.until(
            lambda: "killed" in next(line for line in rig.lines() if "/cleo/sweep-lr" in line and "tasks" not in line)
        )


async def test_marked_jobs_need_a_tick_and_all_of_them_are_sent_also_the_hidden_ones() -> None:
    async with console() as rig:
        for name in ("/cleo/sweep-lr", "/bob/tokenize-web"):
            await rig.row(name)
            await rig.keys("space")
        rig.app.run_command("jobs user:bob")
        await rig.until(lambda: rig.jobs.store.hidden_marks() == 1)
        await rig.keys("r", "x", "c")
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen))
        gate = rig.app.screen
        assert isinstance(gate, GateScreen)
        assert gate.plan.tier == 2
        assert "1 of these are hidden by the filter" in rig.screen_text()
        confirm = gate.query_one("#gate-confirm", Button)
        assert confirm.disabled
        await rig.keys("right", "enter")
        await rig.until(lambda: not confirm.disabled)
        await rig.keys("right", "right", "enter")
        await rig.until(lambda: len(rig.client.called("TerminateJob")) == 2)
        assert {request.job_id for request in rig.client.called("TerminateJob")} == {
            "/cleo/sweep-lr",
            "/bob/tokenize-web",
        }
        await rig.until(lambda: not rig.jobs.store.marks)


async def test_all_that_match_are_marked_from_the_menu_the_hidden_ones_too() -> None:
    async with console() as rig:
        rig.app.run_command("jobs state:running")
        await rig.until(lambda: "3 of 10 jobs" in rig.screen_text())
        await rig.row("/cleo/sweep-lr")
        await rig.keys("x")
        await rig.until(lambda: "Mark all that match: 3 jobs" in rig.screen_text())
        await rig.keys("a")
        await rig.until(lambda: "3 marked jobs" in rig.screen_text())
        assert len(rig.jobs.store.marks) == 3
        await rig.keys("c")
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen))
        assert "Cancel 3 jobs?" in rig.screen_text() and "1 of these are hidden" in rig.screen_text()


async def test_a_job_with_children_needs_a_tick_and_names_them() -> None:
    async with console() as rig:
        gate = await open_gate(rig, "/ada/train-llama")
        assert gate.plan.tier == 2
        assert "ends 1 child job below it, too" in rig.screen_text()


async def test_a_target_that_changes_while_the_gate_is_open_is_said_and_not_ended_by_its_name() -> None:
    async with console() as rig:
        gate = await open_gate(rig, "/cleo/sweep-lr")
        rig.client.put(job("/cleo/sweep-lr", "PENDING", now_ms=rig.clock.now_ms(), age_min=0, counts={"PENDING": 1}))
        await rig.until(lambda: gate.query_one("#gate-changed", Static).display)
        await rig.until(lambda: "was replaced" in rig.screen_text())
        await rig.keys("right", "enter")
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen) and rig.app.screen is not gate)
        await rig.until(lambda: "Look again: it was planned, and then changed" in rig.screen_text())
        assert int(rig.client.jobs["/cleo/sweep-lr"].state) == JobState.PENDING, "refused by the server"
        assert "ends 1 waiting task as killed" in rig.screen_text()
        await rig.keys("escape")
        await rig.until(lambda: rig.app.screen is rig.jobs)
        assert len(rig.client.called("TerminateJob")) == 1


async def test_below_a_gate_it_is_still_said_whether_what_is_shown_is_true() -> None:
    async with console() as rig:
        gate = await open_gate(rig, "/cleo/sweep-lr")
        await rig.until(lambda: rig.lines()[0].rstrip().endswith("LIVE"))
        rig.client.break_connection()
        deadline = time.monotonic() + 60
        while "RECONNECTING" not in rig.lines()[0]:
            # By itself: nobody asks for a flush here.
            assert time.monotonic() < deadline, rig.screen_text()
            await asyncio.sleep(0.01)
        rig.clock.advance(42)
        await rig.until(lambda: "RECONNECTING 42s" in rig.lines()[0])
        rig.client.restore()
        rig.clock.advance(60)
        await rig.until(lambda: rig.lines()[0].rstrip().endswith("LIVE"))
        assert rig.app.screen is gate


async def test_why_it_is_stale_covers_neither_the_filter_nor_the_counts() -> None:
    async with console(size=(80, 24)) as rig:
        rig.app.run_command("jobs state=running")
        await rig.until(lambda: "of 10 jobs" in rig.screen_text())
        rig.client.break_connection(
            "cannot connect to http://a-controller-with-a-long-name.example:10000: connection refused"
        )
        rig.clock.advance(42)
        await rig.until(lambda: "STALE 42s: cannot" in rig.lines()[1])
        title = rig.lines()[1]
        assert title.startswith(" Jobs  / state=running") and title.rstrip().endswith(
            "3 of 10 jobs, 1 under closed rows"
        )


async def test_a_lost_answer_is_asked_for_again_with_the_same_request_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_tui.changes.RETRY_S", 0.0)
    async with console() as rig:
        rig.client.fail("TerminateJob", ConnectFailed("connection reset"), times=2)
        await open_gate(rig, "/cleo/sweep-lr")
        await rig.keys("right", "enter")
        await rig.until(lambda: len(rig.client.called("TerminateJob")) == 3)
        assert len({request.request_id for request in rig.client.called("TerminateJob")}) == 1


async def test_a_refused_change_is_said() -> None:
    async with console() as rig:
        rig.client.fail("TerminateJob", RpcFailed("PERMISSION_DENIED", "only cleo may [do] that"))
        await open_gate(rig, "/cleo/sweep-lr")
        await rig.keys("right", "enter")
        await rig.until(lambda: "only cleo may [do] that" in rig.screen_text())


async def test_complete_is_its_own_call() -> None:
    async with console() as rig:
        rig.app.run_command("complete /cleo/sweep-lr")
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen) and rig.app.focused is not None)
        await rig.keys("right", "enter")
        await rig.until(lambda: rig.client.called("CompleteJob"))
        assert rig.client.called("TerminateJob") == []


async def test_a_finished_job_is_not_cancelled() -> None:
    async with console() as rig:
        rig.app.run_command("cancel /dan/export")
        await rig.until(lambda: "nothing to do, /dan/export: has ended as" in rig.screen_text())
        assert rig.client.called("TerminateJob") == []


TRAIN = "/ada/train-llama"


async def open_kick(rig: Rig, name: str, key: str = "p") -> GateScreen:
    """The gate for preempting or failing a task of TRAIN."""
    await rig.row(TRAIN)
    await rig.keys("right")
    await rig.until(lambda: name in rig.jobs.store.order)
    await rig.row(name)
    await rig.keys("x", key)
    await rig.until(lambda: isinstance(rig.app.screen, GateScreen) and rig.app.focused is not None)
    assert isinstance(rig.app.screen, GateScreen)
    return rig.app.screen


async def test_preempting_a_task_asks_for_exactly_its_current_attempt() -> None:
    async with console() as rig:
        gate = await open_kick(rig, f"{TRAIN}/0")
        text = rig.screen_text()
        assert f"Preempt {TRAIN}/0:0?" in text and "charges the preemption budget" in text
        assert f"iris-core --cluster=lab attempt preempt {TRAIN}/0:0" in text
        assert gate.plan.tier == 1
        await rig.keys("enter")
        await rig.until(lambda: rig.app.screen is rig.jobs)
        assert rig.client.called("KickTasks") == []
        await rig.keys("x", "p")
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen) and rig.app.focused is not None)
        await rig.keys("right", "enter")
        await rig.until(lambda: rig.client.called("KickTasks"))
        (request,) = rig.client.called("KickTasks")
        assert list(request.targets) == [f"{TRAIN}/0"]
        assert request.desired_state == TaskState.PREEMPTED and len(request.request_id) == 32
        await rig.until(lambda: f"Preempt {TRAIN}/0:0: preempted" in rig.screen_text())


async def test_failing_says_that_it_is_for_good() -> None:
    async with console() as rig:
        await open_kick(rig, f"{TRAIN}/1", key="f")
        assert "not tried again" in rig.screen_text()
        await rig.keys("right", "enter")
        await rig.until(lambda: rig.client.called("KickTasks"))
        assert rig.client.called("KickTasks")[0].desired_state == TaskState.FAILED


async def test_an_attempt_that_is_not_current_and_a_task_on_no_worker_are_refused_with_the_reason() -> None:
    async with console() as rig:
        await rig.row(TRAIN)
        await rig.keys("right")
        await rig.until(lambda: f"{TRAIN}/7" in rig.jobs.store.order)
        rig.app.run_command(f"preempt {TRAIN}/7:0")
        await rig.until(lambda: f"nothing to do, {TRAIN}/7:0" in rig.screen_text())
        rig.app.run_command(f"fail {TRAIN}/7")
        await rig.until(lambda: f"nothing to do, {TRAIN}/7: it is" in rig.screen_text())
        with pytest.raises(ModelError, match=f"is a job; name a task of it, such as {TRAIN}/0"):
            rig.app.run_command(f"preempt {TRAIN}")
        assert rig.client.called("KickTasks") == []


async def test_several_attempts_need_a_tick_go_in_one_request_and_each_gets_its_answer() -> None:
    async with console() as rig:
        rig.app.run_command(f"preempt {TRAIN}/0 {TRAIN}/1 {TRAIN}/7")
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen))
        gate = rig.app.screen
        assert isinstance(gate, GateScreen) and gate.plan.tier == 2
        assert [target.id for target in gate.plan.targets] == [f"{TRAIN}/0:0", f"{TRAIN}/1:0"]
        confirm = gate.query_one("#gate-confirm", Button)
        assert confirm.disabled
        await rig.until(lambda: "Tab goes here, Space ticks it" in rig.screen_text())
        await rig.keys("tab", "space")
        await rig.until(lambda: not confirm.disabled)
        await rig.keys("right", "right", "enter")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage) and "2 done, 1 failed" in rig.screen_text())
        (request,) = rig.client.called("KickTasks")
        assert list(request.targets) == [f"{TRAIN}/0", f"{TRAIN}/1"]
        assert f"{TRAIN}/7  left out: it is pending, on no worker" in rig.screen_text()


async def test_an_attempt_that_is_replaced_while_the_gate_is_open_is_not_kicked() -> None:
    async with console() as rig:
        gate = await open_kick(rig, f"{TRAIN}/0")
        rig.client.put(task(TRAIN, 0, "RUNNING", now_ms=rig.clock.now_ms(), attempt=1, worker_id="h100-1"))
        await rig.until(lambda: gate.query_one("#gate-changed", Static).display)
        await rig.keys("right", "enter")
        await rig.until(lambda: "Look again" in rig.screen_text())
        assert int(rig.client.tasks[f"{TRAIN}/0"].state) == TaskState.RUNNING, "refused by the server"


async def test_a_lost_answer_to_a_kick_is_asked_for_again_with_the_same_request_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("iris_tui.changes.RETRY_S", 0.0)
    async with console() as rig:
        rig.client.fail("KickTasks", ConnectFailed("connection reset"), times=2)
        await open_kick(rig, f"{TRAIN}/0")
        await rig.keys("right", "enter")
        await rig.until(lambda: len(rig.client.called("KickTasks")) == 3)
        assert len({request.request_id for request in rig.client.called("KickTasks")}) == 1


async def test_a_refused_kick_is_said() -> None:
    async with console() as rig:
        rig.client.fail("KickTasks", RpcFailed("PERMISSION_DENIED", "only ada may [do] that"))
        await open_kick(rig, f"{TRAIN}/0")
        await rig.keys("right", "enter")
        await rig.until(lambda: "only ada may [do] that" in rig.screen_text())


SUBJECTS = {"job": "/cleo/sweep-lr", "task": "/cleo/sweep-lr/0", "explain": "/cleo/sweep-lr", "worker": "h100-1"}


def _stands_on(rig: Rig, home: str) -> bool:
    screen = rig.app.console_screen
    return not home or (screen is not None and screen.place[0] == home and screen.is_mounted)


async def test_read_only_offers_no_change_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    async with console(read_only=True) as rig:
        assert "READ-ONLY" in rig.lines()[0]
        await rig.row("/cleo/sweep-lr")
        await rig.keys("x")
        assert isinstance(rig.app.screen, MenuScreen)
        assert not any(BY_ID[name].mutates for _, name, _ in rig.app.screen.entries)
        await rig.keys("escape")
        said: list[str] = []
        monkeypatch.setattr(rig.app, "say", lambda text, **_: said.append(text))
        for action in [action for action in ACTIONS if action.mutates]:
            home = next((name for name in SCREENS if action.scope in load(name).SCOPES), "")  # type: ignore[attr-defined]
            if home:
                rig.app.go(home, SUBJECTS.get(home, ""))
            await rig.until(lambda home=home: _stands_on(rig, home))  # type: ignore[misc]
            assert action.id not in {binding.binding.id for binding in rig.app.active_bindings.values()}
            said.clear()
            rig.app.run_command(f"{action.command} {'/cleo/sweep-lr' if action.arguments else ''}")
            assert said and said[0].startswith(action.title) and "read-only" in said[0], action.id
        assert not any(isinstance(screen, GateScreen) for screen in rig.app.screen_stack)
        assert not rig.client.called("Plan")


async def test_nothing_is_changed_on_stale_data() -> None:
    async with console() as rig:
        rig.client.break_connection()
        await rig.until(lambda: not rig.app.session.link.fresh)
        await rig.row("/cleo/sweep-lr")
        await rig.keys("x", "c")
        await rig.until(lambda: "not live" in rig.screen_text())
        assert not isinstance(rig.app.screen, GateScreen)


async def test_keys_under_an_open_gate_do_nothing_below_it() -> None:
    async with console() as rig:
        gate = await open_gate(rig, "/cleo/sweep-lr")
        await rig.keys("x", "l", "d", "colon", "slash", "space", "q")
        assert rig.app.screen is gate
        assert not rig.jobs.prompt.is_open and not rig.jobs.store.marks and not rig.jobs.query(LogPane)
        assert rig.app.refusal(BY_ID["target.cancel"])


async def test_production_is_a_word_in_the_header_and_in_the_gate() -> None:
    async with console(environment="production") as rig:
        assert "PROD" in rig.lines()[0]
        await open_gate(rig, "/cleo/sweep-lr")
        assert "PROD  on lab" in rig.screen_text()


async def test_the_highest_tier_needs_the_name_typed_exactly() -> None:
    async with console() as rig:
        decisions: list[Decision | None] = []
        plan = GatePlan(
            "Restart",
            "the controller",
            3,
            "lab",
            "",
            (GateTarget("lab", "1"),),
            ("everything stops",),
            "iris-core x",
        )
        rig.app.push_screen(GateScreen(plan), decisions.append)
        await rig.until(lambda: rig.app.focused is not None and rig.app.focused.id == "gate-cancel")
        confirm = rig.app.screen.query_one("#gate-confirm", Button)
        rig.app.screen.query_one("#gate-name").focus()
        await rig.until(lambda: rig.app.focused is not None and rig.app.focused.id == "gate-name")
        await rig.type("LAB")
        assert confirm.disabled
        await rig.keys("backspace", "backspace", "backspace")
        await rig.type("la")
        await rig.keys("enter")
        assert confirm.disabled
        assert decisions == []
        await rig.type("b")
        await rig.until(lambda: not confirm.disabled)
        await rig.keys("enter")
        await rig.until(lambda: rig.app.focused is confirm)
        assert not decisions
        await rig.keys("enter")
        await rig.until(lambda: decisions == [Decision(typed="lab")])


async def test_production_asks_for_a_reason_and_a_paste_is_marked() -> None:
    async with console(environment="production") as rig:
        gate = await open_gate(rig, "/cleo/sweep-lr")
        confirm = gate.query_one("#gate-confirm", Button)
        assert confirm.disabled and "Reason (needed):" in rig.screen_text()
        gate.query_one("#gate-reason").focus()
        await rig.until(lambda: rig.app.focused is not None and rig.app.focused.id == "gate-reason")
        await rig.keys("enter")
        assert rig.app.screen is gate
        assert confirm.disabled
        rig.app.post_message(events.Paste("disk is full, token=geheim123"))
        await rig.until(lambda: not confirm.disabled)
        await rig.until(lambda: "pasted, which the audit log will say" in rig.screen_text())
        await rig.keys("enter")
        await rig.until(lambda: rig.app.focused is confirm)
        await rig.keys("enter")
        await rig.until(lambda: rig.client.called("TerminateJob"))
        (call,) = [call for call in rig.client.calls if call.method.endswith("/TerminateJob")]
        said = json.loads(call.headers["iris-client-context"])
        assert said == {
            "interface": "console",
            "pasted": True,
            "reason": "disk is full, token=[redacted:token]",
            "command": "iris-core --cluster=lab job cancel /cleo/sweep-lr",
        }
        assert call.request.reason == "disk is full, token=[redacted:token]"
        assert call.headers["iris-plan-token"]


# --- connection ------------------------------------------------------------------------------------------------------


async def test_before_the_first_answer_it_says_what_it_does_and_then_why_it_fails() -> None:
    client = sample(FakeClock())
    client.freeze()
    async with console(client, ready=False) as rig:
        await rig.until(lambda: "Loading the jobs of lab" in rig.screen_text())
        client.break_connection("connection refused by lab:10000")
        client.thaw()
        await rig.until(lambda: rig.jobs.pane.status.state is State.ERROR)
        assert "connection refused by lab:10000" in rig.screen_text()
        client.restore()
        await rig.keys("ctrl+r")
        await rig.until(lambda: rig.jobs.pane.status.state is State.READY)


async def test_a_dead_side_ages_the_data_and_every_key_still_answers() -> None:
    async with console() as rig:
        rig.client.freeze()
        rig.clock.advance(22)
        await rig.until(lambda: "STALE 22s" in rig.lines()[0])
        assert "/cleo/sweep-lr" in rig.screen_text()
        await rig.keys("down")
        assert rig.selected() == rig.jobs.store.order[1]
        await rig.keys("question_mark")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage))
        await rig.keys("escape")
        rig.client.thaw()
        rig.client.heartbeat()
        await rig.until(lambda: "LIVE" in rig.lines()[0])


async def test_another_cluster_and_back_finds_the_old_data_with_its_age() -> None:
    clock = FakeClock()
    other = FakeClient(cluster="b", now_ms=clock.now_ms())
    other.put(job("/b/other", "RUNNING", now_ms=clock.now_ms()))

    def open_session(name: str) -> Session:
        async def connect() -> AsyncClient:
            return other

        return Session(name, connect, clock)

    async with console(open_session=open_session) as rig:
        rig.client.freeze()
        rig.clock.advance(22)
        rig.app.run_command("cluster b")
        await rig.until(lambda: "/b/other" in rig.screen_text())
        assert "/cleo/sweep-lr" not in rig.screen_text()
        rig.app.run_command("cluster lab")
        await rig.until(lambda: "STALE 22s" in rig.lines()[0] and "/cleo/sweep-lr" in rig.screen_text())
        rig.client.thaw()
        rig.client.heartbeat()
        await rig.until(lambda: "LIVE" in rig.lines()[0])


async def test_a_bug_in_background_work_is_said_and_ends_nothing() -> None:
    async with console() as rig:

        async def broken() -> None:
            raise RuntimeError("a [bug]")

        rig.app.run_worker(broken(), name="something", exit_on_error=False)
        await rig.until(lambda: "something failed: a [bug]" in rig.screen_text())


# --- commands, palette, leaving --------------------------------------------------------------------------------------


async def test_keys_typed_ahead_arrive_one_after_the_other() -> None:
    async with console() as rig:
        await rig.keys("question_mark")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage))
        for key, character in (("escape", None), ("colon", ":"), *((letter, letter) for letter in "jobs"), ("space", " "),
                               *((letter, letter) for letter in "ada"), ("enter", "\r"), ("down", None)):  # fmt: skip
            rig.app.post_message(events.Key(key, character))
        await rig.until(lambda: rig.jobs.filter is not None and rig.jobs.filter.text == "ada")
        assert rig.app.screen is rig.jobs


async def test_an_escape_that_came_together_with_the_next_key_is_an_escape() -> None:
    async with console() as rig:
        await rig.keys("question_mark")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage))
        await rig.keys("circumflex_accent")
        await rig.until(lambda: rig.app.screen is rig.jobs)


async def test_an_escape_that_came_together_with_the_next_key_leaves_a_gate() -> None:
    async with console() as rig:
        await open_gate(rig, "/cleo/sweep-lr")
        await rig.keys("circumflex_accent")
        await rig.until(lambda: rig.app.screen is rig.jobs)
        assert not rig.client.called("TerminateJob")


async def test_an_escape_and_a_key_in_one_breath_are_both_of_them() -> None:
    async with console() as rig:

        def arrives(text: str) -> None:
            parser = KeyParser()
            for key in (*parser.feed(text), *parser.feed("")):
                rig.app.post_message(key)

        await rig.keys("question_mark")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage))
        arrives("\x1b:")
        await rig.until(lambda: rig.app.screen is rig.jobs and rig.jobs.prompt.is_open)
        arrives("\x1bN")
        await rig.until(lambda: not rig.jobs.prompt.is_open and rig.jobs.table.sorted_by == "name")
        await rig.keys("question_mark")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage))
        arrives("\x1bx")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen))


async def test_alt_and_a_key_is_that_where_somebody_gave_it_something_to_do() -> None:
    def typed(key: str) -> list[str]:
        return [one.key for one in WithEscape(key, key).keys(lambda name: name in ("alt+x", "alt+shift+y"))]

    assert typed("x") == ["alt+x"] and typed("Y") == ["alt+shift+y"]
    assert typed("y") == ["escape", "y"] and typed("X") == ["escape", "X"]


async def test_an_enter_that_was_typed_before_the_console_had_the_terminal_is_an_enter() -> None:
    async with console() as rig:
        await rig.keys("colon", *"jobs", "space", *"ada", "ctrl+j")
        await rig.until(lambda: rig.jobs.filter is not None and rig.jobs.filter.text == "ada")
        assert not rig.jobs.prompt.is_open


async def test_a_command_from_a_page_goes_back_to_its_screen() -> None:
    async with console() as rig:
        await rig.row("/dan/oom")
        await rig.keys("d")
        await rig.until(lambda: "memory limit of 1GB" in rig.screen_text())
        await rig.keys("colon")
        await rig.type("jobs state:running")
        await rig.keys("enter")
        await rig.until(lambda: rig.app.screen is rig.jobs and len(rig.jobs.store.order) == 2)


async def test_an_unknown_command_stays_in_the_line_with_its_fault() -> None:
    async with console() as rig:
        await rig.keys("colon")
        await rig.type("jbos")
        await rig.keys("enter")
        await rig.until(lambda: rig.jobs.prompt.has_class("-wrong"))
        assert "did you mean 'jobs'" in rig.jobs.prompt.fault.text


async def test_the_palette_finds_actions_and_jobs() -> None:
    async with console() as rig:
        await rig.keys("ctrl+p")
        await rig.until(lambda: rig.app.screen is not rig.jobs)
        await rig.type("stuck")
        await rig.until(lambda: "/eve/stuck" in rig.screen_text())
        await rig.keys("enter", "enter")
        await rig.until(lambda: rig.selected() == "/eve/stuck")


async def test_what_needs_an_argument_is_in_the_palette_too_and_is_asked_for_it() -> None:
    async with console() as rig:
        await rig.keys("ctrl+p")
        await rig.until(lambda: rig.app.screen is not rig.jobs)
        await rig.type("save the filter under")
        await rig.until(lambda: "Save the filter under a name :save-filter" in rig.screen_text())
        await rig.keys("enter", "enter")
        await rig.until(lambda: rig.jobs.prompt.input.value == "save-filter " and rig.app.screen is rig.jobs)
        rig.jobs.set_filter("state:failed")
        await rig.type("mine")
        await rig.keys("enter")
        await rig.until(lambda: rig.app.session.saved.named("job") == {"mine": "state:failed"})


async def test_every_action_that_something_here_answers_is_in_the_palette() -> None:
    async with console() as rig:
        found = {action.id for action in ActionProvider(rig.jobs)._available()}
        here = [action for action in ACTIONS if not action.moves and rig.app.host_of(action.scope) is not None]
        assert found >= {action.id for action in here} - {"app.palette"}
        assert {"go.job", "go.task", "target.cancel", "list.save_filter"} <= found


async def test_the_spec_shows_the_request_and_no_secret() -> None:
    async with console() as rig:
        await rig.row("/ada/train-llama")
        await rig.keys("y")
        await rig.until(lambda: "llama 8b.yaml" in rig.screen_text())
        assert "WANDB_API_KEY: <redacted>" in rig.screen_text()


async def test_explain_shows_the_cause_the_funnel_and_who_holds_what_is_missing() -> None:
    async with console() as rig:
        found = explain_pb2.Explanation(subject="/eve/stuck", verdict=explain_pb2.EXPLAIN_VERDICT_WAITS, workers=3)
        found.cause = "needs 8 cores free: the most on one of 2 workers is 4 of 16"
        found.funnel.add(name="health", wants="healthy", left=2, more=1).found.add(value="dead", workers=1)
        found.funnel.add(name="cpu", wants="8 cores", needed=8_000, most_free=4_000, most_total=16_000)
        found.blocked.add(worker_id="w1", step="cpu", missing=4_000).holders.add(
            task_id="/dan/\x1b[31mbig/0", held=12_000
        )
        rig.client.explanations["/eve/stuck"] = found
        await rig.row("/eve/stuck")
        await rig.keys("w")
        await rig.until(lambda: found.cause in rig.screen_text())
        shown = rig.lines()
        assert any(line.split()[:4] == ["health", "healthy", "2", "+1"] for line in shown)
        assert any("most free 4 of 16" in line for line in shown)
        assert any("/dan/\u241b[31mbig/0 (12)" in line for line in shown), rig.screen_text()
        await rig.keys("escape")
        rig.app.run_command("explain /eve/stuck/0:1")
        await rig.until(lambda: "nothing is known of /eve/stuck/0" in rig.screen_text())


async def test_describe_names_attempts_exit_and_signal() -> None:
    async with console() as rig:
        rig.app.run_command("describe /ada/train-llama/7")
        await rig.until(lambda: "137 (SIGKILL)" in rig.screen_text())
        assert "out of memory" in rig.screen_text() and "as of 00:00:00 UTC" in rig.screen_text()


async def test_a_page_that_cannot_be_read_says_so_and_reads_again() -> None:
    async with console() as rig:
        rig.client.fail("GetJobStatus", ConnectFailed("gone"))
        await rig.row("/dan/oom")
        await rig.keys("d")
        await rig.until(lambda: "Not loaded: gone" in rig.screen_text())
        await rig.keys("ctrl+r")
        await rig.until(lambda: "memory limit of 1GB" in rig.screen_text())


@pytest.mark.parametrize("keys", [("q", "y"), ("q", "enter"), ("ctrl+q", "ctrl+q"), ("ctrl+c", "ctrl+c")])
async def test_quitting_asks_once(keys: tuple[str, str]) -> None:
    async with console(quit_note="The demo ends.") as rig:
        await rig.keys(keys[0])
        await rig.until(lambda: isinstance(rig.app.screen, QuitScreen) and rig.app.focused is not None)
        assert "The demo ends." in rig.screen_text()
        await rig.keys("escape")
        await rig.until(lambda: rig.app.screen is rig.jobs)
        await rig.keys(keys[0])
        await rig.until(lambda: isinstance(rig.app.screen, QuitScreen) and rig.app.focused is not None)
        await rig.pilot.press(keys[1])
        async with asyncio.timeout(60):
            while rig.app.return_code is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert rig.app.return_code == 0


async def test_the_command_quits_without_asking_and_closes_the_connection() -> None:
    async with console() as rig:
        rig.client.freeze()
        rig.app.run_command("q")
        assert rig.app.return_code == 0
    assert rig.client.closed


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 50), (20, 5)])
async def test_every_size_shows_the_jobs_and_can_be_left(size: tuple[int, int]) -> None:
    async with console(size=size) as rig:
        await rig.keys("down", "enter", "l", "escape", "d", "escape")
        await rig.pilot.resize_terminal(100, 30)
        await rig.until(lambda: "/cleo/sweep-lr" in rig.screen_text())
        await rig.keys("q")
        await rig.until(lambda: isinstance(rig.app.screen, QuitScreen))


async def test_ascii_glyphs_are_ascii() -> None:
    assert all(getattr(ASCII, name).isascii() for name in ASCII.__slots__)
    async with console() as rig:
        rig.app.glyphs = ASCII
        assert rig.app.glyphs.closed == "+"


async def test_a_task_that_cannot_be_marked_in_the_tree_says_where_it_can() -> None:
    async with console() as rig:
        await rig.row(TRAIN)
        await rig.keys("right")
        await rig.until(lambda: f"{TRAIN}/0" in rig.jobs.store.order)
        await rig.row(f"{TRAIN}/0")
        await rig.keys("space")
        await rig.until(lambda: "tasks to mark" in rig.screen_text())
