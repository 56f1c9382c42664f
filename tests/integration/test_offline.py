"""`--checkpoint`: every reading command prints from a checkpoint what it printed from the controller, and nothing can be changed."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shlex
import shutil
import tempfile
from pathlib import Path

import pytest

from iris_core.cli.main import run
from iris_core.wire.gen.iris.v1 import checkpoints_pb2, common_pb2, controller_pb2
from providers.objects import open_store
from tests.integration.controller_rig import launch_request, rig
from tests.unit.checkpoint_world import T0, checkpoint, make_state
from tests.unit.cli_world import captured

SAME = (
    "job list --state succeeded -o json",
    "job list -o csv --state succeeded",
    "job list -o name --prefix /u/do",
    "job describe /u/done -o json",
    "task list /u/many -o json",
    "task describe /u/done/0 -o json",
    "query 'SELECT task_id, state FROM tasks ORDER BY 1' -f csv",
    "query 'SELECT count(*) FROM task_attempts' -f json",
    "user budget list -o json",
)


def words(text: str) -> list[str]:
    return shlex.split(text)


def iris(*argv: str) -> tuple[int, str, str]:
    with captured() as (out, err):
        code = run(list(argv))
        return code, out().decode(), err().decode()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where checkpoints are unpacked that are not kept."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.asyncio
async def test_every_reading_command_prints_the_same(tmp_path: Path, temporary: Path) -> None:
    live: dict[str, str] = {}
    async with rig(tmp_path / "s") as r:
        async with r.worker("w1"):
            await r.launch("/u/done")
            request = launch_request("/u/many")
            request.replicas = 3
            await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
            await r.until_state("/u/done", common_pb2.JOB_STATE_SUCCEEDED)
            await r.until_state("/u/many", common_pb2.JOB_STATE_SUCCEEDED)
        request = launch_request("/u/wide")
        request.replicas, request.resources.cpu_millicores, request.resources.memory_bytes = 1_500, 1, 1
        await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
        await r.launch("/u/large", resources=common_pb2.Resources(cpu_millicores=10**6, memory_bytes=1))
        for line in SAME:
            code, live[line], err = await asyncio.to_thread(
                iris, "--controller-url", r.controller.port.url, *words(line)
            )
            assert code == 0, (line, err)
        made = await r.call(
            "BeginCheckpoint", checkpoints_pb2.BeginCheckpointRequest(), checkpoints_pb2.BeginCheckpointResponse
        )
        code, printed, err = await asyncio.to_thread(
            iris, "--controller-url", r.controller.port.url, "cluster", "controller", "checkpoint", "-o", "json"
        )
        assert code == 0, err
        latest = json.loads(printed)
        assert latest["checkpoint_path"].startswith(made.checkpoint_path[:-13]) and int(latest["job_count"]) == 4
        for how in ("table", "name"):
            code, printed, err = await asyncio.to_thread(
                iris, "--controller-url", r.controller.port.url, "cluster", "controller", "checkpoint", "-o", how
            )
            assert code == 0, err
            first, _, _ = printed.partition("\n")
            assert first.removeprefix("Checkpoint: ").startswith(made.checkpoint_path[:-13])

    def read() -> None:
        for line in SAME:
            code, out, err = iris("--checkpoint", made.checkpoint_path, *words(line))
            assert code == 0, (line, err)
            assert out == live[line], line
            assert "read from the checkpoint of " in err
        # What waits has its reason, and its explanation.
        code, out, _ = iris("--checkpoint", made.checkpoint_path, "job", "list", "--state", "pending", "-o", "json")
        reasons = {job["job_id"]: job["reason"] for job in json.loads(out)}
        assert code == 0 and "cores" in reasons["/u/large"], "also behind more than one slice of the scheduler's places"
        code, out, _ = iris("--checkpoint", made.checkpoint_path, "job", "explain", "/u/large")
        assert code == 0 and "cpu" in out

    await asyncio.to_thread(read)
    assert not os.listdir(temporary), "nothing stays behind"


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """The URL of a checkpoint of five finished jobs."""
    state = make_state(tmp_path / "state", jobs=5)
    made = checkpoint(state, open_store(f"file://{tmp_path}/remote"), T0)
    return f"file://{tmp_path}/remote/controller-state/{made.epoch_ms}"


def test_a_checkpoint_is_found_by_path_url_file_and_remote_state_dir(
    saved: str, tmp_path: Path, temporary: Path
) -> None:
    folder = saved.removeprefix("file://")
    shutil.copytree(folder, tmp_path / "1700000000000")
    for place in (
        saved,
        folder,
        f"{folder}/controller.sqlite3.zst",
        str(tmp_path / "remote"),
        str(tmp_path / "remote" / "controller-state"),
        str(tmp_path / "1700000000000"),
        str(tmp_path / "state" / "db" / "controller.sqlite3"),
    ):
        code, out, err = iris("--checkpoint", place, "job", "list", "-o", "name")
        assert (code, len(out.splitlines())) == (0, 5), (place, err)
    before = {p: p.read_bytes() for p in (tmp_path / "remote").rglob("*") if p.is_file()}
    iris("--checkpoint", saved, "job", "list")
    assert {p: p.read_bytes() for p in (tmp_path / "remote").rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("job cancel /u/job1", "cannot be changed"),
        ("task preempt /u/job1/0", "cannot be changed"),
        ("user budget set u --limit 3 --max-band batch", "cannot be changed"),
        ("cluster controller checkpoint", "cannot be changed"),
        ('rpc controller terminate-job --json \'{"job_id": "/u/job1"}\'', "cannot be changed"),
        ("job logs /u/job1", "holds no logs"),
        ("job list --watch", "does not change"),
        ("process status", "nothing runs"),
    ],
)
def test_what_needs_a_controller_is_refused_in_one_line(saved: str, temporary: Path, line: str, says: str) -> None:
    code, out, err = iris("--checkpoint", saved, *words(line))
    errors = [found for found in err.splitlines() if found.startswith("Error: ")]
    assert code == 2 and len(errors) == 1 and says in errors[0], err
    assert not out and "Traceback" not in err
    assert not list(temporary.glob("iris-checkpoint-*"))


def test_what_is_no_checkpoint_is_one_line(saved: str, tmp_path: Path, temporary: Path) -> None:
    packed = Path(saved.removeprefix("file://")) / "controller.sqlite3.zst"
    packed.write_bytes(packed.read_bytes()[:-9])
    (tmp_path / "empty").mkdir()
    for place, code in ((saved, 1), (str(tmp_path / "empty"), 1), ("/nowhere/1", 1), ("s3://b/1", 2), ("x.zst", 1)):
        found, out, err = iris("--checkpoint", place, "job", "list")
        errors = [line for line in err.splitlines() if line.startswith("Error: ")]
        assert (found, len(errors), out) == (code, 1, ""), err
        assert "Traceback" not in err
    assert not list(temporary.glob("iris-checkpoint-*"))


def test_the_status_of_a_checkpoint_does_not_claim_that_anything_runs(saved: str, temporary: Path) -> None:
    code, out, _ = iris("--checkpoint", saved, "cluster", "status")
    assert code == 0
    assert f"Running:   no, this is a checkpoint\nAddress:   {saved}\n" in out
    assert "Healthy" not in out and "Up for" not in out and "Jobs:" in out


def test_what_a_killed_one_left_is_removed_by_the_next(saved: str, tmp_path: Path, temporary: Path) -> None:
    left, used = temporary / "iris-checkpoint-left", temporary / "iris-checkpoint-used"
    for folder in (left, used):
        folder.mkdir()
        (folder / "controller.sqlite3").write_bytes(b"half")
    held = os.open(used, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        assert iris("--checkpoint", str(tmp_path / "state" / "db" / "controller.sqlite3"), "job", "list")[0] == 0
        assert os.listdir(temporary) == ["iris-checkpoint-used"]
    finally:
        os.close(held)


def test_selectors_exclude_each_other() -> None:
    for line in (
        "--checkpoint x --cluster local job list",
        "--checkpoint x --controller-url http://h:1 job list",
        "--checkpoint '' job list",
    ):
        code, _, err = iris(*words(line))
        assert code == 2 and "--checkpoint" in err
