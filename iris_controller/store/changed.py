"""Tasks, attempts and what workers hold, as SQL: of each row only the columns in which it differs from the committed one.

A tick may change thousands of rows, most of them in the same few columns. So they are compared column by column, and those that differ
in the same columns are written together. Must never decide anything: the overlay already has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from operator import attrgetter, ne
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from iris_controller.state.model import Usage
from iris_controller.store.rows import Row, bulk, insert, stored, update, upsert

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Attempt
    from iris_controller.store.writer import Statement

Columns = dict[str, tuple[Sequence[Any], Sequence[Any]]]
"""By name, the committed and the new value of each row."""

TASK: Final = {
    "state": "state",
    "error": "error",
    "exit_code": "exit_code",
    "started_at_ms": "started_at_ms",
    "finished_at_ms": "finished_at_ms",
    "current_attempt_id": "attempt_number",
    "current_attempt_uid": "attempt_uid",
    "priority_band": "band",
    "failure_count": "failure_count",
    "preemption_count": "preemption_count",
    "current_worker_id": "worker_id",
}
"""Columns of a task, and where its record has them; so for an attempt below."""
ATTEMPT_KEY: Final = {"task_id": "task_id", "attempt_id": "number"}
FRESH: Final = {
    "attempt_uid": "uid",
    "worker_id": "worker_id",
    "state": "state",
    "created_at_ms": "created_at_ms",
}
DEFAULTED: Final = {
    "started_at_ms": "started_at_ms",
    "finished_at_ms": "finished_at_ms",
    "exit_code": "exit_code",
    "error": "error",
    "terminal_reason": "terminal_reason",
    "charge": "charge",
    "executed": "executed",
    "memory_peak_bytes": "memory_peak_bytes",
    "log_lines": "log_lines",
    "stop_reason": "stop_reason",
    "displaces_json": "displaces",
    "outputs_json": "outputs",
}
_defaulted = attrgetter(*DEFAULTED.values())
_DEFAULTS: Final = (None, None, None, None, "", 0, False, 0, None, 0, (), "")
INSERT_ATTEMPTS: Final = partial(insert, "task_attempts", (*ATTEMPT_KEY, *FRESH))
UPSERT_ATTEMPTS: Final = upsert("task_attempts", (*ATTEMPT_KEY,), (*FRESH, *DEFAULTED))

COMMITTED: Final = ("committed_cpu_millicores", "committed_mem_bytes", "committed_gpu", "committed_tpu")
UPDATE_COMMITTED: Final = partial(update, "workers", ("worker_id",), COMMITTED)

_ANY: Final = object()
_NOTHING: Final = SimpleNamespace(**dict.fromkeys(TASK.values(), _ANY))
"""In the place of a task that is not committed: all of it is new."""


def changed_rows(overlay: Overlay) -> Iterator[Statement]:
    """The statements for the overlay's tasks and attempts, after those that insert their jobs and workers."""
    if overlay.tasks:
        yield from _tasks(overlay)
    if overlay.attempts:
        yield from _attempts(overlay)
    if overlay.attempts or overlay.deleted_jobs:
        # All of it: a worker that was forgotten and came back has a row that knows nothing yet.
        held = [
            (worker_id, usage.cpu_millicores, usage.memory_bytes, usage.gpu, usage.tpu)
            for worker_id, usage in _committed(overlay).items()
        ]
        yield from bulk(UPDATE_COMMITTED, held)


