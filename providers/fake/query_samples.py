"""Answers to statements for a fake controller, audit lines for its log, and checkpoints of a state dir that is nowhere."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from iris_core.live.checkpoint_columns import CheckpointRow
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.gen.iris.v1 import stats_pb2 as stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.contracts import IrisError
    from providers.fake.client import FakeClient

_LINE: Final = "2026-01-01T00:00:00.000Z INFO iris.audit "
AUDITED: Final = (
    _LINE + "event=worker_registered entity=h100-0 trigger=worker address=10.0.0.7",
    _LINE + "event=job_submitted entity=/ada/train-llama trigger=ada via=token peer=10.0.0.1",
    _LINE + "event=operator_change entity=/ada/train-llama/0 trigger=ada method=KickTasks interface=console"
    ' command="iris-core --cluster\\u003dlab task preempt /ada/train-llama/0 /ada/train-llama/1" reason="drain the slice"'
    " pasted=false targets=/ada/train-llama/0:0,/ada/train-llama/1:0 target_count=2 planned=true via=token peer=10.0.0.1",
)
KEPT_IN: Final = "gs://lab/iris/state"


def kept_checkpoints(now_ms: int) -> list[CheckpointRow]:
    """Four of the last hours, one of which was never finished; a rollback takes the second."""
    faults = ("", "", "its manifest is missing: it was never finished", "")
    return [
        CheckpointRow(
            f"{KEPT_IN}/controller-state/{(at := now_ms - hours * 3_600_000)}", at, 31 << 20, fault,
            database_bytes=120 << 20, jobs=4000 - hours, tasks=90_000 - hours, workers=64, schema="0012_example",
            rollback=hours == 2,
        )
        for hours, fault in enumerate(faults, 1)
    ]  # fmt: skip


class FakeDatabase:
    """`attach` makes a client answer every statement with `names` and `rows`, once `release` was called if it `holds`."""

    def __init__(self, client: FakeClient) -> None:
        self.client = client
        self.names: tuple[str, ...] = ("task_id", "state", "worker_id")
        self.rows: list[Sequence[Any]] = [
            ("/ada/train-llama/0", 3, "h100-0"),
            ("/ada/train-llama/1", 3, "h100-0"),
            ("/cleo/sweep-lr/3", 3, None),
        ]
        self.truncated = False
        self.error: IrisError | None = None
        self._open = asyncio.Event()
        self._open.set()

    def attach(self) -> FakeDatabase:
        """Answer for the client."""
        client: Any = self.client
        client._execute_raw_query = self._controller
        client._query = self._stats
        return self

    def hold(self) -> None:
        """Statements run until `release`."""
        self._open.clear()

    def release(self) -> None:
        """What runs is answered."""
        self._open.set()

    async def _controller(self, request: pb.ExecuteRawQueryRequest) -> pb.ExecuteRawQueryResponse:
        await self._open.wait()
        if self.error is not None:
            raise self.error
        return pb.ExecuteRawQueryResponse(
            columns=[pb.QueryColumn(name=name) for name in self.names],
            rows=[json.dumps(list(row)) for row in self.rows],
            total_count=len(self.rows),
            truncated=self.truncated,
        )

    async def _stats(self, request: stats.QueryRequest) -> stats.QueryResponse:
        await self._open.wait()
        columns = [
            stats.ColumnValues(name="reason", type=stats.COLUMN_TYPE_STRING, strings=["Preempted", "Started"]),
            stats.ColumnValues(name="events", type=stats.COLUMN_TYPE_INT64, integers=[3, 40]),
        ]
        return stats.QueryResponse(columns=columns, row_count=2, notes=["1 damaged segment was left out"])
