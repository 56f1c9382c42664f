"""What the log store and the store of tables tell the shipper, and what they start from after a restore.

Each numbers its rows by itself and both keep their segments in one catalog. Must never write into a folder that a store has open.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from iris_controller.finelog import opening
from iris_controller.finelog.catalog import LOG
from iris_controller.finelog.disk import write_atomically
from iris_controller.finelog.ledger import Ledger, Removed
from iris_controller.finelog.shipping.owners import Standing
from iris_controller.finelog.tables import books as ledgers
from iris_controller.finelog.tables import registry
from iris_controller.finelog.tables.books import Book, Books
from iris_controller.finelog.wal import Loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from iris_controller.finelog.shipping.manifest import Part
    from iris_controller.finelog.shipping.restore import Restored
    from iris_controller.finelog.store import Store
    from iris_controller.finelog.tables.store import TableStore

STATS_FOLDER = "stats"


class LogOwner:
    """The lines of the log (`Owner`)."""

    name = "log"

    def __init__(self, store: Store) -> None:
        self._store = store

    def owns(self, table: str) -> bool:
        return table == LOG

    def standing(self) -> Standing:
        store = self._store
        # Files first: one that becomes a segment in between is then counted in both, never in neither.
        files = store.files
        next_seq = store.ledger.next_seq
        segments = store.catalog.segments(LOG)
        sealed = max(segments[-1].last_seq if segments else 0, store.ledger.removed_seq)
        loose = [file for file in files if file.last_seq > max(sealed, file.first_seq - 1)]
        since = [file.began_ms or max(file.earliest_ms, 1) for file in loose]
        return Standing(next_seq, sealed, sum(file.size for file in loose), min(since, default=0))

    def roll(self) -> None:
        self._store.roll()

    def notes(self) -> Mapping[str, Any]:
        ledger = self._store.ledger_snapshot()
        return {
            "removed": {key: asdict(removed) for key, removed in ledger.removed.items()},
            "removed_seq": ledger.removed_seq,
            "losses": [asdict(loss) for loss in ledger.losses],
        }

    def go_on_above(self, seq: int, why: str) -> None:
        """`Reclaiming`. Raises OSError."""
        self._store.go_on_above(seq, why)

    def marks(self) -> Mapping[str, Mapping[str, tuple[int, int]]]:
        """`Reclaiming`."""
        ledger = self._store.ledger_snapshot()
        return {LOG: {one: (number, ledger.seen.get(one, 0)) for one, number in ledger.marks.items()}}


class TablesOwner:
    """The rows of all registered tables (`Owner`). `wake` tells their keeper that a file is closed."""

    name = "tables"

    def __init__(self, store: TableStore, wake: Callable[[], None]) -> None:
        self._store = store
        self._wake = wake

    def owns(self, table: str) -> bool:
        return table != LOG

    def standing(self) -> Standing:
        return self._store.standing()

    def roll(self) -> None:
        self._store.close_file()
        self._wake()

    def notes(self) -> Mapping[str, Any]:
        store = self._store
        return {
            "registry": (store.folder / registry.FILE_NAME).read_text(),
            "books": {
                table: {"missing_rows": missing, "removed_rows": removed}
                for table, missing, removed in store.accounts()
            },
            "restored": store.books.restored,
        }

    def go_on_above(self, seq: int, why: str) -> None:
        """`Reclaiming`. Raises OSError."""
        from iris_controller.finelog.tables.keeper import Keeper

        self._store.close_file()
        # A file says what it holds by its numbers: none may stand before those that are left out.
        Keeper(self._store).seal()
        self._store.go_on_above(seq, f"rows are missing: {why}")

    def marks(self) -> Mapping[str, Mapping[str, tuple[int, int]]]:
        """`Reclaiming`."""
        return {
            table: {one: (number, book.seen.get(one, 0)) for one, number in book.marks.items()}
            for table, book in self._store.books.tables.items()
        }


def take_over(folder: Path, restored: Restored) -> None:
    """Writes what both stores keep beside their segments into a folder that no store has open. Raises OSError."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(restored.manifest.written_ms / 1000))
    _log(folder, restored, at)
    stats = folder / STATS_FOLDER
    stats.mkdir(mode=0o700, exist_ok=True)
    _tables(stats, restored.part("tables"), at)
    # Last: it is what makes the folder a store's.
    opening.tell_identity(folder, restored.marker)


def _log(folder: Path, restored: Restored, at: str) -> None:
    part = restored.part("log")
    notes = part.notes
    segments = [one.segment for one in restored.manifest.tables.get(LOG, ())]
    removed_seq = int(notes.get("removed_seq", 0))
    ledger = Ledger(
        covers_seq=part.ceiling,
        next_seq=part.ceiling + 1,
        removed={key: Removed(**removed) for key, removed in notes.get("removed", {}).items()},
        removed_seq=removed_seq,
        losses=[Loss(**loss) for loss in notes.get("losses", [])],
    )
    ledger.marks, ledger.seen = _marks(part, LOG)
    for table, segment in restored.lost:
        if table == LOG:
            ledger.note_loss(Loss(segment.first_seq, segment.last_seq))
    last = max([removed_seq, *(segment.last_seq for segment in segments)])
    why = f"they were not yet in the object store when the disk was lost (restored {at} UTC)"
    ledger.note_loss(Loss(last + 1, part.ceiling, why))
    ledger.save(folder / "ledger.json")


def _tables(folder: Path, part: Part, at: str) -> None:
    notes = part.notes
    books = Books(
        sealed_seq=part.ceiling,
        next_seq=part.ceiling + 1,
        restored=f"rows that were not yet in the object store when the disk was lost are missing (restored {at} UTC)",
    )
    accounts: Mapping[str, Mapping[str, int]] = notes.get("books", {})
    for table in {*accounts, *part.marks}:
        marks, seen = _marks(part, table)
        books.tables[table] = Book(marks, seen, **accounts.get(table, {}))
    ledgers.save(folder, books.encoded())
    if "registry" in notes:
        json.loads(notes["registry"])
        write_atomically(folder / registry.FILE_NAME, notes["registry"].encode())


def _marks(part: Part, table: str) -> tuple[dict[str, int], dict[str, int]]:
    found: Iterable[tuple[str, tuple[int, int]]] = part.marks.get(table, {}).items()
    marks, seen = {}, {}
    for producer, (number, seq) in found:
        marks[producer], seen[producer] = number, seq
    return marks, seen
