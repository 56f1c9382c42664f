"""Unpacked checkpoints, kept so that the same one opens at once the second time.

An entry is a folder named after the sha256 of the compressed file, with the database and `entry.json`. It appears by one rename, so that
nobody sees half of one, and whoever reads it holds a shared lock on the folder, so that nobody removes it meanwhile. It is taken only if
the file is as it was left: size, inode, and the times of its last write and last change, of which the kernel lets nobody set the last.
Nothing is synced, which would take longer than unpacking again: an entry counts until the machine is booted anew.

What is used least recently goes first when all of it would be more than the cap. Must never be the only copy of anything, and never a
reason for a checkpoint not to open: every fault here is for the caller to go on without.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris_controller.checkpoint import scratch
from iris_controller.checkpoint.layout import DATABASE
from iris_core.config.places import cache_home
from iris_core.contracts import UsageFailed
from iris_core.model.errors import ModelError
from iris_core.model.quantities import format_size, parse_size

FOLDER: Final = "checkpoints"
VARIABLE: Final = "IRIS_CHECKPOINT_CACHE"
LIMIT_BYTES: Final = 8 << 30
ENTRY: Final = "entry.json"
FORMAT: Final = 1
_NEW, _OLD = ".new-", ".old-"


class CacheFull(OSError):
    """The database does not fit under the cap, or only in the place of what others are reading."""


def limit_from_environment() -> int:
    """The cap in bytes: `$IRIS_CHECKPOINT_CACHE` (`20G`; 0 = keep nothing), else 8 GiB. Raises UsageFailed."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return LIMIT_BYTES
    try:
        return parse_size(text)
    except ModelError as error:
        raise UsageFailed(f"{VARIABLE}: {error.message}", hint="write a size, as 20G, or 0 to keep nothing") from None


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry that cannot be removed until it is closed."""

    database: Path
    lock: int

    def close(self) -> None:
        os.close(self.lock)


class Cache:
    """The entries below `folder`, of at most `limit_bytes` together."""

    def __init__(self, folder: Path | None = None, limit_bytes: int | None = None) -> None:
        self.folder = cache_home() / FOLDER if folder is None else folder
        self.limit_bytes = limit_from_environment() if limit_bytes is None else limit_bytes

    def get(self, key: str) -> Kept | None:
        """The entry, and the last one to be removed from now on; None where there is none as it was left. Raises OSError."""
        folder = self.folder / key
        lock = scratch.hold(folder, fcntl.LOCK_SH)
        if lock is None:
            return None
        if _as_left(folder):
            with contextlib.suppress(OSError):
                os.utime(folder / ENTRY)
            return Kept(folder / DATABASE, lock)
        os.close(lock)
        self._remove(folder)
        return None

    def has(self, key: str) -> bool:
        """Whether there is an entry, as it was left or not."""
        return (self.folder / key).is_dir()

    def fill(self, key: str, size_bytes: int, write: Callable[[Path], None]) -> Kept:
        """Makes the entry with `write`, which is given where the database of about that size is to be.

        Raises what `write` raises, CacheFull, and OSError: the folder cannot be used. Nothing is left behind then.
        """
        self._prepare()
        self._make_room(size_bytes)
        folder, lock = scratch.make(self.folder, _NEW)
        try:
            write(folder / DATABASE)
            (folder / ENTRY).write_text(json.dumps({"format": FORMAT, **_facts(folder / DATABASE)}) + "\n")
            fcntl.flock(lock, fcntl.LOCK_SH)
            try:
                folder.rename(self.folder / key)
            except OSError:
                # Somebody else was quicker.
                theirs = self.get(key)
                if theirs is None:
                    raise
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
                return theirs
            return Kept(self.folder / key / DATABASE, lock)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
            raise

    def _prepare(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder.stat().st_uid != os.geteuid():
            raise PermissionError(1, "it belongs to another user", str(self.folder))
        os.chmod(self.folder, 0o700)
        for prefix in (_NEW, _OLD):
            scratch.sweep(self.folder, prefix)

    def _make_room(self, size_bytes: int) -> None:
        entries = sorted(self._entries()) if size_bytes <= self.limit_bytes else []
        excess = size_bytes + sum(size for _, size, _ in entries) - self.limit_bytes
        for _, size, folder in entries:
            if excess <= 0:
                break
            lock = scratch.hold(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock is not None:
                self._remove(folder)
                os.close(lock)
                excess -= size
        if excess > 0:
            raise CacheFull(
                f"{format_size(size_bytes)} do not fit into the {format_size(self.limit_bytes)} of {VARIABLE}"
            )

    def _entries(self) -> Iterator[tuple[int, int, Path]]:
        """(last use, bytes, folder) of each."""
        for folder in self.folder.iterdir():
            if folder.name.startswith("."):
                continue
            with contextlib.suppress(OSError):
                used, size = (folder / ENTRY).stat().st_mtime_ns, (folder / DATABASE).stat().st_size
                yield used, size, folder

    def _remove(self, folder: Path) -> None:
        """Out of the way at once, then gone. It may be gone already."""
        away = self.folder / f"{_OLD}{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):
            folder.rename(away)
            shutil.rmtree(away, ignore_errors=True)


def _as_left(folder: Path) -> bool:
    try:
        said = json.loads((folder / ENTRY).read_bytes())
        return bool(said == {"format": FORMAT, **_facts(folder / DATABASE)})
    except (OSError, ValueError):
        return False


def _facts(database: Path) -> dict[str, int | str]:
    found = database.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError(f"{database} is no file of ours")
    return {
        "boot": _boot_id(),
        "size": found.st_size,
        "inode": found.st_ino,
        "written_ns": found.st_mtime_ns,
        "changed_ns": found.st_ctime_ns,
    }


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
