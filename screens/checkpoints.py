"""Checkpoints: what was saved of the cluster's state and where, what of it can be used, and the way into any of them.

The store is read directly, in a thread, every so often; no controller is asked but for where its state lies. Opening one shows it
beside this cluster as a cluster of its own that never changes. Must never write into a store.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.cli.beside import load as load_beside
from iris_core.cli.tunnels import place_on_host
from iris_core.connect.checkpoints import state_place
from iris_core.contracts import IrisError, UsageFailed
from iris_core.live.checkpoint_columns import (
    CHECKPOINT_FIELDS,
    CHECKPOINT_WORDS,
    CHECKPOINTS,
    CheckpointRow,
    checkpoint_values,
)
from iris_core.live.columns import pick
from iris_core.live.polled import Polled
from iris_core.live.rows import Changes, ChangeSet, Row, RowStore
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_tui import changes
from iris_tui.actions import BY_ID, Action
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import ListScreen, SpecCells
from iris_tui.offline import OfflineSession
from iris_tui.tabbed import polled_status
from iris_tui.threads import in_thread

if TYPE_CHECKING:
    from iris_tui.session import Session
    from iris_tui.widgets.pane import Status
    from iris_tui.widgets.virtual_table import Cells

EVERY_S: Final = 60.0
COLUMNS: Final = (
    *pick(CHECKPOINTS, ("taken", "age", "size_bytes", "database_bytes")),
    replace(CHECKPOINTS["jobs"], min_width=7),
    replace(CHECKPOINTS["tasks"], min_width=9),
    replace(CHECKPOINTS["workers"], min_width=7),
    replace(CHECKPOINTS["schema"], min_width=12),
    CHECKPOINTS["source"],
    replace(CHECKPOINTS["epoch_ms"], hide=8),
    replace(CHECKPOINTS["state"], min_width=22),
)
TAKE: Final = BY_ID["controller.checkpoint"]
_EPOCH: Final = re.compile(r"[0-9]{6,15}")

Read = tuple[str, list[CheckpointRow], str]
"""Where it was read, what is there, and what could not be understood."""


def read(place: str) -> Read:
    """The checkpoints of a place, with the one that a rollback goes back to. Raises IrisError. Takes its time."""
    from iris_core.procedures import record

    listing = load_beside("iris_controller.checkpoint.listing")
    objects = load_beside("providers.objects")
    root: str = listing.root_of(place)
    rows: list[CheckpointRow] = listing.listed(place)
    try:
        standing = record.read(objects.open_store(root)).record
    except record.RecordUnreadable as error:
        return root, rows, error.message
    if standing is None or not standing.previous_image or standing.phase is record.Phase.ROLLED_BACK:
        return root, rows, ""
    named = {int(number) for number in _EPOCH.findall(standing.rollback_checkpoint)}
    return root, [replace(row, rollback=row.epoch_ms in named) for row in rows], ""


class CheckpointSource:
    """The checkpoints of a place as rows: `ListScreen`'s source. `place` "" = where this cluster keeps them."""

    def __init__(self, session: Session) -> None:
        self.store: RowStore[Any] = RowStore(("checkpoint",))
        self.place = ""
        self.polled: Polled[Read] = Polled(self._load, every_s=EVERY_S)
        self._session = session
        self._version = 0
        self._root = ""

    @property
    def loaded(self) -> bool:
        """Whether it was read once."""
        return self.polled.loaded

    async def _load(self) -> Read:
        place = self.place or await self._own_place()
        return await in_thread(lambda: read(place), name="list checkpoints")

    async def _own_place(self) -> str:
        session = self._session
        if isinstance(session, OfflineSession):
            return session.place
        try:
            found = await in_thread(lambda: state_place(session.name, on_host=place_on_host), name="find checkpoints")
        except UsageFailed:
            found = ""
        if found:
            return found
        from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

        status = await session.client.call(
            "ControllerService/GetClusterStatus", pb.GetClusterStatusRequest(), pb.GetClusterStatusResponse
        )
        folder: str = status.state_dir
        here: bool = await in_thread(lambda: bool(folder) and Path(folder).is_dir(), name="look for the state")
        if here:
            return folder
        raise IrisError(
            "where this cluster keeps its checkpoints is not known here",
            hint=":checkpoints gs://bucket/path names the place",
        )

    def take_changes(self) -> ChangeSet:
        """What changed since the last call."""
        found = self.polled.value
        if found is None or self.polled.version == self._version:
            return ChangeSet()
        self._version = self.polled.version
        root, listed, _ = found
        if root != self._root:
            # What is shown, and the row under the cursor, is of another place.
            self._root = root
            self.store.hold("")
            self.store.apply(Changes(removed=list(self.store.rows)))
            self.store.reorder(force=True)
        rows = [
            Row(row.url, "checkpoint", row, natural=-row.epoch_ms)
            for row in listed
            if (known := self.store.get(row.url)) is None or known.value != row
        ]
        present = {row.url for row in listed}
        change = self.store.apply(Changes(rows, [name for name in self.store.rows if name not in present]))
        self.store.dirty = True
        return change


