"""Opens a checkpoint: bounded, checked before anything of the state is touched, and swapped in by renames.

The bytes come from a store that others can write to: window, output and input are bounded, sizes and digest are those of the manifest,
and SQLite looks at every page before a controller takes the file. Must never delete a database, nor touch `db` before the new one is
whole.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_controller.checkpoint.layout import (
    COMPRESSED,
    DATABASE,
    FOLDER,
    MANIFEST,
    SCRATCH,
    BadCheckpoint,
    Manifest,
    folder_of,
    objects_by_epoch,
    read_manifest,
)
from iris_controller.checkpoint.snapshot import SnapshotFailed, standing_alone
from iris_controller.store.database import UNREADABLE, said
from iris_core.contracts import UsageFailed
from providers.objects import open_store

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore

MAX_DATABASE_BYTES: Final = 64 << 30
"""No checkpoint is larger, whatever it says of itself."""
MAX_WINDOW: Final = 128 << 20
"""What `zstd -d` itself takes without being told; ours need 2 MiB."""
SPARE_BYTES: Final = 64 << 20
"""Stays free on the disk."""
PIECE_BYTES: Final = 1 << 20
STAGING: Final = "db.restoring"
READY: Final = "db.restored"
MARK: Final = "restored-for"

_ZSTD = b"\x28\xb5\x2f\xfd"
_SQLITE = b"SQLite format 3\0"
_EPOCH = re.compile(r"[0-9]{1,15}")


class NoRoom(BadCheckpoint):
    """The disk has too little room for what is in it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that can be tried: the object of its database, and its manifest unless it is of an older release."""

    store: ObjectStore
    name: str
    size_bytes: int
    label: str
    epoch_ms: int = 0
    manifest: Manifest | None = None

    @property
    def doubt(self) -> str:
        """What whoever serves or reads it should know of where it comes from, "" = nothing."""
        return (
            ""
            if self.manifest is not None
            else f"{self.label} has no manifest: it is taken as a checkpoint of an older release"
        )


def newest_first(store: ObjectStore, skipped: list[str]) -> Iterator[Candidate]:
    """Every checkpoint of a remote state dir whose manifest is valid; `skipped` gets one line for each other. Raises IrisError."""
    for epoch, sizes in objects_by_epoch(store).items():
        try:
            manifest = read_manifest(store, epoch, sizes)
        except BadCheckpoint as bad:
            skipped.append(f"checkpoint {epoch}: {bad.message}")
            continue
        yield _candidate(store, epoch, manifest)


def _candidate(store: ObjectStore, epoch: int, manifest: Manifest) -> Candidate:
    name = f"{folder_of(epoch)}/{COMPRESSED}"
    return Candidate(store, name, manifest.size_bytes, f"{store.url}/{folder_of(epoch)}", epoch, manifest)


def find(text: str) -> Candidate:
    """What an operator means by a path or URL: a checkpoint's folder, a database file of one, or a remote state dir, of which the
    newest valid one is taken.

    Raises:
        UsageFailed: this is no place of checkpoints.
        BadCheckpoint: there is no usable checkpoint there.
        IrisError: the store does not answer.
    """
    url = (text if "://" in text else Path(text).expanduser().absolute().as_uri()).rstrip("/")
    parent, _, last = url.rpartition("/")
    if last.endswith((".sqlite3", ".zst")):
        store = open_store(parent)
        info = store.stat(last)
        if info is None:
            raise BadCheckpoint(f"Checkpoint not found: there is no {url}")
        epoch = parent.rpartition("/")[2]
        return Candidate(store, last, info.size_bytes, url, int(epoch) if _EPOCH.fullmatch(epoch) else 0)
    if _EPOCH.fullmatch(last):
        return _folder(open_store(url), int(last))
    root = open_store(parent if last == FOLDER else url)
    skipped: list[str] = []
    for candidate in newest_first(root, skipped):
        return candidate
    raise BadCheckpoint(
        f"Checkpoint not found: {root.url} holds no valid one{''.join(f'; {line}' for line in skipped[:5])}",
        hint="name a folder <epoch_ms>, a database file, or a remote state dir",
    )


def _folder(store: ObjectStore, epoch: int) -> Candidate:
    sizes = {info.name: info.size_bytes for info in store.list("")}
    if MANIFEST in sizes:
        try:
            manifest = Manifest.from_json(store.get(MANIFEST), epoch)
            if sizes.get(COMPRESSED) != manifest.size_bytes:
                raise BadCheckpoint(
                    f"{COMPRESSED} has {sizes.get(COMPRESSED, 0)} bytes, its manifest says {manifest.size_bytes}"
                )
        except BadCheckpoint as bad:
            raise BadCheckpoint(f"checkpoint {store.url} cannot be used: {bad.message}") from None
        return Candidate(store, COMPRESSED, manifest.size_bytes, store.url, epoch, manifest)
    for name in (COMPRESSED, DATABASE):
        if name in sizes:
            return Candidate(store, name, sizes[name], store.url, epoch)
    raise BadCheckpoint(f"Checkpoint not found: {store.url} holds no {COMPRESSED}")


class _Source:
    """The object as a file to read from: counted, digested, and never more of it than was announced."""

    def __init__(self, candidate: Candidate, tell: Callable[[int], None]) -> None:
        self._pieces = candidate.store.chunks(candidate.name)
        self._limit = candidate.size_bytes
        self._tell = tell
        self._left = b""
        self.digest = hashlib.sha256()
        self.size = 0

    def peek(self, count: int) -> bytes:
        while len(self._left) < count and (piece := next(self._pieces, b"")):
            self._take(piece)
        return self._left[:count]

    def read(self, size: int = PIECE_BYTES) -> bytes:
        if not self._left and (piece := next(self._pieces, b"")):
            self._take(piece)
        found, self._left = self._left[:size], self._left[size:]
        return found

    def require(self, manifest: Manifest) -> None:
        """Raises BadCheckpoint: what was read is not what the manifest says."""
        if self.digest.hexdigest() != manifest.sha256 or self.size != manifest.size_bytes:
            raise BadCheckpoint(f"{COMPRESSED} is damaged: it is not what its manifest says")

    def _take(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self._limit:
            raise BadCheckpoint(f"it has more than the {self._limit} bytes that it should have")
        self.digest.update(piece)
        self._left += piece
        self._tell(self.size)


def require_whole(candidate: Candidate) -> None:
    """Reads all of a checkpoint that has a manifest, and unpacks nothing: whoever stops a controller for it wants to know before that.

    Raises BadCheckpoint: it is damaged; IrisError: the store does not answer.
    """
    assert candidate.manifest is not None
    source = _Source(candidate, lambda _: None)
    while source.read():
        pass
    source.require(candidate.manifest)


def unpack(candidate: Candidate, target: Path) -> None:
    """Writes the checkpoint's database into the new file `target`, durable and checked.

    Raises BadCheckpoint: it is damaged, foreign or a bomb, NoRoom among them; IrisError: the store does not answer; OSError: the disk.
    `target` is the caller's to remove then.
    """
    _unpack(candidate, target, lambda _: None, durable=True)
    check(target)
    _stamp(target, candidate.epoch_ms, durable=True)


def unpack_to_read(candidate: Candidate, target: Path, tell: Callable[[int], None]) -> None:
    """The same for one that is only looked at: not synced, and the pages are looked at only (`check`) by whoever calls this, where
    no manifest has the digest of what was read.

    `tell` gets the compressed bytes read so far, and ends the work by raising. Raises as `unpack`.
    """
    _unpack(candidate, target, tell, durable=False)
    _stamp(target, candidate.epoch_ms, durable=False)


def _unpack(candidate: Candidate, target: Path, tell: Callable[[int], None], *, durable: bool) -> None:
    manifest = candidate.manifest
    free = shutil.disk_usage(target.parent).free - SPARE_BYTES
    limit = min(MAX_DATABASE_BYTES, manifest.database_bytes if manifest is not None else free)
    if manifest is not None and manifest.database_bytes > min(free, MAX_DATABASE_BYTES):
        raise NoRoom(f"its database of {manifest.database_bytes} bytes does not fit: {max(free, 0)} are free")
    source = _Source(candidate, tell)
    written = _write(source, target, limit, durable=durable)
    if manifest is not None:
        source.require(manifest)
        if written != manifest.database_bytes:
            raise BadCheckpoint(f"its database has {written} bytes, its manifest says {manifest.database_bytes}")


def _write(source: _Source, target: Path, limit: int, *, durable: bool) -> int:
    import zstandard

    head = source.peek(16)
    if head.startswith(_ZSTD):
        packed = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(
            source,  # type: ignore[arg-type]  # it asks for `read` alone
            read_size=PIECE_BYTES,
            read_across_frames=True,
        )
        read = packed.read
    elif head == _SQLITE:
        read = source.read
    else:
        raise BadCheckpoint("its database is neither compressed by zstd nor a SQLite file")
    written = 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb", buffering=0) as file:
        while True:
            try:
                piece = read(PIECE_BYTES)
            except zstandard.ZstdError as error:
                raise BadCheckpoint(f"it is damaged: {error}") from None
            if not piece:
                break
            if written == 0:
                try:
                    piece = standing_alone(piece)
                except SnapshotFailed:
                    raise BadCheckpoint("what is in it is no SQLite file") from None
            written += len(piece)
            if written > limit:
                raise BadCheckpoint(f"it unpacks to more than the {limit} bytes that it may have")
            view = memoryview(piece)
            while view:
                view = view[file.write(view) or 0 :]
        if durable:
            os.fsync(descriptor)
    return written


def fault(error: sqlite3.DatabaseError | UnicodeDecodeError) -> BadCheckpoint:
    """What SQLite says of a checkpoint's database, told apart from what it says of the disk."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        return NoRoom("the disk is full")
    return BadCheckpoint(f"its database is damaged: {said(error)}")


