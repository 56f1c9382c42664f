"""The one way in which the console changes anything: every row of its table, the gate of each tier, and results that stay."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Button

from iris_controller.rpc.roles import ACCESS
from iris_core.client.calls import NotReached
from iris_core.client.context import ClientContext
from iris_core.client.plans import Fate, Outcome, carry_out, make
from iris_core.contracts import ConnectFailed, RpcFailed
from iris_core.wire.gen.iris.v1 import autoscaler_pb2, plan_pb2, profiles_pb2
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.services import method
from iris_tui import changes
from iris_tui.actions import ACTIONS
from iris_tui.actions.base import Action
from iris_tui.change_requests import CHANGES, results_of
from iris_tui.gate import GateScreen
from iris_tui.operations import KEPT, Operation, Operations
from iris_tui.results_page import ResultsPage
from providers.fake.client import FakeClient
from providers.fake.samples import job
from tests.unit.test_console_app import Rig, console

if TYPE_CHECKING:
    from collections.abc import Callable

FIELDS: dict[str, Any] = {
    "limit": 5,
    "max_band": 3,
    "command": ["ls", "-l"],
    "options": profiles_pb2.ProfileOptions(),
    "request": pb.LaunchJobRequest(name="/u/b", rerun=pb.Rerun(job_id="/u/a")),
}
DELETE = Action(
    id="capacity.delete_slice", title="Delete: the slice", tier=3, mutates=True, cli="iris-core {at} cluster delete-slice {id}"
)  # fmt: skip


# --- the tables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [a for a in ACTIONS if a.mutates], ids=lambda action: action.id)
def test_every_action_that_mutates_has_a_tier_and_a_command_line(action: Action) -> None:
    assert 0 <= action.tier <= 3
    assert action.cli.startswith("iris-core "), "the command line that does the same"
    assert action.command or action.menu, "it is reached without a key"


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_every_change_is_an_operators_rpc_and_reads_its_own_answers(name: str) -> None:
    kind = CHANGES[name]
    access = ACCESS[kind.method]
    assert access.mutates and access.tier is not None
    rpc = method(kind.method)
    requests = kind.build(["/u/a/0"], FIELDS)
    assert requests and all(type(request) is rpc.request for request in requests)
    assert "request_id" in rpc.request.DESCRIPTOR.fields_by_name, "it is done once"
    answer = rpc.response()
    assert isinstance(kind.words([answer]), str)
    for result in results_of(kind, Outcome(requests[0], Fate.DONE, answer=answer)):
        assert isinstance(result.words, str)
    refused = results_of(kind, Outcome(requests[0], Fate.REFUSED, "no\x1b[31m", "hint"))
    assert refused and not any(result.done for result in refused)
    assert all("\x1b" not in result.words and "hint" in result.words for result in refused)


def test_the_tier_of_an_action_is_that_of_its_rpc_at_least() -> None:
    for action in ACTIONS:
        if action.mutates and action.name in CHANGES:
            assert action.tier >= (ACCESS[CHANGES[action.name].method].tier or 0), action.id


# --- plans of a client -----------------------------------------------------------------------------------------------


def with_jobs(*names: str) -> FakeClient:
    client = FakeClient()
    client.put(*(job(name, "RUNNING", now_ms=0) for name in names))
    return client


async def ended(client: FakeClient, *names: str) -> list[Outcome]:
    plan = await make(client, "ControllerService/TerminateJob", [pb.TerminateJobRequest(job_id=name) for name in names])
    return await carry_out(client, plan, ClientContext("sdk"), retry_s=0)


@pytest.mark.asyncio
async def test_what_is_not_known_to_be_done_is_a_result_and_the_rest_is_not_sent() -> None:
    names = [f"/u/j{number}" for number in range(30)]
    client = with_jobs(*names)
    client.fail("TerminateJob", ConnectFailed("connection reset"), times=1000)
    outcomes = await ended(client, *names)
    fates = [outcome.fate for outcome in outcomes]
    assert set(fates) == {Fate.UNKNOWN, Fate.NOT_SENT} and fates.count(Fate.UNKNOWN) <= 8
    assert outcomes[0].words == "not known whether it was done: connection reset"
    assert [outcome.request.job_id for outcome in outcomes] == names  # type: ignore[attr-defined]


@pytest.mark.asyncio
async def test_a_refusal_of_one_does_not_spare_the_others() -> None:
    client = with_jobs("/u/a", "/u/b", "/u/c")
    client.fail("TerminateJob", RpcFailed("PERMISSION_DENIED", "no"))
    assert sorted(outcome.fate for outcome in await ended(client, "/u/a", "/u/b", "/u/c")) == [
        "done",
        "done",
        "refused",
    ]
    assert len({request.request_id for request in client.called("TerminateJob")}) == 3


@pytest.mark.asyncio
async def test_what_may_have_been_heard_is_asked_again_only_where_a_repeat_finds_the_first_answer() -> None:
    request = pb.ExecInContainerRequest(task_id="/u/a/0", command=["x"])
    for error in (ConnectFailed("connection reset"), RpcFailed("UNAVAILABLE", "w1 went away", code="worker_gone")):
        client = FakeClient()
        client.fail("ExecInContainer", error)
        plan = await make(client, "ControllerService/ExecInContainer", [request])
        (outcome,) = await carry_out(client, plan, ClientContext("sdk"), retry_s=0)
        assert (outcome.fate, outcome.words) == (Fate.UNKNOWN, f"not known whether it was done: {error.message}")
        assert len(client.called("ExecInContainer")) == 1

    client = FakeClient()
    client.fail("ExecInContainer", NotReached("connection refused"))
    client.fail("ExecInContainer", RpcFailed("FAILED_PRECONDITION", "not known here", code="replan"))
    plan = await make(client, "ControllerService/ExecInContainer", [request])
    (outcome,) = await carry_out(client, plan, ClientContext("sdk"), retry_s=0)
    assert outcome.fate is Fate.REPLAN, "nothing was sent before, so nothing was done"

    client = FakeClient()
    client.fail("CreateSlice", ConnectFailed("connection reset"))
    client.fail("CreateSlice", RpcFailed("FAILED_PRECONDITION", "not known here", code="replan"))
    slices = [autoscaler_pb2.CreateSliceRequest(scale_group="g")]
    plan = await make(client, "ControllerService/CreateSlice", slices)
    (outcome,) = await carry_out(client, plan, ClientContext("sdk"), retry_s=0)
    assert outcome.fate is Fate.REPLAN


@pytest.mark.asyncio
async def test_a_controller_of_an_earlier_release_is_said_and_its_targets_are_compared_here() -> None:
    async with console() as rig:
        rig.client.plans.absent = True
        await rig.row("/cleo/sweep-lr")
        await rig.keys("x", "c")
        await gate(rig)
        assert "this controller is of an earlier release" in " ".join(rig.screen_text().split())
        await rig.keys("right", "enter")
        await rig.until(lambda: rig.client.called("TerminateJob"))
        (call,) = [call for call in rig.client.calls if call.method.endswith("/TerminateJob")]
        assert "iris-plan-token" not in call.headers


# --- the gate --------------------------------------------------------------------------------------------------------


async def gate(rig: Rig) -> GateScreen:
    await rig.until(lambda: isinstance(rig.app.screen, GateScreen) and rig.app.focused is not None)
    assert isinstance(rig.app.screen, GateScreen)
    return rig.app.screen


def script_delete(rig: Rig, **fields: Any) -> None:
    plan = plan_pb2.PlanResponse(tier=3, effects=["deleting tpu-1 stops 4 running tasks on 2 workers"], **fields)
    plan.targets.add(kind="slice", id="tpu-1", generation="5", note="ready, 2 workers of tpu")
    rig.client.plans.scripted["ControllerService/DeleteSlice"] = plan
    done = autoscaler_pb2.DeleteSliceResponse(task_ids=["/u/a/0"])
    rig.client._delete_slice = lambda request: done  # type: ignore[attr-defined]


@pytest.mark.asyncio
async def test_a_change_of_tier_three_is_typed_and_carries_the_name() -> None:
    async with console() as rig:
        script_delete(rig, hints=["its group makes another one"])
        changes.start(rig.app, rig.app.session, DELETE, ["tpu-1"])
        screen = await gate(rig)
        text = rig.screen_text()
        assert "Delete tpu-1?" in text and "stops 4 running tasks on 2 workers" in text and "another one" in text
        confirm = screen.query_one("#gate-confirm", Button)
        assert confirm.disabled
        screen.query_one("#gate-name").focus()
        await rig.until(lambda: rig.app.focused is not None and rig.app.focused.id == "gate-name")
        await rig.type("lab")
        await rig.until(lambda: not confirm.disabled)
        await rig.keys("enter")
        await rig.until(lambda: rig.app.focused is confirm)
        await rig.keys("enter")
        await rig.until(lambda: "Delete tpu-1: 1 task stopped" in rig.screen_text())
        (call,) = [call for call in rig.client.calls if call.method.endswith("/DeleteSlice")]
        assert call.headers["iris-confirm"] == "lab" and call.headers["iris-plan-token"]


@pytest.mark.asyncio
async def test_the_results_stay_when_their_page_is_closed_and_go_on_meanwhile() -> None:
    async with console() as rig:
        names = [f"/zoe/j{number}" for number in range(12)]
        rig.client.put(*(job(name, "RUNNING", now_ms=rig.clock.now_ms()) for name in names))
        held = asyncio.Event()
        end: Callable[[Any], Any] = rig.client._terminate_job

        async def slowly(request: Any) -> Any:
            if request.job_id == "/zoe/j7":
                raise RpcFailed("PERMISSION_DENIED", "not yours")
            if request.job_id == "/zoe/j11":
                await held.wait()
            return end(request)

        rig.client._terminate_job = slowly  # type: ignore[method-assign,assignment]
        action = next(action for action in ACTIONS if action.id == "target.cancel")
        changes.start(rig.app, rig.app.session, action, names)
        screen = await gate(rig)
        confirm = screen.query_one("#gate-confirm", Button)
        await rig.keys("right", "enter")
        await rig.until(lambda: not confirm.disabled)
        await rig.keys("right", "right", "enter")
        await rig.until(lambda: isinstance(rig.app.screen, ResultsPage))
        await rig.until(lambda: "Cancel 12 jobs on lab: running, 11 of 12 sent, 10 done, 1 failed" in rig.screen_text())
        await rig.keys("escape")
        await rig.until(lambda: rig.app.screen is rig.jobs)
        held.set()
        await rig.until(lambda: not rig.app.operations.running)
        await rig.until(lambda: "Cancel 12 jobs: 11 done, 1 failed; :results shows" in rig.screen_text())
        assert rig.app.screen is rig.jobs, "nothing comes up under the operator's hands"
        rig.app.run_command("results")
        await rig.until(lambda: "Cancel 12 jobs on lab: 11 done, 1 failed" in rig.screen_text())
        assert "/zoe/j7  not yours" in rig.screen_text()


def test_old_operations_go_and_it_is_said() -> None:
    kept = Operations()
    assert kept.lines()[0][0] == "Nothing was changed from this console yet."
    for number in range(KEPT + 3):
        kept.begin(Operation(f"Cancel {number}", "lab", "iris-core", 0, 1, finished=True))
    lines = [text for text, _ in kept.lines()]
    assert len(kept) == KEPT and lines[0].endswith(f"Cancel {KEPT + 2} on lab: 0 done")
    assert lines[-1] == "3 earlier ones are not kept; the audit log has them"


# --- a controller that does not answer -------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_it_is_said_while_nothing_is_answered_and_not_once_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    async with console() as rig:
        monkeypatch.setattr(rig.app, "say", lambda text, **_: said.append(text))
        await rig.row("/cleo/sweep-lr")
        rig.client.freeze("Plan")
        await rig.keys("x", "c")
        await rig.until(lambda: rig.client.called("Plan"))
        rig.clock.advance(changes.SILENT_S)
        await rig.until(lambda: said == ["Cancel: the controller has not answered yet what it would do"])
        rig.client.thaw()
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen) and rig.app.screen.focused is not None)
        rig.client.freeze("TerminateJob")
        await rig.keys("right", "enter")
        await rig.until(lambda: rig.client.called("TerminateJob"))
        rig.clock.advance(changes.SILENT_S)
        await rig.until(lambda: said[1:] == ["Cancel /cleo/sweep-lr: no answer yet, :results shows what becomes of it"])
        rig.client.thaw()
        await rig.until(lambda: len(said) == 3)
        rig.clock.advance(2 * changes.SILENT_S)
        await rig.pilot.pause()
        assert said[2:] == ["Cancel /cleo/sweep-lr: 1 job ended"], "who was answered is told nothing more"


@pytest.mark.asyncio
async def test_no_second_change_begins_while_the_first_one_is_being_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    cancel = next(action for action in ACTIONS if action.id == "target.cancel")
    async with console() as rig:
        monkeypatch.setattr(rig.app, "say", lambda text, **_: said.append(text))
        await rig.row("/cleo/sweep-lr")
        rig.client.freeze("Plan")
        # Both began before either asked: the one that comes second is told.
        changes.start(rig.app, rig.app.session, cancel, ["/cleo/sweep-lr"])
        changes.start(rig.app, rig.app.session, cancel, ["/cleo/sweep-lr"])
        await rig.until(lambda: said == ["Cancel: nothing was done, another change is being prepared (Cancel)"])
        rig.app.run_command("cancel")
        assert said[1:] == ["Cancel: another change is being prepared (Cancel)"]
        await rig.until(lambda: rig.client.called("Plan"))
        rig.client.thaw()
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen))
        assert len(rig.client.called("Plan")) == 1
        assert sum(isinstance(screen, GateScreen) for screen in rig.app.screen_stack) == 1
        await rig.keys("escape")
        await rig.until(lambda: said[2:] == ["Cancel: nothing was done"])
        rig.app.run_command("cancel")
        await rig.until(lambda: len(rig.client.called("Plan")) == 2)
