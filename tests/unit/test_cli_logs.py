"""Logs: parts joined, ranks in the order of time and the same every time, pages without gaps, honest about what is
left out.
"""

from __future__ import annotations

import base64
import json
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_controller.worker.batches import DISK_FULL
from iris_core.cli import follow, log_reader
from iris_core.cli.diagnostics import Diagnostics
from iris_core.cli.follow import DRAIN_S, ROUND_LINES, Follower
from iris_core.cli.log_lines import Joiner, Line, TimeOrder, ordered, task_line
from iris_core.cli.log_reader import Account, LogReader
from iris_core.cli.log_subject import JobSubject
from iris_core.cli.silence import Silence
from iris_core.contracts import ConnectFailed, RpcFailed
from iris_core.model.ids import JobId
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest, FetchLogsResponse, ProducerMark, StoredLine
from providers.fake.client import Call
from tests.unit.cli_world import T0, World

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def stored(seq: int, key: str, ms: int, data: str = "", **more: object) -> StoredLine:
    return StoredLine(seq=seq, key=key, epoch_ms=ms, data=data or f"{key}#{seq}", **more)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30)), max_size=30))
def test_lines_come_by_time_and_each_task_keeps_its_order(items: list[tuple[str, int]]) -> None:
    entries = [stored(n + 1, key, ms) for n, (key, ms) in enumerate(items)]
    lines = ordered(entries)
    assert ordered(list(reversed(entries))) == lines
    assert sorted(line.seq for line in lines) == [entry.seq for entry in entries]
    for key in "abc":
        own = [line.seq for line in lines if line.key == key]
        assert own == sorted(own)
    forward = {key: [ms for k, ms in items if k == key] for key in "abc"}
    if all(times == sorted(times) for times in forward.values()):
        assert [line.epoch_ms for line in lines] == sorted(line.epoch_ms for line in lines)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 3))
def test_parts_of_a_long_line_are_joined_per_source(cuts: list[int], other: int) -> None:
    joiner = Joiner()
    text = "".join(f"<{n}>" * cut for n, cut in enumerate(cuts))
    seq, found = 0, []
    position = 0
    for n, cut in enumerate(cuts):
        part = text[position : position + 3 * cut]
        position += 3 * cut
        seq += 1
        found.append(joiner.push(stored(seq, "k:0", 5, part, source="stdout", partial=n < len(cuts) - 1)))
        if n == other:
            seq += 1
            assert joiner.push(stored(seq, "k:0", 5, "err", source="stderr")) is not None
    whole = [line for line in found if line is not None]
    assert [line.data for line in whole] == [text]
    assert not joiner.waiting


def test_bytes_that_are_no_text_survive_the_joining() -> None:
    joiner = Joiner()
    assert joiner.push(stored(1, "k", 1, "a\ufffd", raw=b"a\xff", partial=True)) is None
    line = joiner.push(stored(2, "k", 1, "b"))
    assert line is not None
    assert (line.bytes, line.data) == (b"a\xffb", "a\ufffdb")


def test_an_unfinished_line_is_shown_when_it_is_overdue() -> None:
    joiner = Joiner()
    assert joiner.push(stored(1, "k", 1, " 10%|##", partial=True), 100.0) is None
    assert list(joiner.overdue(99.0)) == []
    assert [line.data for line in joiner.overdue(100.0)] == [" 10%|##"]


def test_a_late_line_of_another_rank_still_finds_its_place() -> None:
    order = TimeOrder()
    order.push(Line(1, "a", 1000, "", "first", b"", 0, "", 0, 0, 0), 10.0)
    order.push(Line(2, "a", 1300, "", "third", b"", 0, "", 0, 1, 0), 10.3)
    order.push(Line(3, "b", 1200, "", "second", b"", 0, "", 0, 0, 0), 10.4)
    assert [line.data for line in order.take_arrived(10.0)] == ["first"]
    assert [line.data for line in order.take_arrived(10.4)] == ["second", "third"]


