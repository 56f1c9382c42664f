"""The store of registered tables: exact delivery, restarts, segments, damage, retention, and a disk that fails."""

from __future__ import annotations

import errno
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.finelog import compaction
from iris_controller.finelog.segment import Segment
from iris_controller.finelog.tables.keeper import Keeper, expired
from iris_controller.finelog.tables.store import TableStore
from iris_controller.rpc.errors import RpcError
from iris_core.model.tables import Column, ColumnType, StoragePolicy
from iris_core.wire.rows import batch_of
from tests.unit.tables_world import METRIC, NOW_MS, OTHER, checked, metric, metrics, opened, stored, values, with_policy

if TYPE_CHECKING:
    from pathlib import Path


def keep(store: TableStore, now_ms: int = NOW_MS) -> None:
    """What the thread would do, now."""
    store.close_file()
    Keeper(store).keep(now_ms)


def numbers(count: int) -> list[float]:
    return [float(number) for number in range(count)]


def test_rows_are_read_back_with_seqs_and_nulls(tmp_path: Path) -> None:
    store = opened(tmp_path)
    rows = [metric(0, labels={"a": "b"}), metric(1) | {"value": None}]
    assert store.commit(checked(batch_of(METRIC, "p0", 0, rows)), NOW_MS) == {"test.metric"}
    for _ in range(2):
        first, second = stored(store)
        assert (first["seq"], first["name"], first["value"], first["labels"]) == (1, "m0", 0.0, [("a", "b")])
        assert (second["seq"], second["value"], second["labels"]) == (2, None, None)
        keep(store)
    status = store.status("test.metric")
    assert (status.rows, status.segments, status.pending_rows, status.min_seq, status.max_seq) == (2, 1, 0, 1, 2)
    assert (status.earliest_ms, status.latest_ms, status.columns) == (NOW_MS, NOW_MS + 1, 4)
    store.close()


def test_its_times_are_those_of_all_rows_in_segments_or_not(tmp_path: Path) -> None:
    store = opened(tmp_path)
    seen: list[tuple[int, int]] = []
    for number in (5, 9, 2):
        store.commit(checked(batch_of(METRIC, "p0", len(seen), [metric(number)])), NOW_MS)
        status = store.status("test.metric")
        assert status.pending_rows == 1
        seen.append((status.earliest_ms - NOW_MS, status.latest_ms - NOW_MS))
        if number != 2:
            keep(store)
    assert seen == [(5, 5), (5, 9), (2, 9)]
    store.close()
    again = opened(tmp_path)
    status = again.status("test.metric")
    assert (status.pending_rows, status.earliest_ms, status.latest_ms) == (1, NOW_MS + 2, NOW_MS + 9)
    again.close()


