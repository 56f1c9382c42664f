"""What was measured of a job's or a task's processes, and what was decided about them: from the tables of the log store.

Rows are told apart by the job's incarnation, so that those of an earlier job of the same name never appear. Memory is in bytes
and CPU in cores, as the request has them. What an answer leaves out is passed on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_core.live.event_columns import TaskEvent
from iris_core.live.samples import Samples

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from iris_core.wire.gen.iris.v1 import stats_pb2

MOST_EVENTS: Final = 500
SLICES: Final = 240
"""Stretches of time into which a job's life is divided."""
LEAST_SLICE_MS: Final = 15_000
"""How often a worker measures."""
TIMEOUT_S: Final = 60.0
_MB: Final = 1_000_000


@dataclass(slots=True)
class Usage:
    """Of each stretch of time the most that one task had; `tasks` have been measured at all."""

    cpu: Samples = field(default_factory=Samples)
    """Cores."""
    memory: Samples = field(default_factory=Samples)
    """Bytes."""
    accelerator: Samples = field(default_factory=Samples)
    """Percent."""
    accelerator_memory: Samples = field(default_factory=Samples)
    """Bytes."""
    peak_bytes: int = 0
    tasks: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Events:
    """The newest events, oldest first; `older` = there are more."""

    events: list[TaskEvent]
    older: bool
    notes: list[str]


def whose(name: str, incarnation: int, *, task: bool, attempt: int | None = None) -> str:
    """The condition for rows of a job (with its tasks) or of one task, or of one attempt of it."""
    mine = f"task_id = {quoted(name)}" if task else f"prefix(task_id, {quoted(name + '/')})"
    found = f"{mine} AND incarnation = {int(incarnation)}"
    return found if attempt is None else f"{found} AND attempt_id = {int(attempt)}"


async def usage(client: AsyncClient, where: str, started_ms: int, until_ms: int) -> Usage:
    """What was measured from `started_ms` to `until_ms`. Raises IrisError."""
    from iris_core.wire.rows import rows_of

    slice_ms = max((until_ms - started_ms) // SLICES, LEAST_SLICE_MS)
    answer = await _query(
        client,
        f"SELECT (epoch_ms(ts) // {slice_ms}) * {slice_ms} AS at, max(cpu_millicores) AS cpu, max(memory_mb) AS memory,"
        " max(memory_peak_mb) AS peak, max(accelerator_util_pct) AS busy, max(accelerator_mem_bytes) AS held,"
        f' count(DISTINCT task_id) AS tasks FROM "iris.task" WHERE {where} AND epoch_ms(ts) >= {int(started_ms) - slice_ms}'
        " GROUP BY 1 ORDER BY 1",
        2 * SLICES + 10,
    )
    found = Usage(notes=list(answer.notes))
    last = 0
    for row in rows_of(answer.columns):
        at = int(row["at"])
        if last and at - last > 4 * slice_ms:
            for samples in (found.cpu, found.memory, found.accelerator, found.accelerator_memory):
                samples.add(last + slice_ms, None)
        last = at
        found.peak_bytes = max(found.peak_bytes, int(row["peak"] or 0) * _MB)
        found.tasks = max(found.tasks, int(row["tasks"]))
        for samples, value, scale in (
            (found.cpu, row["cpu"], 1 / 1000),
            (found.memory, row["memory"], _MB),
            (found.accelerator, row["busy"], 1),
            (found.accelerator_memory, row["held"], 1),
        ):
            if value is not None:
                samples.add(at, float(value) * scale)
    return found


async def events(client: AsyncClient, where: str, most: int = MOST_EVENTS) -> Events:
    """The newest events. Raises IrisError."""
    from iris_core.wire.rows import rows_of

    answer = await _query(
        client,
        'SELECT task_id, ts, attempt_id, attempt_uid, type, source, reason, message, "count" FROM "iris.task_event"'
        f" WHERE {where} ORDER BY ts DESC, seq DESC LIMIT {most + 1}",
        most + 1,
    )
    rows = list(rows_of(answer.columns))
    found = [
        TaskEvent(
            row["task_id"], row["attempt_id"], row["attempt_uid"] or "", row["ts"], row["type"], row["source"],
            row["reason"], row["message"], row["count"],
        )
        for row in rows[:most]
    ]  # fmt: skip
    return Events(found[::-1], len(rows) > most or answer.capped, list(answer.notes))


async def said(client: AsyncClient, where: str) -> str:
    """What the task last said of itself, in full; "" = nothing that is still kept. Raises IrisError."""
    from iris_core.wire.rows import rows_of

    answer = await _query(
        client,
        'SELECT status_text_summary_md AS summary, status_text_detail_md AS detail FROM "iris.task_status"'
        f" WHERE {where} ORDER BY ts DESC, seq DESC LIMIT 1",
        1,
    )
    row = next(rows_of(answer.columns), None)
    return "\n".join(text for text in (row["summary"], row["detail"]) if text) if row is not None else ""


async def _query(client: AsyncClient, sql: str, most: int) -> stats_pb2.QueryResponse:
    from iris_core.wire.gen.iris.v1 import stats_pb2

    request = stats_pb2.QueryRequest(sql=sql, max_rows=most)
    return await client.call("StatsService/Query", request, stats_pb2.QueryResponse, timeout_s=TIMEOUT_S)


def quoted(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"
