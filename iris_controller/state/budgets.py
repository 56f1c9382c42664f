"""What a user may spend, what work costs, and what that does to a band (control-plane §2.2–2.4, §5).

A limit never refuses work: it takes INTERACTIVE work of a user who is over it down to BATCH when it is placed. `max_band` never
lowers anything: it refuses at submit. Must never place or refuse by itself, and never know a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from iris_controller.state.records import record
from iris_core.model.bands import PriorityBand
from iris_core.model.states import ACTIVE, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_controller.state.records import Job, Task
    from iris_core.model.resources import Resources

LOCAL_ADMIN: Final = "local_admin"
"""The user id of whoever is trusted for where the call came from, and so has no name."""

UNLIMITED: Final = 0
GB: Final = 1_000_000_000

K = TypeVar("K")


@record
class Budget:
    """What one user may spend at a time, in the unit of `task_value`; a limit of 0 is none. `max_band` is the highest allowed.

    `updated_at_ms` never repeats for a user, so it names the version of the row; 0 = the user has no row, these are the defaults.
    """

    user_id: str
    limit: int = 1_000
    max_band: PriorityBand = PriorityBand.INTERACTIVE
    updated_at_ms: int = 0


DEFAULT_BUDGET: Final = Budget("")
"""Of users without a row, where the configuration says nothing else."""


def task_value(resources: Resources) -> int:
    """What one task costs while it is on a worker: 1000 × accelerators + whole GB of memory + 5 × whole cores (§2.4)."""
    device = resources.device
    accelerators = device.count if device is not None else 0
    return 1_000 * accelerators + resources.memory_bytes // GB + 5 * (resources.cpu_millicores // 1_000)


def effective_band(requested: PriorityBand, limit: int, spent: int) -> PriorityBand:
    """The band that work asked for in `requested` is served in now (§2.3): BATCH for INTERACTIVE work over the limit."""
    band = requested.resolve(None)
    over = limit != UNLIMITED and spent > limit
    return PriorityBand.BATCH if over and band is PriorityBand.INTERACTIVE else band


def budget_user(job: Job) -> str:
    """Whose budget a job spends: who submitted it, or its owner when that is nobody in particular (§2.4)."""
    return job.submitting_user if job.submitting_user not in ("", LOCAL_ADMIN) else job.user_id


class Tally:
    """Sums over the tasks on workers, kept as tasks change so that nobody has to look at all of them. The model's own."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}
        """By budget user: the value of ACTIVE tasks whose stamped band is not BATCH; nobody is kept at 0."""
        self.users: set[str] = set()
        """Whose spend changed since this was last emptied."""
        self.running: dict[str, dict[tuple[PriorityBand, str], int]] = {}
        """RUNNING tasks by job, then by stamped band and worker."""
        self.running_total = 0
        self._charged: dict[str, int] = {}
        """By job, its part of `spent`."""

    def change(self, job: Job, changed: Iterable[tuple[Task | None, Task]]) -> None:
        """Tasks of a live job, each as it was (None = not known) and as it is now."""
        more = 0
        for before, after in changed:
            more += _costs(after)
            if before is not None:
                more -= _costs(before)
                if before.state is TaskState.RUNNING:
                    self._run(job.job_id, before, -1)
            if after.state is TaskState.RUNNING:
                self._run(job.job_id, after, 1)
        if more:
            self._charge(job, more * task_value(job.spec.resources))

    def forget(self, job: Job) -> None:
        """The job has ended or is gone, with all its tasks."""
        self._charge(job, -self._charged.get(job.job_id, 0))
        self.running_total -= sum(self.running.pop(job.job_id, {}).values())

    def _charge(self, job: Job, value: int) -> None:
        if not value:
            return
        user = budget_user(job)
        self.users.add(user)
        _add(self.spent, user, value)
        _add(self._charged, job.job_id, value)

    def _run(self, job_id: str, task: Task, change: int) -> None:
        buckets = self.running.setdefault(job_id, {})
        _add(buckets, (task.band, task.worker_id), change)
        if not buckets:
            del self.running[job_id]
        self.running_total += change


def _costs(task: Task) -> bool:
    return task.state in ACTIVE and task.band is not PriorityBand.BATCH


def _add(sums: dict[K, int], key: K, change: int) -> None:
    total = sums.get(key, 0) + change
    if total:
        sums[key] = total
    else:
        sums.pop(key, None)
