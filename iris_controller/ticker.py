"""The scheduler's place in the loop: a slice at the start of a batch, planned from the committed model.

At most about 20 ms and 1,000 assignments a slice, so RPCs interleave with a tick of any size; an unfinished plan goes on in the
next batch (DESIGN §4). Most of that time is for planning and assigning: others run before what was planned is written down,
and again once it has been applied. A quiet cluster costs nothing: only a committed change asks for a plan.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from iris_controller.scheduling.cycle import UNCAPPED, Caps
from iris_controller.scheduling.plan import Planner
from iris_controller.scheduling.plans import Plan
from iris_controller.state import kernel
from iris_controller.state.changes import Changes
from iris_controller.state.model import Model
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import Attempt
from iris_controller.uids import AttemptUids

SLICE_ASSIGNMENTS = 1_000
PLANNING_SECONDS = 0.012
REASON_SECONDS = 1.0
"""A job's reason changes at most so often (DESIGN §5.7): each change goes to every watcher of every job that waits for it."""

CYCLE_SECONDS = 1.0
"""How long a cap of one cycle holds (control-plane §2.1)."""
PLACES_SAID = 8
"""Of one job in one audit line; the rest is counted."""


class SchedulerTicker:
    """Implements `loop.Ticker` over a `Planner`."""

    def __init__(self, model: Model, caps: Caps = UNCAPPED) -> None:
        self.wake: Callable[[], None] | None = None
        """Makes the loop ask again, where a cap lets work rest until the next cycle or a reason was kept back. None = reasons are
        not kept back: whoever plans a single slice gets all of them."""
        self._model = model
        self._planner = Planner(caps)
        self._capped = caps != UNCAPPED
        self._timer: asyncio.TimerHandle | None = None
        self._uid = AttemptUids(time.time_ns() // 1_000_000)
        self._wanted = bool(model.pending)
        self._paused = False
        self._told: dict[str, float] = {}
        """When each job was last told why it waits, monotonic, of the last second."""
        self._sweep_at = 0.0
        self._said: dict[str, str] = {}
        self._unsaid: dict[str, str] = {}

    def pause(self) -> None:
        """Places nothing more: what ends during a shutdown waits for the next controller."""
        self._paused = True

    def wanted(self) -> bool:
        return self._wanted and not self._paused

    def unplaced(self) -> Iterable[tuple[str, bool]]:
        """See `Planner.unplaced`."""
        return self._planner.unplaced()

    def slice(self, overlay: Overlay, now_ms: int) -> dict[str, str]:
        deadline = time.perf_counter() + PLANNING_SECONDS
        plan = self._planner.plan(
            self._model,
            max_assignments=SLICE_ASSIGNMENTS,
            budget=lambda: time.perf_counter() < deadline,
            cycle=self._cycle() if self._capped else 0,
        )
        self._wanted = not plan.done
        if plan.resting:
            self._ask_again(CYCLE_SECONDS)
        self._said = self._paced(self._unsaid | plan.reasons)
        self._unsaid = {}
        apply_plan(overlay, plan, self._uid, now_ms)
        return self._said

    def _cycle(self) -> int:
        return int(time.monotonic() / CYCLE_SECONDS)

    def _paced(self, said: dict[str, str]) -> dict[str, str]:
        """Without those of jobs that were told another reason less than a second ago: the planner will say them again."""
        if self.wake is None:
            return said
        now = time.monotonic()
        if now >= self._sweep_at:
            self._sweep_at = now + REASON_SECONDS
            self._told = {job_id: told for job_id, told in self._told.items() if now < told + REASON_SECONDS}
        due = {job_id: reason for job_id, reason in said.items() if now >= self._told.get(job_id, 0.0) + REASON_SECONDS}
        self._told.update(dict.fromkeys(due, now))
        if len(due) < len(said):
            self._ask_again(REASON_SECONDS)
        return due

    def _ask_again(self, after_s: float) -> None:
        if self.wake is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(after_s, self._asked_again)

    def _asked_again(self) -> None:
        self._timer = None
        self._wanted = bool(self._model.pending)
        if self.wake is not None:
            self.wake()

    def dropped(self) -> None:
        for job_id in self._said:
            self._told.pop(job_id, None)
        # The planner says a reason once; one that was not published is said again with the next slice.
        self._unsaid, self._said = self._said, {}
        self._wanted = bool(self._model.pending)

    def noticed(self, changes: Changes) -> None:
        self._said = {}
        if changes and self._model.pending:
            self._wanted = True


def apply_plan(overlay: Overlay, plan: Plan, uid: Callable[[], str], now_ms: int) -> None:
    """Has the kernel do what a slice says; what does not hold any more is left out. `uid` gives a new attempt's each time."""
    kernel.assign_all(overlay, plan.assignments, uid, now_ms)
    for gang in plan.gangs:
        kernel.assign_gang(overlay, gang.job_id, [(*place, uid()) for place in gang.places], now_ms, gang.band)
    for eviction in plan.evictions:
        places = [(*place, uid()) for place in eviction.places]
        kernel.displace(overlay, eviction.job_id, places, eviction.victims, eviction.band, now_ms)
    _note_assignments(overlay)


def _note_assignments(overlay: Overlay) -> None:
    """One line a job and slice, not one a task: a slice may place a thousand, and its lines are written on the loop."""
    placed: dict[str, list[Attempt]] = {}
    for attempt in overlay.attempts.values():
        if attempt.uid not in overlay.model.attempts:
            placed.setdefault(attempt.job_id, []).append(attempt)
    for job_id, attempts in placed.items():
        places = ",".join(f"{a.task_index}:{a.number}@{a.worker_id}" for a in attempts[:PLACES_SAID])
        more = len(attempts) - PLACES_SAID
        if more > 0:
            places += f",+{more}"
        overlay.note("assignment_queued", job_id, "scheduler", tasks=len(attempts), places=places)