def test_a_line_is_formatted_for_people_and_steers_nothing() -> None:
    line = ordered([stored(1, "/u/j/0:2", 3_723_000, "x \x1b[31mred\x1b]0;t\x07\x9b", attempt_id=2)])[0]
    assert task_line(line) == "[01:02:03] task=/u/j/0 attempt=2 | x \x1b[31mred\\x9b\x1b[0m\n"
    gap = ordered([stored(1, "/u/j/0:2", 0, DISK_FULL, attempt_id=2, gap=3)])[0]
    assert task_line(gap) == "[00:00:00] task=/u/j/0 attempt=2 | [3 lines lost: the worker's disk was full]\n"


@pytest.fixture
def world() -> World:
    world = World()
    world.job("/u/j", num_tasks=2)
    world.task("/u/j/0")
    world.task("/u/j/1")
    return world


def fill(world: World, count: int, keys: int = 2) -> None:
    for n in range(count):
        world.client.cluster.log(f"/u/j/{n % keys}:0", f"line {n}", epoch_ms=T0 + n)


def texts(out: str) -> list[str]:
    return [line.partition(" | ")[2] for line in out.splitlines()]


@pytest.mark.parametrize("page", [1, 7, 1000])
@pytest.mark.parametrize("count", [1, 10, 50])
def test_pages_join_without_gap_or_repeat(world: World, monkeypatch: pytest.MonkeyPatch, page: int, count: int) -> None:
    monkeypatch.setattr(log_reader, "PAGE_LINES", page)
    monkeypatch.setattr(log_reader, "DISORDER_LINES", 4)
    fill(world, 40)
    base = FetchLogsRequest(source="/u/j", match_scope=common.MATCH_SCOPE_PREFIX)
    reader = LogReader(world.client, base, several=True)
    last, account = reader.last(count)
    assert [line.data for line in last] == [f"line {n}" for n in range(max(40 - count, 0), 40)]
    assert (account.shown, account.cursor) == (min(count, 40), 40)
    assert bool(account.reasons) == (count < 40)
    begun = Account()
    first = list(reader.first(count, begun))
    assert [line.data for line in first] == [f"line {n}" for n in range(min(count, 40))]
    assert begun.shown == min(count, 40)
    assert bool(begun.reasons) == (count < 40)


def test_the_last_lines_are_printed_and_what_is_missing_is_said(world: World) -> None:
    fill(world, 30)
    done = world.cli("job", "logs", "/u/j", "--max-lines", "3")
    assert done.code == 0
    assert done.out.splitlines()[0] == "[00:00:00] task=/u/j/1 attempt=0 | line 27"
    assert texts(done.out) == ["line 27", "line 28", "line 29"]
    assert "3 of 30 matching lines are shown" in done.err
    assert texts(world.cli("job", "logs", "/u/j", "--no-tail", "--max-lines", "2").out) == ["line 0", "line 1"]
    assert world.cli("job", "logs", "/u/j").err == ""


def test_a_task_s_log_is_its_own(world: World) -> None:
    fill(world, 4)
    assert texts(world.cli("task", "logs", "/u/j/1").out) == ["line 1", "line 3"]
    request = world.client.called("FetchLogs")[-1]
    assert (request.source, request.match_scope, request.min_incarnation) == ("/u/j/1", common.MATCH_SCOPE_PREFIX, T0)
    world.client.cluster.put(
        pb.AttemptStatus(task_id="/u/j/1", attempt_id=0, attempt_uid="aa", state="TASK_STATE_RUNNING")
    )
    assert texts(world.cli("attempt", "logs", "/u/j/1:0", "--all-incarnations").out) == ["line 1", "line 3"]
    request = world.client.called("FetchLogs")[-1]
    assert (request.source, request.match_scope, request.min_incarnation) == ("/u/j/1:0", common.MATCH_SCOPE_EXACT, 0)


