"""The built-in table `log` as queries and listings see it: the store of lines, in the words of tables.

Must never change the store of lines.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from iris_controller.finelog.tables.log_tail import LogTail
from iris_core.model.tables import LOG
from iris_core.wire.gen.iris.v1 import stats_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from iris_controller.finelog.store import Store

COLUMNS: Final = (
    ("seq", "BIGINT", stats_pb2.COLUMN_TYPE_INT64),
    ("key", "VARCHAR", stats_pb2.COLUMN_TYPE_STRING),
    ("producer", "VARCHAR", stats_pb2.COLUMN_TYPE_STRING),
    ("number", "BIGINT", stats_pb2.COLUMN_TYPE_INT64),
    ("epoch_ms", "BIGINT", stats_pb2.COLUMN_TYPE_INT64),
    ("source", "VARCHAR", stats_pb2.COLUMN_TYPE_STRING),
    ("data", "VARCHAR", stats_pb2.COLUMN_TYPE_STRING),
    ("raw", "BLOB", stats_pb2.COLUMN_TYPE_BYTES),
    ("level", "INTEGER", stats_pb2.COLUMN_TYPE_INT32),
    ("attempt_uid", "VARCHAR", stats_pb2.COLUMN_TYPE_STRING),
    ("incarnation", "BIGINT", stats_pb2.COLUMN_TYPE_INT64),
    ("partial", "BOOLEAN", stats_pb2.COLUMN_TYPE_BOOL),
    ("gap", "UBIGINT", stats_pb2.COLUMN_TYPE_INT64),
    ("part", "UINTEGER", stats_pb2.COLUMN_TYPE_INT64),
    ("seam", "VARCHAR", stats_pb2.COLUMN_TYPE_STRING),
    ("back", "UINTEGER", stats_pb2.COLUMN_TYPE_INT64),
    ("unended", "BOOLEAN", stats_pb2.COLUMN_TYPE_BOOL),
)
"""Name, the engine's type and the wire's. Those of the segments (`loglines`), which are too heavy to import for a listing."""
_NULLABLE = frozenset({"raw", "seam", "back", "unended"})


class LogTable:
    """The lines of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tail = LogTail(store, store.folder / "stats" / "tail")

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Every column with the engine's word for its type."""
        return [(name, engine) for name, engine, _ in COLUMNS]

    def schema(self) -> stats_pb2.TableSchema:
        """As `GetTableSchema` has it, without `seq`."""
        return stats_pb2.TableSchema(
            table=LOG,
            columns=[
                stats_pb2.TableColumn(name=name, type=type_, nullable=name in _NULLABLE)
                for name, _, type_ in COLUMNS[1:]
            ],
            key_column="key",
            policy=stats_pb2.StoragePolicy(max_bytes=self._store.max_bytes),
        )

    def status(self) -> stats_pb2.TableStatus:
        """What there is of it."""
        view = self._store.view()
        try:
            last_seq = self._store.last_seq
            pending = [file for file in view.files if file.last_seq >= file.first_seq]
            pending_rows = sum(file.last_seq - file.first_seq + 1 for file in pending)
            firsts = [segment.first_seq for segment in view.segments[:1]] + [file.first_seq for file in pending[:1]]
            times = [(one.earliest_ms, one.latest_ms) for one in view.segments]
            times += [(one.earliest_ms, one.latest_ms) for one in pending]
            return stats_pb2.TableStatus(
                table=LOG,
                rows=sum(segment.rows for segment in view.segments) + pending_rows,
                bytes=sum(segment.bytes for segment in view.segments),
                segments=len(view.segments),
                pending_rows=pending_rows,
                pending_bytes=sum(file.size for file in pending),
                min_seq=min(firsts, default=0),
                max_seq=last_seq,
                earliest_ms=min((one[0] for one in times), default=0),
                latest_ms=max((one[1] for one in times), default=0),
                policy=self.schema().policy,
                key_column="key",
                columns=len(COLUMNS) - 1,
                producers=len(self._store.ledger.marks),
                removed_rows=sum(one.lines for one in list(self._store.ledger.removed.values())),
            )
        finally:
            view.release()

    @contextmanager
    def open(self, scratch: Path, notes: list[str]) -> Iterator[list[str]]:
        """Parquet files with every line that was stored before the call. Raises OSError."""
        last_seq = self._store.last_seq
        view = self._store.view()
        try:
            files = [str(view.snapshot.path(LOG, segment)) for segment in view.segments]
            yield files + self._tail.link(view.files, last_seq, scratch, notes)
        finally:
            view.release()
