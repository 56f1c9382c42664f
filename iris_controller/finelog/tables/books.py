"""What is remembered of each table beyond its rows: how far every producer got, what never arrived, what retention removed.

Kept in memory and saved, with a checksum, whenever a write-ahead file has become segments; the files written since are read again at
start. What is lost of it is made anew from the segments, which tell of their producers. Must never forget a producer that
still has rows here: its repeats would be stored twice.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from iris_controller.finelog.disk import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME = "books.json"
MAX_GONE_PRODUCERS = 100_000
"""How many producers without a row are remembered for a table, the latest ones."""
MAX_LOSSES = 1_000


class BooksDamaged(Exception):
    """The file is there and cannot be read."""


@dataclass(slots=True)
class Book:
    """Of one table. `seen` holds a seq not below that of the producer's last row."""

    marks: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    missing_rows: int = 0
    removed_rows: int = 0

    def note(self, producer: str, number: int, seq: int) -> None:
        """The producer's rows below `number` are here; its last one is at or below `seq`."""
        self.marks[producer] = max(number, self.marks.get(producer, 0))
        self.seen[producer] = max(seq, self.seen.get(producer, 0))

    def forget_gone(self, first_kept_seq: int) -> None:
        """Bounds the memory for producers all of whose rows were removed."""
        gone = [producer for producer, seq in self.seen.items() if seq < first_kept_seq]
        if len(gone) <= MAX_GONE_PRODUCERS:
            return
        gone.sort(key=self.seen.__getitem__)
        for producer in gone[: len(gone) - MAX_GONE_PRODUCERS]:
            del self.marks[producer], self.seen[producer]


@dataclass(slots=True)
class Books:
    """Of all tables."""

    sealed_seq: int = 0
    """Every row up to here is in a segment, or was removed since."""
    next_seq: int = 1
    """No seq from here on was given away when this was saved."""
    last_file: int = 0
    """First seq of the write-ahead file that grew then, and up to where it was durable."""
    synced: int = 0
    losses: list[list[int]] = field(default_factory=list)
    """First and last seq of acknowledged rows that the disk no longer gives."""
    restored: str = ""
    """What to say of rows that were not in the object store when the disk was lost, "" = it never was."""
    tables: dict[str, Book] = field(default_factory=dict)

    def note_loss(self, first_seq: int, last_seq: int) -> bool:
        """Remembers lost rows; False if they were known."""
        if [first_seq, last_seq] in self.losses:
            return False
        self.losses.append([first_seq, last_seq])
        del self.losses[:-MAX_LOSSES]
        return True

    def of(self, table: str) -> Book:
        """The book of a table, a new one if there was none."""
        return self.tables.setdefault(table, Book())

    def encoded(self) -> bytes:
        """As it is saved. Call it where nothing changes it meanwhile."""
        body = json.dumps(asdict(self), separators=(",", ":"))
        return f'{{"checksum":{zlib.crc32(body.encode())},"books":{body}}}\n'.encode()


def save(folder: Path, encoded: bytes) -> None:
    """Durable when it returns. Raises OSError."""
    write_atomically(folder / FILE_NAME, encoded)


def load(folder: Path) -> Books | None:
    """What was saved last; None if there is nothing. Raises BooksDamaged, OSError."""
    path = folder / FILE_NAME
    try:
        whole: dict[str, Any] = json.loads(path.read_text())
        body = whole["books"]
        if whole["checksum"] != zlib.crc32(json.dumps(body, separators=(",", ":")).encode()):
            raise BooksDamaged(f"the checksum of {path.name} does not fit")
        body["tables"] = {name: Book(**book) for name, book in body["tables"].items()}
        return Books(**body)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BooksDamaged(f"{path.name} cannot be read: {error}") from error
