"""Where following a log ends: at the time that was asked for, or when nothing more of its own can come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_core.cli import follow
from iris_core.cli.follow import DRAIN_S, LATE_S
from iris_core.contracts import RpcFailed
from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest, FetchLogsResponse, ProducerMark
from tests.unit.cli_world import T0, World
from tests.unit.test_cli_logs import Clock, follower

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def world() -> World:
    world = World()
    world.job("/u/j")
    world.task("/u/j/0")
    world.client.cluster.log("/u/j/0:0", "one", "two", epoch_ms=T0)
    return world


@pytest.mark.parametrize("bound", [("--until", "2026-02-01"), ("--until-ms", str(T0 + 1000))])
def test_following_until_a_time_that_is_past_shows_what_there_is_and_ends(world: World, bound: tuple[str, str]) -> None:
    done = world.cli("job", "logs", "/u/j", "-f", *bound)
    assert done.code == 0
    assert [line.partition(" | ")[2] for line in done.out.splitlines()] == ["one", "two"]
    assert done.err.endswith("/u/j is running; its lines from before --until are shown\n")


def test_following_until_a_time_goes_on_to_it_and_a_little_longer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "now_ms", lambda: T0)
    clock = Clock()
    shown: list[str] = []

    def fetch(request: FetchLogsRequest) -> FetchLogsResponse:
        if clock.now > 30 + LATE_S - 2 and len(world.client.cluster.lines) == 2:
            world.client.cluster.log("/u/j/0:0", "late", epoch_ms=T0 + 29_999)
        clock.sleep(request.wait_ms / 1000)
        return world.client.cluster._read(request)

    world.client.answer("FetchLogs", fetch)
    standing = follower(world, clock, shown, [], until_ms=T0 + 30_000).run()
    assert not standing.ended
    assert shown == ["one", "two", "late"]
    assert 30 + LATE_S <= clock.now < 30 + LATE_S + 2


def test_a_time_that_is_past_waits_for_a_store_that_does_not_answer(world: World) -> None:
    clock = Clock()
    shown: list[str] = []
    said: list[str] = []
    down = RpcFailed("UNAVAILABLE", "finelog is starting", code="unavailable", retry_after_ms=1)
    world.client.answer("FetchLogs", *[down] * 20, world.client.cluster._read)
    follower(world, clock, shown, said, until_ms=T0 + 1000).run()
    assert shown == ["one", "two"]
    assert said == ["the log store does not answer: finelog is starting; lines come when it does"]


def test_a_job_that_ends_first_is_followed_to_its_own_end(world: World) -> None:
    world.job("/u/j", "failed", error="exit code 3")
    done = world.cli("job", "logs", "/u/j", "-f", "--until-ms", str(T0 + 1000))
    assert done.code == 0 and done.err.endswith("/u/j has ended: failed, exit code 3\n")


def test_lines_that_never_arrive_are_given_up_while_others_write_to_the_store(world: World) -> None:
    world.job("/u/j", "succeeded")
    world.task("/u/j/0", "succeeded", log_lines=5, attempt_uid="a0")
    clock = Clock()
    shown: list[str] = []
    said: list[str] = []

    def marked(request: FetchLogsRequest) -> FetchLogsResponse:
        assert clock.now < DRAIN_S * 10
        world.client.cluster.log("/u/busy/0:0", "not ours", epoch_ms=T0)
        clock.sleep(request.wait_ms / 1000)
        answer = world.client.cluster._read(request)
        answer.marks.extend(ProducerMark(producer=uid, next_number=2) for uid in request.producers)
        return answer

    world.client.answer("FetchLogs", marked)
    follower(world, clock, shown, said).run()
    assert shown == ["one", "two"]
    assert said == [
        f"3 lines of 1 attempt did not reach the log store within {DRAIN_S:.0f} s and are not shown; ask again later"
    ]


def test_save_takes_no_dash_for_standard_output(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = world.cli("job", "logs", "/u/j", "--save", "-")
    assert (done.code, done.out) == (2, "")
    assert "without --save the lines go to standard output" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrote", "points"), [({"log_lines": 0}, False), ({"attempt_uid": ""}, False), ({"log_lines": 1}, True), ({}, True)]
)
def test_the_log_of_a_failed_job_is_pointed_to_if_there_may_be_one(
    world: World, wrote: dict[str, object], points: bool
) -> None:
    world.job("/u/j", "failed", error="exit code 3")
    world.task("/u/j/0", "failed", error="exit code 3", **wrote)
    assert ("the root cause, from its log" in world.cli("job", "describe", "/u/j").err) is points
