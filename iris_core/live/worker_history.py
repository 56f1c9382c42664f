"""What was measured of one machine: from the log store's table `iris.worker`, thinned by the store so that any span fits a chart.

Each stretch of time shows the most that was read in it; a stretch without a reading is a gap. What an answer leaves out is passed on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_core.live.measured import quoted
from iris_core.live.samples import Samples

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient

SLICES: Final = 240
HOUR_MS: Final = 3_600_000
TIMEOUT_S: Final = 60.0


@dataclass(slots=True)
class WorkerHistory:
    """Readings of one machine. `total_bytes` of memory and disk are the newest ones, 0 = not read."""

    cpu_pct: Samples = field(default_factory=Samples)
    memory: Samples = field(default_factory=Samples)
    tasks: Samples = field(default_factory=Samples)
    accelerator_pct: Samples = field(default_factory=Samples)
    disk: Samples = field(default_factory=Samples)
    memory_total: int = 0
    disk_total: int = 0
    notes: list[str] = field(default_factory=list)


async def worker_history(
    client: AsyncClient, worker_id: str, until_ms: int, *, span_ms: int = 6 * HOUR_MS
) -> WorkerHistory:
    """The last hours of a machine. Raises IrisError."""
    from iris_core.wire.gen.iris.v1 import stats_pb2
    from iris_core.wire.rows import rows_of

    slice_ms = max(span_ms // SLICES, 15_000)
    sql = (
        f"SELECT (epoch_ms(ts) // {slice_ms}) * {slice_ms} AS at, max(cpu_pct) AS cpu, max(mem_bytes) AS memory,"
        " max(mem_total_bytes) AS memory_total, max(running_task_count) AS tasks, max(gpu_util_pct) AS accelerator,"
        " max(disk_used_bytes) AS disk, max(disk_total_bytes) AS disk_total"
        f' FROM "iris.worker" WHERE worker_id = {quoted(worker_id)} AND epoch_ms(ts) >= {int(until_ms - span_ms)}'
        " GROUP BY 1 ORDER BY 1"
    )
    request = stats_pb2.QueryRequest(sql=sql, max_rows=SLICES + 10)
    answer = await client.call("StatsService/Query", request, stats_pb2.QueryResponse, timeout_s=TIMEOUT_S)
    found = WorkerHistory(notes=list(answer.notes))
    last = 0
    for row in rows_of(answer.columns):
        at = int(row["at"])
        columns = (
            (found.cpu_pct, row["cpu"]),
            (found.memory, row["memory"]),
            (found.tasks, row["tasks"]),
            (found.accelerator_pct, row["accelerator"]),
            (found.disk, row["disk"]),
        )
        for samples, value in columns:
            if last and at - last > 4 * slice_ms:
                samples.add(last + slice_ms, None)
            if value is not None:
                samples.add(at, float(value))
        found.memory_total = int(row["memory_total"] or found.memory_total)
        found.disk_total = int(row["disk_total"] or found.disk_total)
        last = at
    return found
