"""Tasks, attempts and what workers hold, as SQL: of each row only the columns in which it differs from the committed one.

A tick may change thousands of rows, most of them in the same few columns: rows that differ in the same columns are one statement, and
a new attempt is its six columns that have no default. Every value that SQLite need not take out of the JSON is time that the next
batch does not wait. Must never decide anything: the overlay already has.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import compress
from operator import attrgetter, ne
from typing import TYPE_CHECKING, Final

from iris_controller.state.model import Usage
from iris_core.model.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from iris_controller.state.overlay import Overlay
    from iris_controller.store.writer import Statement

Values = tuple[object, ...]

TASK_COLUMNS: Final = (
    "state",
    "error",
    "exit_code",
    "started_at_ms",
    "finished_at_ms",
    "current_attempt_id",
    "current_attempt_uid",
    "priority_band",
    "failure_count",
    "preemption_count",
    "current_worker_id",
    "current_worker_address",
)
_task = attrgetter(
    "state",
    "error",
    "exit_code",
    "started_at_ms",
    "finished_at_ms",
    "attempt_number",
    "attempt_uid",
    "band",
    "failure_count",
    "preemption_count",
    "worker_id",
)
ATTEMPT_COLUMNS: Final = (
    "attempt_uid",
    "worker_id",
    "state",
    "created_at_ms",
    "started_at_ms",
    "finished_at_ms",
    "exit_code",
    "error",
    "terminal_reason",
    "charge",
    "executed",
    "memory_peak_bytes",
    "log_lines",
    "stop_reason",
    "displaces_json",
    "outputs_json",
)
_attempt = attrgetter(
    "uid",
    "worker_id",
    "state",
    "created_at_ms",
    "started_at_ms",
    "finished_at_ms",
    "exit_code",
    "error",
    "terminal_reason",
    "charge",
    "executed",
    "memory_peak_bytes",
    "log_lines",
    "stop_reason",
    "displaces",
    "outputs",
)
_FRESH: Final = 4
"""So many of an attempt's columns have no default."""

_DEFAULTS: Final[Values] = (None, None, None, None, "", 0, False, 0, None, 0, (), "")

TASK_KEYS: Final = ("job_id", "task_index")

COMMITTED_COLUMNS: Final = ("committed_cpu_millicores", "committed_mem_bytes", "committed_gpu", "committed_tpu")

_NULLABLE: Final = frozenset({"current_worker_id"})
"""Columns whose empty text is stored as NULL."""

_ANY: Final = object()
_UNKNOWN: Final[Values] = (_ANY,) * len(TASK_COLUMNS)


