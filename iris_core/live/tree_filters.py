"""What a filter can ask of lists whose rows are of several kinds: buckets that wait or run, and scale groups with their machines.

The fields are those of each kind (`watch_filters`), in one filter; what a kind does not have matches nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_core.live.capacity_columns import group_reason, machine_reason, machine_state
from iris_core.live.capacity_tree import Group, Slice
from iris_core.live.watch_filters import ROW_FILTERS
from iris_core.model.filter import Field, FieldType

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.live.capacity_tree import Value

_PENDING: Final = ROW_FILTERS["pending_buckets"]
_RUNNING: Final = ROW_FILTERS["running_buckets"]
_GROUP: Final = ROW_FILTERS["scale_groups"]
_SLICE: Final = ROW_FILTERS["slices"]

BUCKET_FIELDS: Final[dict[str, FieldType | Field]] = {
    "state": Field(FieldType.WORD, ("pending", "running")),
    **_PENDING.fields,
    **_RUNNING.fields,
}
BUCKET_WORDS: Final = ("job", "user", "reason", "worker")


def bucket_row(bucket: Any, now_ms: int) -> Callable[[str], object]:
    """A pending or running bucket as `Filter.matches` wants it."""
    waits = "pending_since_ms" in bucket.DESCRIPTOR.fields_by_name
    known = _PENDING if waits else _RUNNING
    values = known.row(bucket, now_ms)

    def value(name: str) -> object:
        if name == "state":
            return "pending" if waits else "running"
        return values(name) if name in known.fields else None

    return value


CAPACITY_FIELDS: Final[dict[str, FieldType | Field]] = {
    **_GROUP.fields,
    **_SLICE.fields,
    "state": FieldType.TEXT,
    "reason": FieldType.TEXT,
    "tasks": FieldType.NUMBER,
    "idle": FieldType.DURATION,
}
"""`tasks` are the running ones; `state` of a scale group is its availability."""
CAPACITY_WORDS: Final = ("group", "slice", "worker", "state", "reason", "error")


def capacity_row(value: Value, now_ms: int) -> Callable[[str], object]:
    """A scale group, slice or machine as `Filter.matches` wants it."""
    if isinstance(value, Group):
        own: dict[str, object] = {
            "state": value.status.availability,
            "reason": group_reason(value) or None,
            "tasks": value.running,
        }
        known, values = _GROUP, _GROUP.row(value.status, now_ms)
    elif isinstance(value, Slice):
        idle = now_ms - value.idle_since_ms if value.idle_since_ms else None
        own = {"state": value.status.lifecycle, "tasks": value.running, "idle": idle}
        known, values = _SLICE, _SLICE.row(value.status, now_ms)
    else:
        own = {
            "worker": value.status.worker_id or value.status.vm_id,
            "slice": value.slice_id,
            "state": machine_state(value)[0],
            "reason": machine_reason(value) or None,
            "tasks": value.worker.running_tasks if value.worker is not None else None,
        }
        return own.get
    return lambda name: own[name] if name in own else values(name) if name in known.fields else None
