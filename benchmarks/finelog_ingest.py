"""A finelog process of its own with a known amount of log in it: what T4 and T5 measure. Knows nothing of reports."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import grpc
import psutil

from iris_core.wire.gen.iris.v1 import logs_pb2
from iris_core.wire.services import method

if TYPE_CHECKING:
    from collections.abc import Iterator

LINES = 1_000_000
PER_PUSH = 5_000
LINE_BYTES = 130
CLIENTS = 8
START_S = 30.0
QUIET_SECONDS = 4
IDLE_CPU_S = 0.05
"""Less in a second is nothing."""


@dataclass(frozen=True, slots=True)
class Ingest:
    """What it took to have `lines` acknowledged."""

    lines: int
    wall_s: float
    server_cpu_s: float
    push_p50_ms: float
    push_p99_ms: float
    memory_mb: float

    @property
    def lines_per_core_second(self) -> float:
        """From the request's bytes to the acknowledgement after the sync."""
        return self.lines / self.server_cpu_s


class Server:
    """A running finelog."""

    def __init__(self, address: str, pid: int, folder: Path) -> None:
        self.address = address
        self.folder = folder
        self.process = psutil.Process(pid)
        options = [("grpc.max_receive_message_length", 16 << 20), ("grpc.use_local_subchannel_pool", 1)]
        # A connection for each client, as from as many workers.
        self._channels = [grpc.insecure_channel(address, options=options) for _ in range(CLIENTS)]

    def call(self, name: str, client: int = 0) -> Any:
        """One method for one client."""
        found = method(f"LogService/{name}")
        return self._channels[client].unary_unary(
            found.path,
            request_serializer=found.request.SerializeToString,
            response_deserializer=found.response.FromString,
        )

    def ingest(self, lines: int = LINES, round_: int = 0) -> Ingest:
        """Pushes `lines` from all clients at once, each with a producer of its own."""
        pushes = [
            [request(client, round_, first) for first in range(0, lines // CLIENTS, PER_PUSH)]
            for client in range(CLIENTS)
        ]
        cpu_before, began = sum(self.process.cpu_times()[:2]), time.perf_counter()

        def run(client: int) -> list[float]:
            push, took = self.call("PushLogs", client), []
            for one in pushes[client]:
                at = time.perf_counter()
                push(one)
                took.append((time.perf_counter() - at) * 1000)
            return took

        with ThreadPoolExecutor(CLIENTS) as pool:
            took = [ms for one in pool.map(run, range(CLIENTS)) for ms in one]
        wall_s = time.perf_counter() - began
        cuts = quantiles(took, n=100)
        return Ingest(
            lines=sum(len(one.batches[0].entries) for client in pushes for one in client),
            wall_s=wall_s,
            server_cpu_s=sum(self.process.cpu_times()[:2]) - cpu_before,
            push_p50_ms=cuts[49],
            push_p99_ms=cuts[98],
            memory_mb=self.process.memory_info().rss / 1e6,
        )

    def push_all(self, pushes: list[logs_pb2.PushLogsRequest]) -> None:
        """Pushes at once, each from a client of its own."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda one: self.call("PushLogs", one[0])(one[1]), enumerate(pushes)))

    def settle(self) -> float:
        """Waits until it has nothing left to do in the background; returns the seconds of processor time it has used in all."""
        used = sum(self.process.cpu_times()[:2])
        quiet = 0
        while quiet < QUIET_SECONDS:
            time.sleep(1)
            now = sum(self.process.cpu_times()[:2])
            quiet = quiet + 1 if now - used < IDLE_CPU_S else 0
            used = now
        return used

    def fetch(self, **fields: Any) -> tuple[logs_pb2.FetchLogsResponse, float]:
        """One answer, and its milliseconds."""
        began = time.perf_counter()
        answer: logs_pb2.FetchLogsResponse = self.call("FetchLogs")(logs_pb2.FetchLogsRequest(**fields))
        return answer, (time.perf_counter() - began) * 1000

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


def key(client: int) -> str:
    """The log of one client."""
    return f"/bench/job/{client}:0"


def request(client: int, round_: int, first: int) -> logs_pb2.PushLogsRequest:
    """`PER_PUSH` lines of `LINE_BYTES` each."""
    producer = f"r{round_}c{client}"
    batch = logs_pb2.LogBatch(producer=producer, key=key(client), attempt_uid=producer, incarnation=1)
    for number in range(first, first + PER_PUSH):
        text = f"I1129 17:00:00 step {number} rank {client} loss={number % 977 / 977:.6f} tokens/s={number % 7919} "
        batch.entries.add(
            number=number,
            epoch_ms=1_700_000_000_000 + number,
            source="stdout",
            data=text.ljust(LINE_BYTES, "."),
            level=2,
        )
    return logs_pb2.PushLogsRequest(batches=[batch])


@contextmanager
def server() -> Iterator[Server]:
    """A fresh one, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="finelog-bench") as folder:
        endpoint = Path(folder) / "endpoint.json"
        argv = [sys.executable, "-m", "iris_controller.finelog.main", "serve", "--data-dir", f"{folder}/logs"]
        with open(Path(folder) / "finelog.log", "wb") as said:
            process = subprocess.Popen([*argv, "--endpoint-file", str(endpoint)], stderr=said)
        try:
            until = time.monotonic() + START_S
            while not endpoint.exists():
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"finelog did not start: {(Path(folder) / 'finelog.log').read_text()[-500:]}")
                time.sleep(0.01)
            told = json.loads(endpoint.read_text())
            running = Server(f"{told['host']}:{told['port']}", told["pid"], Path(folder) / "logs")
            try:
                yield running
            finally:
                running.close()
        finally:
            process.terminate()
            process.wait(START_S)
