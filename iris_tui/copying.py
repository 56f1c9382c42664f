"""Copying: where a text goes that the operator wants outside of the console, and saying where it went (console §1.7, 12).

Three ways, the first that can work is taken: a clipboard program of this machine, the terminal itself (OSC 52, which also works
over SSH), a file. A terminal never answers whether it took the text, and tmux may keep it to itself, so the words say what was
done and what to do where nothing arrives. Nothing is copied in part: what is too large for the terminal goes into a file.
Must never block the event loop, nor draw anything.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MOST_OSC52: Final = 74_994
"""Bytes of base64 that terminals take in one sequence; longer ones are cut or dropped by some."""
PROGRAM_S: Final = 3.0
"""How long a clipboard program may take."""
_WAYLAND: Final = (("wl-copy",),)
_X11: Final = (("xclip", "-selection", "clipboard"), ("xsel", "--clipboard", "--input"))
_MAC: Final = (("pbcopy",),)

Run = Callable[[tuple[str, ...], bytes], str]
"""Runs a program with a text on its standard input; returns its output. Raises OSError or subprocess.SubprocessError."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What was done: `how` is native, tmux, osc52, file or nowhere; `words` for the operator; `warn` = it may not have arrived."""

    how: str
    words: str
    warn: bool = False


def run(words: tuple[str, ...], data: bytes) -> str:
    """See `Run`."""
    done = subprocess.run(
        words, input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PROGRAM_S, check=True
    )
    return done.stdout.decode("utf-8", "replace")


@dataclass(slots=True)
class Copier:
    """`osc52` sends a text to the terminal; everything else can be replaced by tests.

    Attributes:
        osc52: Writes the sequence for a text to the terminal; called in the thread of `copy`.
        folder: Where files go.
        environment: Variables of this process.
        find: Whether a program is installed, as `shutil.which`.
        run: Runs a program.
    """

    osc52: Callable[[str], None]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    find: Callable[[str], str | None] = shutil.which
    run: Run = run

    def copy(self, text: str, what: str) -> Copied:
        """Copy a text; `what` names it: "the id". Runs programs and writes files, so call it in a thread."""
        wanted = self.environment.get("IRIS_CLIPBOARD", "auto")
        tried = ""
        if wanted in ("auto", "native"):
            program, tried = self._native(text)
            if program:
                return Copied("native", f"copied {what} to the clipboard ({program})")
            if wanted == "native":
                return self._file(text, what, tried or "there is no clipboard program")
        if wanted in ("auto", "osc52"):
            size = len(base64.b64encode(text.encode()))
            if size <= MOST_OSC52:
                return self._terminal(text, what)
            tried = f"{size:,} bytes are more than the {MOST_OSC52:,} that a terminal takes"
        return self._file(text, what, tried)

    def _native(self, text: str) -> tuple[str, str]:
        """The program that took it, or why none did. Over SSH the clipboard of this machine is the wrong one."""
        env = self.environment
        if env.get("SSH_CONNECTION") or env.get("SSH_TTY"):
            return "", "this is a session over SSH"
        programs = [
            *(_WAYLAND if env.get("WAYLAND_DISPLAY") else ()),
            *(_X11 if env.get("DISPLAY") else ()),
            *_MAC,
        ]
        why = ""
        for words in programs:
            if self.find(words[0]) is None:
                continue
            try:
                self.run(words, text.encode())
            except (OSError, subprocess.SubprocessError) as error:
                why = f"{words[0]} failed: {error}"
                continue
            return words[0], ""
        return "", why

    def _terminal(self, text: str, what: str) -> Copied:
        if self.environment.get("TMUX"):
            return self._tmux(text, what)
        self.osc52(text)
        return Copied("osc52", f"sent {what} to the terminal's clipboard (OSC 52)")

    def _tmux(self, text: str, what: str) -> Copied:
        """tmux takes a text into a buffer of its own, and hands it on unless `set-clipboard` is off."""
        try:
            passes = self.run(("tmux", "show-options", "-gv", "set-clipboard"), b"").strip()
            self.run(("tmux", "load-buffer", "-w", "-"), text.encode())
        except (OSError, subprocess.SubprocessError):
            self.osc52(text)
            return Copied(
                "osc52",
                f"sent {what} to the terminal (OSC 52); tmux drops it unless its set-clipboard is on",
                warn=True,
            )
        paste = "prefix ] pastes it in tmux"
        if passes == "off":
            return Copied(
                "tmux", f"copied {what} to tmux alone: its set-clipboard is off, so your clipboard has nothing; {paste}",
                warn=True,
            )  # fmt: skip
        return Copied("tmux", f"copied {what} to tmux, which hands it to the terminal's clipboard (OSC 52); {paste}")

    def _file(self, text: str, what: str, why: str) -> Copied:
        path = self.folder / "copied.txt"
        because = f" ({why})" if why else ""
        try:
            write_private(path, text)
        except OSError as error:
            return Copied("nowhere", f"{what} was not copied{because}: {path}: {error.strerror}", warn=True)
        return Copied("file", f"wrote {what} to {path}{because}")


def write_private(path: Path, text: str, *, replace: bool = True) -> None:
    """Write a text into a file that only its owner may read; `replace` False = it must not be there. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_TRUNC if replace else os.O_EXCL)
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
