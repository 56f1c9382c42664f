"""Segments: immutable Parquet files of the rows of one table, sorted by (key, seq), and how they are read.

A segment says in its own footer what it holds: bounds of seq and time, the bounds of every row group, how far each producer got, and
for a table that asks for it where the rows of each key lie. So it can be read, merged and counted without anything beside it. Pages
carry checksums; one that does not fit is an error and never a wrong row.

Reading takes one row group at a time. pyarrow is heavy: this module is only imported where a segment is written or read. Must never
interpret a row's content.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iris_controller.finelog.runs import RUNS_KEY, Runs
from iris_controller.finelog.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

GROUP_ROWS = 16_384
"""Most rows of a row group: what is decoded to read one row."""
GROUP_BYTES = 4 << 20
"""A row group ends when it has so many bytes, whatever its rows."""
FOOTER_BYTES = 64 << 20
FORMAT = 1
META_KEY = "finelog"
"""Where the file's own metadata has all of it as JSON."""
_NAME = re.compile(r"seg_L([0-9]+)_([0-9]{19})\.parquet")

Key = Any
"""A value of the key column: str, int, float, bool, or None."""


class SegmentDamaged(Exception):
    """The file is no whole segment, or a page of it does not fit its checksum."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of a table lie in its segments.

    `schema` (a `pyarrow.Schema`) has a column `seq` (int64); `key` and `time` name the columns of the order and of the time bounds.
    """

    table: str
    schema: Any
    key: str
    time: str
    unique: tuple[str, ...] = ()
    """Columns whose values hardly repeat: no dictionary and no bounds are kept of them."""
    has_runs: bool = False
    """Whether segments tell where the rows of each key lie; the table then has the columns of `log`."""
    indexed: tuple[str, ...] = ()
    """Columns of text in which the index finds the row groups that may hold a text."""


@dataclass(frozen=True, slots=True)
class Group:
    """The bounds of one row group."""

    rows: int
    first_key: Key
    last_key: Key
    first_seq: int
    last_seq: int
    earliest_ms: int
    latest_ms: int


def segment_name(level: int, first_seq: int) -> str:
    """The file name of a segment."""
    return f"seg_L{level}_{first_seq:019d}.parquet"


def parse_name(name: str) -> tuple[int, int] | None:
    """Level and first seq; None if this is no segment's name."""
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def conform(table: Any, schema: Any) -> Any:
    """The table or batch with exactly the columns of `schema`; a column it lacks is NULL."""
    columns = []
    for wanted in schema:
        place = table.schema.get_field_index(wanted.name)
        if place < 0:
            columns.append(pa.nulls(table.num_rows, wanted.type))
        else:
            column = table.column(place)
            columns.append(column if column.type == wanted.type else column.cast(wanted.type))
    return type(table).from_arrays(columns, schema=schema)


@dataclass(slots=True)
class Footer:
    """All of a segment but its rows. Shared by its readers, on any thread."""

    path: Path
    table: str
    key: str
    """The column by which it is sorted."""
    segment: Segment
    groups: list[Group]
    marks: dict[str, int]
    """Producer → the number that follows its last row in this segment."""
    runs: Runs | None
    metadata: Any
    schema: Any

    @property
    def cost(self) -> int:
        """About how many bytes of memory it takes."""
        return 2 * int(self.metadata.serialized_size) + 200 * len(self.groups)


def read_footer(path: Path) -> Footer:
    """Opens a segment. Raises SegmentDamaged, OSError."""
    try:
        with pa.OSFile(str(path), "rb") as file:
            size = file.size()
            metadata = pq.read_metadata(file)
        extra = metadata.metadata or {}
        told = json.loads(extra[META_KEY.encode()])
        segment = Segment(**{**told["segment"], "bytes": size})
        groups = [Group(*one) for one in told["groups"]]
        if len(groups) != metadata.num_row_groups or segment.rows != metadata.num_rows:
            raise SegmentDamaged(f"{path.name} does not hold what it says")
        runs = Runs.parse(extra[RUNS_KEY.encode()]) if RUNS_KEY.encode() in extra else None
        schema = metadata.schema.to_arrow_schema()
        return Footer(path, told["table"], told["key"], segment, groups, told["marks"], runs, metadata, schema)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise SegmentDamaged(f"{path.name} cannot be read: {_short(error)}") from error
    except OSError as error:
        # What the library finds wrong with a file it tells as an OSError without a number.
        if error.errno is None:
            raise SegmentDamaged(f"{path.name} cannot be read: {_short(error)}") from error
        raise


