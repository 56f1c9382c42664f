"""Segments and their catalog: what is written is read back, by key, by row group and after any stop, and damage is told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from iris_controller.finelog.catalog import FILE_NAME, Catalog
from iris_controller.finelog.segment import Segment
from iris_controller.finelog.segment_writer import SegmentWriter, write_segment
from iris_controller.finelog.segments import (
    GROUP_ROWS,
    Layout,
    SegmentDamaged,
    SegmentFile,
    read_footer,
    segment_name,
)
from iris_controller.finelog.trigrams import index_path

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        ("worker_id", pa.string()),
        ("ts", pa.timestamp("ms")),
        ("text", pa.string()),
        ("value", pa.float64()),
    ]
)
LAYOUT = Layout(table="iris.worker", schema=SCHEMA, key="worker_id", time="ts", unique=("text",))


def rows(first: int, count: int, *, keys: int = 3) -> Any:
    """`count` rows whose keys take turns."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "seq": list(numbers),
            "worker_id": [f"w{number % keys}" for number in numbers],
            "ts": pa.array([1000 + number for number in numbers], pa.timestamp("ms")),
            "text": [f"row {number}" for number in numbers],
            "value": [None if number % 5 else number / 2 for number in numbers],
        },
        schema=SCHEMA,
    )


def wrote(folder: Path, first: int, count: int, *, level: int = 0, **more: Any) -> Segment:
    """A segment of such rows."""
    table = rows(first, count, **more)
    return write_segment(
        folder, LAYOUT, table, covers=(first, first + count - 1), level=level, marks={"p": first + count}
    )


def test_rows_come_back_in_the_order_of_key_and_seq(tmp_path: Path) -> None:
    segment = wrote(tmp_path, 1, 40_000)
    opened = SegmentFile.open(tmp_path / segment.name)
    assert opened.segment == segment
    assert (segment.rows, segment.first_key, segment.last_key) == (40_000, "w0", "w2")
    assert (segment.earliest_ms, segment.latest_ms) == (1001, 41_000)
    assert segment.bytes == (tmp_path / segment.name).stat().st_size
    assert [group.rows for group in opened.groups] == [GROUP_ROWS, GROUP_ROWS, 40_000 - 2 * GROUP_ROWS]
    read = pa.Table.from_batches(opened.batches())
    assert read.equals(rows(1, 40_000).sort_by([("worker_id", "ascending"), ("seq", "ascending")]))
    assert opened.footer.marks == {"p": 40_001}
    opened.close()


def test_a_key_is_read_from_its_row_groups_alone(tmp_path: Path) -> None:
    segment = wrote(tmp_path, 1, 40_000, keys=10)
    opened = SegmentFile.open(tmp_path / segment.name)
    assert len(opened.groups_with("w4", "w4")) < len(opened.groups)
    found = pa.Table.from_batches(opened.rows("w3", "w4", ["seq"]))
    expected = [seq for seq in range(1, 40_001) if seq % 10 == 3] + [seq for seq in range(1, 40_001) if seq % 10 == 4]
    assert found.column_names == ["seq"]
    assert found["seq"].to_pylist() == expected
    assert list(opened.rows("x", "z")) == []
    opened.close()


def test_a_table_may_be_sorted_by_its_time(tmp_path: Path) -> None:
    layout = Layout(table="telltale", schema=SCHEMA, key="ts", time="ts")
    segment = write_segment(tmp_path, layout, rows(1, 100), covers=(1, 100))
    opened = SegmentFile.open(tmp_path / segment.name)
    assert (segment.first_key, segment.last_key) == (1001, 1100)
    assert pa.Table.from_batches(opened.rows(1010, 1012))["seq"].to_pylist() == [10, 11, 12]
    opened.close()


def test_rows_may_come_in_pieces_of_any_size(tmp_path: Path) -> None:
    table = rows(1, 50_000, keys=1)
    writer = SegmentWriter(tmp_path, LAYOUT, 1, (1, 50_000))
    start = 0
    for size in (1, 20_000, 16_383, 1, 13_000, 615):
        writer.write(table.slice(start, size))
        start += size
    segment = writer.finish()
    opened = SegmentFile.open(tmp_path / segment.name)
    assert pa.Table.from_batches(opened.batches()).equals(table)
    assert max(group.rows for group in opened.groups) == GROUP_ROWS
    opened.close()


