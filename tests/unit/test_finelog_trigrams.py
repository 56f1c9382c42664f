"""The index of text: what it excludes holds no match, and without it or with a bad one the answers are the same."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_controller.finelog import convert, trigrams
from iris_controller.finelog.catalog import LOG
from iris_controller.finelog.literals import fold
from iris_controller.finelog.matching import matches
from iris_controller.finelog.query import Query, Scope
from iris_controller.finelog.segment import Segment
from iris_controller.finelog.segments import SegmentFile
from iris_controller.finelog.store import Store
from iris_controller.finelog.trigrams import FilterDamagedError, FilterFiles, Needles, bits_of
from iris_controller.finelog.upkeep import Upkeep
from iris_core.model.regex import compile_content_regex
from iris_core.wire.gen.iris.v1 import logs_pb2
from tests.unit.finelog_world import PREFIX, batch, fetch, put

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORDS = (
    "loss", "Loss", "step", "task", "TASK", "checkpoint", "Kelvin", "\u212aelvin", "mi\u017fs", "caf\u00e9", "CAFÉ", "größe",
    "日本語", "データ", "rank", "ok", "OK", "disk full", "error", "Error", "a.b*c", "x=1", "\0nul", "tab\there", "-", "ß", "é",
)  # fmt: skip


def text(r: random.Random) -> str:
    return r.choice(["", " ", "\n", ": "]).join(r.choice(WORDS) for _ in range(r.randrange(5)))


def pattern(r: random.Random, depth: int = 0) -> str:
    """A valid pattern, often one that matches some text."""
    if depth == 2 or r.random() < 0.4:
        word = r.choice(WORDS)
        at = r.randrange(len(word))
        piece = word[at : at + r.randrange(1, 9)]
        return r.choice(
            [
                trigrams_quoted(piece),
                trigrams_quoted(piece),
                f"[{trigrams_quoted(piece[0])}Kéx]",
                "[^a]",
                ".",
                r"\w+",
                "[a-k]",
                r"\pL",
                f"\\Q{piece}\\E" if "\\" not in piece else ".",
            ]
        )
    inner = pattern(r, depth + 1)
    match r.randrange(8):
        case 0:
            return f"({inner}|{pattern(r, depth + 1)})"
        case 1:
            return f"(?:{inner}){r.choice(['?', '*', '+', '{2}', '{0,2}'])}"
        case 2:
            return f"(?i:{inner})"
        case 3:
            return f"(?i){inner}"
        case 4:
            return f"{r.choice(['^', '(?m)^', ''])}{inner}{r.choice(['$', '', '.*'])}"
        case 5:
            return f"{inner}|{pattern(r, depth + 1)}"
        case _:
            return f"{inner}{r.choice(['', '.*', ' ?'])}{pattern(r, depth + 1)}"


def trigrams_quoted(piece: str) -> str:
    return "".join(f"\\x{{{ord(sign):x}}}" if sign in "\0\t.*" else sign for sign in piece)


def test_no_match_is_excluded_in_ten_thousand_pairs_of_rows_and_patterns() -> None:
    r = random.Random(20)
    groups = [[text(r) for _ in range(3)] for _ in range(60)]
    filters = [memoryview(bits_of(pa.array(group))) for group in groups]
    everything = [one for group in groups for one in group]
    rows = pa.record_batch(
        {"data": everything, "part": pa.array([0] * 180, pa.uint32()), "seam": pa.nulls(180, pa.string())}
    )
    pairs = matched = excluded = uncertain = 0
    while pairs < 10_000:
        regex = compile_content_regex(pattern(r))
        hits = matches(Query(Scope("/u/j"), regex=regex), rows).to_pylist()
        needles = Needles.of(pattern=regex.pattern)
        uncertain += needles is None
        for place, bits in enumerate(filters):
            is_match = any(hits[3 * place : 3 * place + 3])
            may_match = needles is None or needles.may_be_in(bits)
            assert may_match or not is_match, (regex.pattern, groups[place])
            pairs += 1
            matched += is_match
            excluded += not may_match
    # Or else the test would prove nothing.
    assert matched > 1000 and excluded > 1000 and uncertain < 150


@given(st.lists(st.none() | st.text("aBk\u212a\u017fé日\0 "), min_size=1, max_size=9), st.data())
def test_a_text_is_in_the_filter_of_what_holds_it(texts: list[str | None], data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from(texts)) or ""
    start = data.draw(st.integers(0, len(whole)))
    piece = whole[start : data.draw(st.integers(start, len(whole)))]
    needles = Needles.of("".join(sign.swapcase() if sign.isascii() else sign for sign in piece))
    column = pa.array([None, "before", *texts], pa.string()).slice(2)
    assert needles is None or needles.may_be_in(memoryview(bits_of(column)))
    assert needles is None or needles.may_be_in(memoryview(bits_of(pa.array(["other"]), column)))


def test_every_sequence_of_a_large_column_is_in_its_filter() -> None:
    r = random.Random(3)
    texts = ["".join(r.choices("0123456789abcdef é", k=40)) for _ in range(40_000)]
    bits = memoryview(bits_of(pa.array(texts)))
    assert all(needles.may_be_in(bits) for one in texts[::97] if (needles := Needles.of(one)))
    assert not any(needles.may_be_in(bits) for number in range(99) if (needles := Needles.of(f"ghi{number}jklmno")))


def test_a_filter_is_as_large_as_its_text_asks_for() -> None:
    assert [len(bits_of(pa.array(["x" * count]))) for count in (0, 100, 1000, 10_000, 1_000_000)] == [
        128, 128, 128, 2048, 16_384,
    ]  # fmt: skip
    assert bits_of(pa.array([], pa.string())) == bits_of(pa.nulls(3, pa.string()))


def test_a_filter_may_be_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trigrams, "_MAX_BITS", 10)
    noise = random.Random(5).randbytes(100_000).translate(bytes(byte & 0x7F for byte in range(256)))
    assert bits_of(pa.array([noise.decode()])) == b"\xff" * 128


@pytest.mark.parametrize("needle", ["", "ab", "é", "(?i)ß", r"\d+"])
def test_what_is_too_short_or_uncertain_does_not_use_the_index(needle: str) -> None:
    assert Needles.of(pattern=needle) is None
    assert Needles.of(needle if len(needle) < 3 else "") is None


# Segments ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store with one segment of many row groups, some lines that are not in it yet, a part of a line and a gap record."""
    monkeypatch.setattr("iris_controller.finelog.segment_writer.GROUP_ROWS", 50)
    opened = Store(tmp_path / "store", file_limit=20_000)
    fill(opened)
    make_segment(opened)
    yield opened
    opened.close()


