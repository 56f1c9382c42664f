"""One segment into the object store, under a name that says what is in it, and what its footer adds to the manifest.

Must never touch the segment itself, nor replace an object that is whole.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from iris_controller.finelog.shipping.manifest import Shipped, object_name
from iris_controller.finelog.steps import reached
from iris_core.contracts import GenerationMismatch

if TYPE_CHECKING:
    from pathlib import Path

    from iris_controller.finelog.segment import Segment
    from iris_core.contracts import ObjectStore

log = logging.getLogger("iris.finelog.shipping")


def upload(remote: ObjectStore, scratch: Path, table: str, segment: Segment, path: Path) -> Shipped:
    """The segment at `path` is in `remote` when this returns; `scratch` is a folder beside it. Raises IrisError, OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    sha256 = digest.hexdigest()
    name = object_name(table, segment, sha256)
    # The object store takes the file over; the segment itself stays.
    handed = scratch / f"shipping-{secrets.token_hex(4)}.tmp"
    os.link(path, handed)
    try:
        # One that is there already has the same bytes: its name says so. Unless it is damaged.
        with suppress(GenerationMismatch):
            there = remote.stat(name)
            is_damaged = there is not None and there.size_bytes != segment.bytes
            remote.put_file(name, handed, if_generation=there.generation if there and is_damaged else "")
    finally:
        handed.unlink(missing_ok=True)
    reached("ship: a segment is there")
    return Shipped(segment, name, sha256)


def marks_of(path: Path) -> dict[str, int]:
    """How far producers got. A damaged segment is shipped as it is, and says nothing of them."""
    from iris_controller.finelog.segments import SegmentDamaged, read_footer

    try:
        return read_footer(path).marks
    except SegmentDamaged as damage:
        log.error("%s; it is shipped as it is", damage)
        return {}
