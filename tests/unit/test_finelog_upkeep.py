"""Finished files become segments and segments are merged, in the background: what is kept, what is said, and what damage costs."""

from __future__ import annotations

import errno
import logging
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from iris_controller.finelog import compaction
from iris_controller.finelog.catalog import LOG
from iris_controller.finelog.health import store_health
from iris_controller.finelog.retention import Policy, surplus
from iris_controller.finelog.segment import Segment
from iris_controller.finelog.segment_writer import write_segment
from iris_controller.finelog.segments import Layout, SegmentFile, read_footer
from iris_controller.finelog.store import Store
from iris_controller.finelog.upkeep import Upkeep
from tests.unit.finelog_world import NOW_MS, PREFIX, batch, fetch, numbered, page, put, texts

if TYPE_CHECKING:
    from pathlib import Path

KEY = "/u/j/0:0"
LIMIT = 3000


def settle(store: Store) -> None:
    """Waits until the finished files have their indexes."""
    store._keeper.submit(lambda: None).result()


def filled(folder: Path, *, groups: int = 30, **more: Any) -> Store:
    """10 lines per group, in several finished files."""
    store = Store(folder, file_limit=LIMIT, **more)
    for group in range(groups):
        put(store, numbered(10, first=group * 10))
    settle(store)
    return store


def segment_paths(store: Store) -> list[Path]:
    """Where the segments of the log are, oldest first."""
    return [store.catalog.folder_of(LOG) / segment.name for segment in store.catalog.segments(LOG)]


def spoil(path: Path, where: str) -> None:
    """Changes a byte in the page of the texts, or in the footer."""
    footer = read_footer(path)
    raw = bytearray(path.read_bytes())
    column = footer.metadata.row_group(0).column(footer.schema.get_field_index("data"))
    middle = column.data_page_offset + column.total_compressed_size // 2
    raw[middle if where == "a page" else len(raw) - 100] ^= 0x55
    path.write_bytes(raw)


def test_a_store_of_files_only_opens_and_is_converted(tmp_path: Path) -> None:
    filled(tmp_path).close()
    told = (tmp_path / "store.json").read_text()
    (tmp_path / "store.json").write_text(told.replace('"format": 2', '"format": 1'))
    store = Store(tmp_path, file_limit=LIMIT)
    settle(store)
    assert '"format": 2' in (tmp_path / "store.json").read_text()
    Upkeep(store).tend()
    assert len(list(tmp_path.glob("wal-*.log"))) == len(store.files) == 1
    assert not list(tmp_path.glob("wal-*.idx"))
    assert texts(page(store, KEY)) == [f"line {number}" for number in range(300)]
    assert store.mark("p0") == 300
    store.close()


def test_a_thread_converts_what_is_finished_while_lines_come(tmp_path: Path) -> None:
    store = Store(tmp_path, file_limit=LIMIT)
    upkeep = Upkeep(store, targets=(15_000, 40_000))
    upkeep.start()
    for group in range(60):
        put(store, numbered(10, first=group * 10))
        assert fetch(store, KEY, tail=True, max_lines=1).entries[0].number == group * 10 + 9
    deadline = threading.Event()
    for _ in range(600):
        if len(store.files) == 1 and any(one.level for one in store.catalog.segments(LOG)):
            break
        deadline.wait(0.05)
    upkeep.close()
    assert len(store.files) == 1
    assert texts(page(store, KEY)) == [f"line {number}" for number in range(600)]
    store.close()


def test_files_that_a_reader_holds_stay_until_it_lets_go(tmp_path: Path) -> None:
    store = filled(tmp_path)
    before = sorted(tmp_path.glob("wal-*.log"))
    view = store.view()
    Upkeep(store, targets=(10_000, 20_000)).tend()
    assert sorted(tmp_path.glob("wal-*.log")) == before
    view.release()
    assert sorted(tmp_path.glob("wal-*.log")) == before[-1:]
    assert sorted(store.catalog.folder_of(LOG).glob("*.parquet")) == sorted(segment_paths(store))
    store.close()


