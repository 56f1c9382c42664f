"""Kill -9 at every step: whatever a crash leaves, nothing acknowledged is lost or doubled, and the store goes on from there.

A kill leaves the files as they are at that moment. So one store lives through everything a store does, and at each step its folder is
copied; each copy is then opened as after a crash. The steps are found in the source: one that is never reached fails the test.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import iris_controller.finelog
from iris_controller.finelog import steps
from iris_controller.finelog.catalog import LOG
from iris_controller.finelog.retention import Policy
from iris_controller.finelog.store import Store
from iris_controller.finelog.upkeep import Upkeep
from tests.unit.finelog_world import PREFIX, numbered, page, put

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_core.wire.gen.iris.v1 import logs_pb2

from pathlib import Path

FILE_LIMIT = 900
TARGETS = (9_000, 9_000)
COPIES = 2
"""Copies taken of each step at most, the first ones of each round."""

Lines = dict[tuple[str, int], int]
"""Producer and number → seq."""


class Crashes:
    """Copies the folder at each step, with what was acknowledged until then and what was on its way."""

    def __init__(self, store_folder: Path, root: Path) -> None:
        self._store_folder = store_folder
        self._root = root
        self.acknowledged: Lines = {}
        self.levels: set[int] = set()
        self.on_its_way: list[logs_pb2.LogBatch] = []
        self.reached: Counter[str] = Counter()
        self.taken: list[tuple[str, Path, Lines, list[Any]]] = []

    def __call__(self, step: str) -> None:
        self.reached[step] += 1
        if self.reached[step] > COPIES:
            return
        copy = self._root / f"{len(self.taken)}"
        shutil.copytree(self._store_folder, copy)
        self.taken.append((step, copy, dict(self.acknowledged), list(self.on_its_way)))


def steps_in_source() -> set[str]:
    """Every step that finelog names."""
    folder = Path(iris_controller.finelog.__file__).parent
    return {name for path in folder.glob("*.py") for name in re.findall(r'reached\(\s*"([^"]+)"', path.read_text())}


def lines_of(store: Store) -> Lines:
    """All lines, each once."""
    found: Lines = {}
    for line in page(store, "/u", match_scope=PREFIX, max_lines=50):
        assert (line.attempt_uid, line.number) not in found, "a line is there twice"
        found[line.attempt_uid, line.number] = line.seq
    return found


def groups(round_: int) -> Iterator[list[logs_pb2.LogBatch]]:
    """What is pushed: two producers, a few lines at a time."""
    for step in range(3):
        first = (round_ * 3 + step) * 6
        yield [
            numbered(6, first=first),
            numbered(6, first=first, producer="p1", key="/u/j/1:0"),
        ]


def live(folder: Path, crashes: Crashes) -> Store:
    """Pushes, finishes files, converts, merges and removes, a few times over."""
    store = in_one_thread(Store(folder, file_limit=FILE_LIMIT))
    for round_ in range(7):
        if round_ == 5:
            # From now on little is kept.
            store.close()
            store = in_one_thread(Store(folder, file_limit=FILE_LIMIT, policy=Policy(max_segments=2)))
        upkeep = Upkeep(store, targets=TARGETS)
        for group in groups(round_):
            crashes.on_its_way = group
            put(store, *group)
            crashes.acknowledged.update(lines_of(store))
            crashes.on_its_way = []
        upkeep.tend()
        crashes.levels |= {one.level for one in store.catalog.segments(LOG)}
    return store


class Inline(ThreadPoolExecutor):
    """Does at once what the store's own thread would do, so that nothing moves while a folder is copied."""

    def submit(self, call: Any, /, *args: Any, **_: Any) -> Future[Any]:
        call(*args)
        return Future()


def in_one_thread(store: Store) -> Store:
    """The store without a thread of its own."""
    store._keeper.shutdown(wait=True)
    store._keeper = Inline(1)
    return store


def settle(store: Store) -> None:
    """Waits until the store's own thread has nothing to do."""
    store._keeper.submit(lambda: None).result()


def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    crashes = Crashes(folder, tmp_path)
    steps.watch(crashes)
    try:
        store = live(folder, crashes)
    finally:
        steps.watch(None)
    assert store.ledger.removed_seq, "retention removed something"
    assert crashes.levels == {0, 1, 2}, "segments were merged twice"
    store.close()
    assert set(crashes.reached) == steps_in_source()
    for step, copy, acknowledged, on_its_way in crashes.taken:
        opened = Store(copy, file_limit=FILE_LIMIT)
        check(step, opened, acknowledged, on_its_way)
        # A producer that had no answer sends again; everything else goes on, too.
        if on_its_way:
            put(opened, *on_its_way)
        settle(opened)
        Upkeep(opened, targets=TARGETS).tend()
        check(step, opened, acknowledged, on_its_way, all_of_it=True)
        opened.close()
        again = Store(copy)
        check(step, again, acknowledged, on_its_way, all_of_it=True)
        assert not [path for path in copy.rglob("*.tmp")], step
        again.close()


def check(
    step: str, store: Store, acknowledged: Lines, on_its_way: list[logs_pb2.LogBatch], *, all_of_it: bool = False
) -> None:
    """What was acknowledged is there once under its seq, of the rest a beginning; retention is told of what it took."""
    found = lines_of(store)
    kept = {line: seq for line, seq in acknowledged.items() if seq > store.ledger.removed_seq}
    assert kept.items() <= found.items(), step
    more = {(batch.producer, entry.number) for batch in on_its_way for entry in batch.entries}
    assert found.keys() - kept.keys() <= more, step
    assert not store.ledger.losses, step
    for producer in ("p0", "p1"):
        numbers = [number for name, number in acknowledged if name == producer] + [
            number for name, number in found if name == producer
        ]
        assert store.mark(producer) == max(numbers, default=-1) + 1, step
    if all_of_it:
        assert more <= found.keys(), step
