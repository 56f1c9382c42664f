"""`task events` and the root-cause block, against a scripted controller and store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from iris_core.contracts import RpcFailed
from iris_core.model.namespaces import TASK_EVENT
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.gen.iris.v1 import logs_pb2, stats_pb2
from iris_core.wire.rows import batch_of
from tests.unit.cli_world import T0, World

if TYPE_CHECKING:
    from collections.abc import Iterator

UID = "00000000000000aa"


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.job("/ada/run", "failed")
    made.task("/ada/run/0", "failed", exit_code=137, error="killed by SIGKILL (sender unknown)", attempt_uid=UID)
    yield made


def status(world: World, state: str = "FAILED", attempts: int = 2, **fields: Any) -> None:
    """What GetTaskStatus says: attempts 0 .., the last one current and in that state."""
    answer = pb.GetTaskStatusResponse(task=world.client.cluster.tasks["/ada/run/0"])
    answer.task.current_attempt_id = attempts - 1
    for number in range(attempts):
        answer.attempts.add(
            task_id="/ada/run/0",
            attempt_id=number,
            attempt_uid=UID if number == attempts - 1 else f"{number:016x}",
            state=f"TASK_STATE_{state}",
            worker_id="w0",
            current=number == attempts - 1,
            **fields,
        )
    world.client.answer("GetTaskStatus", answer)


def rows(*events: dict[str, Any]) -> stats_pb2.QueryResponse:
    """The store's answer, newest first."""
    given = [
        {
            "task_id": "/ada/run/0", "attempt_id": 1, "ts": T0, "type": "Normal", "reason": "Started",
            "message": "m", "source": "iris/controller", "count": 1, "attempt_uid": UID, **event,
        }
        for event in events
    ]  # fmt: skip
    return stats_pb2.QueryResponse(columns=batch_of(TASK_EVENT, "p", 0, given).columns, row_count=len(given))


def test_events_are_printed_oldest_first_in_the_columns_operators_know(world: World) -> None:
    status(world)
    message = "out of memory: " + "x" * 200 + "\x1b[31m"
    world.client.answer(
        "Query", rows({"ts": T0 + 61_000, "type": "Warning", "reason": "OutOfMemory", "message": message}, {"count": 3})
    )
    done = world.cli("task", "events", "/ada/run/0")
    lines = done.out.splitlines()
    assert lines[0].split() == ["TIME", "(UTC)", "ATTEMPT", "TYPE", "SOURCE", "ACTION", "COUNT", "MESSAGE"]
    assert lines[1].split() == ["2026-01-01", "00:00:00", "1", "Normal", "iris/controller", "Started", "3", "m"]
    assert lines[2].startswith("2026-01-01 00:01:01") and lines[2].endswith("…") and "\x1b" not in done.out
    assert len(lines[2].partition("out of")[2]) < 100 and done.code == 0
    wide = world.cli("task", "events", "/ada/run/0", "-o", "wide").out
    assert "x" * 200 in wide and UID in wide
    told = json.loads(world.cli("task", "events", "/ada/run/0", "-o", "json").out)
    assert [event["action"] for event in told] == ["Started", "OutOfMemory"]
    assert told[1]["message"] == message and told[1]["time"] == "2026-01-01T00:01:01.000Z"


def test_the_question_names_the_attempts_of_this_incarnation_alone(world: World) -> None:
    status(world, attempts=2)
    world.client.answer("Query", rows())
    assert world.cli("task", "events", "/ada/run/0", "--limit", "5").code == 0
    sql = world.client.called("Query")[-1].sql
    assert "task_id = '/ada/run/0'" in sql and f"attempt_uid IN ('{0:016x}', '{UID}')" in sql
    assert f"incarnation = {T0}" in sql and sql.endswith("ORDER BY ts DESC, seq DESC LIMIT 6")
    for command in (("task", "events", "/ada/run/0:1"), ("attempt", "events", "/ada/run/0:1")):
        assert world.cli(*command).code == 0
        sql = world.client.called("Query")[-1].sql
        assert f"attempt_uid IN ('{UID}')" in sql and "incarnation" not in sql


