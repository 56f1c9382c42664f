"""A log in the console over a real log store that is killed while two tasks print: no gap, no duplicate, and never blank."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from iris_core.client.aio import GrpcAsyncClient
from iris_core.client.endpoint import parse_url
from iris_core.live.clock import SystemClock
from iris_core.live.log_query import PREFIX, LogQuery, LogSource
from iris_core.live.log_view import LogView
from tests.integration.served import Served, launch, served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JOB = "/k/console"
SCRIPT = """
import sys, time
for n in range(100_000):
    print(n, flush=True)
    time.sleep(0.01 if n > 1500 else 0)
"""


async def read(environment: Served) -> None:
    client = GrpcAsyncClient(parse_url(environment.url))
    view = LogView(client, tuple(LogSource(f"{JOB}/{rank}", PREFIX, f"{JOB}/{rank}") for rank in (0, 1)), SystemClock())
    task = asyncio.create_task(view.run())
    blank = shown_any = False

    async def until(condition: Callable[[], object]) -> None:
        nonlocal blank, shown_any
        async with asyncio.timeout(60):
            while not condition():
                first = max(view.count - 40, 0) if view.following else view.top
                view.want(first, first + 39)
                blank = blank or (shown_any and not view.count)
                shown_any = shown_any or view.count > 0
                await asyncio.sleep(0.02)

    def lines(first: int, last: int) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for number in range(first, last):
            line = view.line(number)
            if line is not None and line.source == "stdout":
                found[line.key].append(int(line.text))
        return found

    def is_there(first: int, last: int) -> bool:
        return all(view.line(number) is not None for number in range(first, last))

    try:
        await until(lambda: view.is_whole and view.count > 3_000)
        shown = view.count
        environment.finelog().signal(signal.SIGKILL)
        await until(lambda: not view.state.fresh)
        assert view.count >= shown, "what was shown stays while the store is away"
        await until(lambda: view.state.fresh and view.is_whole and view.count > shown + 200)
        assert view.following
        view.follow(False)
        end = view.count
        view.top = end - 250
        await until(lambda: is_there(end - 250, end))
        for numbers in lines(end - 250, end).values():
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        top = lines(end - 250, end - 210)
        environment.finelog().signal(signal.SIGKILL)
        await until(lambda: not view.state.fresh)
        assert lines(end - 250, end - 210) == top, "a reader who paused goes on reading"
        await until(lambda: view.state.fresh and is_there(view.top, view.top + 40) and view.count > end)
        moved = view.take_shift()
        assert lines(view.top, view.top + 40) == top or moved
        hit = await view.find(0, regex="^1499$")
        assert hit is not None and hit.total == 2
        await view.show(LogQuery(regex="^14[0-9]{2}$"))
        await until(lambda: view.facts.complete and view.count == 200)
        assert {key: len(numbers) for key, numbers in lines(0, 200).items()} == {f"{JOB}/0:0": 100, f"{JOB}/1:0": 100}
        assert not blank
    finally:
        task.cancel()
        await client.close()


@pytest.mark.timeout(180)
def test_a_follow_in_the_console_survives_the_death_of_the_log_store(tmp_path: Path) -> None:
    with served(tmp_path) as environment, environment.client() as client:
        launch(client, JOB, [sys.executable, "-c", SCRIPT], replicas=2)
        asyncio.run(read(environment))
