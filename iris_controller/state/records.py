"""The rows the controller thinks in: jobs, tasks, attempts, workers.

A record that is in the model is never changed in place: a change is a copy in the overlay that replaces it when its batch has
been committed. Readers on any thread may therefore keep a reference and see one consistent row. Must never import SQLite, the
wire or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from iris_core.model.bands import PriorityBand
from iris_core.model.resources import Resources
from iris_core.model.states import JOB_TERMINAL, NON_TERMINAL, JobState, TaskState, WorkerHealth

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.model.constraints import Constraint

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """A dataclass that the type checker keeps frozen and the interpreter does not.

    A frozen one takes seven times as long to make, and one submission may bring 100,000 tasks.
    """
    return dataclass(slots=True)(cls)


def changed(row: T, values: dict[str, Any]) -> T:
    """A copy of a `record` with other values; three times as quick as `dataclasses.replace`."""
    cls = type(row)
    reader = _READERS.get(cls)
    if reader is None:
        reader = _READERS[cls] = attrgetter(*(f.name for f in fields(cls)))  # type: ignore[arg-type]
    copy: T = cls(*reader(row))
    for name, value in values.items():
        setattr(copy, name, value)
    return copy


_READERS: dict[type[Any], Callable[[Any], tuple[Any, ...]]] = {}


class Charge(IntEnum):
    """What the end of an attempt costs; written by the kernel with the end, never inferred later."""

    NONE = 0
    FAILURE = 1
    PREEMPTION = 2


class ChildrenPolicy(IntEnum):
    """`JobPreemptionPolicy` on the wire. UNSPECIFIED: single-task jobs terminate, others preserve (DESIGN §5.3)."""

    UNSPECIFIED = 0
    TERMINATE_CHILDREN = 1
    PRESERVE_CHILDREN = 2


@record
class JobSpec:
    """What was asked for, shared by all tasks of a job. `request` is the sealed LaunchJobRequest as bytes.

    Times in ms, 0 = none. `has_setup` says that a task passes through BUILDING.
    """

    resources: Resources
    constraints: tuple[Constraint, ...]
    band: PriorityBand
    max_retries_failure: int
    max_retries_preemption: int
    max_task_failures: int
    timeout_ms: int
    scheduling_timeout_ms: int
    children_policy: ChildrenPolicy
    has_setup: bool
    bundle_id: str
    request: bytes
    """Names of work directory files are in it, their contents only in the database."""
    has_files: bool = False
    group_by: str = ""
    """Of a gang: the worker attribute whose value all its workers share; "" = the tasks are placed one by one."""

    def charged(self, failures: int, preemptions: int) -> str:
        """What a task was charged, beside what is allowed: the end that is not retried any more is counted, too."""
        return (
            f"failures {failures}, {self.max_retries_failure} may be retried;"
            f" preemptions {preemptions}, {self.max_retries_preemption} may be"
        )


@record
class Job:
    """One job incarnation; `submitted_at_ms` is unique per controller and names the incarnation."""

    job_id: str
    user_id: str
    submitting_user: str
    parent_job_id: str | None
    root_job_id: str
    depth: int
    name: str
    num_tasks: int
    submitted_at_ms: int
    root_submitted_ms: int
    priority_insertion: int
    spec: JobSpec
    state: JobState = JobState.PENDING
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    scheduling_deadline_ms: int | None = None
    scheduling_expired: bool = False
    """The deadline has passed: a task that waits, or that comes back to the queue, is UNSCHEDULABLE."""
    error: str | None = None
    exit_code: int | None = None
    counts: tuple[int, ...] = (0,) * 13
    """Tasks by TaskState number."""
    failure_count: int = 0
    preemption_count: int = 0

    @property
    def unfinished(self) -> int:
        """Tasks that have not ended."""
        return 0 if self.state in JOB_TERMINAL else sum(self.counts[state] for state in NON_TERMINAL)


@record
class Task:
    """One task. `attempt_number` -1 = never assigned; `attempt_uid` and `worker_id` are those of the current attempt."""

    job_id: str
    index: int
    submitted_at_ms: int
    state: TaskState = TaskState.PENDING
    attempt_number: int = -1
    attempt_uid: str = ""
    worker_id: str = ""
    band: PriorityBand = PriorityBand.INTERACTIVE
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    error: str | None = None
    exit_code: int | None = None
    failure_count: int = 0
    preemption_count: int = 0

    @property
    def task_id(self) -> str:
        return f"{self.job_id}/{self.index}"


@record
class Attempt:
    """One try of a task on a worker. Unfinished (`finished_at_ms` None) means its capacity is held (two-phase finish)."""

    uid: str
    job_id: str
    task_index: int
    number: int
    worker_id: str
    created_at_ms: int
    resources: Resources
    state: TaskState = TaskState.ASSIGNED
    executed: bool = False
    """BUILDING began; an end before that is free of charge."""
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    exit_code: int | None = None
    error: str | None = None
    terminal_reason: str = ""
    charge: Charge = Charge.NONE
    memory_peak_bytes: int = 0
    log_lines: int | None = None
    stop_reason: int = 0
    """`StopReason` on the wire, once the controller wants it stopped."""
    displaces: tuple[str, ...] = ()
    """Attempts on the same worker that were preempted for this one: until the last of them is gone it is not dispatched."""
    outputs: str = ""
    """What became of what it left in its output folder: a `TaskOutputs` as JSON, "" = not said."""

    @property
    def task_id(self) -> str:
        return f"{self.job_id}/{self.task_index}"


@dataclass(frozen=True, slots=True)
class Worker:
    """A registered worker. Health is in memory only: a controller that starts gives every worker the full `dead-after`."""

    worker_id: str
    address: str = ""
    hostname: str = ""
    total: Resources = field(default_factory=lambda: Resources(0, 0, 0, None))
    cpu_count: int = 0
    attributes: dict[str, str | int | float] = field(default_factory=dict)
    slice_id: str = ""
    scale_group: str = ""
    boot_id: str = ""
    pid: int = 0
    version: str = ""
    release: str = ""
    attached: bool = False
    health: WorkerHealth = WorkerHealth.DEGRADED
    health_reason: str = "not attached yet"
    stopping: bool = False
    """It was told to end and starts nothing new; DEGRADED therefore."""
    placeable: bool = False
    """HEALTHY, the first desired set of this stream has been confirmed, and its slice is not being torn down."""
    build_failures: int = 0
    """Failures to stage since the worker process started."""
    staging_streak: int = 0
    """Failures to stage since an attempt last ran here."""
    excluded: bool = False
    """Too many staging failures: no placements until a restart or a success (control-plane §4.2, `state.staging`)."""
    excluded_reason: str = ""
