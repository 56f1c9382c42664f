"""Work on the event loop that is done in pieces, so that requests and ticks come in between.

Such work is a generator that yields wherever it may be interrupted, and returns what it found. Whatever it goes through it has to hold itself:
the model changes in between. Must never leave the loop: a thread would take turns with it instead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]

PIECE_S: Final = 0.005


async def in_pieces(steps: Steps[T], piece_s: float = PIECE_S) -> T:
    """Does the work, letting others run after each `piece_s` of it; returns its outcome."""
    until = time.perf_counter() + piece_s
    while True:
        try:
            next(steps)
        except StopIteration as done:
            outcome: T = done.value
            return outcome
        if time.perf_counter() >= until:
            await asyncio.sleep(0)
            until = time.perf_counter() + piece_s


def at_once(steps: Steps[T]) -> T:
    """Does the work in one piece."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            outcome: T = done.value
            return outcome
