"""How many attempts failed or were preempted in the last hour, counted as their ends are committed, minute by minute.

An end that costs the failure budget is a failure, one that costs the preemption budget a preemption; what costs nothing is neither.
Must never look back: a young process says since when it counts.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from iris_controller.state.records import Charge
from iris_core.wire.gen.iris.v1 import watch_rows_pb2

if TYPE_CHECKING:
    from iris_controller.commits import Committed

MINUTES: Final = 60
MINUTE_MS: Final = 60_000


class Ends:
    """See the module."""

    def __init__(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._minute = now_ms // MINUTE_MS
        self._counts: deque[tuple[list[str], list[str]]] = deque([([], [])])
        """Of each minute, the uids of attempts that failed and that were preempted."""
        self._known: set[str] = set()
        """All of them: an end may be committed in several steps."""

    def note(self, batch: Committed) -> None:
        """Takes in a committed batch."""
        for uid, attempt in batch.changes.attempts.items():
            if attempt.charge is Charge.NONE or uid in self._known:
                continue
            self._move_on(batch.now_ms)
            self._known.add(uid)
            self._counts[-1][0 if attempt.charge is Charge.FAILURE else 1].append(uid)

    def read(self, now_ms: int) -> watch_rows_pb2.HourOfEnds:
        """The hour before now."""
        self._move_on(now_ms)
        failures = [len(failed) for failed, _ in self._counts]
        preemptions = [len(preempted) for _, preempted in self._counts]
        started_ms = self._minute * MINUTE_MS
        return watch_rows_pb2.HourOfEnds(
            counted_since_ms=max(self._since_ms, started_ms - (MINUTES - 1) * MINUTE_MS),
            failures=sum(failures),
            preemptions=sum(preemptions),
            failures_by_minute=failures,
            preemptions_by_minute=preemptions,
            minute_started_ms=started_ms,
        )

    def _move_on(self, now_ms: int) -> None:
        # A clock that was set back counts on in the minute that it is in.
        passed = max(0, now_ms // MINUTE_MS - self._minute)
        for _ in range(min(passed, MINUTES)):
            self._counts.append(([], []))
            if len(self._counts) > MINUTES:
                for uids in self._counts.popleft():
                    self._known.difference_update(uids)
        self._minute += passed
