"""What the pulse of a cluster was: what the console saw while it watched, and before that what the log store's tables hold.

The tables are asked once and again after a gap, in the background; where they have nothing, the charts begin when the console began
to watch. The failures of the last hour come by the minute with every row, so they need no memory here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_core.live.samples import Samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from iris_core.wire.gen.iris.v1.stats_pb2 import QueryResponse
    from iris_core.wire.gen.iris.v1.watch_rows_pb2 import FleetRow

EVERY_MS: Final = 5_000
"""A sample is taken this often."""
BACK_MS: Final = 3 * 3_600_000
MINUTE_MS: Final = 60_000
MOST_ROWS: Final = 720
SILENT_MS: Final = 120_000
"""The controller writes a row each thirty seconds; between rows that lie further apart than this it did not run."""
RUNNING: Final = ("assigned", "building", "running")


class FleetHistory:
    """Samples of what is charted: waiting and running tasks, the oldest wait, what is held of the cores, failures by the minute."""

    def __init__(self) -> None:
        self.waiting = Samples()
        self.running = Samples()
        self.wait_ms = Samples()
        self.cpu_pct = Samples()
        self.devices_pct = Samples()
        self.failures = Samples()
        self._taken_ms = 0
        self._ends: tuple[object, ...] = ()

    def all(self) -> Iterable[Samples]:
        """Those that are measured by looking."""
        return (self.waiting, self.running, self.wait_ms, self.cpu_pct, self.devices_pct)

    def take(self, row: FleetRow, now_ms: int) -> None:
        """Look at the latest row; a sample is taken when it is time for one."""
        self._take_ends(row)
        if 0 <= now_ms - self._taken_ms < EVERY_MS:
            return
        self._taken_ms = now_ms
        self.waiting.add(now_ms, float(sum(band.tasks for band in row.pending)))
        self.running.add(now_ms, float(sum(row.tasks_by_state.get(state, 0) for state in RUNNING)))
        since = [band.pending_since_ms for band in row.pending if band.pending_since_ms]
        self.wait_ms.add(now_ms, float(max(now_ms - min(since), 0)) if since else 0.0)
        if row.total.cpu_millicores:
            self.cpu_pct.add(now_ms, 100 * row.committed.cpu_millicores / row.total.cpu_millicores)
        total = sum(device.total for device in row.devices)
        if total:
            held = total - sum(device.free for device in row.devices)
            self.devices_pct.add(now_ms, 100 * held / total)

    def gap(self, now_ms: int) -> None:
        """Nobody watched from here on."""
        self._taken_ms = 0
        for samples in self.all():
            samples.add(now_ms, None)

    def _take_ends(self, row: FleetRow) -> None:
        counts = tuple(row.ends.failures_by_minute)
        if (counts, row.ends.minute_started_ms) == self._ends or not counts:
            return
        self._ends = (counts, row.ends.minute_started_ms)
        first = row.ends.minute_started_ms - (len(counts) - 1) * MINUTE_MS
        self.failures = Samples((first + number * MINUTE_MS, float(count)) for number, count in enumerate(counts))

    def sql(self, now_ms: int) -> str:
        """What asks the log store for the time before this."""
        since = (now_ms - BACK_MS) // 1000
        return (
            "SELECT epoch_ms(ts) AS at, pending, assigned + building + running AS running, oldest_pending_age_ms "
            f"FROM iris.task_state WHERE root_job_id = '' AND ts > to_timestamp({since}) ORDER BY ts"
        )

    def fill(self, answer: QueryResponse) -> None:
        """Take in what the log store held. Raises ValueError: it is not the answer to `sql`."""
        from iris_core.wire.rows import values_of

        if [column.name for column in answer.columns] != ["at", "pending", "running", "oldest_pending_age_ms"]:
            raise ValueError("the log store answered with other columns")
        at, pending, running, oldest = (list(values_of(column)) for column in answer.columns)
        for samples, values in ((self.waiting, pending), (self.running, running), (self.wait_ms, oldest)):
            samples.put_before(_with_gaps(zip(at, values, strict=True)))


def _with_gaps(rows: Iterable[tuple[int, int | None]]) -> Iterator[tuple[int, float | None]]:
    """The values; nothing is known between two rows that lie far apart: nobody wrote them."""
    before = 0
    for at_ms, value in rows:
        if before and at_ms - before > SILENT_MS:
            yield before + 1, None
        before = at_ms
        yield at_ms, float(value or 0)
