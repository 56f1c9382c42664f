"""Many rows as few statements, each of which writes a whole set of them.

SQLite takes a bound value in a third of the time that it needs for one out of JSON, but a statement for each number of rows there may
be would be compiled anew each time. So rows are bound by whole chunks, whose statements are few and stay prepared, and what is left
over travels as one JSON array, or, where it is little, as a chunk of its own. Never `executemany`: beside a busy interpreter it waits
for it once a row (DESIGN §4).
"""

from __future__ import annotations

import json
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from iris_controller.store.writer import Statement

Row = tuple[Any, ...]

CHUNKS: Final = (250, 50)
FEW: Final = 16
"""A batch brings some submissions, of any number: up to this each number has a statement of its own, of which there are few enough to
stay prepared. Each statement costs the writer's thread the interpreter three times, and a busy loop gives it back late."""

_NULLABLE: Final = frozenset({"current_worker_id"})
"""Columns whose empty text is stored as NULL."""
_CONVERTED: Final[dict[str, Callable[[Any], Any]]] = {
    "state": int,
    "priority_band": int,
    "charge": int,
    "executed": int,
    "displaces_json": json.dumps,
}
"""Columns whose values are not what is stored. Enums and truth values are integers, but bound as they are each would be searched an
adapter for, which takes ten times as long."""


def stored(column: str, values: Iterable[Any]) -> Iterable[Any]:
    """Values of a record as the column holds them."""
    convert = _CONVERTED.get(column)
    return values if convert is None else map(convert, values)


def bulk(sql: Callable[[int], str], rows: Sequence[Row]) -> Iterator[Statement]:
    """`sql` gives the statement that takes so many bound rows, for 0 the one that takes them as JSON. The values are as stored."""
    found, left = _whole(sql, rows, CHUNKS)
    yield from found
    if left:
        yield sql(0), (json.dumps(left),)


def bound(sql: Callable[[int], str], rows: Sequence[Row]) -> Iterator[Statement]:
    """As `bulk`, for rows with bytes, which JSON cannot carry. What is left over after chunks of `FEW` is a statement too."""
    found, left = _whole(sql, rows, (*CHUNKS, FEW))
    yield from found
    if left:
        yield sql(len(left)), tuple(chain.from_iterable(left))


def _whole(
    sql: Callable[[int], str], rows: Sequence[Row], sizes: tuple[int, ...]
) -> tuple[list[Statement], Sequence[Row]]:
    """What fills chunks of these sizes, as statements, and the rows that are left over."""
    found: list[Statement] = []
    start = 0
    for size in sizes:
        while len(rows) - start >= size:
            found.append((sql(size), tuple(chain.from_iterable(rows[start : start + size]))))
            start += size
    return found, rows[start:]


def upsert(table: str, keys: tuple[str, ...], columns: tuple[str, ...]) -> str:
    """Rows of a JSON array, each an array of the keys and the columns, put in the place of what is there."""
    sets = ", ".join(f"{c}=excluded.{c}" for c in columns)
    return f"{insert(table, (*keys, *columns))} WHERE true ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {sets}"


@cache
def insert(table: str, columns: tuple[str, ...], rows: int = 0) -> str:
    """Rows that are not there yet."""
    head = f"INSERT INTO {table} ({', '.join(columns)})"
    if rows:
        return f"{head} VALUES {_bound(len(columns), rows)}"
    return f"{head} SELECT {', '.join(f'value->>{i}' for i in range(len(columns)))} FROM json_each(?)"


@cache
def update(table: str, keys: tuple[str, ...], columns: tuple[str, ...], rows: int = 0) -> str:
    """Columns of rows that are there; each row is the keys and the columns."""
    width = len(keys) + len(columns)
    values = [f"nullif(v.c{i}, '')" if c in _NULLABLE else f"v.c{i}" for i, c in enumerate(columns, len(keys))]
    sets = ", ".join(f"{c}={value}" for c, value in zip(columns, values, strict=True))
    where = " AND ".join(f"{table}.{k}=v.c{i}" for i, k in enumerate(keys))
    if rows:
        names = ", ".join(f"c{i}" for i in range(width))
        return f"WITH v({names}) AS (VALUES {_bound(width, rows)}) UPDATE {table} SET {sets} FROM v WHERE {where}"
    picks = ", ".join(f"value->>{i} AS c{i}" for i in range(width))
    return f"UPDATE {table} SET {sets} FROM (SELECT {picks} FROM json_each(?)) AS v WHERE {where}"


def _bound(width: int, rows: int) -> str:
    return ",".join([f"({','.join('?' * width)})"] * rows)
