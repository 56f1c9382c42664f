"""What is lost for good in a log that somebody follows, said as it turns up.

Whoever follows sees no account of the whole: what damage, retention or a lost disk cost is said once, at the answer that shows it. Must
never say of a page that was only cut, and goes on, that something is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.cli.log_reader import lasting_reasons
from iris_core.wire.log_losses import merged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_core.cli.diagnostics import Diagnostics
    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsResponse


class Losses:
    """Of the log of `name`, in warnings."""

    def __init__(self, diagnostics: Diagnostics, name: str) -> None:
        self._diagnostics = diagnostics
        self._name = name
        self._known: list[str] = []

    def take(self, answer: FetchLogsResponse, *, is_said: bool = True) -> None:
        """The next answer of a log read forward. `is_said` False: what it has lost is none of the reader's."""
        self.add(lasting_reasons(answer, is_cut=answer.cursor < answer.last_seq), is_said=is_said)

    def add(self, reasons: Iterable[str], *, is_said: bool = True) -> None:
        """Why lines that match are missing for good."""
        reasons = merged(self._known, reasons)
        if is_said:
            for reason in reasons:
                if reason not in self._known:
                    self._diagnostics.warn(f"lines of {self._name} may be missing: {reason}")
        self._known = reasons
