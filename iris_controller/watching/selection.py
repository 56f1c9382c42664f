"""What one selector of a Watch asks for, and what changed for it since its last message.

Only ids are kept, so a slow reader costs memory by ids and never by messages. Must never build a row: the latest values are read
when a message is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from iris_controller.commits import Committed
from iris_controller.rpc.auth import within
from iris_controller.rpc.errors import denied, invalid
from iris_controller.rpc.roles import ACCESS
from iris_controller.state.records import Task
from iris_controller.watching.kinds import KINDS, Kind
from iris_core.live.watch_keys import ROW_IDS, count
from iris_core.model.filter import Filter
from iris_core.model.ids import TaskId
from iris_core.wire.gen.iris.v1 import controller_pb2

if TYPE_CHECKING:
    from iris_controller.rpc.auth import Identity

PAGE_ROWS = 2_000
"""Most rows of one message."""
MOST_TASKS = 64
"""Tasks whose attempts one selector may ask for."""

Key = tuple[str, int]
"""A task: job id and index."""


@dataclass(slots=True)
class Dirty:
    """What changed for one selector since its last message."""

    jobs: dict[str, None] = field(default_factory=dict)
    tasks: dict[Key, Task | None] = field(default_factory=dict)
    workers: dict[str, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    finished: dict[str, int] = field(default_factory=dict)
    """Jobs whose tasks went, with how many they were."""
    rows: dict[str, None] = field(default_factory=dict)
    """Of a kind that is looked at."""

    def __bool__(self) -> bool:
        return bool(self.jobs or self.tasks or self.workers or self.removed or self.finished or self.rows)


@dataclass(slots=True, eq=False)
class Selection:
    """One selector of a subscription, with its compiled filter."""

    selector: controller_pb2.WatchSelector
    kind: Kind
    filter: Filter | None
    job_ids: frozenset[str]
    task_ids: frozenset[str] = frozenset()
    scope: str = ""
    root: str = ""
    """Of a task that watches: its own job, and its root job."""
    dirty: Dirty = field(default_factory=Dirty)
    replaced: bool = False
    """Tasks that were shown are gone with their job: only a new snapshot says what is left."""
    shown: set[str] | None = None
    """The ids that matched, where telling of all others would be too much, or time alone can change it."""
    timed: bool = False
    """Time alone can change what the filter says."""
    owed: dict[str, None] = field(default_factory=dict)
    """Jobs whose waiting tasks have another reason, which is told bit by bit; only of a watch on all tasks."""
    owed_below: int | None = None
    """Of the first of them, the tasks from this index on were told; None = none yet."""
    owed_again: bool = False
    """It has yet another reason meanwhile."""
    measured: dict[Key, None] = field(default_factory=dict)
    """Tasks of which something else was measured, told in the same way."""

    @property
    def everything(self) -> bool:
        """Whether it asks for the tasks of all jobs that have not ended."""
        return self.kind.number == controller_pb2.WATCH_KIND_TASKS and not self.job_ids

    def room(self) -> controller_pb2.WatchRows:
        return controller_pb2.WatchRows(selector_id=self.selector.id)

    def keep(self, row_id: str, matches: bool, *, again: bool = False) -> bool | None:
        """Whether to send a row (True) or its removal (False); None = neither. `again` = it was sent as it is, if it was."""
        if self.shown is None:
            return matches
        known = row_id in self.shown
        if matches:
            self.shown.add(row_id)
            return None if known and again else True
        self.shown.discard(row_id)
        return False if known else None

    def put(self, row_id: str, row: Any, now_ms: int, rows: controller_pb2.WatchRows, *, again: bool = False) -> None:
        """Adds a row, or its removal, to a message."""
        matches = self.filter is None or self.filter.matches(self.kind.filter.row(row, now_ms))
        send = self.keep(row_id, matches, again=again)
        if send:
            getattr(rows, self.kind.field).append(row)
        elif send is False:
            rows.removed.append(row_id)

    def drop(self, row_id: str, rows: controller_pb2.WatchRows) -> None:
        """Adds the removal of a row that is gone, unless it was never shown."""
        if self.shown is None:
            rows.removed.append(row_id)
        elif row_id in self.shown:
            self.shown.discard(row_id)
            rows.removed.append(row_id)

    def narrow(self, identity: Identity) -> None:
        """Leaves the caller what the unary calls would tell, and a task nothing but its own job's subtree (DESIGN §11).

        Raises PERMISSION_DENIED.
        """
        for name in self.kind.methods:
            if identity.role not in ACCESS[f"ControllerService/{name}"].roles:
                code = "outside_subtree" if identity.task is not None else "role"
                raise denied(f"a {identity.role} may not watch {self.kind.plural}", subject=name, code=code)
        if identity.task is None:
            return
        for named in sorted(self.job_ids | self.task_ids):
            identity.require_scope(named)
        self.scope, self.root = identity.task.job_id, identity.task.root_job

    def admits(self, job_id: str) -> bool:
        """Whether a job is asked for, and the caller may know of it."""
        if self.job_ids and job_id not in self.job_ids:
            return False
        return not self.scope or within(self.scope, job_id)

    def admits_row(self, row: Any) -> bool:
        """Whether the caller may know of a row of a kind that is looked at; a task sees the endpoints of its own tree."""
        if not self.scope or self.kind.number != controller_pb2.WATCH_KIND_ENDPOINTS:
            return True
        return bool(row.name.startswith(self.root + "/"))

    def note(self, batch: Committed) -> None:
        """Takes in a committed batch; kinds that are looked at have no use for it."""
        kind = self.kind.number
        if kind == controller_pb2.WATCH_KIND_JOBS:
            self._note_jobs(batch)
        elif kind == controller_pb2.WATCH_KIND_TASKS:
            if self.job_ids:
                self._note_tasks_of_jobs(batch)
            else:
                self._note_all_tasks(batch)
        elif kind == controller_pb2.WATCH_KIND_WORKERS:
            for worker_id in batch.changes.workers:
                self.dirty.workers[worker_id] = None

    def _note_jobs(self, batch: Committed) -> None:
        changes = batch.changes
        for job_id in filter(self.admits, changes.removed_jobs):
            self.dirty.removed[job_id] = None
            self.dirty.jobs.pop(job_id, None)
        for job_id in filter(self.admits, (*changes.jobs, *batch.reasons)):
            self.dirty.jobs[job_id] = None
            self.dirty.removed.pop(job_id, None)

    def _note_tasks_of_jobs(self, batch: Committed) -> None:
        changes = batch.changes
        for key, task in changes.tasks.items():
            if key[0] in self.job_ids:
                self.dirty.tasks[key] = task
        self.replaced |= not self.job_ids.isdisjoint(changes.deleted_jobs)
        for job_id in self.job_ids & (changes.new_jobs | batch.reasons):
            self.dirty.jobs[job_id] = None

    def _note_all_tasks(self, batch: Committed) -> None:
        changes = batch.changes
        if self.scope:
            self.dirty.tasks.update((key, task) for key, task in changes.tasks.items() if self.admits(key[0]))
        else:
            self.dirty.tasks.update(changes.tasks)
        for job_id, tasks in changes.finished.items():
            if self.admits(job_id):
                self.dirty.finished[job_id] = max(tasks, self.dirty.finished.get(job_id, 0))
        for job_id in filter(self.admits, changes.new_jobs):
            self.dirty.jobs[job_id] = None
        for job_id in filter(self.admits, batch.reasons):
            self.owed_again |= self.owed_below is not None and next(iter(self.owed), None) == job_id
            self.owed[job_id] = None

    def note_tasks(self, keys: Iterable[Key]) -> bool:
        """Tasks whose rows say something else. Returns whether any is asked for."""
        if self.kind.number != controller_pb2.WATCH_KIND_TASKS:
            return False
        ours = [key for key in keys if self.admits(key[0])]
        if self.everything:
            self.measured.update(dict.fromkeys(ours))
        else:
            for key in ours:
                self.dirty.tasks.setdefault(key, None)
        return bool(ours)


def compile_selector(selector: controller_pb2.WatchSelector, position: int) -> Selection:
    """Checks a selector. Raises RpcError or ModelError (bad filter, with its position; bad task id)."""
    kind = KINDS.get(selector.kind)
    if kind is None:
        raise invalid(f"selectors[{position}].kind", f"selector {selector.id!r} names no kind of rows")
    compiled = kind.filter.parse(selector.filter) if selector.filter else None
    task_ids = frozenset(str(TaskId.parse(text)) for text in selector.task_ids)
    attempts = kind.number == controller_pb2.WATCH_KIND_ATTEMPTS
    if attempts and not 1 <= len(task_ids) <= MOST_TASKS:
        raise invalid(
            f"selectors[{position}].task_ids",
            f"attempts are watched of 1 to {MOST_TASKS} tasks, not of {len(task_ids)}",
        )
    selection = Selection(selector, kind, compiled, frozenset(selector.job_ids), task_ids if attempts else frozenset())
    if compiled is not None:
        selection.timed = any(map(depends_on_time, compiled.terms))
        if selection.timed or selection.everything:
            selection.shown = set()
    return selection


def depends_on_time(term: object) -> bool:
    """Whether time alone can change what the term says of a row."""
    inner = getattr(term, "term", term)
    names = getattr(inner, "fields", None) or (getattr(inner, "field", ""),)
    return not {"age", "time"}.isdisjoint(names)


def split(rows: controller_pb2.WatchRows) -> Iterable[controller_pb2.WatchRows]:
    """The rows in parts of at most PAGE_ROWS."""
    if count(rows) + len(rows.removed) <= PAGE_ROWS:
        yield rows
        return
    for name in ("removed", *ROW_IDS):
        items = getattr(rows, name)
        for start in range(0, len(items), PAGE_ROWS):
            part = controller_pb2.WatchRows(selector_id=rows.selector_id)
            getattr(part, name).extend(items[start : start + PAGE_ROWS])
            yield part
