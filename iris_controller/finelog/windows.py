"""Reading the lines of a segment in the order of seq, though it is sorted by key: window by window.

A window is a range of seqs. Of each row group that has rows of a wanted key in it, the rows that pass are picked column by column, and
of all that are found the first (or last) ones are kept, as many as the answer can still take. How wide a window is follows from how
often lines matched so far. So a page of one log decodes one row group, a search through everything decodes each once, and neither
needs more memory than a few row groups.

Heavy: imported by a read that comes to a segment. Must never take a row that damage may have changed, nor count one it did not see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from iris_controller.finelog import matching
from iris_controller.finelog.index import GAP_BIT, PARTIAL_BIT, is_inside
from iris_controller.finelog.line import Line
from iris_controller.finelog.parts import PartsSeen
from iris_controller.finelog.segments import SegmentDamaged

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from iris_controller.finelog.query import Query
    from iris_controller.finelog.runs import Run
    from iris_controller.finelog.segments import SegmentFile

MAX_ROWS = 2_000_000
"""Rows looked at in one window, about."""
SAMPLE = 512
"""Runs by which the width of a window is estimated."""
SHOWN = (
    "epoch_ms", "key", "seq", "number", "source", "data", "raw", "level", "attempt_uid", "partial", "gap", "part",
    "back", "unended",
)  # fmt: skip
"""The columns of a `Line`."""
_EMPTY: dict[str, tuple[Any, Any]] = {
    "partial": (pa.bool_(), False),
    "gap": (pa.uint64(), 0),
    "part": (pa.uint32(), 0),
    "back": (pa.uint32(), 0),
    "unended": (pa.bool_(), False),
}
"""Columns that are empty in most lines, and the last two not there in segments of earlier releases: their type, and that value."""
_NOTHING = {"raw": b"", **{name: nothing for name, (_, nothing) in _EMPTY.items()}}
"""What NULL stands for."""
PLACE = ("seq", "key", "epoch_ms", "partial", "part", "attempt_uid", "source")
"""The columns by which lines of several keys are put in order."""
MAX_PLACES = 300_000
"""Rows that are put in the order of seq at once, about."""
_NO_PLACES = pa.schema(
    [
        ("seq", pa.int64()),
        ("key", pa.string()),
        ("epoch_ms", pa.int64()),
        ("partial", pa.bool_()),
        ("part", pa.uint32()),
        ("attempt_uid", pa.string()),
        ("source", pa.string()),
    ]
).empty_table()
WORDS = ("key", "source", "attempt_uid")
"""Of them, those that are read as dictionaries."""


@dataclass(slots=True)
class Density:
    """How often lines matched so far, which says how many rows hold as many matches as are wanted."""

    filters: bool
    looked: int = 0
    matched: int = 0

    def rows_for(self, wanted: int) -> int:
        """So many rows hold `wanted` matches, about."""
        if not self.filters:
            return wanted + wanted // 8 + 64
        return int(min(MAX_ROWS, wanted * (self.looked + 64) / (self.matched + 1) + 1024))


@dataclass(frozen=True, slots=True)
class Unread:
    """So many rows that the index excludes; their seqs are read when somebody asks."""

    rows: int
    seqs: Callable[[], Any]

    def __len__(self) -> int:
        return self.rows


@dataclass(slots=True)
class Window:
    """What was found from seq `low` to `high - 1`. `lines` are ascending, and no more than were wanted."""

    low: int
    high: int
    lines: list[Line] = field(default_factory=list)
    looked: list[Any] = field(default_factory=list)
    """The seqs of the lines whose text was searched, or would have been but for the index (`Unread`)."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Seq and number of lines of the gap records that do not match."""
    parts: list[Any] = field(default_factory=list)
    """The seqs of what was looked at and is a part of a line."""

    def looked_between(self, low: int, high: int) -> int:
        """How many lines from seq `low` to `high - 1` were looked at."""
        if low <= self.low and high >= self.high:
            return sum(map(len, self.looked))
        looked = (one.seqs() if isinstance(one, Unread) else one for one in self.looked)
        return sum(_count_between(seqs, low, high) for seqs in looked)

    def lost_between(self, low: int, high: int) -> int:
        """How many lines the gap records there stand for."""
        return sum(lines for seq, lines in self.gaps if low <= seq < high)

    def has_parts_between(self, low: int, high: int) -> bool:
        """Whether a part of a line is among those that were looked at."""
        return any(_count_between(seqs, low, high) for seqs in self.parts)


