"""The Jobs view as data: live jobs, the tasks and attempts below opened ones, and older jobs as pages of history.

One Watch subscription feeds it: all jobs of the controller's model, and the tasks of opened jobs that are not finished.
What the model no longer holds (tasks of finished jobs, finished jobs beyond its limit) is fetched when it is asked for.
A finished job's tasks are final, so a Watch that stops naming them removes nothing. What could not be had is a row that
says so. No screen, no clock of its own; every fetch is a coroutine that the surface runs where it may fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from iris_core.contracts import IrisError
from iris_core.live.rows import Changes, ChangeSet, Row, RowStore
from iris_core.live.watch import Selector
from iris_core.live.wording import Tone
from iris_core.model.states import JOB_TERMINAL, TERMINAL
from iris_core.model.text import counted_are, one_line

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from iris_core.model.filter import Filter
    from iris_core.wire.gen.iris.v1.controller_pb2 import (
        AttemptStatus,
        GetTaskStatusResponse,
        JobStatus,
        TaskStatus,
        WatchRows,
    )

KINDS: Final = ("job", "task", "attempt", "note")
JOBS_SELECTOR: Final = "jobs"
_WATCH_JOBS: Final = 1  # WatchKind.WATCH_KIND_JOBS
_WATCH_TASKS: Final = 2  # WatchKind.WATCH_KIND_TASKS

LIVE, HISTORY = 0, 1
"""Sections of root rows: what Watch brings, then pages of older jobs."""

MAX_FETCHED_TASKS: Final = 10_000
"""Most tasks of a finished job that are listed; the rest is counted in a note."""
TASK_SELECTORS: Final = 12
HISTORY_PAGE: Final = 500
_HISTORY_TRIES: Final = 20


@dataclass(slots=True)
class Note:
    """A line about the rows that are not there."""

    text: str
    tone: Tone = Tone.DIM


Value: TypeAlias = "JobStatus | TaskStatus | AttemptStatus | Note"


@dataclass(slots=True)
class History:
    """How far older jobs have been read."""

    started: bool = False
    exhausted: bool = False
    loading: bool = False
    error: str = ""
    token: str = ""
    filter: str = ""
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Subtree:
    """What ending a job ends, as far as it is known: its jobs that are not finished, and tasks by what they do now."""

    jobs: tuple[str, ...] = ()
    running: int = 0
    waiting: int = 0
    others: dict[str, int] = field(default_factory=dict)


class JobTree:
    """Row store, Watch sink and fetches of the Jobs view."""

    def __init__(self, client: AsyncClient) -> None:
        self.store: RowStore[Value] = RowStore(KINDS)
        self.history = History()
        self.loaded = False
        """Whether the first snapshot of the jobs is complete."""
        self._client = client
        self._changes = ChangeSet()
        self._needs: dict[str, None] = {}
        self._loading: set[str] = set()
        self._buckets: dict[str, str] = {}
        """Which selector watches the tasks of an opened job: a stream takes few selectors, and one that changes starts over."""

    # --- what the surface asks ---------------------------------------------------------------------------------------

    def take_changes(self) -> ChangeSet:
        """What changed since the last call."""
        changes, self._changes = self._changes, ChangeSet()
        return changes

    def take_needs(self) -> list[str]:
        """Rows whose lower rows are to be fetched now: run `load` for each."""
        needs = list(self._needs)
        self._needs.clear()
        return needs

    def selectors(self) -> list[Selector]:
        """What the subscription must watch for what is open now."""
        open_jobs = [
            name
            for name in self.store.expanded
            if (row := self.store.get(name)) is not None
            and row.kind == "job"
            and row.section == LIVE
            and not self._is_final(row)
        ]
        for name in set(self._buckets).difference(open_jobs):
            del self._buckets[name]
        members: dict[str, list[str]] = {f"tasks-{n}": [] for n in range(TASK_SELECTORS)}
        for name, bucket in self._buckets.items():
            members[bucket].append(name)
        for name in sorted(set(open_jobs).difference(self._buckets)):
            bucket = min(members, key=lambda item: len(members[item]))
            self._buckets[name] = bucket
            members[bucket].append(name)
        return [Selector(JOBS_SELECTOR, _WATCH_JOBS)] + [
            Selector(bucket, _WATCH_TASKS, job_ids=tuple(sorted(names))) for bucket, names in members.items() if names
        ]

    def open(self, name: str) -> bool:
        """Open a row; False if nothing can be below it."""
        row = self.store.get(name)
        if row is None or not row.expandable:
            return False
        self.store.expand(name)
        if row.kind == "task" or row.section == HISTORY or self._is_final(row):
            self._needs[name] = None
            if not self.store.children(name):
                self._note(name, "loading…")
        elif not any((child := self.store.get(item)) and child.kind == "task" for item in self.store.children(name)):
            self._note(name, "loading tasks…")
        return True

    def close(self, name: str) -> None:
        """Close a row. What is below stays known."""
        self.store.expand(name, on=False)

    def job_of(self, name: str) -> Row[Value] | None:
        """The job row that a row is, or belongs to."""
        row = self.store.get(name)
        while row is not None and row.kind != "job":
            row = self.store.get(row.parent)
        return row

    def subtree(self, job_id: str) -> Subtree:
        """What is known of the work that ending this job would end."""
        jobs: list[str] = []
        running = waiting = 0
        below = job_id + "/"
        for row in self.store.rows.values():
            if row.kind != "job" or row.gone or not (row.id == job_id or row.id.startswith(below)):
                continue
            if self._is_final(row):
                continue
            jobs.append(row.id)
            for count in row.value.task_counts:  # type: ignore[union-attr]
                if count.state in (2, 3, 9):
                    running += count.count
                elif count.state == 1:
                    waiting += count.count
        return Subtree(tuple(sorted(jobs)), running, waiting)

    @staticmethod
    def _is_final(row: Row[Value]) -> bool:
        state = int(row.value.state)  # type: ignore[union-attr]
        return state in JOB_TERMINAL if row.kind == "job" else state in TERMINAL

    # --- Watch -------------------------------------------------------------------------------------------------------

    def apply(self, selector: str, rows: WatchRows) -> None:
        """Take over what the subscription brought."""
        changes: Changes[Value] = Changes()
        if selector == JOBS_SELECTOR:
            for job in rows.jobs:
                self._job(job, LIVE, changes)
            for name in rows.removed:
                self._job_left(name, changes)
        else:
            for task in rows.tasks:
                self._task(task, changes)
            changes.removed += [note for task in rows.tasks if (note := _note_id(task.job_id)) in self.store.rows]
        self._commit(changes)

    def complete(self, selector: str, present: set[str], total: int) -> None:
        """A snapshot is complete: what it did not name is gone, unless it is final or came from elsewhere."""
        changes: Changes[Value] = Changes()
        if selector == JOBS_SELECTOR:
            self.loaded = True
            for row in list(self.store.rows.values()):
                if row.kind == "job" and row.section == LIVE and not row.gone and row.id not in present:
                    self._job_left(row.id, changes)
            self._changes.dirty = True
        else:
            for job_id in [name for name, bucket in self._buckets.items() if bucket == selector]:
                self._tasks_complete(job_id, present, changes)
        self._commit(changes)

    def _tasks_complete(self, job_id: str, present: set[str], changes: Changes[Value]) -> None:
        job = self.store.get(job_id)
        if job is None or self._is_final(job):
            return
        children = [child for item in self.store.children(job_id) if (child := self.store.get(item)) is not None]
        tasks = [child for child in children if child.kind == "task"]
        changes.removed += [task.id for task in tasks if task.id not in present]
        if any(task.id in present for task in tasks):
            changes.removed.append(_note_id(job_id))
        else:
            self._note(job_id, "no tasks yet")

    def _job(self, job: JobStatus, section: int, changes: Changes[Value]) -> None:
        known = self.store.get(job.job_id)
        if known is not None and not known.gone:
            before: JobStatus = known.value  # type: ignore[assignment]
            if section == HISTORY and known.section == LIVE:
                return
            replaced = job.incarnation != before.incarnation
            if replaced:
                changes.removed += [
                    item
                    for item in self.store.children(job.job_id)
                    if (row := self.store.get(item)) is not None and row.kind != "job"
                ]
            ended = int(job.state) in JOB_TERMINAL and int(before.state) not in JOB_TERMINAL
            if job.job_id in self.store.expanded and (replaced or ended):
                self._needs[job.job_id] = None
        changes.upserts.append(
            Row(job.job_id, "job", job, job.parent_job_id, -job.submitted_at_ms, section, expandable=True)
        )

    def _job_left(self, name: str, changes: Changes[Value]) -> None:
        """The model no longer holds it: finished long ago, so part of the history if that is shown."""
        row = self.store.get(name)
        if row is None or row.kind != "job":
            return
        if self.history.started and not row.parent and self._is_final(row):
            self.history.rows += 1
            changes.upserts.append(Row(row.id, "job", row.value, "", row.natural, HISTORY, expandable=True))
        else:
            changes.removed.append(name)

    def _task(self, task: TaskStatus, changes: Changes[Value]) -> None:
        known = self.store.get(task.task_id)
        if known is not None and task.task_id in self.store.expanded:
            before: TaskStatus = known.value  # type: ignore[assignment]
            if (before.attempt_uid, before.state) != (task.attempt_uid, task.state):
                self._needs[task.task_id] = None
        changes.upserts.append(
            Row(task.task_id, "task", task, task.job_id, task.task_index, expandable=task.current_attempt_id >= 0)
        )

    def _commit(self, changes: Changes[Value]) -> None:
        self._changes.merge(self.store.apply(changes))

    def _note(self, parent: str, text: str, tone: Tone = Tone.DIM) -> None:
        note = Row[Value](_note_id(parent), "note", Note(text, tone), parent)
        self._commit(Changes([note]))

    # --- fetching ----------------------------------------------------------------------------------------------------

    async def load(self, name: str) -> None:
        """Fetch what is below a task, a finished job or a job of the history. A failure becomes a row that says so."""
        row = self.store.get(name)
        if row is None or name in self._loading:
            return
        self._loading.add(name)
        try:
            if row.kind == "task":
                await self._load_attempts(name)
            else:
                await self._load_job(name)
        except IrisError as error:
            self._note(name, f"not loaded: {one_line(error.message)}; Enter tries again", Tone.BAD)
        finally:
            self._loading.discard(name)

    async def task_status(self, task_id: str) -> GetTaskStatusResponse:
        """The task with all its attempts. Raises IrisError."""
        from iris_core.wire.gen.iris.v1 import controller_pb2

        request = controller_pb2.GetTaskStatusRequest(task_id=task_id)
        return await self._client.call("ControllerService/GetTaskStatus", request, controller_pb2.GetTaskStatusResponse)

    async def _load_attempts(self, task_id: str) -> None:
        answer = await self.task_status(task_id)
        changes: Changes[Value] = Changes()
        for attempt in answer.attempts:
            name = f"{task_id}:{attempt.attempt_id}"
            changes.upserts.append(Row(name, "attempt", attempt, task_id, attempt.attempt_id))
        present = {row.id for row in changes.upserts}
        changes.removed = [item for item in self.store.children(task_id) if item not in present]
        self._commit(changes)
        if not present:
            self._note(task_id, "no attempts yet")

    async def _load_job(self, job_id: str) -> None:
        from iris_core.wire.gen.iris.v1 import controller_pb2

        changes: Changes[Value] = Changes()
        token, total, capped = "", 0, False
        while len(changes.upserts) < MAX_FETCHED_TASKS:
            tasks = await self._client.call(
                "ControllerService/ListTasks",
                controller_pb2.ListTasksRequest(job_id=job_id, page_size=2000, page_token=token),
                controller_pb2.ListTasksResponse,
            )
            for task in tasks.tasks:
                self._task(task, changes)
            token, total, capped = tasks.next_page_token, tasks.total_count, tasks.total_capped
            if not token:
                break
        fetched = len(changes.upserts)
        row = self.store.get(job_id)
        if row is None:
            return
        if row.value.has_children:  # type: ignore[union-attr]
            children = await self._client.call(
                "ControllerService/ListJobs",
                controller_pb2.ListJobsRequest(parent_job_id=job_id, page_size=1000),
                controller_pb2.ListJobsResponse,
            )
            for job in children.jobs:
                self._job(job, HISTORY, changes)
        present = {item.id for item in changes.upserts}
        changes.removed = [
            item
            for item in self.store.children(job_id)
            if item not in present and (known := self.store.get(item)) is not None and known.kind in ("task", "note")
        ]
        self._commit(changes)
        if token:
            more = f"{'at least ' if capped else ''}{counted_are(total - fetched, 'more task')}"
            self._note(job_id, f"{more} not shown: iris-core task list {job_id}", Tone.WARN)
        elif not present:
            self._note(job_id, "no tasks")

    # --- history -----------------------------------------------------------------------------------------------------

    def restart_history(self, filter_: Filter | None) -> None:
        """Forget the pages of older jobs: the filter is another one."""
        text = filter_.text if filter_ is not None else ""
        if text == self.history.filter and not self.history.error:
            return
        old = [row.id for row in self.store.rows.values() if row.section == HISTORY and not row.parent]
        self.history = History(filter=text)
        self._commit(Changes(removed=old))

    async def load_history(self) -> bool:
        """Append a page of jobs that are older than what is live. Returns whether there was any; a failure is kept in `history.error`."""
        history = self.history
        if history.loading or history.exhausted or not self.loaded:
            return False
        history.loading, history.started, history.error = True, True, ""
        try:
            for _ in range(_HISTORY_TRIES):
                added = await self._history_page(history)
                if history is not self.history:
                    return False
                if added or history.exhausted:
                    return added
        except IrisError as error:
            history.error = one_line(error.message)
        finally:
            history.loading = False
        return False

    async def _history_page(self, history: History) -> bool:
        from iris_core.wire.gen.iris.v1 import controller_pb2

        request = controller_pb2.ListJobsRequest(
            roots_only=True,
            states=[state.value for state in sorted(JOB_TERMINAL)],  # type: ignore[misc]
            filter=history.filter,
            page_size=HISTORY_PAGE,
            page_token=history.token,
        )
        answer = await self._client.call("ControllerService/ListJobs", request, controller_pb2.ListJobsResponse)
        if history is not self.history:
            return False
        history.token = answer.next_page_token
        history.exhausted = not answer.next_page_token
        unknown = list(self._unknown(answer.jobs))
        changes: Changes[Value] = Changes()
        for job in unknown:
            self._job(job, HISTORY, changes)
        history.rows += len(unknown)
        self._commit(changes)
        return bool(unknown)

    def _unknown(self, jobs: Iterable[JobStatus]) -> Iterable[JobStatus]:
        for job in jobs:
            row = self.store.get(job.job_id)
            if row is None or row.gone:
                yield job


def _note_id(parent: str) -> str:
    return f"{parent}#note"
