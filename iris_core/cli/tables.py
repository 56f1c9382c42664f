"""Tables for people: plain columns aligned by displayed width, and the listings that every `-o` format is made from.

A cell is made visible before it is measured. Only where the room is known (a terminal, or $COLUMNS) are cells cut,
between whole characters and with an ellipsis; ids are never cut unless it is a terminal. Column specs are those of
the console (`iris_core/live/columns.py`). Must never write: it returns text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from iris_core.cli import output
from iris_core.model.text import cell_width, one_line, truncate_cells

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from iris_core.live.columns import ColumnSpec

R = TypeVar("R")
GAP: Final = "  "
MOST_CELLS: Final = {"reason": 60, "message": 100}
"""Where a text is cut in tables, whatever the room (cli-auth-logs §1.2, §1.3); `-o wide` shows all of it."""

MOST_PADDED: Final = 400
"""Where nothing is cut, a cell that is wider than this stands out of its column: to pad all others would make gigabytes of blanks."""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and how its cells may be treated."""

    title: str
    align: Literal["left", "right"] = "left"
    is_id: bool = False
    """Never cut unless it is a terminal."""
    shrinks: bool = False
    """Gives up its room first."""
    most: int = 0
    """Widest cell, 0 = any."""


def render(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, headers: bool = True, cut: bool = True) -> str:
    """The table's text, "" for nothing at all. Cells are one line each; trailing blanks are dropped."""
    shown = [[_cell(text, column, cut) for text, column in zip(row, columns, strict=True)] for row in rows]
    if headers:
        shown.insert(0, [column.title for column in columns])
    if not shown:
        return ""
    widths = [max(cell_width(row[n]) for row in shown) for n in range(len(columns))]
    room = output.width() if cut else None
    if room is None:
        widths = [min(wide, MOST_PADDED) for wide in widths]
    else:
        widths = _fit(columns, widths, room, ids_too=output.is_terminal())
    return "".join(_line(row, columns, widths, cut=room is not None) + "\n" for row in shown)


def _cell(text: str, column: Column, cut: bool) -> str:
    line = one_line(text)
    return truncate_cells(line, column.most) if cut and column.most else line


def _line(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int], *, cut: bool) -> str:
    cells = []
    for text, column, cells_wide in zip(row, columns, widths, strict=True):
        kept = truncate_cells(text, cells_wide) if cut else text
        pad = " " * max(cells_wide - cell_width(kept), 0)
        cells.append(pad + kept if column.align == "right" else kept + pad)
    return GAP.join(cells).rstrip()


def _fit(columns: Sequence[Column], natural: Sequence[int], room: int, *, ids_too: bool) -> list[int]:
    """Narrower widths, as far as that is allowed: shrinking columns first, then other text, then ids."""
    widths = list(natural)

    def take(indexes: list[int], least: int) -> None:
        excess = sum(widths) + len(GAP) * (len(widths) - 1) - room
        while excess > 0:
            candidates = [n for n in indexes if widths[n] > max(least, 1)]
            if not candidates:
                return
            widest = max(candidates, key=lambda n: widths[n])
            others = sorted((widths[n] for n in candidates if n != widest), reverse=True)
            floor = max(least, others[0] - 1 if others else least)
            step = max(min(excess, widths[widest] - floor), 1)
            widths[widest] -= step
            excess -= step

    take([n for n, column in enumerate(columns) if column.shrinks], 10)
    if ids_too:
        take([n for n, column in enumerate(columns) if column.is_id], 12)
    return widths


def of_spec(spec: ColumnSpec[Any], title: str = "") -> Column:
    """How a shared column spec stands in a plain table."""
    is_id = spec.id in ("job_id", "task_id", "uid", "worker_id")
    return Column(
        title or spec.title,
        spec.align,
        is_id=is_id,
        shrinks=spec.id in ("reason", "resources", "message"),
        most=MOST_CELLS.get(spec.id, 0),
    )


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """A listing in every format.

    Attributes:
        specs: Every column there is, for machine formats, by id.
        table: Columns of `-o table`: spec ids, each with its heading ("" = the spec's).
        wide: The same for `-o wide`.
        name: The id that `-o name` prints.
        optional: Columns left out of tables when no row has anything in them.
    """

    specs: dict[str, ColumnSpec[R]]
    table: tuple[tuple[str, str], ...]
    wide: tuple[tuple[str, str], ...]
    name: Callable[[R], str]
    optional: frozenset[str] = frozenset()

    def text(self, rows: Sequence[R], how: output.Format, now_ms: int, *, headers: bool = True) -> str:
        """The rows in that format."""
        if how == "name":
            return "".join(f"{self.name(row)}\n" for row in rows)
        if how == "json":
            return output.as_json([self.object(row) for row in rows]) + "\n"
        if how == "jsonl":
            return "".join(output.as_json_line(self.object(row)) + "\n" for row in rows)
        if how == "csv":
            head = [list(self.specs)] if headers else []
            return output.csv_text([*head, *([spec.value(row) for spec in self.specs.values()] for row in rows)])
        chosen = [
            (self.specs[name], title)
            for name, title in (self.wide if how == "wide" else self.table)
            if name not in self.optional or any(self.specs[name].value(row) for row in rows)
        ]
        return render(
            [of_spec(spec, title) for spec, title in chosen],
            [[spec.text(row, now_ms) for spec, _ in chosen] for row in rows],
            headers=headers,
            cut=how == "table",
        )

    def object(self, row: R) -> dict[str, object]:
        """One row as JSON modes show it: every column under its id."""
        return {name: spec.value(row) for name, spec in self.specs.items()}
