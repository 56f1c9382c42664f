"""Whether a job may enter, and what of the same name must leave first (control-plane §1.8).

Band rules, identity and the bundle are settled before this is asked; here is only what depends on the state. Must never create a
job that is half there: either the overlay gets the job with all its tasks, or nothing of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from iris_controller.state.kernel import cancel
from iris_controller.state.records import Job, JobSpec, Task, changed
from iris_controller.state.rollup import settle
from iris_core.model.ids import JobId
from iris_core.model.states import JOB_TERMINAL, JobState, TaskState, job_label

if TYPE_CHECKING:
    from iris_controller.state.overlay import Overlay

MAX_REPLICAS: Final = 10_000
"""Most tasks of one job unless the cluster file says otherwise; more is stored as a FAILED job that says so."""

MAX_ACTIVE_TASKS: Final = 16_000
"""Most unfinished tasks of one user unless the cluster file says otherwise."""


class ExistingPolicy(IntEnum):
    """What to do about a job of the same name; the numbers of the wire (control-plane §1.8)."""

    UNSPECIFIED = 0
    """Replace a finished one, refuse while one runs."""
    ERROR = 1
    """Refuse, even a finished one."""
    KEEP = 2
    """Answer with the running one, replace a finished one."""
    RECREATE = 3
    """Cancel a running one, then replace it."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A submission that has passed everything but the state. `job_id` is valid; the band of `spec` may be INHERIT."""

    job_id: str
    submitting_user: str
    num_tasks: int
    spec: JobSpec
    existing_policy: int = ExistingPolicy.UNSPECIFIED


@dataclass(frozen=True, slots=True)
class Admitted:
    """The job is in the overlay. One with an impossible number of tasks is in it as FAILED."""

    job_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class KeptExisting:
    """The running job of that name is the answer."""

    job_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class MustWait:
    """The name is still held by attempts that have not ended on their workers. Ask again; after 120 s with `force`."""

    job_id: str


Admission = Admitted | KeptExisting | MustWait


