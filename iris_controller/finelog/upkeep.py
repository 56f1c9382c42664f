"""The thread that turns finished write-ahead files into segments, merges those, and removes what is too old.

It works in small pieces and rests between them, as long as it worked while nothing presses, so that neither pushes nor reads feel it;
when finished files pile up it rests less. What fails because of the disk is said, tried again, and said to work again: until then
nothing is lost, since a file goes only when its segment counts. Must never hold up a push.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from iris_controller.finelog.catalog import LOG
from iris_controller.quiet import QuietLog

if TYPE_CHECKING:
    from iris_controller.finelog.segment import Segment
    from iris_controller.finelog.segments import SegmentDamaged
    from iris_controller.finelog.store import Store

log = logging.getLogger("iris.finelog")

INTERVAL_SECONDS = 30.0
"""How often it looks without being woken: for what became too old, and what failed."""
REST = 1.0
"""Seconds of rest for each second of work."""
PRESSING_FILES = 8
"""Finished files from which on it does not rest."""
SAY_SECONDS = 60.0


class _Stopped(Exception):
    """The thread is told to end."""


class Upkeep:
    """See the module. `targets` are the sizes of merged segments, by default those of `compaction`."""

    def __init__(
        self,
        store: Store,
        *,
        targets: tuple[int, int] | None = None,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self._store = store
        self._targets = targets
        self._interval = interval
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._apart: set[str] = set()
        self._faults, self._recoveries = QuietLog(log, SAY_SECONDS), QuietLog(log, SAY_SECONDS)

    def start(self) -> None:
        """Works in a thread of its own from now on."""
        self._thread = threading.Thread(target=self._run, name="finelog-upkeep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; what it was at is begun anew next time."""
        self._stopping.set()
        self._store.sealed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._store.sealed.clear()
            try:
                self.tend()
            except _Stopped:
                return
            except Exception:
                log.exception("the upkeep of %s failed", self._store.folder)
            self._store.sealed.wait(self._interval)

    def tend(self) -> None:
        """Does all there is to do now. What the disk refuses is put off, and told by the store's `upkeep_fault`."""
        try:
            while self.convert():
                pass
            while self.compact():
                pass
            while self.reindex():
                pass
            self._store.remove_old()
        except OSError as error:
            self._fails(error.strerror or str(error))
        else:
            self._works()

    def convert(self) -> bool:
        """Turns the oldest finished file into a segment; False if there is none. Raises OSError."""
        store = self._store
        file = store.finished()
        if file is None:
            return False
        from iris_controller.finelog import convert
        from iris_controller.finelog.segments import SegmentDamaged

        folder = store.catalog.make_folder(LOG)
        try:
            opened = store.open_files.get(file)
            segment = convert.convert(file, opened, store.marker, folder, store.note_loss, self._pause)
        except SegmentDamaged as damage:
            self._fails(f"{damage}, just written")
            return False
        return store.adopt(segment, file)

    def compact(self) -> bool:
        """Merges some segments; False if there is nothing to merge. Raises OSError."""
        store = self._store
        segments = store.catalog.segments(LOG)
        if len(segments) < 2:
            return False
        from iris_controller.finelog import compaction
        from iris_controller.finelog.loglines import LAYOUT
        from iris_controller.finelog.segments import SegmentDamaged

        inputs = compaction.plan(segments, self._targets or compaction.TARGETS, self._apart)
        if not inputs:
            return False
        folder = store.catalog.folder_of(LOG)
        try:
            merged = compaction.merge(folder, LAYOUT, inputs, self._pause, self._set_apart)
        except SegmentDamaged as damage:
            if not self._apart.intersection(segment.name for segment in inputs):
                self._fails(f"{damage}, just written")
                return False
            return True
        self._commit(merged, inputs)
        return True

    def reindex(self) -> bool:
        """Makes the index of a segment anew that was searched without one; False if there is none such. Raises OSError."""
        store = self._store
        segment = store.filters.next_missed()
        if segment is None:
            return False
        from iris_controller.finelog import trigrams
        from iris_controller.finelog.loglines import LAYOUT
        from iris_controller.finelog.segments import SegmentDamaged

        with store.catalog.snapshot() as snapshot:
            if segment in snapshot.segments(LOG) and not segment.object:
                try:
                    trigrams.rebuild(snapshot.path(LOG, segment), LAYOUT.indexed, self._pause)
                except SegmentDamaged as damage:
                    log.error("%s; it stays without an index", damage)
                else:
                    store.filters.forget(segment)
        return True

    def _commit(self, merged: Segment, inputs: tuple[Segment, ...]) -> None:
        store = self._store
        with store.keeping:
            if set(inputs) <= set(store.catalog.segments(LOG)):
                store.catalog.commit(LOG, add=[merged], remove=inputs)
                return
        # Retention took some of them meanwhile.
        (store.catalog.folder_of(LOG) / merged.name).unlink(missing_ok=True)

    def _set_apart(self, name: str, damage: SegmentDamaged) -> None:
        """A damaged segment is served as far as it can be read, and stays as it is."""
        log.error("%s; it is left out of merges", damage)
        self._apart.add(name)

    def _pause(self, seconds: float) -> None:
        if self._stopping.is_set():
            raise _Stopped
        is_pressing = len(self._store.files) > PRESSING_FILES
        # Without any rest a busy lock would always be had by the same thread.
        if self._thread is not None and self._stopping.wait(0.0005 if is_pressing else min(seconds * REST, 0.1)):
            raise _Stopped

    def _fails(self, what: str) -> None:
        self._store.upkeep_fault = what
        self._faults.warning(
            "cannot turn logs in %s into segments: %s; they stay as they are until it can", self._store.folder, what
        )

    def _works(self) -> None:
        store = self._store
        if store.upkeep_fault:
            self._recoveries.warning("segments in %s are written again after: %s", store.folder, store.upkeep_fault)
            store.upkeep_fault = ""
