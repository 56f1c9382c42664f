"""What happens to the rows of tables in the background: closed files become segments, those are merged, and the oldest go.

A thread of its own looks every half minute, and when it is woken. Nothing that it fails at loses a row: files stay until all that
they hold is in segments that the catalog names. Must never hold a lock while it writes a segment.
"""

from __future__ import annotations

import logging
import threading
import time
from threading import Condition, Thread
from typing import TYPE_CHECKING

from iris_controller.finelog.tables.store import FILE_SECONDS
from iris_controller.finelog.wal import Loss

if TYPE_CHECKING:
    from iris_controller.finelog.segment import Segment
    from iris_controller.finelog.segments import SegmentDamaged
    from iris_controller.finelog.tables.registry import Registered
    from iris_controller.finelog.tables.rowfiles import Extent, RowFile
    from iris_controller.finelog.tables.store import TableStore
    from iris_core.model.tables import StoragePolicy

log = logging.getLogger("iris.finelog")

LOOK_SECONDS = 30.0
MERGED_PART = 4
"""Rows of at most this part of the age that a table keeps lie in one merged segment: a segment goes as a whole."""


class _Stopped(Exception):
    """The thread is told to end."""


class Keeper:
    """The thread. `start` it once; `close` ends it after what it is at."""

    def __init__(self, store: TableStore, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._store = store
        self._look_seconds = look_seconds
        self._wake = Condition()
        self._is_woken = False
        self._is_closed = False
        self._apart: set[str] = set()
        """Damaged segments, which are served as far as they can be read."""
        self._thread = Thread(target=self._run, name="finelog-tables-keeper")

    def start(self) -> None:
        """Begins with what the last process did not get to."""
        self._thread.start()

    def wake(self) -> None:
        """There is something to do."""
        with self._wake:
            self._is_woken = True
            self._wake.notify()

    def close(self) -> None:
        """Ends the thread."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                self._store.close_file(older_than=FILE_SECONDS)
                self.keep(time.time_ns() // 1_000_000)
            except _Stopped:
                return
            except OSError as error:
                log.warning("housekeeping of the tables in %s is put off: %s", self._store.folder, error)
            except Exception:
                log.exception("housekeeping of the tables in %s failed", self._store.folder)
            with self._wake:
                if not self._is_woken and not self._is_closed:
                    self._wake.wait(self._look_seconds)
                if self._is_closed:
                    return
                self._is_woken = False

    def keep(self, now_ms: int) -> None:
        """Everything there is to do, now. Raises OSError: it is put off."""
        try:
            self.seal()
            for name in self._store.tables:
                while self._merge(name):
                    pass
        finally:
            for name in self._store.tables:
                self._retain(name, now_ms)

    def seal(self) -> None:
        """Every row of a closed file is in a segment, and the files are gone. Raises OSError: it is put off."""
        for file in self._store.closed_files():
            self._seal(file)

    def _seal(self, file: RowFile) -> None:
        """All rows of a file into segments, a segment for each table; then the file goes."""
        tables: dict[str, list[Extent]] = {}
        for extent in file.extents:
            tables.setdefault(extent.table, []).append(extent)
        for name, extents in tables.items():
            registered = self._store.registered(name)
            if registered is None:
                continue
            done = self._store.catalog.segments(name)
            sealed = max(done[-1].last_seq if done else 0, registered.since_seq - 1)
            fresh = [extent for extent in extents if extent.first_seq > sealed]
            if fresh:
                self._seal_table(file, registered, fresh)
        self._store.forget_file(file)

    def _seal_table(self, file: RowFile, registered: Registered, extents: list[Extent]) -> None:
        import pyarrow.compute as pc

        from iris_controller.finelog.segment_writer import write_segment
        from iris_controller.finelog.tables.columns import layout_of, rows_to_arrow
        from iris_controller.finelog.verify import verify

        table = registered.table
        batches = []
        marks: dict[str, int] = {}
        for extent in extents:
            batch = file.read(extent)
            if batch is None:
                self._store.note_loss(file, Loss(extent.first_seq, extent.last_seq))
                continue
            batches.append((extent.first_seq, batch))
            marks[batch.producer] = max(marks.get(batch.producer, 0), batch.first_number + batch.rows)
        if not batches:
            return
        folder = self._store.catalog.make_folder(table.name)
        covers = (extents[0].first_seq, extents[-1].last_seq)
        rows = rows_to_arrow(table, batches)
        segment = write_segment(folder, layout_of(table), rows, covers=covers, marks=marks)
        # Read back before the file goes that it was made of.
        verify(folder / segment.name, rows.num_rows, pc.sum(rows["seq"]).as_py())
        if not self._store.add_segment(registered, segment):
            (folder / segment.name).unlink(missing_ok=True)

    def _merge(self, name: str) -> bool:
        """Merges some segments of a table; False if there is nothing to merge."""
        registered = self._store.registered(name)
        segments = self._store.catalog.segments(name)
        if registered is None or len(segments) < 2:
            return False
        from iris_controller.finelog import compaction
        from iris_controller.finelog.segments import SegmentDamaged
        from iris_controller.finelog.tables.columns import layout_of

        inputs = compaction.plan(segments, apart=self._apart)
        span_ms = registered.table.policy.max_age_seconds * 1000 // MERGED_PART
        if not inputs or (span_ms and inputs[-1].created_ms - inputs[0].created_ms > span_ms):
            return False
        folder = self._store.catalog.folder_of(name)
        try:
            merged = compaction.merge(folder, layout_of(registered.table), inputs, self._pause, self._set_apart)
        except SegmentDamaged as damage:
            if self._apart.isdisjoint(segment.name for segment in inputs):
                log.error("%s, just written: %s is not merged", damage, name)
                return False
            return True
        if not self._store.replace_segments(registered, merged, inputs):
            (folder / merged.name).unlink(missing_ok=True)
        return True

    def _set_apart(self, name: str, damage: SegmentDamaged) -> None:
        log.error("%s; it is left out of merges", damage)
        self._apart.add(name)

    def _pause(self, seconds: float) -> None:
        """Rests as long as it worked, so that neither pushes nor reads feel it."""
        if threading.current_thread() is not self._thread:
            return
        with self._wake:
            if not self._is_closed:
                self._wake.wait(min(seconds, 0.1))
            if self._is_closed:
                raise _Stopped

    def _retain(self, name: str, now_ms: int) -> None:
        registered = self._store.registered(name)
        if registered is None:
            return
        segments = self._store.catalog.segments(name)
        if self._store.closed_files():
            # The newest says up to where the rows of a file that is still there are sealed.
            segments = segments[:-1]
        gone = expired(segments, registered.table.policy, now_ms, has_times=bool(registered.table.time_column))
        if gone:
            self._store.remove_segments(name, gone)
            log.info(
                "removed %d segments of %s, %d rows up to seq %d, as its storage policy says",
                len(gone), name, sum(segment.rows for segment in gone), gone[-1].last_seq,
            )  # fmt: skip


def expired(
    segments: tuple[Segment, ...], policy: StoragePolicy, now_ms: int, *, has_times: bool = True
) -> list[Segment]:
    """The oldest segments that a policy no longer keeps.

    A segment's age is that of its latest row, but at least as high as the time since it was written says: rows from a clock that is
    ahead do not stay for ever.
    """
    count, size = len(segments), sum(segment.bytes for segment in segments)
    gone: list[Segment] = []
    for segment in segments:
        latest_ms = min(segment.latest_ms, segment.created_ms) if has_times else segment.created_ms
        is_old = policy.max_age_seconds and latest_ms < now_ms - policy.max_age_seconds * 1000
        too_many = policy.max_segments and count > policy.max_segments
        too_large = policy.max_bytes and size > policy.max_bytes
        if not (is_old or too_many or too_large):
            break
        gone.append(segment)
        count -= 1
        size -= segment.bytes
    return gone
