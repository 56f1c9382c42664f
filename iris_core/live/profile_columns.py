"""The columns of kept profiles, for the command line's tables and the console; rules as in `columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_core.live.columns import ColumnSpec, age, iso
from iris_core.live.wording import NOTHING, or_nothing
from iris_core.model.quantities import format_size
from iris_core.wire.profiles import FORMATS, TRIGGERS, TYPES

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.profiles_pb2 import ProfileRecord


def _column(**fields: Any) -> ColumnSpec[Any]:
    return ColumnSpec(**fields)


def _attempt(record: ProfileRecord) -> int | None:
    return record.attempt_id if record.HasField("attempt_id") else None


PROFILES: Final[dict[str, ColumnSpec[ProfileRecord]]] = {
    spec.id: spec
    for spec in (
        _column(
            id="profile_id", title="ID", min_width=21, max_width=21,
            value=lambda record: record.profile_id,
            text=lambda record, _: record.profile_id,
            sort=lambda record, _: record.profile_id,
        ),
        _column(
            id="source", title="SOURCE", min_width=16, flex=3,
            value=lambda record: record.source,
            text=lambda record, _: or_nothing(record.source),
            sort=lambda record, _: record.source,
        ),
        _column(
            id="attempt", title="ATTEMPT", min_width=3, max_width=7, align="right", hide=2,
            value=_attempt,
            text=lambda record, _: NOTHING if _attempt(record) is None else str(record.attempt_id),
            sort=lambda record, _: record.attempt_id,
        ),
        _column(
            id="type", title="TYPE", min_width=6, max_width=8,
            value=lambda record: TYPES.get(record.type, str(record.type)),
            text=lambda record, _: TYPES.get(record.type, str(record.type)),
            sort=lambda record, _: record.type,
        ),
        _column(
            id="format", title="FORMAT", min_width=5, max_width=10, hide=3,
            value=lambda record: FORMATS.get(record.format, str(record.format)),
            text=lambda record, _: FORMATS.get(record.format, str(record.format)),
            sort=lambda record, _: record.format,
        ),
        _column(
            id="trigger", title="TRIGGER", min_width=8, max_width=9, hide=4,
            value=lambda record: TRIGGERS.get(record.trigger, str(record.trigger)),
            text=lambda record, _: TRIGGERS.get(record.trigger, str(record.trigger)),
            sort=lambda record, _: record.trigger,
        ),
        _column(
            id="captured_at", title="AGE", min_width=4, max_width=8, align="right",
            value=lambda record: iso(record.captured_at_ms),
            text=lambda record, now_ms: age(record.captured_at_ms, now_ms), moves=True,
            sort=lambda record, _: -record.captured_at_ms,
        ),
        _column(
            id="duration_seconds", title="SECONDS", min_width=3, max_width=7, align="right", hide=5,
            value=lambda record: record.duration_seconds or None,
            text=lambda record, _: str(record.duration_seconds or NOTHING),
            sort=lambda record, _: record.duration_seconds,
        ),
        _column(
            id="size_bytes", title="SIZE", min_width=5, max_width=8, align="right",
            value=lambda record: record.size_bytes,
            text=lambda record, _: format_size(record.size_bytes),
            sort=lambda record, _: record.size_bytes,
        ),
        _column(
            id="vm_id", title="TAKEN BY", min_width=8, flex=1, hide=1,
            value=lambda record: record.vm_id,
            text=lambda record, _: or_nothing(record.vm_id),
            sort=lambda record, _: record.vm_id,
        ),
        _column(
            id="attempt_uid", title="ATTEMPT UID", min_width=12, max_width=36, hide=6,
            value=lambda record: record.attempt_uid or None,
            text=lambda record, _: or_nothing(record.attempt_uid),
            sort=lambda record, _: record.attempt_uid,
        ),
    )
}  # fmt: skip