def test_filters_go_to_the_server(world: World) -> None:
    world.cli("job", "logs", "/u/j", "--level", "WARNING", "--substring", "a", "--regex", "b+", "--since-ms", "5",
              "--until-ms", "9", "--no-children")  # fmt: skip
    request = world.client.called("FetchLogs")[-1]
    assert (request.min_level, request.substring, request.regex) == (common.LOG_LEVEL_WARNING, "a", "b+")
    assert (request.since_ms, request.until_ms, request.no_children) == (5, 9, True)


def test_json_lines_have_the_original_text_and_bytes(world: World) -> None:
    world.client.cluster.lines.append(
        stored(1, "/u/j/0:0", T0, "a\x1b\ufffd", raw=b"a\x1b\xff", source="stderr", level=4)
    )
    row = json.loads(world.cli("job", "logs", "/u/j", "-o", "jsonl").out)
    assert (row["text"], base64.b64decode(row["raw_base64"])) == ("a\x1b\ufffd", b"a\x1b\xff")
    assert (row["task"], row["attempt"], row["source"], row["level"]) == ("/u/j/0", 0, "stderr", "error")
    assert row["time"] == "2026-01-01T00:00:00.000Z"


@pytest.mark.parametrize("ms", [-(2**62), -1, 1, 4_000_000_000_000, 253_402_300_800_000, 2**62])
def test_a_line_of_any_clock_is_shown(world: World, ms: int) -> None:
    world.client.cluster.lines.append(stored(1, "/u/j/0:0", ms, "text"))
    assert world.cli("job", "logs", "/u/j").out.endswith("] task=/u/j/0 attempt=0 | text\n")
    row = json.loads(world.cli("job", "logs", "/u/j", "-o", "jsonl").out)
    assert (row["text"], row["epoch_ms"]) == ("text", ms)


def test_saving_keeps_every_byte(world: World, tmp_path: Path) -> None:
    world.client.cluster.lines.append(stored(1, "/u/j/0:0", T0, "a\ufffd", raw=b"a\xff\x1b[2J"))
    world.client.cluster.lines.append(stored(2, "/u/j/0:0", T0, "", partial=False))
    target = tmp_path / "out.log"
    done = world.cli("job", "logs", "/u/j", "--save", str(target))
    assert (done.code, done.out) == (0, "")
    assert target.read_bytes() == b"a\xff\x1b[2J\n/u/j/0:0#2\n"
    assert "saved 2 lines (18 bytes)" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["out.log"]


def test_a_file_that_cannot_be_written_is_one_line(world: World) -> None:
    done = world.cli("job", "logs", "/u/j", "--save", "/nonexistent/x")
    assert (done.code, done.err) == (1, "Error: cannot write /nonexistent/x: no such file or directory\n")


@pytest.mark.parametrize("command", ["job logs /u/p", "task logs /u/p/0", "job logs /u/p --regex loss"])
def test_what_has_not_started_answers_at_once_with_the_reason(world: World, command: str) -> None:
    world.job("/u/p", "pending", pending_reason="needs 512 cores", started_at_ms=0)
    world.task("/u/p/0", "pending", current_attempt_id=-1, pending_reason="needs 512 cores")
    done = world.cli(*command.split())
    assert (done.code, done.out) == (0, "")
    assert "is pending: needs 512 cores" in done.err
    assert all(request.wait_ms == 0 for request in world.client.called("FetchLogs"))


def test_an_attempt_that_does_not_exist_is_an_error_with_the_reason(world: World) -> None:
    world.task("/u/p/0", "pending", current_attempt_id=-1, pending_reason="needs 512 cores")
    done = world.cli("attempt", "logs", "/u/p/0:0")
    assert (done.code, done.err) == (1, "Error: there is no attempt 0 of /u/p/0, which is pending: needs 512 cores\n")


