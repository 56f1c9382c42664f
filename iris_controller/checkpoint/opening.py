"""A checkpoint unpacked for somebody who only looks at it: from the cache where it is, with word of how far it is.

One with a manifest is checked against its sha256 in the same pass that decompresses it, and is kept (`cache.py`). One without, of an
older release or a bare file, has every page looked at instead, and lies in a private temporary folder until it is closed. Either is
brought to this release's schema here, so that nobody who opens it needs to write. Must never write to where the checkpoint lies.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_controller.checkpoint import restore, scratch
from iris_controller.checkpoint.cache import Cache, CacheFull
from iris_controller.checkpoint.installed import require_installed
from iris_controller.checkpoint.layout import DATABASE, BadCheckpoint
from iris_controller.store.database import UNREADABLE, StateDirError, migrate, shipped_migrations
from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_controller.checkpoint.restore import Candidate

PREFIX: Final = "iris-checkpoint-"


class Phase(StrEnum):
    """What is done at the moment, in the words of the screen."""

    LOOKING = "looking for it"
    UNPACKING = "unpacking"
    CHECKING = "looking at every page"
    UPGRADING = "bringing it to this release's schema"
    LOADING = "loading"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the opening is. While unpacking: of the compressed file's bytes, `total` included; else both are 0."""

    phase: Phase
    done_bytes: int = 0
    total_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The database, until `close`. `epoch_ms` is when it was taken, 0 = not known; `cached` = nothing had to be unpacked; `cluster` is whose
    it is, "" = not known."""

    database: Path
    label: str
    epoch_ms: int
    cached: bool
    close: Callable[[], None]
    cluster: str = ""


def unpacked(
    place: str,
    tell: Callable[[Progress], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
    cache: Cache | None = None,
) -> Unpacked:
    """Unpacks the checkpoint that a path or URL means. `tell` hears how far it is, and ends it by raising; `note` gets what an operator
    should know. Without a `cache`, that of this user.

    Raises UsageFailed, BadCheckpoint, IrisError; nothing is left behind then.
    """
    require_installed()
    tell(Progress(Phase.LOOKING))
    candidate = restore.find(place)
    if candidate.doubt:
        note(candidate.doubt)
    try:
        if candidate.manifest is not None:
            cache = cache or Cache()
            try:
                return _from_cache(cache, candidate, candidate.manifest.sha256, tell)
            except (OSError, restore.NoRoom) as error:
                if cache.limit_bytes or not isinstance(error, CacheFull):
                    note(f"checkpoints cannot be kept in {cache.folder}: {_reason(error)}; this one is unpacked anew")
        return _in_temporary(candidate, tell)
    except BadCheckpoint as bad:
        raise BadCheckpoint(f"checkpoint {candidate.label} cannot be used: {bad.message}", hint=bad.hint) from None
    except StateDirError as error:
        raise IrisError(f"checkpoint {candidate.label}: {error.message}", hint="read it with that release") from None


def key_of(sha256: str) -> str:
    """Name of its entry in the cache; what was brought to another release's schema is another one."""
    return f"{sha256}-{shipped_migrations()[-1][0]}"


def _from_cache(cache: Cache, candidate: Candidate, sha256: str, tell: Callable[[Progress], None]) -> Unpacked:
    """Raises OSError, and as `_write` does."""
    manifest = candidate.manifest
    assert manifest is not None
    key = key_of(sha256)
    kept = cache.get(key)
    cached = kept is not None
    if kept is None:
        kept = cache.fill(key, manifest.database_bytes, lambda target: _write(candidate, target, tell))
    return Unpacked(kept.database, candidate.label, candidate.epoch_ms, cached, kept.close, manifest.cluster)


def _in_temporary(candidate: Candidate, tell: Callable[[Progress], None]) -> Unpacked:
    parent = Path(tempfile.gettempdir())
    scratch.sweep(parent, PREFIX)
    try:
        folder, lock = scratch.make(parent, PREFIX)
    except OSError as error:
        raise _no_room(parent, error) from error

    def close() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)

    try:
        _write(candidate, folder / DATABASE, tell)
        return Unpacked(folder / DATABASE, candidate.label, candidate.epoch_ms, False, close)
    except (OSError, restore.NoRoom) as error:
        close()
        raise _no_room(folder, error) from error
    except BaseException:
        close()
        raise


def _no_room(folder: Path, error: OSError | IrisError) -> IrisError:
    return IrisError(
        f"the checkpoint cannot be unpacked in {folder}: {_reason(error)}", hint="set TMPDIR to a folder with room"
    )


def _reason(error: OSError | IrisError) -> str:
    if isinstance(error, IrisError):
        return error.message
    return (error.strerror or str(error)).lower() if not isinstance(error, CacheFull) else str(error)


def _write(candidate: Candidate, target: Path, tell: Callable[[Progress], None]) -> None:
    """Raises BadCheckpoint, StateDirError, IrisError, OSError."""
    total = candidate.size_bytes
    tell(Progress(Phase.UNPACKING, 0, total))
    restore.unpack_to_read(candidate, target, lambda done: tell(Progress(Phase.UNPACKING, done, total)))
    if candidate.manifest is None:
        tell(Progress(Phase.CHECKING))
        restore.check(target)
    try:
        with closing(sqlite3.connect(target, isolation_level=None)) as connection:
            # A kill leaves nothing that anybody would open.
            connection.execute("PRAGMA synchronous=OFF")
            tell(Progress(Phase.UPGRADING))
            migrate(connection, candidate.epoch_ms or 1)
    except UNREADABLE as error:
        raise restore.fault(error) from None
