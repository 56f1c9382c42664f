"""Audit: what was changed on the cluster, by whom, by which command line and why, read from the controller's own log.

The lines are found by the log store and followed; the newest are held as rows, and how many older ones there are is said. An entry
says all it says in its line, so it can be read when its targets are gone. Must never ask the controller about them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.live.audit_entries import (
    AUDIT,
    AUDIT_FIELDS,
    AUDIT_WORDS,
    CHANGES,
    PATTERN,
    SOURCE,
    AuditEntry,
    audit_row,
    entry_lines,
    parse,
)
from iris_core.live.log_query import EXACT, LogQuery, LogSource
from iris_core.live.log_view import LogView
from iris_core.live.rows import Changes, ChangeSet, Row, RowStore
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import ListScreen, SpecCells

if TYPE_CHECKING:
    from textual.worker import Worker

    from iris_core.live.watch import LinkState
    from iris_tui.session import Session
    from iris_tui.widgets.virtual_table import Cells

MOST: Final = 5000
"""Entries that are held: the newest."""


class AuditSource:
    """The entries of a log view as rows: `ListScreen`'s source."""

    def __init__(self, session: Session) -> None:
        self.store: RowStore[AuditEntry] = RowStore(("entry",))
        source = LogSource(SOURCE, EXACT, SOURCE)
        self.view = LogView(session.client, source, session.clock, query=LogQuery(regex=PATTERN))
        self.lines: dict[str, int] = {}
        """The number of each entry's line in the view."""
        self._generation = -1
        self._next = 0
        self._seen = -1

    @property
    def loaded(self) -> bool:
        """Whether the lines that there are were read."""
        return self.view.loaded and self._next >= self.view.count

    @property
    def older(self) -> int:
        """Lines before those that are held."""
        return max(self.view.count - MOST, 0)

    def take_changes(self) -> ChangeSet:
        """What changed since the last call."""
        view = self.view
        changes = ChangeSet()
        if view.generation != self._generation:
            # Other lines under the same numbers.
            self._generation, self._next, self.lines = view.generation, self.older, {}
            self.store.hold("")
            changes.merge(self.store.apply(Changes(removed=list(self.store.rows))))
            self.store.dirty = True
        if shift := view.take_shift():
            self._next += shift
            self.lines = {name: number + shift for name, number in self.lines.items()}
        if not view.loaded:
            return changes
        rows = []
        self._next = max(self._next, self.older)
        while self._next < view.count and (line := view.line(self._next)) is not None:
            entry = parse(line.text, line.seq, line.epoch_ms)
            if entry is not None:
                self.lines[str(line.seq)] = self._next
                rows.append(Row(str(line.seq), "entry", entry, natural=-line.seq))
            self._next += 1
        if self._next < view.count:
            view.want(self._next, view.count - 1)
        if rows:
            left_out = [name for name, number in self.lines.items() if number < self.older]
            for name in left_out:
                del self.lines[name]
            changes.merge(self.store.apply(Changes(rows, left_out)))
            self.store.dirty = True
        return changes


