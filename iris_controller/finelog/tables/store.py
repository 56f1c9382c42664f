"""The store of registered tables: write-ahead files that all tables share, segments that a catalog names, and who got how far.

`commit` gives seqs, writes, syncs, and only then lets readers see the rows and producers' marks move, as the log's store does. One
thread commits; any thread reads, from snapshots. A file that is full or old is closed; the keeper turns it into segments. Must never
start empty where files are, nor let a row be seen twice.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from threading import Lock, RLock
from typing import TYPE_CHECKING

from iris_controller.finelog import opening
from iris_controller.finelog.records import pack
from iris_controller.finelog.shipping.owners import Standing
from iris_controller.finelog.tables import books as ledgers
from iris_controller.finelog.tables import recovery, registry, rowfiles, views
from iris_controller.finelog.tables.admission import Rows, admit, no_table
from iris_controller.finelog.tables.books import Book
from iris_controller.finelog.tables.registry import Registered
from iris_controller.finelog.tables.rowfiles import Extent, RowFile
from iris_controller.finelog.wal import AppendFile, Loss, Sync, file_name
from iris_controller.rpc.errors import exhausted, invalid
from iris_core.model.errors import ModelError
from iris_core.model.namespaces import NAMESPACES
from iris_core.model.tables import StoragePolicy, Table, check_table, grown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from iris_controller.finelog.catalog import Catalog
    from iris_controller.finelog.segment import Segment
    from iris_controller.finelog.tables.views import View
    from iris_core.wire.gen.iris.v1 import stats_pb2

log = logging.getLogger("iris.finelog")

FILE_LIMIT = 16 << 20
"""Bytes after which a write-ahead file is closed."""
FILE_SECONDS = 600.0
"""Age of its first row after which it is."""


class TableStore:
    """See the module. Opening raises StoreUnusable, OSError."""

    def __init__(
        self,
        folder: Path,
        catalog: Catalog,
        *,
        namespaces: Iterable[Table] = NAMESPACES,
        file_limit: int = FILE_LIMIT,
        sync: Sync = os.fdatasync,
    ) -> None:
        self.folder = folder
        self.catalog = catalog
        self._file_limit = file_limit
        self._sync = sync
        self._lock = Lock()
        self._changing = RLock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._marker = opening.identity(folder)
        self._registered = recovery.load_registry(folder)
        self.books = recovery.load_books(folder, catalog)
        self._files: tuple[RowFile, ...] = ()
        self._append: AppendFile | None = None
        self._started_at = 0.0
        self._load_files()
        self._own = {table.name: table for table in namespaces}
        self._register_own()

    # Tables ------------------------------------------------------------------------------------------------------

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables that are registered, by name."""
        return {name: one.table for name, one in self._registered.items()}

    def registered(self, name: str) -> Registered | None:
        """A table and since which seq it counts."""
        return self._registered.get(name)

    def register(self, table: Table) -> tuple[Table, bool, tuple[str, ...]]:
        """Makes the table, or grows it: what it is now, whether it is new, and the columns that were added.

        Durable when it returns. Raises RpcError, OSError.
        """
        with self._changing:
            known = self._registered.get(table.name)
            try:
                check_table(table)
                now = table if known is None else grown(known.table, table)
                check_table(now)
            except ModelError as error:
                raise invalid(f"schema.{error.field}", error.message, code="schema", hint=error.hint) from None
            if known is None and len(self._registered) >= registry.MAX_TABLES:
                raise exhausted(
                    f"there are {registry.MAX_TABLES} tables, the most that are kept", code="too_many_tables"
                )
            if known is None or now != known.table:
                since = self._first_seq_of(table.name) if known is None else known.since_seq
                self._save_registry({**self._registered, table.name: Registered(now, since)})
            added = () if known is None else now.columns[len(known.table.columns) :]
            return now, known is None, tuple(column.name for column in added)

    def drop(self, name: str) -> tuple[int, int]:
        """Removes a table: how many rows and bytes went with it. One of Iris's own is there again at once, empty.

        Raises RpcError NOT_FOUND, OSError.
        """
        with self._changing:
            status = self.status(name)
            kept = {known: one for known, one in self._registered.items() if known != name}
            if name in self._own:
                kept[name] = Registered(self._own[name], self.books.next_seq)
            self._save_registry(kept)
            with self._lock:
                self.books.tables.pop(name, None)
            if segments := self.catalog.segments(name):
                self.catalog.commit(name, remove=segments)
            return status.rows, status.bytes

    def _first_seq_of(self, name: str) -> int:
        """Since when a new table counts: its own segments are only there if the registry was lost."""
        segments = self.catalog.segments(name)
        return min(segments[0].first_seq, self.books.next_seq) if segments else self.books.next_seq

    def _save_registry(self, tables: dict[str, Registered]) -> None:
        registry.save(self.folder, tables)
        with self._lock:
            self._registered = tables

    def _register_own(self) -> None:
        found = dict(self._registered)
        for table in self._own.values():
            known = found.get(table.name)
            if known is None:
                found[table.name] = Registered(table, self._first_seq_of(table.name))
                continue
            try:
                # The policy may have been set by an operator.
                now = grown(known.table, replace(table, policy=StoragePolicy()))
            except ModelError as error:
                log.error("%s keeps the schema it has: %s", table.name, error)
                continue
            found[table.name] = Registered(now, known.since_seq)
        if found != self._registered:
            self._save_registry(found)

    # Writing -----------------------------------------------------------------------------------------------------

    def mark(self, table: str, producer: str) -> int:
        """The number of the first row of `producer` in `table` that is not durable here."""
        book = self.books.tables.get(table)
        return book.marks.get(producer, 0) if book is not None else 0

    def commit(self, batches: Iterable[Rows], now_ms: int) -> set[str]:
        """Stores what is new of `batches`, all of it or nothing; returns the tables that got rows.

        Durable when it returns. A batch of a table that is gone is not stored and says so in `refused`. Raises OSError: then nothing
        was stored and it may be tried again.
        """
        with self._changing:
            marks: dict[tuple[str, str], int] = {}
            fresh: list[Rows] = []
            missing: dict[str, int] = {}
            for whole in batches:
                message = whole.message
                if message.table not in self._registered:
                    whole.refused = no_table(message.table, self._registered)
                    continue
                place = (message.table, message.producer)
                rows = admit(whole, marks.get(place, self.mark(*place)))
                if rows is not None:
                    marks[place] = whole.end
                    missing[message.table] = missing.get(message.table, 0) + whole.missing
                    fresh.append(rows)
            if fresh:
                self._write(fresh, marks, missing)
            return {rows.message.table for rows in fresh}

    def _write(self, fresh: list[Rows], marks: dict[tuple[str, str], int], missing: dict[str, int]) -> None:
        target, file = self._writable()
        offset, next_seq = target.synced, self.books.next_seq
        pieces: list[bytes] = []
        extents: list[Extent] = []
        for rows in fresh:
            count = rows.message.rows
            header = pack(self._marker, next_seq, count, target.synced, rows.payload)
            pieces += (header, rows.payload)
            length = len(header) + len(rows.payload)
            times = rowfiles.times_of(rows.message, self._time_column(rows.message.table))
            extents.append(Extent(rows.message.table, offset, length, next_seq, count, *times))
            offset += length
            next_seq += count
        target.append(b"".join(pieces))
        with self._lock:
            for extent in extents:
                file.add(extent)
            self.books.next_seq = next_seq
            for (table, producer), end in marks.items():
                self.books.of(table).note(producer, end, next_seq - 1)
            for table, count in missing.items():
                self.books.of(table).missing_rows += count

    def _time_column(self, table: str) -> str:
        known = self._registered.get(table)
        return known.table.time_column if known is not None else ""

    def _writable(self) -> tuple[AppendFile, RowFile]:
        current = self._append
        if current is not None and current.is_trusted and current.synced < self._file_limit:
            return current, self._files[-1]
        self.close_file()
        first_seq = self.books.next_seq
        started = AppendFile.start(self.folder / file_name(first_seq), self._marker, first_seq, self._sync)
        try:
            file = RowFile(started.path, first_seq, self._marker)
        except OSError:
            started.close()
            raise
        self._append, self._started_at = started, time.monotonic()
        with self._lock:
            # One that never held a row has the name of its successor, and gave way to it.
            self._files = (*(old for old in self._files if old.path != file.path), file)
            self.books.last_file, self.books.synced = first_seq, started.synced
        return started, file

    def close_file(self, older_than: float = 0.0) -> None:
        """The next row goes into a new write-ahead file, if the one that grows was begun that many seconds ago."""
        with self._changing:
            if self._append is None or time.monotonic() - self._started_at < older_than:
                return
            with self._lock:
                self.books.synced = self._append.synced
            self._append.close()
            self._append = None

    def go_on_above(self, seq: int, why: str) -> None:
        """The next row gets a number above `seq`; readers are told `why` there may be rows missing before it.

        Every row must be in a segment already. Durable when it returns, and harmless when repeated. Raises OSError.
        """
        with self._changing:
            if self.books.next_seq > seq:
                return
            with self._lock:
                if self._files:
                    raise OSError(f"{self.folder} still holds rows that are in no segment")
                self.books.sealed_seq, self.books.next_seq = seq, seq + 1
                self.books.restored = why
            self.save_books()

    # Reading -----------------------------------------------------------------------------------------------------

    def view(self, names: Iterable[str]) -> View:
        """Those of the tables that are registered, with every row that was stored before the call."""
        with self._lock:
            files = [(file, list(file.extents)) for file in self._files]
            registered = self._registered
        # After the files: what became a segment meanwhile is in both, and is taken from the segment.
        return views.view(self.catalog.snapshot(), registered, files, names)

    def status(self, name: str) -> stats_pb2.TableStatus:
        """What there is of a table. Raises RpcError NOT_FOUND."""
        with self.view([name]) as view:
            if name not in view.tables:
                raise no_table(name, self._registered)
            with self._lock:
                book = self.books.tables.get(name, Book())
            return view.tables[name].status(book)

    def lost_notes(self) -> list[str]:
        """What a reader of any table should know of damage."""
        with self._lock:
            rows = sum(last - first + 1 for first, last in self.books.losses)
            notes = [self.books.restored] if self.books.restored else []
        if rows:
            notes.append(f"{rows} acknowledged rows were lost to damage of the disk, of one table or several")
        return notes

    def standing(self) -> Standing:
        """How far it is, for the shipper."""
        with self._lock:
            files = self._files
            next_seq, sealed = self.books.next_seq, self.books.sealed_seq
        loose = [file for file in files if file.extents and file.last_seq > sealed]
        since = min((file.began_ms for file in loose), default=0)
        return Standing(next_seq, sealed, sum(file.size for file in loose), since)

    def accounts(self) -> list[tuple[str, int, int]]:
        """Each table's missing and removed rows."""
        with self._lock:
            return [(name, book.missing_rows, book.removed_rows) for name, book in sorted(self.books.tables.items())]

    # For the keeper ----------------------------------------------------------------------------------------------

    def closed_files(self) -> Sequence[RowFile]:
        """The files that get no more rows, oldest first."""
        with self._lock:
            return self._files[:-1] if self._append is not None else self._files

    def add_segment(self, registered: Registered, segment: Segment) -> bool:
        """The catalog names the segment, unless its table was dropped meanwhile. Raises OSError."""
        with self._changing:
            now = self._registered.get(registered.table.name)
            if now is None or now.since_seq != registered.since_seq:
                return False
            self.catalog.commit(registered.table.name, add=[segment])
            return True

    def replace_segments(self, registered: Registered, merged: Segment, inputs: Sequence[Segment]) -> bool:
        """The catalog names the merged one instead of its inputs, unless they are gone. Raises OSError."""
        name = registered.table.name
        with self._changing:
            if not set(inputs) <= set(self.catalog.segments(name)):
                return False
            self.catalog.commit(name, add=[merged], remove=inputs)
            return True

    def forget_file(self, file: RowFile) -> None:
        """All rows of the oldest file are in segments: it goes. Raises OSError."""
        with self._lock:
            self.books.sealed_seq = max(self.books.sealed_seq, file.last_seq)
        self.save_books()
        with self._lock:
            self._files = tuple(kept for kept in self._files if kept is not file)
        file.path.unlink(missing_ok=True)

    def remove_segments(self, name: str, gone: Sequence[Segment]) -> None:
        """Retention takes the oldest segments of a table. Raises OSError."""
        with self._changing:
            kept = self.catalog.segments(name)[len(gone) :]
            with self._lock:
                book = self.books.of(name)
                book.removed_rows += sum(segment.rows for segment in gone)
                book.forget_gone(kept[0].first_seq if kept else self.books.sealed_seq + 1)
            # Remembered first: rows must not vanish without a word.
            self.save_books()
            self.catalog.commit(name, remove=gone)

    def save_books(self) -> None:
        """Raises OSError."""
        with self._lock:
            encoded = self.books.encoded()
        ledgers.save(self.folder, encoded)

    def note_loss(self, file: RowFile, loss: Loss) -> None:
        """Says that acknowledged rows cannot be read any more, and remembers it for those who ask."""
        with self._lock:
            if not self.books.note_loss(loss.first_seq, loss.last_seq):
                return
        log.error(
            "damage at %s: rows with seq %d to %d are lost, the rest is served",
            file.path,
            loss.first_seq,
            loss.last_seq,
        )

    # Opening -----------------------------------------------------------------------------------------------------

    def _load_files(self) -> None:
        books = self.books
        vouched = (books.last_file, books.synced)
        # In segments up to here, though the file was not removed any more.
        sealed = {name: segments[-1].last_seq for name in self._registered if (segments := self.catalog.segments(name))}

        def take(_: RowFile, extent: Extent, batch: stats_pb2.RowBatch) -> None:
            one = self._registered.get(extent.table)
            if one is not None and extent.first_seq >= one.since_seq:
                book = books.of(extent.table)
                end = batch.first_number + batch.rows
                if extent.first_seq > sealed.get(extent.table, 0):
                    book.missing_rows += max(0, batch.first_number - book.marks.get(batch.producer, 0))
                book.note(batch.producer, end, extent.last_seq)

        files = tuple(
            rowfiles.load(self.folder, self._marker, books.sealed_seq, vouched, self._time_column, take, self.note_loss)
        )
        found_seq = max([books.sealed_seq, *(file.last_seq for file in files)])
        if books.next_seq > found_seq + 1 and not (files or books.sealed_seq):
            log.error("%s: all files are gone; rows up to seq %d are lost", self.folder, books.next_seq - 1)
        books.next_seq = max(books.next_seq, found_seq + 1)
        self._files = files

    def close(self) -> None:
        """Ends it; everything acknowledged is on disk already. Call it when nothing is written any more."""
        self.close_file()
        try:
            self.save_books()
        except OSError as error:
            log.warning("the books of %s were not saved: %s", self.folder, error)
        self._files = ()
