"""A name that a later job takes over, against a real controller and a real cluster: the earlier submission alone is spoken of and ended."""

from __future__ import annotations

import signal
import subprocess
import time
from typing import IO, TYPE_CHECKING

import pytest

from iris_core.contracts import RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, plan_pb2
from providers.fake.worker import run_on, succeed
from tests.integration.controller_rig import Rig, rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.local_cluster import LocalCluster

RECREATE = common_pb2.EXISTING_JOB_POLICY_RECREATE


async def terminate(r: Rig, job_id: str, incarnation: int, request_id: str = "") -> controller_pb2.TerminateJobResponse:
    request = controller_pb2.TerminateJobRequest(job_id=job_id, incarnation=incarnation, request_id=request_id)
    return await r.call("TerminateJob", request, controller_pb2.TerminateJobResponse)


@pytest.mark.asyncio
async def test_a_cancel_of_one_submission_leaves_a_later_one_alone(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        first = (await r.launch("/u/a")).incarnation
        later = (await r.launch("/u/a", existing_job_policy=RECREATE)).incarnation
        assert later > first
        with pytest.raises(
            RpcFailed, match="/u/a was replaced by a later job of this name; nothing was done"
        ) as caught:
            await terminate(r, "/u/a", first)
        assert (caught.value.status, caught.value.code) == ("FAILED_PRECONDITION", "replaced")
        status, answer = await r.post("TerminateJob", {"job_id": "/u/a", "incarnation": str(first)})
        assert status == 412 and "replaced" in str(answer)
        plan = plan_pb2.PlanRequest(method="ControllerService/TerminateJob")
        plan.requests.append(controller_pb2.TerminateJobRequest(job_id="/u/a", incarnation=first).SerializeToString())
        with pytest.raises(RpcFailed, match="was replaced by a later job"):
            await r.call("Plan", plan, plan_pb2.PlanResponse)
        assert (await r.job("/u/a")).state == common_pb2.JOB_STATE_PENDING

        ended = await terminate(r, "/u/a", later, "once")
        assert (list(ended.job_ids), ended.incarnation) == (["/u/a"], later)
        assert await terminate(r, "/u/a", later, "once") == ended
        again = await terminate(r, "/u/a", later)
        assert (list(again.job_ids), again.incarnation) == ([], later)


@pytest.mark.asyncio
async def test_without_an_incarnation_whichever_job_has_the_name_is_cancelled_and_named(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.launch("/u/a")
        later = (await r.launch("/u/a", existing_job_policy=RECREATE)).incarnation
        ended = await terminate(r, "/u/a", 0)
        assert (list(ended.job_ids), ended.incarnation) == (["/u/a"], later)


@pytest.mark.asyncio
async def test_a_restarted_controller_knows_the_submissions(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=succeed):
        over = (await r.launch("/u/over")).incarnation
        await r.until_state("/u/over", common_pb2.JOB_STATE_SUCCEEDED)
    async with rig(tmp_path) as r, r.worker("w2", script=run_on):
        runs = (await r.launch("/u/runs")).incarnation
    async with rig(tmp_path) as r:
        assert (await r.job("/u/runs")).incarnation == runs
        with pytest.raises(RpcFailed, match="replaced"):
            await terminate(r, "/u/over", over - 1)
        assert (await terminate(r, "/u/over", over)).incarnation == over
        with pytest.raises(RpcFailed, match="replaced"):
            await terminate(r, "/u/runs", runs - 1)
        assert list((await terminate(r, "/u/runs", runs)).job_ids) == ["/u/runs"]


def said(stream: IO[bytes] | None, word: bytes, process: subprocess.Popen[bytes]) -> None:
    """Until a line with that word was read."""
    assert stream is not None
    while word not in stream.readline():
        assert process.poll() is None


AGAIN = ("--existing-job", "recreate")


def recreate(cluster: LocalCluster, name: str) -> None:
    done = cluster.job(name, "sh", "-c", "echo other; sleep 621", options=AGAIN, wait=False)
    assert done.code == 0, done


class Watching:
    """Who speaks of the job /t/NAME, once all of them have found it: `job run` itself, who waits for it, and who follows its log."""

    def __init__(self, cluster: LocalCluster, name: str, script: str) -> None:
        self.run = cluster.popen(
            "--cluster=local", "job", "run", "--no-sync", "--job-name", name, "--", "sh", "-c", script
        )
        said(self.run.stdout, b"first", self.run)
        self.waits = [
            cluster.popen("-v", "--cluster=local", *words.split())
            for words in (f"job wait /t/{name}", f"task wait /t/{name}/0", f"attempt wait /t/{name}/0:0")
        ]
        self.logs = cluster.popen("-v", "--cluster=local", "job", "logs", f"/t/{name}", "-f")
        for process in (*self.waits, self.logs):
            said(process.stderr, b"Service/Get", process)
        said(self.logs.stdout, b"first", self.logs)

    def ends(self) -> Iterator[tuple[subprocess.Popen[bytes], bytes]]:
        """Each of them, ended, with what it said; it printed, and its exit code is, what belongs to that."""
        for process in (self.run, *self.waits, self.logs):
            out, err = process.communicate(timeout=90)
            assert b"Traceback" not in err
            if b"replaced by a new submission" in err:  # how the job ended
                assert out == (b"killed\n" if process in self.waits else b""), (out, err)
                # A log that was followed to the end of its job is no failure.
                assert process.returncode == (0 if process is self.logs else 1), (out, err)
            else:
                assert b"replaced by a later job of this name" in err, (out, err)
                assert (out, process.returncode) == (b"", 1), (out, err)
            yield process, err


def test_job_run_and_what_watches_it_end_when_a_later_job_takes_the_name(cluster: LocalCluster) -> None:
    watching = Watching(cluster, "taken", "echo first; exec sleep 620")
    recreate(cluster, "taken")
    cluster.until("job", "logs", "/t/taken", has="other")
    assert len(list(watching.ends())) == 5
    assert cluster.cli("job", "cancel", "/t/taken").out == "cancelled /t/taken\n"
    every = cluster.cli("job", "logs", "/t/taken", "--all-incarnations").out
    assert "first" in every and "other" in every


def test_who_asks_while_the_earlier_job_leaves_its_workers_hears_how_it_ended(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    watching = Watching(
        cluster, "leaving", f"trap 'while [ ! -e {go} ]; do sleep 0.02; done; exit' TERM; echo first; sleep 620 & wait"
    )
    later = cluster.popen(
        "--cluster=local",
        "job",
        "run",
        "--no-sync",
        "--no-wait",
        "--job-name",
        "leaving",
        *AGAIN,
        "--",
        "echo",
        "other",
    )
    try:
        for process, err in watching.ends():
            assert b"replaced by a new submission" in err, (process.args, err)
        assert later.poll() is None, "the name is free once the earlier tasks have left their workers"
    finally:
        go.touch()
    out, err = later.communicate(timeout=90)
    assert later.returncode == 0, (out, err)
    cluster.until("job", "logs", "/t/leaving", has="other")


def test_ctrl_c_in_job_run_never_cancels_the_next_job_of_the_name(cluster: LocalCluster) -> None:
    run = cluster.popen(
        "--cluster=local", "job", "run", "--no-sync", "--job-name", "next", "--", "sh", "-c", "echo up; sleep 622"
    )
    said(run.stdout, b"up", run)
    run.send_signal(signal.SIGSTOP)
    recreate(cluster, "next")
    cluster.until("job", "logs", "/t/next", has="other")
    # Both reach it when it goes on: it is interrupted before it has heard of the later job, or just after.
    run.send_signal(signal.SIGINT)
    run.send_signal(signal.SIGCONT)
    out, err = run.communicate(timeout=90)
    assert b"other" not in out
    assert b"/t/next was replaced by a later job of this name" in err
    assert b"cancelled /t/next" not in err
    assert "running" in cluster.cli("job", "describe", "/t/next").out
    assert cluster.cli("job", "cancel", "/t/next").code == 0


def test_another_attempt_is_the_same_submission(cluster: LocalCluster) -> None:
    script = 'echo "attempt $IRIS_TASK_ID"; test "${IRIS_TASK_ID##*:}" = 1'
    done = cluster.job("again", "sh", "-c", script, options=("--max-retries-failure", "1"))
    assert done.code == 0, done
    assert "attempt /t/again/0:0" in done.out and "attempt /t/again/0:1" in done.out


def test_following_until_a_time_that_is_past_ends(cluster: LocalCluster) -> None:
    cluster.job("until", "sh", "-c", "echo here; sleep 623", wait=False)
    cluster.until("job", "logs", "/t/until", has="here")
    done = cluster.cli("job", "logs", "/t/until", "-f", "--until-ms", str((int(time.time()) - 3600) * 1000))
    assert (done.code, done.out) == (0, "")
    assert "/t/until is running; its lines from before --until are shown" in done.err
    assert cluster.cli("job", "cancel", "/t/until").code == 0
