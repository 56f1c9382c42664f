"""Ships finished segments and a manifest of them, over and over, from a thread of its own.

A round uploads the segments that the catalog names and the object store does not have yet, then moves the manifest, and only then
removes objects that no manifest has named for an hour. Rows that are older than `ship_seconds` and in no segment yet are made to
become one first. So what a lost disk takes is bounded, and it is said all the time.

A store that does not answer is a normal state: nothing here is lost and the next round tries again. A place that belongs to another
store, or that another folder of this store took over, ends shipping for good. Must never remove an object that a manifest names.
"""

from __future__ import annotations

import errno
import logging
import time
from dataclasses import replace
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final

from iris_controller.finelog.shipping import manifest as manifests
from iris_controller.finelog.shipping.cold import Gone
from iris_controller.finelog.shipping.manifest import Manifest, Part
from iris_controller.finelog.shipping.owners import ShippingStatus
from iris_controller.finelog.shipping.upload import marks_of, upload
from iris_controller.finelog.shipping.writer import own_writer
from iris_controller.finelog.steps import reached
from iris_core.contracts import GenerationMismatch, IrisError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from iris_controller.finelog.catalog import Catalog, Snapshot
    from iris_controller.finelog.shipping.manifest import Shipped
    from iris_controller.finelog.shipping.owners import Owner, Standing
    from iris_core.contracts import ObjectStore

log = logging.getLogger("iris.finelog.shipping")

SHIP_SECONDS: Final = 60.0
SHIP_BYTES: Final = 64 << 20
"""So much on this disk alone is shipped at once."""
LOOK_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 60.0
KEEP_SECONDS: Final = 3_600.0
"""How long an object that nothing names stays: somebody may be restoring by the manifest that did."""
MAX_GONE: Final = 200_000
TERMINAL: Final = 2
"""Segments of this level are merged no further: they may lie in the object store alone."""
GONE: Final = (errno.ENOENT, errno.EIO)
"""What reading a segment ends with that this disk does not have any more."""


class _Stopped(Exception):
    """Shipping ends until an operator acts; the message says why."""


def _place_lost(remote: ObjectStore) -> _Stopped:
    return _Stopped(
        f"another folder of this store ships into {remote.url} now: stop its controller, and start this one with --take-over to ship"
        " what is here, or with this folder moved aside to restore what is there"
    )


