"""One log of ten million lines: as a file, and as the log of a task on a cluster of its own. `BENCH_SCALE` shrinks it. Knows no reports."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from benchmarks import clusters
from benchmarks.finelog_ingest import Server
from iris_core.wire.gen.iris.v1 import logs_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.clusters import Cluster

PER_PUSH: Final = 8_000
LINES: Final = int(10_000_000 * float(os.environ.get("BENCH_SCALE", "1"))) // PER_PUSH * PER_PUSH
LINE_BYTES: Final = 110
FIRST_MS: Final = 1_700_000_000_000
APART_MS: Final = 50
JOB: Final = "/bench/long"


def moment(number: int, zone: str) -> str:
    """When a line was written, with the name of the zone (UTC) behind it."""
    at_ms = FIRST_MS + number * APART_MS
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at_ms // 1000))}.{at_ms % 1000:03}{zone}"


def text(number: int) -> str:
    """What a line says. No two say the same, and none is part of another's beginning."""
    said = f"I step {number} of {LINES}, loss={number % 977 / 977:.6f} tokens/s={number % 7919} "
    return said.ljust(LINE_BYTES, ".")


def needle(number: int) -> str:
    """What is on the screen if that line is."""
    return f" step {number} of "


def write(path: Path) -> None:
    """The file: each line with its time before it."""
    with open(path, "w", buffering=1 << 20) as file:
        for number in range(LINES):
            file.write(f"{moment(number, '')} {text(number)}\n")


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster with a job that has ended, and all lines as the log of its one task; the log store rests."""
    with clusters.ours(workers=1) as running:
        running.wait(running.submit(JOB.rpartition("/")[2], ["true"]))
        # Which of all jobs of this name it is: lines of another are not this job's.
        job = running.call("GetJobStatus", {"jobId": JOB})["job"]
        (endpoint,) = running.home.glob(".local/state/iris/local/**/finelog/endpoint.json")
        told = json.loads(endpoint.read_text())
        store = Server(f"{told['host']}:{told['port']}", told["pid"], endpoint.parent)
        try:
            push = store.call("PushLogs")
            for first in range(0, LINES, PER_PUSH):
                push(logs_pb2.PushLogsRequest(batches=[_batch(first, int(job["incarnation"]))]))
            store.settle()
        finally:
            store.close()
        yield running


def _batch(first: int, incarnation: int) -> logs_pb2.LogBatch:
    made = logs_pb2.LogBatch(producer="long", key=f"{JOB}/0:0", attempt_uid="long", incarnation=incarnation)
    for number in range(first, first + PER_PUSH):
        made.entries.add(
            number=number, epoch_ms=FIRST_MS + number * APART_MS, source="stdout", data=text(number), level=2
        )
    return made