class Clock:
    """Time that passes when somebody sleeps, and a little with every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def follower(world: World, clock: Clock, shown: list[str], said: list[str], until_ms: int = 0) -> Follower:
    diagnostics = Diagnostics()
    for name in ("note", "warn"):
        setattr(diagnostics, name, said.append)
    subject = JobSubject(world.client, JobId("/u/j"))

    def emit(lines: Iterable[Line]) -> None:
        shown.extend(line.data for line in lines)

    reader = LogReader(world.client, subject.request(T0), several=True)
    return Follower(diagnostics, subject, reader, emit, several=True, until_ms=until_ms, clock=clock, sleep=clock.sleep)


def test_following_ends_when_every_line_of_every_attempt_has_arrived(world: World) -> None:
    """The job ends before its last lines are stored: they are waited for, by the number that the attempt wrote."""
    shown: list[str] = []
    said: list[str] = []
    polls = 0

    def before(call: Call) -> None:
        nonlocal polls
        if not call.method.endswith("FetchLogs"):
            return
        polls += 1
        if polls <= 5:
            world.client.cluster.log("/u/j/0:0", f"line {polls}", epoch_ms=T0 + polls)
        if polls == 3:
            world.job("/u/j", "succeeded")
            world.task("/u/j/0", "succeeded", log_lines=5, attempt_uid="a0")
            world.task("/u/j/1", "succeeded", log_lines=0, attempt_uid="a1")

    def marked(request: FetchLogsRequest) -> FetchLogsResponse:
        answer = world.client.cluster._read(request)
        answer.marks.extend(
            ProducerMark(producer=uid, next_number=len(world.client.cluster.lines)) for uid in request.producers
        )
        return answer

    world.client.before = before
    world.client.answer("FetchLogs", marked)
    standing = follower(world, Clock(), shown, said).run()
    assert standing.succeeded
    assert shown == [f"line {n}" for n in range(1, 6)]
    assert said == []


def test_lines_that_never_arrive_are_counted_and_said_within_the_bound(world: World) -> None:
    shown: list[str] = []
    said: list[str] = []
    world.job("/u/j", "succeeded")
    world.task("/u/j/0", "succeeded", log_lines=5, attempt_uid="a0")
    world.client.cluster.log("/u/j/0:0", "one", epoch_ms=T0)

    def marked(request: FetchLogsRequest) -> FetchLogsResponse:
        answer = world.client.cluster._read(request)
        answer.marks.extend(ProducerMark(producer=uid, next_number=1) for uid in request.producers)
        clock.sleep(request.wait_ms / 1000)
        return answer

    clock = Clock()
    world.client.answer("FetchLogs", marked)
    follower(world, clock, shown, said).run()
    assert shown == ["one"]
    assert said == [
        f"4 lines of 1 attempt did not reach the log store within {DRAIN_S:.0f} s and are not shown; ask again later"
    ]
    assert clock.now < DRAIN_S + 2


def test_lines_that_still_arrive_are_waited_for_however_long_it_takes(world: World) -> None:
    shown: list[str] = []
    said: list[str] = []
    world.job("/u/j", "succeeded")
    world.task("/u/j/0", "succeeded", log_lines=40, attempt_uid="a0")
    clock = Clock()

    def marked(request: FetchLogsRequest) -> FetchLogsResponse:
        clock.sleep(DRAIN_S / 2)
        have = len(world.client.cluster.lines)
        if have < 40:
            world.client.cluster.log("/u/j/0:0", f"line {have}", epoch_ms=T0 + have)
        answer = world.client.cluster._read(request)
        answer.marks.extend(
            ProducerMark(producer=uid, next_number=len(world.client.cluster.lines)) for uid in request.producers
        )
        return answer

    world.client.answer("FetchLogs", marked)
    follower(world, clock, shown, said).run()
    assert shown == [f"line {n}" for n in range(40)]
    assert (said, clock.now > 10 * DRAIN_S) == ([], True)


def test_a_silent_log_store_does_not_hide_the_end_of_the_job(world: World) -> None:
    shown: list[str] = []
    said: list[str] = []
    world.client.answer(
        "FetchLogs", RpcFailed("UNAVAILABLE", "finelog is starting", code="unavailable", retry_after_ms=1)
    )
    asked = 0

    def before(call: Call) -> None:
        nonlocal asked
        asked += call.method.endswith("GetJobStatus")
        if asked == 4:
            world.job("/u/j", "failed")

    world.client.before = before
    clock = Clock()
    standing = follower(world, clock, shown, said).run()
    assert (standing.ended, standing.succeeded) == (True, False)
    assert said[0] == "the log store does not answer: finelog is starting; lines come when it does"
    assert clock.now < 30


def ended(world: World, lines: int) -> list[str]:
    """A job that is over, with so many lines in the store."""
    world.job("/u/j", "succeeded")
    world.task("/u/j/0", "succeeded", log_lines=lines, attempt_uid="a0")
    for number in range(lines):
        world.client.cluster.log("/u/j/0:0", f"line {number}", epoch_ms=T0 + number)
    return [f"line {number}" for number in range(lines)]


def marked_all(world: World, request: FetchLogsRequest) -> FetchLogsResponse:
    """What a store answers that has taken in everything."""
    answer = world.client.cluster._read(request)
    lines = len(world.client.cluster.lines)
    answer.marks.extend(ProducerMark(producer=uid, next_number=lines) for uid in request.producers)
    return answer


def test_a_reader_who_takes_his_time_gets_all_of_a_job_that_is_over(world: World) -> None:
    said: list[str] = []
    clock = Clock()
    wanted = ended(world, 3 * ROUND_LINES)
    world.client.answer("FetchLogs", lambda request: marked_all(world, request))

    class Slow(list[str]):
        def extend(self, texts: Iterable[str]) -> None:
            clock.sleep(3 * DRAIN_S)
            super().extend(texts)

    slow = Slow()
    follower(world, clock, slow, said).run()
    assert list(slow) == wanted
    assert said == []


def test_a_controller_that_is_away_for_long_costs_no_line_of_a_job_that_is_over(world: World) -> None:
    shown: list[str] = []
    said: list[str] = []
    clock = Clock()
    wanted = ended(world, 3 * ROUND_LINES)
    back_at = 0.0

    def fetched(request: FetchLogsRequest) -> FetchLogsResponse:
        nonlocal back_at
        if request.cursor and not back_at:
            back_at = clock() + 4 * DRAIN_S
        if clock() < back_at:
            raise ConnectFailed("cannot connect")
        return marked_all(world, request)

    def before(call: Call) -> None:
        if call.method.endswith("GetJobStatus") and clock() < back_at:
            raise ConnectFailed("cannot connect")

    world.client.answer("FetchLogs", fetched)
    world.client.before = before
    follower(world, clock, shown, said).run()
    assert shown == wanted
    assert not [text for text in said if "not shown" in text]


def test_a_log_store_that_is_gone_for_good_is_not_taken_for_lines_that_never_arrived(world: World) -> None:
    shown: list[str] = []
    said: list[str] = []
    clock = Clock()
    ended(world, 3 * ROUND_LINES)

    def fetched(request: FetchLogsRequest) -> FetchLogsResponse:
        if request.cursor:
            raise RpcFailed("UNAVAILABLE", "finelog is starting", code="unavailable", retry_after_ms=1)
        return marked_all(world, request)

    world.client.answer("FetchLogs", fetched)
    follower(world, clock, shown, said).run()
    assert len(shown) == ROUND_LINES
    assert said[-1].startswith("the log store does not answer for 2")
    assert said[-1].endswith("what it has of /u/j behind these lines is not shown; ask again later")
    assert not [text for text in said if "did not reach" in text]


@pytest.mark.parametrize("words", [(), ("-C", "1", "--substring", "one")])
def test_a_log_store_that_is_stopped_is_named_while_it_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """It neither answers nor refuses: whoever waits is told whom for, once, and still gets what comes."""
    said = threading.Event()
    note = Diagnostics.note
    asked = 0

    def noted(diagnostics: Diagnostics, text: str) -> None:
        note(diagnostics, text)
        if "the log store has not answered" in text:
            said.set()

    def before(call: Call) -> None:
        nonlocal asked
        if call.method.rpartition("/")[2] in ("FetchLogs", "OpenLogView") and not asked:
            asked += 1
            assert said.wait(30)

    monkeypatch.setattr(Silence.__init__, "__kwdefaults__", {"after_s": 0.01})
    monkeypatch.setattr(Diagnostics, "note", noted)
    world.job("/u/j", "succeeded")
    world.task("/u/j/0", "succeeded")
    world.client.cluster.log("/u/j/0:0", "one", epoch_ms=T0)
    world.client.before = before
    done = world.cli("job", "logs", "/u/j", *words)
    assert (done.code, done.out.count("one")) == (0, 1)
    assert done.err.count("the log store has not answered for") == 1


def test_an_answer_after_silence_ends_the_outage_and_the_next_one_is_said_again() -> None:
    said: list[str] = []
    spoke = threading.Semaphore(0)
    diagnostics = Diagnostics()

    def note(text: str) -> None:
        said.append(text)
        spoke.release()

    diagnostics.note = note  # type: ignore[method-assign]
    silence = Silence(diagnostics, "the log store", after_s=0.01)
    for _ in range(2):
        assert silence.ask(lambda: spoke.acquire(timeout=30))
    assert said == ["the log store has not answered for 0 s; still waiting for it"] * 2


@pytest.mark.parametrize(
    ("state", "error", "said"),
    [
        ("killed", "cancelled by ada", "/u/j has ended: killed, cancelled by ada"),
        ("failed", "exit code 3", "/u/j has ended: failed, exit code 3"),
        ("unschedulable", "", "/u/j has ended: unschedulable"),
        ("succeeded", "", ""),
    ],
)
def test_lines_that_stop_coming_say_why(world: World, state: str, error: str, said: str) -> None:
    world.job("/u/j", "running")
    world.task("/u/j/0", "running")
    world.client.cluster.log("/u/j/0:0", "one", epoch_ms=T0)
    rounds = 0

    def before(call: Call) -> None:
        nonlocal rounds
        rounds += call.method.endswith("GetJobStatus")
        if rounds == 3:
            world.job("/u/j", state, error=error)
            world.task("/u/j/0", state)

    world.client.before = before
    done = world.cli("job", "logs", "/u/j", "-f")
    assert done.code == 0
    assert ([line for line in done.err.splitlines() if "has ended" in line] or [""]) == [said]


def test_a_job_that_ended_without_output_says_so(world: World) -> None:
    world.job("/u/e", "succeeded")
    world.task("/u/e/0", "succeeded")
    done = world.cli("job", "logs", "/u/e")
    assert (done.code, done.out) == (0, "")
    assert "/u/e is succeeded; no line is kept\n" in done.err
    done = world.cli("job", "logs", "/u/e", "--substring", "x")
    assert "/u/e is succeeded; no line matches\n" in done.err


def test_a_pending_job_says_what_it_waits_for_once(world: World) -> None:
    said: list[str] = []
    world.job("/u/j", "pending", pending_reason="no worker", started_at_ms=0)
    rounds = 0

    def before(call: Call) -> None:
        nonlocal rounds
        rounds += call.method.endswith("GetJobStatus")
        if rounds == 60:
            world.job("/u/j", "succeeded")

    world.client.before = before
    follower(world, Clock(), [], said).run()
    assert said == ["/u/j is pending: no worker"]


def test_something_that_runs_and_stays_silent_is_explained_once_per_cause(world: World) -> None:
    said: list[str] = []
    causes = iter(["it is late", "it is late", "it is lost"])
    rounds = 0

    def before(call: Call) -> None:
        nonlocal rounds
        rounds += call.method.endswith("GetJobStatus")
        if rounds == 900:
            world.job("/u/j", "succeeded")

    world.client.before = before
    made = follower(world, Clock(), [], said)
    made._explain = lambda _: next(causes, "it is lost")
    made.run()
    assert said == ["/u/j is running; no logs yet: it is late", "/u/j is running; no logs yet: it is lost"]


def test_one_answer_while_following_still_travels_as_json() -> None:
    from iris_core.client.mixed import LARGE_LINES

    assert follow.ROUND_LINES <= LARGE_LINES