def check(path: Path) -> None:
    """Looks at every page. Raises BadCheckpoint."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            verdict = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
    except UNREADABLE as error:
        raise fault(error) from None
    if verdict != ["ok"]:
        raise BadCheckpoint(f"its database is damaged: {verdict[0]}"[:300])


def _stamp(path: Path, epoch_ms: int, *, durable: bool) -> None:
    """Finds it to be a controller's, and writes into it which checkpoint this was (control-plane §6.3). Raises BadCheckpoint."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            if not durable:
                connection.execute("PRAGMA synchronous=OFF")
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not {"schema_migrations", "meta", "jobs", "tasks"} <= tables:
                raise BadCheckpoint("its database is none of a controller")
            if epoch_ms:
                connection.execute(
                    "INSERT INTO meta (key, value) VALUES ('last_checkpoint_epoch_ms', ?)"
                    " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    (epoch_ms,),
                )
    except UNREADABLE as error:
        raise fault(error) from None


def stage(candidate: Candidate, state_dir: Path, mark: str = "") -> Path:
    """Unpacks into a folder of its own beside `db` and returns it, whole and durable. Raises as `unpack` does.

    `mark` lies beside the database from then on (`mark_of`): both come into their place by one rename.
    """
    staging = state_dir / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    try:
        unpack(candidate, staging / DATABASE)
        for leftover in (f"{DATABASE}-journal", f"{DATABASE}-wal", f"{DATABASE}-shm"):
            (staging / leftover).unlink(missing_ok=True)
        if mark:
            with (staging / MARK).open("w") as file:
                file.write(mark)
                file.flush()
                os.fsync(file.fileno())
        _sync(staging)
        ready = state_dir / READY
        staging.rename(ready)
        _sync(state_dir)
        return ready
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def unpack_into(candidate: Candidate, folder: Path) -> Path:
    """Makes a folder that holds the checkpoint's database and nothing else; returns the file. One that has a database is left alone.

    Raises UsageFailed: there is something already. Raises as `unpack` does; what was begun is gone then.
    """
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise UsageFailed(f"{folder} is there already, and not an empty folder", hint="move it aside, never delete it")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = folder / f".{DATABASE}.restoring"
    try:
        unpack(candidate, scratch)
        scratch.rename(folder / DATABASE)
        _sync(folder)
    finally:
        for leftover in folder.glob(f"{scratch.name}*"):
            leftover.unlink()
    return folder / DATABASE


