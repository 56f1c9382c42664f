"""The scheduler's turns in the loop: when it may plan a slice, and when again after one that failed.

Nothing is planned while the state may not be written: what is planned then would be dropped. A fault of the scheduler ends its slice
and nothing else; the commands of the same batch go on without it. Must never commit anything.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from iris_controller.state.overlay import Overlay

if TYPE_CHECKING:
    from iris_controller.commits import Ticker
    from iris_controller.state.model import Model
    from iris_controller.write_gate import WriteGate

log = logging.getLogger("iris.loop")

RETRY_SECONDS = 1.0


class Slicing:
    """Of one loop; `gate` is its own."""

    __slots__ = ("_from", "_gate", "_model", "_ticker")

    def __init__(self, model: Model, ticker: Ticker, gate: WriteGate) -> None:
        self._model = model
        self._ticker = ticker
        self._gate = gate
        self._from = 0.0
        """Monotonic; no slice before."""

    @property
    def is_due(self) -> bool:
        """Whether a slice is to be planned now."""
        return self._is_wanted() and time.monotonic() >= self._from

    def pause_s(self) -> float | None:
        """How long until one is, as things stand; None = until something comes."""
        return self._from - time.monotonic() if self._is_wanted() else None

    def _is_wanted(self) -> bool:
        return self._ticker.wanted() and not self._gate.fenced and not self._gate.held

    def plan(self, now_ms: int) -> tuple[Overlay, dict[str, str]]:
        """An overlay with what is assigned, and the reasons that changed; without either if the scheduler fails."""
        overlay = Overlay(self._model)
        try:
            return overlay, self._ticker.slice(overlay, now_ms)
        except Exception as fault:
            self.failed(fault)
            return Overlay(self._model), {}

    def failed(self, fault: BaseException) -> None:
        """What was planned last cannot be used, by a fault of ours: the scheduler is asked again a little later."""
        log.error("a scheduling slice failed", exc_info=fault)
        self._ticker.dropped()
        self._from = time.monotonic() + RETRY_SECONDS
