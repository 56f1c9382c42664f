"""Lines that something which has ended wrote and the log store does not have: waited for a moment, counted, and said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_core.cli import log_missing
from iris_core.cli.log_missing import JUST_MS, missing_lines
from iris_core.cli.log_subject import JobSubject
from iris_core.contracts import RpcFailed
from iris_core.model.ids import JobId
from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest, FetchLogsResponse, ProducerMark
from tests.unit.cli_world import T0, World

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def world() -> World:
    world = World()
    world.job("/u/j", "succeeded", num_tasks=2, finished_at_ms=T0)
    world.task("/u/j/0", "succeeded", log_lines=5, attempt_uid="a0")
    world.task("/u/j/1", "succeeded", log_lines=3, attempt_uid="a1")
    return world


def stores(world: World, **marks: int) -> dict[str, int]:
    """The store says that it has so many lines of each attempt; what is returned may be changed."""

    def answer(request: FetchLogsRequest) -> FetchLogsResponse:
        found = world.client.cluster._read(request)
        found.marks.extend(ProducerMark(producer=uid, next_number=marks.get(uid, 0)) for uid in request.producers)
        return found

    world.client.answer("FetchLogs", answer)
    return marks


@pytest.mark.parametrize("words", [(), ("--regex", "x"), ("--save", "log"), ("-o", "jsonl"), ("-C", "1")])
def test_lines_that_have_not_arrived_are_counted_with_the_cause(
    world: World, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stores(world, a0=1, a1=3)
    world.client.cluster.log("/u/j/0:0", "one", epoch_ms=T0)
    world.client.cluster.pipeline.problems.append("worker w0 cannot deliver its log lines: no")
    done = world.cli("job", "logs", "/u/j", *words)
    assert done.code == 0
    assert (
        "Warning: 4 lines that /u/j wrote were not in the log store when it was asked: worker w0 cannot deliver its log lines: no\n"
        in done.err
    )
    assert "no line matches" not in done.err


def test_nothing_is_said_of_what_is_whole(world: World) -> None:
    stores(world, a0=5, a1=3)
    world.client.cluster.log("/u/j/0:0", "one", epoch_ms=T0)
    assert world.cli("job", "logs", "/u/j").err == ""
    assert "a0" in world.client.called("FetchLogs")[0].producers


def test_what_has_just_ended_is_given_a_moment_and_older_things_are_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = stores(world, a0=1, a1=3)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        marks["a0"] = min(len(waits), 5)

    subject = JobSubject(world.client, JobId("/u/j"))
    monkeypatch.setattr(log_missing, "now_ms", lambda: T0 + JUST_MS)
    assert missing_lines(world.client, subject, subject.standing(), clock=lambda: 0.0, sleep=sleep) == {"a0": 4}
    assert waits == []
    monkeypatch.setattr(log_missing, "now_ms", lambda: T0 + 1)
    assert missing_lines(world.client, subject, subject.standing(), clock=lambda: 0.0, sleep=sleep) == {}
    assert len(waits) == 5


def test_what_goes_on_or_cannot_be_asked_has_nothing_missing(world: World) -> None:
    stores(world)
    subject = JobSubject(world.client, JobId("/u/j"))
    assert missing_lines(world.client, subject, subject.standing()) == {"a0": 5, "a1": 3}

    def refuse(request: FetchLogsRequest) -> FetchLogsResponse:
        raise RpcFailed("UNAVAILABLE", "no log store", code="down")

    world.client.answer("FetchLogs", refuse)
    assert missing_lines(world.client, subject, subject.standing()) == {}
    world.job("/u/j", "running")
    assert missing_lines(world.client, subject, subject.standing()) == {}