class AuditScreen(ListScreen):
    """See the module."""

    SCOPES: ClassVar[tuple[str, ...]] = ("audit", "list")
    BINDINGS = bindings("audit", "list")
    CSS_PATH = "lists.tcss"
    NOUN = "entry"
    TITLE = "Audit"
    FIELDS = AUDIT_FIELDS
    WORDS = AUDIT_WORDS

    source: AuditSource

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._follow: Worker[None] | None = None

    def make_source(self) -> AuditSource:
        return AuditSource(self.session)

    def make_cells(self) -> Cells:
        return SpecCells(list(AUDIT.values()))

    def filter_values(self, value: Any, now_ms: int) -> Any:
        return audit_row(value, now_ms)

    @property
    def link(self) -> LinkState:
        return self.source.view.state

    @property
    def only_operators(self) -> bool:
        """Whether only what operators changed is shown."""
        return self.source.view.query.regex == CHANGES

    def empty_words(self) -> tuple[str, ...]:
        if self.only_operators:
            return ("No operator has changed anything yet.", f"{self._key('audit.operators')} shows all that happened.")
        return ("Nothing was written into the audit log yet.", "Every change of a job, task or worker is.")

    def partial_words(self) -> str:
        older = self.source.older
        return (
            f"the newest {MOST:,}; {older:,} older {'one is' if older == 1 else 'ones are'} in the log" if older else ""
        )

    def count_words(self) -> str:
        counts = self.store.counts()
        some = f"{counts.matched:,} of " if self.filter is not None else ""
        return f"{some}{counts.total:,} {'entry' if counts.total == 1 else 'entries'}"

    def title_runs(self) -> tuple[list[Run], list[Run]]:
        left, right = super().title_runs()
        what = "what operators changed" if self.only_operators else "all that happened"
        left.insert(1, Run(f"  {what}", Tone.DIM))
        return left, right

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        entry: AuditEntry = row.value
        command, reason = entry.get("command"), entry.get("reason")
        runs = [Run(f" {one_line(entry.get('event'))} {one_line(entry.targets)}")]
        if command:
            runs.append(Run(f"  by {one_line(command)}", Tone.DIM))
        if reason:
            runs.append(Run(f"  because: {one_line(reason)}", Tone.DIM))
        return runs

    # --- live --------------------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        self.rest(on=False)

    def rest(self, *, on: bool = True) -> None:
        """While nobody sees it nothing is followed; afterwards it goes on at the same place."""
        if on and self._follow is not None:
            self._follow.cancel()
            self._follow = None
        elif not on and self._follow is None:
            self._follow = self.run_worker(self.source.view.run(), name="audit log", group="audit", exit_on_error=False)

    def on_screen_suspend(self) -> None:
        if self not in self.app.screen_stack:
            self.rest()

    def on_screen_resume(self) -> None:
        if self.is_mounted:
            self.rest(on=False)

    def reload(self) -> None:
        self.source.view.retry_now()

    # --- doing -------------------------------------------------------------------------------------------------------

    def _entry(self) -> AuditEntry:
        self.table.touch()
        row = self.table.row
        if row is None:
            raise ModelError("there is no entry here")
        entry: AuditEntry = row.value
        return entry

    def do_open(self) -> None:
        from iris_tui.pages import Lines, TextPage

        entry, view = self._entry(), self.source.view
        number = self.source.lines.get(str(entry.seq))

        async def load() -> Lines:
            # What the list holds of a very long line is cut.
            parts = await view.entry(number) if number is not None else []
            text = "".join(part.line.data for part in parts)
            whole = parse(text, entry.seq, entry.epoch_ms) or entry
            return [*entry_lines(whole), ("", Tone.PLAIN), (one_line(text), Tone.DIM)]

        command = f"iris-core {self.session.selector} process logs --substring event={entry.get('event')}"
        self.app.push_screen(TextPage(self.session, "Audit entry", load, command=command, dated=False))

    def do_operators(self) -> None:
        wanted = PATTERN if self.only_operators else CHANGES
        self._show(wanted)

    def _show(self, regex: str) -> None:
        view = self.source.view

        async def work() -> None:
            await view.show(LogQuery(regex=regex))
            self.soon()

        self.run_worker(work(), name="audit log", group="audit-query", exclusive=True, exit_on_error=False)

    def do_copy(self) -> None:
        entry = self._entry()
        text = " ".join(f"{name}={value}" for name, value in entry.fields.items())
        self.console.copy_text(text, "the entry")

    # --- how it was left ---------------------------------------------------------------------------------------------

    def view_state(self) -> dict[str, Any]:
        return {**super().view_state(), **({"operators": True} if self.only_operators else {})}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        if bool(state.get("operators")) is not self.only_operators:
            self._show(CHANGES if state.get("operators") else PATTERN)
