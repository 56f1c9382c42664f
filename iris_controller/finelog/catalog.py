"""Which segments make up each table: one small file, replaced as a whole, and snapshots of it that readers hold.

A segment counts from the moment the catalog names it and no longer than that, so several come and go in one step: what they hold is
read once, before and after a merge. Readers keep the snapshot they began with; a file that it names is removed when the last of
those is released. Every change has a revision.

A catalog that is lost is made anew from the segments themselves, which say what they cover. Must never import what reads segments
unless it has to, nor keep a reader waiting for a disk.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import pairwise
from threading import RLock
from typing import TYPE_CHECKING, Protocol

from iris_controller.finelog.disk import sync_folder, write_atomically
from iris_controller.finelog.segment import Segment
from iris_controller.finelog.steps import reached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

log = logging.getLogger("iris.finelog")

FORMAT = 1
FILE_NAME = "catalog.json"
LOG = "log"
"""The table of the log lines."""


class Cold(Protocol):
    """Segments that lie in the object store alone."""

    def hold(self, segment: Segment) -> Path:
        """The segment as a file, fetched if need be, that stays until `let_go`. Raises OSError."""
        ...

    def let_go(self, segment: Segment) -> None: ...


class Snapshot:
    """The segments of every table at one revision. Release it, or use it in a `with` statement."""

    def __init__(self, catalog: Catalog, revision: int, tables: Mapping[str, tuple[Segment, ...]]) -> None:
        self.revision = revision
        self._catalog = catalog
        self._tables = tables
        self._is_released = False
        self._held: list[tuple[Cold, Segment]] = []

    def tables(self) -> list[str]:
        """The tables that had segments."""
        return sorted(self._tables)

    def segments(self, table: str) -> tuple[Segment, ...]:
        """Those of a table in the order of seq; none of them overlap."""
        return self._tables.get(table, ())

    def path(self, table: str, segment: Segment) -> Path:
        """Where a segment lies. One that is in the object store alone is fetched, and stays until the release. Raises OSError."""
        if not segment.object:
            return self._catalog.folder_of(table) / segment.name
        cold = self._catalog.cold
        if cold is None:
            raise OSError("it lies in an object store alone, and none is configured")
        path = cold.hold(segment)
        self._held.append((cold, segment))
        return path

    def release(self) -> None:
        """Its files may go now, unless the catalog still names them."""
        if not self._is_released:
            self._is_released = True
            for cold, segment in self._held:
                cold.let_go(segment)
            self._catalog.let_go(self.revision)

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


class Catalog:
    """The catalog of one folder, with a folder per table in it. Any thread.

    Opening it removes what a crash left: scratch files, and segments that it does not name. Raises OSError.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # A snapshot may be let go wherever the collector runs.
        self._lock = RLock()
        self._writing = RLock()
        self._held: Counter[int] = Counter()
        self._doomed: list[tuple[int, Path, bool]] = []
        self.cold: Cold | None = None
        self.is_rebuilt = False
        """What is named was found in the folder when this was opened: segments that are in the object store alone are not."""
        self._revision, self._tables = self._load() if folder.is_dir() else (0, {})
        if folder.is_dir():
            self._clean()

    @property
    def revision(self) -> int:
        """Goes up with every change."""
        return self._revision

    def folder_of(self, table: str) -> Path:
        """Where the segments of a table lie."""
        return self.folder / table

    def tables(self) -> list[str]:
        """The tables that have segments."""
        return sorted(self._tables)

    def segments(self, table: str) -> tuple[Segment, ...]:
        """Those of a table in the order of seq. Whoever reads their rows takes a `snapshot` instead."""
        return self._tables.get(table, ())

    def snapshot(self) -> Snapshot:
        """All tables as they are now."""
        with self._lock:
            self._held[self._revision] += 1
            return Snapshot(self, self._revision, self._tables)

    def commit(
        self,
        table: str,
        add: Iterable[Segment] = (),
        remove: Iterable[Segment] = (),
        *,
        replaces: Iterable[Path] = (),
        applied: Callable[[], None] | None = None,
        keeps_index: bool = False,
    ) -> int:
        """Adds and removes segments in one durable step and returns the revision.

        `applied` is called when readers are about to see it. Removed segments, and other files that `add` stands for now (`replaces`),
        go when no snapshot from before is held any more. Raises OSError: nothing changed. Raises ValueError: segments would overlap.
        """
        gone = {segment.name for segment in remove}
        files = [*(self.folder_of(table) / name for name in sorted(gone)), *replaces]
        with self._writing:
            kept = [segment for segment in self.segments(table) if segment.name not in gone]
            merged = tuple(sorted([*kept, *add], key=lambda segment: segment.first_seq))
            for before, after in pairwise(merged):
                if after.first_seq <= before.last_seq:
                    raise ValueError(f"{table}: {before.name} and {after.name} overlap")
            tables = {**self._tables, table: merged}
            if not merged:
                del tables[table]
            revision = self._revision + 1
            self._save(revision, tables)
            with self._lock:
                if applied is not None:
                    applied()
                self._revision, self._tables = revision, tables
                self._doomed += [(revision, path, keeps_index) for path in files]
            reached("catalog: the new one counts")
            self._sweep()
        return revision

    def evict(self, table: str, segment: Segment, name: str) -> None:
        """From now on the segment lies in the object store alone, as object `name`. Its index stays. Raises OSError: nothing changed."""
        with self._writing:
            if any(one == segment and not one.object for one in self.segments(table)):
                self.commit(table, [replace(segment, object=name)], [segment], keeps_index=True)

    def let_go(self, revision: int) -> None:
        """A snapshot of that revision was released."""
        with self._lock:
            self._held[revision] -= 1
            if not self._held[revision]:
                del self._held[revision]
        if self._doomed:
            self._sweep()

    def _sweep(self) -> None:
        with self._lock:
            oldest = min(self._held, default=self._revision)
            ready = [one for one in self._doomed if one[0] <= oldest]
            self._doomed = [one for one in self._doomed if one[0] > oldest]
        for _, path, keeps_index in ready:
            with suppress(OSError):
                if not keeps_index:
                    path.with_suffix(".fidx").unlink(missing_ok=True)
                path.unlink(missing_ok=True)
                reached("catalog: a file that is replaced is gone")

    def _save(self, revision: int, tables: Mapping[str, tuple[Segment, ...]]) -> None:
        body = json.dumps(
            {
                "format": FORMAT,
                "revision": revision,
                "tables": {name: [asdict(segment) for segment in found] for name, found in tables.items()},
            },
            separators=(",", ":"),
        )
        whole = f'{{"checksum":{zlib.crc32(body.encode())},"catalog":{body}}}\n'
        write_atomically(self.folder / FILE_NAME, whole.encode())

    def _load(self) -> tuple[int, dict[str, tuple[Segment, ...]]]:
        path = self.folder / FILE_NAME
        try:
            whole = json.loads(path.read_text())
            body = whole["catalog"]
            if whole["checksum"] != zlib.crc32(json.dumps(body, separators=(",", ":")).encode()):
                raise ValueError("its checksum does not fit")
            tables = {name: tuple(Segment(**one) for one in found) for name, found in body["tables"].items()}
            return int(body["revision"]), tables
        except FileNotFoundError:
            fault = "is missing"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            fault = f"cannot be read ({error})"
        found = {
            folder.name: self._rebuild(folder)
            for folder in sorted(self.folder.iterdir())
            if any(folder.glob("*.parquet"))
        }
        tables = {name: segments for name, segments in found.items() if segments}
        self.is_rebuilt = True
        if found:
            count = sum(map(len, tables.values()))
            log.error("%s %s: it is made anew from %d segments", path, fault, count)
            self._save(1, tables)
            return 1, tables
        return 0, {}

    def _rebuild(self, folder: Path) -> tuple[Segment, ...]:
        from iris_controller.finelog.segments import SegmentDamaged, parse_name, read_footer

        whole: list[Segment] = []
        for path in sorted(folder.glob("*.parquet")):
            if parse_name(path.name) is None:
                continue
            try:
                whole.append(read_footer(path).segment)
            except SegmentDamaged as error:
                log.error("%s; it is left out", error)
                path.rename(path.with_suffix(".damaged"))
        # A merge that was not committed lies beside what it was made of, and stands for all of it.
        whole.sort(key=lambda segment: (segment.first_seq, -segment.last_seq, -segment.level))
        found: list[Segment] = []
        for segment in whole:
            if not found or segment.first_seq > found[-1].last_seq:
                found.append(segment)
        return tuple(found)

    def _clean(self) -> None:
        for folder in self.folder.iterdir():
            if not folder.is_dir():
                continue
            named = {segment.name for segment in self.segments(folder.name)}
            for path in list(folder.iterdir()):
                if path.suffix in (".parquet", ".fidx", ".tmp") and path.with_suffix(".parquet").name not in named:
                    log.info("removing %s, which a stop left behind", path)
                    path.unlink()
        (self.folder / f"{FILE_NAME}.tmp").unlink(missing_ok=True)

    def make_folder(self, table: str) -> Path:
        """The folder of a table, made if need be. Raises OSError."""
        folder = self.folder_of(table)
        for made in (self.folder, folder):
            if not made.is_dir():
                made.mkdir(mode=0o700)
                sync_folder(made.parent)
        return folder
