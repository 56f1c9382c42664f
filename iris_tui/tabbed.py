"""A page in parts, one of which is shown: a table of live rows and, beside it, what is read every so often.

Only the part that is shown is read again and redrawn. Each is a pane with its own state: what could not be read says so, what
was read once stays with its age. A part is chosen by its number, by Tab, or by a click; the history remembers which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partialmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.live.polled import Polled
from iris_core.live.rows import Changes, Row, RowStore
from iris_core.live.wording import Tone
from iris_core.model.resources import format_age
from iris_core.model.text import counted, one_line
from iris_tui.drawing import Run
from iris_tui.list_screen import SpecCells
from iris_tui.screen import ConsoleScreen
from iris_tui.widgets.line_view import TextView
from iris_tui.widgets.pane import Pane, State, Status
from iris_tui.widgets.prompt import Question
from iris_tui.widgets.tab_bar import TabBar
from iris_tui.widgets.virtual_table import VirtualTable

if TYPE_CHECKING:
    from textual.widget import Widget

    from iris_core.live.columns import ColumnSpec
    from iris_tui.glyphs import Glyphs
    from iris_tui.session import Session
    from iris_tui.widgets.line import Painted

MOST_TABS: Final = 7
SLOW_S: Final = 5.0
"""A read without an answer for so long is said to have none."""


class PartText(TextView):
    """Lines as a part of a page: Escape leaves the page, a search asks at the page's prompt."""

    def __init__(self, title: str) -> None:
        super().__init__(title=title)
        self.wrap = True
        self._history: list[str] = []

    @property
    def _screen(self) -> ConsoleScreen:
        screen = self.screen
        assert isinstance(screen, ConsoleScreen)
        return screen

    def do_close(self) -> None:
        if self.needle:
            self.find("")
        else:
            self._screen.console.go_back()

    def do_find(self, text: str) -> None:
        if text:
            self.find(text)
            return

        def end(needle: str) -> None:
            self.take_focus()
            self.find(needle)

        question = Question("/ find", end, change=self.find, cancel=lambda: end(""), history=self._history)
        self._screen.prompt.ask(question, self.needle)


class RowsPart(Pane):
    """A table of rows that are given all at once (`fill`), or of a store that somebody else keeps."""

    def __init__(
        self, columns: Sequence[ColumnSpec[Any]], kind: str, glyphs: Glyphs, *, store: RowStore[Any] | None = None
    ) -> None:
        self.store: RowStore[Any] = RowStore((kind,)) if store is None else store
        self.table = VirtualTable(self.store, SpecCells(columns), glyphs)
        super().__init__(self.table.header, self.table)

    def fill(self, rows: Sequence[Row[Any]]) -> None:
        """Show these rows, in this order, and no others."""
        for place, row in enumerate(rows):
            row.natural = place
        present = {row.id for row in rows}
        removed = [name for name in self.store.rows if name not in present]
        changes = self.store.apply(Changes(list(rows), removed))
        self.store.reorder(force=True)
        self.table.flush(changes)
        self.table.reordered()


@dataclass(slots=True)
class Tab:
    """One part.

    Attributes:
        name: What the bar calls it.
        pane: What is shown.
        focus: What has the keys then; None = the page itself.
        flush: Called ten times a second while it is shown.
        polled: What it shows, if that is read every so often.
        detail: The line below about the row under its cursor: what the columns cut.
        tone: Tone of its name.
        note: Said beside its name: a count.
        opens: Whether Enter opens something in it.
    """

    name: str
    pane: Pane
    focus: Painted | None
    flush: Callable[[], None]
    polled: Polled[Any] | None = None
    detail: Callable[[Row[Any]], list[Run]] | None = None
    tone: Tone = Tone.PLAIN
    note: str = ""
    opens: bool = False


def polled_status(
    screen: ConsoleScreen, polled: Polled[Any], what: str, *, empty: tuple[str, ...] = (), partial: str = ""
) -> Status:
    """The state of a part that is read every so often; the words are as in `live_status`. While nobody answers it only ages."""
    session, link = screen.session, screen.link
    waited_s = polled.waited_s(session.clock.monotonic())
    silent = f"no answer for {format_age(int(waited_s * 1000))}" if waited_s > SLOW_S else ""
    if not polled.loaded:
        if polled.fault:
            return Status(State.ERROR, "", (f"The {what} cannot be read: {polled.fault}", "^r tries again now."))
        more = (
            (f"{silent[0].upper()}{silent[1:]}: who should give it is silent. It is asked again by itself.",)
            if silent
            else ()
        )
        return Status(State.LOADING, "", (f"Loading the {what} …", *more))
    if polled.fault or silent or not link.current:
        age = format_age(max(session.clock.now_ms() - polled.read_at_ms, 0))
        return Status(State.STALE, f"STALE {age}: {polled.fault or silent or link.detail}")
    if empty:
        return Status(State.EMPTY, "", empty)
    return Status(State.PARTIAL, partial) if partial else Status(State.READY)


