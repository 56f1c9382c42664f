"""The tasks of all jobs as rows: live ones through one Watch, those of ended jobs as pages of history.

Watch brings the tasks of every job that has not ended. When a job ends its tasks leave the stream; they are read once from the
database and go on as history, so that a failure that was just seen does not vanish. Older ones are read job by job, the newest
first, as the reader comes to the end. A filter is asked of the server only where it makes much smaller what is sent; the rows
that are here are always filtered here. What could not be had, or was left out, is said. No clock of its own.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_core.contracts import ConnectFailed, IrisError
from iris_core.live.feed import Feed
from iris_core.live.jobtree import HISTORY, LIVE
from iris_core.live.rows import Changes, Row
from iris_core.live.watch import Selector
from iris_core.model.states import JOB_TERMINAL
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from iris_core.live.backoff import Backoff
    from iris_core.live.clock import Clock
    from iris_core.wire.gen.iris.v1 import controller_pb2
    from iris_core.wire.gen.iris.v1.controller_pb2 import JobStatus, TaskStatus, WatchRows

SELECTOR: Final = "tasks"
_WATCH_TASKS: Final = 2  # WatchKind.WATCH_KIND_TASKS
NARROW_FROM: Final = 20_000
"""With more live tasks than this the server is asked for those alone that match."""
PAGE: Final = 500
"""Older tasks that are read at once, or a few more."""
JOBS_AT_ONCE: Final = 20
"""Jobs that are looked into for one page; a filter may match nothing in them."""
MOST_OLDER: Final = 20_000
"""Older tasks that are kept."""
MOST_ENDING: Final = 50
"""Jobs that ended meanwhile whose tasks wait to be read."""
MOST_OF_ONE: Final = 2000
"""Tasks of one such job that are read."""
_OF_JOBS: Final = re.compile(r'(?:^|(?<=\s))(job(?:[=:~]|!=|!~)(?:"(?:[^"\\]|\\.)*"|[^\s"])+)(?=\s|$)')
"""The terms of a filter that ask the same of a job as of its tasks: no other jobs are looked into."""


@dataclass(slots=True)
class Older:
    """How far older tasks have been read."""

    loading: bool = False
    exhausted: bool = False
    error: str = ""
    filter: str = ""
    rows: int = 0
    jobs: int = 0
    """Ended jobs that were looked into."""
    left_out: int = 0
    """Jobs that ended meanwhile whose tasks were not read, or not all."""
    token: str = ""
    waiting: deque[JobStatus] = field(default_factory=deque)
    task_token: str = ""
    """Where to go on in the first of `waiting`."""

    @property
    def full(self) -> bool:
        """Whether as many are kept as may be."""
        return self.rows >= MOST_OLDER

    @property
    def complete(self) -> bool:
        """Whether there are no more than those that were read."""
        return self.exhausted and not (self.error or self.left_out)


def rows_of(tasks: Iterable[TaskStatus], section: int = LIVE) -> list[Row[TaskStatus]]:
    """The rows of tasks: the newest job first, its tasks by index."""
    return [
        Row(
            task.task_id, "task", task, task.job_id, (-task.submitted_at_ms, task.job_id, task.task_index), section
        )
        for task in tasks
    ]  # fmt: skip


class TaskFeed(Feed["TaskStatus"]):
    """Source of the Tasks screen."""

    def __init__(self, client: AsyncClient, clock: Clock, *, backoff: Backoff | None = None) -> None:
        super().__init__(
            client,
            clock,
            [Selector(SELECTOR, _WATCH_TASKS)],
            lambda _, rows: rows_of(rows.tasks),
            kinds=("task",),
            backoff=backoff,
        )
        self.older = Older()
        self.narrowed = ""
        """The filter that the server applies, "" = none."""
        self.total = 0
        """Live tasks that there were when the last snapshot was made, whatever the filter."""
        self._client = client
        self._ending: dict[str, None] = {}

    # --- live --------------------------------------------------------------------------------------------------------

    def narrow(self, text: str) -> None:
        """Have the server send those alone that match, where that is much less; else all."""
        wanted = text if self.total > NARROW_FROM else ""
        if wanted != self.narrowed:
            self.narrowed = wanted
            self._complete.discard(SELECTOR)
            self.select([Selector(SELECTOR, _WATCH_TASKS, filter=wanted)])

    def apply(self, selector: str, rows: WatchRows) -> None:
        if rows.removed and not self.narrowed:
            self._note_ending(rows.removed)
        super().apply(selector, rows)

    def complete(self, selector: str, present: set[str], total: int) -> None:
        self.total = total
        if not self.narrowed:
            self._note_ending(self._of.get(selector, set()).difference(present))
        super().complete(selector, present, total)

    def _note_ending(self, names: Iterable[str]) -> None:
        """Tasks left the stream: their jobs have ended."""
        for name in names:
            row = self.store.get(name)
            if row is None or row.section == HISTORY or row.parent in self._ending:
                continue
            if len(self._ending) < MOST_ENDING and not self.older.full:
                self._ending[row.parent] = None
            else:
                self.older.left_out += 1

    # --- history -----------------------------------------------------------------------------------------------------

    def take_ending(self) -> list[str]:
        """Jobs that ended since the last call: run `load_ended` for each."""
        ending = list(self._ending)
        self._ending.clear()
        return ending

    async def load_ended(self, job_id: str) -> None:
        """Read the tasks of a job that has just ended; where nobody answers they are wanted still. A refusal is kept in `older.error`."""
        older = self.older
        try:
            answer = await self._tasks(job_id, older.filter, "", MOST_OF_ONE)
        except ConnectFailed:
            self._ending[job_id] = None
            return
        except IrisError as error:
            if older is self.older:
                older.error = one_line(error.message)
            return
        if older is self.older:
            older.left_out += bool(answer.next_page_token)
            self._keep(answer.tasks)

    def restart(self, text: str) -> None:
        """Forget older tasks: the filter is another one, or they are wanted anew."""
        if text == self.older.filter and not (self.older.error or self.older.left_out):
            return
        old = [row.id for row in self.store.rows.values() if row.section == HISTORY]
        self.older = Older(filter=text)
        self._take(Changes(removed=old))

    async def load_older(self) -> bool:
        """Read a page of older tasks. Returns whether there were any; a failure is kept in `older.error`."""
        older = self.older
        if older.loading or older.exhausted or older.full or not self.loaded:
            return False
        older.loading, older.error = True, ""
        before = older.rows
        try:
            looked = 0
            while older.rows - before < PAGE and looked < JOBS_AT_ONCE and not older.exhausted:
                if not older.waiting and not await self._more_jobs(older):
                    continue
                await self._page_of(older, older.waiting[0])
                looked += 1
                if older is not self.older:
                    return False
        except IrisError as error:
            older.error = one_line(error.message)
        finally:
            older.loading = False
        return older.rows > before

    async def _more_jobs(self, older: Older) -> bool:
        """The next ended jobs, the newest first; False and `exhausted` when there are none."""
        from iris_core.wire.gen.iris.v1 import controller_pb2

        request = controller_pb2.ListJobsRequest(
            states=[state.value for state in sorted(JOB_TERMINAL)],  # type: ignore[misc]
            filter=" ".join(found[1] for found in _OF_JOBS.finditer(older.filter)),
            page_size=100,
            page_token=older.token,
        )
        if older.jobs and not older.token:
            older.exhausted = True
            return False
        answer = await self._client.call("ControllerService/ListJobs", request, controller_pb2.ListJobsResponse)
        older.token = answer.next_page_token
        older.waiting.extend(answer.jobs)
        older.exhausted = not older.waiting
        return bool(older.waiting)

    async def _page_of(self, older: Older, job: JobStatus) -> None:
        answer = await self._tasks(job.job_id, older.filter, older.task_token, PAGE)
        if older is not self.older:
            return
        older.task_token = answer.next_page_token
        if not older.task_token:
            older.waiting.popleft()
            older.jobs += 1
            older.exhausted = not older.waiting and not older.token
        self._keep(answer.tasks)

    async def _tasks(self, job_id: str, text: str, token: str, most: int) -> controller_pb2.ListTasksResponse:
        from iris_core.wire.gen.iris.v1 import controller_pb2

        request = controller_pb2.ListTasksRequest(job_id=job_id, filter=text, page_token=token, page_size=most)
        return await self._client.call("ControllerService/ListTasks", request, controller_pb2.ListTasksResponse)

    def _keep(self, tasks: Iterable[TaskStatus]) -> None:
        fresh = [task for task in tasks if (row := self.store.get(task.task_id)) is None or row.gone]
        self.older.rows += len(fresh)
        self._take(Changes(rows_of(fresh, HISTORY)))
