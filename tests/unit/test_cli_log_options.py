"""The options of the `logs` commands: times as people write them, context, saving, bad words, and why there is nothing to show."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.cli.moments import Moment, parse_moment
from iris_core.contracts import ConnectFailed
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.gen.iris.v1 import logs_pb2, pipeline_pb2
from tests.unit.cli_world import T0, World

if TYPE_CHECKING:
    from pathlib import Path

    from providers.fake.client import Call


@pytest.fixture
def world() -> World:
    world = World()
    world.job("/u/j", num_tasks=1)
    world.task("/u/j/0")
    return world


def fill(world: World, *texts: str) -> None:
    for place, text in enumerate(texts):
        world.client.cluster.log("/u/j/0:0", text, epoch_ms=T0 + place)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026-01-01T00:00:00Z", T0),
        ("2026-01-01", T0),
        ("2026-01-01 02:00+02:00", T0),
        ("20260101T000000Z", T0),
        ("1767225600", T0),
        ("1767225600.5", T0 + 500),
        ("1767225600000", T0),
        ("now", T0 + 90_000),
        ("90s", T0),
        ("1m30s", T0),
        (" 1.5m ", T0),
        ("500ms", T0 + 89_500),
        ("0", 0),
    ],
)
def test_a_moment_is_what_people_write(text: str, wanted: int) -> None:
    assert parse_moment(text, T0 + 90_000) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "soon", "10 minutes ago", "2026-13-01", "2026-01-01T25:00", "-5", "1h1h", "5y", "1e99", "99999999999999999999", "0001-01-01",
     "9999999d", "nan", "inf", "\x1b[2J", "٣", "1d-2h"],
)  # fmt: skip
def test_what_is_no_moment_is_a_usage_error(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 10m, 1h30m"):
        Moment(lambda: T0).convert(text, None, None)


@given(st.text(max_size=30))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        found = Moment(lambda: T0).convert(text, None, None)
    except click.BadParameter:
        return
    assert 0 <= found <= 2**53


BAD_WORDS = [
    ("--since soon", "that is no time"),
    ("--since 2026-01-02 --until 2026-01-01", "no time lies between --since and --until"),
    ("--since-ms 9 --until-ms 9", "no time lies between --since and --until"),
    ("--since 10m --since-seconds 5", "--since and --since-seconds exclude each other"),
    ("--since-ms 5 --since-seconds 5", "--since-ms and --since-seconds exclude each other"),
    ("--until 10m --until-ms 5", "--until and --until-ms exclude each other"),
    ("-C -1", "is not in the range"),
    ("-C 1001", "is not in the range"),
    ("-C many", "is not a valid integer"),
    ("--regex train/[loss", "--regex: missing ]: '[loss' at position 6"),
    ("--force", "--force belongs to --save"),
    ("--save=", "--save names no file"),
    ("--save x --follow", "--save and --follow exclude each other"),
    ("--save x -o jsonl", "--save and --output exclude each other"),
    ("--max-lines 99999999999", "is not in the range"),
    ("--max-lines -1", "is not in the range"),
    ("--level loud", "is not one of"),
]


@pytest.mark.parametrize(("words", "said"), BAD_WORDS)
def test_bad_words_are_usage_errors_and_nothing_is_asked(world: World, words: str, said: str) -> None:
    done = world.cli("job", "logs", "/u/j", *words.split())
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert not world.client.called("FetchLogs")


# The 30 patterns that no engine of ours takes, and where each is at fault.
BAD_PATTERNS: list[tuple[str, int]] = [
    ("[", 0), ("(", 0), (")", 0), ("a)", 1), ("*", 0), ("a**b", 1), ("+a", 0), ("a{2,1}", 1), ("a{1001}", 1), ("(?i", 0),
    ("\\", 0), ("a\\", 1), ("\\8", 0), ("\\1", 0), ("(?=a)", 0), ("(?<=a)b", 0), ("(?!a)", 0), ("[b-a]", 1), ("[[:foo:]]", 1), ("\\pX", 0),
    ("\\p{Foo}", 0), ("(?z)", 0), ("x(?#c)", 1), ("a(b", 1), ("((a)", 0), ("[a-\\d]", 3), ("\\xZZ", 0), ("[^", 0), ("(?P=n)", 0), ("a|*", 2),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "position"), BAD_PATTERNS)
def test_every_bad_pattern_is_refused_before_anything_is_searched(world: World, pattern: str, position: int) -> None:
    assert len(BAD_PATTERNS) == 30
    done = world.cli("task", "logs", "/u/j/0", f"--regex={pattern}")
    assert (done.code, done.out) == (2, "")
    assert f"position {position}\n" in done.err or f"positions {position} and" in done.err, done.err
    assert not world.client.called("FetchLogs")


def test_an_empty_pattern_filters_nothing_and_one_that_matches_everything_gives_everything(world: World) -> None:
    fill(world, "one", "", "three")
    for words in (("--regex", ""), ("--regex", ".*"), ("--regex", "")):
        assert len(world.cli("job", "logs", "/u/j", *words).out.splitlines()) == 3


def test_lines_are_left_out_and_a_bad_pattern_is_refused_before_anything_is_searched(world: World) -> None:
    fill(world, "one ping", "two", "three ping", "four")

    def shown(*words: str) -> list[str]:
        return [line.rpartition("| ")[2] for line in world.cli("job", "logs", "/u/j", *words).out.splitlines()]

    assert shown("--without", "ping") == ["two", "four"]
    assert shown("--without", "ping", "--regex", "o.*r") == ["four"]
    asked = len(world.client.called("FetchLogs"))
    done = world.cli("job", "logs", "/u/j", "--without", "a(")
    assert done.code == 2 and "position 1" in done.err and len(world.client.called("FetchLogs")) == asked


def test_times_go_to_the_server_as_its_exclusive_bounds(world: World) -> None:
    world.cli("job", "logs", "/u/j", "--since", "2026-01-01", "--until", "2026-01-02T00:00:00Z")
    request = world.client.called("FetchLogs")[-1]
    assert (request.since_ms, request.until_ms) == (T0 - 1, T0 + 86_400_000)


def test_one_attempt_of_a_task(world: World) -> None:
    world.client.cluster.attempts["/u/j/0"] = []
    done = world.cli("task", "logs", "/u/j/0", "--attempt", "3")
    assert (done.code, "there is no attempt 3 of /u/j/0" in done.err) == (1, True)


def test_context_is_marked_and_breaks_are_shown(world: World) -> None:
    fill(world, *("hit" if place in (3, 9) else f"line {place}" for place in range(12)))
    done = world.cli("job", "logs", "/u/j", "--regex", "hit", "-C", "1")
    head = "[00:00:00] task=/u/j/0 attempt=0"
    assert done.out.splitlines() == [
        f"{head} - line 2", f"{head} | hit", f"{head} - line 4", "--",
        f"{head} - line 8", f"{head} | hit", f"{head} - line 10",
    ]  # fmt: skip
    rows = [
        json.loads(line)
        for line in world.cli("job", "logs", "/u/j", "--regex", "hit", "-C", "1", "-o", "jsonl").out.splitlines()
    ]
    assert [row.get("context", False) for row in rows] == [True, False, True, True, False, True]
    opened = world.client.called("OpenLogView")[-1]
    assert (opened.context, opened.query.max_lines, opened.query.tail) == (1, 1000, True)
    assert world.client.called("CloseLogView")


def test_a_view_that_the_store_forgot_is_opened_again_and_nothing_is_shown_twice(world: World) -> None:
    fill(world, *(f"hit {place}" for place in range(5000)))
    forgotten: list[int] = []

    def before(call: Call) -> None:
        if call.method.endswith("ReadLines") and call.request.first == 2000 and not forgotten:
            forgotten.append(1)
            world.client.cluster.views.forget()

    world.client.before = before
    done = world.cli("job", "logs", "/u/j", "--substring", "hit", "-C", "0", "--max-lines", "6000", "--no-tail")
    shown = [line.rpartition(" ")[2] for line in done.out.splitlines()]
    assert forgotten and len(shown) == len(set(shown))


def test_following_with_context_shows_what_comes(world: World) -> None:
    fill(world, "line 0", "hit 1")
    rounds = 0

    def before(call: Call) -> None:
        nonlocal rounds
        if not call.method.endswith("GetJobStatus"):
            return
        rounds += 1
        if rounds == 2:
            fill(world, "line 2", "line 3", "hit 4")
        if rounds == 4:
            world.job("/u/j", "succeeded")
            world.task("/u/j/0", "succeeded", log_lines=0)

    world.client.before = before
    done = world.cli("job", "logs", "/u/j", "--substring", "hit", "-C", "1", "-f")
    assert [line.partition("attempt=0 ")[2] for line in done.out.splitlines()] == [
        "- line 0", "| hit 1", "- line 2", "- line 3", "| hit 4",
    ]  # fmt: skip


def test_a_file_that_is_there_is_not_replaced(world: World, tmp_path: Path) -> None:
    fill(world, "one", "two")
    target = tmp_path / "out"
    target.write_text("mine")
    refused = world.cli("job", "logs", "/u/j", "--save", str(target))
    assert (refused.code, refused.err) == (2, f"Error: {target} exists; --force replaces it\n")
    assert target.read_text() == "mine"
    assert world.cli("job", "logs", "/u/j", "--save", str(target), "--force").code == 0
    assert target.read_text() == "one\ntwo\n"
    folder = world.cli("job", "logs", "/u/j", "--save", str(tmp_path), "--force")
    assert (folder.code, "it is a directory" in folder.err) == (1, True)


def test_a_link_is_kept_and_what_it_leads_to_is_replaced(world: World, tmp_path: Path) -> None:
    fill(world, "one")
    target, link = tmp_path / "out", tmp_path / "link"
    target.write_text("mine")
    link.symlink_to(target)
    assert world.cli("job", "logs", "/u/j", "--save", str(link)).code == 2
    assert target.read_text() == "mine"
    assert world.cli("job", "logs", "/u/j", "--save", str(link), "--force").code == 0
    assert link.is_symlink() and target.read_text() == "one\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out"]
    # What a shell opened for the command is written to: nothing takes its place.
    with (tmp_path / "opened").open("wb") as opened:
        assert world.cli("job", "logs", "/u/j", "--save", f"/dev/fd/{opened.fileno()}").code == 0
    assert (tmp_path / "opened").read_text() == "one\n"


def test_a_bound_at_the_beginning_of_time_is_a_bound(world: World) -> None:
    for until in ("1970-01-01", "0", "1970-01-01T00:00:00Z"):
        assert world.cli("job", "logs", "/u/j", "--until", until).code == 0
        # 0 means no bound there, and everything would be shown.
        assert world.client.called("FetchLogs")[-1].until_ms == 1, until


def test_following_from_the_first_lines_leaves_nothing_out_and_says_nothing_of_it(world: World) -> None:
    fill(world, "one", "two", "three")
    world.job("/u/j", "succeeded")
    world.task("/u/j/0", "succeeded")
    done = world.cli("job", "logs", "/u/j", "--no-tail", "--max-lines", "1", "-f")
    assert [line.rpartition("| ")[2] for line in done.out.splitlines()] == ["one", "two", "three"]
    assert "are shown" not in done.err
    assert "1 of" in world.cli("job", "logs", "/u/j", "--tail", "--max-lines", "1", "-f").err


@pytest.mark.parametrize("words", [(), ("--no-tail",)])
def test_what_is_lost_is_not_offered_by_a_larger_number(world: World, words: tuple[str, ...]) -> None:
    fill(world, "one", "two")
    lost = "3 older lines were removed by retention"

    def answer(request: logs_pb2.FetchLogsRequest) -> logs_pb2.FetchLogsResponse:
        found = world.client.cluster._read(request)
        found.capped_reason = "; ".join(filter(None, [found.capped_reason, lost]))
        found.capped = True
        return found

    world.client.answer("FetchLogs", answer)
    assert world.cli("job", "logs", "/u/j", *words).err == f"2 lines are shown ({lost})\n"
    few = world.cli("job", "logs", "/u/j", "--max-lines", "1", *words).err
    assert few.startswith("1 of at least 2 matching lines are shown (") and "; --max-lines N shows more" in few
    assert "0 lines are shown (" in world.cli("job", "logs", "/u/j", "--substring", "none", *words).err


def test_saving_takes_everything_unless_told_how_many(world: World, tmp_path: Path) -> None:
    fill(world, *(f"line {place}" for place in range(2500)))
    assert world.cli("job", "logs", "/u/j", "--save", str(tmp_path / "all")).code == 0
    assert (tmp_path / "all").read_text().splitlines() == [f"line {place}" for place in range(2500)]
    assert world.cli("job", "logs", "/u/j", "--save", str(tmp_path / "few"), "--max-lines", "2").code == 0
    assert (tmp_path / "few").read_text() == "line 2498\nline 2499\n"


def test_saving_goes_on_after_the_connection_broke(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iris_core.cli.log_reader.PAGE_LINES", 10)
    monkeypatch.setattr("time.sleep", lambda _: None)
    fill(world, *(f"line {place}" for place in range(45)))
    calls = 0

    def answer(request: logs_pb2.FetchLogsRequest) -> logs_pb2.FetchLogsResponse:
        nonlocal calls
        calls += 1
        if calls in (3, 4):
            raise ConnectFailed("nobody answers at fake.invalid:1")
        return world.client.cluster._read(request)

    world.client.answer("FetchLogs", answer)
    done = world.cli("job", "logs", "/u/j", "--save", str(tmp_path / "out"))
    assert done.code == 0, done.err
    assert (tmp_path / "out").read_text().splitlines() == [f"line {place}" for place in range(45)]
    assert "trying again" in done.err and "connected again" in done.err


def test_what_is_lost_is_marked_in_the_file_and_counted(world: World, tmp_path: Path) -> None:
    fill(world, "one")
    world.client.cluster.log("/u/j/0:0", "the spool was full", gap=1234, epoch_ms=T0 + 5)
    done = world.cli("job", "logs", "/u/j", "--save", str(tmp_path / "out"))
    assert (tmp_path / "out").read_text() == "one\n[1234 lines lost: the spool was full]\n"
    assert "1,234 lines are lost and marked there" in done.err


def shipper(**fields: object) -> pipeline_pb2.ShipperHealth:
    return pipeline_pb2.ShipperHealth(**fields)  # type: ignore[arg-type]


CAUSES = [
    (
        "running",
        pipeline_pb2.GetPipelineHealthResponse(problems=["the log store does not answer (down); lines are kept"]),
        "no logs yet: the log store does not answer (down)",
    ),
    (
        "running",
        pipeline_pb2.GetPipelineHealthResponse(
            problems=["worker w0 is not reachable: what its tasks print is not seen until it is"]
        ),
        "no logs yet: worker w0 is not reachable",
    ),
    (
        "running",
        pipeline_pb2.GetPipelineHealthResponse(
            workers=[pipeline_pb2.WorkerPipeline(worker_id="w0", attached=True, shipper=shipper(lag_ms=2500))]
        ),
        "no logs yet: its lines are on the way, for 2.5s",
    ),
    (
        "running",
        pipeline_pb2.GetPipelineHealthResponse(
            workers=[pipeline_pb2.WorkerPipeline(worker_id="w0", attached=True, shipper=shipper())]
        ),
        "no logs yet: nothing printed yet; its workers have delivered all that there was",
    ),
    ("building", pipeline_pb2.GetPipelineHealthResponse(), "no logs yet: its setup has not printed anything so far"),
    ("running", pipeline_pb2.GetPipelineHealthResponse(), "no logs yet: no worker runs a task of it at the moment"),
]


@pytest.mark.parametrize(("state", "health", "said"), CAUSES)
def test_an_empty_log_of_something_that_runs_says_the_likely_cause(
    world: World, state: str, health: pipeline_pb2.GetPipelineHealthResponse, said: str
) -> None:
    world.task("/u/j/0", state)
    world.client.cluster.pipeline = health
    done = world.cli("task", "logs", "/u/j/0")
    assert (done.code, done.out) == (0, "")
    assert f"/u/j/0 is {state}; {said}" in done.err
    assert world.client.called("GetPipelineHealth")[-1].target == "/u/j/0"


def test_late_lines_are_said_beside_those_that_are_there(world: World) -> None:
    fill(world, "one")
    world.client.cluster.pipeline.problems.append("worker w0 is 75 s behind with its log lines")
    done = world.cli("job", "logs", "/u/j")
    assert done.out.endswith("| one\n")
    assert done.err == "Warning: worker w0 is 75 s behind with its log lines\n"
    world.job("/u/j", "succeeded")
    assert world.cli("job", "logs", "/u/j").err == ""


def test_shipping_that_is_far_behind_is_said(world: World) -> None:
    fill(world, "one")
    since = time.time_ns() // 1_000_000

    def answer(request: logs_pb2.FetchLogsRequest) -> logs_pb2.FetchLogsResponse:
        found = world.client.cluster._read(request)
        found.unshipped_since_ms = since
        return found

    world.client.answer("FetchLogs", answer)
    assert world.cli("job", "logs", "/u/j").err == ""
    since -= 7 * 60_000 + 500
    said = world.cli("job", "logs", "/u/j").err
    assert said == "the lines of the last 7 minutes are on the log store's disk alone\n"


def test_a_hit_in_one_part_gives_the_whole_line_once(world: World) -> None:
    for place, text in enumerate(["start", "aaa", "needle", "needle too", "end"]):
        world.client.cluster.lines.append(
            logs_pb2.StoredLine(
                seq=place + 1, key="/u/j/0:0", epoch_ms=T0, source="stdout", data=text, number=place,
                partial=text in ("aaa", "needle"), part={"needle": 1, "needle too": 2}.get(text, 0),
            )
        )  # fmt: skip
    done = world.cli("job", "logs", "/u/j", "--substring", "needle")
    assert [line.partition("| ")[2] for line in done.out.splitlines()] == ["aaaneedleneedle too"]
    cut = world.cli("job", "logs", "/u/j", "--max-lines", "2")
    assert [line.partition("| ")[2] for line in cut.out.splitlines()] == ["aaaneedleneedle too", "end"]
    first = world.cli("job", "logs", "/u/j", "--max-lines", "2", "--no-tail")
    assert [line.partition("| ")[2] for line in first.out.splitlines()] == ["start", "aaaneedleneedle too"]


def test_a_long_line_counts_once_in_all_that_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three lines, of which the second has six parts with the other stream in between: two pages, each with some of them."""
    monkeypatch.setattr("iris_core.cli.log_reader.PAGE_LINES", 4)
    lines = world.client.cluster.lines
    for number, text in enumerate(["first", *["a needle"] * 11, "last"]):
        part = (number - 1) // 2 if 0 < number < 12 and number % 2 else -1
        lines.append(
            logs_pb2.StoredLine(
                seq=number + 1, key="/u/j/0:0", epoch_ms=T0 + number, source="stderr" if part < 0 else "stdout",
                data=text, number=number, attempt_uid="a", partial=0 <= part < 5, part=max(part, 0),
                back=number - 1 if part > 0 else 0,
            )
        )  # fmt: skip

    def answer(request: logs_pb2.FetchLogsRequest) -> logs_pb2.FetchLogsResponse:
        found = world.client.cluster._read(request)
        high = request.before or len(lines) + 1
        whole = [line for line in lines[request.cursor : high - 1] if request.substring in line.data]
        for count, some in (("shown", found.entries), ("matched", whole)):
            heads = {(line.source, line.number - (line.back or line.part)) for line in some}
            setattr(found, count, len(heads))
        return found

    world.client.answer("FetchLogs", answer)
    # Of 13 entries six are parts of one line: eight lines in all, six with the needle.
    for words, shown, total in (
        (["--max-lines", "7"], 7, 8),
        (["--max-lines", "7", "--no-tail"], 7, 8),
        (["--substring", "needle", "--max-lines", "5"], 5, 6),
        (["--substring", "needle", "--max-lines", "5", "--no-tail"], 5, 6),
    ):
        done = world.cli("job", "logs", "/u/j", *words)
        assert len(done.out.splitlines()) == shown, done.out
        assert f"{shown} of at least {total} matching lines" in done.err
    assert world.cli("job", "logs", "/u/j", "--max-lines", "8").err == ""


