"""A name that a later job takes over: whoever waits for, follows or cancels the earlier one never speaks for the later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_core.contracts import ConnectFailed, RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from tests.unit.cli_world import T0, World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from providers.fake.client import Call

LATER = T0 + 60_000
SAID = "/ada/j was replaced by a later job of this name"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGNAME", "ada")
    world = World()

    def launch(request: pb.LaunchJobRequest) -> pb.LaunchJobResponse:
        world.job(request.name)
        world.task(f"{request.name}/0")
        world.client.cluster.log("/ada/j/0:0", "first", epoch_ms=T0, incarnation=T0)
        return pb.LaunchJobResponse(job_id=request.name, incarnation=T0)

    world.client.answer("LaunchJob", launch)
    world.client.answer("StatBundle", pb.StatBundleResponse(exists=False))
    world.client.answer("PutBundle", pb.PutBundleResponse())
    return world


def at(world: World, method: str, count: int, act: Callable[[], None]) -> None:
    """Acts before the so manieth call of a method."""
    seen = 0

    def before(call: Call) -> None:
        nonlocal seen
        if call.method.endswith(f"/{method}"):
            seen += 1
            if seen == count:
                act()

    world.client.before = before


def replace(world: World, state: str = "succeeded") -> None:
    """A later job of the name, which writes side by side with the last lines of the earlier one."""
    log = world.client.cluster.log
    log("/ada/j/0:0", "own last", epoch_ms=T0 + 1, incarnation=T0)
    log("/ada/j/0:0", "other", epoch_ms=T0 + 2, incarnation=LATER)
    log("/ada/j/0:0", "own late", epoch_ms=T0 + 3, incarnation=T0)
    log("/ada/j/0:0", "other again", epoch_ms=T0 + 4, incarnation=LATER)
    world.job("/ada/j", state, incarnation=LATER)
    world.task("/ada/j/0", state, incarnation=LATER, attempt_uid="00000000000000bb")


def lines(out: str) -> list[str]:
    return [line.partition(" | ")[2] for line in out.splitlines() if " | " in line]


@pytest.mark.parametrize("state", ["running", "succeeded"])
def test_a_run_whose_job_was_replaced_ends_with_its_own_lines_and_1(world: World, state: str) -> None:
    at(world, "FetchLogs", 3, lambda: replace(world, state))
    done = world.cli("job", "run", "--job-name", "j", "--", "sleep", "9")
    assert done.code == 1
    assert lines(done.out) == ["first", "own last", "own late"]
    assert done.err.endswith(f"Error: {SAID}; what was written under that name: job logs /ada/j --all-incarnations\n")
    assert "succeeded" not in done.err


def test_of_lines_that_nobody_can_tell_apart_none_is_shown(world: World) -> None:
    def taken() -> None:
        replace(world)
        # The question whose lines they are is the next one to the store.
        at(world, "FetchLogs", 1, lambda: world.client.answer("FetchLogs", RpcFailed("UNAVAILABLE", "it restarts")))

    at(world, "GetJobStatus", 4, taken)
    done = world.cli("job", "run", "--job-name", "j", "--", "sleep", "9")
    assert (done.code, lines(done.out)) == (1, ["first"])
    assert SAID in done.err


def test_a_job_that_ended_before_it_was_replaced_has_its_own_end(world: World) -> None:
    """Its last lines are still on the way when the name is taken by a job that never stops writing."""
    written = 0

    def before(call: Call) -> None:
        nonlocal written
        if call.method.endswith("/FetchLogs") and world.client.cluster.jobs["/ada/j"].incarnation == LATER:
            written += 1
            world.client.cluster.log("/ada/j/0:0", f"other {written}", epoch_ms=T0 + written, incarnation=LATER)
        if call.method.endswith("/ListTasks"):
            replace(world, "running")

    world.client.before = before

    def launch(request: pb.LaunchJobRequest) -> pb.LaunchJobResponse:
        world.job(request.name, "succeeded")
        world.task(f"{request.name}/0", "succeeded")
        return pb.LaunchJobResponse(job_id=request.name, incarnation=T0)

    world.client.answer("LaunchJob", launch)
    done = world.cli("job", "run", "--job-name", "j", "--", "true")
    assert (done.code, lines(done.out)) == (0, ["own last", "own late"])
    assert "/ada/j succeeded" in done.err and "replaced" not in done.err


@pytest.mark.parametrize(
    "words", ["job logs /ada/j -f", "task logs /ada/j/0 -f", "attempt logs /ada/j/0:0 -f", "job logs /ada/j -f -C 1"]
)
def test_following_a_log_never_runs_into_the_next_job(world: World, words: str) -> None:
    world.job("/ada/j")
    world.task("/ada/j/0")
    world.client.cluster.put(pb.AttemptStatus(task_id="/ada/j/0", attempt_id=0, state=common.TASK_STATE_RUNNING))
    world.client.cluster.log("/ada/j/0:0", "first", epoch_ms=T0, incarnation=T0)
    at(world, "FetchLogs", 3, lambda: replace(world))
    done = world.cli(*words.split())
    assert (done.code, lines(done.out.replace("~", "|"))) == (1, ["first", "own last", "own late"])
    assert "replaced by a later job of this name" in done.err
    assert "--all-incarnations" in done.err


def test_the_lines_that_a_follower_begins_with_are_looked_at_too(world: World) -> None:
    world.job("/ada/j")
    world.task("/ada/j/0")
    at(world, "FetchLogs", 1, lambda: replace(world, "running"))
    done = world.cli("job", "logs", "/ada/j", "-f")
    assert (done.code, lines(done.out)) == (1, ["own last", "own late"])


@pytest.mark.parametrize("words", ["job wait /ada/j", "task wait /ada/j/0", "attempt wait /ada/j/0:0"])
def test_a_wait_is_for_the_job_that_had_the_name_when_it_began(world: World, words: str) -> None:
    world.job("/ada/j")
    world.task("/ada/j/0")
    world.client.cluster.put(pb.AttemptStatus(task_id="/ada/j/0", attempt_id=0, state=common.TASK_STATE_RUNNING))
    method = "GetJobStatus" if words.startswith("job") else "GetTaskStatus"
    at(world, method, 3, lambda: replace(world))
    done = world.cli(*words.split())
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1 and "replaced by a later job of this name" in done.err


def test_a_wait_for_what_the_later_job_does_not_have_says_that_it_was_replaced(world: World) -> None:
    world.job("/ada/j")
    world.job("/ada/j/child", incarnation=T0 + 1)
    world.task("/ada/j/1")

    def gone() -> None:
        world.client.cluster.drop("/ada/j/child")
        world.client.cluster.take("tasks", "/ada/j/1")
        replace(world)

    at(world, "GetTaskStatus", 3, gone)
    done = world.cli("task", "wait", "/ada/j/1")
    assert (done.code, done.out) == (1, "")
    assert "Error: /ada/j/1 ended with /ada/j, replaced by a later job of this name" in done.err

    world.job("/ada/j")
    world.job("/ada/j/child", incarnation=T0 + 1)
    at(world, "GetJobStatus", 3, gone)
    done = world.cli("job", "wait", "/ada/j/child")
    assert (done.code, done.out) == (1, "")
    assert "Error: /ada/j/child ended with /ada/j, replaced by a later job of this name" in done.err


def test_what_was_only_removed_was_not_replaced(world: World) -> None:
    world.job("/ada/j")
    at(world, "GetJobStatus", 3, lambda: world.client.cluster.drop("/ada/j"))
    done = world.cli("job", "wait", "/ada/j")
    assert (done.code, done.err) == (1, "Error: no job /ada/j\n")


def test_another_attempt_a_retry_and_a_restarted_controller_are_the_same_submission(world: World) -> None:
    world.job("/ada/j")
    world.task("/ada/j/0")
    asked = 0

    def before(call: Call) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise ConnectFailed("connection refused")
        if asked == 3:
            world.client.cluster.restart()
            world.task("/ada/j/0", "pending", attempt_uid="", failure_count=1)
        if asked == 4:
            world.task("/ada/j/0", current_attempt_id=1, attempt_uid="00000000000000cc")
        if asked == 5:
            world.task("/ada/j/0", "succeeded", current_attempt_id=1)
            world.job("/ada/j", "succeeded")

    world.client.before = before
    assert world.cli("task", "wait", "/ada/j/0").out == "succeeded\n"
    asked = 0
    world.job("/ada/j")
    assert world.cli("job", "wait", "/ada/j").out == "succeeded\n"


def interrupt() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_cancels_by_name_and_incarnation(world: World) -> None:
    at(world, "FetchLogs", 3, interrupt)
    done = world.cli("job", "run", "--job-name", "j", "--", "sleep", "9")
    (request,) = world.client.called("TerminateJob")
    assert (done.code, request.job_id, request.incarnation) == (130, "/ada/j", T0)
    assert done.err.endswith("cancelling /ada/j …\ncancelled /ada/j\n")


def test_ctrl_c_leaves_a_later_job_alone(world: World) -> None:
    def both() -> None:
        replace(world, "running")
        interrupt()

    at(world, "FetchLogs", 3, both)
    done = world.cli("job", "run", "--job-name", "j", "--", "sleep", "9")
    assert done.code == 130
    assert world.client.called("TerminateJob") == []
    assert done.err.endswith(f"{SAID}, which goes on; nothing was cancelled\n")


def test_ctrl_c_leaves_a_job_alone_that_takes_the_name_while_it_is_sent(world: World) -> None:
    def both() -> None:
        at(world, "TerminateJob", 1, lambda: replace(world, "running"))
        interrupt()

    at(world, "FetchLogs", 3, both)
    done = world.cli("job", "run", "--job-name", "j", "--", "sleep", "9")
    assert done.code == 130
    assert world.client.cluster.jobs["/ada/j"].state == common.JOB_STATE_RUNNING
    assert done.err.endswith(f"{SAID}, which goes on; nothing was cancelled\n")


@pytest.mark.parametrize("refuses", [False, True])
def test_a_controller_that_goes_by_the_name_alone_is_told_and_what_is_not_sure_is_said(
    world: World, refuses: bool
) -> None:
    def by_name(request: pb.TerminateJobRequest) -> pb.TerminateJobResponse:
        if refuses and request.incarnation:
            raise RpcFailed(
                "INVALID_ARGUMENT", "unknown field 'incarnation' in iris.v1.TerminateJobRequest", code="unknown_field"
            )
        return pb.TerminateJobResponse(job_ids=[request.job_id])

    world.client.answer("TerminateJob", by_name)
    at(world, "FetchLogs", 3, interrupt)
    done = world.cli("job", "run", "--job-name", "j", "--", "sleep", "9")
    assert done.code == 130
    assert len(world.client.called("TerminateJob")) == 1 + refuses
    assert done.err.endswith(
        "cancelled /ada/j; the controller's release goes by the name: had a later job taken it just then, "
        "that one was cancelled\n"
    )


def test_a_controller_that_does_not_tell_incarnations_is_followed_all_the_same(world: World) -> None:
    def launch(request: pb.LaunchJobRequest) -> pb.LaunchJobResponse:
        world.job(request.name, incarnation=0)
        world.task(f"{request.name}/0", incarnation=0)
        return pb.LaunchJobResponse(job_id=request.name)

    world.client.answer("LaunchJob", launch)

    def end() -> None:
        world.job("/ada/j", "succeeded", incarnation=0)

    at(world, "GetJobStatus", 4, end)
    assert world.cli("job", "run", "--job-name", "j", "--", "true").code == 0