@dataclass(slots=True)
class _Piece:
    """Neighbouring rows of a row group, and what has to be tested of each of them."""

    start: int
    rows: int
    by_seq: bool
    by_owner: bool
    by_bounds: bool
    has_gaps: bool


class SegmentScan:
    """Reads of one segment for one query. `on_damage` is told of runs that cannot be read.

    The text of a row group that is not in `groups` holds no match; None is every group.
    """

    def __init__(
        self,
        file: SegmentFile,
        query: Query,
        low: int,
        high: int,
        density: Density,
        max_bytes: int,
        groups: frozenset[int] | None,
        on_damage: Callable[[SegmentDamaged, list[Run]], None],
    ) -> None:
        self._file = file
        self._query = query
        self._low = max(low, file.segment.first_seq)
        self._high = min(high, file.segment.last_seq + 1)
        self._density = density
        self._max_bytes = max_bytes
        self._groups = groups
        self._tells_parts = PartsSeen(query).is_wanted
        self._on_damage = on_damage
        runs = file.footer.runs
        assert runs is not None
        self._runs = [
            run
            for run in runs.in_scope(query.scope)
            if run.first_seq < self._high and run.last_seq >= self._low and run.may_match(query)
        ]

    def windows(self, wanted: Callable[[], int]) -> Iterator[Window | None]:
        """Windows oldest first, or for a tail newest first, that join each other; None now and then while one is in the making.

        `wanted` tells how many matches are still of use.
        """
        low, high = self._low, self._high
        while low < high and self._runs:
            split = self._split(low, high, self._density.rows_for(wanted()))
            window = Window(split, high) if self._query.tail else Window(low, split)
            yield from self._fill(window, wanted())
            yield window
            if self._query.tail:
                high = split
            else:
                low = split

    def count(self, low: int, high: int) -> Iterator[int]:
        """How many lines from seq `low` to `high - 1` end that are of the wanted keys and attempts, row group by row group."""
        for group, runs in _by_group(self._overlapping(low, high)):
            unsure = [
                run
                for run in runs
                if not (low <= run.first_seq and run.last_seq < high and run.is_owned(self._query))
                or run.levels & PARTIAL_BIT
            ]
            total = sum(run.rows for run in runs) - sum(run.rows for run in unsure)
            if unsure:
                is_owned = all(run.is_owned(self._query) for run in unsure)
                goes_on = any(run.levels & PARTIAL_BIT for run in unsure)
                columns = ["seq", *([] if is_owned else ["incarnation", "attempt_uid"]), *["partial"] * goes_on]
                try:
                    batch = self._file.read(group, columns)
                except SegmentDamaged as damage:
                    self._on_damage(damage, unsure)
                    continue
                for run in unsure:
                    rows = batch.slice(run.start, run.rows)
                    mask = self._seq_mask(rows, low, high)
                    mask = mask if is_owned else pc.and_(mask, self._owner_mask(rows))
                    mask = pc.and_not(mask, rows.column("partial")) if goes_on else mask
                    total += pc.sum(mask, min_count=0).as_py()
            yield total

    def keys(self) -> set[str]:
        """The wanted keys that have lines."""
        return {run.key for run in self._runs}

    def seqs(self) -> Iterator[Sequence[int]]:
        """The seqs of all lines of the wanted keys and incarnations, run by run; a column is read only where it must be."""
        for run in self._overlapping(self._low, self._high):
            is_owned = run.is_owned(self._query)
            if is_owned and run.last_seq - run.first_seq + 1 == run.rows:
                yield range(max(run.first_seq, self._low), min(run.last_seq + 1, self._high))
                continue
            try:
                batch = self._file.read(run.group, ["seq"] if is_owned else ["seq", "incarnation", "attempt_uid"])
            except SegmentDamaged as damage:
                self._on_damage(damage, [run])
                continue
            rows = batch.slice(run.start, run.rows)
            mask = self._seq_mask(rows, self._low, self._high)
            yield rows.column("seq").filter(mask if is_owned else pc.and_(mask, self._owner_mask(rows))).to_pylist()

    def places(self, rows: int) -> Iterator[list[tuple[Any, ...]]]:
        """Seq, key, time, and what is a part of what, of all lines of the wanted keys and incarnations, ascending, `rows` at once."""
        low = self._low
        while low < self._high:
            high = self._split(low, self._high, MAX_PLACES)
            tables = [self._places(*one, low, high) for one in _by_group(self._overlapping(low, high))]
            table = pa.concat_tables([one for one in tables if one is not None] or [_NO_PLACES]).sort_by("seq")
            for start in range(0, table.num_rows, rows):
                piece = table.slice(start, rows)
                columns = [piece[name].to_pylist() for name in PLACE if name in piece.schema.names]
                yield list(zip(*columns, strict=True))
            low = high

    def _places(self, group: int, runs: list[Run], low: int, high: int) -> Any:
        """The places in some runs of a row group; None if it cannot be read."""
        columns = list(PLACE[:3])
        if not (self._file.has_none(group, "part") and self._file.has_none(group, "partial")):
            columns = list(PLACE)
        is_owned = all(run.is_owned(self._query) for run in runs)
        try:
            batch = self._file.read(group, columns if is_owned else [*columns, "incarnation"])
        except SegmentDamaged as damage:
            self._on_damage(damage, runs)
            return None
        found = []
        for run in runs:
            rows = batch.slice(run.start, run.rows)
            mask = self._seq_mask(rows, low, high)
            found.append(rows.filter(mask if is_owned else pc.and_(mask, self._owner_mask(rows))))
        table = pa.Table.from_batches([_spelled_out(one.select(columns)) for one in found])
        for name, value in (("partial", False), ("part", 0), ("attempt_uid", ""), ("source", "")):
            if name not in columns:
                table = table.append_column(
                    _NO_PLACES.schema.field(name),
                    pa.repeat(pa.scalar(value, _NO_PLACES.schema.field(name).type), table.num_rows),
                )
        return table.cast(_NO_PLACES.schema)

    # The width of a window ---------------------------------------------------------------------------------------------

    def _split(self, low: int, high: int, budget: int) -> int:
        """Where a window of about `budget` rows ends that begins at `low`, or for a tail begins that ends at `high`."""
        runs = self._overlapping(low, high)
        total = sum(run.rows for run in runs)
        whole = low if self._query.tail else high
        if total <= budget + budget // 2:
            return whole
        sample = runs[:: len(runs) // SAMPLE + 1]
        share = budget / total * sum(_rows_between(run, low, high) for run in sample)
        near, far = (high, low) if self._query.tail else (low, high)
        bottom, top = 0.0, 1.0
        for _ in range(24):
            middle = (bottom + top) / 2
            place = int(near + (far - near) * middle)
            within = (place, high) if self._query.tail else (low, place)
            if sum(_rows_between(run, *within) for run in sample) < share:
                bottom = middle
            else:
                top = middle
        place = int(near + (far - near) * top)
        place = min(place, high - 1) if self._query.tail else max(place, low + 1)
        within = (place, high) if self._query.tail else (low, place)
        groups = len({run.group for run in self._overlapping(*within)})
        if total <= MAX_ROWS and 4 * groups >= 3 * len({run.group for run in runs}):
            # Nearly everything is decoded anyhow.
            return whole
        return place

    def _overlapping(self, low: int, high: int) -> list[Run]:
        return [run for run in self._runs if run.first_seq < high and run.last_seq >= low]

    # The lines of a window ---------------------------------------------------------------------------------------------

    def _fill(self, window: Window, wanted: int) -> Generator[None, None, None]:
        best = _Best(wanted, self._query.tail, self._max_bytes)
        groups = sorted(
            _by_group(self._overlapping(window.low, window.high)),
            key=(lambda one: -max(run.last_seq for run in one[1]))
            if self._query.tail
            else (lambda one: min(run.first_seq for run in one[1])),
        )
        for group, found in groups:
            low, high = best.bounds(window.low, window.high)
            runs = [run for run in found if run.first_seq < high and run.last_seq >= low]
            if not runs:
                continue
            try:
                self._take(window, best, group, runs, low, high)
            except SegmentDamaged as damage:
                self._on_damage(damage, runs)
            yield
        window.lines = best.lines()
        self._density.looked += sum(map(len, window.looked))
        self._density.matched += best.matched

    def _take(self, window: Window, best: _Best, group: int, runs: list[Run], low: int, high: int) -> None:
        query = self._query
        pieces = list(self._pieces(runs, low, high))
        if self._is_excluded(group, pieces):
            self._pass_over(window, group, runs, pieces, low, high)
            return
        searches = query.filters_content
        has_gaps = any(piece.has_gaps for piece in pieces)
        has_parts = not (self._file.has_none(group, "part") and self._file.has_none(group, "partial"))
        columns = _tested(pieces)
        if not searches:
            columns |= set(self._worth_reading(group, columns))
        else:
            columns.add("data")
            if has_gaps:
                columns |= {"seq", "gap", "epoch_ms"}
            if has_parts:
                columns |= {"seq", "part", "partial", "seam"}
        batch = self._file.read(group, sorted(columns))
        seqs = self._seqs(group, runs, pieces, low, high)
        chosen: list[Any] = []
        every_place = _every_place(batch.num_rows)
        for piece in pieces:
            rows = batch.slice(piece.start, piece.rows)
            at = every_place.slice(piece.start, piece.rows)
            mask, passed = self._masks(piece, rows, low, high)
            looked, looked_at = (rows, at) if passed is None else (rows.filter(passed), at.filter(passed))
            window.looked.append(looked.column("seq") if "seq" in columns else Unread(piece.rows, partial(seqs, piece)))
            if searches:
                hits = matching.matches(query, looked)
                looked_at = looked_at.filter(hits)
                if has_parts:
                    window.parts.append(looked.column("seq").filter(looked.column("partial")))
                if piece.has_gaps:
                    self._note_gaps(window, rows, at, mask, looked_at)
            chosen.append(looked_at)
        places = pa.concat_arrays(chosen)
        if len(places):
            if searches:
                rest = self._file.read(group, self._worth_reading(group, columns))
                batch = pa.RecordBatch.from_arrays(
                    [*batch.columns, *rest.columns], names=[*batch.schema.names, *rest.schema.names]
                )
            best.add(_spelled_out(_shown(batch.take(places))))

    def _worth_reading(self, group: int, known: set[str]) -> list[str]:
        """The columns of a `Line` that are not `known` and have more than their empty value: each costs as much as looking for a text."""
        return [
            name for name in SHOWN if name not in known and not (name in _EMPTY and self._file.is_empty(group, name))
        ]

    def _is_excluded(self, group: int, pieces: list[_Piece]) -> bool:
        """Whether the index tells that none of these rows match, and none are gap records, or parts of a line to be told of."""
        if self._groups is None or group in self._groups or any(piece.has_gaps for piece in pieces):
            return False
        return not self._tells_parts or self._file.has_none(group, "partial")

    def _pass_over(
        self, window: Window, group: int, runs: list[Run], pieces: list[_Piece], low: int, high: int
    ) -> None:
        """Counts rows that would have been searched, and reads no more than that takes."""
        seqs = self._seqs(group, runs, pieces, low, high)
        for piece in pieces:
            is_plain = not (piece.by_seq or piece.by_owner or piece.by_bounds)
            window.looked.append(Unread(piece.rows, partial(seqs, piece)) if is_plain else seqs(piece))

    def _seqs(self, group: int, runs: list[Run], pieces: list[_Piece], low: int, high: int) -> Callable[[_Piece], Any]:
        """Tells the seqs of the rows of a piece that are searched; those that cannot be read are not among them."""

        @cache
        def batch() -> Any:
            return self._file.read(group, sorted({"seq", *_tested(pieces)}))

        def seqs(piece: _Piece) -> Any:
            try:
                rows = batch().slice(piece.start, piece.rows)
            except SegmentDamaged as damage:
                self._on_damage(damage, runs)
                return pa.array([], pa.int64())
            _, passed = self._masks(piece, rows, low, high)
            return rows.column("seq") if passed is None else rows.column("seq").filter(passed)

        return seqs

    def _masks(self, piece: _Piece, rows: Any, low: int, high: int) -> tuple[Any, Any]:
        """Which rows are wanted by seq, key and attempt, and which of them pass the bounds as well; None is all of them."""
        mask = self._seq_mask(rows, low, high) if piece.by_seq else None
        if piece.by_owner:
            mask = _both(mask, self._owner_mask(rows))
        return mask, _both(mask, self._bounds_mask(rows)) if piece.by_bounds else mask

    def _pieces(self, runs: list[Run], low: int, high: int) -> Iterator[_Piece]:
        """The rows of some runs of one row group; neighbours are taken together."""
        piece: _Piece | None = None
        for run in runs:
            following = _Piece(
                run.start,
                run.rows,
                run.first_seq < low or run.last_seq >= high,
                not run.is_owned(self._query),
                not is_inside(self._query, run.earliest_ms, run.latest_ms, run.levels),
                bool(run.levels & GAP_BIT),
            )
            if piece is None:
                piece = following
            elif piece.start + piece.rows == following.start:
                piece = _Piece(
                    piece.start,
                    piece.rows + following.rows,
                    piece.by_seq or following.by_seq,
                    piece.by_owner or following.by_owner,
                    piece.by_bounds or following.by_bounds,
                    piece.has_gaps or following.has_gaps,
                )
            else:
                yield piece
                piece = following
        if piece is not None:
            yield piece

    def _note_gaps(self, window: Window, rows: Any, at: Any, mask: Any, hits: Any) -> None:
        """Gap records say that lines are missing whatever their own level and text are."""
        wanted = _both(mask, pc.greater(rows.column("gap"), 0))
        wanted = _both(wanted, self._time_mask(rows))
        wanted = _both(wanted, pc.invert(pc.is_in(at, value_set=hits)))
        found = rows.select(["seq", "gap"]).filter(wanted)
        window.gaps += zip(found.column("seq").to_pylist(), found.column("gap").to_pylist(), strict=True)

    # Tests of every row ------------------------------------------------------------------------------------------------

    def _seq_mask(self, rows: Any, low: int, high: int) -> Any:
        seqs = rows.column("seq")
        return pc.and_(pc.greater_equal(seqs, low), pc.less(seqs, high))

    def _owner_mask(self, rows: Any) -> Any:
        mask = pc.greater_equal(rows.column("incarnation"), self._query.min_incarnation)
        if self._query.attempt_uid:
            mask = pc.and_(mask, pc.equal(rows.column("attempt_uid"), self._query.attempt_uid))
        return mask

    def _time_mask(self, rows: Any) -> Any:
        mask = None
        times = rows.column("epoch_ms")
        if self._query.since_ms:
            mask = pc.greater(times, self._query.since_ms)
        if self._query.until_ms:
            mask = _both(mask, pc.less(times, self._query.until_ms))
        return mask

    def _bounds_mask(self, rows: Any) -> Any:
        mask = self._time_mask(rows)
        if self._query.min_level:
            levels = rows.column("level")
            passes = pc.greater_equal(levels, self._query.min_level)
            mask = _both(mask, passes if self._query.states_level else pc.or_(pc.equal(levels, 0), passes))
        return mask


class _Best:
    """Collects rows and keeps the `wanted` first ones by seq, or the last ones; fewer where they are large."""

    def __init__(self, wanted: int, newest: bool, max_bytes: int) -> None:
        self._wanted = wanted
        self._newest = newest
        self._max_bytes = max_bytes
        self._found: list[Any] = []
        self._count = self._bytes = 0
        self._limit: int | None = None
        self.matched = 0

    def add(self, rows: Any) -> None:
        """More rows, in any order."""
        self.matched += rows.num_rows
        self._keep(rows)
        if self._count >= self._wanted or self._bytes > 4 * self._max_bytes:
            self._prune()

    def _keep(self, rows: Any) -> None:
        self._found.append(rows)
        self._count += rows.num_rows
        self._bytes += rows.nbytes

    def _prune(self) -> None:
        table = pa.Table.from_batches(self._found)
        order = pc.sort_indices(table["seq"], sort_keys=[("seq", "descending" if self._newest else "ascending")])
        kept = order.slice(0, self._wanted)
        rows = table.take(kept)
        sizes = pc.cumulative_sum(pc.cast(pc.binary_length(rows["data"]), pa.int64()))
        small = pc.sum(pc.less_equal(sizes, self._max_bytes)).as_py() or 0
        # One more: it shows that something is left out.
        rows = rows.slice(0, small + 1)
        if rows.num_rows == self._wanted or rows.num_rows < len(kept):
            self._limit = rows["seq"][-1].as_py()
        self._found, self._count, self._bytes = [], 0, 0
        for batch in rows.combine_chunks().to_batches():
            self._keep(batch)

    def bounds(self, low: int, high: int) -> tuple[int, int]:
        """Only rows from one seq to before the other can still be among them."""
        if self._limit is None:
            return low, high
        return (self._limit + 1, high) if self._newest else (low, self._limit)

    def lines(self) -> list[Line]:
        """They in the order of seq."""
        if not self._found:
            return []
        rows = pa.Table.from_batches(self._found).sort_by("seq")
        columns = [rows[name].to_pylist() for name in SHOWN]
        for name, nothing in _NOTHING.items():
            place = SHOWN.index(name)
            columns[place] = [nothing if value is None else value for value in columns[place]]
        return list(map(Line._make, zip(*columns, strict=True)))


_places: Any = pa.array([], pa.uint64())


def _every_place(count: int) -> Any:
    """The places of so many rows: 0, 1, 2, …"""
    global _places
    places = _places
    if len(places) < count:
        places = _places = pa.array(range(count), pa.uint64())
    return places.slice(0, count)


def _shown(batch: Any) -> Any:
    """The columns of a `Line`; NULL where the batch was read without."""
    names = batch.schema.names
    found = [batch.column(name) if name in names else pa.nulls(batch.num_rows, _EMPTY[name][0]) for name in SHOWN]
    return pa.RecordBatch.from_arrays(found, names=list(SHOWN))


def _spelled_out(batch: Any) -> Any:
    """The batch without dictionaries."""
    columns = [one.dictionary_decode() if pa.types.is_dictionary(one.type) else one for one in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _tested(pieces: list[_Piece]) -> set[str]:
    """The columns by which rows are left out before their text is looked at."""
    columns: set[str] = set()
    if any(piece.by_owner for piece in pieces):
        columns |= {"seq", "incarnation", "attempt_uid"}
    if any(piece.by_bounds for piece in pieces):
        columns |= {"seq", "epoch_ms", "level"}
    if any(piece.by_seq for piece in pieces):
        columns.add("seq")
    return columns


def _count_between(seqs: Any, low: int, high: int) -> int:
    found: int = pc.sum(pc.and_(pc.greater_equal(seqs, low), pc.less(seqs, high)), min_count=0).as_py()
    return found


def _both(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return pc.and_(one, other)


def _by_group(runs: Iterable[Run]) -> Iterable[tuple[int, list[Run]]]:
    found: dict[int, list[Run]] = {}
    for run in runs:
        found.setdefault(run.group, []).append(run)
    return sorted(found.items())


def _rows_between(run: Run, low: int, high: int) -> float:
    """About how many rows of a run have a seq from `low` to `high - 1`."""
    first, end = max(run.first_seq, low), min(run.last_seq + 1, high)
    return run.rows * max(0, end - first) / (run.last_seq + 1 - run.first_seq)