def mark_of(state_dir: Path) -> str:
    """What the database that is in its place was marked with when it was restored, "" = nothing."""
    try:
        return (state_dir / "db" / MARK).read_text() if (state_dir / "db" / DATABASE).exists() else ""
    except (OSError, ValueError):
        return ""


def swap(state_dir: Path, aside: str) -> Path | None:
    """Puts the staged database in the place of `db`, which is kept under the name `aside`; returns where, None if there was nothing.

    Raises OSError; the old one is back in its place then.
    """
    database, ready = state_dir / "db", state_dir / READY
    kept: Path | None = None
    if database.exists() and any(database.iterdir()):
        kept = next(path for path in names(state_dir / aside) if not path.exists())
        database.rename(kept)
    try:
        ready.rename(database)
    except OSError:
        if kept is not None:
            kept.rename(database)
        raise
    _sync(state_dir)
    return kept


def names(path: Path) -> Iterator[Path]:
    """The path, and what it is called when it is taken: the clock may have been set back."""
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.name}-{number}")


def settle(state_dir: Path) -> None:
    """Finishes or undoes what a restore left behind that was killed, and removes half a checkpoint. Raises OSError."""
    for leftover in (STAGING, SCRATCH):
        shutil.rmtree(state_dir / leftover, ignore_errors=True)
    ready, database = state_dir / READY, state_dir / "db"
    if not ready.exists():
        return
    if (database / DATABASE).exists():
        shutil.rmtree(ready)
    else:
        swap(state_dir, f"db.aside.{ready.stat().st_mtime_ns // 1_000_000}")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
