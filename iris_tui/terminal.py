"""Textual's driver, for a terminal that can go away at any moment (a closed window, a dropped connection).

The kernel then sends SIGHUP and SIGCONT, and every write fails. Textual's writer thread would end with the first failure and
the loop would wait for ever for room in its queue, deaf to signals. Here what cannot be written is dropped, and a terminal
that is gone is not entered again. Of an Escape and a key that come in one breath, over a slow line or from quick fingers, Textual
makes Alt and that key, or the key alone; here it is told that there were two. Must never write anything of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol, cast

from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver

from iris_tui.first_frame import taken_over
from iris_tui.typeahead import WithEscape

if TYPE_CHECKING:
    from collections.abc import Iterable
    from io import TextIOWrapper

    from textual import events


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


class KeyParser(XTermParser):
    """Makes keys of what a terminal sends."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        for event in super()._sequence_to_key_events(sequence):
            yield WithEscape(event.key, event.character) if alt else event


class TerminalDriver(LinuxDriver):
    """What `IrisApp` draws with."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Its thread takes the parser from there.
        linux_driver.XTermParser = KeyParser  # type: ignore[attr-defined]
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
