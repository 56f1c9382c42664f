"""Writing a statement: in the box, in the editor, from one of those to start from, or from one that was run before.

A base of `QueryScreen`. Which database is asked belongs to the statement. Nothing here runs one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from iris_core.live.query_result import CONTROLLER, DATABASES, STATS, TITLES
from iris_core.live.query_templates import of_database
from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from screens.query_editor import SqlEditor

if TYPE_CHECKING:
    from iris_tui.list_screen import ListScreen

    Base = ListScreen
else:
    Base = object


class QueryWriting(Base):
    """Mix into a list, before the list's class."""

    editor: SqlEditor
    database = CONTROLLER

    def go_to_editor(self) -> None:
        """The next key is text."""
        self.set_focus(self.editor, scroll_visible=False)

    def do_edit(self) -> None:
        self.go_to_editor()

    def do_database(self, name: str) -> None:
        wanted = name or next(known for known in DATABASES if known != self.database)
        if wanted not in DATABASES:
            raise ModelError(f"there is no database {one_line(wanted)!r}", hint=f"one of {', '.join(DATABASES)}")
        if wanted == STATS and self.session.offline:
            raise ModelError("stats, events and logs need a live cluster, and this is a checkpoint")
        self.database = wanted
        self.go_to_editor()
        self.flush_now()

    def do_templates(self) -> None:
        from iris_tui.gate import MenuScreen

        found = of_database(self.database)
        letters = (letter for letter in "abcdefghilmnoprstuvwyz")
        entries = [(next(letters), str(at), template.title) for at, template in enumerate(found)]

        def chosen(number: str | None) -> None:
            if number:
                template = found[int(number)]
                self.editor.put(template.sql, template.blank)
                self.go_to_editor()

        note = f"What stands in angle brackets is yours to fill in. {self._key('query.database')} offers the other database."
        self.app.push_screen(MenuScreen(f"Statements on {TITLES[self.database]}", entries, note), chosen)

    def do_earlier(self) -> None:
        from iris_tui.gate import MenuScreen

        history = self.session.saved.history(f"query {self.database}")[:-16:-1]
        if not history:
            raise ModelError(
                f"no statement was run on {TITLES[self.database]} yet",
                hint=f"{self._key('query.templates')} offers some",
            )
        entries = [
            (str(at) if at < 10 else "", str(at), one_line(" ".join(sql.split()))) for at, sql in enumerate(history, 1)
        ]

        def chosen(number: str | None) -> None:
            if number:
                self.editor.put(history[int(number) - 1])
                self.go_to_editor()

        self.app.push_screen(MenuScreen("Earlier statements, the newest first", entries), chosen)

    def do_editor(self) -> None:
        from iris_tui.copying import write_private

        with tempfile.TemporaryDirectory(prefix="iris-query-") as folder:
            path = Path(folder) / "query.sql"
            write_private(path, self.editor.text)
            self.console.open_file(path, editor=True)
            text = path.read_text(encoding="utf-8", errors="replace")
        self.editor.put(text.rstrip("\n"))
        self.go_to_editor()
