"""A read of many answers: what is lost is said once, why it ended in its own words, and a long line is left out whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_controller.finelog import query
from iris_controller.finelog.reader import Scan
from iris_controller.finelog.store import Store
from tests.unit.cli_world import T0, World
from tests.unit.finelog_world import batch, put
from tests.unit.test_cli_logs import Clock, follower
from tests.unit.test_finelog_damage import overwrite, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest, FetchLogsResponse

KEY = "/u/j/0:0"
ANSWER_BYTES = 6_000
"""About thirty lines an answer."""


def serve(world: World, store: Store, answer_bytes: int) -> None:
    """The store answers, with so much at a time."""

    def answer(request: FetchLogsRequest) -> FetchLogsResponse:
        scan = Scan(store, query.parse(request), max_bytes=answer_bytes, max_seconds=60.0)
        while not scan.step(1.0):
            pass
        return scan.answer()

    world.client.answer("FetchLogs", answer)


def stored(world: World, folder: Path, damaged: int, answer_bytes: int = ANSWER_BYTES) -> Iterator[str]:
    """300 lines behind a log store whose answers are small, and what it says of the record in that file which it has lost."""
    store = Store(folder, file_limit=3000)
    for group in range(30):
        texts = [f"line {number}" for number in range(group * 10, group * 10 + 10)]
        put(store, batch(texts, key=KEY, first=group * 10, at_ms=T0 + group * 10, incarnation=T0))
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
