"""Segments that lie in the object store alone, fetched when somebody reads them, within a bound of disk.

What is read again soon is still here; beyond the bound the one that was read longest ago goes, unless somebody reads it now. A file
counts once its bytes fit the checksum in its name. A store that does not answer is an error of that one read. Must never hold a lock
while it fetches, except against a second fetch of the same segment.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, OrderedDict
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final

from iris_controller.finelog.disk import create
from iris_controller.finelog.steps import reached
from iris_core.contracts import IrisError, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from iris_controller.finelog.segment import Segment
    from iris_core.contracts import ObjectStore

DIGITS: Final = 16
"""So many hex digits of the checksum end an object's name."""


class Unfit(Exception):
    """The object is gone, or is not what its name says."""


class Gone(OSError):
    """The same, to whoever wanted to read it: trying again does not help."""


def fetch(remote: ObjectStore, name: str, size: int, sha256: str, path: Path) -> None:
    """One object as a durable file; `sha256` may be the checksum's beginning. Raises Unfit, IrisError, OSError: no such file is there."""
    scratch = path.with_name(f"{path.name}.tmp")
    scratch.unlink(missing_ok=True)
    digest = hashlib.sha256()
    descriptor = create(scratch)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            for piece in _bounded(remote.chunks(name), size, name):
                digest.update(piece)
                file.write(piece)
            os.fsync(file.fileno())
        if not digest.hexdigest().startswith(sha256):
            raise Unfit(f"{name} does not fit its checksum")
        scratch.rename(path)
    except ObjectMissing:
        raise Unfit(f"{name} is not in {remote.url}") from None
    finally:
        scratch.unlink(missing_ok=True)


def _bounded(pieces: Iterator[bytes], size: int, name: str) -> Iterator[bytes]:
    found = 0
    for piece in pieces:
        found += len(piece)
        if found > size:
            raise Unfit(f"{name} is larger than it was")
        yield piece


class ColdFiles:
    """See the module. `hold` and `let_go` belong together. Any thread."""

    def __init__(self, folder: Path, remote: ObjectStore, max_bytes: int) -> None:
        self._folder = folder
        self._remote = remote
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._fetching: dict[str, Lock] = {}
        self._held: Counter[str] = Counter()
        self._files: OrderedDict[str, int] = OrderedDict()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime):
            if path.suffix == ".tmp":
                path.unlink()
            else:
                self._files[path.name] = path.stat().st_size

    @property
    def bytes(self) -> int:
        """What it takes of the disk."""
        with self._lock:
            return sum(self._files.values())

    def hold(self, segment: Segment) -> Path:
        """The segment as a file that stays until `let_go`. May take as long as fetching does. Raises OSError."""
        name = segment.object.rpartition("/")[2]
        path = self._folder / name
        with self._lock:
            self._held[name] += 1
            one_at_a_time = self._fetching.setdefault(name, Lock())
        try:
            with one_at_a_time:
                if name not in self._files:
                    self._fetch(segment, path)
            with self._lock:
                self._files[name] = segment.bytes
                self._files.move_to_end(name)
            self._shrink()
        except BaseException:
            self.let_go(segment)
            raise
        return path

    def let_go(self, segment: Segment) -> None:
        """Nobody reads it any more who held it once."""
        name = segment.object.rpartition("/")[2]
        with self._lock:
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]
        self._shrink()

    def _fetch(self, segment: Segment, path: Path) -> None:
        sha256 = segment.object.removesuffix(".parquet")[-DIGITS:]
        try:
            fetch(self._remote, segment.object, segment.bytes, sha256, path)
        except Unfit as error:
            raise Gone(str(error)) from error
        except IrisError as error:
            raise OSError(f"it lies in the object store alone, and {error.message}") from error
        reached("cold: a segment is here")

    def _shrink(self) -> None:
        with self._lock:
            excess = sum(self._files.values()) - self._max_bytes
            for name in list(self._files):
                if excess <= 0:
                    return
                if not self._held[name]:
                    excess -= self._files.pop(name)
                    self._fetching.pop(name, None)
                    with suppress(OSError):
                        (self._folder / name).unlink()