def upsert(table: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Rows of a JSON array, each an array of the keys and the columns, put in the place of what is there."""
    names = [*keys, *columns]
    picks = ", ".join(f"value->>{i}" for i in range(len(names)))
    sets = ", ".join(f"{c}=excluded.{c}" for c in columns)
    return (
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {picks} FROM json_each(?) WHERE true "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {sets}"
    )


@cache
def update(table: str, keys: tuple[str, ...], columns: tuple[str, ...]) -> str:
    """Columns of rows that are there, from a JSON array as for `upsert`."""
    picks = ", ".join(f"value->>{i} AS c{i}" for i in range(len(keys) + len(columns)))
    values = [f"nullif(v.c{i}, '')" if c in _NULLABLE else f"v.c{i}" for i, c in enumerate(columns, len(keys))]
    sets = ", ".join(f"{c}={value}" for c, value in zip(columns, values, strict=True))
    where = " AND ".join(f"{table}.{k}=v.c{i}" for i, k in enumerate(keys))
    return f"UPDATE {table} SET {sets} FROM (SELECT {picks} FROM json_each(?)) AS v WHERE {where}"


PLACE_TASKS: Final = (
    f"UPDATE tasks SET state={int(TaskState.ASSIGNED)}, current_attempt_id=0, current_attempt_uid=v.c2, priority_band=v.c3,"
    " current_worker_id=v.c4, current_worker_address=v.c5 FROM (SELECT value->>0 AS c0, value->>1 AS c1, value->>2 AS c2,"
    " value->>3 AS c3, value->>4 AS c4, value->>5 AS c5 FROM json_each(?)) AS v WHERE tasks.job_id=v.c0 AND tasks.task_index=v.c1"
)
UPSERT_ATTEMPTS: Final = upsert("task_attempts", ["task_id", "attempt_id"], ATTEMPT_COLUMNS)
INSERT_ATTEMPTS: Final = (
    "INSERT INTO task_attempts (task_id, attempt_id, attempt_uid, worker_id, state, created_at_ms)"
    " SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5 FROM json_each(?)"
)


def changed_rows(overlay: Overlay) -> Iterator[Statement]:
    """The statements for the overlay's tasks and attempts, after those that insert their jobs and workers."""
    placed: list[Values] = []
    yield from _updates("tasks", TASK_KEYS, TASK_COLUMNS, _tasks(overlay, placed))
    if placed:
        yield PLACE_TASKS, (json.dumps(placed),)
    if overlay.attempts:
        yield from _attempts(overlay)
        yield from _updates("workers", ("worker_id",), COMMITTED_COLUMNS, _committed(overlay))
    elif overlay.deleted_jobs:
        yield from _updates("workers", ("worker_id",), COMMITTED_COLUMNS, _committed(overlay))


def _updates(
    table: str, keys: tuple[str, ...], columns: tuple[str, ...], rows: Iterable[tuple[Values, Values, Values]]
) -> Iterator[Statement]:
    """`rows` are (key, committed values, new values)."""
    groups: dict[tuple[bool, ...], list[Values]] = {}
    for key, before, after in rows:
        differs = tuple(map(ne, before, after))
        group = groups.get(differs)
        if group is None:
            group = groups[differs] = []
        group.append((*key, *compress(after, differs)))
    for differs, group in groups.items():
        if any(differs):
            yield update(table, keys, tuple(compress(columns, differs))), (json.dumps(group),)


def _tasks(overlay: Overlay, placed: list[Values]) -> Iterator[tuple[Values, Values, Values]]:
    """First assignments, by far the most, are put into `placed` without a look at what cannot have changed."""
    model, fresh = overlay.model, overlay.new_tasks
    for key, task in overlay.tasks.items():
        worker = overlay.worker(task.worker_id) if task.worker_id else None
        address = worker.address if worker is not None else None
        # A job of this batch has been inserted with none of this; a replaced one of the same name counts for nothing.
        old = None if task.job_id in fresh else model.task(*key)
        if (
            task.state is TaskState.ASSIGNED
            and task.attempt_number == 0
            and old is not None
            and old.state is TaskState.PENDING
        ):
            placed.append((*key, task.attempt_uid, task.band, task.worker_id, address))
            continue
        before = _UNKNOWN if old is None else (*_task(old), address if old.worker_id == task.worker_id else _ANY)
        yield key, before, (*_task(task), address)


def _attempts(overlay: Overlay) -> Iterator[Statement]:
    fresh: list[Values] = []
    whole: list[Values] = []
    changed: list[tuple[Values, Values, Values]] = []
    known = overlay.model.attempts
    for attempt in overlay.attempts.values():
        values = _attempt(attempt)
        old = known.get(attempt.uid)
        if old is not None and old.job_id not in overlay.deleted_jobs:
            changed.append(((attempt.task_id, attempt.number), _attempt(old), values))
        elif values[_FRESH:] == _DEFAULTS:
            fresh.append((attempt.task_id, attempt.number, *values[:_FRESH]))
        else:
            whole.append((attempt.task_id, attempt.number, *values))
    if fresh:
        yield INSERT_ATTEMPTS, (json.dumps(fresh),)
    if whole:
        yield UPSERT_ATTEMPTS, (json.dumps(whole),)
    yield from _updates("task_attempts", ("task_id", "attempt_id"), ATTEMPT_COLUMNS, changed)


def _committed(overlay: Overlay) -> Iterator[tuple[Values, Values, Values]]:
    """What each worker holds in all, where that has changed."""
    model = overlay.model
    touched: dict[str, Usage] = {}

    def usage_of(worker_id: str) -> Usage:
        usage = touched.get(worker_id)
        if usage is None:
            usage = touched[worker_id] = model.usage_of(worker_id).copy()
        return usage

    if not model.held.keys().isdisjoint(overlay.deleted_jobs):
        for gone in model.attempts.values():
            if gone.job_id in overlay.deleted_jobs:
                usage_of(gone.worker_id).add(gone.resources, -1, False)
    for attempt in overlay.attempts.values():
        old = model.attempts.get(attempt.uid)
        held = old is not None and old.finished_at_ms is None and old.job_id not in overlay.deleted_jobs
        holds = attempt.finished_at_ms is None
        if held != holds:
            usage_of(attempt.worker_id).add(attempt.resources, 1 if holds else -1, False)
    for worker_id, usage in touched.items():
        # All of it: a worker that was forgotten and came back has a row that knows nothing yet.
        yield (worker_id,), _UNKNOWN, (usage.cpu_millicores, usage.memory_bytes, usage.gpu, usage.tpu)
