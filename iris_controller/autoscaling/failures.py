"""Failures of scale groups: which count, and what a group's row and memory say after one (DESIGN §5.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.autoscaling import backoff
from iris_controller.state.slices import ScalingGroup
from iris_core.contracts import MachinesFailed, QuotaExceeded

if TYPE_CHECKING:
    from iris_controller.autoscaling.actions import ActionLog
    from iris_controller.autoscaling.memory import Memory
    from iris_controller.state.model import Model
    from iris_controller.state.overlay import Overlay
    from iris_core.live.clock import Clock


class Failures:
    """See the module. `book` is called inside a command, `say` once that is committed."""

    def __init__(self, model: Model, memory: Memory, actions: ActionLog, clock: Clock) -> None:
        self._model = model
        self._memory = memory
        self._actions = actions
        self._clock = clock
        self._started_at = clock.monotonic()

    def book(
        self,
        o: Overlay,
        name: str,
        began: float,
        now: float,
        reason: str,
        now_ms: int,
        error: MachinesFailed | None = None,
    ) -> bool:
        """Charges a failure to the group, unless one that happened after `began` was charged already."""
        memory = self._memory.of(name, now)
        if began <= memory.troubled_at:
            return False
        memory.troubled_at = now
        row = o.scaling_group(name) or ScalingGroup(name)
        if isinstance(error, QuotaExceeded):
            row = backoff.quota_exceeded(row, reason, now_ms)
            memory.quota_until = now + backoff.block_ms(row.quota_blocks) / 1000
        else:
            retryable = error.retryable if error is not None else True
            row = backoff.failed(row, reason, now_ms, retryable=retryable)
            memory.backoff_until = now + (row.backoff_until_ms - now_ms) / 1000
        o.scaling_groups[name] = row
        return True

    def is_recent(self, name: str, now: float) -> bool:
        """Whether the group failed within the longest pause, and nothing of it became ready since.

        Of a failure before the controller's start it is not known when it was: it counts as one of that moment.
        """
        row = self._model.scaling_groups.get(name)
        if row is None or not row.consecutive_failures:
            return False
        failed_at = max(self._memory.of(name, now).troubled_at, self._started_at)
        return now - failed_at < backoff.LONGEST_PAUSE_MS / 1000

    def say(self, name: str) -> None:
        row = self._model.scaling_groups.get(name)
        left = self._memory.of(name, self._clock.monotonic()).backoff_until - self._clock.monotonic()
        if row is not None and left > 0:
            said = f"{row.consecutive_failures} in a row, pauses for {left:.0f} s: {row.failure_reason}"
            self._actions.say("backoff_triggered", name, name, "completed", said)
