"""What must be remembered beyond the write-ahead files: how far each producer got, what retention removed, what was lost.

Kept in memory and, as of the end of a finished file, in `ledger.json` with a checksum; the files written since are read again at
start. Without the snapshot everything but the fate of removed files follows from the files that are there.

Must never forget a producer that still has lines here: its repeats would be stored twice.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from iris_controller.finelog.disk import write_atomically
from iris_controller.finelog.wal import Loss

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from iris_controller.finelog.query import Query

MAX_GONE_PRODUCERS = 200_000
"""How many producers without a line are remembered, the latest ones."""
MAX_REMOVED_KEYS = 200_000
"""For how many keys it is known what retention removed, the latest ones."""
MAX_LOSSES = 1_000


class LedgerDamaged(Exception):
    """The snapshot is there and cannot be read."""


@dataclass(slots=True)
class Removed:
    """What retention removed of one key: lines, the latest incarnation and time among them, the last seq."""

    lines: int
    incarnation: int
    latest_ms: int
    last_seq: int


@dataclass(slots=True)
class Ledger:
    """See the module. Changed by the writer and the housekeeper of the store, under the store's lock."""

    covers_seq: int = 0
    """All files up to this seq are in `marks`."""
    next_seq: int = 1
    """No seq from here on was given away when the snapshot was taken."""
    last_file: int = 0
    """First seq of the file that grew then, and up to where it was durable."""
    synced: int = 0
    marks: dict[str, int] = field(default_factory=dict)
    """Producer → the number of the first line that is not here yet."""
    seen: dict[str, int] = field(default_factory=dict)
    """Producer → a seq not below that of its last line."""
    removed: dict[str, Removed] = field(default_factory=dict)
    removed_seq: int = 0
    """The last seq that retention removed; 0 = it removed nothing."""
    losses: list[Loss] = field(default_factory=list)

    def note_marks(self, marks: Iterable[tuple[str, int]], seq: int) -> None:
        """Producers got so far; their lines are at or below `seq`."""
        for producer, number in marks:
            self.marks[producer] = max(number, self.marks.get(producer, 0))
            self.seen[producer] = max(seq, self.seen.get(producer, 0))

    def note_loss(self, loss: Loss) -> bool:
        """Remembers lost lines; False if they were known."""
        if loss in self.losses:
            return False
        self.losses.append(loss)
        del self.losses[:-MAX_LOSSES]
        return True

    def note_removed(self, key: str, removed: Removed) -> None:
        """Retention takes more lines of `key`."""
        before = self.removed.pop(key, None)
        if before is not None:
            removed = Removed(
                before.lines + removed.lines,
                max(before.incarnation, removed.incarnation),
                max(before.latest_ms, removed.latest_ms),
                removed.last_seq,
            )
        self.removed[key] = removed
        self.removed_seq = max(self.removed_seq, removed.last_seq)
        while len(self.removed) > MAX_REMOVED_KEYS:
            del self.removed[next(iter(self.removed))]

    def forget_gone(self, first_kept_seq: int) -> None:
        """Bounds the memory for producers all of whose lines were removed."""
        gone = [producer for producer, seq in self.seen.items() if seq < first_kept_seq]
        if len(gone) <= MAX_GONE_PRODUCERS:
            return
        gone.sort(key=self.seen.__getitem__)
        for producer in gone[: len(gone) - MAX_GONE_PRODUCERS]:
            del self.marks[producer], self.seen[producer]

    def removed_lines(self, query: Query) -> int:
        """How many lines that the query may have meant were removed by retention."""
        if query.cursor >= self.removed_seq:
            return 0
        scope = query.scope
        keys = [scope.source] if scope.is_one else [key for key in list(self.removed) if scope.matches(key)]
        found = [self.removed[key] for key in keys if key in self.removed]
        return sum(
            one.lines
            for one in found
            if one.last_seq > query.cursor
            and one.incarnation >= query.min_incarnation
            and (not query.since_ms or one.latest_ms > query.since_ms)
        )

    def lost_between(self, first_seq: int, last_seq: int) -> list[Loss]:
        """The losses among those lines."""
        return [loss for loss in self.losses if loss.first_seq <= last_seq and loss.last_seq >= first_seq]

    def snapshot(self) -> Ledger:
        """A copy that another thread may save."""
        return Ledger(
            self.covers_seq, self.next_seq, self.last_file, self.synced,
            dict(self.marks), dict(self.seen), dict(self.removed), self.removed_seq, list(self.losses),
        )  # fmt: skip

    def save(self, path: Path) -> None:
        """Durable when it returns. Raises OSError."""
        body = json.dumps(asdict(self), separators=(",", ":"))
        write_atomically(path, f'{{"checksum":{zlib.crc32(body.encode())},"ledger":{body}}}\n'.encode())


def load(path: Path) -> Ledger | None:
    """The snapshot; None if there is none. Raises LedgerDamaged, OSError."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise LedgerDamaged(f"{path.name} is not text") from error
    try:
        whole: dict[str, Any] = json.loads(text)
        body = whole["ledger"]
        if whole["checksum"] != zlib.crc32(json.dumps(body, separators=(",", ":")).encode()):
            raise LedgerDamaged(f"the checksum of {path.name} does not fit")
        body["removed"] = {key: Removed(**removed) for key, removed in body["removed"].items()}
        body["losses"] = [Loss(**loss) for loss in body["losses"]]
        return Ledger(**body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerDamaged(f"{path.name} is no ledger: {error}") from error
