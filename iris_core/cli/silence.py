"""A word on standard error while an answer does not come: who is silent, once per outage.

A process that was stopped or hangs answers nothing and refuses nothing, and a call to it waits for its whole timeout. Must never
change what is asked, nor end it earlier.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.cli.diagnostics import Diagnostics

T = TypeVar("T")
SILENT_S: Final = 5.0
"""No call here waits on purpose for as long as this."""


class Silence:
    """Puts questions, and says when one is not answered for `after_s`."""

    def __init__(self, diagnostics: Diagnostics, who: str, *, after_s: float = SILENT_S) -> None:
        self._diagnostics = diagnostics
        self._who = who
        self._after_s = after_s
        self._said = False

    def ask(self, question: Callable[[], T]) -> T:
        """The answer. Raises what `question` raises."""
        timer = threading.Timer(self._after_s, self._say)
        timer.daemon = True
        timer.start()
        try:
            answer = question()
        finally:
            timer.cancel()
        self._said = False
        return answer

    def _say(self) -> None:
        if not self._said:
            self._said = True
            self._diagnostics.note(f"{self._who} has not answered for {self._after_s:.0f} s; still waiting for it")
