"""What is known of a segment without opening it: by the catalog, which names it, and by whoever read its footer.

Must never import what reads segments: a store that has none loads nothing of that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Segment:
    """What the catalog tells of a segment. `first_seq` to `last_seq` is what it stands for; times are epoch milliseconds."""

    name: str
    level: int
    first_seq: int
    last_seq: int
    rows: int
    bytes: int
    first_key: Any
    last_key: Any
    earliest_ms: int
    latest_ms: int
    created_ms: int
    object: str = field(default="", compare=False)
    """Its name in the object store, where it lies in that alone; "" = it is here."""
