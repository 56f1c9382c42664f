"""The Query screen driven by keys: writing, running, ending and mending a statement, and from its rows to a change."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from iris_core.contracts import RpcFailed
from iris_core.model.errors import ModelError
from iris_tui.actions import BY_ID
from iris_tui.gate import GateScreen, MenuScreen
from iris_tui.pages import TextPage
from iris_tui.widgets.pane import State
from iris_tui.widgets.virtual_table import VirtualTable
from providers.fake.clock import FakeClock
from providers.fake.query_samples import FakeDatabase
from providers.fake.samples import sample
from screens.query import QueryScreen
from tests.unit.test_console_app import Rig, console

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from iris_core.live.rows import ChangeSet

pytestmark = pytest.mark.asyncio
SQL = "SELECT task_id, state, worker_id FROM tasks"


class Queries(Rig):
    database: FakeDatabase

    @property
    def query(self) -> QueryScreen:
        screen = self.app.console_screen
        assert isinstance(screen, QueryScreen)
        return screen

    async def ask(self, sql: str = SQL) -> None:
        self.query.editor.put(sql)
        self.query.do_run()
        await self.until(lambda: not self.query.asking)


@asynccontextmanager
async def queries(size: tuple[int, int] = (120, 40), *, read_only: bool = False) -> AsyncIterator[Queries]:
    clock = FakeClock()
    client = sample(clock)
    database = FakeDatabase(client).attach()
    async with console(client, size=size, read_only=read_only) as rig:
        found = Queries(rig.app, rig.pilot, client, rig.clock)
        found.database = database
        rig.app.go("query")
        await found.until(lambda: isinstance(rig.app.screen, QueryScreen) and rig.app.screen.is_mounted)
        yield found


async def test_what_is_typed_runs_and_is_shown_with_counts_and_time() -> None:
    async with queries() as rig:
        await rig.until(lambda: rig.query.pane.status.state is State.EMPTY)
        assert "Nothing was asked yet." in rig.screen_text()
        await rig.type("select 1")
        await rig.keys("enter")
        await rig.type("from q:?v")
        assert rig.query.editor.text == "select 1\nfrom q:?v", "no key is a command there"
        await rig.keys("f5")
        await rig.until(lambda: len(rig.query.store.order) == 3)
        text = rig.screen_text()
        assert "3 rows" in text and "NULL" in text and "acts on task_id" in text and "3 rows  0s" in text
        assert rig.client.called("ExecuteRawQuery")[0].sql == "select 1\nfrom q:?v"
        assert rig.query.focused is rig.query.table


async def test_enter_behind_a_semicolon_runs_it() -> None:
    async with queries() as rig:
        await rig.type("select 1;")
        await rig.keys("enter")
        await rig.until(lambda: rig.query.result is not None)
        assert rig.client.called("ExecuteRawQuery")[0].sql == "select 1;"


async def test_the_place_of_a_fault_is_selected_and_the_answer_before_stays() -> None:
    async with queries() as rig:
        await rig.ask()
        rig.database.error = RpcFailed(
            "INVALID_ARGUMENT", 'SQL: near "FORM": syntax error', code="query_syntax", position=9
        )
        await rig.ask("SELECT 1\nFORM tasks")
        await rig.until(lambda: rig.query.pane.status.state is State.STALE)
        assert rig.query.editor.selected_text == "FORM"
        assert "line 2, column 1" in rig.screen_text() and "/cleo/sweep-lr/3" in rig.screen_text()
        rig.database.error = None
        await rig.ask("SELECT 1\nFROM tasks")
        await rig.until(lambda: rig.query.pane.status.state is State.READY)
        assert "line 2" not in rig.screen_text()


async def test_a_first_statement_that_fails_says_why() -> None:
    async with queries() as rig:
        rig.database.error = RpcFailed("PERMISSION_DENIED", "only admins may", hint="ask one")
        await rig.ask()
        await rig.until(lambda: rig.query.pane.status.state is State.ERROR)
        assert "only admins may" in rig.screen_text() and "ask one" in rig.screen_text()


async def test_why_a_later_statement_has_no_answer_is_to_be_read_in_a_narrow_terminal() -> None:
    async with queries((80, 24)) as rig:
        rig.database.names = tuple(f"a_rather_long_column_{number}" for number in range(12))
        rig.database.rows = [[number for number in range(12)]]
        await rig.ask()
        rig.database.error = RpcFailed("INVALID_ARGUMENT", "only one SELECT may be asked")
        await rig.ask("DELETE FROM tasks")
        await rig.until(lambda: "only one SELECT may be asked" in rig.screen_text())
        rig.database.hold()
        rig.query.do_run()
        rig.clock.advance(2)
        await rig.until(lambda: "running for 2s, Esc ends it" in rig.screen_text())
        rig.database.error = None
        rig.database.release()
        await rig.until(lambda: "shows the whole row" in rig.screen_text())


async def test_a_running_statement_says_how_long_and_is_ended_with_escape() -> None:
    async with queries() as rig:
        rig.database.hold()
        rig.query.editor.put(SQL)
        await rig.keys("f5")
        rig.clock.advance(7)
        await rig.until(lambda: "running for 7s, Esc ends it" in rig.screen_text())
        await rig.keys("escape")
        await rig.until(lambda: not rig.query.asking and rig.query.pane.status.state is State.ERROR)
        assert "ended before it was answered" in rig.screen_text()
        rig.database.release()
        rig.client.heartbeat()
        await rig.ask()
        await rig.until(lambda: rig.query.pane.status.state is State.READY)


async def test_what_the_server_left_out_is_said() -> None:
    async with queries() as rig:
        rig.database.truncated = True
        await rig.ask()
        await rig.until(lambda: rig.query.pane.status.state is State.PARTIAL)
        assert "the first 3 rows, the server sends no more" in rig.screen_text()


async def test_stats_are_asked_after_the_switch_and_their_notes_are_shown() -> None:
    async with queries() as rig:
        await rig.keys("f4")
        assert "SQL on stats, events and logs" in rig.screen_text()
        await rig.ask("SELECT reason, count(*) AS events FROM x GROUP BY 1")
        await rig.until(lambda: "Preempted" in rig.screen_text())
        assert "1 damaged segment" in rig.screen_text()
        with pytest.raises(ModelError, match="no database"):
            rig.query.do_database("auth")


async def test_a_template_is_put_into_the_editor_with_its_blank_selected() -> None:
    async with queries() as rig:
        await rig.keys("f9")
        menu = rig.app.screen
        assert isinstance(menu, MenuScreen)
        key = next(key for key, _, title in menu.entries if title.startswith("What occupies a slice"))
        await rig.keys(key)
        await rig.until(lambda: rig.query.editor.selected_text == "<slice_id>")
        await rig.type("s-1")
        assert "w.slice_id = 's-1'" in rig.query.editor.text


async def test_earlier_statements_are_offered_newest_first() -> None:
    async with queries() as rig:
        await rig.ask("SELECT 1")
        await rig.ask("SELECT 2")
        rig.query.do_earlier()
        await rig.pilot.pause()
        assert isinstance(rig.app.screen, MenuScreen)
        assert [title for _, _, title in rig.app.screen.entries] == ["SELECT 2", "SELECT 1"]
        await rig.keys("2")
        await rig.until(lambda: rig.query.editor.text == "SELECT 1")


async def test_rows_are_filtered_and_sorted_and_stay_so_when_it_is_asked_again() -> None:
    async with queries() as rig:
        await rig.ask()
        rig.query.set_filter("worker_id:h100")
        rig.query.sort_by("task_id", reverse=True)
        await rig.until(lambda: rig.query.store.order == ["/ada/train-llama/1", "/ada/train-llama/0"])
        assert "2 of 3 rows" in rig.screen_text()
        await rig.ask()
        await rig.until(lambda: rig.query.store.order == ["/ada/train-llama/1", "/ada/train-llama/0"])
        with pytest.raises(ModelError, match="no field"):
            rig.query.set_filter("nothing:1")


async def test_hidden_columns_are_counted_and_reached() -> None:
    async with queries((80, 24)) as rig:
        rig.database.names = tuple(f"column_number_{n}" for n in range(9))
        rig.database.rows = [tuple(range(9))]
        await rig.ask()
        await rig.until(lambda: "of 9 columns hidden" in rig.screen_text())
        assert "column_number_8" not in rig.screen_text()
        await rig.keys(*["right"] * 8)
        await rig.until(lambda: "column_number_8" in rig.screen_text())
        await rig.keys("enter")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage) and "column_number_0" in rig.screen_text())


async def test_marked_rows_are_preempted_through_the_gate_with_the_pipe_as_its_command() -> None:
    async with queries() as rig:
        await rig.ask(f"{SQL} WHERE worker_id = 'h100-0'")
        rig.database.rows = rig.database.rows[:2]
        await rig.ask(f"{SQL} WHERE worker_id = 'h100-0'")
        await rig.keys("space", "space", "x", "p")
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen))
        gate = rig.app.screen
        assert isinstance(gate, GateScreen)
        assert [target.id.partition(":")[0] for target in gate.plan.targets] == [
            "/ada/train-llama/0",
            "/ada/train-llama/1",
        ]
        assert gate.plan.command.startswith("iris-core --cluster=lab query -f csv ")
        assert gate.plan.command.endswith("| iris-core --cluster=lab task preempt --stdin")
        await rig.keys("escape")


async def test_some_of_the_rows_are_named_in_the_command() -> None:
    async with queries() as rig:
        await rig.ask()
        await rig.keys("x", "p")
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen))
        gate = rig.app.screen
        assert isinstance(gate, GateScreen)
        assert "|" not in gate.plan.command and "preempt /ada/train-llama/0" in gate.plan.command
        await rig.keys("escape")


async def test_where_two_columns_hold_ids_the_operator_chooses() -> None:
    async with queries() as rig:
        rig.database.names = ("job_id", "task_id")
        rig.database.rows = [("/ada/train-llama", "/ada/train-llama/0"), ("/ada/train-llama", "/ada/train-llama/1")]
        await rig.ask("SELECT job_id, task_id FROM tasks")
        await rig.until(lambda: "acts on: A chooses" in rig.screen_text())
        with pytest.raises(ModelError, match="several columns hold ids"):
            rig.query.perform(BY_ID["target.cancel"], "")
        await rig.keys("x")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen) and "Which ids are meant?" in rig.screen_text())
        await rig.keys("a")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen) and "Complete" in rig.screen_text())
        await rig.keys("escape")
        assert rig.query.chosen_ids(("job",)) == ["/ada/train-llama"]
        rig.query.do_column("task_id")
        await rig.until(lambda: "acts on task_id" in rig.screen_text())
        assert rig.query.store.order == ["/ada/train-llama/0", "/ada/train-llama/1"]


@pytest.mark.parametrize("slow", [False, True])
async def test_the_rows_that_were_chosen_stay_chosen_when_the_column_is(
    monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    flush = VirtualTable.flush

    def slowly(table: VirtualTable, changes: ChangeSet) -> None:
        time.sleep(0.1)  # flushes rest for a while after such a one
        flush(table, changes)

    async with queries() as rig:
        rig.database.names = ("job_id", "task_id")
        rig.database.rows = [("/ada/train-llama", f"/ada/train-llama/{n}") for n in range(4)]
        await rig.ask("SELECT job_id, task_id FROM tasks")
        await rig.until(lambda: "acts on: A chooses" in rig.screen_text())
        if slow:
            monkeypatch.setattr(VirtualTable, "flush", slowly)
        await rig.keys("down", "down", "x")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen) and "Which ids are meant?" in rig.screen_text())
        await rig.keys("b")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen) and "Preempt" in rig.screen_text())
        assert rig.query.table.cursor_id == "/ada/train-llama/2"
        await rig.keys("escape")
        await rig.until(lambda: isinstance(rig.app.screen, QueryScreen))
        await rig.keys("space", "space")
        await rig.until(lambda: len(rig.query.store.marks) == 2)
        marked = set(rig.query.store.marks)
        assert len(marked) == 2 and "/ada/train-llama/2" in marked
        for name, wanted in (("task_id", marked), ("job_id", None), ("task_id", marked)):
            rig.app.run_command(f"act-on {name}")
            if wanted is None:
                assert len(rig.query.store.marks) == 2, "the same rows by other ids"
            else:
                assert rig.query.store.marks == wanted


async def test_what_a_column_was_chosen_for_goes_on_where_drawing_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = VirtualTable.flush

    def slow(table: VirtualTable, changes: ChangeSet) -> None:
        time.sleep(0.1)  # flushes rest for a while after such a one: the rows are not shown anew at once
        flush(table, changes)

    async with queries() as rig:
        rig.database.names = ("job_id", "task_id")
        rig.database.rows = [("/ada/train-llama", "/ada/train-llama/0")]
        await rig.ask("SELECT job_id, task_id FROM tasks")
        await rig.until(lambda: "acts on: A chooses" in rig.screen_text())
        monkeypatch.setattr(VirtualTable, "flush", slow)
        await rig.keys("x")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen) and "Which ids are meant?" in rig.screen_text())
        await rig.keys("a")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen) and "Complete" in rig.screen_text())


async def test_read_only_offers_no_change() -> None:
    async with queries(read_only=True) as rig:
        await rig.ask()
        await rig.keys("x")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen))
        menu = rig.app.screen
        assert isinstance(menu, MenuScreen)
        assert not any(BY_ID[name].mutates for _, name, _ in menu.entries)


async def test_a_key_right_after_an_answer_is_about_its_rows_where_drawing_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flush = VirtualTable.flush

    def slow(table: VirtualTable, changes: ChangeSet) -> None:
        time.sleep(0.1)  # a slow terminal: flushes rest for a while after such a one
        flush(table, changes)

    async with queries() as rig:
        monkeypatch.setattr(VirtualTable, "flush", slow)
        await rig.ask("SELECT 1")
        await rig.ask()
        await rig.keys("x")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen))


async def test_a_key_that_moves_the_cursor_in_a_filtered_answer_holds_up_no_other() -> None:
    async with queries() as rig:
        await rig.ask()
        rig.query.set_filter("worker_id:h100")
        await rig.until(lambda: len(rig.query.store.order) == 2 and rig.query.takes_keys())
        for number in (1, 0):
            await rig.keys("down" if number else "up")
            await rig.until(lambda: rig.query.table.cursor_id == f"/ada/train-llama/{number}")  # noqa: B023
            assert rig.query.takes_keys()
        await rig.keys("space")
        await rig.until(lambda: bool(rig.query.store.marks))
        assert rig.query.takes_keys()
        await rig.ask()
        await rig.until(lambda: not rig.query.store.marks and rig.query.takes_keys())
        assert rig.query.filter is not None and len(rig.query.store.order) == 2


async def test_rows_are_saved_as_csv_and_json(tmp_path: Path) -> None:
    async with queries() as rig:
        await rig.ask()
        csv, js = tmp_path / "rows.csv", tmp_path / "rows.json"
        rig.app.run_command(f"save-rows {csv}")
        await rig.until(csv.exists)
        assert csv.read_text().splitlines()[:2] == ["task_id,state,worker_id", "/ada/train-llama/0,3,h100-0"]
        rig.app.run_command(f"save-rows {js}")
        await rig.until(js.exists)
        assert json.loads(js.read_text())[2] == {"task_id": "/cleo/sweep-lr/3", "state": 3, "worker_id": None}


async def test_the_command_takes_a_statement_and_the_screen_is_found_again_with_it() -> None:
    async with queries() as rig:
        rig.app.run_command("query SELECT 1 FROM jobs WHERE a='x y'")
        await rig.until(lambda: rig.query.result is not None)
        assert rig.client.called("ExecuteRawQuery")[0].sql == "SELECT 1 FROM jobs WHERE a='x y'"
        assert rig.query.view_state()["sql"] == "SELECT 1 FROM jobs WHERE a='x y'"
        fresh = QueryScreen(rig.app.session)
        fresh.restore({"sql": "SELECT 2", "database": "stats"})
        assert (fresh.editor.text, fresh.database) == ("SELECT 2", "stats")
