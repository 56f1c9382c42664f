"""Running a job again from the console: only what was changed is sent, and what cannot be run again is said before the form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Input

from iris_core.contracts import RpcFailed
from iris_core.model.constraints import parse_constraint
from iris_core.model.errors import ModelError
from iris_core.wire.convert import constraint_from_wire, constraint_to_wire
from iris_core.wire.gen.iris.v1 import common_pb2, plan_pb2
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_tui.gate import GateScreen
from screens.rerun import METHOD, RerunForm
from screens.rerun_request import request_of, texts_of
from tests.unit.cli_world import World
from tests.unit.test_console_app import console

if TYPE_CHECKING:
    from tests.unit.test_console_app import Rig

BEFORE = pb.LaunchJobRequest(name="/cleo/sweep-lr", replicas=64, timeout_ms=60_000)
BEFORE.entrypoint.run_command.argv.extend(["python", "train.py", "--token=[redacted]"])
BEFORE.resources.cpu_millicores, BEFORE.resources.memory_bytes = 8_000, 64_000_000_000
BEFORE.environment.env_vars["HF_TOKEN"] = "[redacted:HF_TOKEN]"
PLAIN = pb.LaunchJobRequest(name="/cleo/sweep-lr-rerun", rerun=pb.Rerun(job_id="/cleo/sweep-lr", incarnation=7))


def form(**changes: str) -> dict[str, str]:
    return {**texts_of(PLAIN.name, BEFORE), **changes}


def test_a_form_that_was_left_alone_sends_nothing_but_the_original() -> None:
    made = request_of(PLAIN, BEFORE, form())
    assert made.request == PLAIN and made.words == ("--job-name", "sweep-lr-rerun")


@pytest.mark.parametrize(("limit_ms", "text"), [(0, "0"), (60_000, "60"), (1_500, "1.5"), (14 * 86_400_000, "1209600")])
def test_a_limit_is_shown_in_digits_however_long_it_is(limit_ms: int, text: str) -> None:
    assert texts_of(PLAIN.name, pb.LaunchJobRequest(timeout_ms=limit_ms))["timeout"] == text


def test_only_what_was_changed_is_sent_and_said() -> None:
    made = request_of(
        PLAIN,
        BEFORE,
        form(name="b", command="python x.py 'a b'", memory="128GB", priority="batch", timeout="0", env="LR=0.1 -OLD"),
    )
    sent = made.request
    assert sent.name == "/cleo/b" and list(sent.entrypoint.run_command.argv) == ["python", "x.py", "a b"]
    assert (sent.resources.cpu_millicores, sent.resources.memory_bytes) == (8_000, 128_000_000_000)
    assert sent.replicas == 0 and sent.priority_band == common_pb2.PRIORITY_BAND_BATCH
    assert list(sent.rerun.clear) == ["timeout_ms"] and list(sent.rerun.remove_env) == ["OLD"]
    assert dict(sent.environment.env_vars) == {"LR": "0.1"}
    assert made.words == (
        *("--job-name", "b", "--memory", "128GB", "--priority", "batch", "--timeout", "0"),
        *("-e", "LR", "0.1", "--remove-env", "OLD", "--", "python", "x.py", "a b"),
    )


def test_where_it_runs_and_how_often_it_is_tried_can_be_changed() -> None:
    before = pb.LaunchJobRequest()
    before.CopyFrom(BEFORE)
    for text in ("region=us", "pool=a,b"):
        before.constraints.append(constraint_to_wire(parse_constraint(text)))
    at_first = texts_of(PLAIN.name, before)
    assert (at_first["region"], at_first["constraint"], at_first["max-retries-preemption"]) == ("us", "pool=a,b", "100")
    changes = {
        "region": "eu, asia", "constraint": 'pool="a b" gpu-count>=4', "disk": "9GB", "max-retries-failure": "3",
        "max-retries-preemption": "0", "max-task-failures": "2", "scheduling-timeout": "90",
    }  # fmt: skip
    made = request_of(PLAIN, before, {**at_first, **changes})
    sent = made.request
    assert [str(constraint_from_wire(message)) for message in sent.constraints] == [
        "region=eu,asia", 'pool="a b"', "gpu-count>=4",
    ]  # fmt: skip
    assert (sent.resources.disk_bytes, sent.resources.cpu_millicores) == (9_000_000_000, 8_000)
    assert (sent.max_retries_failure, sent.max_retries_preemption, sent.max_task_failures) == (3, 0, 2)
    assert sent.HasField("max_retries_preemption") and sent.scheduling_timeout_ms == 90_000

    # The words do the same on the command line.
    world = World()
    job = world.job("/cleo/sweep-lr", "failed", incarnation=7)
    world.client.answer("GetJobStatus", pb.GetJobStatusResponse(job=job, request=before))
    world.client.answer("LaunchJob", lambda request: pb.LaunchJobResponse(job_id=request.name))
    assert world.cli("job", "rerun", "/cleo/sweep-lr", *made.words).code == 0
    (typed,) = world.client.called("LaunchJob")
    for name in ("request_id", "submit_argv", "client_revision_date", "existing_job_policy"):
        typed.ClearField(name)
    assert typed == sent


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"name": "a/b"}, "name", "job name"),
        ({"command": " "}, "command", "no command"),
        ({"command": "x '"}, "command", "No closing quotation"),
        ({"command": "python train.py '--token=[redacted]' --more"}, "command", "hidden"),
        ({"replicas": "many"}, "replicas", "whole number"),
        ({"cpu": "lots"}, "cpu", "lots"),
        ({"memory": "x"}, "memory", "size"),
        ({"env": "LR"}, "env", "neither"),
        ({"constraint": "gpu-count>=many"}, "constraint", "gpu-count"),
        ({"max-retries-failure": "-1"}, "max-retries-failure", "whole number"),
    ],
)
def test_what_is_wrong_names_its_field(changes: dict[str, str], field: str, said: str) -> None:
    with pytest.raises(ModelError, match=said) as wrong:
        request_of(PLAIN, BEFORE, form(**changes))
    assert wrong.value.field == field


async def open_form(rig: Rig) -> RerunForm:
    rig.client.requests["/cleo/sweep-lr"] = BEFORE
    await rig.row("/cleo/sweep-lr")
    await rig.keys("x", "r")
    await rig.until(lambda: isinstance(rig.app.screen, RerunForm) and rig.app.focused is not None)
    assert isinstance(rig.app.screen, RerunForm)
    return rig.app.screen


@pytest.mark.asyncio
async def test_a_job_is_run_again_through_form_and_gate() -> None:
    async with console() as rig:
        plan = plan_pb2.PlanResponse(effects=["submits /cleo/sweep-lr-rerun: 64 tasks in band interactive"])
        plan.targets.add(kind="job", id="/cleo/sweep-lr-rerun", note="new")
        rig.client.plans.scripted[METHOD] = plan
        made: list[Any] = []

        def launch(request: pb.LaunchJobRequest) -> pb.LaunchJobResponse:
            made.append(request)
            return pb.LaunchJobResponse(job_id=request.name)

        rig.client._launch_job = launch  # type: ignore[attr-defined]
        opened = await open_form(rig)
        assert "HF_TOKEN" in rig.screen_text() and opened.query_one("#rerun-replicas", Input).value == "64"
        opened.query_one("#rerun-env", Input).value = "LR"
        opened.query_one("#rerun-go").focus()
        await rig.keys("enter")
        await rig.until(lambda: "neither KEY=VALUE nor -KEY" in rig.screen_text())
        await rig.until(lambda: rig.app.focused is opened.query_one("#rerun-env"))
        opened.query_one("#rerun-env", Input).value = "LR=0.1 API_KEY=geheim"
        opened.query_one("#rerun-go").focus()
        await rig.until(lambda: rig.app.focused is opened.query_one("#rerun-go"))
        await rig.keys("enter")
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen) and rig.app.focused is not None)
        text = " ".join(rig.screen_text().split())
        assert "submits /cleo/sweep-lr-rerun: 64 tasks" in text and "geheim" not in text
        assert isinstance(rig.app.screen, GateScreen)
        assert rig.app.screen.plan.command == (
            "iris-core --cluster=lab job rerun /cleo/sweep-lr --job-name sweep-lr-rerun"
            " -e LR 0.1 -e API_KEY '[redacted:API_KEY]'"
        )
        await rig.keys("right", "enter")
        await rig.until(lambda: made)
        assert made[0].rerun.job_id == "/cleo/sweep-lr" and dict(made[0].environment.env_vars) == {
            "LR": "0.1",
            "API_KEY": "geheim",
        }
        await rig.until(lambda: "submitted" in rig.screen_text())


@pytest.mark.asyncio
async def test_a_bundle_that_is_gone_is_said_before_the_form_opens() -> None:
    async with console() as rig:
        gone = RpcFailed("FAILED_PRECONDITION", "it cannot be run again: its bundle is no longer stored")
        rig.client.fail("Plan", RpcFailed("ALREADY_EXISTS", "taken"))
        rig.client.fail("Plan", gone)
        await rig.row("/cleo/sweep-lr")
        await rig.keys("x", "r")
        await rig.until(lambda: "bundle" in rig.screen_text())
        assert not isinstance(rig.app.screen, RerunForm) and rig.client.called("LaunchJob") == []
        (_, second) = rig.client.called("Plan")
        assert pb.LaunchJobRequest.FromString(second.requests[0]).name == "/cleo/sweep-lr-rerun-2"
