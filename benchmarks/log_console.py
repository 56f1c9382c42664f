"""The console's log screen over a log store, in a process of its own: how long the first page and random jumps take, and its memory.

`python -m benchmarks.log_console ADDRESS KEY LINES` prints the figures as JSON. The jobs are those of a cluster that exists only in memory;
the lines come over gRPC. Drawn on a screen of 120 by 40, without a terminal.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from iris_core.client.aio import GrpcAsyncClient
from iris_core.client.endpoint import parse_url
from iris_core.live.clock import SystemClock
from iris_tui.app import IrisApp
from iris_tui.session import Session
from providers.fake.client import FakeClient
from screens.logs import LogsScreen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from iris_core.contracts import R

JUMPS = 200
POLL_S = 0.001


class Split:
    """LogService over gRPC, everything else in memory (`contracts.AsyncClient`)."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._fake = FakeClient()
        self._real = GrpcAsyncClient(parse_url(url))

    async def call(self, method: str, request: Any, response: type[R], *, timeout_s: float = 30.0) -> R:
        client: Any = self._real if method.startswith("LogService/") else self._fake
        found: R = await client.call(method, request, response, timeout_s=timeout_s)
        return found

    async def stream(self, method: str, request: Any, response: type[R]) -> AsyncIterator[R]:
        client: Any = self._real if method.startswith("LogService/") else self._fake
        async for answer in client.stream(method, request, response):
            yield answer

    async def close(self) -> None:
        await self._real.close()
        await self._fake.close()


async def until(condition: Callable[[], object]) -> None:
    """Looks every millisecond."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)


async def measure(url: str, key: str, lines: int) -> dict[str, float]:
    """The figures: milliseconds and megabytes."""

    async def connect() -> Any:
        return Split(url)

    app = IrisApp(Session("bench", connect, SystemClock()))
    async with app.run_test(size=(120, 40)):
        await until(lambda: app.console_screen is not None and app.session.role)
        began = time.perf_counter()
        app.go("logs", key)
        await until(lambda: isinstance(app.screen, LogsScreen))
        screen = app.screen
        assert isinstance(screen, LogsScreen)
        pane = screen.pane

        def is_drawn() -> bool:
            rows = pane.lines.rows()
            return bool(rows) and all(pane.view.line(row.number) is not None for row in rows)

        async def drawn() -> float:
            await until(is_drawn)
            pane.flush()
            for y in range(pane.lines.height):
                pane.lines.render_line(y)
            return time.perf_counter()

        first_ms = (await drawn() - began) * 1000
        await pane.view.whole()
        whole_ms = (time.perf_counter() - began) * 1000
        assert pane.view.count == lines, f"{pane.view.count:,} of {lines:,} lines"
        chance = random.Random(22)
        took = []
        for _ in range(JUMPS):
            number = chance.randrange(lines)
            began = time.perf_counter()
            pane.go_to(number)
            took.append((await drawn() - began) * 1000)
        cuts = quantiles(took, n=100)
    return {
        "first_ms": first_ms, "whole_ms": whole_ms, "jump_p50_ms": cuts[49], "jump_p99_ms": cuts[98],
    }  # fmt: skip


if __name__ == "__main__":
    figures = asyncio.run(measure(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    figures["rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(json.dumps(figures))
