"""Scheduler, Explain, Capacity, Workers, Users and Endpoints driven by keys, over a scripted controller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Button, Input

from iris_core.contracts import ConnectFailed
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.gen.iris.v1 import explain_pb2 as explain
from iris_core.wire.gen.iris.v1 import plan_pb2
from iris_tui.gate import GateScreen, MenuScreen
from iris_tui.pages import TextPage
from iris_tui.widgets.pane import State
from providers.fake.clock import FakeClock
from providers.fake.machine_samples import GANG, SLICE, machine_sample, pending, resources
from screens.budget_form import BudgetForm, parse_budget
from screens.what_if_form import WhatIfForm, values_of, words_of
from tests.unit.test_console_app import Rig, console

if TYPE_CHECKING:
    from iris_tui.list_screen import ListScreen


def fleet(**options: Any) -> Any:
    return console(machine_sample(FakeClock()), **options)


async def show(rig: Rig, command: str) -> ListScreen:
    """Go to a list and wait until it is complete."""
    rig.app.run_command(command)
    screen: Any = rig.app.console_screen
    await rig.until(
        lambda: screen.is_current and screen.source.loaded and screen.store.order and not screen.store.dirty
    )
    return screen  # type: ignore[no-any-return]


def line_with(rig: Rig, text: str) -> str:
    return next((line for line in rig.lines() if text in line), "")


async def at_gate(rig: Rig) -> GateScreen:
    await rig.until(lambda: isinstance(rig.app.screen, GateScreen) and rig.app.focused is not None)
    gate = rig.app.screen
    assert isinstance(gate, GateScreen)
    return gate


# --- scheduler and explain --------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_what_waits_is_grouped_by_band_and_user_with_totals_budgets_and_reasons() -> None:
    async with fleet() as rig:
        screen = await show(rig, "scheduler")
        assert line_with(rig, "pending: batch").split()[3:5] == ["81", "6"]
        assert "8,300 of 8,000 (104%)" in line_with(rig, "cleo  ")
        assert "gang: no tpu-name has room" in line_with(rig, GANG)
        assert "/bob/[red]" in line_with(rig, "bad [/tag] in a reason")
        assert "86 tasks of 5 jobs pending, 18 running" in rig.screen_text()
        # A change of one bucket moves the totals above it, and nothing else.
        bucket = pending(
            "/bob/tokenize-web",
            "batch",
            60,
            22,
            now_ms=rig.client.now_ms,
            waits_min=5,
            reason="cpu",
            asks=resources(1, 1),
        )
        rig.client.put(bucket)
        await rig.until(lambda: line_with(rig, "pending: batch").split()[3] == "77")
        # Enter closes a user and opens it again; left goes up.
        user = next(name for name in screen.store.order if name.endswith("user bob"))
        assert screen.table.move_to(user)
        await rig.keys("enter")
        await rig.until(lambda: "/bob/tokenize-web" not in rig.screen_text())
        await rig.keys("right")
        await rig.until(lambda: "/bob/tokenize-web" in rig.screen_text())
        await rig.keys("left", "left")
        await rig.until(lambda: screen.table.cursor_id.endswith("band 4"))
        # A filter leaves what stands above a hit, and no other user.
        screen.set_filter("job:tokenize")
        await rig.until(lambda: "1 of 15 buckets" in rig.screen_text())
        assert "cleo" not in rig.screen_text() and "pending: batch" in rig.screen_text()


@pytest.mark.asyncio
async def test_one_key_leads_from_a_job_that_waits_to_its_funnel_and_a_form_to_the_what_if() -> None:
    async with fleet(size=(160, 45)) as rig:
        screen = await show(rig, "scheduler")
        assert screen.table.move_to(f"pending {GANG}")
        await rig.keys("enter")
        await rig.until(lambda: "lacks 2 of 4" in rig.screen_text())
        assert line_with(rig, "tpu      4").split()[:4] == ["tpu", "4", "2", "+2"]
        assert line_with(rig, "tpu-v5p-8").split()[:2] == ["tpu-v5p-8", "backoff"]
        assert f"iris-core --cluster=lab job explain {GANG}" in rig.screen_text()
        # It is counted again by itself, and a failure leaves what was there.
        before = len(rig.client.called("ExplainJob"))
        rig.client.fail("ExplainJob", ConnectFailed("the line is down"))
        rig.clock.advance(3.0)
        await rig.until(lambda: "the line is down" in rig.screen_text())
        assert "lacks 2 of 4" in rig.screen_text() and len(rig.client.called("ExplainJob")) == before + 1
        await rig.keys("ctrl+r")
        await rig.until(lambda: "the line is down" not in rig.screen_text())
        # The form says where it is wrong, and asks nothing.
        await rig.keys("e")
        await rig.until(lambda: isinstance(rig.app.screen, WhatIfForm) and isinstance(rig.app.focused, Input))
        form = rig.app.screen
        form.query_one("#what-if-memory", Input).value = "much"
        await rig.keys("enter")
        await rig.until(lambda: form.query_one("#what-if-fault").display)
        form.query_one("#what-if-memory", Input).value = ""
        form.query_one("#what-if-region", Input).value = "us-east5"
        await rig.keys("enter")
        await rig.until(lambda: "no worker in us-east5" in rig.screen_text())
        assert "lacks 2 of 4" in rig.screen_text(), "the present stays beside it"
        assert f"job explain {GANG} --region us-east5" in rig.screen_text()
        asked = rig.client.called("ExplainJob")[-1].what_if
        assert [(one.key, one.values[0].text) for one in asked.constraints] == [("region", "us-east5")]
        assert not rig.client.called("LaunchJob")
        # Escape drops it, then leads back to the row.
        await rig.keys("escape")
        await rig.until(lambda: "no worker in us-east5" not in rig.screen_text())
        await rig.keys("escape")
        await rig.until(lambda: rig.app.console_screen is screen)
        assert screen.table.cursor_id == f"pending {GANG}"


@pytest.mark.asyncio
async def test_what_if_takes_the_options_of_the_command_line_and_says_what_is_wrong_with_them() -> None:
    async with fleet() as rig:
        rig.app.go("explain", GANG)
        await rig.until(lambda: "lacks 2 of 4" in rig.screen_text())
        rig.app.run_command("what-if --gpu H100x4 --priority production --replicas 2")
        await rig.until(lambda: "What if --gpu H100x4" in rig.screen_text())
        asked = rig.client.called("ExplainJob")[-1].what_if
        assert (asked.device.count, asked.device.variant, asked.replicas) == (4, "h100", 2)
        assert asked.priority_band == common.PRIORITY_BAND_PRODUCTION
        for wrong in ("--gpu", "--speed 9", "--replicas 0", '--region "'):
            with pytest.raises(ModelError):
                rig.app.run_command(f"what-if {wrong}")
        assert "What if --gpu H100x4" in rig.screen_text()
        with pytest.raises(ModelError):
            rig.app.go("explain", "no id")


@pytest.mark.asyncio
async def test_an_answer_that_comes_late_is_not_shown_as_that_to_a_later_question() -> None:
    async with fleet() as rig:
        rig.app.go("explain", GANG)
        await rig.until(lambda: "lacks 2 of 4" in rig.screen_text())
        late, over = asyncio.Event(), asyncio.Event()

        async def explained(request: pb.ExplainJobRequest) -> pb.ExplainJobResponse:
            asked = request.what_if.device.variant
            if asked == "h100":
                await late.wait()
                over.set()
            return pb.ExplainJobResponse(
                explanation=explain.Explanation(cause=f"counted for {asked or 'what it asks'}")
            )

        setattr(rig.client, "_explain_job", explained)  # noqa: B010 -- scripted
        rig.app.run_command("what-if --gpu H100x4")
        await rig.until(lambda: rig.client.called("ExplainJob")[-1].what_if.device.variant == "h100")
        rig.app.run_command("what-if --gpu B200x4")
        await rig.until(lambda: "counted for b200" in rig.screen_text())
        late.set()
        await rig.until(over.is_set)
        await rig.pilot.pause()
        screen: Any = rig.app.console_screen
        screen.flush_now()
        await rig.pilot.pause()
        assert "counted for b200" in rig.screen_text() and "counted for h100" not in rig.screen_text()


def test_the_form_and_the_command_line_say_the_same() -> None:
    values = {"cpu": "8", "region": "us-east5 us-west1", "constraint": "'pool=a b'", "priority": " batch "}
    words = words_of(values)
    assert words == [
        "--cpu", "8", "--region", "us-east5", "--region", "us-west1", "--constraint", "pool=a b", "--priority", "batch",
    ]  # fmt: skip
    assert words_of(values_of(words)) == words
    assert values_of(["--gpu=H100x8"]) == {"gpu": "H100x8"}


@pytest.mark.asyncio
async def test_a_job_whose_last_step_leaves_none_marks_that_step() -> None:
    from iris_core.live.wording import Tone
    from screens.explain import lines_of

    found = explain.Explanation(subject="/a/b", workers=3)
    found.funnel.add(name="health", wants="healthy", left=2)
    found.funnel.add(name="cpu", wants="8", left=0)
    found.funnel.add(name="memory", wants="1GB", left=0)
    assert [text.split()[0] for text, tone in lines_of(found) if tone is Tone.BAD] == ["cpu"]


# --- capacity ---------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_scale_groups_say_what_holds_them_back_and_the_actions_stand_below() -> None:
    async with fleet() as rig:
        screen = await show(rig, "capacity")
        assert "backoff, 4m, 3 fails" in line_with(rig, "tpu-v5p-8")
        assert "4 scale groups, 3 slices, 9 machines" in rig.screen_text()
        assert line_with(rig, "slice failed").split()[:1] == ["9m"]
        screen.table.move_to("group tpu-v5p-8")
        await rig.keys("d")
        await rig.until(
            lambda: isinstance(rig.app.screen, TextPage) and "you can try in another zone" in rig.screen_text()
        )
        await rig.keys("escape")
        screen.set_filter("idle>5m")
        await rig.until(lambda: "gpu-h100-77aa" in rig.screen_text() and "tpu-v5e-16" not in line_with(rig, "77aa"))
        assert "0 of 4 scale groups" in rig.screen_text() or "of 4 scale groups" in rig.screen_text()
        screen.set_filter("")
        screen.store.expand(f"slice {SLICE}")
        screen.soon()
        await rig.until(lambda: f"worker {SLICE}-w-0" in screen.store.order)
        screen.table.move_to(f"worker {SLICE}-w-0")
        await rig.keys("l")
        await rig.until(lambda: "worker started" in rig.screen_text())
        assert "\x1b" not in rig.screen_text() and "docker: pulled" in rig.screen_text()


@pytest.mark.asyncio
async def test_of_two_tables_the_one_that_takes_the_keys_has_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet() as rig:
        screen = await show(rig, "capacity")
        said: list[str] = []
        monkeypatch.setattr(rig.app, "say", lambda text, **_: said.append(text))

        def pointed() -> list[str]:
            return [line for line in rig.screen_text().splitlines() if line.startswith(rig.app.glyphs.cursor)]

        await rig.until(lambda: len(pointed()) == 1 and "scale up" not in pointed()[0])
        await rig.keys("tab")
        await rig.until(lambda: len(pointed()) == 1 and "scale up" in pointed()[0])
        await rig.keys("/")
        await rig.until(lambda: screen.prompt.is_open)
        await rig.until(lambda: len(pointed()) == 1 and "scale up" in pointed()[0])
        await rig.keys("escape")
        await rig.until(lambda: len(pointed()) == 1 and "scale up" not in pointed()[0])
        await rig.keys("tab")
        await rig.until(lambda: len(pointed()) == 1 and "scale up" in pointed()[0])
        # No key acts on a row where the cursor is not.
        before = list(screen.store.order)
        for key in ("x", "enter", "d", "l", "t", "space", "left", "right"):
            said.clear()
            await rig.keys(key)
            await rig.until(lambda: said)
            assert "Tab goes back to what can be acted on" in said[0]
            assert rig.app.screen is screen and not screen.store.marks and screen.store.order == before
        assert "x Actions" not in rig.screen_text() and "d Describe" not in rig.screen_text()
        # There is no room for both any more.
        await rig.pilot.resize_terminal(120, 16)
        await rig.until(lambda: screen.focused is screen.table and len(pointed()) == 1)


@pytest.mark.asyncio
async def test_the_tasks_on_one_slice_are_preempted_attempt_by_attempt_and_nothing_that_came_later() -> None:
    async with fleet() as rig:
        screen = await show(rig, "capacity")
        screen.table.move_to(f"slice {SLICE}")
        await rig.keys("x")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen))
        await rig.keys("p")
        gate = await at_gate(rig)
        assert [target.id for target in gate.plan.targets] == [f"/cleo/sweep-lr/{number}:0" for number in range(3)]
        assert "attempt preempt /cleo/sweep-lr/0:0" in gate.plan.command
        gate.query_one("#gate-read", Button).press()
        await rig.pilot.pause()
        gate.query_one("#gate-confirm", Button).press()
        await rig.until(lambda: rig.client.called("KickTasks"))
        sent = rig.client.called("KickTasks")[-1]
        assert list(sent.targets) == [f"/cleo/sweep-lr/{number}:0" for number in range(3)]
        assert sent.desired_state == common.TASK_STATE_PREEMPTED
        # A slice on which nothing runs needs no gate.
        await rig.until(lambda: not isinstance(rig.app.screen, GateScreen))
        with pytest.raises(ModelError):
            rig.app.run_command("preempt-slice no-such-slice")


@pytest.mark.asyncio
async def test_deleting_a_slice_takes_the_cluster_s_name() -> None:
    async with fleet() as rig:
        rig.client.plans.scripted["ControllerService/DeleteSlice"] = plan_pb2.PlanResponse(
            tier=3,
            effects=["stops 3 tasks on 4 workers"],
            targets=[plan_pb2.PlanTarget(kind="slice", id=SLICE, generation="7")],
        )
        screen = await show(rig, "capacity")
        screen.table.move_to(f"slice {SLICE}")
        await rig.keys("x", "D")
        gate = await at_gate(rig)
        confirm = gate.query_one("#gate-confirm", Button)
        assert confirm.disabled and not rig.client.called("DeleteSlice")
        gate.query_one("#gate-name", Input).value = "lab"
        await rig.until(lambda: not confirm.disabled)
        confirm.press()
        await rig.until(lambda: rig.client.called("DeleteSlice"))
        assert rig.client.called("DeleteSlice")[-1].slice_id == SLICE


# --- workers ----------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_workers_show_why_one_takes_no_work_and_lead_to_its_page() -> None:
    async with fleet() as rig:
        screen = await show(rig, "workers")
        assert "6/8 healthy" in rig.screen_text() and "86 tasks pending" in rig.screen_text()
        assert "excluded for 4m" in line_with(rig, "cpu-1 ")
        assert "≥51s" in line_with(rig, "cpu-2 ")
        await rig.keys("b")
        await rig.until(lambda: "cpu is short by 12 cores" in rig.screen_text())
        await rig.keys("escape")
        screen.table.move_to(f"{SLICE}-w-1")
        await rig.keys("enter")
        await rig.until(lambda: "/cleo/sweep-lr/1" in rig.screen_text())
        assert "/cleo/sweep-lr/0" not in rig.screen_text()
        await rig.keys("2")
        await rig.until(lambda: "us-central1-a" in rig.screen_text())
        rig.client.take("workers", f"{SLICE}-w-1")
        await rig.until(lambda: "is not there (any more)" in rig.screen_text())


# --- users ------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_who_spends_most_is_first_and_a_budget_is_set_through_a_form_and_the_gate() -> None:
    async with fleet() as rig:
        rig.client.plans.scripted["ControllerService/SetUserBudget"] = plan_pb2.PlanResponse(
            tier=1, effects=["cleo may spend 16,000 instead of 8,000"],
            targets=[plan_pb2.PlanTarget(kind="budget", id="cleo", generation="1700000000000")],
        )  # fmt: skip
        screen = await show(rig, "users")
        assert screen.store.order == ["ada", "cleo", "dan", "bob"]
        screen.table.move_to("cleo")
        await rig.keys("x", "b")
        await rig.until(lambda: isinstance(rig.app.screen, BudgetForm) and isinstance(rig.app.focused, Input))
        form = rig.app.screen
        form.query_one("#budget-limit", Input).value = "lots"
        await rig.keys("enter", "enter")
        await rig.until(lambda: form.query_one("#budget-fault").display)
        form.query_one("#budget-limit", Input).value = "16,000"
        form.query_one("#budget-go", Button).press()
        gate = await at_gate(rig)
        assert gate.plan.command == "iris-core --cluster=lab user budget set cleo --limit 16000 --max-band interactive"
        assert not rig.client.called("SetUserBudget")
        gate.query_one("#gate-confirm", Button).press()
        await rig.until(lambda: rig.client.called("SetUserBudget"))
        sent = rig.client.called("SetUserBudget")[-1]
        assert (sent.user_id, sent.budget_limit, sent.max_band) == ("cleo", 16_000, common.PRIORITY_BAND_INTERACTIVE)
        screen.set_filter("used>100")
        await rig.until(lambda: screen.store.order == ["cleo"])


@pytest.mark.parametrize(
    "wrong", ["", "ada", "ada -1", "ada 5 nobody", "ada 1 batch more", "ada 99999999999999999999999"]
)
def test_a_wrong_budget_is_refused_with_words(wrong: str) -> None:
    with pytest.raises(ModelError):
        parse_budget(wrong)


def test_a_budget_is_typed_as_people_write_numbers() -> None:
    assert parse_budget("ada 16,000 batch") == ("ada", 16_000, 4)
    assert parse_budget("ada unlimited") == ("ada", 0, 3)


# --- endpoints --------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_an_endpoint_shows_its_url_and_is_unregistered_behind_the_gate() -> None:
    async with fleet() as rig:
        screen = await show(rig, "endpoints")
        screen.table.move_to("e-1")
        await rig.keys("d")
        await rig.until(lambda: "http://fake.invalid:10000/proxy/ada.train-llama.board/" in rig.screen_text())
        assert "tensorboard" in rig.screen_text()
        await rig.keys("escape")
        await rig.keys("x", "u")
        gate = await at_gate(rig)
        gate.query_one("#gate-confirm", Button).press()
        await rig.until(lambda: rig.client.called("UnregisterEndpoint"))
        assert rig.client.called("UnregisterEndpoint")[-1].endpoint_id == "e-1"
        screen.table.move_to("/system/log-server")
        with pytest.raises(ModelError, match="the cluster's own"):
            rig.app.run_command("unregister")


# --- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_read_only_leaves_out_every_change_and_a_broken_line_keeps_the_rows() -> None:
    async with fleet(read_only=True) as rig:
        screen = await show(rig, "capacity")
        screen.table.move_to(f"slice {SLICE}")
        await rig.keys("x")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen))
        titles = [title for _, _, title in rig.app.screen.entries]
        assert titles and not any("Preempt" in title or "Delete" in title for title in titles)
        await rig.keys("escape")
        for command in ("scheduler", "workers", "users", "endpoints"):
            await show(rig, command)
        rig.client.break_connection("connection refused")
        current: Any = rig.app.console_screen
        await rig.until(lambda: current.pane.status.state is State.STALE)
        assert "/ada/train-llama/board" in rig.screen_text()
