"""How long a controller does not answer while it is replaced, measured by asking it all the time.

It belongs to the run that stops the controller: one that goes on after a kill has not seen the whole of it, and says so. Must never be
what anything waits for: a measurement that fails is no measurement, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

EVERY_S: Final = 0.05
PATIENCE_S: Final = 5.0
"""What `result` waits for an answer that is on its way."""


class Downtime:
    """`answers` says whether the controller answers now, within a second or so; it may block, and any failure of it is a no."""

    def __init__(
        self, answers: Callable[[], bool], monotonic: Callable[[], float] = time.monotonic, *, every_s: float = EVERY_S
    ) -> None:
        self._answers = answers
        self._every_s = every_s
        self._monotonic = monotonic
        self._task: asyncio.Task[None] | None = None
        self._seconds: float | None = None
        self._away = False

    def start(self) -> None:
        """Begin to ask, until it has been away and is back."""
        self.stop()
        self._seconds, self._away = None, False
        self._task = asyncio.get_running_loop().create_task(self._run(), name="downtime")

    def stop(self) -> None:
        """Ask no more; what was measured stays."""
        if self._task is not None:
            self._task.cancel()

    async def result(self) -> float | None:
        """Seconds between its last answer and its next one, 0 if it always answered; None if nobody looked, or it is still away."""
        task = self._task
        if task is None:
            return None
        if self._away and not task.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(task), PATIENCE_S)
        self.stop()
        return self._seconds if self._away else 0.0

    async def _run(self) -> None:
        last = self._monotonic()
        while True:
            answered = await asyncio.to_thread(self._asked)
            now = self._monotonic()
            if answered and self._away:
                self._seconds = round(now - last, 2)
                return
            if answered:
                last = now
            else:
                self._away = True
            await asyncio.sleep(self._every_s)

    def _asked(self) -> bool:
        try:
            return self._answers()
        except Exception:
            return False
