"""Which tasks are on some workers now: one snapshot of a Watch, from the model and not from the database.

Whoever changes something on the grounds of the answer names attempts, since the next moment other tasks may be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, cast

from iris_core.model.quoting import quote
from iris_core.model.states import ACTIVE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from iris_core.contracts import AsyncClient
    from iris_core.wire.gen.iris.v1.controller_pb2 import TaskStatus, WatchResponse

_WATCH_TASKS: Final = 2  # WatchKind.WATCH_KIND_TASKS
_AT_ONCE: Final = 100
"""Workers that one filter names."""


def on_workers(worker_ids: Sequence[str]) -> str:
    """The filter for tasks whose latest attempt is on one of these."""
    return f"worker={','.join(quote(name) for name in worker_ids)}"


async def tasks_on(client: AsyncClient, worker_ids: Sequence[str]) -> list[TaskStatus]:
    """The tasks with a live attempt on these workers, by id. Raises IrisError."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    found: dict[str, TaskStatus] = {}
    for start in range(0, len(worker_ids), _AT_ONCE):
        part = worker_ids[start : start + _AT_ONCE]
        request = pb.WatchRequest()
        request.selectors.add(id="there", kind=cast("Any", _WATCH_TASKS), filter=on_workers(part))
        stream = client.stream("ControllerService/Watch", request, pb.WatchResponse)
        async with aclosing(cast("AsyncGenerator[WatchResponse]", stream)) as messages:
            async for message in messages:
                page = message.snapshot
                wanted = set(part)
                for task in page.rows.tasks:
                    # The filter of an old server, or none: the answer is looked at again.
                    if task.worker_id in wanted and int(task.state) in ACTIVE:
                        found[task.task_id] = task
                if page.last:
                    break
    return [found[name] for name in sorted(found)]
