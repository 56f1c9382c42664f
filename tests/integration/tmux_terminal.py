"""A real terminal, tmux's, in which one program runs as a person would run it: keys go in, screens come out.

It reads what is drawn, never what the program thinks is drawn. Waiting is always for a screen, with a deadline.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.local_cluster import Place

IRIS = Path(sys.executable).with_name("iris")


class Terminal:
    """A tmux server of its own with one window in which one command runs; its exit code is left in a file.

    Args:
        tmux: The program.
        place: Where its socket is, and the environment of the command.
        columns: Width of the window in cells.
        rows: Height of the window in cells.
        name: Tells several in one place apart.
    """

    def __init__(self, tmux: str, place: Place, columns: int, rows: int, name: str = "tmux") -> None:
        self.command = [tmux, "-S", str(place.folder / f"{name}.sock"), "-f", "/dev/null"]
        self.place = place
        self.size = ["-x", str(columns), "-y", str(rows)]
        self.code = place.folder / f"{name}.code"

    def run(self, command: str) -> None:
        self.tmux(
            "new-session", "-d", *self.size, f"{command}; echo $? > {self.code}.new; mv {self.code}.new {self.code}"
        )

    def tmux(self, *words: str) -> str:
        environment = {name: value for name, value in self.place.env.items() if name != "NO_COLOR"}
        done = subprocess.run(
            [*self.command, *words], env=environment, cwd=self.place.empty, capture_output=True, text=True, check=False
        )
        return done.stdout

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        """Text as it is, and Enter."""
        self.tmux("send-keys", "-l", text)
        self.tmux("send-keys", "Enter")

    def resize(self, columns: int, rows: int) -> None:
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def until(self, holds: Callable[[str], bool], what: str, within_s: float = 90) -> str:
        """The first screen for which that holds."""
        deadline = time.monotonic() + within_s
        while not holds(screen := self.screen()):
            assert not self.code.exists(), f"the program ended before {what}"
            assert time.monotonic() < deadline, f"never saw {what}:\n{screen}"
            time.sleep(0.1)
        return screen

    def end(self, within_s: float = 90) -> int:
        deadline = time.monotonic() + within_s
        while not self.code.exists():
            assert time.monotonic() < deadline, f"it never ended:\n{self.screen()}"
            time.sleep(0.1)
        return int(self.code.read_text())

    def close(self) -> None:
        """The server and what runs in it end."""
        self.tmux("kill-server")
