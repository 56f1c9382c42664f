"""The yardsticks of the console's screen, of Textual alone. Knows nothing of Iris but what its rows say.

python -m benchmarks.bare_textual empty        an app with one word on it
python -m benchmarks.bare_textual table ROWS   a DataTable of the same rows; `q` and `z` show only those with that letter in their name
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, ClassVar

from textual.app import App

from benchmarks.live_names import WORDS, cells

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

READY = "ready-to-be-seen"


class Empty(App[None]):
    """One word."""

    ENABLE_COMMAND_PALETTE = False

    def compose(self) -> ComposeResult:
        from textual.widgets import Static

        yield Static(READY)


class Table(App[None]):
    """All rows in a DataTable, the newest on top."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "DataTable { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [(word, f"some({word!r})", "some") for word in WORDS]

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.animation_level = "none"
        self._rows = [cells(number) for number in reversed(range(rows))]

    def compose(self) -> ComposeResult:
        from textual.widgets import DataTable, Static

        yield Static("", id="said")
        yield DataTable(cursor_type="row")

    def on_mount(self) -> None:
        from textual.widgets import DataTable

        table = self.query_one(DataTable)
        table.add_columns("JOB", "STATE", "TASKS", "AGE", "TIME", "FAIL", "PREEMPT", "REASON")
        table.focus()
        self._show(self._rows)

    def _show(self, rows: list[tuple[str, ...]]) -> None:
        from textual.widgets import DataTable, Static

        table = self.query_one(DataTable)
        table.clear()
        table.add_rows(rows)
        self.query_one("#said", Static).update(f"{len(rows):,} rows")

    def action_some(self, word: str) -> None:
        self._show([row for row in self._rows if any(word in cell for cell in row)])


if __name__ == "__main__":
    if sys.argv[1] == "empty":
        Empty().run()
    else:
        Table(int(sys.argv[2])).run()
