"""What a query reads: the segments of its tables as they are, and beside them the rows that are in none yet, written for it alone.

Everything acknowledged before is in it, and the files stay until it is released. Must never be opened on an event loop.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris_core.model.tables import LOG, SEQ, ColumnType, Table
from iris_core.model.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from iris_controller.finelog.tables.log_table import LogTable
    from iris_controller.finelog.tables.store import TableStore
    from iris_controller.finelog.tables.views import TableView

LOOK_SECONDS = 10.0
"""How long is looked for a damaged file before an error is taken for the statement's own."""

_ENGINE = {
    ColumnType.STRING: "VARCHAR",
    ColumnType.INT64: "BIGINT",
    ColumnType.INT32: "INTEGER",
    ColumnType.FLOAT64: "DOUBLE",
    ColumnType.BOOL: "BOOLEAN",
    ColumnType.TIMESTAMP_MS: "TIMESTAMP",
    ColumnType.BYTES: "BLOB",
    ColumnType.MAP: "MAP(VARCHAR, VARCHAR)",
    ColumnType.FLOAT64_LIST: "DOUBLE[]",
    ColumnType.INT64_LIST: "BIGINT[]",
}


@dataclass(slots=True)
class Source:
    """One table as the engine gets it: Parquet files, and every column with the engine's word for its type."""

    columns: list[tuple[str, str]]
    files: list[str]


@dataclass(slots=True)
class Sources:
    """All tables of a query, and what could not be given of them."""

    tables: dict[str, Source] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def leave_out(self, path: str) -> None:
        """A damaged file is read by nobody."""
        for source in self.tables.values():
            if path in source.files:
                source.files.remove(path)
                self.notes.append(f"the segment {Path(path).parent.name}/{Path(path).name} is damaged and left out")

    def told(self) -> dict[str, Any]:
        """As the query's process is told."""
        return {name: {"columns": one.columns, "files": one.files} for name, one in self.tables.items()}


class TableSources:
    """The registered tables of a store, and `log` beside them. Scratch files go to `folder`, of which nothing else is."""

    def __init__(self, store: TableStore, log_table: LogTable | None, folder: Path) -> None:
        self._store = store
        self._log = log_table
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)

    @property
    def names(self) -> list[str]:
        """What can be asked for."""
        return [*([LOG] if self._log is not None else ()), *self._store.tables]

    @contextmanager
    def open(self, names: Iterable[str], query: str) -> Iterator[Sources]:
        """Those of the tables that there are; `query` is a name that no other query has meanwhile. Raises OSError."""
        scratch = self._folder / query
        known = {name.lower(): name for name in self.names}
        wanted = {known[name.lower()] for name in names if name.lower() in known}
        try:
            with ExitStack() as stack:
                found = Sources()
                view = stack.enter_context(self._store.view(sorted(wanted - {LOG})))
                for name, table in view.tables.items():
                    found.tables[name] = self._source(table, scratch, found)
                if view.tables:
                    found.notes += self._store.lost_notes()
                if LOG in wanted and self._log is not None:
                    files = stack.enter_context(self._log.open(scratch, found.notes))
                    found.tables[LOG] = Source(list(self._log.columns), files)
                yield found
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _source(self, view: TableView, scratch: Path, found: Sources) -> Source:
        files = [str(path) for path in view.paths()]
        batches = []
        for file, extent in view.tail:
            batch = file.read(extent)
            if batch is None:
                found.notes.append(
                    f"{counted(extent.rows, 'row')} of {extent.table} cannot be read: {file.path.name} is damaged"
                )
            else:
                batches.append((extent.first_seq, batch))
        if batches:
            files.append(str(write_rows(view.table, batches, scratch)))
        return Source(columns_of(view.table), files)


def columns_of(table: Table) -> list[tuple[str, str]]:
    """Every column of a table, `seq` first, with the engine's word for its type."""
    return [(SEQ, "BIGINT")] + [(column.name, _ENGINE[column.type]) for column in table.columns]


def write_rows(table: Table, batches: list[Any], scratch: Path) -> Path:
    """The rows that are in no segment yet as a file for one query. Raises OSError."""
    import pyarrow.parquet as pq

    from iris_controller.finelog.tables.columns import rows_to_arrow

    os.makedirs(scratch, mode=0o700, exist_ok=True)
    path = scratch / f"{table.name}.parquet"
    pq.write_table(rows_to_arrow(table, batches), path, compression="none", use_dictionary=False)
    return path


def first_damaged(files: Iterable[str]) -> str:
    """The first of the files that cannot be read whole; "" if there is none among those that were looked at in time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    deadline = time.monotonic() + LOOK_SECONDS
    for path in files:
        if time.monotonic() > deadline:
            break
        try:
            with pa.OSFile(path, "rb") as file:
                opened = pq.ParquetFile(file, page_checksum_verification=True)
                for group in range(opened.num_row_groups):
                    opened.read_row_group(group, use_threads=False)
        except (pa.ArrowException, OSError):
            return path
    return ""
