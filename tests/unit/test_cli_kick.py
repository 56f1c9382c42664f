"""`task preempt|fail` and `attempt preempt|fail`: what is sent, what is said, and the exit code."""

from __future__ import annotations

import pytest

from iris_core.wire.gen.iris.v1 import common_pb2 as common
from tests.unit.cli_world import World


@pytest.fixture
def world() -> World:
    world = World()
    for index, state in enumerate(("running", "assigned", "pending")):
        world.task(f"/ada/j/{index}", state)
    return world


def test_task_preempt_sends_the_ids_once_and_says_which(world: World) -> None:
    done = world.cli("task", "preempt", "/ada/j/0", "/ada/j/1", "--reason", "drain")
    assert (done.code, done.out) == (0, "preempted /ada/j/0\npreempted /ada/j/1\n")
    (request,) = world.client.called("KickTasks")
    assert list(request.targets) == ["/ada/j/0", "/ada/j/1"]
    assert (request.desired_state, request.reason) == (common.TASK_STATE_PREEMPTED, "drain")
    assert not request.dry_run


def test_task_fail_asks_for_failed(world: World) -> None:
    assert world.cli("task", "fail", "/ada/j/0").out == "failed /ada/j/0\n"
    (request,) = world.client.called("KickTasks")
    assert request.desired_state == common.TASK_STATE_FAILED


@pytest.mark.parametrize("verb, end", [("preempt", common.TASK_STATE_PREEMPTED), ("fail", common.TASK_STATE_FAILED)])
def test_attempts_are_named_with_their_number(world: World, verb: str, end: int) -> None:
    done = world.cli("attempt", verb, "/ada/j/0:0")
    assert (done.code, done.out) == (0, f"{verb}ed /ada/j/0:0\n")
    (request,) = world.client.called("KickTasks")
    assert (list(request.targets), request.desired_state) == (["/ada/j/0:0"], end)


def test_a_rejection_goes_to_stderr_with_its_reason_and_the_rest_is_done(world: World) -> None:
    done = world.cli("task", "preempt", "/ada/j/2", "/ada/j/0", "/ada/no/0")
    assert done.code == 1
    assert done.out == "preempted /ada/j/0\n"
    assert "rejected /ada/j/2: it is pending" in done.err
    assert "rejected /ada/no/0: there is no task" in done.err
    assert world.cli("attempt", "fail", "/ada/j/1:3").code == 1


@pytest.mark.parametrize("how", ["--stdin", "-"])
def test_ids_come_from_a_query_with_header_and_further_columns(world: World, how: str) -> None:
    done = world.cli("task", "preempt", how, stdin=b'task_id,state\n/ada/j/0,3\n"/ada/j/1",9\n\n')
    assert (done.code, done.out) == (0, "preempted /ada/j/0\npreempted /ada/j/1\n")


def test_a_line_without_an_id_is_left_out_and_said(world: World) -> None:
    """An id that lost its slash on the way is not silently spared."""
    done = world.cli("task", "preempt", "-", stdin=b"task_id\n/ada/j/0\n\nada/j/1\nw-3,/ada/j/1\n")
    assert (done.code, done.out) == (0, "preempted /ada/j/0\n")
    assert "2 lines of standard input left out, the first field of which is no id: the first is 'ada/j/1'" in done.err
    wrong = world.cli("task", "preempt", "-", stdin=b"worker,task_id\nw-1,/ada/j/0\n")
    assert (
        wrong.code == 2
        and "no line of standard input begins with an id; select the id as the first column" in wrong.err
    )
    assert len(world.client.called("KickTasks")) == 1


def test_a_dry_run_prints_the_ids_and_changes_nothing(world: World) -> None:
    done = world.cli("task", "fail", "/ada/j/0", "/ada/j/2", "--dry-run")
    assert (done.code, done.out) == (0, "/ada/j/0\n")
    assert "would fail 1 of 2, 1 rejected; nothing was changed" in done.err
    assert all(request.dry_run for request in world.client.called("KickTasks"))
    assert world.client.cluster.tasks["/ada/j/0"].state == common.TASK_STATE_RUNNING


def test_many_ids_travel_in_parts(world: World) -> None:
    lines = "".join(f"/ada/j/{index}\n" for index in range(2_500))
    done = world.cli("task", "preempt", "--stdin", stdin=lines.encode())
    assert done.code == 1
    assert [len(request.targets) for request in world.client.called("KickTasks")] == [1_000, 1_000, 500]


def test_one_wrong_id_stops_everything_before_anything_is_sent(world: World) -> None:
    assert world.cli("task", "preempt", "/ada/j/0", "oops").code == 2
    assert world.client.called("KickTasks") == []
