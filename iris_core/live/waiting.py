"""Waiting for whichever comes first, without ever being held up by what does not want to end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

END_S: Final = 0.5
"""How long a cancelled wait gets to end."""


async def first_of(*waits: Awaitable[Any]) -> None:
    """Wait until one is done, then cancel the others. A future passed in can be asked for its result afterwards."""
    tasks = {asyncio.ensure_future(wait) for wait in waits}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        running = {task for task in tasks if not task.done()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=END_S)
