"""One reading of the process table for everybody who asks at the same time.

Where no control group can be written, every attempt that ends and every memory limit needs the table. Reading it costs
milliseconds on a busy host, so it happens in a thread and askers share the next reading that starts after they asked.
"""

from __future__ import annotations

import asyncio

from iris_controller.worker import procs


class ProcessTable:
    """See the module."""

    def __init__(self) -> None:
        self._asked: dict[str, procs.Wanted] = {}
        self._next: asyncio.Future[dict[str, set[procs.Proc]]] | None = None
        self._lock = asyncio.Lock()

    async def members(self, wanted: procs.Wanted) -> set[procs.Proc]:
        """The living processes of the attempt, as of now."""
        self._asked[wanted.uid] = wanted
        if self._next is None:
            self._next = asyncio.ensure_future(self._read())
        return (await asyncio.shield(self._next)).get(wanted.uid, set())

    async def _read(self) -> dict[str, set[procs.Proc]]:
        async with self._lock:
            asked, self._asked, self._next = self._asked, {}, None
            return await asyncio.to_thread(_members, list(asked.values()))


def _members(wanted: list[procs.Wanted]) -> dict[str, set[procs.Proc]]:
    return procs.members(procs.snapshot(), wanted)
