"""A controller's port with a hundred thousand running jobs that change as fast as it is told: what a console is measured against.

`python -m benchmarks.live_rows ROWS` prints its port and then does what lines on its input say: `rate N` (changes a second, in ten messages;
0 = only heartbeats). A real controller would take more of the two cores for so many changes than the console that is to be measured.
All it sends was made before; `Scripted` starts and ends it.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final, Self

from benchmarks.live_names import name
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

PAGE_ROWS: Final = 2_000
A_SECOND: Final = 10
HOT: Final = 40
"""So many of the first rows, which are on the screen, change ten times as often as others."""
MESSAGES: Final = 60
HEARTBEAT_S: Final = 5.0


def job(number: int, failures: int, submitted_at_ms: int) -> pb.JobStatus:
    """A row."""
    made = pb.JobStatus(
        job_id=name(number), name=name(number).rpartition("/")[2], state=common.JOB_STATE_RUNNING, user_id="ada", submitting_user="ada",
        submitted_at_ms=submitted_at_ms, started_at_ms=submitted_at_ms + 500, num_tasks=2, failure_count=failures, incarnation=submitted_at_ms,
        priority_band=common.PRIORITY_BAND_INTERACTIVE,
    )  # fmt: skip
    made.task_counts.add(state=common.TASK_STATE_RUNNING, count=1)
    made.task_counts.add(state=common.TASK_STATE_SUCCEEDED, count=1)
    return made


class Rows:
    """What is sent, as bytes."""

    def __init__(self, rows: int) -> None:
        self._began_ms = time.time_ns() // 1_000_000
        self.rate = 0
        self.rated = asyncio.Event()
        self._rows = rows
        self._deltas: dict[int, list[bytes]] = {}
        self.snapshot = self._pages(rows)

    def _job(self, number: int, failures: int) -> pb.JobStatus:
        """Submitted a second after the one before, so that the ages of the newest change with every second."""
        return job(number, failures, self._began_ms - (self._rows - number) * 1000)

    def _pages(self, rows: int) -> list[bytes]:
        pages = []
        for first in range(0, rows, PAGE_ROWS):
            page = pb.WatchResponse()
            page.snapshot.rows.selector_id = "jobs"
            page.snapshot.rows.jobs.extend(
                self._job(number, 0) for number in range(first, min(first + PAGE_ROWS, rows))
            )
            page.snapshot.total_count = rows
            page.snapshot.revision.n = 1
            page.snapshot.last = first + PAGE_ROWS >= rows
            pages.append(page.SerializeToString())
        return pages

    def deltas(self) -> list[bytes]:
        """Messages for a tenth of a second each at this rate."""
        count = self.rate // A_SECOND
        if count not in self._deltas:
            dice = random.Random(count)
            self._deltas[count] = [self._delta(dice, count, number) for number in range(MESSAGES)]
        return self._deltas[count]

    def _delta(self, dice: random.Random, count: int, failures: int) -> bytes:
        made = pb.WatchResponse()
        hot = min(count // 100, HOT)
        changed = {self._rows - 1 - dice.randrange(HOT) for _ in range(hot)}
        changed.update(dice.randrange(self._rows) for _ in range(count - hot))
        rows = made.delta.rows.add(selector_id="jobs")
        rows.jobs.extend(self._job(number, failures % 9) for number in sorted(changed))
        made.delta.revision.n = 2
        return made.SerializeToString()

    async def watch(self) -> AsyncIterator[bytes]:
        """One subscription, for ever."""
        for page in self.snapshot:
            yield page
        heartbeat = pb.WatchResponse()
        heartbeat.heartbeat.revision.n = 2
        loop = asyncio.get_running_loop()
        number = 0
        while True:
            if self.rate:
                due = loop.time() + 1 / A_SECOND
                deltas = self.deltas()
                yield deltas[number % len(deltas)]
                number += 1
                await asyncio.sleep(due - loop.time())
            else:
                yield heartbeat.SerializeToString()
                self.rated.clear()
                try:
                    await asyncio.wait_for(self.rated.wait(), HEARTBEAT_S)
                except TimeoutError:
                    continue


async def serve(rows: int) -> None:
    """Until its input ends."""
    import grpc.aio

    made = Rows(rows)
    who = pb.GetCurrentUserResponse(user_id="ada", role="admin").SerializeToString()

    async def current_user(request: bytes, context: Any) -> bytes:
        return who

    async def watch(request: bytes, context: Any) -> AsyncIterator[bytes]:
        async for message in made.watch():
            yield message

    server = grpc.aio.server()
    service = grpc.method_handlers_generic_handler(
        "iris.v1.ControllerService",
        {
            "GetCurrentUser": grpc.unary_unary_rpc_method_handler(current_user),
            "Watch": grpc.unary_stream_rpc_method_handler(watch),
        },
    )
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        made.rate = int(line.split()[1])
        if made.rate:
            made.deltas()
        made.rated.set()
        print("done", flush=True)
    await server.stop(0)


class Scripted:
    """The process. `url` is where it listens."""

    def __init__(self, rows: int) -> None:
        words = [sys.executable, "-m", "benchmarks.live_rows", str(rows)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{int(self._said())}"

    def _said(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError("the scripted controller ended")
        return line

    def rate(self, a_second: int) -> None:
        """So many changes a second from now on."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"rate {a_second}\n")
        self._process.stdin.flush()
        self._said()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