def fill(store: Store) -> None:
    """The lines of the segment."""
    r = random.Random(7)
    for number in range(20):
        lines = batch([text(r) for _ in range(25)], key=f"/u/j/{number % 6}:0", producer=f"p{number}")
        if number == 11:
            lines.entries[3].gap = 4
            del lines.entries[4:]
        if number == 14:
            lines.entries.add(number=25, data="end", partial=True, part=1, seam="sea\u212am and end")
        put(store, lines)
    put(store, batch(["x" * 20_000], key="/u/j/7:0", producer="filler"))
    put(store, batch(["the last line, and the only one about a zeppelin"], key="/u/j/7:0", producer="last"))


def make_segment(store: Store) -> None:
    """Turns the first write-ahead file into a segment."""
    store._keeper.submit(lambda: None).result()
    file = store.finished()
    assert file is not None
    folder = store.catalog.make_folder(LOG)
    segment = convert.convert(file, store.open_files.get(file), store.marker, folder, store.note_loss, lambda _: None)
    assert store.adopt(segment, file)


def segment_of(store: Store) -> tuple[Segment, Path]:
    [segment] = store.catalog.segments(LOG)
    return segment, store.catalog.folder_of(LOG) / segment.name


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[str]]]:
    """The row groups, and columns of them, that are read."""
    seen: list[tuple[int, list[str]]] = []
    read = SegmentFile.read

    def watched(self: SegmentFile, group: int, columns: Any = None) -> Any:
        seen.append((group, list(columns or [])))
        return read(self, group, columns)

    monkeypatch.setattr(SegmentFile, "read", watched)
    return seen


def answers(store: Store, asked: list[dict[str, Any]]) -> list[logs_pb2.FetchLogsResponse]:
    return [fetch(store, "/u/j", match_scope=PREFIX, **fields) for fields in asked]


def test_answers_are_the_same_with_the_index_without_it_and_with_a_corrupt_one(
    store: Store, caplog: pytest.LogCaptureFixture, reads: list[tuple[int, list[str]]], tmp_path: Path
) -> None:
    r = random.Random(11)
    segment, path = segment_of(store)
    asked: list[dict[str, Any]] = [{"regex": pattern(r)} for _ in range(24)]
    for fields in asked[::3]:
        fields |= {"max_lines": 3, "tail": r.random() < 0.5}
    asked += [
        {"substring": "Kelvin"},
        {"substring": "sea\u212am"},
        {"regex": "(?i)SEAM.*and"},
        {"regex": "zeppelin", "since_ms": 1},
        {"regex": "zeppelin", "min_level": 3, "cursor": 40, "before": 200},
        {"regex": "checkpoint", "attempt_uid": "p3"},
        {"regex": "never there"},
        {"regex": "never.*there"},
    ]
    with_index = answers(store, asked)
    looked = sum("data" in columns for _, columns in reads)
    plain = Store(tmp_path / "plain")
    fill(plain)
    assert answers(plain, asked) == with_index
    plain.close()
    assert sum(bool(answer.matched) for answer in with_index) > 10
    assert not caplog.records
    file = path.with_suffix(".fidx")
    whole = file.read_bytes()
    flipped = whole[:200] + bytes([whole[200] ^ 4]) + whole[201:]
    for spoilt, some in ((None, 0), (flipped, 0), (b"", -7), (whole[:-1], -7)):
        file.unlink(missing_ok=True)
        if spoilt is not None:
            file.write_bytes(spoilt)
        store.filters = FilterFiles(path.parent)
        caplog.clear()
        reads.clear()
        assert answers(store, asked[some:]) == with_index[some:]
        assert some or sum("data" in columns for _, columns in reads) > looked
        [said] = caplog.records
        assert said.levelno == logging.WARNING
        assert said.getMessage().startswith(f"searching {segment.name} without its index {file.name}: ")


