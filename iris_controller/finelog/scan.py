"""Reading the lines of a segment in the order of seq, though it is sorted by key: window by window.

A window is a range of seqs. Of each row group that has rows of a wanted key in it, the rows that pass are picked column by column, and
of all that are found the first (or last) ones are kept, as many as the answer can still take. How wide a window is follows from how
often lines matched so far. So a page of one log decodes one row group, a search through everything decodes each once, and neither
needs more memory than a few row groups.

Heavy: imported by a read that comes to a segment. Must never take a row that damage may have changed, nor count one it did not see.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from iris_controller.finelog import matching
from iris_controller.finelog.index import PARTIAL_BIT
from iris_controller.finelog.masks import (
    Piece,
    both,
    masks,
    owner_mask,
    pieces_of,
    seq_mask,
    tested,
    time_mask,
)
from iris_controller.finelog.parts import PartsSeen
from iris_controller.finelog.picked import EMPTY, SHOWN, Best, every_place, shown, spelled_out
from iris_controller.finelog.runs import ints
from iris_controller.finelog.segments import SegmentDamaged
from iris_controller.finelog.stretches import Stretch
from iris_controller.finelog.windows import MAX_ROWS, Unread, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from iris_controller.finelog.query import Query
    from iris_controller.finelog.runs import Run
    from iris_controller.finelog.segments import SegmentFile
    from iris_controller.finelog.stretches import Times
    from iris_controller.finelog.windows import Density

SAMPLE = 512
"""Runs by which the width of a window is estimated."""
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
                    mask = seq_mask(rows, low, high)
                    mask = mask if is_owned else pc.and_(mask, owner_mask(self._query, rows))
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
            mask = seq_mask(rows, self._low, self._high)
            mask = mask if is_owned else pc.and_(mask, owner_mask(self._query, rows))
            yield rows.column("seq").filter(mask).to_pylist()

    def stretches(self, seq: int) -> Iterator[Stretch]:
        """The runs in which the line with that seq may stand."""
        for run in self._overlapping(seq, seq + 1):
            piece = (self._file.segment.name, run.group, 0)
            yield Stretch(run.earliest_ms, run.latest_ms, piece, run.start, run.rows, partial(self._times, run))

    def _times(self, run: Run) -> Times:
        """The seqs and times of the row group of a run; nothing if it cannot be read."""
        try:
            rows = self._file.read(run.group, ["seq", "epoch_ms"])
        except SegmentDamaged as damage:
            self._on_damage(damage, [run])
            return (), ()
        except OSError:
            # It may be read another time, so that is no loss.
            return (), ()
        return ints(rows.column("seq")), ints(rows.column("epoch_ms"))

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
        if not (self._file.is_empty(group, "part") and self._file.is_empty(group, "partial")):
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
            mask = seq_mask(rows, low, high)
            found.append(rows.filter(mask if is_owned else pc.and_(mask, owner_mask(self._query, rows))))
        table = pa.Table.from_batches([spelled_out(one.select(columns)) for one in found])
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
        best = Best(wanted, self._query.tail, self._max_bytes)
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

    def _take(self, window: Window, best: Best, group: int, runs: list[Run], low: int, high: int) -> None:
        query = self._query
        pieces = list(pieces_of(query, runs, low, high))
        if self._is_excluded(group, pieces):
            self._pass_over(window, group, runs, pieces, low, high)
            return
        searches = query.filters_content
        has_gaps = any(piece.has_gaps for piece in pieces)
        has_parts = not (self._file.is_empty(group, "part") and self._file.is_empty(group, "partial"))
        columns = tested(pieces)
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
        places_of_group = every_place(batch.num_rows)
        for piece in pieces:
            rows = batch.slice(piece.start, piece.rows)
            at = places_of_group.slice(piece.start, piece.rows)
            mask, passed = masks(self._query, piece, rows, low, high)
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
            best.add(spelled_out(shown(batch.take(places))))

    def _worth_reading(self, group: int, known: set[str]) -> list[str]:
        """The columns of a `Line` that are not `known` and have more than their empty value: each costs as much as looking for a text."""
        return [
            name for name in SHOWN if name not in known and not (name in EMPTY and self._file.is_empty(group, name))
        ]

    def _is_excluded(self, group: int, pieces: list[Piece]) -> bool:
        """Whether the index tells that none of these rows match, and none are gap records, or parts of a line to be told of."""
        if self._groups is None or group in self._groups or any(piece.has_gaps for piece in pieces):
            return False
        return not self._tells_parts or self._file.is_empty(group, "partial")

    def _pass_over(self, window: Window, group: int, runs: list[Run], pieces: list[Piece], low: int, high: int) -> None:
        """Counts rows that would have been searched, and reads no more than that takes."""
        seqs = self._seqs(group, runs, pieces, low, high)
        for piece in pieces:
            is_plain = not (piece.by_seq or piece.by_owner or piece.by_bounds)
            window.looked.append(Unread(piece.rows, partial(seqs, piece)) if is_plain else seqs(piece))

    def _seqs(self, group: int, runs: list[Run], pieces: list[Piece], low: int, high: int) -> Callable[[Piece], Any]:
        """Tells the seqs of the rows of a piece that are searched; those that cannot be read are not among them."""

        @cache
        def batch() -> Any:
            return self._file.read(group, sorted({"seq", *tested(pieces)}))

        def seqs(piece: Piece) -> Any:
            try:
                rows = batch().slice(piece.start, piece.rows)
            except SegmentDamaged as damage:
                self._on_damage(damage, runs)
                return pa.array([], pa.int64())
            _, passed = masks(self._query, piece, rows, low, high)
            return rows.column("seq") if passed is None else rows.column("seq").filter(passed)

        return seqs

    def _note_gaps(self, window: Window, rows: Any, at: Any, mask: Any, hits: Any) -> None:
        """Gap records say that lines are missing whatever their own level and text are."""
        wanted = both(mask, pc.greater(rows.column("gap"), 0))
        wanted = both(wanted, time_mask(self._query, rows))
        wanted = both(wanted, pc.invert(pc.is_in(at, value_set=hits)))
        found = rows.select(["seq", "gap"]).filter(wanted)
        window.gaps += zip(found.column("seq").to_pylist(), found.column("gap").to_pylist(), strict=True)


def _by_group(runs: Iterable[Run]) -> Iterable[tuple[int, list[Run]]]:
    found: dict[int, list[Run]] = {}
    for run in runs:
        found.setdefault(run.group, []).append(run)
    return sorted(found.items())


def _rows_between(run: Run, low: int, high: int) -> float:
    """About how many rows of a run have a seq from `low` to `high - 1`."""
    first, end = max(run.first_seq, low), min(run.last_seq + 1, high)
    return run.rows * max(0, end - first) / (run.last_seq + 1 - run.first_seq)