def test_marks_and_losses_outlive_the_files_they_came_from(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = filled(tmp_path)
    victim = store.files[1]
    store.close()
    raw = bytearray(victim.path.read_bytes())
    raw[-1] ^= 1
    victim.path.write_bytes(raw)
    store = Store(tmp_path, file_limit=LIMIT)
    settle(store)
    Upkeep(store).tend()
    assert "are lost, the rest is served" in caplog.text
    lost = store.ledger.losses[0]
    store.close()
    (tmp_path / "ledger.json").unlink()
    store = Store(tmp_path, file_limit=LIMIT)
    assert store.mark("p0") == 300, "segments tell how far a producer got"
    assert {line.seq for line in page(store, KEY)} == set(range(1, 301)) - set(range(lost.first_seq, lost.last_seq + 1))
    store.close()


@pytest.mark.parametrize("where", ["a page", "the footer", "the file"])
def test_a_damaged_segment_is_named_and_the_rest_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    store = filled(tmp_path, groups=60)
    Upkeep(store).tend()
    hit = store.catalog.segments(LOG)[1]
    path = segment_paths(store)[1]
    store.close()
    if where == "the file":
        path.unlink()
    else:
        spoil(path, where)
    store = Store(tmp_path, file_limit=LIMIT)
    kept = set(range(1, 601)) - set(range(hit.first_seq, hit.last_seq + 1))
    for tail in (False, True):
        answer = fetch(store, KEY, tail=tail)
        assert {line.seq for line in answer.entries} == kept
        assert answer.capped
        assert f"lines with seq {hit.first_seq} to {hit.last_seq} are lost to damage on disk" in answer.capped_reason
        assert where == "the file" or f"{path.name}" in answer.capped_reason
    assert hit.name in caplog.text
    assert not fetch(store, KEY, cursor=hit.last_seq).capped
    # What lies on both sides is merged all the same, and new lines come in.
    upkeep = Upkeep(store, targets=(15_000, 1 << 30))
    upkeep.tend()
    assert any(segment.level == 1 for segment in store.catalog.segments(LOG))
    put(store, numbered(10, first=600))
    assert {line.seq for line in page(store, KEY)} == kept | set(range(601, 611))
    store.close()


def test_a_full_disk_is_said_changes_nothing_and_is_got_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path)
    upkeep = Upkeep(store, targets=(15_000, 40_000))

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for step in (
        "segment_writer.sync_folder",
        "segment_writer.create",
        "catalog.write_atomically",
        "ledger.write_atomically",
    ):
        with monkeypatch.context() as broken:
            broken.setattr(f"iris_controller.finelog.{step}", refuse)
            for _ in range(2):
                upkeep.tend()
            assert store.upkeep_fault == "No space left on device"
            health = store_health(store, fault="", last_line_at_ms=0, waiting_readers=0, release="")
            assert (health.state, "cannot write segments (No space left" in health.problem) == ("serving", True)
        assert len(store.catalog.segments(LOG)) == 0
        put(store, numbered(1, first=store.mark("p0")))
        assert len(page(store, KEY)) == store.mark("p0")
    assert caplog.text.count("they stay as they are until it can") == 1, "said once a minute"
    upkeep.tend()
    assert store.upkeep_fault == ""
    assert "written again after: No space left on device" in caplog.text
    assert any(segment.level == 1 for segment in store.catalog.segments(LOG))
    assert len(page(store, KEY)) == store.mark("p0")
    assert not list(tmp_path.rglob("*.tmp"))
    store.close()


def test_retention_removes_the_oldest_segments_and_says_of_each_log_how_much(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "iris.finelog")
    store = Store(tmp_path, file_limit=LIMIT, policy=Policy(max_segments=2))
    put(store, batch(["early"], key="/u/k/0:0", producer="k"))
    for group in range(30):
        put(store, numbered(10, first=group * 10))
    settle(store)
    Upkeep(store).tend()
    assert len(store.catalog.segments(LOG)) == 2
    removed = store.ledger.removed_seq
    answer = fetch(store, KEY)
    assert [line.seq for line in answer.entries] == list(range(removed + 1, 302))
    assert f"{removed - 1:,} older lines were removed by retention, up to seq {removed}" in answer.capped_reason
    assert "1 older lines were removed" in fetch(store, "/u/k/0:0").capped_reason
    assert "which is beyond what is kept" in caplog.text
    store.close()
    store = Store(tmp_path, file_limit=LIMIT)
    assert fetch(store, KEY) == answer
    assert store.mark("k") == 1
    store.close()


def test_bytes_of_segments_and_files_count_together(tmp_path: Path) -> None:
    store = filled(tmp_path, groups=60)
    Upkeep(store).tend()
    most = store.total_bytes - 5_000
    store.close()
    store = Store(tmp_path, file_limit=LIMIT, max_bytes=most)
    Upkeep(store).tend()
    assert most - 10_000 < store.total_bytes <= most
    assert page(store, KEY)[-1].number == 599
    store.close()


def made(number: int, *, level: int = 0, size: int = 10, created_ms: int = 0) -> Segment:
    """A segment as the catalog has it, 10 rows from `number` times 10."""
    first = number * 10
    return Segment(f"{level}-{number}", level, first, first + 9, 10, size, "a", "b", 0, 0, created_ms)


def test_what_is_surplus_is_a_prefix_by_age_bytes_or_number() -> None:
    segments = [made(number, created_ms=number * 100) for number in range(10)]
    assert surplus(segments, Policy(), 10_000) == []
    assert surplus(segments, Policy(max_segments=7), 0) == segments[:3]
    assert surplus(segments, Policy(max_bytes=55), 0) == segments[:5]
    assert surplus(segments, Policy(max_bytes=55), 0, other_bytes=10) == segments[:6]
    assert surplus(segments, Policy(max_age_ms=1000), 1250) == segments[:3]
    assert surplus(segments, Policy(max_age_ms=1000, max_segments=5), 1250) == segments[:5]


