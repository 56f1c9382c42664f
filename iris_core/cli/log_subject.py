"""Whose log is read: a job with its children, a task over its attempts, or one attempt.

Each knows the store's key, whether it is over, why it has nothing to say yet, and how many lines its attempts wrote
in all, which tells whether everything has been shipped. It is of one submission: the one that had the name when it was
first asked. Must never read the log itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from iris_core.cli import reads
from iris_core.cli.submission import Submission, later_lines
from iris_core.contracts import RpcFailed
from iris_core.model.ids import AttemptId, JobId, TaskId
from iris_core.model.states import job_label, task_label

if TYPE_CHECKING:
    from collections.abc import Collection

    from iris_core.contracts import Client
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest

MAX_PRODUCERS: Final = 2_000
"""Attempts whose shipping is checked; beyond, a job's last lines are given a moment instead."""

FEW_CHILDREN: Final = 20
"""Child jobs that are looked into where a call for each is worth it only for a few; the newest ones."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How the subject stands. `reason` says why it is as it is."""

    ended: bool
    succeeded: bool
    label: str
    reason: str
    started: bool
    """Whether it can have written anything."""
    several: bool
    """Whether more than one task writes."""
    incarnation: int
    ended_at_ms: int = 0


class Subject(Protocol):
    """What `logs` reads."""

    id: str

    def standing(self) -> Standing:
        """Asks the controller. Raises IrisError: Replaced once the name is a later job's."""
        ...

    def request(self, incarnation: int) -> FetchLogsRequest:
        """What to fetch: source, scope and incarnation (0 = every)."""
        ...

    def written(self, *, latest: bool = False) -> dict[str, int]:
        """Per attempt uid, how many lines it wrote in all; attempts that cannot say are left out. With `latest` only what is found in few
        calls: of a job its last attempts, and those of few child jobs. Raises IrisError, as `standing`.
        """
        ...

    def later_lines(self, incarnation: int, seqs: Collection[int]) -> set[int]:
        """Which of these lines were written under the name by a later submission; all when nobody can say."""
        ...


class JobSubject:
    """A job, with its child jobs unless told otherwise; that of `incarnation` where it is known."""

    def __init__(self, client: Client, job: JobId, *, children: bool = True, incarnation: int = 0) -> None:
        self.id = str(job)
        self._client = client
        self._job = job
        self._children = children
        self._submission = Submission(client, self.id, job, incarnation)
        self.status: pb.JobStatus | None = None

    def standing(self) -> Standing:
        job = self._submission.ask(lambda: reads.job_status(self._client, self._job).job, lambda job: job.incarnation)
        self.status = job
        return Standing(
            ended=reads.job_ended(job.state),
            succeeded=job_label(job.state) == "succeeded",
            label=job_label(job.state),
            reason=job.error or job.pending_reason,
            started=bool(job.started_at_ms) or job_label(job.state) != "pending",
            several=job.num_tasks > 1 or (self._children and job.has_children),
            incarnation=job.incarnation,
            ended_at_ms=job.finished_at_ms,
        )

    def request(self, incarnation: int) -> FetchLogsRequest:
        from iris_core.wire.gen.iris.v1.common_pb2 import MATCH_SCOPE_PREFIX
        from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest

        return FetchLogsRequest(
            source=self.id, match_scope=MATCH_SCOPE_PREFIX, min_incarnation=incarnation, no_children=not self._children
        )

    def written(self, *, latest: bool = False) -> dict[str, int]:
        children: list[str] = []
        if self._children and self.status is not None and self.status.has_children:
            below, _ = reads.list_jobs(self._client, prefix=f"{self.id}/", limit=FEW_CHILDREN if latest else 0)
            children = [job.job_id for job in below]
        # After the children: as long as the job itself is the same, they are its own.
        own = self._submission.ask(
            lambda: reads.list_tasks(self._client, self._job),
            lambda tasks: tasks[0].incarnation if tasks else 0,
        )
        counts: dict[str, int] = {}
        for tasks in (own, *(_tasks_of_child(self._client, name) for name in children)):
            for task in tasks:
                if len(counts) >= MAX_PRODUCERS:
                    return counts
                counts.update(_of_task(self._client, task, latest=latest))
        return counts

    def later_lines(self, incarnation: int, seqs: Collection[int]) -> set[int]:
        return later_lines(self._client, self.request(incarnation), seqs)


