"""The store: a folder of segments and of the write-ahead files behind them, what is in them, and one way to add lines.

`commit` gives seqs, writes, syncs, and only then lets readers see the lines and producers' marks move; a seq that a reader saw is
never given to another line. One thread commits; any thread reads, from immutable tuples and from indexes that only grow.

When the file is full a new one is started; a thread of the store's own writes the index of the old one, saves the ledger and removes
what is beyond the policy, the oldest first. `Upkeep` turns finished files into segments and merges those. Nothing either fails at
loses a line. Must never start empty where files are.
"""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Event, Lock
from typing import TYPE_CHECKING

from iris_controller.finelog import opening, sidecar
from iris_controller.finelog.batches import Batch, admit
from iris_controller.finelog.catalog import LOG, Catalog
from iris_controller.finelog.files import OpenFiles, WalFile
from iris_controller.finelog.index import Extent, LiveIndex, attempt_hash
from iris_controller.finelog.ledger import Removed
from iris_controller.finelog.records import FILE_BYTES, pack
from iris_controller.finelog.retention import Policy, surplus
from iris_controller.finelog.steps import reached
from iris_controller.finelog.trigrams import FilterFiles
from iris_controller.finelog.wal import AppendFile, Loss, Sync, file_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from iris_controller.finelog.catalog import Snapshot
    from iris_controller.finelog.ledger import Ledger
    from iris_controller.finelog.segment import Segment
    from iris_controller.finelog.segments import Footers

log = logging.getLogger("iris.finelog")

FILE_LIMIT = 64 << 20
MAX_BYTES = 20 << 30


@dataclass(slots=True)
class View:
    """What a read looks at: segments, and the write-ahead files behind them, both in the order of seq. Release it."""

    segments: tuple[Segment, ...]
    files: tuple[WalFile, ...]
    snapshot: Snapshot

    def release(self) -> None:
        """The files may go now."""
        self.snapshot.release()


