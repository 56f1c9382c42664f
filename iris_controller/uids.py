"""Names for attempts: 16 hex digits, never given twice, and rising.

Each attempt is a row of an index over uids, and a batch may make a thousand: rising ones are added at the index's end, random ones would
dirty a page of it each.
"""

from __future__ import annotations

import secrets

_PER_MS = 20
"""Bits below the milliseconds: a controller gives fewer than a million a millisecond, so the next boot begins above all of them."""


class AttemptUids:
    """Counts up from the time of boot; where the clock was set back meanwhile, a random start keeps them apart."""

    def __init__(self, boot_ms: int) -> None:
        self._last = boot_ms << _PER_MS | secrets.randbits(_PER_MS)

    def __call__(self) -> str:
        self._last += 1
        return f"{self._last:016x}"
