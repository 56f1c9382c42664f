"""What the app does with a text that leaves it: to a clipboard, into a file, into a pager or an editor.

Programs of the clipboard run in a thread. A pager or editor has the terminal, so until it ends the console stands still like a
suspended one; its subscriptions go on from where they were. Files are readable by their owner alone and never replace another.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from iris_core.config.places import state_home
from iris_core.model.errors import ModelError
from iris_core.model.text import counted, one_line
from iris_tui.copying import Copied, Copier, write_private
from iris_tui.threads import in_thread

if TYPE_CHECKING:
    from textual.app import App

    Base = App[Any]
else:
    Base = object

_UNFIT: Final = re.compile(r"[^A-Za-z0-9._@+-]+")
MOST_NAMES: Final = 1000


def file_name(title: str, suffix: str = ".txt") -> str:
    """A title as the name of a file: `Describe /ada/train` → `describe-ada-train.txt`."""
    return (_UNFIT.sub("-", title.lower()).strip("-.")[:120] or "page") + suffix


def unused(path: Path) -> Path:
    """The path, with a number before its suffix if something is there already."""
    if not path.exists():
        return path
    found = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in range(2, MOST_NAMES))
    return next((other for other in found if not other.exists()), path)


class HandingOver(Base):
    """Mix into the app."""

    copier: Copier | None = None
    """Replaced by tests."""

    def say(self, text: str, *, severity: str = "information") -> None:
        """A toast."""
        raise NotImplementedError

    def copy_text(self, text: str, what: str) -> None:
        """Copy a text, and say where it went; `what` names it: "the id"."""
        self.run_worker(self._copy(text, what), name=f"copy {one_line(what)}", group="copy", exit_on_error=False)

    async def _copy(self, text: str, what: str) -> None:
        loop = asyncio.get_running_loop()

        def osc52(shown: str) -> None:
            loop.call_soon_threadsafe(self.copy_to_clipboard, shown)

        copier = self.copier or Copier(osc52, state_home())
        done: Copied = await in_thread(lambda: copier.copy(text, what), name="copy")
        self.say(one_line(done.words), severity="warning" if done.warn else "information")

    def save_text(self, text: str, title: str, name: str) -> None:
        """Write a text into a file: the one that was named, else one named after its title, in the working folder.

        Raises ModelError: it cannot be written, or is there already.
        """
        path = Path(name).expanduser() if name else unused(Path.cwd() / file_name(title))
        try:
            write_private(path, text if text.endswith("\n") else text + "\n", replace=False)
        except OSError as error:
            raise ModelError(f"not saved: {path}: {error.strerror}", hint="name another file") from None
        self.say(f"saved {counted(text.count(chr(10)) + 1, 'line')} in {path}")

    def save_bytes(self, data: bytes, what: str, suggested: str, name: str) -> None:
        """Write what is no text into a file: the one that was named, else `suggested` in the working folder.

        Raises ModelError: it cannot be written, or is there already.
        """
        path = Path(name).expanduser() if name else unused(Path.cwd() / suggested)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
                file.write(data)
        except OSError as error:
            raise ModelError(f"not saved: {path}: {error.strerror}", hint="name another file") from None
        self.say(f"saved {what} in {path}")

    def open_text(self, text: str, title: str, *, editor: bool) -> None:
        """Show a copy of a text in the pager or the editor. Raises ModelError: there is no such program."""
        program(editor=editor)
        with tempfile.TemporaryDirectory(prefix="iris-page-") as folder:
            path = Path(folder) / file_name(title)
            write_private(path, text + "\n")
            self.open_file(path, editor=editor)

    def open_file(self, path: Path, *, editor: bool) -> None:
        """Show a file in the pager or the editor. Raises ModelError: there is no such program."""
        from textual.app import SuspendNotSupported

        words = program(editor=editor)
        try:
            with self.suspend():
                failed = _run([*words, str(path)])
        except SuspendNotSupported:
            raise ModelError("this terminal cannot be handed to another program") from None
        self.refresh()
        if failed:
            raise ModelError(f"{words[0]}: {failed}", hint="set PAGER or EDITOR to another program")


def program(*, editor: bool) -> list[str]:
    """The words of the operator's pager or editor. Raises ModelError: the variable cannot be read as words."""
    names, otherwise = (("VISUAL", "EDITOR"), "vi") if editor else (("PAGER",), "less")
    named = next((name for name in names if os.environ.get(name, "").strip()), "")
    try:
        return shlex.split(os.environ[named]) if named else [otherwise]
    except ValueError as error:
        raise ModelError(f"{named} cannot be read: {error}") from None


def _run(words: list[str]) -> str:
    """Runs a program in the terminal to its end; returns what went wrong, "" if nothing did."""
    try:
        # What a workload wrote is shown as text; less would otherwise let control characters through with -r.
        subprocess.run(words, env={**os.environ, "LESSSECURE": "1"}, check=False)
    except OSError as error:
        return error.strerror or str(error)
    return ""
