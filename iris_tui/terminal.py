"""Textual's driver, for a terminal that can go away at any moment (a closed window, a dropped connection).

The kernel then sends SIGHUP and SIGCONT, and every write fails. Textual's writer thread would end with the first failure and
the loop would wait for ever for room in its queue, deaf to signals. Here what cannot be written is dropped, and a terminal
that is gone is not entered again. Must never write anything of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol, cast

from textual.drivers.linux_driver import LinuxDriver

from iris_tui.first_frame import taken_over

if TYPE_CHECKING:
    from io import TextIOWrapper


class Output(Protocol):
    """What Textual's writer thread uses of a file."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> None: ...

    def fileno(self) -> int: ...


class LossyOutput:
    """A terminal's output in which writing never fails."""

    def __init__(self, file: Output) -> None:
        self._file = file
        self.gone = False
        """Whether a write has failed; nothing is tried after that."""

    def write(self, text: str, /) -> int:
        """Write the text, or drop it. Returns its length."""
        if not self.gone:
            try:
                self._file.write(text)
            except OSError:
                self.gone = True
        return len(text)

    def flush(self) -> None:
        """Flush what was written, if there still is somebody to read it."""
        if not self.gone:
            try:
                self._file.flush()
            except OSError:
                self.gone = True

    def fileno(self) -> int:
        """The file's descriptor."""
        return self._file.fileno()


class TerminalDriver(LinuxDriver):
    """What `IrisApp` draws with."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self._file is not None:
            self._file = cast("TextIOWrapper", LossyOutput(self._file))

    def start_application_mode(self) -> None:
        taken_over()
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def _sigcont_application(self, *_: object) -> None:
        # A hung-up terminal has no foreground any more; to resume would start a second pair of threads on it.
        try:
            os.tcgetpgrp(self.fileno)
        except OSError:
            return
        super()._sigcont_application()