def _updates(table: str, keys: Mapping[str, Sequence[Any]], columns: Columns) -> Iterator[Statement]:
    """Each row is written where it differs; `keys` are the columns by which it is found, with each row's."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    for row, differs in enumerate(zip(*(map(ne, before, after) for before, after in columns.values()), strict=True)):
        group = groups.get(differs)
        if group is None:
            group = groups[differs] = []
        group.append(row)
    for differs, rows in groups.items():
        names = tuple(name for name, is_other in zip(columns, differs, strict=True) if is_other)
        if names:
            found = [_at(rows, values) for values in keys.values()]
            found += [stored(name, _at(rows, columns[name][1])) for name in names]  # type: ignore[misc]
            yield from bulk(partial(update, table, tuple(keys), names), list(zip(*found, strict=True)))


def _at(rows: list[int], values: Sequence[Any]) -> Sequence[Any]:
    return values if len(rows) == len(values) else [values[row] for row in rows]


def _compared(attributes: Mapping[str, str], before: Sequence[Any], after: Sequence[Any]) -> Columns:
    readers = {column: attrgetter(name) for column, name in attributes.items()}
    return {column: (list(map(read, before)), list(map(read, after))) for column, read in readers.items()}


def _tasks(overlay: Overlay) -> Iterator[Statement]:
    model, fresh = overlay.model, overlay.new_tasks
    after = list(overlay.tasks.values())
    # A job of this batch has been inserted with none of this; a replaced one of the same name counts for nothing.
    before = [(None if job_id in fresh else model.task(job_id, index)) or _NOTHING for job_id, index in overlay.tasks]
    columns = _compared(TASK, before, after)
    was, now = columns["current_worker_id"]
    addresses = dict.fromkeys(now)
    for worker_id in addresses:
        worker = overlay.worker(worker_id)
        addresses[worker_id] = worker.address if worker is not None else None
    new = [addresses[worker_id] for worker_id in now]
    known = [_ANY if old != worker_id else address for old, worker_id, address in zip(was, now, new, strict=True)]
    columns["current_worker_address"] = known, new
    job_ids, indices = zip(*overlay.tasks, strict=True)
    yield from _updates("tasks", {"job_id": job_ids, "task_index": indices}, columns)


def _attempts(overlay: Overlay) -> Iterator[Statement]:
    fresh: list[Attempt] = []
    before: list[Attempt] = []
    after: list[Attempt] = []
    known = overlay.model.attempts
    for attempt in overlay.attempts.values():
        old = known.get(attempt.uid)
        if old is not None and old.job_id not in overlay.deleted_jobs:
            before.append(old)
            after.append(attempt)
        else:
            fresh.append(attempt)
    if fresh:
        yield from _new_attempts(fresh)
    if after:
        columns = _compared({**FRESH, **DEFAULTED}, before, after)
        yield from _updates("task_attempts", {"attempt_uid": columns.pop("attempt_uid")[1]}, columns)


def _new_attempts(attempts: list[Attempt]) -> Iterator[Statement]:
    """Most have just been placed: what has a default is as it says."""
    placed = [attempt for attempt in attempts if _defaulted(attempt) == _DEFAULTS]
    yield from bulk(INSERT_ATTEMPTS, _rows({**ATTEMPT_KEY, **FRESH}, placed))
    others = (
        [attempt for attempt in attempts if _defaulted(attempt) != _DEFAULTS] if len(placed) < len(attempts) else []
    )
    if others:
        yield UPSERT_ATTEMPTS, (json.dumps(_rows({**ATTEMPT_KEY, **FRESH, **DEFAULTED}, others)),)


def _rows(attributes: Mapping[str, str], attempts: list[Attempt]) -> list[Row]:
    columns = (stored(column, map(attrgetter(name), attempts)) for column, name in attributes.items())
    return list(zip(*columns, strict=True))


def _committed(overlay: Overlay) -> dict[str, Usage]:
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
    known = model.attempts
    for uid, attempt in overlay.attempts.items():
        old = known.get(uid)
        if old is None and attempt.finished_at_ms is None:
            # By far the most: it has just been placed.
            usage = touched.get(attempt.worker_id) or usage_of(attempt.worker_id)
            usage.add(attempt.resources, 1, False)
            continue
        held = old is not None and old.finished_at_ms is None and old.job_id not in overlay.deleted_jobs
        holds = attempt.finished_at_ms is None
        if held != holds:
            usage_of(attempt.worker_id).add(attempt.resources, 1 if holds else -1, False)
    return touched
