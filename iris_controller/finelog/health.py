"""How the store is, as data: whether it takes lines, what it holds, what was lost.

Plain readings, gathered when somebody asks. Must never wait for the disk's writer.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from iris_core.model.text import one_line
from iris_core.wire.gen.iris.v1 import pipeline_pb2

if TYPE_CHECKING:
    from iris_controller.finelog.shipping.owners import ShippingStatus
    from iris_controller.finelog.store import Store


def store_health(
    store: Store,
    *,
    fault: str,
    last_line_at_ms: int,
    waiting_readers: int,
    release: str,
    shipping: ShippingStatus | None = None,
) -> pipeline_pb2.StoreHealth:
    """The readings of a store. `fault` is why lines are refused, "" = they are not. Blocks for a moment: it asks the file system."""
    try:
        usage = os.statvfs(store.folder)
        free = usage.f_bavail * usage.f_frsize
    except OSError as error:
        free, fault = 0, fault or f"cannot look at {store.folder}: {error.strerror or error}"
    ledger = store.ledger
    problem = fault
    if not fault and store.upkeep_fault:
        problem = f"it cannot write segments ({store.upkeep_fault}); what is stored stays as it is"
    return pipeline_pb2.StoreHealth(
        state="refusing" if fault else "serving",
        problem=one_line(problem),
        release=release,
        last_seq=store.last_seq,
        disk_bytes=store.local_bytes,
        max_bytes=store.max_bytes,
        disk_free_bytes=free,
        files=len(store.files),
        last_line_at_ms=last_line_at_ms,
        removed_seq=ledger.removed_seq,
        damaged_lines=sum(loss.last_seq - loss.first_seq + 1 for loss in list(ledger.losses) if not loss.why),
        waiting_readers=waiting_readers,
        shipping=_shipping(shipping) if shipping is not None else None,
    )


def _shipping(status: ShippingStatus) -> pipeline_pb2.ShippingHealth:
    return pipeline_pb2.ShippingHealth(
        state=status.state,
        problem=one_line(status.problem),
        place=status.place,
        shipped_at_ms=status.shipped_at_ms,
        shipped_seq=status.shipped_seq or {},
        unshipped_bytes=status.unshipped_bytes,
        unshipped_since_ms=status.unshipped_since_ms,
    )
