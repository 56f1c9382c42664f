"""The columns of a statement's answer, made from it: as wide as its first rows need, numbers to the right, sorted as what they are.

A narrow screen hides the columns furthest right; who shows them says how many. No two columns have the same id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from iris_core.live.columns import ColumnSpec
from iris_core.live.query_result import distinct, kind_of, shown
from iris_core.live.wording import Tone
from iris_core.model.filter import FieldType
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_core.live.query_result import Result
    from iris_core.model.filter import Field

SAMPLE: Final = 200
"""Rows by which widths are settled."""
WIDEST: Final = 40
ANY: Final = "any"
"""The field in which a bare word is looked for: every cell of the row."""
_FIELD: Final = re.compile(r"[a-z_][a-z0-9_]*")

Values = tuple[Any, ...]


def column_specs(result: Result, first: int = 0) -> list[ColumnSpec[Values]]:
    """The columns from the `first` one on."""
    sample = result.rows[:SAMPLE]
    ids = distinct(result.names)
    return [
        _column(ids[at], result.names[at], at, at - first, [row[at] for row in sample])
        for at in range(first, len(ids))
    ]  # fmt: skip


def _column(name: str, title: str, at: int, hide: int, cells: Sequence[Any]) -> ColumnSpec[Values]:
    wide = max((len(one_line(shown(cell))) for cell in cells), default=0)
    most = max(wide, len(title) + 1, 4)
    return ColumnSpec(
        id=name,
        title=one_line(title),
        value=lambda row: row[at],
        text=lambda row, _: one_line(shown(row[at])),
        sort=lambda row, _: _key(row[at]),
        tone=lambda row: Tone.DIM if row[at] is None else Tone.PLAIN,
        min_width=min(most, WIDEST),
        max_width=most,
        flex=1 if most > WIDEST else 0,
        align="right" if is_numeric(cells) else "left",
        hide=hide,
    )


def is_numeric(cells: Sequence[Any]) -> bool:
    """Whether these are numbers, or nothing."""
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(isinstance(cell, (int, float)) and not isinstance(cell, bool) for cell in known)


def _key(cell: Any) -> tuple[int, Any]:
    """NULL first, then numbers, then texts."""
    if cell is None:
        return 0, 0
    if isinstance(cell, (int, float)):
        return 1, cell
    return 2, str(cell).lower()


def filter_fields(result: Result) -> dict[str, FieldType | Field]:
    """What a filter can ask of a row: each column with a plain name, and `any`."""
    fields: dict[str, FieldType | Field] = {ANY: FieldType.TEXT}
    for at, name in enumerate(distinct(result.names)):
        if _FIELD.fullmatch(name):
            numeric = is_numeric([row[at] for row in result.rows[:SAMPLE]])
            fields[name] = FieldType.NUMBER if numeric else FieldType.TEXT
    return fields


def filter_values(result: Result, fields: dict[str, FieldType | Field]) -> Callable[[Values], Callable[[str], object]]:
    """How a row answers those fields."""
    places = {name: at for at, name in enumerate(distinct(result.names))}

    def of(row: Values) -> Callable[[str], object]:
        def value(name: str) -> object:
            if name == ANY and ANY not in places:
                return "\n".join(shown(cell) for cell in row)
            cell = row[places[name]]
            if fields[name] is FieldType.NUMBER:
                return cell if isinstance(cell, (int, float)) else None
            return None if cell is None else shown(cell)

        return value

    return of


def row_ids(result: Result, column: int | None) -> list[str]:
    """An id for each row: the cell of the column that actions are about where it is the first with it, else with its number."""
    found: list[str] = []
    seen: set[str] = set()
    for number, row in enumerate(result.rows, 1):
        cell = row[column] if column is not None else None
        name = str(cell) if kind_of(cell) else ""
        found.append(name if name and name not in seen else f"{name}#{number}")
        seen.add(name)
    return found
