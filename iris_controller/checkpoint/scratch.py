"""Private folders that outlive no process: whoever makes one holds a lock on it, and what nobody holds is left over from a kill.

The lock is on the folder itself, so it goes with it through a rename. Must never remove a folder that somebody holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path


def make(parent: Path, prefix: str) -> tuple[Path, int]:
    """A new folder of mode 0700, and the descriptor that holds it exclusively. Raises OSError."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = hold(folder, fcntl.LOCK_EX)
        if lock is not None:
            return folder, lock
        # Somebody swept in the moment before it was held.


def sweep(parent: Path, prefix: str) -> None:
    """Removes those of this user that nobody holds."""
    for folder in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and (lock := hold(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)):
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def hold(folder: Path, how: int) -> int | None:
    """A lock on the folder that has this name now; None where there is none, or (LOCK_NB) somebody else holds it. Raises OSError."""
    while True:
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            fcntl.flock(lock, how)
            held, named = os.fstat(lock), folder.stat()
        except (BlockingIOError, FileNotFoundError):
            os.close(lock)
            return None
        except BaseException:
            os.close(lock)
            raise
        if (held.st_ino, held.st_dev) == (named.st_ino, named.st_dev):
            return lock
        # It was replaced between the two.
        os.close(lock)