class Tabbed(ConsoleScreen):
    """Answers the scope "tabs". Fill `tabs` in `body`, call `flush_tabs` in `flush`."""

    OPEN: ClassVar[str] = ""
    """The action that opens a row of a part."""
    tabs: list[Tab]
    shown_tab = 0

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._filled: dict[str, tuple[int, str]] = {}

    def make_bar(self) -> TabBar:
        """The bar, to be put above the parts."""
        self.bar = TabBar()
        return self.bar

    def panes(self) -> list[Widget]:
        """The panes of all parts; those that are not shown are hidden."""
        for number, tab in enumerate(self.tabs):
            tab.pane.display = number == self.shown_tab
        return [tab.pane for tab in self.tabs]

    def idle_actions(self) -> frozenset[str]:
        idle = super().idle_actions()
        return idle if self.part.opens else idle | {self.OPEN}

    @property
    def part(self) -> Tab:
        """What is shown."""
        return self.tabs[self.shown_tab]

    def show_tab(self, number: int) -> None:
        """Show a part, and give it the keys."""
        if not 0 <= number < len(self.tabs):
            self.console.say(f"this page has {counted(len(self.tabs), 'part')}", severity="warning")
            return
        self.shown_tab = number
        for place, tab in enumerate(self.tabs):
            tab.pane.display = place == number
        focus = self.part.focus
        if focus is not None:
            focus.take_focus()
        else:
            self.set_focus(None)
        self.flush_now()

    def flush_tabs(self) -> None:
        """Read the shown part again if it is time, redraw it, and the bar."""
        tab = self.part
        clock = self.session.clock
        polled = tab.polled
        if polled is not None and polled.due(clock.monotonic()) and self._may_read(polled):
            self.run_worker(
                polled.read(clock.monotonic(), clock.now_ms()),
                name=f"read {tab.name.lower()}", group=f"part {tab.name}", exit_on_error=False,
            )  # fmt: skip
        if isinstance(tab.focus, VirtualTable) and not tab.focus.now_ms:
            tab.focus.now_ms = clock.now_ms()  # no age is drawn before it is known what time it is
        tab.flush()
        self.bar.show_tabs(
            [(f"{tab.name}{' ' + tab.note if tab.note else ''}", tab.tone) for tab in self.tabs], self.shown_tab
        )

    def most_facts(self) -> int:
        """How many lines of facts leave room for the parts."""
        return max(self.size.height - 14, 1)

    def part_detail(self) -> list[Run]:
        """The line about the row under the cursor of the shown part."""
        tab = self.part
        row = tab.focus.row if isinstance(tab.focus, VirtualTable) else None
        return tab.detail(row) if row is not None and tab.detail is not None else []

    def tick_part(self) -> None:
        """A second passed: the ages in the shown table move on."""
        table = self.part.focus
        if isinstance(table, VirtualTable):
            table.tick(self.session.clock.now_ms())

    def fresh(self, what: str, version: int, more: str = "") -> bool:
        """Whether a part is to be filled anew: its version, or what else it is made from, is another one."""
        key = (version, more)
        if self._filled.get(what) == key:
            return False
        self._filled[what] = key
        return True

    def _may_read(self, polled: Polled[Any]) -> bool:
        """While nobody answers, the subscription is what tries; what was never read is tried all the same."""
        return not polled.loaded or self.link.current or bool(polled.fault)

    def reload_tabs(self) -> None:
        """Read the parts again as soon as each is shown."""
        for tab in self.tabs:
            if tab.polled is not None:
                tab.polled.want()

    def on_tab_bar_chosen(self, event: TabBar.Chosen) -> None:
        event.stop()
        self.show_tab(event.number)

    def do_next(self) -> None:
        self.show_tab((self.shown_tab + 1) % len(self.tabs))

    def do_previous(self) -> None:
        self.show_tab((self.shown_tab - 1) % len(self.tabs))

    def _numbered(self, number: int) -> None:
        self.show_tab(number - 1)

    do_tab1 = partialmethod(_numbered, 1)
    do_tab2 = partialmethod(_numbered, 2)
    do_tab3 = partialmethod(_numbered, 3)
    do_tab4 = partialmethod(_numbered, 4)
    do_tab5 = partialmethod(_numbered, 5)
    do_tab6 = partialmethod(_numbered, 6)
    do_tab7 = partialmethod(_numbered, 7)

    def restore_tab(self, state: dict[str, Any]) -> None:
        """Show the part that was shown."""
        name = state.get("part")
        found = next((number for number, tab in enumerate(self.tabs) if tab.name == name), 0)
        if found != self.shown_tab:
            self.show_tab(found)

    def rows_title(self, tab: Tab, pane: RowsPart, noun: str, command: str) -> None:
        """The title of a part with rows: its name, the command line that prints the same, and how many there are."""
        count = len(pane.store.order)
        right = [Run(counted(count, noun), Tone.DIM)] if tab.polled is None or tab.polled.loaded else []
        pane.update_title([Run(tab.name), Run(f"   {one_line(command)}" if command else "", Tone.DIM)], right)