class Shipper:
    """See the module. `start` it once; `close` ends it after what it is at."""

    def __init__(
        self,
        folder: Path,
        marker: bytes,
        catalog: Catalog,
        owners: Sequence[Owner],
        remote: ObjectStore,
        *,
        ship_seconds: float = SHIP_SECONDS,
        local_bytes: int = 0,
        keep_seconds: float = KEEP_SECONDS,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._marker = marker.hex()
        self._catalog = catalog
        self._owners = owners
        self._remote = remote
        self._ship_seconds = ship_seconds
        self._local_bytes = local_bytes
        self._keep_seconds = keep_seconds
        self._now_ms = now_ms
        self._clock = clock
        self._writer = ""
        self._manifest: Manifest | None = None
        self._generation = ""
        self._known: dict[tuple[str, str], Shipped] = {}
        self._settled: tuple[int, ...] = ()
        """The catalog's revision and how far each owner was when nothing was left to ship."""
        self._doomed: dict[str, float] = {}
        self._measured: tuple[tuple[int, int], object, tuple[int, int]] | None = None
        self._failures = 0
        self._unreadable: dict[tuple[str, str], str] = {}
        """Table and name of segments that are lost, and why."""
        self._wake = Condition()
        self._is_closed = False
        self._thread = Thread(target=self._run, name="finelog-shipper", daemon=True)
        self.status = ShippingStatus("shipping", place=remote.url)

    # The thread --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins with what the last process did not get to."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; a store that does not answer is not waited for."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def _run(self) -> None:
        while not self._is_closed:
            going_on = self.round()
            if not going_on:
                return
            pause = min(LOOK_SECONDS * 2**self._failures, RETRY_SECONDS)
            with self._wake:
                if not self._is_closed:
                    self._wake.wait(min(pause, self._ship_seconds))

    def round(self) -> bool:
        """One look at what is to be shipped. False when shipping has ended for good."""
        try:
            self._claim()
            self._roll()
            standings = {owner.name: owner.standing() for owner in self._owners}
            with self._catalog.snapshot() as snapshot:
                self._ship(snapshot, standings)
            self._remove()
            self._evict()
        except _Stopped as stop:
            log.error("logs and stats are not shipped any more: %s", stop)
            self.status = replace(self.status, state="stopped", problem=str(stop))
            return False
        except (IrisError, OSError) as error:
            why = error.message if isinstance(error, IrisError) else str(error)
            if not self._failures:
                log.warning("logs and stats are not shipped for now: %s", why)
            self._failures += 1
            self.status = replace(self.status, state="behind", problem=why)
        except Exception as error:
            log.exception("shipping broke; it is tried again")
            self._failures += 1
            self.status = replace(self.status, state="behind", problem=f"{type(error).__name__}: {error}")
        else:
            if self._failures:
                log.info("logs and stats are shipped again")
            self._failures = 0
            self.status = replace(self.status, state="shipping", problem=self._left_out())
        return True

    # Whose place it is -------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Learns what is there, once. Raises _Stopped, IrisError, OSError."""
        if self._manifest is not None:
            return
        self._writer = self._writer or own_writer(self._folder)
        found = manifests.read(self._remote)
        there = found.manifest
        if there is None:
            self._manifest = Manifest(self._marker, self._writer, 0, 0)
        elif there.marker != self._marker:
            raise _Stopped(
                f"{self._remote.url} holds the segments of another store: give this one a place of its own, or start it on an empty"
                " folder to restore what is there"
            )
        elif there.writer != self._writer:
            raise _place_lost(self._remote)
        else:
            self._manifest = there
            self._known = {(table, one.segment.name): one for table, shipped in there.tables.items() for one in shipped}
        self._generation = found.generation
        self._look_around()

    def _look_around(self) -> None:
        """Objects of a round that a stop ended, and those that were to be removed, go; what somebody took away is shipped again."""
        assert self._manifest is not None
        named = self._manifest.objects
        sizes = {info.name: info.size_bytes for info in self._remote.list(manifests.OBJECTS)}
        for name in sizes.keys() - named:
            self._doomed[name] = self._clock()
        self._forget(
            [
                (table, segment.name)
                for table in self._catalog.tables()
                for segment in self._catalog.segments(table)
                if not segment.object
                and (one := self._known.get((table, segment.name))) is not None
                and sizes.get(one.object) != one.segment.bytes
            ]
        )

    def _forget(self, places: Sequence[tuple[str, str]]) -> None:
        """They are on this disk and not, or not whole, where the manifest says: the next round ships them again."""
        if places:
            names = ", ".join(self._known[place].object for place in places[:3])
            log.error(
                "%d objects are not whole in %s any more and are shipped again: %s",
                len(places),
                self._remote.url,
                names,
            )
            gone = set(places)
            self._settled = ()
            self._known = {place: known for place, known in self._known.items() if place not in gone}

    # A round -----------------------------------------------------------------------------------------------------

    def _roll(self) -> None:
        for owner in self._owners:
            standing = owner.standing()
            age_s = (self._now_ms() - standing.loose_since_ms) / 1000
            if standing.loose_since_ms and (age_s >= self._ship_seconds or standing.loose_bytes >= SHIP_BYTES):
                owner.roll()

    def _ship(self, snapshot: Snapshot, standings: Mapping[str, Standing]) -> None:
        assert self._manifest is not None
        at = (snapshot.revision, *(standing.sealed_seq for standing in standings.values()))
        if at == self._settled:
            # Between two changes a round costs nothing, however many producers there are.
            return
        before = self._manifest
        tables: dict[str, tuple[Shipped, ...]] = {}
        fresh: list[tuple[str, Shipped, dict[str, int]]] = []
        for table in snapshot.tables():
            shipped = []
            for segment in snapshot.segments(table):
                one = self._known.get((table, segment.name))
                if one is None or one.segment != segment:
                    if (table, segment.name) in self._unreadable:
                        continue
                    try:
                        path = snapshot.path(table, segment)
                        one = upload(self._remote, self._folder, table, segment, path)
                    except OSError as error:
                        if error.errno not in GONE and not isinstance(error, Gone):
                            raise
                        # It is lost; the others need not be.
                        log.error("%s of table %s cannot be read and is not shipped: %s", segment.name, table, error)
                        self._unreadable[table, segment.name] = error.strerror or str(error)
                        continue
                    fresh.append((table, one, marks_of(path)))
                shipped.append(one)
            tables[table] = tuple(shipped)
        there = {(table, segment.name) for table in snapshot.tables() for segment in snapshot.segments(table)}
        self._unreadable = {place: why for place, why in self._unreadable.items() if place in there}
        parts = {owner.name: self._part(owner, standings[owner.name], before, fresh) for owner in self._owners}
        known = {(table, one.segment.name): one for table, shipped in tables.items() for one in shipped}
        if tables == dict(before.tables) and parts == dict(before.parts):
            if fresh:
                self._known = known
            self._settled = at
            return
        after = Manifest(self._marker, self._writer, before.revision + 1, self._now_ms(), tables, parts)
        reached("ship: all segments are there")
        try:
            found = manifests.write(self._remote, after, self._generation)
        except GenerationMismatch:
            if self._remote.stat(manifests.NAME) is None:
                # Nobody took it over. The next round looks anew at what is there.
                self._manifest, self._known, self._settled = None, {}, ()
                raise IrisError(f"the manifest in {self._remote.url} is gone: everything is shipped again") from None
            raise _place_lost(self._remote) from None
        reached("ship: the manifest counts")
        self._manifest, self._generation = found.manifest, found.generation
        self._known, self._settled = known, at
        now = self._clock()
        for name in before.objects - after.objects:
            self._doomed[name] = now
        for name in after.objects:
            self._doomed.pop(name, None)
        self.status = replace(
            self.status,
            shipped_at_ms=after.written_ms,
            shipped_seq={name: part.shipped_seq for name, part in parts.items()},
        )

    def _left_out(self) -> str:
        """What is not shipped because it cannot be read, as one line."""
        found = [f"{name} of {table}: {why}" for (table, name), why in self._unreadable.items()]
        return f"{len(found)} segments cannot be read and are not shipped: {', '.join(found[:3])}" if found else ""

    def _part(
        self,
        owner: Owner,
        standing: Standing,
        before: Manifest,
        fresh: Sequence[tuple[str, Shipped, dict[str, int]]],
    ) -> Part:
        old = before.parts.get(owner.name, Part())
        ceiling = old.ceiling
        if ceiling < standing.next_seq + manifests.HEADROOM // 2:
            ceiling = standing.next_seq + manifests.HEADROOM
        marks = {table: dict(found) for table, found in old.marks.items()}
        for table, one, numbers in fresh:
            if owner.owns(table):
                mine = marks.setdefault(table, {})
                for producer, number in numbers.items():
                    known, seq = mine.get(producer, (0, 0))
                    mine[producer] = (max(number, known), max(one.segment.last_seq, seq))
        for table, found in marks.items():
            if len(found) > MAX_GONE:
                newest = sorted(found.items(), key=lambda item: item[1][1])[-MAX_GONE:]
                marks[table] = dict(newest)
        return Part(standing.sealed_seq, ceiling, marks, owner.notes())

    def _remove(self) -> None:
        now = self._clock()
        due = [name for name, since in self._doomed.items() if now - since >= self._keep_seconds]
        if due:
            # Whoever took the place over may name again what this folder gave up.
            info = self._remote.stat(manifests.NAME)
            if info is not None and info.generation != self._generation:
                raise _place_lost(self._remote)
        for name in due:
            self._remote.delete(name)
            del self._doomed[name]
            reached("ship: an object that nothing names is gone")

    def _evict(self) -> None:
        """The oldest segments that are shipped leave this disk when more than `local_bytes` are on it; 0 = never."""
        if not self._local_bytes:
            return
        here = [
            (segment.created_ms, table, segment)
            for table in self._catalog.tables()
            for segment in self._catalog.segments(table)
            if not segment.object
        ]
        excess = sum(segment.bytes for _, _, segment in here) - self._local_bytes
        for _, table, segment in sorted(here, key=lambda item: item[0]):
            one = self._known.get((table, segment.name))
            if excess <= 0:
                return
            if segment.level >= TERMINAL and one is not None and one.segment == segment:
                there = self._remote.stat(one.object)
                if there is None or there.size_bytes != segment.bytes:
                    self._forget([(table, segment.name)])
                    continue
                self._catalog.evict(table, segment, one.object)
                excess -= segment.bytes
                reached("ship: a segment is in the object store alone")

    def current(self) -> ShippingStatus:
        """How shipping is, with what is on this disk alone as of now. Any thread."""
        size, oldest = self._waiting()
        for owner in self._owners:
            standing = owner.standing()
            size += standing.loose_bytes
            oldest = _older(oldest, standing.loose_since_ms)
        return replace(self.status, unshipped_bytes=size, unshipped_since_ms=oldest)

    def _waiting(self) -> tuple[int, int]:
        """Bytes of segments that are not shipped, and when the oldest of them was stored."""
        known = self._known
        at = (self._catalog.revision, id(known))
        if self._measured is None or self._measured[0] != at:
            fresh = [
                segment
                for table in self._catalog.tables()
                for segment in self._catalog.segments(table)
                if (table, segment.name) not in known or known[table, segment.name].segment != segment
            ]
            oldest = min((segment.created_ms for segment in fresh), default=0)
            self._measured = at, known, (sum(segment.bytes for segment in fresh), oldest)
        return self._measured[2]


def _older(one_ms: int, other_ms: int) -> int:
    return min(filter(None, (one_ms, other_ms)), default=0)
