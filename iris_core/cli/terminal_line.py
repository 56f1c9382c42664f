"""A line that somebody types at the terminal while an event loop runs. No thread waits for it: one could not be ended by Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

LONGEST: Final = 4096
"""Bytes; a terminal in line mode gives no more at once."""


async def typed_line(question: str) -> str:
    """The line with its end, "" at the end of the input. May be cancelled."""
    sys.stderr.write(question)
    sys.stderr.flush()
    loop, ready, handle = asyncio.get_running_loop(), asyncio.Event(), sys.stdin.fileno()
    loop.add_reader(handle, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(handle)
    return os.read(handle, LONGEST).decode(errors="replace")
