"""The real finelog process for tests: started, asked, killed, and in the end gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc

from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2
from iris_core.wire.services import method

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXACT = common_pb2.MATCH_SCOPE_EXACT
PREFIX = common_pb2.MATCH_SCOPE_PREFIX
DEADLINE = 100.0
OPTIONS = (
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    # How long one attempt may take, in spite of its name: a busy controller answers late.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 200),
)


class Finelog:
    """One data folder and the process that serves it, over and over again."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.data_dir = folder / "logs"
        self.endpoint_file = folder / "finelog.json"
        self.said: list[str] = []
        """Its standard error, all starts together."""
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._channel: grpc.Channel | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    @property
    def endpoint(self) -> dict[str, Any]:
        """What the endpoint file says."""
        found: dict[str, Any] = json.loads(self.endpoint_file.read_text())
        return found

    @property
    def address(self) -> str:
        return f"{self.endpoint['host']}:{self.endpoint['port']}"

    def command(self, *more: str) -> list[str]:
        """The command line of another one on the same folder."""
        return [
            sys.executable, "-m", "iris_controller.finelog.main", "serve", "--data-dir", str(self.data_dir),
            "--endpoint-file", str(self.endpoint_file), *self._options, *more,
        ]  # fmt: skip

    def start(self) -> None:
        """Returns when it is ready."""
        self.endpoint_file.unlink(missing_ok=True)
        process = subprocess.Popen(self.command(), stderr=subprocess.PIPE, text=True)
        ready = threading.Event()

        def read() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                self.said.append(line.rstrip("\n"))
                if "finelog serves" in line:
                    ready.set()
            ready.set()

        self._process = process
        self._reader = threading.Thread(target=read)
        self._reader.start()
        assert ready.wait(DEADLINE), "finelog did not get ready"
        assert process.poll() is None, self.said
        self._channel = grpc.insecure_channel(self.address, options=OPTIONS)

    def kill(self) -> None:
        """SIGKILL, and the end."""
        self.process.kill()
        assert self._ended() == -signal.SIGKILL

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.process.terminate()
        return self._ended()

    def _ended(self) -> int:
        code = self.process.wait(DEADLINE)
        if self._reader is not None:
            self._reader.join(DEADLINE)
        if self.process.stderr is not None:
            self.process.stderr.close()
        if self._channel is not None:
            self._channel.close()
        self._process = self._channel = None
        return code

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def stub(self, name: str) -> Any:
        """One method as gRPC has it, of LogService if none is named."""
        assert self._channel is not None
        found = method(name if "/" in name else f"LogService/{name}")
        return self._channel.unary_unary(
            found.path,
            request_serializer=found.request.SerializeToString,
            response_deserializer=found.response.FromString,
        )

    def call(self, name: str, timeout: float = DEADLINE) -> Any:
        """One method: request in, response out."""
        stub = self.stub(name)
        return lambda request: stub(request, timeout=timeout)

    def push(self, *batches: logs_pb2.LogBatch) -> dict[str, int]:
        """Pushes; the marks of the producers."""
        answer: logs_pb2.PushLogsResponse = self.call("PushLogs")(logs_pb2.PushLogsRequest(batches=batches))
        return {mark.producer: mark.next_number for mark in answer.marks}

    def fetch(self, source: str, **fields: Any) -> logs_pb2.FetchLogsResponse:
        """One answer."""
        fields.setdefault("match_scope", EXACT)
        answer: logs_pb2.FetchLogsResponse = self.call("FetchLogs")(logs_pb2.FetchLogsRequest(source=source, **fields))
        return answer

    def page(self, source: str, **fields: Any) -> list[logs_pb2.StoredLine]:
        """All lines, page by page."""
        found: list[logs_pb2.StoredLine] = []
        cursor = 0
        while True:
            answer = self.fetch(source, cursor=cursor, **fields)
            found += answer.entries
            cursor = answer.cursor
            if cursor >= answer.last_seq:
                return found

    def rss_bytes(self) -> int:
        """Its memory."""
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def finelog(folder: Path, *options: str) -> Iterator[Finelog]:
    """A running finelog; at the end it stops on SIGTERM with exit code 0 and said nothing of a fault of its own."""
    running = Finelog(folder, *options)
    running.start()
    try:
        yield running
        if running.is_running:
            assert running.stop() == 0, running.said
        assert not [line for line in running.said if "Traceback" in line or "internal error" in line], running.said
    finally:
        if running.is_running:
            running.kill()
