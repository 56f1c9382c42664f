"""Kill -9 at every step of what happens to tables: nothing acknowledged is lost or doubled, whatever a crash leaves.

A kill leaves the files as they are at that moment: at each step of the disk the folder is copied, and each copy is then opened.
"""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING

from iris_controller.finelog import compaction, steps
from iris_controller.finelog.tables.keeper import Keeper
from iris_core.wire.rows import batch_of
from tests.unit.tables_world import NOW_MS, OTHER, checked, metrics, opened, stored, values, with_policy

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from iris_controller.finelog.tables.store import TableStore

COPIES = 1
"""Taken of each step at most."""


class Crashes:
    """Copies of a folder, each with the numbers of rows that were acknowledged in both tables until then."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self._root = root
        self.acknowledged = (0, 0)
        self.reached: Counter[str] = Counter()
        self.taken: list[tuple[str, Path, tuple[int, int]]] = []

    def __call__(self, step: str) -> None:
        self.reached[step] += 1
        if self.reached[step] <= COPIES:
            copy = self._root / str(len(self.taken))
            shutil.copytree(self._folder, copy)
            self.taken.append((step, copy, self.acknowledged))


def fill(store: TableStore, crashes: Crashes | None, first: int, files: int) -> None:
    """So many files, a row of each table in each."""
    for number in range(first, first + files):
        row = {"timestamp_ms": NOW_MS, "n": number}
        store.commit(checked(metrics(number, 1), batch_of(OTHER, "p0", number, [row])), NOW_MS)
        if crashes is not None:
            crashes.acknowledged = (number + 1, number + 1)
        store.close_file()


def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MOST", 4)
    folder = tmp_path / "live"
    store = opened(folder)
    keeper = Keeper(store)
    fill(store, None, 0, 2)
    keeper.keep(NOW_MS)
    crashes = Crashes(folder, tmp_path / "copies")
    crashes.acknowledged = (2, 2)
    steps.watch(crashes)
    try:
        # The last of these makes four small segments of each table, which become one.
        fill(store, crashes, 2, 2)
        keeper.keep(NOW_MS)
        fill(store, crashes, 4, 1)
        keeper.keep(NOW_MS)
    finally:
        steps.watch(None)
        store.close()
    assert {"segment: renamed", "catalog: the new one counts", "merge: the segment is there"} <= set(crashes.reached)
    assert "small file: renamed" in crashes.reached
    for step, copy, (count, others) in crashes.taken:
        again = opened(copy)
        found = values(again)
        # A batch that was on its way may be there as well, whole.
        assert found in ([float(n) for n in range(count)], [float(n) for n in range(count + 1)]), step
        assert [row["n"] for row in stored(again, OTHER)] in (list(range(others)), list(range(others + 1))), step
        sent = len(found)
        assert again.mark("test.metric", "p0") == sent, step
        again.commit(checked(metrics(0, sent + 2)), NOW_MS)
        Keeper(again).keep(NOW_MS)
        assert values(again) == [float(n) for n in range(sent + 2)], step
        again.close()
        assert not [*copy.rglob("*.tmp")], step


def test_a_kill_while_rows_age_out_brings_none_back(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    store = opened(folder)
    store.register(with_policy(max_segments=1))
    for number in range(3):
        fill(store, None, number, 1)
        Keeper(store).keep(NOW_MS)
    fill(store, None, 3, 1)
    crashes = Crashes(folder, tmp_path / "copies")
    steps.watch(crashes)
    try:
        Keeper(store).keep(NOW_MS)
    finally:
        steps.watch(None)
        store.close()
    for step, copy, _ in crashes.taken:
        again = opened(copy)
        assert values(again) in ([2], [2, 3], [3]), step
        Keeper(again).keep(NOW_MS)
        assert values(again) == [3], step
        (repeat,) = checked(metrics(0, 4))
        again.commit([repeat], NOW_MS)
        assert (repeat.stored, values(again)) == (0, [3]), step
        again.close()
