"""Child processes started beside the loop: what they say arrives, and none is left behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from iris_controller.children import Child

Run = Callable[[Coroutine[Any, Any, None]], None]
LOOPS: list[Run] = [asyncio.run, uvloop.run]

DEADLINE_S = 30.0
ECHO = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdout.write(sys.stdin.read().upper())"]
WAIT = [sys.executable, "-I", "-S", "-c", "print('here', flush=True); import time; time.sleep(600)"]


@pytest.mark.parametrize("run", LOOPS)
def test_a_long_question_is_answered(run: Run) -> None:
    async def main() -> None:
        child = await Child.start(ECHO, env={}, cwd="/")
        assert await child.communicate(b"word " * 100_000) == b"WORD " * 100_000
        assert child.returncode == 0
        await child.end()

    run(main())


@pytest.mark.parametrize("run", LOOPS)
def test_one_that_reads_nothing_is_no_error(run: Run) -> None:
    async def main() -> None:
        child = await Child.start([sys.executable, "-I", "-S", "-c", "print('no')"])
        assert await child.communicate(b"word " * 100_000) == b"no\n"

    run(main())


@pytest.mark.parametrize("run", LOOPS)
def test_one_that_runs_is_ended(run: Run) -> None:
    async def main() -> None:
        child = await Child.start(WAIT)
        assert await child.stdout.readline() == b"here\n"
        assert child.returncode is None
        await child.end()
        assert child.returncode == -9
        await child.end()
        assert await child.communicate(b"too late") == b""

    run(main())


def test_what_does_not_exist_cannot_be_started() -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(Child.start(["/nowhere/at/all"]))


def test_a_start_that_nobody_waits_for_any_more_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()
    started: list[subprocess.Popen[bytes]] = []
    original = subprocess.Popen

    def slow(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        begun.set()
        assert go.wait(DEADLINE_S)
        started.append(original(*words, **options))
        return started[-1]

    async def main() -> None:
        starting = asyncio.ensure_future(Child.start(WAIT))
        await asyncio.to_thread(begun.wait, DEADLINE_S)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        go.set()

    monkeypatch.setattr(subprocess, "Popen", slow)
    asyncio.run(main())
    assert [process.returncode for process in started] == [-9]
