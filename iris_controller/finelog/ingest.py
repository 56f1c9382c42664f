"""Taking lines in: a push is checked, stored with whatever else waits (`groups`), and answered with how far its producers got.

Must never answer a push before its lines are durable.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from iris_controller.finelog import batches
from iris_controller.finelog.groups import Groups
from iris_core.wire.gen.iris.v1 import logs_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_controller.finelog.batches import Batch
    from iris_controller.finelog.store import Store


class Ingest:
    """Belongs to one event loop. `on_stored` is called there with the keys of each group that was stored."""

    def __init__(self, store: Store, on_stored: Callable[[set[str]], None]) -> None:
        self._store = store
        self._on_stored = on_stored
        self._groups: Groups[Batch] = Groups(
            store, batches.parse, self._stored, what="LogService/PushLogs", rows="lines"
        )
        self.last_line_at_ms = 0
        """When lines were stored last, 0 = not since the start."""

    @property
    def fault(self) -> str:
        """Why pushes are refused, "" = they are not."""
        return self._groups.fault

    def _stored(self, keys: set[str]) -> None:
        self.last_line_at_ms = time.time_ns() // 1_000_000
        self._on_stored(keys)

    async def push(self, raw: bytes) -> logs_pb2.PushLogsResponse:
        """Stores a serialised `PushLogsRequest`. Raises RpcError: nothing of it was stored, or it is not known to be."""
        decoded = await self._groups.store(raw)
        producers = dict.fromkeys(batch.message.producer for batch in decoded)
        return logs_pb2.PushLogsResponse(marks=marks_of(self._store, producers))

    async def close(self) -> None:
        """Refuses what comes, stores what waits, and ends the threads."""
        await self._groups.close()


def marks_of(store: Store, producers: Iterable[str]) -> list[logs_pb2.ProducerMark]:
    """How far those producers got: all their lines below `next_number` are durable."""
    return [logs_pb2.ProducerMark(producer=producer, next_number=store.mark(producer)) for producer in producers]
