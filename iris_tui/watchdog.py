"""Whether the console keeps up: how late its loop is, what held it up, and whether the machine slept.

A beat on the loop notes how late it is; a thread beside it looks at the loop's stack while a beat is overdue, because afterwards nobody
can say what ran. What was late goes into a ring, with names of functions and never with a value. A jump of time (a laptop that slept,
a stopped process) is no lateness: it is told to whoever connects anew.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

BEAT_S: Final = 0.1
LATE_S: Final = 0.25
"""A beat that is later than this is worth a line."""
SLEPT_S: Final = 10.0
"""A jump of time at least this long means that nothing of us ran."""
MOST: Final = 100
FRAMES: Final = 4
_ROOT: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Late:
    """One time that the loop was late: when (epoch ms), by how many ms, and what ran."""

    at_ms: int
    late_ms: int
    ran: str


class Lateness:
    """The beats so far. Times are seconds of one clock; nothing here reads a clock."""

    def __init__(self) -> None:
        self.ring: deque[Late] = deque(maxlen=MOST)
        self.late = 0
        """How often it was late so far."""
        self.worst_ms = 0
        self.beats = 0
        self.sleeps = 0

    def beat(self, late_s: float, slept_s: float, at_ms: int, ran: str) -> bool:
        """Note one beat; `slept_s` is how much of the delay nothing of us ran. Returns whether the machine slept."""
        self.beats += 1
        if slept_s >= SLEPT_S:
            self.sleeps += 1
            return True
        if late_s > LATE_S:
            self.late += 1
            self.worst_ms = max(self.worst_ms, round(late_s * 1000))
            self.ring.append(Late(at_ms, round(late_s * 1000), ran or "unknown"))
        return False


def stack_words(frame: FrameType | None) -> str:
    """The innermost functions of a stack, those of this program first: `JobsScreen.flush (jobs.py:87) < ConsoleScreen.flush_now (screen.py:142)`."""
    found: list[str] = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        ours = path.is_relative_to(_ROOT) and ".venv" not in path.parts
        if ours or not found:
            found.append(f"{frame.f_code.co_qualname} ({path.name}:{frame.f_lineno})")
        if len(found) > FRAMES:
            break
        frame = frame.f_back
    return " < ".join(found[:FRAMES])


class Watchdog:
    """Run `run()` on the loop that is watched; cancel the task to end it."""

    def __init__(self, *, slept: Callable[[], None], each: Callable[[], None]) -> None:
        """`slept` is called after the machine slept, `each` with every beat."""
        self.lateness = Lateness()
        self._slept = slept
        self._each = each
        self._beat_at = 0.0
        self._ran = ""
        self._looked_at = 0.0
        self._ended = threading.Event()

    async def run(self) -> None:
        """Beat until it is cancelled."""
        loop_thread = threading.get_ident()
        self._beat_at = time.monotonic()
        threading.Thread(target=self._look, args=(loop_thread,), name="watchdog", daemon=True).start()
        asleep = _asleep_s()
        try:
            while True:
                due = time.monotonic() + BEAT_S
                await asyncio.sleep(BEAT_S)
                now = time.monotonic()
                before, asleep = asleep, _asleep_s()
                # A stopped process loses the clock's time as well, and its thread sees nothing meanwhile.
                stopped = now - due if now - due >= SLEPT_S and not self._ran else 0.0
                if self.lateness.beat(now - due, max(asleep - before, stopped), time.time_ns() // 1_000_000, self._ran):
                    self._slept()
                self._ran = ""
                self._beat_at = now
                self._each()
        finally:
            self._ended.set()

    def _look(self, loop_thread: int) -> None:
        waits_since = time.monotonic()
        while not self._ended.wait(BEAT_S):
            now = time.monotonic()
            stopped, waits_since = now - waits_since >= SLEPT_S, now
            overdue = now - self._beat_at - BEAT_S
            if overdue > LATE_S and not stopped and self._looked_at != self._beat_at:
                self._looked_at = self._beat_at
                self._ran = stack_words(sys._current_frames().get(loop_thread))


def _asleep_s() -> float:
    """How long the machine slept since it was started, as far as it can be known."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return 0.0 if clock is None else time.clock_gettime(clock) - time.monotonic()
