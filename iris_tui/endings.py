"""How the program says why it ended: one line on standard error, and an exit code of 128 plus the signal.

Until the console has its own handlers nothing of the terminal was changed but what `first_frame` drew, and a signal ends the program
at once.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from iris_tui.first_frame import leave

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def last_words(text: str) -> None:
    """One line for the operator, if there still is a terminal."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        return


def _end_at_once(number: int, _frame: FrameType | None) -> NoReturn:
    leave()
    last_words(f"iris: ended by {signal.Signals(number).name}")
    os._exit(128 + number)


def watch_signals() -> None:
    """From now on a signal is said. Call it before the console takes the terminal."""
    for number in SIGNALS:
        signal.signal(number, _end_at_once)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """What the caller does on a signal is the same after the console as before it."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
