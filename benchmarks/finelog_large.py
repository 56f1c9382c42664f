"""A finelog with 20 million lines of 500 logs in it: the size at which latencies are told. Knows nothing of reports.

Five hundred tasks print for a long time; a few that ended long ago have short logs among them. `BENCH_SCALE` shrinks it.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.finelog_ingest import CLIENTS, LINE_BYTES, server
from iris_core.wire.gen.iris.v1 import logs_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.finelog_ingest import Server

LINES = 20_000_000
LOGS = 500
PER_PUSH = 8_000
PER_BATCH = 200
ENDED_LINES = 2_000


@contextmanager
def large() -> Iterator[tuple[Server, int, str]]:
    """The server when nothing is left to do for it, the number of lines, and the log of a task that runs."""
    lines = int(LINES * float(os.environ.get("BENCH_SCALE", "1")))
    with server() as finelog:
        print(f"      pushing {lines:,} lines of {LOGS} logs", flush=True)
        done = 0
        numbers = [0] * LOGS
        ended = batch("/bench/ended/0:0", "ended", 0, ENDED_LINES)
        finelog.push_all([logs_pb2.PushLogsRequest(batches=[ended])])
        while done < lines:
            pushes = []
            for client in range(CLIENTS):
                # A producer pushes from one client only, so that its lines come in their order.
                found = logs_pb2.PushLogsRequest()
                for place in range(PER_PUSH // PER_BATCH):
                    log = (done // PER_BATCH // CLIENTS + place) * CLIENTS % (LOGS - LOGS % CLIENTS) + client
                    found.batches.append(batch(f"/bench/job/{log}:0", f"t{log}", numbers[log], PER_BATCH))
                    numbers[log] += PER_BATCH
                pushes.append(found)
            finelog.push_all(pushes)
            done += PER_PUSH * CLIENTS
        finelog.settle()
        yield finelog, done, "/bench/job/77:0"


def batch(key: str, producer: str, first: int, count: int) -> logs_pb2.LogBatch:
    """Lines of one task."""
    made = logs_pb2.LogBatch(producer=producer, key=key, attempt_uid=producer, incarnation=1)
    for number in range(first, first + count):
        text = f"I1129 17:00:00 step {number} of {producer} loss={number % 977 / 977:.6f} tokens/s={number % 7919} "
        made.entries.add(
            number=number,
            epoch_ms=1_700_000_000_000 + number * 50,
            source="stdout",
            data=text.ljust(LINE_BYTES, "."),
            level=2,
        )
    return made
