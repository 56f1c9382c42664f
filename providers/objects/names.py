"""Which names an object may have, the same in every store: what is written to one can be copied to another."""

from __future__ import annotations

import re
from typing import Final

from iris_core.contracts import UsageFailed
from iris_core.model.errors import shown

PRIVATE: Final = ".iris-objects"
"""A folder of the file store's own; no object has such a name anywhere."""

_PART: Final = re.compile(r"[A-Za-z0-9_=@+,%:~-][A-Za-z0-9._=@+,%:~ -]{0,254}")


def parts_of(name: str) -> list[str]:
    """The parts between the slashes. Raises UsageFailed: such a name could leave the root, or is no name everywhere."""
    parts = name.split("/")
    if len(name) > 1024 or parts[0] == PRIVATE or not all(_PART.fullmatch(part) for part in parts):
        raise UsageFailed(f"{shown(name)} is not the name of an object")
    return parts