def test_a_line_that_ended_without_a_line_end_is_saved_without_one(world: World, tmp_path: Path) -> None:
    for number, text in enumerate(["one", "two", "three"]):
        world.client.cluster.lines.append(
            logs_pb2.StoredLine(
                seq=number + 1, key="/u/j/0:0", epoch_ms=T0 + number, source="stdout" if number else "stderr", data=text,
                number=number, attempt_uid="a", unended=number != 1,
            )
        )  # fmt: skip
    done = world.cli("job", "logs", "/u/j", "--save", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == b"one\ntwo\nthree"
    assert "saved 3 lines (13 bytes)" in done.err
    shown = world.cli("job", "logs", "/u/j")
    assert [line.partition("| ")[2] for line in shown.out.split("\n")] == ["one", "two", "three", ""]
    rows = [json.loads(line) for line in world.cli("job", "logs", "/u/j", "-o", "jsonl").out.splitlines()]
    assert [row.get("unended", False) for row in rows] == [True, False, True]


def test_the_scope_stays_that_of_the_command(world: World) -> None:
    world.cli("job", "logs", "/u/j", "-C", "2", "--no-children", "--level", "error")
    query = world.client.called("OpenLogView")[-1].query
    assert (query.source, query.match_scope, query.no_children) == ("/u/j", common.MATCH_SCOPE_PREFIX, True)
    assert (query.min_level, query.min_incarnation) == (common.LOG_LEVEL_ERROR, T0)


def test_the_state_of_the_cluster_has_a_line_about_its_logs(world: World) -> None:
    world.client.answer("ListWorkers", pb.ListWorkersResponse())
    world.client.cluster.pipeline = pipeline_pb2.GetPipelineHealthResponse(
        store=pipeline_pb2.StoreHealth(
            state="serving", disk_bytes=3 << 30, max_bytes=20 << 30, last_line_at_ms=T0, damaged_lines=7
        ),
        workers=[
            pipeline_pb2.WorkerPipeline(
                worker_id="w0", attached=True, shipper=shipper(lag_ms=12_000, lost_lines=5, waiting_bytes=1)
            ),
            pipeline_pb2.WorkerPipeline(worker_id="w1", attached=True, shipper=shipper()),
        ],
        problems=["worker w0 is 12 s behind with its log lines"],
        now_ms=T0 + 3_000,
    )
    done = world.cli("cluster", "status")
    rows = dict(line.split(":", 1) for line in done.out.splitlines() if ":" in line)
    assert rows["Logs"].strip() == (
        "serving, 3.22GB of 21.5GB on disk, last line 3s ago, 7 lines lost to damage, 1 of 2 workers behind, up to 12s,"
        " 5 lines lost on the way to the log store"
    )
    assert rows["Problem"].strip() == "worker w0 is 12 s behind with its log lines"
    pipeline = world.client.cluster.pipeline
    pipeline.store.damaged_lines = pipeline.workers[0].shipper.lost_lines = 1
    del pipeline.workers[1]
    assert (
        ", 1 line lost to damage, 1 of 1 worker behind, up to 12s, 1 line lost on the way to the log store\n"
        in world.cli("cluster", "status").out
    )
    shown = json.loads(world.cli("cluster", "status", "-o", "json").out)["log_pipeline"]
    assert (shown["store"]["state"], len(shown["workers"])) == ("serving", 1)


def test_a_process_log_without_lines_says_why(world: World) -> None:
    world.client.cluster.pipeline = pipeline_pb2.GetPipelineHealthResponse(
        workers=[pipeline_pb2.WorkerPipeline(worker_id="w0")],
        problems=["worker w0 is not reachable", "worker w1 lost 3 log lines"],
    )
    assert world.cli("process", "logs", "-t", "/system/worker/nope").err == (
        "there is no worker nope now, and no line of it is kept\n"
    )
    assert world.cli("process", "logs", "-t", "/system/worker/w0", "--level", "ERROR").err == (
        "/system/worker/w0: no line matches (worker w0 is not reachable)\n"
    )
    world.client.cluster.log("/system/controller", "one", "two event=x", "three event=x")
    done = world.cli("process", "logs", "--substring", "event=x", "--max-lines", "1")
    assert (done.out, done.err) == (
        "[00:00:00] three event=x\n",
        "the last 1 of at least 2 matching lines; --max-lines N shows more\n",
    )
