"""A page of text over the screen: a description, a submitted request, results, help.

It is read once and says when; `^r` reads it again. A failure leaves what was there, or says what is wrong and how to try again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from iris_core.contracts import IrisError
from iris_core.live.faults import fault_text
from iris_core.live.wording import Tone
from iris_core.model.text import one_line
from iris_tui.drawing import Run
from iris_tui.screen import ConsoleScreen
from iris_tui.widgets.line_view import TextView
from iris_tui.widgets.pane import Pane, State, Status
from iris_tui.widgets.prompt import Question

if TYPE_CHECKING:
    from textual.widget import Widget

    from iris_tui.session import Session

Lines = Sequence[tuple[str, Tone]]


class PageText(TextView):
    """The text of a page; closing and finding belong to the page."""

    def do_close(self) -> None:
        page = self.screen
        assert isinstance(page, TextPage)
        page.close_page()

    def do_find(self, text: str) -> None:
        page = self.screen
        assert isinstance(page, TextPage)
        page.ask_find(text)


class TextPage(ConsoleScreen):
    """`load` gives the lines; it may raise IrisError. `command` is the command line that prints the same."""

    SCOPES: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        session: Session,
        title: str,
        load: Callable[[], Awaitable[Lines]],
        *,
        command: str = "",
        dated: bool = True,
    ) -> None:
        super().__init__(session)
        self._title = title
        self._load = load
        self._command = command
        self._dated = dated
        self.text = PageText(title=title)
        self.pane = Pane(self.text)
        self._as_of = ""
        self._fault = ""
        self._history: list[str] = []

    def body(self) -> Iterable[Widget]:
        yield self.pane

    def title_text(self) -> str:
        return ""

    def on_mount(self) -> None:
        self.text.take_focus()
        self.reload()

    def reload(self) -> None:
        """Read it again."""
        self.run_worker(self._fill(), name=f"page {self._title}", group="page", exclusive=True, exit_on_error=False)

    async def _fill(self) -> None:
        try:
            lines = await self._load()
        except IrisError as error:
            self._fault = fault_text(error)
        else:
            self._fault = ""
            moment = datetime.fromtimestamp(self.session.clock.now_ms() / 1000, UTC)
            self._as_of = f"as of {moment:%H:%M:%S} UTC" if self._dated else " "
            self.text.show(lines)
        self.flush_now()

    def shows_content(self) -> bool:
        return bool(self._as_of or self._fault)

    def flush(self) -> None:
        if self._fault and not self._as_of:
            keymap = self.console.keymap
            ways = f"{keymap.first('app.refresh')} tries again, {keymap.first('text.close')} goes back."
            status = Status(State.ERROR, "", (f"Not loaded: {self._fault}", ways))
        elif self._fault:
            status = Status(State.STALE, f"{self._as_of}; not read again: {self._fault}")
        elif not self._as_of:
            status = Status(State.LOADING, "", ("Loading …",))
        else:
            status = Status(State.READY, self._as_of.strip())
        self.pane.set_status(status)
        right = []
        if self.text.needle:
            found = self.text.hits()
            at = found.index(self.text.hit) + 1 if self.text.hit in found else 0
            right.append(Run(f"/{one_line(self.text.needle)} {at}/{len(found)}", Tone.WARN))
        self.pane.update_title([Run(self._title), Run(f"   {self._command}" if self._command else "", Tone.DIM)], right)

    def ask_find(self, text: str = "") -> None:
        """Ask for a text to find, or take the one that was given."""
        if text:
            self.text.find(text)
            return
        self.prompt.ask(
            Question("/ find", self._find, change=self.text.find, cancel=self._stop_finding, history=self._history),
            self.text.needle,
        )

    def _find(self, text: str) -> None:
        self.text.take_focus()
        self.text.find(text)

    def _stop_finding(self) -> None:
        self.text.find("")
        self.text.take_focus()

    def close_page(self) -> None:
        """Back to the screen below."""
        if self.text.needle:
            self.text.find("")
            return
        self.dismiss()