class Footers:
    """The footers of the segments in one folder that were read last, within `budget` bytes of memory. Any thread."""

    def __init__(self, folder: Path, budget: int = FOOTER_BYTES) -> None:
        self._folder = folder
        self._budget = budget
        self._lock = Lock()
        self._kept: OrderedDict[str, Footer] = OrderedDict()
        self._bytes = 0

    def get(self, segment: Segment, path: Path | None = None) -> Footer:
        """The footer of a segment, which lies at `path` if not in the folder. Raises SegmentDamaged, OSError."""
        path = path or self._folder / segment.name
        with self._lock:
            found = self._kept.get(segment.name)
            if found is not None and found.segment == segment and found.path == path:
                self._kept.move_to_end(segment.name)
                return found
        footer = read_footer(path)
        if footer.segment != segment:
            raise SegmentDamaged(f"{segment.name} is not the segment that the catalog names")
        with self._lock:
            before = self._kept.pop(segment.name, None)
            self._kept[segment.name] = footer
            self._bytes += footer.cost - (before.cost if before is not None else 0)
            while self._bytes > self._budget and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].cost
        return footer


class SegmentFile:
    """A segment to read from. It is opened with the first row group that is asked for. Any thread, one at a time.

    Columns of `words` are read as dictionaries, which costs a third where few rows are taken of them.
    """

    def __init__(self, footer: Footer, words: Sequence[str] = ()) -> None:
        self.footer = footer
        self._lock = Lock()
        self._words = list(words)
        self._file: Any = None
        self._reader: Any = None

    @classmethod
    def open(cls, path: Path) -> SegmentFile:
        """Opens a segment. Raises SegmentDamaged, OSError."""
        return cls(read_footer(path))

    @property
    def segment(self) -> Segment:
        """Bounds and size."""
        return self.footer.segment

    @property
    def groups(self) -> list[Group]:
        """The bounds of each row group, in the order of (key, seq)."""
        return self.footer.groups

    def read(self, group: int, columns: Sequence[str] | None = None) -> Any:
        """One row group as a `RecordBatch`, or those columns of it. Raises SegmentDamaged, OSError."""
        try:
            with self._lock:
                table = self._opened().read_row_group(group, columns=columns, use_threads=False)
        except (pa.ArrowException, ValueError) as error:
            raise SegmentDamaged(
                f"row group {group} of {self.footer.path.name} cannot be read: {_short(error)}"
            ) from error
        except OSError as error:
            if error.errno is None:
                what = f"row group {group} of {self.footer.path.name} cannot be read: {_short(error)}"
                raise SegmentDamaged(what) from error
            raise
        return table.combine_chunks().to_batches()[0]

    def is_empty(self, group: int, column: str) -> bool:
        """Whether a column is known to be False, 0 or NULL in all of a row group, or is not there at all."""
        place = self.footer.schema.get_field_index(column)
        if place < 0:
            return True
        found = self.footer.metadata.row_group(group)
        told = found.column(place).statistics
        if told is None:
            return False
        if told.has_min_max:
            return not told.min and not told.max
        return bool(told.has_null_count and told.null_count == found.num_rows)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Every row group, in order. Raises SegmentDamaged, OSError."""
        for group in range(len(self.groups)):
            yield self.read(group, columns)

    def groups_with(self, low: Key, high: Key) -> range:
        """The row groups that may hold rows with `low` <= key <= `high`."""
        groups = self.groups
        start = bisect_left(groups, low, key=lambda one: one.last_key)
        return range(start, bisect_right(groups, high, start, key=lambda one: one.first_key))

    def rows(self, low: Key, high: Key, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """The rows with `low` <= key <= `high` in the order of (key, seq), a piece per row group. Raises SegmentDamaged, OSError."""
        name = self.footer.key
        wanted = None if columns is None else list(dict.fromkeys([*columns, name]))
        for group in self.groups_with(low, high):
            batch = self.read(group, wanted)
            bounds = self.groups[group]
            if bounds.first_key < low or bounds.last_key > high:
                keys = batch.column(name)
                kind = pa.int64() if pa.types.is_timestamp(keys.type) else keys.type
                keys = keys.cast(kind)
                inside = pc.and_(
                    pc.greater_equal(keys, pa.scalar(low, kind)), pc.less_equal(keys, pa.scalar(high, kind))
                )
                batch = batch.filter(inside)
            yield batch if columns is None else batch.select(list(columns))

    def close(self) -> None:
        """Lets go of the file."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._file.close()

    def _opened(self) -> Any:
        if self._reader is None:
            self._file = pa.OSFile(str(self.footer.path), "rb")
            self._reader = pq.ParquetFile(
                self._file, metadata=self.footer.metadata, page_checksum_verification=True, read_dictionary=self._words
            )
        return self._reader


def _short(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
