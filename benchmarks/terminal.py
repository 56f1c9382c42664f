"""A program in a terminal of its own, as a person has it: keys go in, and what it draws is known with the moment at which it came.

A pseudo-terminal, and pyte for what its bytes make of the screen. What was drawn is timed as it is read, in a thread that does nothing
else, and understood afterwards: pyte is slow, and its time must not count as the program's. pyte lies in an environment of its own under
the user's cache folder, as every yardstick does. Knows nothing of Iris.
"""

from __future__ import annotations

import fcntl
import os
import pty
import queue
import signal
import struct
import sys
import termios
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import psutil

from benchmarks import yardsticks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

COLUMNS, ROWS = 120, 40
WITHIN_S = 120.0
UP, DOWN, PAGE_DOWN, END, HOME, ENTER, ESCAPE = b"\x1b[A", b"\x1b[B", b"\x1b[6~", b"\x1b[F", b"\x1b[H", b"\r", b"\x1b"
_SWITCH_S = 0.0005
"""Between the thread that reads and the one that understands, in seconds; Python's own 5 ms would be in every figure."""


class Terminal:
    """One running program. `began` is when it was started, by `time.perf_counter()`; so are all moments here.

    Close it: the program is killed, and waited for.
    """

    def __init__(
        self,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        *,
        columns: int = COLUMNS,
        rows: int = ROWS,
    ) -> None:
        """Starts it. Raises Unavailable: there is no pyte."""
        pyte: Any = yardsticks.pyte()
        self.columns, self.rows = columns, rows
        self._screen: Any = pyte.Screen(columns, rows)
        self._stream: Any = pyte.ByteStream(self._screen)
        self._came: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        self._ended = False
        self._cpu_s = 0.0
        sys.setswitchinterval(_SWITCH_S)
        words = [str(word) for word in argv]
        told = {
            **(os.environ if env is None else env),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
        }
        told.pop("NO_COLOR", None)
        # The size is there before the program is: else it draws twice.
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.began = time.perf_counter()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(master)
                os.login_tty(slave)
                os.execvpe(words[0], words, told)
            finally:
                os._exit(127)
        os.close(slave)
        self._master = master
        self._process = psutil.Process(self.pid)
        threading.Thread(target=self._read, name="terminal", daemon=True).start()

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 1 << 16):
                self._came.put((time.perf_counter(), data))
        except OSError:
            pass  # the program has ended
        self._came.put((time.perf_counter(), b""))

    # --- what is on the screen -----------------------------------------------------------------------------------------

    def until(self, holds: Callable[[Terminal], object], what: str, within_s: float = WITHIN_S) -> float:
        """When the screen was drawn for which that holds first. Raises RuntimeError: it never came."""
        ends = time.perf_counter() + within_s
        at = time.perf_counter()
        while not holds(self):
            try:
                at, data = self._came.get(timeout=max(ends - time.perf_counter(), 0.001))
            except queue.Empty:
                raise RuntimeError(f"{what} never came in {within_s:g} s; the screen was\n{self.text()}") from None
            if not data:
                raise RuntimeError(f"the program ended before {what}; the screen was\n{self.text()}")
            self._take(data)
        return at

    def follow(self, seconds: float) -> None:
        """Takes what it draws for so long."""
        ends = time.perf_counter() + seconds
        while (left := ends - time.perf_counter()) > 0:
            try:
                _, data = self._came.get(timeout=left)
            except queue.Empty:
                return
            self._take(data)

    def quiet(self, seconds: float = 0.3, within_s: float = WITHIN_S) -> None:
        """Waits until nothing was drawn for so long. Raises RuntimeError: it never stopped."""
        ends = time.perf_counter() + within_s
        while time.perf_counter() < ends:
            try:
                _, data = self._came.get(timeout=seconds)
            except queue.Empty:
                return
            self._take(data)
        raise RuntimeError(f"it never stopped drawing; the screen was\n{self.text()}")

    def catch_up(self) -> None:
        """Takes what has been drawn by now."""
        while not self._came.empty():
            self._take(self._came.get()[1])

    def _take(self, data: bytes) -> None:
        self._stream.feed(data)

    def line(self, y: int) -> str:
        """One line of the screen as it was looked at last."""
        row = self._screen.buffer[y]
        return "".join(row[x].data for x in range(self.columns))

    def cell(self, y: int, x: int) -> Any:
        """One cell: `data`, `bg`, `fg`, `reverse`, `bold`."""
        return self._screen.buffer[y][x]

    def text(self) -> str:
        """The whole screen as it was looked at last."""
        return "\n".join(self.line(y).rstrip() for y in range(self.rows))

    # --- what is done to it --------------------------------------------------------------------------------------------

    def send(self, keys: bytes) -> float:
        """Keys at once, as a terminal sends them; returns when."""
        at = time.perf_counter()
        os.write(self._master, keys)
        return at

    # --- what it takes -------------------------------------------------------------------------------------------------

    def cpu_s(self) -> float:
        """Processor time of it and of the children that it still has, in seconds."""
        if self._ended:
            return self._cpu_s
        return sum(sum(one.cpu_times()[:2]) for one in (self._process, *self._process.children(recursive=True)))

    def own_cpu_s(self) -> float:
        """Processor time of the program alone."""
        return float(sum(self._process.cpu_times()[:2]))

    def rss_mb(self) -> float:
        """Memory of the program alone, now."""
        return float(self._process.memory_info().rss) / 1e6

    def close(self) -> float:
        """Kills it, and returns the processor time that it used."""
        if not self._ended:
            os.kill(self.pid, signal.SIGKILL)
            _, _, usage = os.wait4(self.pid, 0)
            self._cpu_s, self._ended = usage.ru_utime + usage.ru_stime, True
            os.close(self._master)
        return self._cpu_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