def test_a_merge_takes_the_shortest_prefix_that_is_large_enough() -> None:
    assert compaction.plan([], (50, 200)) == ()
    zeros = [made(number) for number in range(9)]
    assert compaction.plan(zeros, (50, 200)) == tuple(zeros[:5])
    assert compaction.plan(zeros[:4], (50, 200)) == ()
    many = [made(number, size=1) for number in range(40)]
    assert compaction.plan(many, (50, 200)) == tuple(many[:32])
    ones = [made(number, level=1, size=60) for number in range(4)]
    assert compaction.plan([*ones, *(made(4 + number) for number in range(3))], (50, 200)) == tuple(ones)
    twos = [made(number, level=2, size=1) for number in range(40)]
    assert compaction.plan(twos, (50, 200)) == (), "the last level stays as it is"
    cold = [*zeros[:2], replace(zeros[2], object="elsewhere"), *zeros[3:]]
    assert compaction.plan(cold, (50, 200)) == tuple(zeros[3:8])
    assert compaction.plan(zeros, (50, 200), apart={"0-2"}) == tuple(zeros[3:8]), "never across one that is left alone"


@pytest.mark.parametrize("key", ["name", "ts", "number", "maybe"])
def test_any_table_is_merged_by_its_key(tmp_path: Path, key: str) -> None:
    schema = pa.schema(
        [
            ("seq", pa.int64()),
            ("name", pa.string()),
            ("ts", pa.timestamp("ms")),
            ("number", pa.int64()),
            ("maybe", pa.string()),
        ]
    )
    layout = Layout(table="t", schema=schema, key=key, time="ts")
    parts, tables = [], []
    for part in range(3):
        seqs = list(range(part * 40_000 + 1, part * 40_000 + 40_001))
        table = pa.table(
            {
                "seq": seqs,
                "name": [f"n{seq * 7919 % 5}" for seq in seqs],
                "ts": pa.array([seq * 7919 % 9000 for seq in seqs], pa.timestamp("ms")),
                "number": [seq * 7919 % 30_000 for seq in seqs],
                "maybe": [None if seq % 3 == 0 else f"m{seq % 4}" for seq in seqs],
            },
            schema=schema,
        )
        # A column that came later is missing in what is older.
        written = layout if part else Layout("t", schema.remove(3), key, "ts")
        if part == 0 and key != "number":
            tables.append(table.set_column(3, "number", pa.nulls(len(seqs), pa.int64())))
            table = table.drop_columns("number")
        else:
            written = layout
            tables.append(table)
        parts.append(
            write_segment(tmp_path, written, table, covers=(seqs[0], seqs[-1]), marks={"p": part, f"q{part}": 1})
        )
    rests: list[float] = []
    merged = compaction.merge(tmp_path, layout, parts, rests.append, lambda *_: None)
    assert (merged.level, merged.first_seq, merged.last_seq, merged.rows) == (1, 1, 120_000, 120_000)
    opened = SegmentFile.open(tmp_path / merged.name)
    expected = pa.concat_tables(tables).sort_by([(key, "ascending"), ("seq", "ascending")])
    assert pa.Table.from_batches(opened.batches()).equals(expected)
    assert opened.footer.marks == {"p": 2, "q0": 1, "q1": 1, "q2": 1}
    assert len(rests) > 5, "it gives way between pieces"
    opened.close()


def test_bounds_and_counts_hold_for_lines_of_any_kind(tmp_path: Path) -> None:
    """Large lines make small row groups; an empty text, bytes that are no text and far times come back as they were."""
    store = Store(tmp_path, file_limit=1 << 20)
    lines = ["x" * 200_000, "", "\0", "ü" * 1000, "y" * 250_000] * 3
    odd = batch(lines, at_ms=1)
    for place, entry in enumerate(odd.entries):
        entry.epoch_ms = (1 << 61) - place if place % 2 else -5 - place
        entry.raw = b"\xff\x00" if place % 3 == 0 else b""
    put(store, odd)
    put(store, batch(["young"], key="/u/k/0:0", producer="k"))
    before = page(store, "/u", match_scope=PREFIX)
    mine = sorted((line for line in before if line.key == KEY and line.epoch_ms > NOW_MS), key=lambda line: line.seq)
    settle(store)
    Upkeep(store).tend()
    assert len(store.catalog.segments(LOG)) == 1
    assert page(store, "/u", match_scope=PREFIX) == before
    assert page(store, KEY, since_ms=NOW_MS) == mine
    store.close()


def test_a_disk_that_refuses_a_read_leaves_out_no_more_than_it_must_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path)
    Upkeep(store).tend()
    hit = store.catalog.segments(LOG)[1]
    whole = fetch(store, KEY)
    read = SegmentFile.read

    def refuse(self: SegmentFile, group: int, columns: Any = None) -> Any:
        if self.segment == hit:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return read(self, group, columns)

    with monkeypatch.context() as broken:
        broken.setattr(SegmentFile, "read", refuse)
        answer = fetch(store, KEY)
    assert answer.shown == 300 - hit.rows
    assert f"{hit.name} cannot be read: Too many open files" in answer.capped_reason
    assert not store.ledger.losses
    assert fetch(store, KEY) == whole
    store.close()
