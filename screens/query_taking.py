"""What is taken out of an answer: one row in full, a cell or a row copied, all rows in a file.

A base of `QueryScreen`. Rows are those that are shown, in their order.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris_core.live.query_result import distinct, shown
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_tui.threads import in_thread

if TYPE_CHECKING:
    from iris_core.live.query_result import Result
    from iris_tui.list_screen import ListScreen

    Base = ListScreen
else:
    Base = object


class QueryTaking(Base):
    """Mix into a list, before the list's class."""

    result: Result | None

    def _pairs(self) -> list[tuple[str, Any]]:
        """Names and values of the row under the cursor. Raises ModelError: there is none."""
        row = self.table.row
        if self.result is None or row is None:
            raise ModelError("there is no row here")
        self.table.touch()
        return list(zip(distinct(self.result.names), row.value, strict=True))

    def do_row(self) -> None:
        from iris_tui.pages import Lines, TextPage

        pairs = self._pairs()
        wide = max((len(name) for name, _ in pairs), default=0)

        async def load() -> Lines:
            lines: list[tuple[str, Tone]] = []
            for name, value in pairs:
                texts = shown(value).split("\n")
                tone = Tone.DIM if value is None else Tone.PLAIN
                lines += [
                    (f"{one_line(name) if not at else '':<{wide}}  {one_line(text)}", tone)
                    for at, text in enumerate(texts)
                ]
            return lines

        self.app.push_screen(TextPage(self.session, "One row", load, dated=False))

    def do_copy_cell(self, at: int | None) -> None:
        """Copy one cell, or (None) the row as JSON."""
        pairs = self._pairs()
        if at is None:
            self.console.copy_text(json.dumps(dict(pairs), ensure_ascii=False), "the row")
        else:
            self.console.copy_text(shown(pairs[at][1]), f"the {one_line(pairs[at][0])}")

    def do_save(self, name: str) -> None:
        result = self.result
        if result is None:
            raise ModelError("there are no rows to save", hint=f"{self._key('query.run')} runs the statement")
        from iris_tui.handing_over import unused

        rows = [row.value for row_id in self.store.order if (row := self.store.get(row_id)) is not None]
        path = name or str(unused(Path.cwd() / "query.csv"))
        how = "json" if path.endswith(".json") else "csv"

        async def save() -> None:
            from iris_core.cli.query import text_of

            text = await in_thread(lambda: text_of(result.names, rows, how), name="write rows")
            try:
                self.console.save_text(text.rstrip("\n"), "query", path)
            except ModelError as error:
                self.console.say(str(error), severity="warning")

        self.run_worker(save(), name="save the rows", group="save", exit_on_error=False)
