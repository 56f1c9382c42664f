"""Thread dumps read back: which process has which threads, and the frames of each, innermost first.

The text is py-spy's. Lines it puts between frames (local variables) are passed over; text that is no dump gives no process. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from iris_core.analysis.stacks import clean

_PROCESS: Final = re.compile(r"^Process (\d+): ?(.*)$")
_THREAD: Final = re.compile(r'^Thread (\S+) \(([^)]*)\)(?:: "(.*?)"?)?$')
_FRAME: Final = re.compile(r"^    (?=\S)(.+)$")
_PYTHON: Final = re.compile(r"^Python v\d")
MAIN: Final = "MainThread"


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread. `state` is what py-spy says of it: idle, active, active+gil."""

    number: str
    name: str
    state: str
    frames: tuple[str, ...]

    @property
    def place(self) -> tuple[str, ...]:
        """Its frames without what differs between processes of one program."""
        return tuple(clean(frame) for frame in self.frames)


@dataclass(slots=True)
class Process:
    """One process of a dump."""

    pid: int
    command: str
    threads: list[Thread] = field(default_factory=list)

    @property
    def main(self) -> Thread | None:
        """Its main thread; where none is called so, the one with the number of the process, else the first."""
        named = next((one for one in self.threads if one.name == MAIN), None)
        numbered = next((one for one in self.threads if one.number == str(self.pid)), None)
        return named or numbered or (self.threads[0] if self.threads else None)


def parse(text: str) -> list[Process]:
    """The processes of a dump, in its order."""
    found: list[Process] = []
    inside = False
    """Behind the line that names the interpreter: before it stands the command, which may have lines of any kind."""
    thread: tuple[str, str, str] | None = None
    frames: list[str] = []

    def close() -> None:
        nonlocal thread
        if thread is not None and found:
            number, state, name = thread
            found[-1].threads.append(Thread(number, name, state, tuple(frames)))
        thread = None
        frames.clear()

    for line in text.splitlines():
        if (begins := _PROCESS.match(line)) is not None:
            close()
            found.append(Process(int(begins[1]), begins[2].strip()))
            inside = False
        elif not inside:
            inside = bool(found) and _PYTHON.match(line) is not None
        elif (named := _THREAD.match(line)) is not None:
            close()
            thread = (named[1], named[2], named[3] or "")
        elif thread is not None and (frame := _FRAME.match(line)) is not None:
            frames.append(frame[1])
    close()
    return found
