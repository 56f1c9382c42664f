"""The Capacity view as data: scale groups, their slices, the machines of each slice with their workers; and what was done to them.

Watch brings each kind by itself; here they find each other. A slice whose group is not (yet) known stands alone. No screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from iris_core.live.feed import Feed
from iris_core.live.rows import Changes, ChangeSet, Row, RowStore
from iris_core.live.watch import Selector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_core.contracts import AsyncClient
    from iris_core.live.backoff import Backoff
    from iris_core.live.clock import Clock
    from iris_core.wire.gen.iris.v1.autoscaler_pb2 import AutoscalerAction, ScaleGroupStatus, SliceStatus, VmStatus
    from iris_core.wire.gen.iris.v1.controller_pb2 import WatchRows, WorkerStatus

KINDS: Final = ("scale group", "slice", "machine")
GROUPS, SLICES, WORKERS, ACTIONS = "group", "slice", "worker", "action"
_SELECTORS: Final = (
    Selector(GROUPS, 7),
    Selector(SLICES, 8),
    Selector(WORKERS, 3),
    Selector(ACTIONS, 9),
)  # numbers of WatchKind


@dataclass(slots=True)
class Group:
    """A scale group, with how many slices and running tasks of it are known."""

    status: ScaleGroupStatus
    slices: int = 0
    running: int = 0


@dataclass(slots=True)
class Slice:
    """A slice; `idle_since_ms` by the clock of whoever looks, 0 = it is busy or not up. `running` are tasks on its workers."""

    status: SliceStatus
    idle_since_ms: int = 0
    running: int = 0

    def worker_ids(self) -> list[str]:
        """Its workers, as far as their names are known."""
        return [vm.worker_id for vm in self.status.vms if vm.worker_id]


@dataclass(slots=True)
class Machine:
    """A machine of a slice; `worker` is None until its worker has registered."""

    status: VmStatus
    slice_id: str
    worker: WorkerStatus | None = None


Value: TypeAlias = "Group | Slice | Machine"


class CapacityTree(Feed[Value]):
    """Row store of the Capacity view, and `actions`, a store of what the autoscaler and operators did, newest first.

    A row's id is its kind's word and the name: "group tpu-v5e-16", "slice …", "worker …".
    """

    def __init__(self, client: AsyncClient, clock: Clock, *, backoff: Backoff | None = None) -> None:
        super().__init__(client, clock, _SELECTORS, self._capacity_rows, kinds=KINDS, backoff=backoff)
        self.actions: RowStore[AutoscalerAction] = RowStore(("action",))
        self.action_changes = ChangeSet()
        self._clock = clock
        self._workers: dict[str, WorkerStatus] = {}
        self._machine_of: dict[str, str] = {}
        """The row of each worker's machine."""
        self._slices_of: dict[str, set[str]] = {}
        self._touched_slices: dict[str, None] = {}
        self._touched_groups: dict[str, None] = {}

    def row_id(self, selector: str, name: str) -> str:
        return f"{selector} {name}"

    # --- what the surface asks ---------------------------------------------------------------------------------------

    def take_action_changes(self) -> ChangeSet:
        """What changed in `actions` since the last call."""
        changes, self.action_changes = self.action_changes, ChangeSet()
        return changes

    def machines(self, slice_row: str) -> list[Machine]:
        """The machines of a slice."""
        found = []
        for name in self.store.children(slice_row):
            row = self.store.get(name)
            if row is not None and isinstance(row.value, Machine) and not row.gone:
                found.append(row.value)
        return found

    def slices(self, group_row: str) -> list[Slice]:
        """The slices of a scale group."""
        rows = [self.store.get(name) for name in self._slices_of.get(group_row, ())]
        return [row.value for row in rows if row is not None and isinstance(row.value, Slice) and not row.gone]

    # --- rows --------------------------------------------------------------------------------------------------------

    def apply(self, selector: str, rows: WatchRows) -> None:
        if selector == ACTIONS:
            upserts = [
                Row(self.row_id(ACTIONS, action.action_id), "action", action, natural=(-action.at_ms, action.action_id))
                for action in rows.actions
            ]
            removed = [self.row_id(ACTIONS, name) for name in rows.removed]
            self.action_changes.merge(self.actions.apply(Changes(upserts, removed)))
            return
        if selector == WORKERS:
            for name in rows.removed:
                self._worker_changed(name, None)
            for worker in rows.workers:
                self._worker_changed(worker.worker_id, worker)
            self._settle()
            return
        super().apply(selector, rows)

    def complete(self, selector: str, present: set[str], total: int) -> None:
        if selector == ACTIONS:
            kept = {self.row_id(ACTIONS, name) for name in present}
            gone = [name for name in self.actions.rows if name not in kept]
            self.action_changes.merge(self.actions.apply(Changes(removed=gone)))
        if selector == WORKERS:
            for name in [name for name in self._workers if name not in present]:
                self._worker_changed(name, None)
            self._settle()
        super().complete(selector, present, total)

    def _capacity_rows(self, selector: str, rows: WatchRows) -> Iterable[Row[Value]]:
        if selector == GROUPS:
            for group in rows.scale_groups:
                name = self.row_id(GROUPS, group.name)
                known = self.store.get(name)
                if known is None:
                    self.store.expand(name)
                self._touched_groups[name] = None
                yield Row(name, "scale group", Group(group), natural=(group.priority, group.name), expandable=True)
        elif selector == SLICES:
            for status in rows.slices:
                yield from self._slice_rows(status)

    def _slice_rows(self, status: SliceStatus) -> Iterable[Row[Value]]:
        name, group = self.row_id(SLICES, status.slice_id), self.row_id(GROUPS, status.scale_group)
        idle = self._clock.now_ms() - status.idle_ms if status.idle_ms and not status.busy else 0
        self._slices_of.setdefault(group, set()).add(name)
        self._touched_slices[name] = None
        yield Row(name, "slice", Slice(status, idle), group, (status.created_at_ms, name), expandable=True)
        present = set()
        for number, vm in enumerate(status.vms):
            machine = self.row_id(WORKERS, vm.worker_id or vm.vm_id or f"{status.slice_id}/{number}")
            present.add(machine)
            if vm.worker_id:
                self._machine_of[vm.worker_id] = machine
            value = Machine(vm, status.slice_id, self._workers.get(vm.worker_id))
            yield Row(machine, "machine", value, name, number)
        left = [child for child in self.store.children(name) if child not in present]
        if left:
            self._changes.merge(self.store.apply(Changes(removed=left)))

    def _worker_changed(self, worker_id: str, worker: WorkerStatus | None) -> None:
        if worker is None:
            self._workers.pop(worker_id, None)
        else:
            self._workers[worker_id] = worker
        row = self.store.get(self._machine_of.get(worker_id, ""))
        if row is None or not isinstance(row.value, Machine):
            return
        self._touched_slices[row.parent] = None
        value = Machine(row.value.status, row.value.slice_id, worker)
        self._changes.merge(self.store.apply(Changes([Row(row.id, row.kind, value, row.parent, row.natural)])))

    def _take(self, changes: Changes[Value]) -> None:
        for name in changes.removed:
            row = self.store.get(name)
            if row is not None and row.kind == "slice":
                self._slices_of.get(row.parent, set()).discard(name)
                self._touched_groups[row.parent] = None
        super()._take(changes)
        self._settle()

    def _settle(self) -> None:
        """Count anew what stands above whatever changed."""
        made: list[Row[Value]] = []
        for name in self._touched_slices:
            row = self.store.get(name)
            if row is None or not isinstance(row.value, Slice):
                continue
            running = sum(machine.worker.running_tasks for machine in self.machines(name) if machine.worker is not None)
            value = Slice(row.value.status, row.value.idle_since_ms, running)
            self._touched_groups[row.parent] = None
            made.append(Row(name, "slice", value, row.parent, row.natural, expandable=True))
        self._touched_slices.clear()
        if made:
            super()._take(Changes(made))
        groups: list[Row[Value]] = []
        for name in self._touched_groups:
            row = self.store.get(name)
            if row is None or not isinstance(row.value, Group):
                continue
            slices = self.slices(name)
            counted = Group(row.value.status, len(slices), sum(item.running for item in slices))
            groups.append(Row(name, "scale group", counted, "", row.natural, expandable=True))
        self._touched_groups.clear()
        if groups:
            super()._take(Changes(groups))