def test_a_rare_text_reads_only_the_row_groups_that_may_hold_it(
    store: Store, reads: list[tuple[int, list[str]]]
) -> None:
    segment, path = segment_of(store)
    groups = len(SegmentFile.open(path).groups)
    assert groups == 10
    answer = fetch(store, "/u/j", match_scope=PREFIX, regex="the quick brown fox")
    assert answer.scanned == answer.last_seq == segment.rows + 1 and not answer.shown
    # A gap record counts whatever is searched for.
    assert answer.capped_reason == "4 lines in between were lost before they were stored" and not answer.notes
    [gap] = {group for group, columns in reads if "data" in columns}
    reads.clear()
    # A part of a line is told of where a match may be longer than its seam.
    assert fetch(store, "/u/j", match_scope=PREFIX, regex="the quick.*fox").notes
    [part] = {group for group, columns in reads if "data" in columns} - {gap}
    reads.clear()
    answer = fetch(store, "/u/j", match_scope=PREFIX, substring="sea\u212am", max_lines=1)
    assert [line.data for line in answer.entries] == ["end"]
    assert {group for group, columns in reads if "data" in columns} == {gap, part}


@pytest.mark.parametrize("what", ["another segment", "another version", "another footer"])
def test_a_filter_of_something_else_is_not_used(store: Store, what: str) -> None:
    segment, path = segment_of(store)
    file = path.with_suffix(".fidx")
    whole = file.read_bytes()
    assert trigrams.read(file, path).identity.rows == segment.rows
    if what == "another segment":
        trigrams.write(path, [bits_of(pa.array(["unrelated"]))] * 20, segment.rows - 1)
        assert FilterFiles(path.parent).groups(segment, path, Needles.of("zeppelin")) is None
        return
    if what == "another version":
        file.write_bytes(b"FINETRI9" + whole[8:])
    else:
        footer = path.read_bytes()
        path.write_bytes(footer[:-20] + bytes(12) + footer[-8:])
    with pytest.raises(FilterDamagedError):
        trigrams.read(file, path)


def test_a_disk_that_refuses_the_index_does_not_refuse_the_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trigrams, "write_atomically", full)
    store = Store(tmp_path, file_limit=20_000)
    fill(store)
    make_segment(store)
    assert "No space left on device" in caplog.text
    assert fetch(store, "/u/j", match_scope=PREFIX, regex="the only one about").shown == 1
    store.close()


def test_memory_for_filters_is_bounded(store: Store) -> None:
    segment, path = segment_of(store)
    files = FilterFiles(path.parent, max_bytes=1)
    assert files.groups(segment, path, Needles.of(fold("Checkpoint"))) is not None
    other = Segment(**{**{name: getattr(segment, name) for name in segment.__slots__}, "name": "seg_gone.parquet"})
    assert files.groups(other, path, Needles.of("checkpoint")) is None
    path.with_suffix(".fidx").unlink()
    assert files.groups(segment, path, Needles.of("checkpoint")) is None


def test_a_segment_may_lie_elsewhere(store: Store, tmp_path: Path) -> None:
    segment, path = segment_of(store)
    elsewhere = path.rename(tmp_path / "fetched.parquet")
    assert FilterFiles(path.parent).groups(segment, elsewhere, Needles.of("checkpoint")) is not None


def test_an_index_that_was_missed_is_made_anew(store: Store, reads: list[tuple[int, list[str]]]) -> None:
    _, path = segment_of(store)
    index = path.with_suffix(".fidx")
    whole = index.read_bytes()
    upkeep = Upkeep(store)
    for spoilt in (b"", b"junk" * 100):
        index.write_bytes(spoilt)
        store.filters = FilterFiles(path.parent)
        assert not upkeep.reindex()
        assert not fetch(store, "/u/j", match_scope=PREFIX, regex="never there").shown
        upkeep.tend()
        assert index.read_bytes() == whole
        assert not upkeep.reindex()
        reads.clear()
        assert not fetch(store, "/u/j", match_scope=PREFIX, regex="never there").shown
        assert len({group for group, columns in reads if "data" in columns}) == 1


def test_a_damaged_segment_stays_without_an_index(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    _, path = segment_of(store)
    path.with_suffix(".fidx").unlink()
    whole = path.read_bytes()
    # Where the first row group lies.
    path.write_bytes(whole[:4] + bytes(4000) + whole[4004:])
    fetch(store, "/u/j", match_scope=PREFIX, regex="never there")
    Upkeep(store).tend()
    assert not path.with_suffix(".fidx").exists()
    assert "it stays without an index" in caplog.text
