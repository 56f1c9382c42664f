"""What once stood in the way of somebody who had read the README and the help and nothing else: each fault's kind, held once."""

from __future__ import annotations

import pytest
from textual import events

from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import profiles_pb2
from iris_tui.commands import parse_command
from iris_tui.gate import GateScreen
from iris_tui.help import help_lines
from iris_tui.pages import TextPage
from iris_tui.widgets.log_pane import LogPane
from providers.fake.clock import FakeClock
from providers.fake.samples import sample, task
from providers.fake.task_samples import answer
from screens.controller import ControllerScreen
from screens.task import TaskScreen
from screens.tasks import TasksScreen
from screens.workers import WorkersScreen
from tests.unit.test_console_app import Rig, console
from tests.unit.test_console_tasks import console as troubled_console


def body(rig: Rig) -> str:
    """The screen without its head, the line about the row, and the keys."""
    return "\n".join(rig.lines()[2:-2])


# --- words -----------------------------------------------------------------------------------------------------------


def test_help_begins_with_what_people_come_for() -> None:
    lines = [text for text, _ in help_lines(["table", "jobs", "target", "list"], read_only=False)]
    assert lines[0] == "How do I …"
    used = next(line for line in lines if "Who used most" in line)
    assert ">" not in used and "on top" in used, "the list is sorted so already"


def test_help_says_what_the_order_of_a_log_does_not_tell() -> None:
    text = "\n".join(text for text, _ in help_lines(["log"], read_only=False))
    assert "stdout and stderr are two pipes" in text


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("check", "did you mean checkpoint-now, checkpoints?"),
        ("now", "did you mean checkpoint-now, profile-now?"),
        ("jbos", "did you mean 'jobs'?"),
        ("zzzz", "? lists all keys and commands"),
    ],
)
def test_a_command_that_there_is_not_names_those_that_may_have_been_meant(typed: str, meant: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_command(typed)
    assert caught.value.hint == meant


# --- the screen ------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_the_command_line_says_how_a_completion_is_taken_and_takes_it() -> None:
    async with console() as rig:
        await rig.keys("colon", "c", "h", "e", "c", "k")
        await rig.until(lambda: "Tab Complete" in rig.lines()[-1])
        assert "Earlier" not in rig.lines()[-1], "there is nothing earlier"
        prompt = rig.jobs.prompt
        await rig.until(lambda: prompt.input._suggestion)
        await rig.keys("tab")
        assert prompt.input.value == "checkpoint-now"


@pytest.mark.asyncio
async def test_a_gate_that_was_left_says_that_nothing_was_done() -> None:
    async with console() as rig:
        await rig.row("/ada/train-llama")
        await rig.keys("x", "c")
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen))
        await rig.until(lambda: rig.app.focused is not None and rig.app.focused.id == "gate-cancel")
        await rig.keys("enter")
        await rig.until(lambda: "Cancel: nothing was done" in rig.screen_text())
        assert not rig.client.called("TerminateJob") and not rig.client.called("CancelJob")


@pytest.mark.asyncio
async def test_a_name_is_not_cut_beside_a_column_that_has_nothing_to_say() -> None:
    client = sample(FakeClock())
    worker = "gke-tpu-v5e-us-east5-b-0012"
    client.put(task("/ada/train-llama", 0, "RUNNING", now_ms=client.now_ms, worker_id=worker))
    async with console(client) as rig:
        rig.app.run_command("tasks worker:gke")
        await rig.until(lambda: f" {worker} " in body(rig))
        await rig.pilot.resize_terminal(80, 24)
        await rig.until(lambda: "gke-" in body(rig) and worker not in body(rig))
        await rig.pilot.resize_terminal(120, 40)
        await rig.until(lambda: f" {worker} " in body(rig))


@pytest.mark.asyncio
async def test_an_exit_is_not_cut_beside_a_column_of_dashes_and_that_one_comes_when_it_holds_something() -> None:
    client = sample(FakeClock())
    killed = task("/ada/train-llama", 0, "KILLED", now_ms=client.now_ms, worker_id="tpu-v5e-0012", exit_code=143)
    killed.error = "killed by SIGTERM (sender unknown), after it had been told to end"
    client.put(killed)
    async with console(client) as rig:
        rig.app.run_command("tasks worker:v5e")
        await rig.until(lambda: " 143 (SIGTERM) " in body(rig) and " tpu-v5e-0012 " in body(rig))
        assert " PREEMPT " not in body(rig)
        killed.preemption_count = 3
        client.put(killed)
        await rig.until(lambda: " PREEMPT " in body(rig))


