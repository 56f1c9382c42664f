"""Marks, and the menu of what can be done with a row or with all that are marked.

The menu is made from the action table: what fits the kind of row and belongs to a scope of the screen. It decides nothing: an
action chosen here is performed as if its key had been pressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.model.states import JOB_TERMINAL, TERMINAL
from iris_core.model.text import counted, one_line
from iris_tui.actions import ACTIONS, BY_ID, Action
from iris_tui.screen import ConsoleScreen
from iris_tui.threads import in_thread

if TYPE_CHECKING:
    from iris_core.live.rows import Row, RowStore
    from iris_core.model.filter import Filter
    from iris_tui.widgets.virtual_table import VirtualTable


ALL_KEY: Final = "a"
THREAD_ROWS: Final = 20_000
"""From this many rows on the filter runs in a thread."""


def has_ended(row: Row[Any]) -> bool:
    """Whether it is a job, a task or an attempt of which nothing is alive any more."""
    state = getattr(row.value, "state", None)
    if state is None or row.kind not in ("job", "task", "attempt"):
        # A bucket of the scheduler stands for its job: it is there as long as something of it waits or runs.
        return False
    return int(state) in (JOB_TERMINAL if row.kind == "job" else TERMINAL)


class RowMenu(ConsoleScreen):
    """A screen with one table of rows."""

    MARKABLE: ClassVar[tuple[str, ...]] = ()
    """Kinds of row that can be marked."""

    store: RowStore[Any]
    table: VirtualTable
    filter: Filter | None
    _anchor = ""
    """The row that was marked last."""

    # --- marks -------------------------------------------------------------------------------------------------------

    def do_mark(self) -> None:
        row = self.table.row
        if row is None or row.kind not in self.MARKABLE:
            kinds = " and ".join(f"{kind}s" for kind in self.MARKABLE)
            words = f"only {kinds} can be marked here" if kinds else "nothing can be marked here"
            if row is not None and row.kind == "task":
                words += "; :tasks lists tasks to mark"
            if row is not None and row.kind == "attempt":
                keymap = self.console.keymap
                words += f"; {keymap.first('target.page')} opens its task, where attempts can be marked"
            self.console.say(words, severity="warning")
            return
        self._anchor = row.id if self.store.mark(row.id) else ""
        self.table.do_down()
        self.table.refresh()

    def do_mark_range(self) -> None:
        row = self.table.row
        start, end = self.store.index(self._anchor) if self._anchor else -1, self.store.index(row.id) if row else -1
        if start < 0 or end < 0:
            self.do_mark()
            return
        for name in self.store.order[min(start, end) : max(start, end) + 1]:
            known = self.store.get(name)
            if known is not None and known.kind in self.MARKABLE:
                self.store.mark(name, on=True)
        self.table.refresh()

    async def matching(self) -> list[str]:
        """All rows that can be marked and match the filter, those under closed rows, too. Only from a worker."""
        wanted, now_ms = self.filter, self.session.clock.now_ms()
        rows = [row for row in self.store.rows.values() if row.kind in self.MARKABLE and not row.gone]

        def look() -> list[str]:
            return [row.id for row in rows if wanted is None or self.match_row(row, wanted, now_ms)]

        return look() if len(rows) < THREAD_ROWS else await in_thread(look, name="match")

    def all_here(self) -> bool:
        """Whether the first snapshot of the rows is complete."""
        raise NotImplementedError

    def match_row(self, row: Row[Any], wanted: Filter, now_ms: int) -> bool | None:
        """Whether a filter finds a row."""
        raise NotImplementedError

    def do_mark_all(self) -> None:
        """Marks what matches, and asks what is to be done with it. While rows are still on their way nobody knows what that is."""
        if not self.all_here():
            self.console.say("not all rows are here yet, so not all that match can be marked", severity="warning")
            return

        async def work() -> None:
            names = await self.matching()
            if not names:
                self.console.say("nothing matches that could be marked", severity="warning")
                return
            for name in names:
                self.store.mark(name, on=True)
            self.table.refresh()
            if self.is_current:
                self.do_menu()

        self.run_worker(work(), name="mark all that match", group="mark", exit_on_error=False)

    def do_unmark(self) -> None:
        self.store.clear_marks()
        self._anchor = ""
        self.table.refresh()

    # --- the menu of a row -------------------------------------------------------------------------------------------

    def menu_entries(self, kind: str, *, marked: bool) -> list[Action]:
        """The actions that fit a kind of row, in the order of the table: those of this screen's scopes."""
        return [
            action
            for action in ACTIONS
            if action.menu
            and action.scope in self.SCOPES
            and kind in action.kinds
            and not (action.mutates and self.session.read_only)
            and (not marked or action.mutates or action.many)
        ]

    def menu_note(self, kind: str) -> str:
        """A line below the menu's entries."""
        return ""

    def do_menu(self) -> None:
        self.table.touch()
        row = self.table.row
        marked = sorted(self.store.marks)
        if not marked and row is None:
            return
        first = self.store.get(marked[0]) if marked else row
        if first is None:
            return
        title = counted(len(marked), f"marked {first.kind}") if marked else one_line(first.id)
        chosen = [row for name in marked if (row := self.store.get(name)) is not None] or [first]
        self.show_menu(title, first.kind, marked=bool(marked), ended=all(map(has_ended, chosen)))

    def show_menu(self, title: str, kind: str, *, marked: bool = False, ended: bool = False) -> None:
        """What can be done with a thing of this kind, to choose from. `ended`: nothing of it is alive any more."""
        from iris_tui.gate import MenuScreen

        offered = self.menu_entries(kind, marked=marked)
        entries = [action for action in offered if not (ended and action.alive)]
        if not entries:
            self.console.say(f"nothing can be done with a {kind} here", severity="warning")
            return
        note = "read-only: nothing can be changed from here" if self.session.read_only else self.menu_note(kind)
        if len(entries) < len(offered):
            left = " and ".join(action.title.partition(":")[0] for action in offered if action.alive)
            note = "; ".join(filter(None, (note, f"{'they have' if marked else 'it has'} ended: no {left}")))
        shown = [(action.menu, action.id, action.title) for action in entries]
        if kind in self.MARKABLE and not marked:
            number = self.store.counts().matched
            if number > 1:
                known = f": {counted(number, kind)}" if self.store.answered and self.all_here() else ""
                shown.append((ALL_KEY, "list.mark_all", f"Mark all that match{known}"))
        self.app.push_screen(MenuScreen(title, shown, note), self._chosen)

    def _chosen(self, action_id: str | None) -> None:
        if action_id:
            self.perform_or_say(BY_ID[action_id])

    def chosen_ids(self, kinds: Sequence[str]) -> list[str]:
        """What an action is about that works on many: the marked rows, else the one under the cursor, of these kinds only."""
        names = sorted(self.store.marks) or [self.table.cursor_id]
        return [name for name in names if (row := self.store.get(name)) is not None and row.kind in kinds]
