"""Slices and scale groups as rows: those of one batch as SQL, and all of them at boot (control-plane §6.1)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from iris_controller.state.slices import Lifecycle, ScalingGroup, Slice

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from iris_controller.state.overlay import Overlay
    from iris_controller.store.writer import Statement

DELETE_SLICES = "DELETE FROM slices WHERE slice_id IN (SELECT value FROM json_each(?))"
PUT_SLICES = (
    "INSERT OR REPLACE INTO slices (slice_id, scale_group, lifecycle, worker_ids, created_at_ms, error_message, manual,"
    " updated_at_ms) SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7"
    " FROM json_each(?)"
)
PUT_GROUPS = (
    "INSERT OR REPLACE INTO scaling_groups (name, consecutive_failures, backoff_until_ms, last_scale_up_ms,"
    " last_scale_down_ms, quota_exceeded_until_ms, quota_reason, quota_blocks, failure_reason, updated_at_ms)"
    " SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7, value->>8, value->>9"
    " FROM json_each(?)"
)


def machine_statements(overlay: Overlay) -> Iterator[Statement]:
    """What the batch changes of slices and scale groups."""
    gone = [slice_id for slice_id, row in overlay.slices.items() if row is None]
    kept = [row for row in overlay.slices.values() if row is not None]
    if gone:
        yield DELETE_SLICES, (json.dumps(gone),)
    if kept:
        yield PUT_SLICES, (json.dumps([_slice_row(row) for row in kept]),)
    if overlay.scaling_groups:
        yield PUT_GROUPS, (json.dumps([_group_row(row) for row in overlay.scaling_groups.values()]),)


def load_slices(connection: sqlite3.Connection) -> Iterator[Slice]:
    """A lifecycle that this release does not know is taken as booting (control-plane §3.7)."""
    for row in connection.execute("SELECT * FROM slices ORDER BY created_at_ms, slice_id"):
        word = row["lifecycle"]
        yield Slice(
            slice_id=row["slice_id"],
            scale_group=row["scale_group"],
            lifecycle=Lifecycle(word) if word in Lifecycle.__members__.values() else Lifecycle.BOOTING,
            worker_ids=tuple(json.loads(row["worker_ids"])),
            created_at_ms=row["created_at_ms"],
            error_message=row["error_message"],
            manual=bool(row["manual"]),
            updated_at_ms=row["updated_at_ms"],
        )


def load_scaling_groups(connection: sqlite3.Connection) -> Iterator[ScalingGroup]:
    for row in connection.execute("SELECT * FROM scaling_groups"):
        yield ScalingGroup(**{name: row[name] for name in ScalingGroup.__slots__})


def _slice_row(row: Slice) -> list[object]:
    return [
        row.slice_id,
        row.scale_group,
        str(row.lifecycle),
        json.dumps(row.worker_ids),
        row.created_at_ms,
        row.error_message,
        int(row.manual),
        row.updated_at_ms,
    ]


def _group_row(row: ScalingGroup) -> list[object]:
    return [
        row.name,
        row.consecutive_failures,
        row.backoff_until_ms,
        row.last_scale_up_ms,
        row.last_scale_down_ms,
        row.quota_exceeded_until_ms,
        row.quota_reason,
        row.quota_blocks,
        row.failure_reason,
        row.updated_at_ms,
    ]
