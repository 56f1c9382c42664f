"""What one selector of a Watch asks for, and what changed for it since its last message.

Only ids are kept, so a slow reader costs memory by ids and never by messages. Must never build a row: the hub reads the latest
values when a message is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_controller.loop import Committed
from iris_controller.rpc.auth import within
from iris_controller.rpc.errors import denied, invalid
from iris_controller.state.records import Task
from iris_core.live.filters import JOB_FIELDS, JOB_WORDS, TASK_FIELDS, TASK_WORDS, WORKER_FIELDS, WORKER_WORDS
from iris_core.model.filter import Filter, parse_filter
from iris_core.wire.gen.iris.v1 import controller_pb2

if TYPE_CHECKING:
    from iris_controller.rpc.auth import Identity

PAGE_ROWS = 2_000
"""Most rows of one message."""

Key = tuple[str, int]
"""A task: job id and index."""


@dataclass(slots=True)
class Dirty:
    """What changed for one selector since its last message."""

    jobs: dict[str, None] = field(default_factory=dict)
    tasks: dict[Key, Task | None] = field(default_factory=dict)
    workers: dict[str, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.jobs or self.tasks or self.workers or self.removed)


@dataclass(slots=True)
class Selection:
    """One selector of a subscription, with its compiled filter."""

    selector: controller_pb2.WatchSelector
    filter: Filter | None
    job_ids: frozenset[str]
    scope: str = ""
    dirty: Dirty = field(default_factory=Dirty)
    replaced: bool = False
    """Tasks that were shown are gone with their job: only a new snapshot says what is left."""
    shown: set[str] | None = None
    """The ids that matched, where time alone can change that."""

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

    def narrow(self, identity: Identity) -> None:
        """Leaves a task nothing but its own job's subtree (DESIGN §11). Raises PERMISSION_DENIED."""
        if identity.task is None:
            return
        if self.selector.kind == controller_pb2.WATCH_KIND_WORKERS:
            raise denied("a task may not watch workers", code="outside_subtree")
        for job_id in sorted(self.job_ids):
            identity.require_scope(job_id)
        self.scope = identity.task.job_id

    def admits(self, job_id: str) -> bool:
        """Whether a job is asked for, and the caller may know of it."""
        if self.job_ids and job_id not in self.job_ids:
            return False
        return not self.scope or within(self.scope, job_id)

    def note(self, batch: Committed) -> None:
        changes = batch.changes
        kind = self.selector.kind
        if kind == controller_pb2.WATCH_KIND_JOBS:
            for job_id in filter(self.admits, changes.removed_jobs):
                self.dirty.removed[job_id] = None
                self.dirty.jobs.pop(job_id, None)
            for job_id in filter(self.admits, (*changes.jobs, *batch.reasons)):
                self.dirty.jobs[job_id] = None
                self.dirty.removed.pop(job_id, None)
        elif kind == controller_pb2.WATCH_KIND_TASKS:
            for key, task in changes.tasks.items():
                if key[0] in self.job_ids:
                    self.dirty.tasks[key] = task
            self.replaced |= not self.job_ids.isdisjoint(changes.deleted_jobs)
            for job_id in self.job_ids & (changes.new_jobs | batch.reasons):
                self.dirty.jobs[job_id] = None
        else:
            for worker_id in changes.workers:
                self.dirty.workers[worker_id] = None

    def note_tasks(self, keys: Iterable[Key]) -> bool:
        """Tasks whose rows say something else. Returns whether any is asked for."""
        if self.selector.kind != controller_pb2.WATCH_KIND_TASKS:
            return False
        ours = [key for key in keys if key[0] in self.job_ids]
        for key in ours:
            self.dirty.tasks.setdefault(key, None)
        return bool(ours)


def compile_selector(selector: controller_pb2.WatchSelector, position: int) -> Selection:
    """Checks a selector. Raises RpcError or ModelError (bad filter, with its position)."""
    fields = {
        controller_pb2.WATCH_KIND_JOBS: (JOB_FIELDS, JOB_WORDS),
        controller_pb2.WATCH_KIND_TASKS: (TASK_FIELDS, TASK_WORDS),
        controller_pb2.WATCH_KIND_WORKERS: (WORKER_FIELDS, WORKER_WORDS),
    }.get(selector.kind)
    if fields is None:
        raise invalid(f"selectors[{position}].kind", f"selector {selector.id!r} names no kind of rows")
    compiled = parse_filter(selector.filter, fields[0], default=fields[1]) if selector.filter else None
    selection = Selection(selector, compiled, frozenset(selector.job_ids))
    if compiled is not None and any(map(depends_on_time, compiled.terms)):
        selection.shown = set()
    return selection


def depends_on_time(term: object) -> bool:
    """Whether time alone can change what the term says of a row."""
    inner = getattr(term, "term", term)
    names = getattr(inner, "fields", None) or (getattr(inner, "field", ""),)
    return not {"age", "time"}.isdisjoint(names)


def split(rows: controller_pb2.WatchRows) -> Iterable[controller_pb2.WatchRows]:
    """The rows in parts of at most PAGE_ROWS."""
    size = len(rows.jobs) + len(rows.tasks) + len(rows.workers) + len(rows.removed)
    if size <= PAGE_ROWS:
        yield rows
        return
    for name in ("removed", "jobs", "tasks", "workers"):
        items = getattr(rows, name)
        for start in range(0, len(items), PAGE_ROWS):
            part = controller_pb2.WatchRows(selector_id=rows.selector_id)
            getattr(part, name).extend(items[start : start + PAGE_ROWS])
            yield part
