"""Priority bands.

The numbers are those of the wire and the database (zero is "unspecified",
which here means "inherit") and say nothing about importance: SYSTEM is 1 and
BATCH is 4. Compare bands with ``rank`` or ``outranks``, never by number.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

from iris_core.model.errors import ModelError, did_you_mean, shown


class PriorityBand(IntEnum):
    """How important a job is (control-plane §2.2)."""

    INHERIT = 0
    """The parent's band, or INTERACTIVE for a root job. Only in requests."""
    SYSTEM = 1
    PRODUCTION = 2
    INTERACTIVE = 3
    BATCH = 4

    def rank(self) -> int:
        """Importance, higher is more: BATCH 1 … SYSTEM 4.

        An unresolved INHERIT ranks 0, below all, so that it can never displace anything.
        """
        return _RANKS[self]

    def outranks(self, other: PriorityBand) -> bool:
        """Whether this band is strictly more important than ``other``."""
        return _RANKS[self] > _RANKS[other]

    def resolve(self, parent: PriorityBand | None) -> PriorityBand:
        """Replace INHERIT by the parent's band, or by INTERACTIVE without one."""
        if self is not PriorityBand.INHERIT:
            return self
        return parent or PriorityBand.INTERACTIVE

    @property
    def label(self) -> str:
        """The band as operators type and read it, such as ``interactive``."""
        return self.name.lower()


_SYSTEM_WORK: Final = re.compile(r"\b(hero|finelog|iris)\b", re.IGNORECASE)
_RANKS: Final = {
    PriorityBand.INHERIT: 0,
    PriorityBand.BATCH: 1,
    PriorityBand.INTERACTIVE: 2,
    PriorityBand.PRODUCTION: 3,
    PriorityBand.SYSTEM: 4,
}

BANDS: Final = (
    PriorityBand.SYSTEM,
    PriorityBand.PRODUCTION,
    PriorityBand.INTERACTIVE,
    PriorityBand.BATCH,
)
"""The real bands, most important first."""


def parse_band(text: str, *, allow_inherit: bool = False) -> PriorityBand:
    """Parse a band's name, in any case, with or without ``PRIORITY_BAND_``.

    Raises:
        ModelError: no such band; the hint has the closest one.
    """
    band = PriorityBand.__members__.get(text.strip().upper().removeprefix("PRIORITY_BAND_"))
    if band is not None and (allow_inherit or band is not PriorityBand.INHERIT):
        return band
    words = [band.label for band in BANDS]
    raise ModelError(
        f"no priority band {shown(text)}",
        field="priority",
        hint=did_you_mean(text, words) or f"one of {', '.join(words)}",
    )


def is_system_reason(text: str) -> bool:
    """Whether the reason names, as a whole word, one of the kinds of work that SYSTEM is for (control-plane §2.2)."""
    return _SYSTEM_WORK.search(text) is not None


def band_label(number: int) -> str:
    """Label of a stored or received band; an unknown one shows as its number."""
    try:
        return PriorityBand(number).label
    except ValueError:
        return str(number)
