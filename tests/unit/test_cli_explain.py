"""`job explain`, `task explain` and `job run --dry-run`: what is asked, and what is printed in each format."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from iris_controller.rpc.explain_view import fill
from iris_controller.scheduling.explain import ClusterView, explain
from iris_core.contracts import RpcFailed
from iris_core.model.constraints import parse_constraint
from iris_core.model.resources import Device
from iris_core.wire.gen.iris.v1 import common_pb2, explain_pb2
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from tests.unit import kernel_world
from tests.unit.cli_world import World
from tests.unit.kernel_world import GB

if TYPE_CHECKING:
    from pathlib import Path

    from iris_controller.state.records import Job

EU = {"region": "eu", "tpu-name": "s1"}
US = {"region": "us", "tpu-name": "s2"}


def waiting() -> tuple[kernel_world.World, Job]:
    """Two workers in eu, one full and one small, one in us, one dead; a job that wants what the full one has."""
    world = kernel_world.World()
    gpus = Device("gpu", "h100", 8)
    world.add_worker("big", cpu=16, memory=64 * GB, device=gpus, attributes=EU)
    world.add_worker("small", cpu=1, attributes=EU)
    world.add_worker("far", cpu=16, memory=64 * GB, device=gpus, attributes=US)
    world.add_worker("gone", placeable=False, attributes=EU)
    world.submit("/squat/x", memory=60 * GB)
    world.running(0, "/squat/x", "big")
    asked = (parse_constraint("region=eu"),)
    world.submit("/ada/train", tasks=2, cpu=8, memory=8 * GB, device=Device("gpu", "h100", 4), constraints=asked)
    return world, world.job("/ada/train")


def explanation(gang: bool = False) -> explain_pb2.Explanation:
    world, job = waiting()
    if gang:
        job = replace(job, spec=replace(job.spec, group_by="tpu-name", constraints=()))
    found = explain_pb2.Explanation(
        subject="/ada/train", state="pending", tasks=2, pending=2, revision=common_pb2.Revision(boot_id="b", n=7)
    )
    seen = explain(ClusterView.of(world.model), job, 2)
    found.cause, found.verdict = seen.cause, explain_pb2.EXPLAIN_VERDICT_WAITS
    found.notes.extend(seen.notes)
    fill(found, seen, lambda _: True)
    return found


@pytest.fixture
def world() -> World:
    world = World()
    world.client.answer("ExplainJob", pb.ExplainJobResponse(explanation=explanation()))
    world.client.answer("ExplainTask", pb.ExplainTaskResponse(explanation=explanation()))
    return world


TABLE = """\
Job: /ada/train
Cause: needs 8GB of memory free: the most on one of 1 worker matching its constraints with enough cpu is 4GB of 64GB
Verdict: waits until there is room
State: pending, 2 of 2 tasks wait
Note: workers that would fit: 1 without region=eu, 1 if it asked for less memory
Asks for: 8 cores, 8GB of memory, 4 h100 GPUs
Band: interactive
Budget: someone spends 65 of 1000
Queue: place 1 of 2 pending tasks
As of: revision b/7

STEP        WANTS        LEFT  IF DROPPED  INSTEAD
workers                     4
health      healthy         3              1 cleaning up
constraint  region=eu       2          +1  1 us
cpu         8 cores         1              most free 15 of 16
memory      8GB             0          +1  most free 4GB of 64GB
gpu         4 h100 GPUs     0