@pytest.mark.asyncio
async def test_an_attempt_that_cannot_be_marked_in_the_tree_says_where_it_can() -> None:
    async with console() as rig:
        await rig.row("/ada/train-llama")
        await rig.keys("right")
        await rig.until(lambda: "/ada/train-llama/7" in rig.jobs.store.order)
        await rig.row("/ada/train-llama/7")
        await rig.keys("right")
        await rig.until(lambda: "/ada/train-llama/7:0" in rig.jobs.store.order)
        await rig.row("/ada/train-llama/7:0")
        await rig.keys("space")
        words = "J opens its task, where attempts can be marked"
        await rig.until(lambda: words in " ".join(rig.screen_text().replace("▌", " ").split()))


# --- a command from anywhere ----------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_what_is_named_can_be_looked_at_and_changed_from_a_screen_that_does_not_show_it() -> None:
    client = sample(FakeClock())
    async with console(client) as rig:
        rig.app.run_command("controller")
        await rig.until(lambda: isinstance(rig.app.screen, ControllerScreen) and rig.app.screen.is_mounted)
        screen = rig.app.screen
        for command, title in (("describe", "Describe"), ("spec", "Spec")):
            rig.app.run_command(f"{command} /ada/train-llama")
            said = f"{title} /ada/train-llama"
            await rig.until(lambda said=said: said in rig.screen_text())  # type: ignore[misc]
            await rig.keys("escape")
            await rig.until(lambda: rig.app.screen is screen)
        rig.app.run_command("cancel /ada/train-llama")
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen))
        assert "Cancel /ada/train-llama?" in rig.screen_text(), "the gate as always"
        await rig.keys("escape")
        await rig.until(lambda: rig.app.screen is screen)
        with pytest.raises(ModelError, match="no jobs, tasks and attempts here") as caught:
            rig.app.run_command("describe")
        assert caught.value.hint == "name one: :describe ID"
        rig.app.run_command("readonly")
        rig.app.run_command("cancel /ada/train-llama")
        await rig.until(lambda: "this console is read-only" in rig.screen_text())
        assert rig.app.screen is screen


@pytest.mark.asyncio
async def test_a_change_that_opens_its_own_screen_waits_until_that_one_is_connected() -> None:
    client = sample(FakeClock())
    async with console(client) as rig:
        # The next subscription is answered late.
        client.freeze("Watch")
        rig.app.run_command("checkpoint-now")
        await rig.until(lambda: "Loading the controller of" in rig.screen_text())
        assert isinstance(rig.app.screen, ControllerScreen), "it neither asks nor refuses yet"
        assert "not live" not in rig.screen_text()
        client.thaw()
        await rig.until(lambda: "Checkpoint 1 controller?" in rig.screen_text())
        assert isinstance(rig.app.screen, GateScreen)
        assert rig.app.screen.plan.what == "1 controller", "it has no name of its own"
        assert rig.app.screen.plan.button == "Checkpoint the controller", "it counts as the title does"


@pytest.mark.asyncio
async def test_a_change_is_forgotten_with_the_screen_that_never_connected() -> None:
    client = sample(FakeClock())
    async with console(client) as rig:
        client.freeze("Watch")
        rig.app.run_command("checkpoint-now")
        await rig.until(lambda: "Loading the controller of" in rig.screen_text())
        rig.app.go("jobs")
        await rig.until(lambda: rig.app.screen is rig.jobs)
        await rig.pilot.pause()
        client.thaw()
        rig.app.go("controller")
        await rig.until(lambda: "says nothing of itself" in rig.screen_text())
        await rig.pilot.pause()
        assert isinstance(rig.app.screen, ControllerScreen), "no gate stands over it"


# --- keys typed ahead ------------------------------------------------------------------------------------------------


def press(rig: Rig, *keys: str) -> None:
    """All of them at once, as a terminal brings them after a stall: nothing is waited for in between."""
    for key in keys:
        rig.app.post_message(events.Key(key, key if len(key) == 1 else None))