def test_a_repeat_is_dropped_and_a_jump_is_counted(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.commit(checked(metrics(0, 3)), NOW_MS)
    again, other = checked(metrics(0, 5), metrics(4, 1, "p1"))
    store.commit([again, other], NOW_MS)
    assert (again.stored, again.missing, other.stored, other.missing) == (2, 0, 1, 4)
    assert values(store) == [0, 1, 2, 3, 4, 4]
    assert (store.mark("test.metric", "p0"), store.mark("test.metric", "p1")) == (5, 5)
    assert store.mark("test.other", "p0") == 0, "each table has its own numbers"
    status = store.status("test.metric")
    assert (status.missing_rows, status.producers) == (4, 2)
    store.close()


def test_twice_in_one_group_is_stored_once(tmp_path: Path) -> None:
    store = opened(tmp_path)
    first, second = checked(metrics(0, 3), metrics(0, 3))
    store.commit([first, second], NOW_MS)
    assert (first.stored, second.stored) == (3, 0)
    assert values(store) == numbers(3)
    store.close()


def test_a_batch_of_a_table_that_is_gone_is_refused_alone(tmp_path: Path) -> None:
    store = opened(tmp_path, namespaces=(OTHER,))
    store.register(METRIC)
    lost, kept = checked(metrics(0, 1), batch_of(OTHER, "p0", 0, [{"timestamp_ms": 1, "n": 1}]))
    store.drop("test.metric")
    assert store.commit([lost, kept], NOW_MS) == {"test.other"}
    assert lost.refused is not None and lost.refused.code == "unknown_table"
    store.close()


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(["push", "again", "other", "keep", "restart", "kill", "forget"]), max_size=12))
def test_whatever_happens_every_row_is_there_once(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    """`kill` leaves the files as they are; `forget` loses the books as well."""
    folder = tmp_path_factory.mktemp("tables")
    store = opened(folder)
    sent = others = 0
    for step in steps:
        match step:
            case "push":
                store.commit(checked(metrics(sent, 3)), NOW_MS)
                sent += 3
            case "again":
                store.commit(checked(metrics(max(0, sent - 4), 4)), NOW_MS)
                sent = max(sent, 4)
            case "other":
                store.commit(checked(batch_of(OTHER, "p0", others, [{"timestamp_ms": 1, "n": others}])), NOW_MS)
                others += 1
            case "keep":
                keep(store)
            case "restart":
                store.close()
                store = opened(folder)
            case "kill":
                copy = tmp_path_factory.mktemp("killed")
                shutil.copytree(folder, copy, dirs_exist_ok=True)
                store.close()
                folder, store = copy, opened(copy)
            case "forget":
                store.close()
                (folder / "stats" / "books.json").unlink(missing_ok=True)
                store = opened(folder)
        assert values(store) == numbers(sent)
        assert store.mark("test.metric", "p0") == sent
        assert [row["n"] for row in stored(store, OTHER)] == list(range(others))
        seqs = [row["seq"] for row in stored(store)]
        assert seqs == sorted(set(seqs))
    store.close()
    shutil.rmtree(folder)


def test_a_torn_tail_goes_and_damage_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(tmp_path)
    for first in (0, 2, 4):
        store.commit(checked(metrics(first, 2)), NOW_MS)
    (wal,) = (tmp_path / "stats").glob("wal-*.log")
    whole = wal.read_bytes()
    store.close()
    # A write that the power cut in half was never acknowledged.
    wal.write_bytes(whole + whole[-100:-20])
    store = opened(tmp_path)
    assert values(store) == numbers(6)
    assert not store.lost_notes()
    store.close()
    middle = whole.index(b"test.metric", whole.index(b"test.metric") + 1)
    wal.write_bytes(whole[:middle] + b"XXXX" + whole[middle + 4 :])
    store = opened(tmp_path)
    assert values(store) == [0, 1, 4, 5]
    assert store.lost_notes() == ["2 acknowledged rows were lost to damage of the disk, of one table or several"]
    assert "rows with seq 3 to 4 are lost" in caplog.text
    # Its producer got as far as before: nothing is asked for again, and nothing doubled.
    store.commit(checked(metrics(6, 1)), NOW_MS)
    keep(store)
    assert values(store) == [0, 1, 4, 5, 6]
    store.close()


def test_a_disk_that_fails_takes_nothing_and_goes_on(tmp_path: Path) -> None:
    failing = [False]

    def sync(_: int) -> None:
        if failing[0]:
            raise OSError(errno.ENOSPC, "No space left on device")

    store = opened(tmp_path, sync=sync)
    store.commit(checked(metrics(0, 1)), NOW_MS)
    failing[0] = True
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            store.commit(checked(metrics(1, 1)), NOW_MS)
    assert values(store) == [0]
    failing[0] = False
    store.commit(checked(metrics(1, 1)), NOW_MS)
    assert values(store) == [0, 1]
    store.close()
    store = opened(tmp_path)
    assert values(store) == [0, 1]
    store.close()


def test_a_full_file_gives_way_to_the_next(tmp_path: Path) -> None:
    store = opened(tmp_path, file_limit=500)
    for first in range(0, 200, 20):
        store.commit(checked(metrics(first, 20)), NOW_MS)
    assert len(store.closed_files()) > 2
    Keeper(store).keep(NOW_MS)
    assert not store.closed_files()
    assert store.status("test.metric").segments > 2
    assert values(store) == numbers(200)
    store.close()


def test_small_segments_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MOST", 4)
    store = opened(tmp_path)
    for number in range(5):
        store.commit(checked(metrics(number, 1)), NOW_MS)
        store.close_file()
        if number == 3:
            # Merged after a column was added.
            wider = replace(METRIC, columns=(*METRIC.columns, Column("extra", ColumnType.INT64, nullable=True)))
            store.register(wider)
    Keeper(store).keep(NOW_MS)
    assert [(one.level, one.rows) for one in store.catalog.segments("test.metric")] == [(1, 4), (0, 1)]
    assert values(store) == numbers(5)
    assert [row["extra"] for row in stored(store)] == [None] * 5
    # The marks went along.
    store.close()
    (tmp_path / "stats" / "books.json").unlink()
    store = opened(tmp_path)
    assert store.mark("test.metric", "p0") == 5
    store.close()


def test_a_view_holds_what_it_saw(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.commit(checked(metrics(0, 2)), NOW_MS)
    keep(store)
    with store.view(["test.metric"]) as view:
        store.drop("test.metric")
        paths = view.tables["test.metric"].paths()
        assert all(path.exists() for path in paths)
    assert not any(path.exists() for path in paths)
    store.close()


# Registration ------------------------------------------------------------------------------------------------------


def test_registering_again_grows_and_survives(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.commit(checked(metrics(0, 1)), NOW_MS)
    keep(store)
    wider = replace(METRIC, columns=(*METRIC.columns, Column("extra", ColumnType.INT64, nullable=True)))
    assert store.register(wider) == (wider, False, ("extra",))
    assert store.register(wider) == (wider, False, ())
    store.commit(checked(batch_of(wider, "p0", 1, [metric(1, extra=7)]), tables=[wider]), NOW_MS)
    store.close()
    store = opened(tmp_path)
    assert store.tables["test.metric"] == wider, "the store's own schema does not take a column away"
    assert [row["extra"] for row in stored(store)] == [None, 7]
    with pytest.raises(RpcError, match="missing now") as refused:
        store.register(METRIC)
    assert (refused.value.status, refused.value.code, refused.value.field) == (
        "INVALID_ARGUMENT",
        "schema",
        "schema.columns",
    )
    store.close()


def test_an_own_table_that_is_dropped_is_there_again_at_once(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.register(with_policy(max_segments=1))
    store.commit(checked(metrics(0, 2)), NOW_MS)
    assert store.drop("test.metric")[0] == 2
    for _ in range(2):
        assert (stored(store), store.mark("test.metric", "p0"), store.tables["test.metric"]) == ([], 0, METRIC)
        keep(store)
        store.close()
        store = opened(tmp_path)
    store.commit(checked(metrics(2, 1)), NOW_MS)
    assert values(store) == [2]
    store.close()


def test_a_dropped_table_comes_back_empty(tmp_path: Path) -> None:
    store = opened(tmp_path, namespaces=())
    store.register(METRIC)
    store.commit(checked(metrics(0, 2)), NOW_MS)
    keep(store)
    store.commit(checked(metrics(2, 2)), NOW_MS)
    assert store.drop("test.metric")[0] == 4
    with pytest.raises(RpcError, match="no table"):
        store.drop("test.metric")
    other = replace(METRIC, columns=(METRIC.columns[0], Column("ts", ColumnType.TIMESTAMP_MS)))
    assert store.register(other) == (other, True, ())
    for _ in range(2):
        assert stored(store) == []
        assert store.mark("test.metric", "p0") == 0
        keep(store)
        store.close()
        store = TableStore(tmp_path / "stats", store.catalog, namespaces=())
    store.commit(checked(batch_of(other, "p0", 0, [{"name": "x", "ts": 5}]), tables=[other]), NOW_MS)
    assert [row["name"] for row in stored(store)] == ["x"]
    store.close()


def test_a_damaged_registry_costs_no_row_of_an_own_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(tmp_path)
    store.commit(checked(metrics(0, 2)), NOW_MS)
    keep(store)
    store.close()
    path = tmp_path / "stats" / "registry.json"
    path.write_text(path.read_text().replace("test.metric", "test.metrik"))
    store = opened(tmp_path)
    assert "checksum" in caplog.text
    assert values(store) == numbers(2)
    assert store.mark("test.metric", "p0") == 2
    store.close()


# Retention ---------------------------------------------------------------------------------------------------------


def segment(first_seq: int, latest_ms: int, *, size: int = 10, created_ms: int = NOW_MS) -> Segment:
    return Segment(f"s{first_seq}", 0, first_seq, first_seq, 1, size, "a", "a", latest_ms, latest_ms, created_ms)


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        (StoragePolicy(), []),
        (StoragePolicy(max_age_seconds=60), [1, 2]),
        (StoragePolicy(max_age_seconds=5), [1, 2]),
        (StoragePolicy(max_segments=3), [1]),
        (StoragePolicy(max_bytes=25), [1, 2]),
        (StoragePolicy(max_segments=1, max_bytes=10), [1, 2, 3]),
    ],
)
def test_what_a_policy_no_longer_keeps(policy: StoragePolicy, gone: list[int]) -> None:
    old, ahead = NOW_MS - 100_000, NOW_MS + 10**9
    segments = (segment(1, old), segment(2, old), segment(3, NOW_MS), segment(4, ahead))
    assert [one.first_seq for one in expired(segments, policy, NOW_MS)] == gone


def test_rows_from_a_clock_that_is_ahead_do_not_stay_for_ever() -> None:
    ahead = (segment(1, NOW_MS + 10**12, created_ms=NOW_MS),)
    policy = StoragePolicy(max_age_seconds=60)
    assert not expired(ahead, policy, NOW_MS + 60_000)
    assert expired(ahead, policy, NOW_MS + 60_001)


def test_retention_counts_what_it_removes_and_repeats_stay_known(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.register(with_policy(max_segments=1))
    for first in (0, 2, 4):
        store.commit(checked(metrics(first, 2)), NOW_MS)
        keep(store)
    assert values(store) == [4, 5]
    assert store.status("test.metric").removed_rows == 4
    store.close()
    store = opened(tmp_path)
    assert store.tables["test.metric"].policy == StoragePolicy(max_segments=1), "set by an operator, it stays"
    (again,) = checked(metrics(0, 6))
    store.commit([again], NOW_MS)
    assert (again.stored, values(store)) == (0, [4, 5])
    assert len(list((tmp_path / "tables" / "test.metric").glob("*.parquet"))) == 1
    store.close()
