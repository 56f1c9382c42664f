"""A consistent copy of a live database, compressed, without holding its writer up.

In WAL mode a reader that begins while everything is in the main file reads that file alone, and as long as it reads nobody may write to
the file (SQLite's file format, "WAL-mode locks": WAL_READ_LOCK(0)). So the file is brought up to date, a read transaction is begun
under the write lock, which is held for that moment only, and the file itself is then compressed as it lies there: no copy of it is
made, and what is committed meanwhile goes to the WAL. Where other readers keep the WAL from being folded in, SQLite's backup makes a
copy first, which takes the disk of one database more.

Runs in a process of its own (`child`): it would take the controller's threads for seconds, and closing the file that it reads would
drop the locks that SQLite holds for its process. Must never write a row.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris_controller.checkpoint.layout import DATABASE

LEVEL: Final = 1
"""Of zstd. On our data level 3 takes twice as long for 1 % less."""
THREADS: Final = 2
PIECE_BYTES: Final = 1 << 20
SYNC_BYTES: Final = 2 << 20
"""So much is written back at a time: every commit of the controller waits for the disk, and would wait for a flood of ours."""
PIN_FOR_S: Final = 5.0
PIN_EVERY_S: Final = 0.1
BUSY_S: Final = 30.0
NEARLY: Final = 1000
"""Frames of the WAL that may be folded in while the writer waits: as many as SQLite folds in within one of its own commits."""
_WAL_FLAGS: Final = slice(18, 20)
"""In the header of the file: 2 = write-ahead log, 1 = a file that stands alone."""


class SnapshotFailed(Exception):
    """The database cannot be copied; the text says why."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A compressed copy in a file, and what is in it."""

    size_bytes: int
    sha256: str
    database_bytes: int
    schema: str
    jobs: int
    tasks: int
    workers: int


def take(database: Path, target: Path, *, stage: Callable[[str], None] = lambda _: None) -> Snapshot:
    """Compresses the database as of now into the new file `target`.

    `stage` is told `backup` and `compress` as each begins. Raises SnapshotFailed, sqlite3.Error, OSError; what was written to
    `target` is the caller's to remove.
    """
    stage("backup")
    with closing(_open(database)) as reader:
        before = _pin(database, reader)
        if before is None:
            return _copied(database, target, stage)
        facts = _facts(reader)
        pages: int = reader.execute("PRAGMA page_count").fetchone()[0]
        page: int = reader.execute("PRAGMA page_size").fetchone()[0]
        stage("compress")
        with open(database, "rb", buffering=0) as source:
            size, digest = _compress(source.read, pages * page, target)
        if _written(database) != before:
            raise SnapshotFailed("the database was written to while it was copied")
        reader.execute("ROLLBACK")
        # What has gathered in the WAL goes into the file here, and not in the writer's next commit.
        reader.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return Snapshot(size, digest, pages * page, *facts)


def _open(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{database.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None
    )
    connection.execute("PRAGMA wal_autocheckpoint=0")
    return connection


def _pin(database: Path, reader: sqlite3.Connection) -> tuple[int, int] | None:
    """Begins a read transaction of `reader` that keeps the main file as it is, and complete. Returns when the file was last written to;
    None when other readers do not let it happen."""
    deadline = time.monotonic() + PIN_FOR_S
    with closing(_open(database)) as folder, closing(_open(database)) as lock:
        while time.monotonic() < deadline:
            busy, logged, folded = folder.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if busy or logged - folded > NEARLY:
                time.sleep(PIN_EVERY_S if busy else 0)
                continue
            lock.execute("BEGIN IMMEDIATE")
            try:
                busy, logged, folded = folder.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if not busy and logged == folded:
                    reader.execute("BEGIN")
                    reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
                    return _written(database)
            finally:
                lock.execute("ROLLBACK")
            time.sleep(PIN_EVERY_S)
    return None


def _written(database: Path) -> tuple[int, int]:
    found = database.stat()
    return found.st_mtime_ns, found.st_size


def _facts(reader: sqlite3.Connection) -> tuple[str, int, int, int]:
    schema = reader.execute("SELECT max(name) FROM schema_migrations").fetchone()[0]
    counts = [reader.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("jobs", "tasks", "workers")]
    return str(schema), counts[0], counts[1], counts[2]


def _copied(database: Path, target: Path, stage: Callable[[str], None]) -> Snapshot:
    copy = target.with_name(DATABASE)
    os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(_open(database)) as reader, closing(sqlite3.connect(copy, isolation_level=None)) as writer:
            writer.execute("PRAGMA journal_mode=OFF")
            writer.execute("PRAGMA synchronous=OFF")
            # One step: a second one would begin anew whenever somebody commits.
            reader.backup(writer, pages=-1)
            facts = _facts(writer)
        stage("compress")
        with open(copy, "rb", buffering=0) as source:
            length = os.fstat(source.fileno()).st_size
            size, digest = _compress(source.read, length, target)
        return Snapshot(size, digest, length, *facts)
    finally:
        copy.unlink()


def _compress(read: Callable[[int], bytes], length: int, target: Path) -> tuple[int, str]:
    """Compresses `length` bytes into a new durable file; returns its size and digest."""
    import zstandard

    compressor = zstandard.ZstdCompressor(level=LEVEL, threads=THREADS, write_checksum=True).compressobj(size=length)
    digest = hashlib.sha256()
    written = unsynced = done = 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb", buffering=0) as file:

        def write(data: bytes) -> None:
            nonlocal written, unsynced
            view = memoryview(data)
            while view:
                view = view[file.write(view) or 0 :]
            digest.update(data)
            written += len(data)
            unsynced += len(data)
            if unsynced >= SYNC_BYTES:
                os.fdatasync(descriptor)
                unsynced = 0

        while done < length:
            piece = read(min(PIECE_BYTES, length - done))
            if not piece:
                raise SnapshotFailed(f"the database ends after {done} of {length} bytes")
            if done == 0:
                piece = standing_alone(piece)
            done += len(piece)
            write(compressor.compress(piece))
        write(compressor.flush())
        os.fsync(descriptor)
    return written, digest.hexdigest()


def standing_alone(head: bytes) -> bytes:
    """The beginning of a database file, marked as one without a WAL beside it, so that it opens wherever it is put."""
    if len(head) < 100 or not head.startswith(b"SQLite format 3\0"):
        raise SnapshotFailed("the database file is none")
    changed = bytearray(head)
    changed[_WAL_FLAGS] = b"\x01\x01"
    return bytes(changed)
