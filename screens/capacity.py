"""Capacity: scale groups, their slices, the machines of each; what holds them back; below, what was done to them.

The rows are made in `iris_core.live.capacity_tree`; this file says how they look and what can be done with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.live.capacity_columns import ACTIONS, COLUMNS, SPECS
from iris_core.live.capacity_tree import CapacityTree, Group, Machine, Slice
from iris_core.live.tree_filters import CAPACITY_FIELDS, CAPACITY_WORDS, capacity_row
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_core.model.text import counted, one_line
from iris_tui.actions import BY_ID
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import Source, SpecCells
from iris_tui.states import live_status
from iris_tui.tree_rows import TreeCells, TreeRows
from iris_tui.widgets.pane import Pane
from iris_tui.widgets.virtual_table import VirtualTable
from screens import there

if TYPE_CHECKING:
    from textual import events
    from textual.widget import Widget

    from iris_core.live.rows import Row
    from iris_core.model.filter import Filter
    from iris_tui.actions import Action
    from iris_tui.session import Session
    from iris_tui.widgets.virtual_table import Cells

_LOW: Final = 20
"""Below this height there is no room for the actions."""
NOT_KEPT: Final = "What was done to the machines is not in a checkpoint."
_OF_A_ROW: Final = frozenset(
    name
    for name in BY_ID
    if name.startswith(("capacity.", "tree.")) or name in ("list.menu", "list.mark", "list.mark_range")
)
"""What keys do with the row under the cursor; nothing of it can be done with what was done to machines."""


class CapacityScreen(TreeRows):
    """The machines of one cluster."""

    SCOPES: ClassVar[tuple[str, ...]] = ("capacity", "tree", "list")
    BINDINGS = bindings("capacity", "tree", "list")
    CSS_PATH = "capacity.tcss"
    NOUN = "scale group"
    TITLE = "Capacity"
    FIELDS = CAPACITY_FIELDS
    WORDS = CAPACITY_WORDS

    def __init__(self, session: Session) -> None:
        self.capacity = CapacityTree(session.client, session.clock)
        super().__init__(session)
        self.actions: VirtualTable = None  # type: ignore[assignment]
        self.actions_pane: Pane = None  # type: ignore[assignment]

    def make_source(self) -> Source:
        return self.capacity

    def make_cells(self) -> Cells:
        return TreeCells(COLUMNS, SPECS, self.console.glyphs, self.store)

    def body(self) -> Iterable[Widget]:
        parts = list(super().body())
        self.actions = VirtualTable(
            self.capacity.actions, SpecCells(list(ACTIONS.values())), self.console.glyphs, id="actions"
        )
        self.actions.now_ms = self.session.clock.now_ms()
        self.actions.leads = False
        self.actions_pane = Pane(self.actions.header, self.actions, id="actions-pane")
        yield parts[0]
        yield self.actions_pane
        yield from parts[1:]

    def filter_values(self, value: Any, now_ms: int) -> Any:
        return capacity_row(value, now_ms)

    def match_row(self, row: Row[Any], wanted: Filter, now_ms: int) -> bool | None:
        # What is below a row that matches is shown with it.
        above: Row[Any] | None = row
        while above is not None:
            if wanted.matches(capacity_row(above.value, now_ms)):
                return True
            above = self.store.get(above.parent)
        return False

    def empty_words(self) -> tuple[str, ...]:
        if self.session.offline:
            return (
                "This checkpoint has no slices, and no scale group that ever grew or failed.",
                "Which others the cluster has is in its file. Workers are in Workers (v w).",
            )
        return (
            "This cluster has no scale groups: nothing makes machines for it.",
            "Its workers are in Workers (v w). Scale groups are written in the cluster's file.",
        )

    def partial_words(self) -> str:
        return "only groups that grew or failed" if self.session.offline else ""

    def count_words(self) -> str:
        kinds = {"slice": 0, "machine": 0}
        for row in self.store.rows.values():
            if row.kind in kinds and not row.gone:
                kinds[row.kind] += 1
        return f"{super().count_words()}, {counted(kinds['slice'], 'slice')}, {counted(kinds['machine'], 'machine')}"

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        specs, now = SPECS[row.kind], self.session.clock.now_ms()
        gone = " (gone)" if row.gone else ""
        tone = specs["state"].tone
        runs = [
            Run(f" {one_line(row.id)}{gone}"),
            Run(
                f"  {one_line(specs['state'].text(row.value, now))}",
                tone(row.value) if tone is not None else Tone.PLAIN,
            ),
        ]
        reason = specs["reason"].text(row.value, now)
        return [*runs, Run(f"  {one_line(reason)}")] if reason != "-" else runs

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """One cursor says where the keys go; a prompt above takes it from neither."""
        if event.widget in (self.table, self.actions):
            for table in (self.table, self.actions):
                table.lead(on=table is event.widget)

    def idle_actions(self) -> frozenset[str]:
        return super().idle_actions() | (_OF_A_ROW if self.actions.leads else frozenset())

    def perform(self, action: Action, argument: str) -> None:
        """As everywhere; but while the cursor is below, no key acts on a row above, where it is not."""
        if self.actions.leads and not argument and action.id in _OF_A_ROW:
            raise ModelError("the cursor is in the list of actions", hint="Tab goes back to what can be acted on")
        super().perform(action, argument)

    # --- live --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        super().flush()
        changes = self.capacity.take_action_changes()
        if self.capacity.actions.dirty:
            self.capacity.actions.reorder()
            self.actions.reordered()
        self.actions.flush(changes)
        self.set_class(self.size.height < _LOW, "-low")
        loaded = self.source.loaded
        count = len(self.capacity.actions.order)
        if self.actions.has_focus and (self.has_class("-low") or not count):
            # It is not to be seen (any more): no key may go there.
            self.table.take_focus()
        offline = self.session.offline
        nothing = NOT_KEPT if offline else "Nothing was done to the machines since the controller started."
        empty = (nothing,) if not count else ()
        self.actions_pane.set_status(
            live_status(self.session, self.link, what="actions", loaded=loaded, some=count, empty=empty)
        )
        self.actions_pane.update_title(
            [Run("Actions, newest first")], [Run(counted(count, "action"), Tone.DIM)] if loaded and not offline else []
        )

    def tick(self) -> None:
        super().tick()
        self.actions.tick(self.session.clock.now_ms())

    # --- what the keys do --------------------------------------------------------------------------------------------

    def _under_cursor(self, kind: type[Any], what: str) -> Any:
        self.table.touch()
        row = self.table.row
        if row is None or not isinstance(row.value, kind):
            raise ModelError(f"the cursor is on no {what}", hint="choose one, or name it")
        return row.value

    def enter_row(self, row: Row[Any]) -> None:
        worker_id = row.value.status.worker_id
        if worker_id:
            self.console.go("worker", worker_id)
        else:
            self.console.say("no worker has registered from this machine yet", severity="warning")

    def do_machine_log(self) -> None:
        machine = self._under_cursor(Machine, "machine").status
        there.machine_log(self, machine.vm_id or machine.worker_id)

    def do_describe(self) -> None:
        from iris_tui.pages import Lines, TextPage
        from screens.capacity_words import describe

        row = self.table.row
        if row is None:
            raise ModelError("there is nothing to describe here")
        name, session, value = row.id, self.session, row.value
        group = value.status.name if isinstance(value, Group) else ""

        async def load() -> Lines:
            known = self.store.get(name)
            shown = known.value if known is not None else value
            return describe(shown, session.clock.now_ms(), offline=session.offline)

        command = f"iris-core {session.selector} cluster vm status" + (f" --scale-group {group}" if group else "")
        self.app.push_screen(TextPage(session, f"Describe {one_line(name)}", load, command=command))

    def _workers_there(self) -> tuple[str, list[str]]:
        """The chosen slice or machine by name, and its workers. Raises ModelError if there are none."""
        row = self.table.row
        value = row.value if row is not None else None
        if isinstance(value, Slice):
            name, workers = value.status.slice_id, value.worker_ids()
        elif isinstance(value, Machine):
            name, workers = value.status.worker_id or value.status.vm_id, [value.status.worker_id]
        else:
            raise ModelError("the cursor is on no slice and no machine", hint="choose one, or name the slice")
        workers = [worker for worker in workers if worker]
        if not workers:
            raise ModelError(f"no worker of {name} is known yet")
        return name, workers

    def do_tasks(self) -> None:
        there.show_there(self, self._workers_there()[1])

    def do_preempt(self, text: str) -> None:
        if text:
            row = self.store.get(f"slice {text}")
            if row is None or not isinstance(row.value, Slice):
                raise ModelError(f"there is no slice {one_line(text)}")
            name, workers = text, row.value.worker_ids()
        else:
            name, workers = self._workers_there()
        there.preempt_there(self, BY_ID["capacity.preempt"], name, workers)

    def do_create_slice(self, text: str) -> None:
        from iris_tui import changes

        group = text or self._under_cursor(Group, "scale group").status.name
        changes.start(self.console, self.session, BY_ID["capacity.create_slice"], [group])

    def do_delete_slice(self, text: str) -> None:
        from iris_tui import changes

        name = text or self._under_cursor(Slice, "slice").status.slice_id
        changes.start(self.console, self.session, BY_ID["capacity.delete_slice"], [name])
