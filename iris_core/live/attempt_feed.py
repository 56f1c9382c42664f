"""One task as it is now, and its attempts as rows: the task through a Watch, its attempts read anew whenever the task changed.

The newest attempt is the first row. What was read stays while nobody answers; the subscription says how old it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_core.live.feed import Feed
from iris_core.live.rows import Changes, Row
from iris_core.live.watch import Selector
from iris_core.model.ids import TaskId

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from iris_core.live.backoff import Backoff
    from iris_core.live.clock import Clock
    from iris_core.wire.gen.iris.v1.controller_pb2 import (
        AttemptStatus,
        GetTaskStatusResponse,
        TaskStatus,
        WatchRows,
    )

SELECTOR: Final = "task"
_WATCH_TASKS: Final = 2  # WatchKind.WATCH_KIND_TASKS


def attempt_id(attempt: AttemptStatus) -> str:
    """Its id as it is typed: `/user/job/0:1`."""
    return f"{attempt.task_id}:{attempt.attempt_id}"


class AttemptFeed(Feed["AttemptStatus"]):
    """`task` is the task, None while it is not known; `known` whether its attempts were read."""

    def __init__(self, client: AsyncClient, clock: Clock, task_id: str, *, backoff: Backoff | None = None) -> None:
        parsed = TaskId.parse(task_id)
        self.task: TaskStatus | None = None
        self.known = False
        self.seen = 0
        """Changes whenever the stream said something of the task: then its attempts are to be read anew."""
        self._id = task_id
        super().__init__(
            client,
            clock,
            [Selector(SELECTOR, _WATCH_TASKS, filter=f"index={parsed.index}", job_ids=(parsed.job.text,))],
            lambda *_: [],
            kinds=("attempt",),
            backoff=backoff,
        )

    @property
    def loaded(self) -> bool:
        return self.known

    def apply(self, selector: str, rows: WatchRows) -> None:
        for task in rows.tasks:
            if task.task_id == self._id:
                self.task = task
                self.seen += 1

    def complete(self, selector: str, present: set[str], total: int) -> None:
        self._complete.add(selector)

    def put(self, answer: GetTaskStatusResponse) -> None:
        """Take over what was read."""
        if self.task is None or self.task.incarnation <= answer.task.incarnation:
            self.task = answer.task
        rows = [Row(attempt_id(one), "attempt", one, "", -one.attempt_id) for one in answer.attempts]
        present = {row.id for row in rows}
        self._take(Changes(rows, [name for name in self.store.rows if name not in present]))
        self.store.dirty = True
        self.known = True