class Store:
    """See the module. `max_bytes` and the bounds of `policy` hold together. Opening raises StoreUnusable, OSError."""

    def __init__(
        self,
        folder: Path,
        *,
        file_limit: int = FILE_LIMIT,
        max_bytes: int = MAX_BYTES,
        policy: Policy | None = None,
        sync: Sync = os.fdatasync,
    ) -> None:
        self.folder = folder
        self._file_limit = file_limit
        self._max_bytes = max_bytes
        self._policy = replace(policy or Policy(), max_bytes=max_bytes)
        self._sync = sync
        self._lock = Lock()
        self._saving = Lock()
        self._committing = Lock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.marker = opening.identity(folder)
        self.ledger = opening.load_ledger(folder)
        self.catalog = Catalog(folder / "tables")
        opening.take_segments(self.catalog, self.ledger, self.note_loss)
        self.open_files = OpenFiles(self.marker, self.note_loss)
        segments = self.catalog.segments(LOG)
        covered = segments[-1].last_seq if segments else 0
        opened = opening.load_files(folder, self.marker, self.ledger, covered, self.open_files, self.note_loss, sync)
        self._files = opened.files
        self._append = opened.append
        self.last_seq = self.ledger.next_seq - 1
        """Every line up to here is on disk and readable."""
        self.keeping = Lock()
        """Held by whoever commits segments or removes what is old, for that moment."""
        self.upkeep_fault = ""
        """Why no segments are written or merged, "" = they are."""
        self.sealed = Event()
        """Set when a file is finished and its index is written."""
        self._keeper = ThreadPoolExecutor(1, thread_name_prefix="finelog-keeper")
        if len(self._files) > 1:
            # What the last process did not get to, and a lower `max_bytes`.
            self._keeper.submit(self._keep, self._files[-2].last_seq)

    @property
    def files(self) -> tuple[WalFile, ...]:
        """The write-ahead files, oldest first; lines before them are in segments."""
        return self._files

    def view(self) -> View:
        """What is to be read now. Take `last_seq` before it: then none of its lines is missed."""
        # Files first: one that becomes a segment in between is in both, and dropped here.
        files = self._files
        snapshot = self.catalog.snapshot()
        segments = snapshot.segments(LOG)
        if segments:
            files = tuple(file for file in files if file.first_seq > segments[-1].last_seq)
        return View(segments, files, snapshot)

    @cached_property
    def footers(self) -> Footers:
        """The footers of the segments, which are heavy to read."""
        from iris_controller.finelog.segments import Footers

        return Footers(self.catalog.folder_of(LOG))

    @cached_property
    def filters(self) -> FilterFiles:
        """The index of the text of each segment."""
        return FilterFiles(self.catalog.folder_of(LOG))

    def finished(self) -> WalFile | None:
        """The oldest write-ahead file, if it is finished and its index is written: the next to become a segment."""
        files = self._files
        return files[0] if len(files) > 1 and files[0].live is None else None

    def adopt(self, segment: Segment, file: WalFile) -> bool:
        """From now on the segment stands for that file, which goes. False: the file is gone, and so is the segment now.

        Raises OSError: nothing changed.
        """
        with self.keeping:
            if not self._files or self._files[0] is not file:
                (self.catalog.folder_of(LOG) / segment.name).unlink(missing_ok=True)
                return False
            # Without the file it is the only one to know how far producers got, and what was lost.
            self._save_ledger(segment.last_seq)
            reached("convert: the ledger knows")

            def drop() -> None:
                with self._lock:
                    self._files = tuple(one for one in self._files if one is not file)

            self.catalog.commit(LOG, add=[segment], replaces=[file.path, file.sidecar_path], applied=drop)
        self.open_files.forget(file)
        return True

    @property
    def total_bytes(self) -> int:
        """What the write-ahead files and segments take, here and in the object store."""
        return sum(file.size for file in self._files) + sum(one.bytes for one in self.catalog.segments(LOG))

    @property
    def local_bytes(self) -> int:
        """What of that lies on this disk."""
        return self.total_bytes - sum(one.bytes for one in self.catalog.segments(LOG) if one.object)

    @property
    def max_bytes(self) -> int:
        """The oldest files beyond it are removed."""
        return self._max_bytes

    def mark(self, producer: str) -> int:
        """The number of the first line of `producer` that is not durable here."""
        return self.ledger.marks.get(producer, 0)

    def note_loss(self, name: str, loss: Loss) -> None:
        """Says once that acknowledged lines in that file cannot be read any more, and remembers it for those who read there."""
        with self._lock:
            is_new = self.ledger.note_loss(loss)
        if is_new:
            log.error(
                "damage at %s: lines with seq %d to %d are lost, the rest is served",
                self.folder / name,
                loss.first_seq,
                loss.last_seq,
            )

    # Writing -----------------------------------------------------------------------------------------------------

    def commit(self, batches: Iterable[Batch], now_ms: int) -> set[str]:
        """Stores what is new of `batches`, all of it or nothing; returns the keys that got lines.

        Durable when it returns. Raises OSError: then nothing was stored and it may be tried again.
        """
        with self._committing:
            return self._commit(batches, now_ms)

    def _commit(self, batches: Iterable[Batch], now_ms: int) -> set[str]:
        marks: dict[str, int] = {}
        fresh: list[Batch] = []
        for whole in batches:
            producer = whole.message.producer
            batch = admit(whole, marks.get(producer, self.mark(producer)), now_ms)
            if batch is not None:
                marks[producer] = batch.span.end
                fresh.append(batch)
        if not fresh:
            return set()
        target = self._writable()
        offset = target.synced
        next_seq = self.ledger.next_seq
        pieces: list[bytes] = []
        extents: list[Extent] = []
        for batch in fresh:
            lines = len(batch.message.entries)
            header = pack(self.marker, next_seq, lines, target.synced, batch.payload)
            pieces += (header, batch.payload)
            length = len(header) + len(batch.payload)
            extents.append(_extent(batch, offset, length, next_seq, lines))
            offset += length
            next_seq += lines
        target.append(b"".join(pieces))
        file = self._files[-1]
        assert file.live is not None
        for batch, extent in zip(fresh, extents, strict=True):
            file.live.add(batch.message.key, extent, batch.message.producer, batch.span.end)
        with self._lock:
            file.size = offset
            file.began_ms = file.began_ms or now_ms
            file.take_bounds(file.live)
            self.last_seq = next_seq - 1
            self.ledger.next_seq = next_seq
            self.ledger.note_marks(marks.items(), self.last_seq)
        return {batch.message.key for batch in fresh}

    def _writable(self) -> AppendFile:
        current = self._append
        if current is not None and current.is_trusted and current.synced < self._file_limit:
            return current
        return self._start_file()

    def roll(self) -> None:
        """Finishes the file that grows, if it holds lines: they become a segment soon. Raises OSError: it grows on."""
        with self._committing:
            if self._append is not None and self._files[-1].last_seq >= self._files[-1].first_seq:
                self._start_file()

    def go_on_above(self, seq: int, why: str) -> None:
        """The next line gets a number above `seq`, in a file of its own; the numbers between are a loss that says `why`.

        Durable when it returns, and harmless when repeated. For a store that nobody writes into yet. Raises OSError.
        """
        with self._committing:
            first_seq = self.ledger.next_seq
            if first_seq > seq:
                return
            with self._lock:
                self.ledger.note_loss(Loss(first_seq, seq, why))
                self.ledger.next_seq = seq + 1
                self.last_seq = seq
            # Before the file: without it the numbers that are left out would be damage.
            self._save_ledger(self.ledger.covers_seq)
            empty = self._files[-1] if self._files and self._files[-1].last_seq < self._files[-1].first_seq else None
            if empty is not None:
                with self._lock:
                    self._files = self._files[:-1]
            self._start_file()
            if empty is not None:
                empty.path.unlink(missing_ok=True)
                self.open_files.forget(empty)
            self._save_ledger(self.ledger.covers_seq)

    def _start_file(self) -> AppendFile:
        current = self._append
        first_seq = self.ledger.next_seq
        started = AppendFile.start(self.folder / file_name(first_seq), self.marker, first_seq, self._sync)
        if current is not None:
            current.close()
        self._append = started
        self._begin_file(started.path, first_seq)
        return started

    def _begin_file(self, path: Path, first_seq: int) -> None:
        file = WalFile(path, first_seq)
        file.live = LiveIndex(first_seq)
        with self._lock:
            # One that never held a line has the name of its successor, and gave way to it.
            kept = tuple(old for old in self._files if old.path != path)
            self._files = (*kept, file)
            finished = kept[-1] if kept else None
            if finished is not None:
                finished.limit_seq = first_seq
            self.ledger.last_file, self.ledger.synced = first_seq, FILE_BYTES
        self.open_files.forget(file)
        if finished is not None:
            self._keeper.submit(self._keep, finished.last_seq)

    # Keeping -----------------------------------------------------------------------------------------------------

    def _keep(self, covers_seq: int) -> None:
        try:
            for file in self._files[:-1]:
                self._seal(file)
            self._save_ledger(covers_seq)
            self.sealed.set()
            self.remove_old()
        except OSError as error:
            log.warning("housekeeping of %s is put off: %s", self.folder, error)
        except Exception:
            log.exception("housekeeping of %s failed", self.folder)

    def _seal(self, file: WalFile) -> None:
        if file.live is not None:
            sidecar.write(file.sidecar_path, file.live, file.size)
            reached("file: its index is written")
            file.live = None
            self.open_files.forget(file)

    def ledger_snapshot(self) -> Ledger:
        """A copy of the ledger as it is now."""
        with self._lock:
            return self.ledger.snapshot()

    def _save_ledger(self, covers_seq: int) -> None:
        # One at a time: both threads of the background save it, and the later must not be overwritten by the earlier.
        with self._saving:
            with self._lock:
                self.ledger.covers_seq = max(self.ledger.covers_seq, covers_seq)
                if self._append is not None:
                    self.ledger.synced = self._append.synced
                copy = self.ledger.snapshot()
            copy.save(self.folder / "ledger.json")

    def remove_old(self) -> None:
        """Removes what is beyond the policy, the oldest first, and remembers it. Raises OSError."""
        with self.keeping:
            segments = self.catalog.segments(LOG)
            now_ms = time.time_ns() // 1_000_000
            for segment in surplus(segments, self._policy, now_ms, sum(file.size for file in self._files)):
                self._forget(self._count_segment(segment), segment.last_seq)
                reached("retention: the ledger knows")
                self.catalog.commit(LOG, remove=[segment])
                self._say_removed(segment.name, segment.first_seq, segment.last_seq)
            while self.total_bytes > self._max_bytes and len(self._files) > 1 and not self.catalog.segments(LOG):
                oldest = self._files[0]
                removed = self._count(oldest)
                with self._lock:
                    self._files = tuple(file for file in self._files if file is not oldest)
                self._forget(removed, oldest.last_seq)
                reached("retention: the ledger knows")
                oldest.path.unlink(missing_ok=True)
                oldest.sidecar_path.unlink(missing_ok=True)
                self.open_files.forget(oldest)
                self._say_removed(oldest.path.name, oldest.first_seq, oldest.last_seq)

    def _say_removed(self, name: str, first_seq: int, last_seq: int) -> None:
        log.info("removed %s, seq %d to %d, which is beyond what is kept", name, first_seq, last_seq)

    def _forget(self, removed: dict[str, Removed], last_seq: int) -> None:
        """Before the lines go: they must not vanish without a word."""
        with self._lock:
            for key, what in removed.items():
                self.ledger.note_removed(key, what)
            self.ledger.removed_seq = max(self.ledger.removed_seq, last_seq)
            self.ledger.forget_gone(last_seq + 1)
        self._save_ledger(self.ledger.covers_seq)

    def _count_segment(self, segment: Segment) -> dict[str, Removed]:
        from iris_controller.finelog.segments import SegmentDamaged

        found: dict[str, Removed] = {}
        try:
            with self.catalog.snapshot() as snapshot:
                runs = self.footers.get(segment, snapshot.path(LOG, segment)).runs
        except (SegmentDamaged, OSError) as error:
            log.warning("cannot read %s, which is to be removed: %s", segment.name, error)
            self.note_loss(segment.name, Loss(segment.first_seq, segment.last_seq))
            return found
        for run in runs.all() if runs is not None else ():
            removed = found.setdefault(run.key, Removed(0, run.high_incarnation, run.latest_ms, run.last_seq))
            removed.lines += run.rows
            removed.incarnation = max(removed.incarnation, run.high_incarnation)
            removed.latest_ms = max(removed.latest_ms, run.latest_ms)
            removed.last_seq = max(removed.last_seq, run.last_seq)
        return found

    def _count(self, file: WalFile) -> dict[str, Removed]:
        found: dict[str, Removed] = {}
        try:
            index = self.open_files.get(file).index
        except OSError as error:
            log.warning("cannot read %s, which is to be removed: %s", file.path.name, error)
            self.note_loss(file.path.name, Loss(file.first_seq, file.last_seq))
            return found
        for key in index.all_keys():
            rows = index.key_rows(key)
            extents = list(rows.after(0)) if rows is not None else []
            found[key] = Removed(
                sum(extent.lines for extent in extents),
                max(extent.incarnation for extent in extents),
                max(extent.latest_ms for extent in extents),
                extents[-1].last_seq,
            )
        return found

    def close(self) -> None:
        """Finishes what is under way. The next start then needs no guess about where the last file ended."""
        self._keeper.shutdown(wait=True)
        try:
            self._save_ledger(self.ledger.covers_seq)
        except OSError as error:
            log.warning("the ledger of %s was not saved: %s", self.folder, error)
        if self._append is not None:
            self._append.close()
            self._append = None
        self.open_files.close()


def _extent(batch: Batch, offset: int, length: int, first_seq: int, lines: int) -> Extent:
    return Extent(
        offset,
        length,
        first_seq,
        lines,
        batch.span.earliest_ms,
        batch.span.latest_ms,
        batch.span.levels,
        batch.message.incarnation,
        attempt_hash(batch.message.attempt_uid),
    )
