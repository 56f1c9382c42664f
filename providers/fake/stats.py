"""The part of the log store that takes rows of tables, in memory: exact like the real one, and out of order on demand.

For tests of whoever writes rows. `push` is what a `StatsClient` pushes with; `down`, `lose_answers` and `refuse` make it behave as a
store that is away, one whose answers are lost on their way, and one that does not know a table.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from iris_core.wire.gen.iris.v1 import stats_pb2
from iris_core.wire.rows import rows_of


class Unavailable(Exception):
    """The store did not answer."""


class Refused(Exception):
    """The store will never take this."""


class FakeStats:
    """See the module."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.marks: dict[tuple[str, str], int] = {}
        self.missing: Counter[str] = Counter()
        """Numbers that producers jumped over, by table."""
        self.pushes = 0
        self.down = False
        self.lose_answers = 0
        """So many pushes are stored and not answered."""
        self.refuse: set[str] = set()
        self.stored = asyncio.Condition()

    async def push(self, body: bytes) -> bytes:
        """Stores a serialised `WriteRowsRequest`. Raises Unavailable, Refused."""
        self.pushes += 1
        if self.down:
            async with self.stored:
                self.stored.notify_all()
            raise Unavailable("the log store is not running")
        request = stats_pb2.WriteRowsRequest.FromString(body)
        refused = {batch.table for batch in request.batches} & self.refuse
        if refused:
            raise Refused(f"there is no table {min(refused)}")
        answer = stats_pb2.WriteRowsResponse()
        for batch in request.batches:
            self._store(batch, answer)
        async with self.stored:
            self.stored.notify_all()
        if self.lose_answers:
            self.lose_answers -= 1
            raise Unavailable("the connection broke")
        return answer.SerializeToString()

    def _store(self, batch: stats_pb2.RowBatch, answer: stats_pb2.WriteRowsResponse) -> None:
        key = (batch.table, batch.producer)
        mark = self.marks.get(key, 0)
        self.missing[batch.table] += max(0, batch.first_number - mark)
        new = list(rows_of(batch.columns))[max(0, mark - batch.first_number) :]
        self.rows.setdefault(batch.table, []).extend(new)
        self.marks[key] = max(mark, batch.first_number + batch.rows)
        answer.marks.add(table=batch.table, producer=batch.producer, next_number=self.marks[key])

    async def until_rows(self, table: str, count: int) -> list[dict[str, Any]]:
        """The rows of a table, once there are so many. Raises TimeoutError."""
        async with asyncio.timeout(30), self.stored:
            await self.stored.wait_for(lambda: len(self.rows.get(table, ())) >= count)
        return self.rows[table]

    async def until_pushes(self, count: int) -> None:
        """Returns once it was asked so often. Raises TimeoutError."""
        async with asyncio.timeout(30), self.stored:
            await self.stored.wait_for(lambda: self.pushes >= count)