def _tasks_of_child(client: Client, name: str) -> list[pb.TaskStatus]:
    try:
        return reads.list_tasks(client, name)
    except RpcFailed as error:
        if error.status != "NOT_FOUND":
            raise
        return []


def _of_task(client: Client, task: pb.TaskStatus, *, latest: bool) -> dict[str, int]:
    if task.current_attempt_id <= 0 or latest:
        return {task.attempt_uid: task.log_lines} if task.attempt_uid and task.HasField("log_lines") else {}
    return _of_attempts(reads.task_status(client, TaskId(task.task_id)))


def _of_attempts(found: pb.GetTaskStatusResponse) -> dict[str, int]:
    return {attempt.attempt_uid: attempt.log_lines for attempt in found.attempts if attempt.HasField("log_lines")}


class TaskSubject:
    """A task over all its attempts."""

    def __init__(self, client: Client, task: TaskId) -> None:
        self.id = str(task)
        self._client = client
        self._task = task
        self._submission = Submission(client, self.id, task.job)

    def _find(self) -> pb.GetTaskStatusResponse:
        return self._submission.ask(
            lambda: reads.task_status(self._client, self._task), lambda found: found.task.incarnation
        )

    def standing(self) -> Standing:
        task = self._find().task
        return Standing(
            ended=reads.task_ended(task.state),
            succeeded=task_label(task.state) == "succeeded",
            label=task_label(task.state),
            reason=task.error or task.pending_reason,
            started=task.current_attempt_id >= 0,
            several=False,
            incarnation=task.incarnation,
            ended_at_ms=task.finished_at_ms,
        )

    def request(self, incarnation: int) -> FetchLogsRequest:
        from iris_core.wire.gen.iris.v1.common_pb2 import MATCH_SCOPE_PREFIX
        from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest

        return FetchLogsRequest(source=self.id, match_scope=MATCH_SCOPE_PREFIX, min_incarnation=incarnation)

    def written(self, *, latest: bool = False) -> dict[str, int]:
        return _of_attempts(self._find())

    def later_lines(self, incarnation: int, seqs: Collection[int]) -> set[int]:
        return later_lines(self._client, self.request(incarnation), seqs)


class AttemptSubject:
    """One attempt of a task."""

    def __init__(self, client: Client, attempt: AttemptId) -> None:
        self.id = str(attempt)
        self._client = client
        self._attempt = attempt
        self._submission = Submission(client, self.id, attempt.task.job)

    def find(self) -> tuple[pb.TaskStatus, pb.AttemptStatus]:
        """The attempt and its task. Raises IrisError: the task or the attempt does not exist; the task's state is said."""
        found = self._submission.ask(
            lambda: reads.task_status(self._client, self._attempt.task), lambda found: found.task.incarnation
        )
        for attempt in found.attempts:
            if attempt.attempt_id == self._attempt.number:
                return found.task, attempt
        task = found.task
        why = task.pending_reason or task.error
        raise RpcFailed(
            "NOT_FOUND",
            f"there is no attempt {self._attempt.number} of {task.task_id}, which is {task_label(task.state)}{': ' + why if why else ''}",
            code="not_found",
            subject=self.id,
        )

    def standing(self) -> Standing:
        task, attempt = self.find()
        return Standing(
            ended=reads.task_ended(attempt.state),
            succeeded=task_label(attempt.state) == "succeeded",
            label=task_label(attempt.state),
            reason=attempt.error or attempt.terminal_reason,
            started=True,
            several=False,
            incarnation=task.incarnation,
            ended_at_ms=attempt.finished_at_ms,
        )

    def request(self, incarnation: int) -> FetchLogsRequest:
        from iris_core.wire.gen.iris.v1.common_pb2 import MATCH_SCOPE_EXACT
        from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest

        return FetchLogsRequest(source=self.id, match_scope=MATCH_SCOPE_EXACT, min_incarnation=incarnation)

    def written(self, *, latest: bool = False) -> dict[str, int]:
        _, attempt = self.find()
        return {attempt.attempt_uid: attempt.log_lines} if attempt.HasField("log_lines") else {}

    def later_lines(self, incarnation: int, seqs: Collection[int]) -> set[int]:
        return later_lines(self._client, self.request(incarnation), seqs)


def subject_of(client: Client, target: JobId | TaskId | AttemptId, *, children: bool = True) -> Subject:
    """The subject for an id."""
    if isinstance(target, JobId):
        return JobSubject(client, target, children=children)
    return TaskSubject(client, target) if isinstance(target, TaskId) else AttemptSubject(client, target)
