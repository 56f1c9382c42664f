"""What memray says of a capture in its JSON form: which lines allocated how much, how often, in which sizes. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Allocations:
    """Sums of one capture; places are `function:file:line`, the largest first. Memory that was freed again counts, too."""

    total_bytes: int
    total_count: int
    peak_bytes: int
    by_size: tuple[tuple[str, int], ...]
    by_count: tuple[tuple[str, int], ...]
    sizes: tuple[tuple[int, int, int], ...]
    """Smallest and largest size in bytes, and how many allocations were between."""


def parse(data: bytes) -> Allocations:
    """Raises ValueError: it is no such file."""
    try:
        document: Any = json.loads(data)
        return Allocations(
            int(document["total_bytes_allocated"]),
            int(document["total_num_allocations"]),
            int((document.get("metadata") or {}).get("peak_memory") or 0),
            tuple((str(one["location"]), int(one["size"])) for one in document["top_allocations_by_size"]),
            tuple((str(one["location"]), int(one["count"])) for one in document["top_allocations_by_count"]),
            tuple(
                (int(one["min_bytes"]), int(one["max_bytes"]), int(one["count"]))
                for one in document["allocation_size_histogram"]
            ),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"it is not memray's JSON ({type(error).__name__}: {error})") from None
