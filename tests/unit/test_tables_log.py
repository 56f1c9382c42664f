"""The table `log`: every line once for every query, whatever is written and converted in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from iris_controller.finelog.store import Store
from iris_controller.finelog.tables import log_tail
from iris_controller.finelog.tables.log_table import LogTable
from iris_controller.finelog.upkeep import Upkeep
from tests.unit.finelog_world import numbered, put

if TYPE_CHECKING:
    from pathlib import Path


def seqs(table: LogTable, scratch: Path) -> list[int]:
    """Of every line that a query would read, in its own folder."""
    notes: list[str] = []
    with table.open(scratch, notes) as files:
        found = [seq for file in files for seq in pq.read_table(file, columns=["seq"])["seq"].to_pylist()]
    assert not notes
    return sorted(found)


def test_every_line_is_there_once_in_each_query(tmp_path: Path) -> None:
    store = Store(tmp_path / "logs", file_limit=1500)
    table = LogTable(store)
    upkeep = Upkeep(store)
    count = 0
    assert seqs(table, tmp_path / "q") == []
    for round_ in range(3 * log_tail.MOST_PIECES):
        put(store, numbered(3, first=3 * round_), numbered(2, first=2 * round_, producer="p1", key="/u/j/1:0"))
        count += 5
        if round_ == 15:
            assert store.sealed.wait(60)
            upkeep.tend()
            assert store.view().segments
        # Two queries at once: each has links of its own.
        with table.open(tmp_path / f"a{round_}", []) as files:
            assert seqs(table, tmp_path / f"b{round_}") == list(range(1, count + 1))
            found = [seq for file in files for seq in pq.read_table(file, columns=["seq"])["seq"].to_pylist()]
            assert sorted(found) == list(range(1, count + 1))
    kept = list((tmp_path / "logs" / "stats" / "tail").iterdir())
    assert len(kept) <= log_tail.MOST_PIECES * len(store.files)
    status = table.status()
    assert (status.rows, status.min_seq, status.max_seq) == (count, 1, count)
    store.close()
