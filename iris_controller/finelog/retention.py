"""How long segments stay: by bytes, by age and by number, the oldest first. Plain values; must never remove anything itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_controller.finelog.segment import Segment


@dataclass(frozen=True, slots=True)
class Policy:
    """Bounds of one table; 0 is none. Age counts from when the youngest row of a segment was stored, by this machine's clock."""

    max_bytes: int = 0
    max_age_ms: int = 0
    max_segments: int = 0


def surplus(segments: Sequence[Segment], policy: Policy, now_ms: int, other_bytes: int = 0) -> list[Segment]:
    """Those to remove, the oldest ones; `segments` are in the order of seq, `other_bytes` count with them and stay."""
    total = other_bytes + sum(segment.bytes for segment in segments)
    gone = 0
    for place, segment in enumerate(segments):
        is_old = bool(policy.max_age_ms) and segment.created_ms < now_ms - policy.max_age_ms
        is_many = bool(policy.max_segments) and len(segments) - place > policy.max_segments
        is_large = bool(policy.max_bytes) and total > policy.max_bytes
        if not (is_old or is_many or is_large):
            break
        total -= segment.bytes
        gone = place + 1
    return list(segments[:gone])
