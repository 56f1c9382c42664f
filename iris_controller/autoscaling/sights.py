"""What is known of each slice beyond its row: the provider's latest word, and since when something has been so.

Kept in memory alone: a controller that starts gives every slice its full time again, as it does with workers. Times are monotonic
seconds, given by the caller. Must never act on what it knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.autoscaling.lifecycle import Sight, WorkerSight
from iris_controller.autoscaling.memory import is_busy
from iris_controller.state.slices import GOING, Lifecycle
from iris_controller.state.staging import why_excluded
from iris_core.contracts import SliceState
from iris_core.model.states import WorkerHealth

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from iris_controller.state.model import Model
    from iris_controller.state.slices import Slice
    from iris_core.contracts import SliceInfo


class Sights:
    """See the module."""

    def __init__(self) -> None:
        self.listed = False
        """Whether the provider has ever said which slices there are."""
        self.infos: dict[str, SliceInfo] = {}
        """Of the latest listing."""
        self.failed_probes: dict[str, int] = {}
        """Health probes of a worker that failed in a row."""
        self._known: dict[str, float] = {}
        self._misses: dict[str, int] = {}
        self._unknown: dict[str, float] = {}
        self._running: dict[str, float] = {}
        self._going: dict[str, float] = {}
        self._quiet: dict[str, float] = {}

    def take(self, infos: Sequence[SliceInfo], rows: Iterable[str], began: float, now: float) -> None:
        """Takes in a listing that began at `began`: it can know only slices that were known by then."""
        self.listed = True
        self.infos = {info.slice_id: info for info in infos}
        for slice_id in rows:
            if slice_id in self.infos:
                self._misses.pop(slice_id, None)
            elif self._known.get(slice_id, now) < began:
                self._misses[slice_id] = self._misses.get(slice_id, 0) + 1
        for slice_id, info in self.infos.items():
            if info.state is SliceState.UNKNOWN:
                self._unknown.setdefault(slice_id, now)
            else:
                self._unknown.pop(slice_id, None)

    def keep(self, rows: Mapping[str, Slice], now: float) -> None:
        """Begins the clocks of new slices, and forgets those that are gone."""
        for slice_id in rows.keys() - self._known.keys():
            self._known[slice_id] = now
        for row in rows.values():
            if row.lifecycle in GOING:
                self._going.setdefault(row.slice_id, now)
        for kept in (self._known, self._misses, self._unknown, self._running, self._going, self._quiet):
            for slice_id in kept.keys() - rows.keys():
                del kept[slice_id]

    def know(self, slice_id: str, now: float) -> None:
        """Begins the clock of one new slice."""
        self._known.setdefault(slice_id, now)

    def address(self, slice_id: str, worker_id: str) -> str:
        """Where the provider says that a worker's machine is, "" = it does not."""
        info = self.infos.get(slice_id)
        return next((vm.address for vm in info.vms if vm.worker_id == worker_id), "") if info is not None else ""

    def unremarkable(self, row: Slice, model: Model) -> bool:
        """Whether the slice is ready, listed as such and all its workers are healthy: nothing can become of it now."""
        info = self.infos.get(row.slice_id)
        if row.lifecycle is not Lifecycle.READY or info is None or info.state is not SliceState.READY:
            return False
        for worker_id in row.worker_ids:
            worker = model.workers.get(worker_id)
            if worker is None or not worker.attached or worker.health is not WorkerHealth.HEALTHY or worker.excluded:
                return False
        return True

    def sight(self, row: Slice, model: Model, now: float) -> Sight:
        """What is known of one slice."""
        workers = [self._worker(worker_id, model) for worker_id in row.worker_ids]
        info = self.infos.get(row.slice_id)
        runs = any(w.attached for w in workers) or (info is not None and info.state is SliceState.READY)
        if runs and not all(w.placeable for w in workers):
            self._running.setdefault(row.slice_id, now)
        else:
            self._running.pop(row.slice_id, None)
        return Sight(
            workers,
            info,
            self._misses.get(row.slice_id, 0),
            _since(self._unknown, row.slice_id, now),
            _since(self._running, row.slice_id, now),
            is_busy(row, model),
        )

    def _worker(self, worker_id: str, model: Model) -> WorkerSight:
        worker = model.workers.get(worker_id)
        failed = self.failed_probes.get(worker_id, 0)
        if worker is None:
            return WorkerSight(worker_id, failed_probes=failed)
        dead = worker.health_reason or "dead" if worker.health is WorkerHealth.DEAD else ""
        return WorkerSight(worker_id, worker.attached, worker.placeable, dead, failed, why_excluded(worker))

    def going_s(self, slice_id: str, now: float) -> float:
        """Since the slice was given up."""
        return now - self._going.get(slice_id, now)

    # Idleness -----------------------------------------------------------------------------------------------

    def touch(self, slice_id: str) -> None:
        """A task came to the slice or left it: what was quiet begins to be so anew."""
        self._quiet.pop(slice_id, None)

    def quiet_ms(self, slice_id: str, idle: bool, now: float) -> int:
        """How long the slice has been idle, by looks at it: 0 at the first."""
        if not idle:
            self._quiet.pop(slice_id, None)
            return 0
        return int((now - self._quiet.setdefault(slice_id, now)) * 1000)

    def idle_since(self, slice_id: str) -> float | None:
        """When the slice was first seen idle; None = it is not."""
        return self._quiet.get(slice_id)


def _since(kept: dict[str, float], slice_id: str, now: float) -> int:
    return int((now - kept[slice_id]) * 1000) if slice_id in kept else 0
