"""The log server that operators know, started from its module in an environment of its own and spoken to over its HTTP.

A black box: only its public class and its JSON calls are used. Knows nothing of reports.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.finelog_ingest import CLIENTS, LINES, PER_PUSH, key, request
from benchmarks.yardsticks import existing_finelog

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 60.0
SERVICE = "/finelog.logging.LogService"
_START = """
import sys
import finelog_server
server = finelog_server.EmbeddedServer(log_dir=sys.argv[1], remote_log_dir=sys.argv[2], host="127.0.0.1", port=0)
print(server.port, flush=True)
sys.stdin.read()
server.stop()
"""


class Existing:
    """A running one."""

    def __init__(self, port: int, pid: int, version: str) -> None:
        self.name = f"existing finelog {version}"
        self.process = psutil.Process(pid)
        self._port = port
        self._kept = threading.local()

    def call(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """One method."""
        connection = getattr(self._kept, "connection", None)
        if connection is None:
            connection = self._kept.connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60.0)
        connection.request("POST", f"{SERVICE}/{name}", json.dumps(body), _JSON)
        answer = connection.getresponse()
        told = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the existing finelog answered {answer.status}: {told[:200]!r}")
        found: dict[str, Any] = json.loads(told)
        return found

    def ingest(self, lines: int = LINES) -> float:
        """Pushes the lines that ours gets as well; returns seconds of its processor time."""
        before = sum(self.process.cpu_times()[:2])
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda client: self._push_all(client, lines), range(CLIENTS)))
        return sum(self.process.cpu_times()[:2]) - before

    def _push_all(self, client: int, lines: int) -> None:
        for first in range(0, lines // CLIENTS, PER_PUSH):
            entries = [
                {
                    "timestamp": {"epochMs": str(entry.epoch_ms)},
                    "source": entry.source,
                    "data": entry.data,
                    "level": entry.level,
                }
                for entry in request(client, 0, first).batches[0].entries
            ]
            self.call("PushLogs", {"key": key(client), "entries": entries})

    def tail(self, source: str, lines: int) -> float:
        """The last lines of one log; returns milliseconds."""
        began = time.perf_counter()
        answer = self.call("FetchLogs", {"source": source, "matchScope": 1, "tail": True, "maxLines": lines})
        took = (time.perf_counter() - began) * 1000
        if len(answer.get("entries", ())) != lines:
            raise RuntimeError(f"the existing finelog answered with {len(answer.get('entries', ()))} lines")
        return took


_JSON = {"content-type": "application/json"}


@contextmanager
def existing() -> Iterator[Existing]:
    """A fresh one, gone at the end. Raises Unavailable."""
    python, version = existing_finelog()
    with tempfile.TemporaryDirectory(prefix="existing-finelog") as folder:
        argv = [str(python), "-c", _START, f"{folder}/logs", f"{folder}/archive"]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None and process.stdout is not None
        try:
            yield Existing(int(process.stdout.readline()), process.pid, version)
        finally:
            process.stdin.close()
            process.wait(START_S)