class Refused(Exception):
    """A submission that the state does not allow. `status_name` is the gRPC code's name."""

    def __init__(self, status_name: str, code: str, message: str, subject: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.status_name = status_name
        self.code = code
        self.message = message
        self.subject = subject
        self.hint = hint


def admit(
    o: Overlay,
    new: NewJob,
    now_ms: int,
    *,
    force: bool = False,
    max_replicas: int = MAX_REPLICAS,
    max_active_tasks: int = MAX_ACTIVE_TASKS,
) -> Admission:
    """Inserts a job and its tasks, or says why not now.

    `force` replaces a finished job although attempts of it may still be on workers; those are then zombies, which their workers
    end. MustWait may have changed the overlay too (RECREATE cancels the running job): commit it before asking again.

    Raises:
        Refused: FAILED_PRECONDITION for a parent that is missing or over, RESOURCE_EXHAUSTED when the user's tasks would be
            more than the limit, ALREADY_EXISTS by the existing-job policy, INVALID_ARGUMENT for replicas out of range where a
            job has the name: without one the job is stored as FAILED.
    """
    settle(o, now_ms)
    job_id = JobId(new.job_id)
    parent = _open_parent(o, job_id)
    existing = o.job(new.job_id)
    possible = 1 <= new.num_tasks <= max_replicas
    impossible = f"replicas {new.num_tasks} is outside 1..{max_replicas}"
    if possible:
        _check_cap(o, job_id, existing, new, max_active_tasks)
    elif existing is not None:
        # What can never run takes nothing away, whatever the policy says.
        raise Refused(
            "INVALID_ARGUMENT", "replicas", impossible, new.job_id, "the job that has this name stays as it is"
        )
    if existing is not None:
        answer = _make_room(o, existing, new, now_ms, force)
        if answer is not None:
            return answer
        o.note(
            "job_removed", existing.job_id, new.submitting_user, incarnation=existing.submitted_at_ms, reason="replaced"
        )
    # Also when no such job is held here: the database may still know one that ended long ago.
    o.delete_job(new.job_id)
    job = _new_job(o, new, job_id, parent, now_ms)
    if not possible:
        job = replace(
            job,
            num_tasks=0,
            counts=(0,) * 13,
            state=JobState.FAILED,
            finished_at_ms=job.submitted_at_ms,
            error=impossible,
        )
        o.add_job(job, [])
        o.note("job_submitted", job.job_id, new.submitting_user, tasks=new.num_tasks)
        o.note("job_terminated", job.job_id, "validation", state="failed", tasks=0, reason=impossible)
        return Admitted(job.job_id, job.submitted_at_ms)
    band, submitted = job.spec.band, job.submitted_at_ms
    o.add_job(job, [Task(new.job_id, index, submitted, band=band) for index in range(new.num_tasks)])
    o.note("job_submitted", job.job_id, new.submitting_user, tasks=new.num_tasks, band=band.label)
    return Admitted(job.job_id, submitted)


def _check_cap(o: Overlay, job_id: JobId, existing: Job | None, new: NewJob, most: int) -> None:
    """Refuses, whole, what takes its user past the limit; what it replaces does not count (control-plane §1.8)."""
    leaving = 0
    if existing is not None and _running(o, existing) is not None:
        if new.existing_policy != ExistingPolicy.RECREATE:
            return
        tree = (o.job(found) for found in o.subtree(existing.job_id))
        leaving = sum(job.unfinished for job in tree if job is not None)
    active = o.active_tasks(job_id.user) - leaving
    if active + new.num_tasks > most:
        raise Refused(
            "RESOURCE_EXHAUSTED",
            "too_many_tasks",
            f"user {job_id.user} has {active} unfinished tasks and may have {most}: {new.num_tasks} more are too many",
            job_id.user,
            "wait until some of them have ended, or submit fewer tasks",
        )


def _open_parent(o: Overlay, job_id: JobId) -> Job | None:
    """The parent, which must be there and not over; None for a root job."""
    if job_id.parent is None:
        return None
    parent = o.job(job_id.parent.text)
    if parent is None:
        raise Refused(
            "FAILED_PRECONDITION",
            "parent_missing",
            f"there is no parent job {job_id.parent}",
            job_id.parent.text,
            "submit the parent first, or use a root name /user/job",
        )
    if parent.state in JOB_TERMINAL:
        raise Refused(
            "FAILED_PRECONDITION",
            "parent_ended",
            f"the parent job {parent.job_id} has ended as {job_label(parent.state)}",
            parent.job_id,
        )
    return parent


def _make_room(o: Overlay, existing: Job, new: NewJob, now_ms: int, force: bool) -> KeptExisting | MustWait | None:
    """Applies the existing-job policy. None when the old job may be deleted now."""
    try:
        policy = ExistingPolicy(new.existing_policy)
    except ValueError:
        raise Refused(
            "INVALID_ARGUMENT", "bad_policy", f"no existing-job policy has the number {new.existing_policy}", new.job_id
        ) from None
    running = _running(o, existing)
    if running is not None:
        if policy is ExistingPolicy.KEEP and running is existing:
            return KeptExisting(existing.job_id, existing.submitted_at_ms)
        if policy is not ExistingPolicy.RECREATE:
            raise _exists(existing, running)
        cancel(o, existing.job_id, new.submitting_user, "replaced by a new submission", now_ms)
    elif policy is ExistingPolicy.ERROR:
        raise _exists(existing, existing)
    if not force and _holds_attempts(o, existing.job_id):
        return MustWait(existing.job_id)
    return None


def _running(o: Overlay, job: Job) -> Job | None:
    """The first job of the tree that is not over: replacing a job takes its whole tree with it."""
    for job_id in o.subtree(job.job_id):
        found = o.job(job_id)
        if found is not None and found.state not in JOB_TERMINAL:
            return found
    return None


def _exists(job: Job, running: Job) -> Refused:
    if running is job:
        message = f"job {job.job_id} exists and is {job_label(job.state)}"
        if job.state in JOB_TERMINAL:
            hint = "choose another name, or another policy for an existing job: replace or keep takes its place"
            return Refused("ALREADY_EXISTS", "job_exists", message, job.job_id, hint)
    else:
        message = f"job {job.job_id} exists, and its child {running.job_id} is {job_label(running.state)}"
    hint = "cancel it or choose another name"
    return Refused("ALREADY_EXISTS", "job_exists", message, job.job_id, hint)


def _holds_attempts(o: Overlay, job_id: str) -> bool:
    """Whether any attempt of the tree is still on a worker."""
    tree = set(o.subtree(job_id))
    held = sum(o.model.held.get(found, 0) for found in tree)
    for uid, attempt in o.attempts.items():
        if attempt.job_id in tree:
            held += (attempt.finished_at_ms is None) - (uid in o.model.attempts)
    return held > 0


def _new_job(o: Overlay, new: NewJob, job_id: JobId, parent: Job | None, now_ms: int) -> Job:
    """The job row: what is inherited, and the submit time that names this incarnation."""
    submitted = max(now_ms, o.last_submitted_ms + 1)
    spec = new.spec
    band = spec.band.resolve(parent.spec.band if parent is not None else None)
    if band is not spec.band:
        spec = changed(spec, {"band": band})
    counts = [0] * 13
    if new.num_tasks > 0:
        counts[TaskState.PENDING] = new.num_tasks
    return Job(
        job_id=new.job_id,
        user_id=job_id.user,
        submitting_user=parent.submitting_user if parent is not None else new.submitting_user,
        parent_job_id=parent.job_id if parent is not None else None,
        root_job_id=job_id.root.text,
        depth=job_id.depth,
        name=job_id.name.lower(),
        num_tasks=new.num_tasks,
        submitted_at_ms=submitted,
        root_submitted_ms=parent.root_submitted_ms if parent is not None else submitted,
        priority_insertion=o.next_insertion,
        spec=spec,
        scheduling_deadline_ms=submitted + spec.scheduling_timeout_ms if spec.scheduling_timeout_ms > 0 else None,
        counts=tuple(counts),
    )