NEAREST  LACKS       HELD BY
big      4GB memory  /squat/x/0 (60GB)
"""


def test_the_cause_comes_first_then_the_funnel_and_who_holds_it(world: World) -> None:
    done = world.cli("job", "explain", "/ada/train")
    assert (done.code, done.err, done.out) == (0, "", TABLE)
    assert not world.client.called("ExplainJob")[0].HasField("what_if")
    task = world.cli("task", "explain", "/ada/train/1")
    assert task.out == TABLE.replace("Job: ", "Task: ")
    assert world.client.called("ExplainTask")[0].task_id == "/ada/train/1"


@pytest.mark.parametrize(
    ("met", "fits", "said"),
    [
        (0, 0, "zone=a"),
        (0, 1, "zone=a, not met by the worker that fits"),
        (1, 1, "zone=a, met by the worker that fits"),
        (1, 3, "zone=a, met by 1 of the 3 workers that fit"),
    ],
)
def test_a_preference_says_how_many_meet_it(world: World, met: int, fits: int, said: str) -> None:
    found = explanation()
    found.fits = fits
    found.preferences.add(wants="zone=a", met=met)
    world.client.answer("ExplainJob", pb.ExplainJobResponse(explanation=found))
    assert f"\nRather: {said}\n" in world.cli("job", "explain", "/ada/train").out


def test_a_gang_shows_its_groups(world: World) -> None:
    world.client.answer("ExplainJob", pb.ExplainJobResponse(explanation=explanation(gang=True)))
    out = world.cli("job", "explain", "/ada/train").out
    assert (
        "Cause: needs 2 workers that share one tpu-name: the best of 2 groups, s1, has 1 of 3 that could take one"
        in out
    )
    table = out[out.index("TPU-NAME") :].splitlines()
    assert "NEAREST" not in out, "no end of any task would make room for two"
    assert [line.split(maxsplit=5) for line in table if line] == [
        ["TPU-NAME", "WORKERS", "FIT", "IF", "IDLE", "MISSING  BLOCKED BY"],
        ["s2", "1", "1", "1", "1"],
        ["s1", "3", "0", "1", "2", "1 cpu, 1 health, 1 memory"],
    ]


@pytest.mark.parametrize(
    ("size", "said"), [(2, "2 tasks at once on workers of one rack"), (1, "a worker that has rack")]
)
def test_what_a_gang_asks_for_is_told_in_its_number(world: World, size: int, said: str) -> None:
    found = explanation()
    found.gang_size, found.group_by = size, "rack"
    world.client.answer("ExplainJob", pb.ExplainJobResponse(explanation=found))
    assert f"4 h100 GPUs, {said}\n" in world.cli("job", "explain", "/ada/train").out


def test_scale_groups_have_their_say(world: World) -> None:
    found = explanation()
    found.scale_groups.add(
        scale_group="h100-eu", verdict="at_max_slices", reason="at its maximum of 2 slices", can_ever=True
    )
    world.client.answer("ExplainJob", pb.ExplainJobResponse(explanation=found))
    out = world.cli("job", "explain", "/ada/train").out
    assert out.endswith("\nSCALE GROUP  SAYS           WHY\nh100-eu      at max slices  at its maximum of 2 slices\n")


def test_machine_formats(world: World) -> None:
    one = json.loads(world.cli("job", "explain", "/ada/train", "-o", "json").out)
    assert one["verdict"] == "waits" and one["fits"] == 0 and one["constraints"] == ["region=eu"]
    assert [(s["name"], s["left"], s["more"]) for s in one["funnel"]][:2] == [("health", 3, 0), ("constraint", 2, 1)]
    assert one["funnel"][3]["most_free"] == 4 * GB and one["place"]["effective_band"] == "PRIORITY_BAND_INTERACTIVE"
    assert one["revision"] == {"boot_id": "b", "n": 7}
    lines = world.cli("job", "explain", "/ada/train", "-o", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == [one]
    rows = list(csv.DictReader(io.StringIO(world.cli("job", "explain", "/ada/train", "-o", "csv").out)))
    assert [row["left"] for row in rows] == ["3", "2", "1", "0", "0"] and rows[1]["wants"] == "region=eu"
    assert world.cli("job", "explain", "/ada/train", "-o", "name").out == "/ada/train\n"


def test_what_if_travels_as_typed(world: World) -> None:
    amounts = ["--cpu", "0.5", "--memory", "2GiB", "--gpu", "H100x2", "--replicas", "3"]
    places = ["--region", "us", "--region", "eu", "--zone", "us-a", "--constraint", "disks>=2", "--without", "Pool"]
    done = world.cli("job", "explain", "/a/b", *amounts, *places, "--priority", "batch")
    assert done.code == 0
    sent = world.client.called("ExplainJob")[0].what_if
    assert (sent.cpu_millicores, sent.memory_bytes) == (500, 2 << 30)
    assert (sent.device.kind, sent.device.variant, sent.device.count) == ("gpu", "h100", 2)
    assert [(c.key, c.op, [v.text or v.integer for v in c.values]) for c in sent.constraints] == [
        ("disks", common_pb2.CONSTRAINT_OP_GE, [2]),
        ("region", common_pb2.CONSTRAINT_OP_IN, ["us", "eu"]),
        ("zone", common_pb2.CONSTRAINT_OP_EQ, ["us-a"]),
    ]
    assert list(sent.without) == ["pool"] and sent.priority_band == common_pb2.PRIORITY_BAND_BATCH
    assert sent.replicas == 3
    world.cli("task", "explain", "/a/b/0", "--tpu", "none")
    sent = world.client.called("ExplainTask")[0].what_if
    assert sent.HasField("device") and sent.device.count == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["job", "explain", "nonsense"], "nonsense"),
        (["job", "explain", "/a/b", "--gpu", "H100x2", "--tpu", "v4-8"], "exclude each other"),
        (["job", "explain", "/a/b", "--gpu", "H10"], "H100"),
        (["job", "explain", "/a/b", "--constraint", "region"], ""),
        (["job", "explain", "/a/b", "--priority", "btach"], "batch"),
        (["task", "explain", "/a/b"], "/a/b"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else value,
)
def test_wrong_words_are_usage_errors_before_anything_is_asked(world: World, words: list[str], said: str) -> None:
    done = world.cli(*words)
    if said:
        assert (done.code, done.out) == (2, "") and said in done.err
        assert not world.client.calls
    else:
        assert done.code == 0, "an attribute alone asks that it be there"


def test_a_refusal_is_one_line(world: World) -> None:
    world.client.answer("ExplainJob", RpcFailed("NOT_FOUND", "there is no job /a/b", code="not_found"))
    done = world.cli("job", "explain", "/a/b")
    assert done.code == 1 and done.out == "" and done.err.count("\n") == 1 and "there is no job /a/b" in done.err


def test_where_there_is_nothing_to_run_on_it_says_so(world: World) -> None:
    found = explanation()
    found.workers = 0
    world.client.answer("ExplainJob", pb.ExplainJobResponse(explanation=found))
    said = "Verdict: waits for a worker: there is none, and no scale group that could make one\n"
    assert said in world.cli("job", "explain", "/ada/train").out
    found.what_if.append("cpu=1")
    world.client.answer("ExplainJob", pb.ExplainJobResponse(explanation=found))
    assert said.replace("waits", "would wait") in world.cli("job", "explain", "/ada/train").out
    found.scale_groups.add()
    world.client.answer("ExplainJob", pb.ExplainJobResponse(explanation=found))
    assert "would wait until there is room" in world.cli("job", "explain", "/ada/train").out


def test_a_dry_run_stores_and_submits_nothing(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)")
    found = explanation()
    found.state = ""
    world.client.answer("ExplainJob", pb.ExplainJobResponse(explanation=found))
    words = ["--user", "ada", "--job-name", "train", "--cpu", "8", "--replicas", "2"]
    done = world.cli("job", "run", "--dry-run", *words, "--", "python", "train.py")
    assert done.code == 0
    assert done.out.startswith("Job: /ada/train\nCause: needs 8GB of memory free")
    assert "Verdict: would wait until there is room" in done.out and "nothing was stored or submitted" in done.err
    assert [call.method for call in world.client.calls] == ["ControllerService/ExplainJob"]
    sent = world.client.called("ExplainJob")[0].launch
    assert sent.name == "/ada/train" and sent.resources.cpu_millicores == 8_000 and sent.replicas == 2
    found.verdict = explain_pb2.EXPLAIN_VERDICT_ENDED
    world.client.answer("ExplainJob", pb.ExplainJobResponse(explanation=found))
    assert world.cli("job", "run", "--dry-run", *words, "--", "true").code == 1
    refused = RpcFailed("ALREADY_EXISTS", "job /ada/train exists and is running", code="job_exists")
    world.client.answer("ExplainJob", refused)
    done = world.cli("job", "run", "--dry-run", *words, "--", "true")
    assert done.code == 1 and "job /ada/train exists and is running" in done.err and not done.out
