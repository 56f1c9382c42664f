"""Opens the controller's SQLite file: state directory, lock, integrity check, migrations, connections.

Migrations only go forward; each is one transaction together with its row in `schema_migrations`, so a kill at any statement
leaves either the old or the new schema. A damaged file is never opened in silence and never deleted (DESIGN §5.12).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import sqlite3
import time
from importlib import resources
from pathlib import Path

from iris_core.contracts import IrisError

BUSY_TIMEOUT_S = 30.0
CACHE_KIB = 16_384
_HINDRANCES = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What SQLite raises of a file that it cannot read: its words quote a damaged schema, which may be no text."""
LEAST_FREE_BYTES = 1 << 20
"""A disk with less than this free is full: SQLite needs room to open what a killed process left."""


class StateDirError(IrisError):
    """The state directory cannot be used: not writable, held by another controller, damaged, or from a newer release."""


class StateDamaged(StateDirError):
    """What is in the state file is damaged. Anything else that keeps it from being read, a full disk among it, says nothing of that."""


class StateDir:
    """A controller's local state, held by one process at a time (`flock` on `lock`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "db" / "controller.sqlite3"
        self.bundles = path / "bundles"
        self.finelog = path / "finelog"
        self.workers = path / "workers"
        self._lock: int | None = None

    def acquire(self) -> None:
        """Makes the directories (0700) and takes the lock. Raises StateDirError naming the holder or the cause."""
        try:
            for folder in (self.path, self.database.parent, self.bundles, self.finelog, self.workers):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StateDirError(
                f"state directory {self.path}: {error.strerror}",
                hint="choose a writable place with --state-dir",
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 4096, 0)
            os.close(handle)
            raise StateDirError(
                f"state directory {self.path} is held by {_holder(holder)}",
                hint="stop that controller first, or use another --state-dir",
            ) from None
        except OSError as error:
            os.close(handle)
            raise StateDirError(
                f"state directory {self.path} cannot be locked: {error.strerror}",
                hint="choose a place on a local disk with --state-dir",
            ) from error
        try:
            os.ftruncate(handle, 0)
            note = {"pid": os.getpid(), "host": socket.gethostname(), "started_at_ms": time.time_ns() // 1_000_000}
            os.pwrite(handle, json.dumps(note).encode(), 0)
        except OSError as error:
            os.close(handle)
            raise StateDirError(f"state directory {self.path}: {error.strerror}") from error
        self._lock = handle

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def set_aside(self) -> Path | None:
        """Moves the database away for a fresh start; returns where to, or None when there was none."""
        if not self.database.exists():
            return None
        target = self.path / f"db.aside.{time.time_ns() // 1_000_000}"
        self.database.parent.rename(target)
        self.database.parent.mkdir(mode=0o700)
        return target


def _holder(raw: bytes) -> str:
    try:
        note = json.loads(raw)
        return f"another controller: pid {int(note['pid'])} on {note['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"


def open_writer(path: Path) -> sqlite3.Connection:
    """The one connection that writes. WAL with FULL sync: what is acknowledged survives power loss (DESIGN §4)."""
    # Made here with its mode, from which SQLite takes that of the files beside it.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    os.chmod(path, 0o600)
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        connection.execute("PRAGMA journal_size_limit=67108864")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection with its own snapshot; may be used from one thread at a time."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute("PRAGMA query_only=ON")
    connection.row_factory = sqlite3.Row
    return connection


def check_integrity(path: Path) -> None:
    """Raises StateDamaged when the file exists and is damaged (`PRAGMA quick_check`), StateDirError when that cannot be told."""
    if not path.exists():
        return
    if path.stat().st_size == 0:
        written = path.with_name(path.name + "-wal")
        if written.exists() and written.stat().st_size:
            # SQLite would throw the log away. It is begun only once the file beside it has its first page.
            raise _damaged(path, "it is empty, and its write-ahead log is not")
        return
    try:
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)
        try:
            verdict = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
        finally:
            connection.close()
    except UNREADABLE as error:
        hindered = hindrance(path, error)
        if hindered is not None:
            raise hindered from error
        verdict = [said(error)]
    if verdict != ["ok"]:
        raise _damaged(path, "; ".join(verdict)[:200])


def _damaged(path: Path, how: str) -> StateDamaged:
    return StateDamaged(
        f"the state file {path} is damaged: {how}",
        hint="it was not touched; restore a copy, or start anew with --fresh (which moves it aside)",
    )


def said(error: sqlite3.DatabaseError | UnicodeDecodeError) -> str:
    """SQLite's words, also where they quote what is no text."""
    return error.object.decode(errors="backslashreplace") if isinstance(error, UnicodeDecodeError) else str(error)


def hindrance(path: Path, error: Exception) -> StateDirError | None:
    """What to say where the disk or another process kept the state from being read, None where the error is about the state itself."""
    if not isinstance(error, sqlite3.Error) or getattr(error, "sqlite_errorcode", 0) & 0xFF not in _HINDRANCES:
        return None
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError:
        free = LEAST_FREE_BYTES
    if free < LEAST_FREE_BYTES:
        why, first = f"{error}; its disk is full ({free} bytes free)", "make room there"
    else:
        why, first = str(error), "look at its disk"
    return StateDirError(
        f"the state file {path} cannot be read now: {why}", hint=f"nothing was touched; {first}, then start again"
    )


def shipped_migrations() -> list[tuple[str, str]]:
    """(name, SQL) of every migration, in order."""
    folder = resources.files("iris_controller.store") / "migrations"
    found = [(f.name.removesuffix(".sql"), f.read_text()) for f in folder.iterdir() if f.name.endswith(".sql")]
    return sorted(found)


def statements_of(script: str) -> list[str]:
    """The single statements of a migration script."""
    found: list[str] = []
    current = ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current.strip())
            current = ""
    if current.strip():
        raise ValueError("a migration ends in the middle of a statement")
    return found


def migrate(connection: sqlite3.Connection, now_ms: int, migrations: list[tuple[str, str]] | None = None) -> list[str]:
    """Applies what is missing and returns the names applied. Raises StateDirError on a schema of a newer release."""
    available = shipped_migrations() if migrations is None else migrations
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations (name TEXT PRIMARY KEY, applied_at_ms INTEGER NOT NULL) WITHOUT ROWID"
    )
    done = {row[0] for row in connection.execute("SELECT name FROM schema_migrations")}
    unknown = sorted(done - {name for name, _ in available})
    if unknown:
        raise StateDirError(
            f"the state was written by a newer release: it has migration {unknown[-1]}, this one ends with {available[-1][0] if available else 'none'}",
            hint="run that release, or restore a checkpoint taken by this one",
        )
    applied: list[str] = []
    for name, script in available:
        if name in done:
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements_of(script):
                connection.execute(statement)
            connection.execute("INSERT INTO schema_migrations VALUES (?, ?)", (name, now_ms))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        applied.append(name)
    return applied
