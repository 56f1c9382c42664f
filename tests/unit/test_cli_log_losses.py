"""A read of many answers: what is lost is said once, why it ended in its own words, and a long line is left out whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_controller.finelog import query
from iris_controller.finelog.reader import Scan
from iris_controller.finelog.store import Store
from iris_core.wire.log_losses import lost_in_between, merged
from tests.unit.cli_world import T0, World
from tests.unit.finelog_world import batch, put
from tests.unit.test_cli_logs import Clock, follower
from tests.unit.test_finelog_damage import overwrite, records_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from iris_core.wire.gen.iris.v1 import logs_pb2
    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest, FetchLogsResponse

KEY = "/u/j/0:0"
PROCESS = "/system/controller"
ANSWER_BYTES = 6_000
"""About thirty lines an answer."""


def serve(world: World, store: Store, answer_bytes: int, later: Iterable[logs_pb2.LogBatch] = ()) -> None:
    """The store answers, with so much at a time. Whoever waits for more gets `later`, one batch after the other, and then a Ctrl-C."""
    batches = iter(later)

    def answer(request: FetchLogsRequest) -> FetchLogsResponse:
        if request.wait_ms and request.cursor >= store.last_seq and request.source == PROCESS:
            more = next(batches, None)
            if more is None:
                raise KeyboardInterrupt
            put(store, more)
        scan = Scan(store, query.parse(request), max_bytes=answer_bytes, max_seconds=60.0)
        while not scan.step(1.0):
            pass
        return scan.answer()

    world.client.answer("FetchLogs", answer)


def stored(world: World, folder: Path, damaged: int, answer_bytes: int = ANSWER_BYTES, key: str = KEY) -> Iterator[str]:
    """300 lines behind a log store whose answers are small, and what it says of the record in that file which it has lost."""
    store = Store(folder, file_limit=3000)
    for group in range(30):
        texts = [f"line {number}" for number in range(group * 10, group * 10 + 10)]
        put(store, batch(texts, key=key, first=group * 10, at_ms=T0 + group * 10, incarnation=T0))
    store.close()
    path = sorted(folder.glob("wal-*.log"))[damaged]
    lost = records_of(path)[1]
    overwrite(path, lost.start, b"\0" * (lost.end - lost.start))
    store = Store(folder, file_limit=3000)
    serve(world, store, answer_bytes)
    yield f"lines with seq {lost.first_seq} to {lost.last_seq} are lost to damage on disk"
    store.close()


@pytest.fixture(params=[1, -2], ids=["in the first answer", "in the last answer"])
def said(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Iterator[str]:
    yield from stored(world, tmp_path / "store", request.param)


@pytest.fixture
def world() -> World:
    world = World()
    world.job("/u/j", "succeeded", num_tasks=1, finished_at_ms=T0)
    world.task("/u/j/0", "succeeded")
    return world


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--no-tail",
        "--save FILE",
        "--regex line",
        "--no-tail --regex line",
        "-f --no-tail",
        "-f --no-tail --max-lines 40",
    ],
)
def test_what_is_lost_is_said_once_however_many_answers_a_read_takes(
    world: World, tmp_path: Path, said: str, words: str
) -> None:
    done = world.cli("job", "logs", "/u/j", *words.replace("FILE", str(tmp_path / "saved")).split())
    assert done.code == 0
    assert done.err.count(said) == 1, done.err
    lines = (tmp_path / "saved").read_text() if "--save" in words else done.out
    assert lines.count("line ") == 290
    assert len(world.client.called("FetchLogs")) > 5
    assert "one answer holds" not in done.err and "more match" not in done.err


@pytest.mark.parametrize("damaged", [1, -2], ids=["in the first answer", "in the last answer"])
def test_whoever_follows_a_process_is_told_of_damage_too(world: World, tmp_path: Path, damaged: int) -> None:
    store = stored(world, tmp_path / "store", damaged, key=PROCESS)
    said = next(store)
    done = world.cli("process", "logs", "-f", "--max-lines", "1000")
    assert (done.code, done.out.count("line ")) == (130, 290)
    assert done.err.count(f"Warning: lines of {PROCESS} may be missing: {said}\n") == done.err.count(said) == 1
    assert "matching lines" not in done.err
    next(store, None)


def with_gaps(key: str, groups: Iterable[int]) -> Iterator[logs_pb2.LogBatch]:
    """Batches of nine lines, behind each of which one of two is lost."""
    for group in groups:
        made = batch(
            [f"line {number}" for number in range(9)],
            key=key, first=group * 11, at_ms=T0 + group * 10, incarnation=T0, attempt_uid="a",
        )  # fmt: skip
        made.entries.add(number=group * 11 + 9, epoch_ms=T0 + group * 10 + 9, gap=2, data="the spool was full")
        yield made


@pytest.mark.parametrize("words", ["", "--no-tail", "--save FILE", "-f --no-tail", "process"])
def test_lines_lost_in_between_are_added_up_over_the_answers(world: World, tmp_path: Path, words: str) -> None:
    store = Store(tmp_path / "store", file_limit=3000)
    is_process = words == "process"
    for made in with_gaps(PROCESS if is_process else KEY, range(20)):
        put(store, made)
    serve(world, store, ANSWER_BYTES)
    if is_process:
        done = world.cli("process", "logs", "--substring", "line", "--max-lines", "1000")
    else:
        more = words.replace("FILE", str(tmp_path / "saved")).split()
        done = world.cli("job", "logs", "/u/j", "--substring", "line", *more)
    assert done.code == 0
    assert len(world.client.called("FetchLogs")) > 3
    assert done.err.count("40 lines in between were lost before they were stored") == 1, done.err
    assert done.err.count("in between") == 1
    store.close()


def test_whoever_follows_is_told_the_sum_whenever_more_is_lost_in_between(world: World, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    batches = list(with_gaps(PROCESS, range(3)))
    put(store, batches[0])
    quiet = batch(["line"], key=PROCESS, first=33, at_ms=T0 + 50, incarnation=T0, attempt_uid="a")
    serve(world, store, 1_000_000, later=[*batches[1:], quiet])
    done = world.cli("process", "logs", "-f", "--substring", "line")
    assert (done.code, done.out.count("line")) == (130, 28)
    told = [line.rpartition(": ")[2] for line in done.err.splitlines() if "in between" in line]
    assert told == [f"{lines} lines in between were lost before they were stored" for lines in (2, 4, 6)]
    store.close()


def test_reasons_of_several_answers_are_each_said_once_and_in_their_place() -> None:
    one = "1 line in between was lost before it was stored"
    assert lost_in_between(1) == one
    assert merged([], ["damage", one, "damage"]) == ["damage", one]
    assert merged([one, "damage"], [lost_in_between(1_999)]) == [lost_in_between(2_000), "damage"]
    assert lost_in_between(2_000) == "2,000 lines in between were lost before they were stored"


@pytest.mark.parametrize(("cursor", "times"), [(0, 0), (1, 1)])
def test_what_was_lost_before_a_job_began_is_none_of_its_lines(
    world: World, tmp_path: Path, cursor: int, times: int
) -> None:
    """As `job run` follows, from no cursor; and as `job logs -f`, from where it has read to."""
    store = stored(world, tmp_path / "store", 1, answer_bytes=1_000_000)
    reason = next(store)
    shown: list[str] = []
    said: list[str] = []
    follower(world, Clock(), shown, said).run(cursor)
    assert len(shown) == 290 - cursor
    assert "".join(said).count(reason) == times
    next(store, None)


@pytest.mark.parametrize("count", [1, 20, 100])
def test_a_read_that_ends_where_it_was_told_to_says_what_it_was_told(
    world: World, tmp_path: Path, said: str, count: int
) -> None:
    """The last of its answers was asked for the few lines that were left."""
    asked = "line was" if count == 1 else f"{count} lines were"
    for word, which in (("--no-tail", "first"), ("--tail", "last")):
        done = world.cli("job", "logs", "/u/j", word, "--max-lines", str(count))
        assert done.out.count("line ") == count
        assert f"(the {which} {asked} asked for" in done.err, done.err


@pytest.mark.parametrize("answer_bytes", [1, 1_000_000], ids=["a part an answer", "all in one answer"])
def test_a_long_line_is_left_out_whole_whichever_part_has_the_pattern(
    world: World, tmp_path: Path, answer_bytes: int
) -> None:
    """Lines "a0b0c0" to "a3b3c3" in three parts each, with a short line after each."""
    store = Store(tmp_path / "store")
    made = batch([], key=KEY, incarnation=T0, attempt_uid="a")
    for line in range(4):
        for part in range(3):
            number = line * 4 + part
            made.entries.add(
                number=number, epoch_ms=T0 + number, source="stdout", data=f"{'abc'[part]}{line}", partial=part < 2, part=part
            )  # fmt: skip
        made.entries.add(number=line * 4 + 3, epoch_ms=T0 + line * 4 + 3, source="stdout", data=f"short {line}")
    put(store, made)
    serve(world, store, answer_bytes)

    def shown(*words: str) -> list[str]:
        done = world.cli("job", "logs", "/u/j", *words)
        assert done.code == 0
        return [line.rpartition("| ")[2] for line in done.out.splitlines()]

    whole = [text for line in range(4) for text in (f"a{line}b{line}c{line}", f"short {line}")]
    for word in ("--tail", "--no-tail"):
        assert shown(word) == whole
        assert shown(word, "--without", "a0|b1|c2") == ["short 0", "short 1", "short 2", "a3b3c3", "short 3"]
        assert shown(word, "--without", "b1", "--regex", "[ac]") == ["a0b0c0", "a2b2c2", "a3b3c3"]
    assert shown("--no-tail", "--max-lines", "2", "--without", "a0|b1") == ["short 0", "short 1"]
    assert shown("--max-lines", "2", "--without", "short|c3|b2") == ["a0b0c0", "a1b1c1"]
    store.close()
