"""The last hundred decisions of the autoscaler, each also an audit line (control-plane §3.1).

What is decided again and again for one cause is said once, until it stopped being so.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from iris_controller.audit import audit

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = 100


@dataclass(frozen=True, slots=True)
class Action:
    """One decision. `entity` is a slice, a worker, or the group itself; `status` is pending, completed or failed."""

    at_ms: int
    action: str
    entity: str
    group: str
    status: str
    reason: str
    number: int = 0
    """Counts them in this process."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request for one slice ended, or a slice that was ready. `message` says why, "" = as it should."""

    group: str
    outcome: Literal["ready", "stockout", "error", "preempted"]
    message: str = ""
    workers: int | None = None
    latency_ms: int | None = None
    """From the request to the end; None where this process did not make it."""


class ActionLog:
    """See the module. `on_outcome` is told of every outcome and must not block."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.on_outcome: Callable[[Outcome], None] = lambda outcome: None
        self._said: deque[Action] = deque(maxlen=KEPT)
        self._count = 0
        self._standing: dict[tuple[str, str], str] = {}

    def all(self) -> list[Action]:
        """Oldest first."""
        return list(self._said)

    def say(self, action: str, entity: str, group: str, status: str, reason: str) -> None:
        """Keeps a decision that has become the state, and writes its audit line."""
        self._count += 1
        self._said.append(Action(self._now_ms(), action, entity, group, status, reason, self._count))
        audit("autoscaler", entity, "autoscaler", action=action, group=group, status=status, reason=reason)

    def stand(self, standing: dict[tuple[str, str], str], status: str = "pending") -> None:
        """What holds now, by (action, group), with its reason: says what is new, and forgets what no longer holds."""
        for (action, group), reason in standing.items():
            if (action, group) not in self._standing:
                self.say(action, group, group, status, reason)
        self._standing = standing