class CheckpointsScreen(ListScreen):
    """See the module."""

    SCOPES: ClassVar[tuple[str, ...]] = ("checkpoints", "list")
    BINDINGS = bindings("checkpoints", "list")
    CSS_PATH = "lists.tcss"
    NOUN = "checkpoint"
    TITLE = "Checkpoints"
    FIELDS = CHECKPOINT_FIELDS
    WORDS = CHECKPOINT_WORDS

    source: CheckpointSource

    def make_source(self) -> CheckpointSource:
        return CheckpointSource(self.session)

    def make_cells(self) -> Cells:
        return SpecCells(COLUMNS)

    def filter_values(self, value: Any, now_ms: int) -> Any:
        return checkpoint_values(value, now_ms)

    def check_argument(self, argument: str) -> None:
        """A place; what is wrong with it is known when it is read."""

    def accept(self, argument: str) -> None:
        if argument and argument != self.source.place:
            self.source.place = argument
            self.source.polled.want()
        self.table.take_focus()

    def empty_words(self) -> tuple[str, ...]:
        where = self.source.polled.value[0] if self.source.polled.value else ""
        how = "" if self.session.offline else f"{self._key('list.menu')} or :checkpoint-now takes one."
        return tuple(filter(None, (f"There is no checkpoint in {one_line(where)}.", how)))

    def partial_words(self) -> str:
        found = self.source.polled.value
        return one_line(found[2]) if found else ""

    def status(self) -> Status:
        polled, empty = self.source.polled, self.nothing_words()
        return polled_status(self, polled, "checkpoints", empty=empty, partial=self.partial_words())

    def title_runs(self) -> tuple[list[Run], list[Run]]:
        left, right = super().title_runs()
        found = self.source.polled.value
        if found:
            left.insert(1, Run(f"  in {one_line(found[0])}", Tone.DIM))
        return left, right

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        if row.value.fault:
            return [Run(f" It is never chosen: {one_line(row.value.fault)}", Tone.WARN)]
        opens, back = self._key("checkpoints.open"), self._key("app.past")
        return [
            Run(f" {opens} shows what it held, beside {one_line(self.session.title)}, read-only;"),
            Run(f" {back} there comes back here, :cluster goes between them", Tone.DIM),
        ]

    # --- live --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        clock, polled = self.session.clock, self.source.polled
        if polled.due(clock.monotonic()):
            work = polled.read(clock.monotonic(), clock.now_ms())
            self.run_worker(work, name="list checkpoints", group="checkpoints", exit_on_error=False)
        super().flush()

    def reload(self) -> None:
        self.source.polled.want()

    # --- doing -------------------------------------------------------------------------------------------------------

    def menu_entries(self, kind: str, *, marked: bool) -> list[Action]:
        taking = [] if self.session.read_only or self.session.offline else [TAKE]
        return [*super().menu_entries(kind, marked=marked), *taking]

    def do_menu(self) -> None:
        if self.table.row is not None:
            super().do_menu()
        else:
            self.show_menu("Checkpoints", "")

    def do_checkpoint(self) -> None:
        work = self._take()
        self.console.run_worker(work, name=TAKE.title, group="change", exit_on_error=False)

    async def _take(self) -> None:
        await changes.change(self.console, self.session, TAKE, ["controller"])
        self.source.polled.want()

    def _row(self) -> CheckpointRow:
        self.table.touch()
        row = self.table.row
        if row is None:
            raise ModelError("there is no checkpoint to choose here")
        found: CheckpointRow = row.value
        return found

    def do_open(self, place: str) -> None:
        if not place:
            row = self._row()
            if row.fault:
                raise ModelError(f"it cannot be opened: {one_line(row.fault)}")
            place = row.url
        self.console.open_checkpoint(place)

    def do_copy(self) -> None:
        url = self._row().url
        self.console.copy_text(url, "the checkpoint's place")
