"""Bundles on this host, by content: fetched once from the controller, checked, kept for the next attempt.

The id is the sha256 of the bytes, so a file under its id is either right or not there, and nobody needs to be asked whether it is
still current. Fetches of the same bundle are one fetch. Must never hand out a file whose hash was not computed here.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_log = logging.getLogger("iris.worker.bundles")

MAX_BYTES = 256 * 1024 * 1024
"""Ten times what a controller accepts: a bound, not a rule."""
KEEP_BYTES = 1024 * 1024 * 1024
_TRIES = 3
_PATIENCE_S = 300.0
_PAUSE_S = 1.0
_ID = re.compile(r"[0-9a-f]{64}")


class CannotFetch(Exception):
    """The bundle can not be had; the message says why. `away` = nobody answered, which may be over in a moment; `gone` = no other
    host would get it either."""

    def __init__(self, message: str, *, away: bool = False, gone: bool = False) -> None:
        super().__init__(message)
        self.away = away
        self.gone = gone


class Fetch(Protocol):
    """Streams a bundle's bytes. Raises CannotFetch."""

    def __call__(self, bundle_id: str, /) -> AsyncIterator[bytes]: ...


class Bundles:
    """The cache below `folder`."""

    def __init__(self, folder: Path, fetch: Fetch) -> None:
        self._folder = folder
        self._fetch = fetch
        self._fetching: dict[str, asyncio.Task[Path]] = {}

    async def get(self, bundle_id: str) -> Path:
        """The file of the bundle. Raises CannotFetch or OSError."""
        if not _ID.fullmatch(bundle_id):
            raise CannotFetch(f"{bundle_id[:80]!r} is no bundle id")
        path = self._folder / f"{bundle_id}.zip"
        if await asyncio.to_thread(_touch, path):
            return path
        task = self._fetching.get(bundle_id)
        if task is None:
            task = asyncio.create_task(self._download(bundle_id, path), name=f"fetch bundle {bundle_id[:12]}")
            self._fetching[bundle_id] = task
            task.add_done_callback(lambda done: self._done(bundle_id, done))
        return await asyncio.shield(task)

    def _done(self, bundle_id: str, task: asyncio.Task[Path]) -> None:
        self._fetching.pop(bundle_id, None)
        if not task.cancelled():
            task.exception()  # every asker got it; when all were stopped meanwhile, nobody did

    async def _download(self, bundle_id: str, path: Path) -> Path:
        arrived: set[str] = set()
        for left in reversed(range(_TRIES)):
            chunks = await self._patiently(bundle_id)
            digest = await asyncio.to_thread(_store, path, chunks, bundle_id)
            if digest == bundle_id:
                return path
            arrived.add(digest)
            _log.warning("bundle %s arrived damaged, %d more tries", bundle_id, left)
        # The same wrong bytes each time were not damaged on the way, nor by this host.
        if len(arrived) == 1:
            raise CannotFetch("the bundle is damaged where the controller keeps it", gone=True)
        raise CannotFetch("the bundle arrives damaged")

    async def _patiently(self, bundle_id: str) -> list[bytes]:
        """The bundle's bytes; a controller that is away is waited for."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_S
        while True:
            chunks: list[bytes] = []
            size = 0
            try:
                async for chunk in self._fetch(bundle_id):
                    size += len(chunk)
                    if size > MAX_BYTES:
                        raise CannotFetch(f"the bundle is larger than {MAX_BYTES} bytes")
                    chunks.append(chunk)
                return chunks
            except CannotFetch as error:
                if not error.away or loop.time() >= deadline:
                    raise
                _log.warning("bundle %s cannot be fetched yet: %s", bundle_id, error)
                await asyncio.sleep(_PAUSE_S)


def _touch(path: Path) -> bool:
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _store(path: Path, chunks: list[bytes], bundle_id: str) -> str:
    """Keeps what has the right hash. Returns the hash that it has. Raises OSError."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    if digest.hexdigest() != bundle_id:
        return digest.hexdigest()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_room(path.parent, sum(map(len, chunks)))
    temporary = path.with_suffix(".part")
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.writelines(chunks)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return bundle_id


def _make_room(folder: Path, size: int) -> None:
    """Removes the bundles not used for longest. An unpacking that has the file open keeps it until it is done."""
    found = sorted((entry.stat().st_mtime_ns, entry.stat().st_size, entry.path) for entry in os.scandir(folder))
    total = size + sum(bytes_ for _, bytes_, _ in found)
    for _, bytes_, path in found:
        if total <= KEEP_BYTES:
            return
        os.unlink(path)
        total -= bytes_
