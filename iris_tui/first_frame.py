"""The first picture, before there is anything to draw with: what is opened, and that it is not there yet.

What the console draws with takes a third of a second to load, and until then an operator would look at an empty line. This is text alone,
on the terminal's other screen, which the console then takes over and gives back. Whatever ends the program before that gives it back,
too. Must never say anything that is not known yet, and must import nothing that takes time.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J"
_LEAVE: Final = "\x1b[?1049l\x1b[?25h"
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"

_ours = False
"""Whether the terminal's other screen is shown, and is this module's to leave."""


@contextmanager
def first_frame(title: str, state: str, words: str) -> Iterator[None]:
    """The frame until the console takes it over; it is gone afterwards, whatever happens. Without a terminal there is none.

    Args:
        title: Which cluster or checkpoint; harmless text of one line.
        state: How it stands: one word, at the right.
        words: What is done now; harmless text of one line.
    """
    _show(title, state, words)
    try:
        yield
    finally:
        leave()


def taken_over() -> None:
    """The console draws from now on, and leaves the other screen itself."""
    global _ours
    _ours = False


def leave() -> None:
    """Give the terminal back as it was, if it was not taken over."""
    global _ours
    if _ours:
        _ours = False
        _write(_LEAVE)


def _show(title: str, state: str, words: str) -> None:
    global _ours
    out = sys.__stderr__  # where Textual draws
    if out is None or not out.isatty():
        return
    try:
        width = os.get_terminal_size(out.fileno()).columns or 80  # a serial line does not say
    except OSError:
        return
    left = f" iris  {title}"[: max(width - len(state) - 2, 0)]
    blank = " " * max(width - len(left) - len(state) - 1, 1)
    _ours = True
    _write(f"{_ENTER}{_BOLD}{left}{_PLAIN}{blank}{state}\x1b[3;1H  {words[: max(width - 2, 0)]}")


def _write(text: str) -> None:
    out = sys.__stderr__
    try:
        if out is not None:
            out.write(text)
            out.flush()
    except (OSError, ValueError):
        return  # the terminal is gone
