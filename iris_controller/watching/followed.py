"""Rows that follow committed batches: jobs, tasks, workers, as of the moment a message is made.

Must never read SQL except for the tasks of finished jobs that are asked for by name.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from iris_controller.rpc.views import job_view, task_view, worker_view
from iris_core.wire.gen.iris.v1 import controller_pb2

if TYPE_CHECKING:
    from iris_controller.loop import ControllerLoop
    from iris_controller.state.records import Task
    from iris_controller.watching.selection import Dirty, Key, Selection

PIECE = 500
"""So many rows are made before others get their turn."""
OWED_ROWS = 200
"""Of what is told bit by bit, so many rows a message."""


class Followed:
    """See the module."""

    def __init__(
        self,
        loop: ControllerLoop,
        worker_age_ms: Callable[[str], int],
        finished_tasks: Callable[[str], Awaitable[list[controller_pb2.TaskStatus]]],
        measured: Callable[[controller_pb2.TaskStatus], None],
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._worker_age_ms = worker_age_ms
        self._finished_tasks = finished_tasks
        self._measured = measured
        """Adds what was measured of a task to its row."""

    async def all(self, selection: Selection) -> AsyncIterator[list[tuple[str, Any]]]:
        """Every row that a selector asks for, its filter aside, with its id; in pieces, between which others get their turn."""
        kind = selection.kind.number
        if kind == controller_pb2.WATCH_KIND_JOBS:
            for piece in _pieces([job_id for job_id in self._model.jobs if selection.admits(job_id)]):
                yield list(self._jobs(piece))
                await asyncio.sleep(0)
        elif kind == controller_pb2.WATCH_KIND_WORKERS:
            for piece in _pieces(list(self._model.workers)):
                yield list(self._workers(piece))
                await asyncio.sleep(0)
        else:
            async for piece in self._all_tasks(selection):
                yield piece

    async def _all_tasks(self, selection: Selection) -> AsyncIterator[list[tuple[str, Any]]]:
        names = sorted(selection.job_ids) or [job_id for job_id in self._model.tasks if selection.admits(job_id)]
        gathered: list[Task] = []
        for job_id in names:
            live = self._model.tasks.get(job_id)
            if live is not None:
                gathered.extend(live)
            elif selection.job_ids:
                finished = await self._finished_tasks(job_id)
                yield [(status.task_id, status) for status in finished]
            if len(gathered) >= PIECE:
                for piece in _pieces(gathered):
                    yield list(self._tasks(piece))
                    await asyncio.sleep(0)
                gathered = []
        yield list(self._tasks(gathered))

    def changed(self, selection: Selection, dirty: Dirty, rows: controller_pb2.WatchRows) -> None:
        """Adds the latest value of everything dirty."""
        now_ms = self._loop.now_ms()
        kind = selection.kind.number
        if kind == controller_pb2.WATCH_KIND_TASKS:
            tasks = self._changed_tasks(selection, dirty)
            for row_id, status in self._tasks(tasks.values()):
                selection.put(row_id, status, now_ms, rows)
            for job_id, number in dirty.finished.items():
                # Of a job that took the name of one that went, the tasks that both have are another's now.
                for index in range(len(self._model.tasks.get(job_id, ())), number):
                    selection.drop(f"{job_id}/{index}", rows)
            return
        found: Iterable[tuple[str, Any]]
        if kind == controller_pb2.WATCH_KIND_JOBS:
            names, found = dirty.jobs, self._jobs(dirty.jobs)
        else:
            names, found = dirty.workers, self._workers(dirty.workers)
        there = set()
        for row_id, row in found:
            there.add(row_id)
            selection.put(row_id, row, now_ms, rows)
        for row_id in (*(name for name in names if name not in there), *dirty.removed):
            selection.drop(row_id, rows)

    def _changed_tasks(self, selection: Selection, dirty: Dirty) -> dict[Key, Task]:
        tasks: dict[Key, Task] = {}
        for job_id in dirty.jobs:
            for task in self._model.tasks.get(job_id, ()):
                tasks[(job_id, task.index)] = task
        for key, known in dirty.tasks.items():
            latest = self._model.task(*key)
            if latest is None and not selection.everything:
                latest = known
            if latest is not None:
                tasks[key] = latest
        for key in self._owed(selection):
            latest = self._model.task(*key)
            if latest is not None:
                tasks[key] = latest
        return tasks

    def _owed(self, selection: Selection) -> list[Key]:
        """The next of what is told bit by bit."""
        found: list[Key] = []
        while selection.owed and len(found) < OWED_ROWS:
            job_id = next(iter(selection.owed))
            # Descending, so that a place in it is an index that all told ones reach.
            waiting, below = self._model.pending.get(job_id, []), selection.owed_below
            start = 0 if below is None else bisect_right(waiting, -below, key=lambda index: -index)
            part = waiting[start : start + OWED_ROWS - len(found)]
            found.extend((job_id, index) for index in part)
            selection.owed_below = part[-1] if part else None
            if start + len(part) >= len(waiting):
                selection.owed_below = None
                del selection.owed[job_id]
                if selection.owed_again:
                    selection.owed_again, selection.owed[job_id] = False, None
                    break
        while selection.measured and len(found) < OWED_ROWS:
            key = next(iter(selection.measured))
            del selection.measured[key]
            found.append(key)
        return found

    def _jobs(self, ids: Iterable[str]) -> Iterator[tuple[str, controller_pb2.JobStatus]]:
        for job_id in ids:
            job = self._model.jobs.get(job_id)
            if job is not None:
                yield job_id, job_view(self._model, job)

    def _workers(self, ids: Iterable[str]) -> Iterator[tuple[str, controller_pb2.WorkerStatus]]:
        for worker_id in ids:
            worker = self._model.workers.get(worker_id)
            if worker is not None:
                yield worker_id, worker_view(self._model, worker, self._worker_age_ms(worker_id))

    def _tasks(self, tasks: Iterable[Task]) -> Iterator[tuple[str, controller_pb2.TaskStatus]]:
        model = self._model
        for task in tasks:
            status = task_view(model, model.jobs.get(task.job_id), task, model.attempts.get(task.attempt_uid))
            self._measured(status)
            yield status.task_id, status


def _pieces(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), PIECE):
        yield items[start : start + PIECE]
