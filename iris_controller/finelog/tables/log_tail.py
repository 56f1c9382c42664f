"""The lines that are in no segment yet, as files for queries: each line is written out once, however many queries read it.

A write-ahead file only grows, so what was written out of it stays right; every query gets links of its own. Must never hold a piece of a
file that became a segment, nor give a line twice.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from iris_core.model.tables import LOG

if TYPE_CHECKING:
    from pathlib import Path

    from iris_controller.finelog.files import WalFile
    from iris_controller.finelog.store import Store
    from iris_controller.finelog.wal import Loss

log = logging.getLogger("iris.finelog")

MOST_PIECES = 8
"""Of one write-ahead file; then they become one."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines of a write-ahead file up to `last_seq`, from where the piece before it ends."""

    path: Path
    last_seq: int
    notes: tuple[str, ...]


class LogTail:
    """The pieces of a store, in `folder`, of which nothing else is. Any thread, one at a time."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._lock = Lock()
        self._pieces: dict[str, list[Piece]] = {}
        self._made = 0
        shutil.rmtree(folder, ignore_errors=True)

    def link(self, files: tuple[WalFile, ...], last_seq: int, scratch: Path, notes: list[str]) -> list[str]:
        """Parquet files below `scratch` with every line of `files` up to `last_seq`. Raises OSError."""
        given: list[str] = []
        with self._lock:
            self._forget({file.path.name for file in files})
            for file in files:
                for piece in self._pieces_of(file, min(file.last_seq, last_seq)):
                    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
                    target = scratch / f"{LOG}-{len(given)}.parquet"
                    os.link(piece.path, target)
                    given.append(str(target))
                    notes.extend(piece.notes)
        return given

    def _pieces_of(self, file: WalFile, last_seq: int) -> list[Piece]:
        pieces = self._pieces.setdefault(file.path.name, [])
        done = pieces[-1].last_seq if pieces else file.first_seq - 1
        if last_seq > done:
            if len(pieces) == MOST_PIECES:
                self._drop(pieces)
                done = file.first_seq - 1
            pieces.append(self._write(file, done, last_seq))
        return pieces

    def _write(self, file: WalFile, after: int, last_seq: int) -> Piece:
        import pyarrow.parquet as pq

        from iris_controller.finelog.convert import tables_of
        from iris_controller.finelog.loglines import SCHEMA

        notes: list[str] = []

        def lost(name: str, loss: Loss) -> None:
            notes.append(f"the lines with seq {loss.first_seq} to {loss.last_seq} cannot be read: {name} is damaged")

        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._made += 1
        path = self._folder / f"{self._made}.parquet"
        opened = self._store.open_files.get(file)
        try:
            with pq.ParquetWriter(path, SCHEMA, compression="none", use_dictionary=["key", "producer"]) as writer:
                for table in tables_of(file, opened, self._store.marker, lost, after, last_seq):
                    writer.write_table(table)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return Piece(path, last_seq, tuple(notes))

    def _forget(self, kept: set[str]) -> None:
        """Lets go of files that became segments, or were removed."""
        for name in [name for name in self._pieces if name not in kept]:
            self._drop(self._pieces.pop(name))

    @staticmethod
    def _drop(pieces: list[Piece]) -> None:
        for piece in pieces:
            piece.path.unlink(missing_ok=True)
        pieces.clear()
