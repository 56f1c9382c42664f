"""What a reader of tables gets: their rows at one moment, whole segments and beside them the batches that are in none yet.

The segments' files stay until a view is released. Must never give a row twice: what was sealed while the view was made is in a file
and in a segment, and is taken from the segment alone.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from iris_controller.finelog.catalog import Snapshot
    from iris_controller.finelog.segment import Segment
    from iris_controller.finelog.tables.books import Book
    from iris_controller.finelog.tables.registry import Registered
    from iris_controller.finelog.tables.rowfiles import Extent, RowFile
    from iris_core.model.tables import Table
    from iris_core.wire.gen.iris.v1 import stats_pb2


@dataclass(slots=True)
class TableView:
    """The rows of one table at one moment: whole segments, and batches that are in none yet."""

    table: Table
    segments: tuple[Segment, ...]
    tail: list[tuple[RowFile, Extent]]
    _held: Snapshot = field(repr=False)

    def paths(self) -> list[Path]:
        """Where the segments lie until the view is released; fetched if need be. Raises OSError."""
        return [self._held.path(self.table.name, segment) for segment in self.segments]

    def status(self, book: Book) -> stats_pb2.TableStatus:
        """What there is of the table, and what its book says of what is not there."""
        from iris_core.wire.gen.iris.v1 import stats_pb2
        from iris_core.wire.rows import policy_to_wire

        pending = [extent for _, extent in self.tail]
        seqs = [segment.first_seq for segment in self.segments[:1]] + [extent.first_seq for extent in pending]
        last = [segment.last_seq for segment in self.segments[-1:]] + [extent.last_seq for extent in pending[-1:]]
        has_times = bool(self.table.time_column)
        times = [(one.earliest_ms, one.latest_ms) for one in self.segments] if has_times else []
        times += [(one.earliest_ms, one.latest_ms) for one in pending if one.latest_ms]
        return stats_pb2.TableStatus(
            table=self.table.name,
            rows=sum(segment.rows for segment in self.segments) + sum(extent.rows for extent in pending),
            bytes=sum(segment.bytes for segment in self.segments),
            segments=len(self.segments),
            pending_rows=sum(extent.rows for extent in pending),
            pending_bytes=sum(extent.length for extent in pending),
            min_seq=min(seqs, default=0),
            max_seq=max(last, default=0),
            earliest_ms=min((one[0] for one in times), default=0),
            latest_ms=max((one[1] for one in times), default=0),
            policy=policy_to_wire(self.table.policy),
            key_column=self.table.key_column,
            columns=len(self.table.columns),
            producers=len(book.marks),
            removed_rows=book.removed_rows,
            missing_rows=book.missing_rows,
        )


@dataclass(slots=True)
class View:
    """Some tables at one moment. Release it: the segments' files stay until then."""

    tables: dict[str, TableView]
    _held: Snapshot = field(repr=False)

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.release()


def view(
    held: Snapshot,
    registered: Mapping[str, Registered],
    files: Sequence[tuple[RowFile, list[Extent]]],
    names: Iterable[str],
) -> View:
    """Those of the tables that are registered. The snapshot must be later than the files, and goes with the view."""
    with ExitStack() as stack:
        stack.enter_context(held)
        found: dict[str, TableView] = {}
        for name in names:
            one = registered.get(name)
            if one is None:
                continue
            segments = held.segments(name)
            sealed = max(segments[-1].last_seq if segments else 0, one.since_seq - 1)
            tail = [
                (file, extent)
                for file, all_of_it in files
                for extent in all_of_it
                if extent.table == name and extent.first_seq > sealed
            ]
            found[name] = TableView(one.table, segments, tail, held)
        stack.pop_all()
        return View(found, held)