@pytest.mark.asyncio
async def test_keys_typed_ahead_reach_the_screen_that_the_first_of_them_opened() -> None:
    client = sample(FakeClock())
    client.log("/ada/train-llama/0:0", *(f"step {number}" for number in range(300)))
    async with console(client) as rig:
        # The rows of the next screen come late.
        client.freeze("Watch")
        press(rig, "v", "t", "down", "down", "J")
        await rig.until(lambda: isinstance(rig.app.screen, TasksScreen))
        tasks = rig.app.screen
        assert isinstance(tasks, TasksScreen)
        assert not tasks.store.order and rig.app.screen is tasks, "they wait"
        client.thaw()
        await rig.until(lambda: isinstance(rig.app.screen, TaskScreen))
        opened = rig.app.screen
        assert isinstance(opened, TaskScreen) and tasks.table.touched, "they reached the table"
        assert opened.subject == tasks.table.cursor_id, "and the row that they had chosen"

        rig.app.go("jobs")
        await rig.until(lambda: rig.app.screen is rig.jobs)
        await rig.row("/ada/train-llama")
        press(rig, "l", "g", "down", "m")
        await rig.until(lambda: rig.jobs.query(LogPane) and rig.jobs.query_one(LogPane).lines.marks)
        assert rig.selected() == "/ada/train-llama", "no key of the log was taken for one of the table"
        assert rig.jobs.query_one(LogPane).lines.marks == {1}

        press(rig, "question_mark", "slash", "H", "o", "w", "enter")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage) and rig.app.screen.text.needle == "how")
        press(rig, "escape", "escape", "colon", "w", "o", "r", "k", "e", "r", "s", "enter")
        await rig.until(lambda: isinstance(rig.app.screen, WorkersScreen))


@pytest.mark.asyncio
async def test_a_screen_whose_rows_never_come_is_left_at_once_and_takes_keys_after_a_second() -> None:
    client = sample(FakeClock())
    async with console(client) as rig:
        client.freeze("Watch")
        rig.app.go("tasks")
        await rig.until(lambda: isinstance(rig.app.screen, TasksScreen) and rig.app.screen.is_built)
        press(rig, "slash", "x")
        screen = rig.app.screen
        assert isinstance(screen, TasksScreen)
        await rig.until(lambda: screen.prompt.input.value == "x")
        await rig.keys("escape")
        rig.app.go("workers")
        await rig.until(lambda: isinstance(rig.app.screen, WorkersScreen) and rig.app.screen.is_built)
        press(rig, "left_square_bracket")
        await rig.until(lambda: isinstance(rig.app.screen, TasksScreen))


# --- pages in parts --------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_enter_is_offered_only_where_it_opens_something_and_does_so_there() -> None:
    async with troubled_console() as rig:
        screen = await rig.job()
        await rig.until(lambda: screen.reads.suspects)
        offered = {}
        for number, tab in enumerate(screen.tabs, 1):
            await rig.keys(str(number))
            await rig.until(lambda tab=tab: screen.part is tab)  # type: ignore[misc]
            screen.flush_now()
            offered[tab.name] = "Enter Open" in screen.keybar.text
        assert offered == {
            "Tasks": True, "Failures": True, "Children": True, "Request": False, "Charts": False, "Events": True,
        }  # fmt: skip
        await rig.keys("2")
        await rig.until(lambda: screen.reads.suspects)
        await rig.keys("enter")
        await rig.until(lambda: isinstance(rig.app.screen, TaskScreen))
        assert rig.screen.subject == screen.reads.suspects[0].task_id, "the rank that failed first"


# --- a log store that is silent -------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_while_only_the_log_store_is_silent_the_header_is_live_and_each_pane_says_so() -> None:
    client = sample(FakeClock())
    client.log("/ada/train-llama/0:0", "step 1")
    answer(client, "ListProfiles", lambda _: profiles_pb2.ListProfilesResponse())
    async with console(client) as rig:
        client.freeze("LogService", "ListProfiles")
        rig.app.run_command("logs /ada/train-llama")
        await rig.until(lambda: "Loading the log" in rig.screen_text())
        rig.clock.advance(7)
        client.heartbeat()
        await rig.until(lambda: "No answer for 7s: the log store is silent" in rig.screen_text())
        await rig.until(lambda: rig.lines()[0].endswith("LIVE"))
        rig.app.run_command("profiles")
        await rig.until(lambda: "Loading the profiles" in rig.screen_text())
        rig.clock.advance(7)
        await rig.until(
            lambda: "No answer for 7s" in rig.screen_text() and "asked again by itself" in rig.screen_text()
        )
        client.heartbeat()
        client.thaw()
        await rig.until(lambda: "No profiles are kept." in rig.screen_text())
        await rig.keys("left_square_bracket")
        await rig.until(lambda: "step 1" in rig.screen_text())
