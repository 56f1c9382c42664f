"""Golden bytes of every output format, tables whose columns line up whatever is in them, and query results kept whole."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcswidth

from iris_core.cli import output, reads
from iris_core.cli.query import text_of
from iris_core.cli.tables import Column, render
from iris_core.client.calls import NotReached
from iris_core.contracts import ConnectFailed, RpcFailed
from iris_core.live.query_result import distinct
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from tests.unit.cli_world import T0, World

NASTY = [
    "失敗しました 理由", "👩‍🚀👨‍👩‍👧 emoji", "e\u0301\u0302x combining", "abc\u202edcba rtl", "a\u200bzero", "bell\a\b\b",
    "plain", "\x1b[31mred\x1b]0;t\x07", "tab\tnew\nline", "\x9b31m", "[bold]x[/]", "",
]  # fmt: skip


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(reads, "now_ms", lambda: T0 + 60_000)
    world = World()
    world.job("/ada/done", "failed", finished_at_ms=T0 + 5000, error="exit code 3", exit_code=3, failure_count=1)
    world.job("/ada/now", "running", submitted_at_ms=T0 + 2000, num_tasks=2)
    world.task(
        "/ada/done/0",
        "failed",
        exit_code=137,
        error="killed by SIGKILL",
        finished_at_ms=T0 + 4500,
        memory_peak_bytes=2**28,
    )
    return world


def test_a_table_has_the_columns_of_the_reference(world: World) -> None:
    done = world.cli("job", "list")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "JOB ID     STATE    SUBMITTED            REASON\n"
        "/ada/now   running  2026-01-01 00:00:02  -\n"
        "/ada/done  failed   2026-01-01 00:00:00  exit code 3\n"
    )


def test_the_reason_column_is_there_only_when_there_is_a_reason(world: World) -> None:
    done = world.cli("job", "list", "--state", "running")
    assert done.out == "JOB ID    STATE    SUBMITTED\n/ada/now  running  2026-01-01 00:00:02\n"


def test_headers_can_be_left_out(world: World) -> None:
    assert (
        world.cli("job", "list", "--no-headers", "--state", "running").out == "/ada/now  running  2026-01-01 00:00:02\n"
    )


def test_names_are_names(world: World) -> None:
    assert world.cli("job", "list", "-o", "name").out == "/ada/now\n/ada/done\n"


def test_json_has_every_column_with_times_in_utc(world: World) -> None:
    rows = json.loads(world.cli("job", "list", "-o", "json").out)
    assert rows[1] == {
        "job_id": "/ada/done", "state": "failed", "tasks": {}, "submitted": "2026-01-01T00:00:00.000Z",
        "age": "2026-01-01T00:00:00.000Z", "time": 4000, "failures": 1, "preemptions": 0, "user": "ada", "band": "interactive",
        "resources": "cpu=0.1, memory=1GB, disk=5GB", "exit": 3, "reason": "exit code 3",
    }  # fmt: skip


def test_json_lines_and_csv_hold_the_same_rows(world: World) -> None:
    rows = json.loads(world.cli("job", "list", "-o", "json").out)
    lines = world.cli("job", "list", "-o", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == rows
    table = list(csv.DictReader(io.StringIO(world.cli("job", "list", "-o", "csv").out)))
    assert [row["job_id"] for row in table] == ["/ada/now", "/ada/done"]
    assert (table[1]["exit"], table[0]["exit"], table[1]["time"]) == ("3", "", "4000")


def test_describe_shows_states_counts_and_signals(world: World) -> None:
    assert world.cli("job", "describe", "/ada/done").out == (
        "Job: /ada/done\n"
        "State: failed, exit 3, failures 1, preemptions 0\n"
        "Completed: 0/1 (failed 1)\n"
        "Error: exit code 3\n"
        "TASK         STATE            EXIT  DURATION  PEAK MEM  CUR MEM  ERROR\n"
        "/ada/done/0  failed  137 (SIGKILL)      3.5s     268MB        -  killed by SIGKILL\n"
    )


def test_describe_names_the_task_whose_log_tells_why_its_job_failed(world: World) -> None:
    world.task("/ada/done/1", "failed", error="exit code 3")
    assert world.cli("job", "describe", "/ada/done").err.rstrip().endswith(" task describe /ada/done/1")
    world.task("/ada/done/1", "cosched_failed", error="a sibling failed")
    assert world.cli("job", "describe", "/ada/done").err.rstrip().endswith(" task describe /ada/done/0")
    assert (
        world.cli("job", "describe", "/ada/now").err
        == world.cli("job", "describe", "/ada/done", "-o", "json").err
        == ""
    )


def test_describe_tells_the_band_that_a_task_was_placed_in_where_it_is_another(world: World) -> None:
    world.task("/ada/now/0", priority_band=3, placed_band=4)
    world.task("/ada/now/1", priority_band=3, placed_band=3)
    world.task("/ada/now/2", "pending", priority_band=3)
    assert "\nBand: interactive, placed as batch\n" in world.cli("task", "describe", "/ada/now/0").out
    assert "\nBand: interactive\n" in world.cli("task", "describe", "/ada/now/1").out
    assert "\nBand: interactive\n" in world.cli("task", "describe", "/ada/now/2").out
    found = json.loads(world.cli("task", "describe", "/ada/now/0", "-o", "json").out)
    assert (found["priority_band"], found["placed_band"]) == ("interactive", "batch")
    assert "\nBand: interactive, 1 task placed as batch\n" in world.cli("job", "describe", "/ada/now").out


def test_describe_as_json_has_job_tasks_and_request(world: World) -> None:
    world.client.cluster.requests["/ada/done"] = pb.LaunchJobRequest(
        name="/ada/done", environment=pb.Environment(env_vars={"API_TOKEN": "[redacted:API_TOKEN]"})
    )
    found = json.loads(world.cli("job", "describe", "/ada/done", "-o", "json").out)
    assert found["job"]["exit"] == 3
    assert found["tasks"][0]["exit"] == 137
    assert found["request"]["environment"]["env_vars"] == {"API_TOKEN": "[redacted:API_TOKEN]"}


def test_an_empty_listing_says_so_on_standard_error(world: World) -> None:
    done = world.cli("job", "list", "--state", "pending")
    assert (done.code, done.out, done.err) == (0, "", "No jobs found.\n")
    assert world.cli("job", "list", "--state", "pending", "-o", "json").out == "[]\n"


def test_a_capped_listing_says_so(world: World) -> None:
    done = world.cli("job", "list", "--limit", "1", "-o", "name")
    assert done.out == "/ada/now\n"
    assert "there are more; --limit 0 shows all" in done.err


def test_a_prefix_ends_anywhere_but_never_in_another_user(world: World) -> None:
    world.job("/adam/x")
    asked = world.cli("job", "list", "--prefix", "/ada/do", "-o", "name")
    assert asked.out == "/ada/done\n"
    assert world.client.called("ListJobs")[-1].prefix == "/ada"
    world.cli("job", "list", "--prefix", "/ada", "-o", "name")
    assert world.client.called("ListJobs")[-1].prefix == "/ada"


cells = st.sampled_from(NASTY) | st.text(max_size=30)


def check_aligned(text: str, rows: int) -> None:
    lines = text.splitlines()
    assert len(lines) == rows + 1
    ends = {wcswidth(line[: line.rindex("¦")]) for line in lines}
    assert len(ends) == 1, lines
    assert all(
        character == " " or character.isprintable() or ord(character) > 0x7F for line in lines for character in line
    )


@given(st.lists(st.tuples(cells, cells), max_size=6), st.sampled_from([None, "100", "70", "40"]))
def test_columns_line_up_by_displayed_width(rows: list[tuple[str, str]], columns: str | None) -> None:
    patch = pytest.MonkeyPatch()
    if columns:
        patch.setenv("COLUMNS", columns)
    heads = [Column("ID", is_id=True), Column("REASON", shrinks=True, most=60), Column("¦")]
    text = render(heads, [(*row, "¦") for row in rows])
    patch.undo()
    check_aligned(text, len(rows))


@pytest.mark.parametrize("cell", NASTY)
def test_nothing_in_a_cell_steers_the_terminal(cell: str) -> None:
    text = render([Column("A")], [[cell]])
    assert text.count("\n") == 2
    assert not any(ord(c) < 0x20 and c != "\n" for c in text)
    assert not any(0x7F <= ord(c) <= 0x9F or c in "\u202e\u200b" for c in text)


def test_one_long_cell_is_whole_and_pads_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    long = "x" * 100_000
    text = render([Column("A"), Column("B")], [(long, "end"), *[("short", "end")] * 100])
    first, *others = text.splitlines()[1:]
    assert first == f"{long}  end"
    assert {line.split()[0] for line in others} == {"short"} and max(map(len, others)) < 1_000


def test_ids_are_cut_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    columns = [Column("ID", is_id=True), Column("REASON", shrinks=True)]
    row = ["/someone/a-rather-long-name-of-a-job-indeed", "because of this and that and more"]
    assert row[0] in render(columns, [row])
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    cut = render(columns, [row])
    assert row[0] not in cut
    assert "…" in cut
    assert max(map(wcswidth, cut.splitlines())) <= 40


QUERY = (
    ["job_id", "job_id", "state", "state", "NULL", "e", "big"],
    [["/t/j", "/t/j/0", 4, 4, None, "", 9007199254740993]],
)


def test_query_keeps_every_column_in_json() -> None:
    text = text_of(*QUERY, "json")
    assert list(json.loads(text)[0]) == ["job_id", "job_id_2", "state", "state_2", "NULL", "e", "big"]
    assert '"big": 9007199254740993' in text
    assert json.loads(text)[0]["NULL"] is None


def test_query_keeps_every_column_in_csv_and_null_apart() -> None:
    assert text_of(*QUERY, "csv") == 'job_id,job_id,state,state,NULL,e,big\n/t/j,/t/j/0,4,4,,"",9007199254740993\n'
    assert text_of(["a"], [[None], [""]], "csv") == 'a\n\n""\n'


def test_query_keeps_every_column_in_a_table() -> None:
    lines = text_of(*QUERY, "table").splitlines()
    assert lines[0].split() == ["job_id", "job_id", "state", "state", "NULL", "e", "big"]
    assert lines[1].split() == ["/t/j", "/t/j/0", "4", "4", "NULL", "9007199254740993"]
    assert text_of(["a", "b"], [], "table") == "a  b\n"


@given(st.lists(st.sampled_from(["a", "a_2", "a_3", "b", ""]), max_size=8))
def test_no_column_name_repeats(names: list[str]) -> None:
    found = distinct(names)
    assert len(set(found)) == len(names) == len(found)
    for name, unique in zip(names, found, strict=True):
        assert unique == name or unique.startswith(f"{name}_")
    assert [unique for name, unique in zip(names, found, strict=True) if names.count(name) == 1] == [
        name for name in names if names.count(name) == 1
    ]


@given(
    st.lists(
        st.lists(
            st.none()
            | st.integers()
            | st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
            min_size=2,
            max_size=2,
        ),
        max_size=5,
    )
)
def test_csv_comes_back_as_it_was(rows: list[list[object]]) -> None:
    text = text_of(["a", "b"], rows, "csv")
    read = list(csv.reader(io.StringIO(text, newline="")))
    assert read[1:] == [["" if cell is None else str(cell) for cell in row] for row in rows]


def test_query_runs_and_says_what_was_cut(world: World) -> None:
    world.client.answer(
        "ExecuteRawQuery",
        pb.ExecuteRawQueryResponse(columns=[pb.QueryColumn(name="n")], rows=["[1]", "[2]"], truncated=True),
    )
    done = world.cli("query", "SELECT n", "-f", "csv")
    assert (done.code, done.out) == (0, "n\n1\n2\n")
    assert "the first 2 rows are shown" in done.err


def test_json_escapes_what_could_steer_a_terminal() -> None:
    value = {"a": "\x1b\x9b\x7f\u202e\ud800 ü"}
    text = output.as_json(value)
    assert json.loads(text) == value
    assert "ü" in text
    assert not any(c in text for c in "\x1b\x9b\x7f\u202e\ud800")


def test_status_shows_workers_and_problems(world: World) -> None:
    world.client.answer(
        "ListWorkers",
        pb.ListWorkersResponse(workers=[pb.WorkerStatus(worker_id="w0", health=common.WORKER_HEALTH_HEALTHY)]),
    )
    done = world.cli("cluster", "status")
    assert done.code == 0
    assert "Workers:   2/2 healthy\nSlices:    1 booting, 2 ready\n" in done.out
    assert "w0" in done.out
    world.client.answer(
        "GetClusterStatus", pb.GetClusterStatusResponse(workers_total=5, workers_healthy=3, workers_leaving=2)
    )
    assert "Workers:   3/3 healthy, 2 stopping with their slices\n" in world.cli("cluster", "status").out


def test_rpc_prints_the_answer_with_the_proto_s_names(world: World) -> None:
    done = world.cli("rpc", "controller", "get-job-status", "--job-id", "/ada/done")
    answer = json.loads(done.out)
    assert answer["job"]["job_id"] == "/ada/done"
    assert answer["job"]["state"] == "JOB_STATE_FAILED"
    listed = world.cli("rpc", "controller", "list-jobs", "--json", '{"states": ["JOB_STATE_FAILED"]}')
    assert [job["job_id"] for job in json.loads(listed.out)["jobs"]] == ["/ada/done"]
    world.cli("rpc", "controller", "list-jobs", "--roots-only", "--page-size", "3", "--sort", "JOB_SORT_NAME")
    request = world.client.called("ListJobs")[-1]
    assert (request.roots_only, request.page_size, request.sort) == (True, 3, pb.JOB_SORT_NAME)


def test_exec_passes_bytes_and_the_exit_code_on(world: World) -> None:
    world.client.answer(
        "ExecInContainer", pb.ExecInContainerResponse(exit_code=7, stdout=b"\xff\x1bout", stderr=b"err\n")
    )
    done = world.cli("task", "exec", "/ada/now/0", "--timeout", "5", "--", "sh", "-c", "x", "--timeout", "9")
    assert (done.code, done.raw, done.err) == (7, b"\xff\x1bout", "err\n")
    request = world.client.called("ExecInContainer")[0]
    assert (list(request.command), request.timeout_seconds) == (["sh", "-c", "x", "--timeout", "9"], 5)


def test_exec_that_did_not_run_is_exit_1(world: World) -> None:
    world.client.answer("ExecInContainer", pb.ExecInContainerResponse(error="ended after 60 s", stdout=b"part"))
    done = world.cli("task", "exec", "/ada/now/0", "--", "true")
    assert (done.code, done.out, done.err) == (1, "part", "Error: exec in /ada/now/0: ended after 60 s\n")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ConnectFailed("the connection broke"), "the connection broke"),
        (RpcFailed("UNAVAILABLE", "worker w1 went away", code="worker_gone"), "worker w1 went away"),
        (pb.ExecInContainerResponse(exit_code=-1, error="not known whether it ran: w1 went away"), "w1 went away"),
    ],
)
def test_exec_whose_answer_is_lost_says_what_to_look_at(world: World, answer: Any, why: str) -> None:
    world.client.answer("ExecInContainer", answer)
    done = world.cli("task", "exec", "/ada/now/0:3", "--", "true")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"Error: exec in /ada/now/0:3: not known whether it ran: {why}; look before ")
    assert " task describe /ada/now/0, iris-core " in done.err
    assert done.err.endswith(" task exec /ada/now/0 -- ps -ef\n")
    assert len(world.client.called("ExecInContainer")) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"execs": "0"}, "the command was ended in /ada/now/0"),
        ({}, "the command goes on in /ada/now/0: its worker is of an earlier release, which cannot end it"),
        (
            RpcFailed("FAILED_PRECONDITION", "/ada/now/0 is not running"),
            "the command does not go on (/ada/now/0 is not running)",
        ),
        (NotReached("cannot connect"), "not known whether the command goes on in /ada/now/0: cannot connect"),
    ],
)
def test_ctrl_c_in_exec_says_what_became_of_the_command(world: World, answer: Any, said: str) -> None:
    process = pb.GetProcessStatusResponse()
    if isinstance(answer, dict):
        process.process.details.update(answer)
    world.client.answer("ExecInContainer", KeyboardInterrupt())
    world.client.answer("GetProcessStatus", process if isinstance(answer, dict) else answer)
    done = world.cli("task", "exec", "/ada/now/0", "--", "true")
    assert (done.code, done.out, done.err) == (130, "", f"interrupted: {said}\n")