def test_what_is_left_out_is_said_and_so_is_that_there_is_nothing(world: World) -> None:
    status(world)
    world.client.answer("Query", rows({}, {}, {}))
    done = world.cli("task", "events", "/ada/run/0", "--limit", "2")
    assert len(done.out.splitlines()) == 3 and "older events were left out" in done.err
    world.client.answer("Query", rows())
    done = world.cli("task", "events", "/ada/run/0")
    assert (done.code, done.out) == (0, "") and "no events of /ada/run/0" in done.err
    assert world.cli("task", "events", "/ada/run/0", "-o", "json").out == "[]\n"
    answer = rows({})
    answer.notes.append("2 segments are damaged")
    world.client.answer("Query", answer)
    assert "2 segments are damaged" in world.cli("task", "events", "/ada/run/0").err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("task", "events", "/ada/run"), 2),
        (("task", "events", "/ada/run/0", "--limit", "0"), 2),
        (("task", "events", "/ada/run/0", "--limit", "10001"), 2),
        (("attempt", "events", "/ada/run/0"), 2),
        (("attempt", "events", "/ada/run/0:7"), 1),
    ],
)
def test_what_is_no_task_is_refused(world: World, words: tuple[str, ...], code: int) -> None:
    status(world)
    done = world.cli(*words)
    assert done.code == code and done.out == "" and done.err


# The root cause -------------------------------------------------------------------------------------------------------


def log(*lines: str, mark: int | None = None) -> logs_pb2.FetchLogsResponse:
    answer = logs_pb2.FetchLogsResponse(last_seq=len(lines))
    for seq, line in enumerate(lines, 1):
        answer.entries.add(seq=seq, key="/ada/run/0:1", data=line, attempt_uid=UID, attempt_id=1, number=seq - 1)
    answer.marks.add(producer=UID, next_number=len(lines) if mark is None else mark)
    return answer


def test_a_failed_task_is_described_with_the_lines_that_say_why(world: World) -> None:
    status(world, log_lines=4, exit_code=139)
    world.client.answer(
        "FetchLogs", log("step 1", "Traceback (most recent call last):", "ValueError: \x1b[31mx", "bye")
    )
    done = world.cli("task", "describe", "/ada/run/0")
    block = done.out.partition("Root cause")[2].splitlines()
    assert block[0] == ", by the last lines of attempt 1:"
    assert block[1] == "  Traceback (most recent call last):" and "ValueError" in block[2] and len(block) == 3
    assert "\x1b" not in done.out and "139 (SIGSEGV)" in done.out and done.err == ""
    asked = world.client.called("FetchLogs")[-1]
    assert (asked.source, asked.attempt_uid, asked.min_incarnation, asked.tail) == ("/ada/run/0:1", UID, T0, True)
    told = json.loads(world.cli("task", "describe", "/ada/run/0", "-o", "json").out)
    assert told["root_cause"] == ["Traceback (most recent call last):", "ValueError: \x1b[31mx"]
    assert "Root cause" in world.cli("attempt", "describe", "/ada/run/0:1").out
    assert "Root cause" not in world.cli("attempt", "describe", "/ada/run/0:0").out, "only of the current one"


def test_lines_on_their_way_are_said_and_a_store_that_is_away_costs_only_the_block(world: World) -> None:
    status(world, log_lines=4)
    world.client.answer("FetchLogs", log("ValueError: x", mark=1))
    assert "3 lines of the attempt are still on their way" in world.cli("task", "describe", "/ada/run/0").err
    world.client.answer("FetchLogs", RpcFailed("UNAVAILABLE", "the log store is not running", code="log_store_down"))
    done = world.cli("task", "describe", "/ada/run/0")
    assert done.code == 0 and "State: failed" in done.out and "Root cause" not in done.out
    assert "the root cause is left out" in done.err


@pytest.mark.parametrize("state", ["RUNNING", "SUCCEEDED", "KILLED", "PREEMPTED"])
def test_only_a_failure_has_a_root_cause(world: World, state: str) -> None:
    status(world, state)
    assert "Root cause" not in world.cli("task", "describe", "/ada/run/0").out
    assert not world.client.called("FetchLogs")
