"""The processes in which queries run: a new one for each, and one started ahead, since half of a query's time is an interpreter's start.

A child has been told nothing before its query, and ends with it, so that no query sees what another one left. The one started ahead is
there only while somebody asks queries. Must never run two queries in one process.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Final

from iris_controller.children import Child
from iris_controller.store import query_child

UNUSED_S: Final = 600.0
"""After so long without a query none is kept ahead."""


class QueryChildren:
    """See the module."""

    def __init__(self, unused_s: float = UNUSED_S) -> None:
        self._unused_s = unused_s
        self._spare: Child | None = None
        self._used = asyncio.Event()

    async def keep_spare(self) -> None:
        """Keeps one started ahead from the first query on, for ever. While this does not run, each query waits for its own to start."""
        try:
            while True:
                try:
                    async with asyncio.timeout(self._unused_s if self._spare else None):
                        await self._used.wait()
                except TimeoutError:
                    await self._end_spare()
                    continue
                self._used.clear()
                if self._spare is None:
                    # Where none can be started now, the next query will say why.
                    with contextlib.suppress(OSError):
                        self._spare = await _start()
        finally:
            await self._end_spare()

    async def ask(self, question: bytes, timeout_s: float) -> bytes:
        """What a child that read the question wrote until its end; nothing, if it was ended. Raises TimeoutError, OSError."""
        spare, self._spare = self._spare, None
        child = spare if spare is not None and spare.returncode is None else await _start()
        try:
            async with asyncio.timeout(timeout_s):
                return await child.communicate(question)
        finally:
            await child.end()
            self._used.set()

    async def _end_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            await spare.end()


async def _start() -> Child:
    return await Child.start([sys.executable, "-I", "-S", str(Path(query_child.__file__))], env={}, cwd="/")
