"""How the rows of a Watch are named: for each field of `WatchRows` the id that `removed` uses and stores keep them by.

One line for each kind of row. Must never import the generated code: a surface that shows jobs loads no other messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iris_core.wire.gen.iris.v1.controller_pb2 import WatchRows


def _attribute(name: str) -> Callable[[Any], str]:
    return lambda row: str(getattr(row, name))


ROW_IDS: Final[dict[str, Callable[[Any], str]]] = {
    "jobs": _attribute("job_id"),
    "tasks": _attribute("task_id"),
    "workers": _attribute("worker_id"),
    "attempts": _attribute("attempt_uid"),
    "pending_buckets": _attribute("bucket_id"),
    "running_buckets": _attribute("bucket_id"),
    "scale_groups": _attribute("name"),
    "slices": _attribute("slice_id"),
    "actions": _attribute("action_id"),
    "users": _attribute("user_id"),
    # The cluster's own have no id.
    "endpoints": lambda row: str(row.endpoint_id or row.name),
    "backends": _attribute("backend_id"),
    "controller": _attribute("controller_id"),
    "fleet": _attribute("fleet_id"),
}
"""Field of `WatchRows` → what names one of its rows."""

KIND_FIELDS: Final[dict[int, str]] = {number: field for number, field in enumerate(ROW_IDS, start=1)}
"""`WatchKind`'s number → the field in which its rows come."""


def each(rows: WatchRows) -> Iterator[tuple[str, str, Any]]:
    """Every row of a message: its field, its id, and itself."""
    for field, row_id in ROW_IDS.items():
        for row in getattr(rows, field):
            yield field, row_id(row), row


def count(rows: WatchRows) -> int:
    """How many rows a message brings, those that it removes left out."""
    return sum(len(getattr(rows, field)) for field in ROW_IDS)
