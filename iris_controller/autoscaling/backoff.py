"""What failures do to a scale group (DESIGN §5.8), as changes of its row.

Failures double a pause; a used-up quota blocks for 5 minutes, doubling to 40 while it repeats. A creation that is accepted
clears the quota, a slice that becomes ready clears the failures. Requests that were under way together fail together: they count as one.
Must never look at a clock, and never decide that something failed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iris_controller.state.slices import ScalingGroup

FIRST_PAUSE_MS: Final = 10_000
LONGEST_PAUSE_MS: Final = 600_000
FIRST_BLOCK_MS: Final = 5 * 60_000
LONGEST_BLOCK_MS: Final = 40 * 60_000


def pause_ms(failures: int) -> int:
    """How long a group pauses after so many failures in a row."""
    return min(FIRST_PAUSE_MS << min(max(failures, 1) - 1, 20), LONGEST_PAUSE_MS)


def block_ms(blocks: int) -> int:
    """How long a group is blocked when its quota was found used up so many times in a row."""
    return min(FIRST_BLOCK_MS << min(max(blocks, 1) - 1, 20), LONGEST_BLOCK_MS)


def failed(row: ScalingGroup, reason: str, now_ms: int, *, retryable: bool = True) -> ScalingGroup:
    """A slice could not be made, or never became ready. What can never succeed pauses for the longest time at once."""
    failures = row.consecutive_failures + 1
    pause = pause_ms(failures) if retryable else LONGEST_PAUSE_MS
    return replace(
        row,
        consecutive_failures=failures,
        backoff_until_ms=now_ms + pause,
        failure_reason=reason,
        updated_at_ms=now_ms,
    )


def quota_exceeded(row: ScalingGroup, reason: str, now_ms: int) -> ScalingGroup:
    """The provider named a quota."""
    blocks = row.quota_blocks + 1
    return replace(
        row,
        quota_blocks=blocks,
        quota_exceeded_until_ms=now_ms + block_ms(blocks),
        quota_reason=reason,
        updated_at_ms=now_ms,
    )


def accepted(row: ScalingGroup, now_ms: int) -> ScalingGroup:
    """The provider makes a slice: there is quota."""
    return replace(
        row, quota_blocks=0, quota_exceeded_until_ms=0, quota_reason="", last_scale_up_ms=now_ms, updated_at_ms=now_ms
    )


def became_ready(row: ScalingGroup, now_ms: int) -> ScalingGroup:
    """A slice of the group works."""
    return replace(row, consecutive_failures=0, backoff_until_ms=0, failure_reason="", updated_at_ms=now_ms)
