"""An object store in memory (`contracts.ObjectStore`), as strict as the contract, that fails when it is told to.

What a real server of the tests does not check, or cannot be made to do (a stale generation, an outage in the middle of an upload, a
store that hangs), is shown with this one. Safe for several threads; must never touch a disk except to take a file that is put.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from iris_core.contracts import GenerationMismatch, IrisError, ObjectInfo, ObjectMissing
from providers.objects.names import parts_of

PIECE_BYTES = 64 << 10


class FakeStore:
    """`objects` holds what was put. `before`, when set, is called with verb and name before anything is done: it may raise, block, or
    change the store as another writer would."""

    def __init__(self, url: str = "gs://fake/root") -> None:
        self.url = url
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.before: Callable[[str, str], None] | None = None
        self.calls: list[tuple[str, str]] = []
        self._generations = itertools.count(1)
        self._lock = threading.RLock()

    def fail(self, *verbs: str, reason: str = "the store does not answer") -> None:
        """From now on these calls fail; all of them if none is named."""

        def refuse(verb: str, name: str) -> None:
            if not verbs or verb in verbs:
                raise IrisError(f"cannot {verb} {name} in {self.url}: {reason}")

        self.before = refuse

    def _enter(self, verb: str, name: str) -> None:
        self.calls.append((verb, name))
        if self.before is not None:
            self.before(verb, name)

    def put(self, name: str, data: bytes, *, if_generation: str | None = None) -> ObjectInfo:
        parts_of(name)
        self._enter("write", name)
        with self._lock:
            current = self.objects.get(name, (b"", ""))[1]
            if if_generation is not None and if_generation != current:
                raise GenerationMismatch(f"{name} in {self.url} was written by somebody else")
            generation = str(next(self._generations))
            self.objects[name] = (bytes(data), generation)
            return ObjectInfo(name, len(data), generation)

    def put_file(self, name: str, path: Path, *, if_generation: str | None = None) -> ObjectInfo:
        info = self.put(name, path.read_bytes(), if_generation=if_generation)
        path.unlink()
        return info

    def get(self, name: str) -> bytes:
        parts_of(name)
        self._enter("read", name)
        with self._lock:
            found = self.objects.get(name)
        if found is None:
            raise ObjectMissing(f"there is no {name} in {self.url}")
        return found[0]

    def chunks(self, name: str) -> Iterator[bytes]:
        data = self.get(name)
        for start in range(0, len(data), PIECE_BYTES):
            yield data[start : start + PIECE_BYTES]

    def stat(self, name: str) -> ObjectInfo | None:
        parts_of(name)
        self._enter("read", name)
        with self._lock:
            found = self.objects.get(name)
        return None if found is None else ObjectInfo(name, len(found[0]), found[1])

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._enter("list", prefix)
        with self._lock:
            found = [ObjectInfo(name, len(data), g) for name, (data, g) in self.objects.items()]
        yield from sorted((info for info in found if info.name.startswith(prefix)), key=lambda info: info.name)

    def delete(self, name: str) -> None:
        parts_of(name)
        self._enter("delete", name)
        with self._lock:
            self.objects.pop(name, None)