def test_an_abandoned_segment_leaves_nothing(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, LAYOUT, 0, (1, 10))
    writer.write(rows(1, 10))
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_segment_is_for_its_owner_alone(tmp_path: Path) -> None:
    segment = wrote(tmp_path, 1, 10)
    assert (tmp_path / segment.name).stat().st_mode & 0o777 == 0o600


def test_damage_is_an_error_and_never_a_wrong_row(tmp_path: Path) -> None:
    segment = wrote(tmp_path, 1, 3000)
    path = tmp_path / segment.name
    whole = path.read_bytes()
    expected = pa.Table.from_batches(SegmentFile.open(path).batches())
    for place in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            opened = SegmentFile.open(path)
            read = pa.Table.from_batches(opened.batches())
        except SegmentDamaged as error:
            assert path.name in str(error)
        else:
            assert read.equals(expected)
    for length in (0, 3, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(SegmentDamaged):
            read_footer(path)


def test_a_catalog_names_the_segments_of_each_table_in_order(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    folder = catalog.make_folder("iris.worker")
    second, first = wrote(folder, 11, 10), wrote(folder, 1, 10)
    assert catalog.commit("iris.worker", add=[second]) == 1
    assert catalog.commit("iris.worker", add=[first]) == 2
    again = Catalog(tmp_path)
    assert again.revision == 2
    assert again.segments("iris.worker") == (first, second)
    assert again.segments("log") == ()
    with pytest.raises(ValueError, match="overlap"):
        again.commit("iris.worker", add=[wrote(folder, 15, 10, level=1)])
    assert again.segments("iris.worker") == (first, second)


def test_a_file_goes_when_no_snapshot_names_it(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    folder = catalog.make_folder("iris.worker")
    parts = [wrote(folder, 1, 10), wrote(folder, 11, 10)]
    for part in parts:
        catalog.commit("iris.worker", add=[part])
        index_path(folder / part.name).write_bytes(b"index")
    old, older = catalog.snapshot(), catalog.snapshot()
    merged = wrote(folder, 1, 20, level=1)
    catalog.commit("iris.worker", add=[merged], remove=parts)
    new = catalog.snapshot()
    assert [new.segments("iris.worker"), old.segments("iris.worker")] == [(merged,), tuple(parts)]
    assert all(old.path("iris.worker", part).exists() for part in parts)
    old.release()
    old.release()
    assert all((folder / part.name).exists() for part in parts)
    del older
    assert [path.name for path in folder.iterdir()] == [merged.name]
    new.release()
    assert (folder / merged.name).exists()


def test_what_a_stop_left_is_cleaned_at_opening(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    folder = catalog.make_folder("iris.worker")
    kept = wrote(folder, 1, 10)
    catalog.commit("iris.worker", add=[kept])
    index_path(folder / kept.name).write_bytes(b"index")
    wrote(folder, 11, 10)
    (folder / f"{segment_name(0, 21)}.tmp").write_bytes(b"half")
    index_path(folder / segment_name(0, 21)).write_bytes(b"index of nothing")
    (tmp_path / f"{FILE_NAME}.tmp").write_bytes(b"half")
    Catalog(tmp_path)
    assert sorted(os.listdir(folder)) == sorted([kept.name, index_path(folder / kept.name).name])
    assert sorted(os.listdir(tmp_path)) == sorted([FILE_NAME, "iris.worker"])


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_lost_catalog_is_made_anew_from_the_segments(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    catalog = Catalog(tmp_path)
    folder = catalog.make_folder("iris.worker")
    parts = [wrote(folder, 1, 10), wrote(folder, 11, 10), wrote(folder, 21, 10)]
    for part in parts:
        catalog.commit("iris.worker", add=[part])
    # A merge of two that was never committed.
    merged = wrote(folder, 1, 20, level=1)
    path = tmp_path / FILE_NAME
    if how == "missing":
        path.unlink()
    else:
        path.write_text(path.read_text().replace('"rows":10', '"rows":11', 1))
    again = Catalog(tmp_path)
    assert again.segments("iris.worker") == (merged, parts[2])
    assert "made anew from 2 segments" in caplog.text
    assert len(list(folder.iterdir())) == 2


def test_a_change_that_the_disk_refuses_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(tmp_path)
    folder = catalog.make_folder("iris.worker")
    first = wrote(folder, 1, 10)
    catalog.commit("iris.worker", add=[first])

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("iris_controller.finelog.catalog.write_atomically", refuse)
    with pytest.raises(OSError, match="No space"):
        catalog.commit("iris.worker", add=[wrote(folder, 11, 10)], remove=[first])
    assert catalog.segments("iris.worker") == (first,)
    assert (folder / first.name).exists()
