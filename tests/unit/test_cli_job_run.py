"""`job run`: what is submitted, what is printed where, and what an interrupt or a lost connection does to the job."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from iris_core.cli import reads
from iris_core.cli.submit import default_name
from iris_core.client.calls import NotReached
from iris_core.connect.local import LocalEndpoint, process_start, write_endpoint
from iris_core.contracts import ConnectFailed, RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from tests.unit.cli_world import T0, URL, World

if TYPE_CHECKING:
    from pathlib import Path

    from providers.fake.client import Call


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGNAME", "ada")
    world = World()
    launches: dict[str, str] = {}

    def launch(request: pb.LaunchJobRequest) -> pb.LaunchJobResponse:
        if request.request_id not in launches:
            launches[request.request_id] = request.name
            state = getattr(world, "ends", "succeeded")
            job = world.job(request.name, state, error=getattr(world, "error", ""))
            if failed := getattr(world, "failed", 0):
                job.task_counts.add(state=common.TASK_STATE_FAILED, count=failed)
            world.task(f"{request.name}/0", state)
            for text in getattr(world, "lines", ["hello"]):
                world.client.cluster.log(f"{request.name}/0:0", text, epoch_ms=T0)
        return pb.LaunchJobResponse(job_id=request.name, incarnation=T0)

    world.client.answer("LaunchJob", launch)
    world.client.answer("StatBundle", pb.StatBundleResponse(exists=False))
    world.client.answer("PutBundle", pb.PutBundleResponse())
    return world


def request_of(world: World) -> pb.LaunchJobRequest:
    request = world.client.called("LaunchJob")[0]
    assert isinstance(request, pb.LaunchJobRequest)
    return request


def test_the_id_comes_first_then_what_the_job_writes(world: World) -> None:
    done = world.cli("job", "run", "--job-name", "j", "--", "echo", "hello")
    assert done.code == 0
    assert done.out == "/ada/j\n[00:00:00] task=/ada/j/0 attempt=0 | hello\n"
    assert "bundle: 0 files" in done.err
    assert "/ada/j succeeded" in done.err


def test_no_wait_prints_the_id_and_nothing_else(world: World) -> None:
    done = world.cli("job", "run", "--no-wait", "--job-name", "j", "--", "true")
    assert (done.code, done.out) == (0, "/ada/j\n")
    assert world.client.called("FetchLogs") == []


def test_a_job_that_does_not_succeed_is_exit_1_with_the_reason(world: World) -> None:
    world.ends, world.error = "failed", "killed by SIGKILL (sender unknown)"  # type: ignore[attr-defined]
    done = world.cli("job", "run", "--job-name", "j", "--", "true")
    assert done.code == 1
    assert "/ada/j failed" in done.err
    assert "killed by SIGKILL (sender unknown)" in done.err
    assert "job describe /ada/j" in done.err


def test_a_job_that_may_succeed_with_every_task_failed_says_so_when_it_is_sent(world: World) -> None:
    warned = "succeeds even if every task fails"
    assert warned in world.cli("job", "run", "--no-wait", "--max-retries", "1", "--", "true").err
    for words in (
        ("--max-retries-failure", "1"),
        ("--max-retries", "1", "--replicas", "2"),
        ("--max-retries", "1", "--max-task-failures", "1"),
    ):
        done = world.cli("job", "run", "--no-wait", *words, "--", "true")
        assert done.code == 0 and warned not in done.err


def test_a_job_that_succeeds_with_failed_tasks_says_how_many(world: World) -> None:
    world.failed = 1  # type: ignore[attr-defined]
    done = world.cli("job", "run", "--job-name", "j", "--", "true")
    assert done.code == 0
    assert "although 1 of 1 tasks failed for good" in done.err


def test_the_request_says_what_was_typed(world: World) -> None:
    world.cli("job", "run", "-e", "A", "1", "-e", "API_TOKEN", "hunter2", "-e", "IRIS_PORT_JAX", "32731", "-e", "EMPTY", "",
              "--cpu", "0.5", "--memory", "2GiB", "--disk", "1GB", "--replicas", "3", "--max-retries", "2", "--timeout", "1.5",
              "--job-name", "j", "--user", "bob", "--no-wait", "--", "sh", "-c", "x", "--", "--cpu", "9")  # fmt: skip
    request = request_of(world)
    assert request.name == "/bob/j"
    assert list(request.entrypoint.run_command.argv) == ["sh", "-c", "x", "--", "--cpu", "9"]
    assert dict(request.environment.env_vars) == {
        "A": "1",
        "API_TOKEN": "hunter2",
        "IRIS_PORT_JAX": "32731",
        "EMPTY": "",
    }
    assert (request.resources.cpu_millicores, request.resources.memory_bytes) == (500, 2 * 2**30)
    assert (request.replicas, request.max_retries_failure, request.max_task_failures) == (3, 2, 2)
    assert (request.timeout_ms, request.existing_job_policy) == (1500, common.EXISTING_JOB_POLICY_UNSPECIFIED)
    assert "hunter2" not in " ".join(request.submit_argv)
    assert "[redacted:API_TOKEN]" in request.submit_argv
    assert list(request.submit_argv)[:1] == ["iris-core"]
    assert request.environment.setup_scripts == []


def test_nothing_of_the_submitter_s_environment_travels(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "x")
    world.cli("job", "run", "--no-wait", "--job-name", "j", "--", "true")
    assert dict(request_of(world).environment.env_vars) == {}


def test_accelerators_are_spelled_out(world: World) -> None:
    world.cli("job", "run", "--no-wait", "--enable-extra-resources", "--tpu", "v5litepod-16", "--", "true")
    request = request_of(world)
    assert (request.resources.device.kind, request.resources.device.variant, request.resources.device.count) == (
        "tpu",
        "v5litepod-16",
        4,
    )
    assert request.replicas == 4
    assert list(request.constraints) == []
    world.client.calls.clear()
    world.cli("job", "run", "--no-wait", "--enable-extra-resources", "--gpu", "h100x8", "--replicas", "2", "--", "true")
    device = request_of(world).resources.device
    assert (device.kind, device.variant, device.count, request_of(world).replicas) == ("gpu", "h100", 8, 2)


def test_the_bundle_is_sent_once_and_named_by_its_hash(world: World, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    done = world.cli("job", "run", "--no-wait", "--job-name", "j", "--", "python", "train.py")
    put = world.client.called("PutBundle")[0]
    assert put.bundle_id == hashlib.sha256(put.data).hexdigest() == request_of(world).bundle_id
    assert "bundle: 1 file, 9B" in done.err
    assert "no git repository: everything below it" in done.err
    assert f"bundle {put.bundle_id[:12]}" in done.err
    world.client.answer("StatBundle", pb.StatBundleResponse(exists=True))
    world.client.calls.clear()
    assert "already stored" in world.cli("job", "run", "--no-wait", "--job-name", "j", "--", "true").err
    assert world.client.called("PutBundle") == []


def test_a_pyproject_brings_the_setup_step_unless_told_not_to(world: World, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    world.cli("job", "run", "--no-wait", "--job-name", "a", "--", "true")
    assert list(request_of(world).environment.setup_scripts) == ["uv sync --all-packages --no-dev"]
    world.client.calls.clear()
    world.cli("job", "run", "--no-wait", "--no-sync", "--job-name", "b", "--", "true")
    assert list(request_of(world).environment.setup_scripts) == []


def test_a_setup_step_without_uv_is_warned_of_where_the_workers_are_this_machines(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.parent / f"{tmp_path.name}-state"))
    start = process_start(os.getpid())
    assert start is not None
    write_endpoint(LocalEndpoint("http://127.0.0.1:1", os.getpid(), start, "boot"))
    there: list[str] = []
    monkeypatch.setattr("shutil.which", lambda name: name if name in there else None)
    warning = "the setup step needs uv, which this machine does not have: install it or submit with --no-sync"

    def warned(selector: str, *options: str) -> bool:
        done = world.cli("job", "run", "--no-wait", *options, "--", "true", selector=selector)
        assert done.code == 0, done.err
        return warning in done.err

    assert warned("--cluster=local")
    assert not warned("--cluster=local", "--no-sync")
    assert not warned(URL) and not warned("--controller-url=http://127.0.0.1:1"), "its workers may be anywhere"
    there.append("uv")
    assert not warned("--cluster=local")


def test_a_workspace_that_may_not_travel_sends_nothing(
    world: World, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clean_environment)
    done = world.cli("job", "run", "--job-name", "j", "--", "true")
    assert done.code == 2
    assert "is a home directory" in done.err
    assert world.client.calls == []


@pytest.mark.usefixtures("needs_git")
def test_below_a_repository_it_is_said_where_the_command_starts(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    at_the_root = world.cli("job", "run", "--no-wait", "--job-name", "j", "--", "true")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    below = world.cli("job", "run", "--no-wait", "--job-name", "j", "--", "true")
    assert f"from {tmp_path}, where the command starts\n" in below.err
    assert f"from {tmp_path}\n" in at_the_root.err


@pytest.mark.usefixtures("needs_git")
def test_links_out_of_the_tree_are_named(world: World, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "abs").symlink_to("/etc/hostname")
    done = world.cli("job", "run", "--no-wait", "--job-name", "j", "--", "true")
    assert "Warning: the bundle leaves out abs: a link to /etc/hostname, an absolute path\n" in done.err


def test_a_taken_name_that_was_typed_is_refused(world: World) -> None:
    world.client.answer("LaunchJob", RpcFailed("ALREADY_EXISTS", "job /ada/j exists and is running", code="job_exists"))
    done = world.cli("job", "run", "--job-name", "j", "--", "true")
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith("Error: job /ada/j exists and is running\n")
    assert world.client.called("TerminateJob") == []


def test_a_made_up_name_that_is_taken_gets_a_number(world: World) -> None:
    taken = RpcFailed("ALREADY_EXISTS", "exists", code="job_exists")
    world.client.answer("LaunchJob", taken, taken, lambda request: pb.LaunchJobResponse(job_id=request.name))
    done = world.cli("job", "run", "--no-wait", "--", "python", "my train.py")
    first, second, third = world.client.called("LaunchJob")
    assert first.name.startswith("/ada/iris-run-my_train-")
    assert (second.name, third.name) == (f"{first.name}-2", f"{first.name}-3")
    assert first.existing_job_policy == common.EXISTING_JOB_POLICY_ERROR
    assert len({first.request_id, second.request_id, third.request_id}) == 3
    assert done.out == f"{third.name}\n"


@pytest.mark.parametrize(("kind", "hinted"), [(ConnectFailed, True), (NotReached, False)])
def test_a_submit_of_unknown_fate_says_so(world: World, kind: type[ConnectFailed], hinted: bool) -> None:
    world.client.answer("LaunchJob", kind("the connection broke"))
    done = world.cli("job", "run", "--job-name", "j", "--", "true")
    assert done.code == 1
    assert ("whether /ada/j was submitted is not known; look with: job describe /ada/j" in done.err) is hinted


def test_names_are_made_from_the_script_and_the_time() -> None:
    when = time.gmtime(1_767_225_600)
    assert default_name(["python", "-m", "x", "a/train.py", "b.py"], when) == "iris-run-train-20260101-000000"
    assert default_name(["echo"], when) == "iris-run-job-20260101-000000"


def test_inside_a_task_the_job_becomes_a_child(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_TASK_ID", "/ada/parent/3:1")
    world.cli("job", "run", "--no-wait", "--job-name", "eval", "--", "true")
    assert request_of(world).name == "/ada/parent/eval"


def running(world: World) -> None:
    world.ends = "running"  # type: ignore[attr-defined]


def interrupt_after(world: World, method: str, count: int) -> None:
    seen = 0

    def before(call: Call) -> None:
        nonlocal seen
        if call.method.endswith(method):
            seen += 1
            if seen == count:
                raise KeyboardInterrupt

    world.client.before = before


def test_ctrl_c_cancels_the_job_and_says_so(world: World) -> None:
    running(world)
    interrupt_after(world, "FetchLogs", 3)
    done = world.cli("job", "run", "--job-name", "j", "--", "sleep", "9")
    assert done.code == 130
    assert [request.job_id for request in world.client.called("TerminateJob")] == ["/ada/j"]
    assert done.err.endswith("cancelling /ada/j …\ncancelled /ada/j\n")


def test_ctrl_c_leaves_the_job_when_told_to(world: World) -> None:
    running(world)
    interrupt_after(world, "FetchLogs", 3)
    done = world.cli("job", "run", "--no-terminate-on-exit", "--job-name", "j", "--", "sleep", "9")
    assert done.code == 130
    assert world.client.called("TerminateJob") == []
    assert (
        "/ada/j goes on; follow it with: iris-core --controller-url=http://fake.invalid:1 job logs /ada/j -f"
        in done.err
    )


def test_ctrl_c_while_submitting_finds_out_whether_the_job_is_ours(world: World) -> None:
    interrupt_after(world, "LaunchJob", 1)
    done = world.cli("job", "run", "--job-name", "j", "--", "sleep", "9")
    first, second = world.client.called("LaunchJob")
    assert first.request_id == second.request_id != ""
    assert done.code == 130
    assert [request.job_id for request in world.client.called("TerminateJob")] == ["/ada/j"]


def test_ctrl_c_while_submitting_never_cancels_somebody_else_s_job(world: World) -> None:
    interrupt_after(world, "LaunchJob", 1)
    world.client.answer("LaunchJob", RpcFailed("ALREADY_EXISTS", "exists and is running", code="job_exists"))
    done = world.cli("job", "run", "--job-name", "j", "--", "sleep", "9")
    assert done.code == 130
    assert world.client.called("TerminateJob") == []
    assert "whether /ada/j exists is not known" in done.err


def test_ctrl_c_only_watching_never_cancels(world: World) -> None:
    world.job("/ada/w")
    interrupt_after(world, "FetchLogs", 3)
    done = world.cli("job", "logs", "/ada/w", "-f")
    assert done.code == 130
    assert (
        done.err
        == "/ada/w goes on; look again with: iris-core --controller-url=http://fake.invalid:1 job logs /ada/w -f\n"
    )
    assert world.client.called("TerminateJob") == []


def test_a_job_that_was_there_already_is_followed_and_never_cancelled(world: World) -> None:
    world.job("/ada/j")
    world.task("/ada/j/0")
    world.client.answer("LaunchJob", pb.LaunchJobResponse(job_id="/ada/j", incarnation=T0, existing=True))
    interrupt_after(world, "FetchLogs", 3)
    done = world.cli("job", "run", "--existing-job", "keep", "--job-name", "j", "--", "sleep", "9")
    assert done.code == 130
    assert "/ada/j is running already: nothing was submitted\n" in done.err
    assert "/ada/j goes on" in done.err
    assert world.client.called("TerminateJob") == []


def test_a_lost_connection_does_not_cancel_and_says_how_to_look_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(world)
    monkeypatch.setattr(reads, "RECONNECT_FOR_S", 0.3)
    seen = 0

    def before(call: Call) -> None:
        nonlocal seen
        seen += call.method.endswith("FetchLogs")
        if seen > 2 and not call.method.endswith("LaunchJob"):
            raise ConnectFailed("cannot connect to http://fake.invalid:1: connection refused")

    world.client.before = before
    done = world.cli("job", "run", "--job-name", "j", "--", "sleep", "9")
    assert done.code == 1
    assert done.out.startswith("/ada/j\n")
    assert "Error: lost the controller: cannot connect" in done.err
    assert (
        "/ada/j goes on; follow it with: iris-core --controller-url=http://fake.invalid:1 job logs /ada/j -f\n"
        in done.err
    )
    assert world.client.called("TerminateJob") == []


def test_a_connection_that_comes_back_is_followed_on(world: World) -> None:
    running(world)
    seen = 0

    def before(call: Call) -> None:
        nonlocal seen
        if call.method.endswith("GetJobStatus"):
            seen += 1
            if seen in (3, 4):
                raise ConnectFailed("cannot connect to http://fake.invalid:1: connection refused")
            if seen == 6:
                world.job("/ada/j", "succeeded")

    world.client.before = before
    done = world.cli("job", "run", "--job-name", "j", "--", "sleep", "9")
    assert done.code == 0
    assert done.err.count("connection refused") == 1
    assert "connected again\n" in done.err


@pytest.mark.parametrize("state", ["succeeded", "failed", "killed"])
def test_wait_prints_the_state_and_its_code(world: World, state: str) -> None:
    world.job("/ada/j", state, error="why" if state != "succeeded" else "")
    world.task("/ada/j/0", state)
    done = world.cli("job", "wait", "/ada/j")
    assert (done.code, done.out) == (0 if state == "succeeded" else 1, f"{state}\n")
    assert world.cli("task", "wait", "/ada/j/0").out == f"{state}\n"


def test_wait_gives_up_in_time(world: World) -> None:
    world.job("/ada/j")
    done = world.cli("job", "wait", "/ada/j", "--timeout", "0.1")
    assert (done.code, done.err) == (1, "Error: not within 0.1 s; /ada/j goes on\n")


def test_cancel_takes_exact_ids_from_words_and_from_csv(world: World) -> None:
    for name in ("/ada/a", "/ada/b", "/ada/a/child", "/ada/c"):
        world.job(name)
    done = world.cli("job", "cancel", "/ada/a", "-", stdin=b"job_id,state\n/ada/b,3\nnoise\n\n")
    assert (done.code, done.out) == (0, "cancelled /ada/a and 1 child job\ncancelled /ada/b\n")
    assert world.client.cluster.jobs["/ada/c"].state == common.JOB_STATE_RUNNING


def test_one_refused_cancel_does_not_spare_the_rest(world: World) -> None:
    world.job("/ada/b")
    done = world.cli("job", "cancel", "/ada/missing", "/ada/b")
    assert (done.code, done.out) == (1, "cancelled /ada/b\n")
    assert "no job /ada/missing" in done.err


def test_a_bad_id_among_good_ones_cancels_nothing(world: World) -> None:
    world.job("/ada/b")
    assert world.cli("job", "cancel", "/ada/b", "oops").code == 2
    assert world.client.called("TerminateJob") == []


def test_dry_run_names_what_would_end_and_ends_nothing(world: World) -> None:
    world.job("/ada/a", has_children=True)
    world.job("/ada/a/child")
    world.job("/ada/a/done", "succeeded")
    done = world.cli("job", "cancel", "/ada/a", "--dry-run")
    assert (done.code, done.out) == (0, "/ada/a\n/ada/a/child\n")
    assert "would cancel 2 jobs" in done.err
    assert world.client.called("TerminateJob") == []


def test_a_dry_run_goes_on_behind_a_job_that_is_not_there_and_says_which_has_ended(world: World) -> None:
    world.job("/ada/a")
    world.job("/ada/done", "succeeded")
    done = world.cli("job", "cancel", "/ada/missing", "/ada/done", "/ada/a", "--dry-run")
    assert (done.code, done.out) == (1, "/ada/a\n"), "as ending them would exit"
    assert "no job /ada/missing" in done.err and "/ada/done has ended already" in done.err
    assert "would cancel 1 job; nothing was sent" in done.err
    assert world.client.called("TerminateJob") == []


def test_a_prefix_cancels_the_roots_of_what_matches(world: World) -> None:
    for name in ("/ada/keep1", "/ada/keep10", "/ada/keep1/child", "/ada/other"):
        world.job(name)
    world.job("/ada/keep2", "succeeded")
    done = world.cli("job", "cancel", "--prefix", "/ada/keep")
    assert done.code == 0
    assert [request.job_id for request in world.client.called("TerminateJob")] == ["/ada/keep1", "/ada/keep10"]
    assert "no unfinished job begins with /ada/zzz" in world.cli("job", "cancel", "--prefix", "/ada/zzz").err


def test_complete_ends_as_succeeded(world: World) -> None:
    world.job("/ada/a")
    assert world.cli("job", "complete", "/ada/a").out == "completed /ada/a\n"
    assert world.client.cluster.jobs["/ada/a"].state == common.JOB_STATE_SUCCEEDED


def test_secret_words_vanish_from_the_process_s_own_command_line() -> None:
    import sys

    code = "from iris_core.cli.argv import hide_secret_words as h; h(); print(open('/proc/self/cmdline').read())"
    words = [sys.executable, "-c", code, "-e", "API_TOKEN", "hunter2", "-e", "STAGE", "LIVE", "--hf-token=hunter3"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "hunter" not in shown
    assert "LIVE" in shown
