"""The one thread that writes. It is handed a whole batch and answers committed or not; nothing else writes the file.

Statements are set-based (`… FROM json_each(?)`): `executemany` beside a busy interpreter is a hundred times slower (DESIGN §4).
A failed commit is rolled back whole, so the model and the file never differ.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

from iris_controller.store.database import open_writer

Statement = tuple[str, tuple[object, ...]]


class CommitFailed(Exception):
    """The store does not take the transaction now; the text says why (`database or disk is full`)."""


_ENVIRONMENT = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_NOTADB,
    }
)
"""Primary result codes that speak of the disk and not of the statements: the same transaction may succeed later."""


def _verdict(error: sqlite3.Error) -> Exception:
    """CommitFailed, or the error itself when the statements are at fault and would fail again."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return CommitFailed(str(error)) if code is not None and code & 0xFF in _ENVIRONMENT else error


class Writer:
    """Runs transactions in order on its own thread. `close` drains what was handed in before it."""

    def __init__(self, path: Path) -> None:
        self._connection = open_writer(path)
        self._path = path
        opened = os.stat(path)
        self._identity = (opened.st_dev, opened.st_ino)
        self._queue: queue.SimpleQueue[
            tuple[Sequence[Statement], asyncio.AbstractEventLoop, asyncio.Future[None]] | None
        ]
        self._queue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sqlite-writer", daemon=True)
        self.commits = 0
        self._refusal = ""

    @property
    def connection(self) -> sqlite3.Connection:
        """Only before `start`: migrations and loading."""
        return self._connection

    def start(self) -> None:
        self._thread.start()

    async def commit(self, statements: Sequence[Statement]) -> None:
        """One transaction; returns only once it is durable.

        Raises CommitFailed, or the sqlite3.Error itself when the statements are at fault (a broken constraint): they would fail
        again. Either way nothing of them is in the file.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._queue.put((statements, loop, done))
        # Whoever stops waiting ends the answer alone: the transaction is carried out.
        await done

    def refuse(self, why: str) -> None:
        """From now on every transaction fails with CommitFailed: the state is somebody else's to write."""
        self._refusal = why

    def close(self) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            statements, loop, done = item
            error: Exception | None = None
            try:
                self._transaction(statements)
                self.commits += 1
            except sqlite3.Error as failure:
                error = _verdict(failure)
            except Exception as failure:  # a fault of ours must fail this batch, not end the thread
                error = failure
            loop.call_soon_threadsafe(_answer, done, error)

    def _in_place(self) -> bool:
        """Whether the path still names the file that is open: writes into a removed file would be acknowledged and lost."""
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def _transaction(self, statements: Sequence[Statement]) -> None:
        connection = self._connection
        if self._refusal:
            raise CommitFailed(self._refusal)
        if not self._in_place():
            raise CommitFailed(f"{self._path} was removed or replaced under the running controller")
        if connection.in_transaction:
            # The rollback of the one before failed too.
            connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        try:
            for sql, values in statements:
                connection.execute(sql, values)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _answer(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
