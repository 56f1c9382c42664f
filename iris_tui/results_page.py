"""The page of what was changed from this console: it shows the operations as they go on, and closing it ends none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_tui.pages import TextPage

if TYPE_CHECKING:
    from iris_tui.operations import Operations
    from iris_tui.pages import Lines
    from iris_tui.session import Session


class ResultsPage(TextPage):
    """The operations of this console, live."""

    def __init__(self, session: Session, operations: Operations) -> None:
        self._operations = operations
        self._shown: tuple[int, int, int] | None = None
        super().__init__(session, "What was changed from this console", self._read, dated=False)

    async def _read(self) -> Lines:
        self._shown = self._operations.version
        return self._operations.lines()

    def flush(self) -> None:
        if self._shown is not None and self._shown != self._operations.version:
            self._shown = self._operations.version
            self.text.show(self._operations.lines())
        super().flush()
