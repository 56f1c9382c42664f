"""What a filter can ask of kept profiles, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from iris_core.model.filter import Field, FieldType
from iris_core.wire.profiles import FORMATS, TRIGGERS, TYPES

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.profiles_pb2 import ProfileRecord

PROFILE_FIELDS: Final[dict[str, FieldType | Field]] = {
    "source": FieldType.TEXT,
    "type": Field(FieldType.WORD, tuple(TYPES.values())),
    "format": Field(FieldType.WORD, tuple(FORMATS.values())),
    "trigger": Field(FieldType.WORD, tuple(TRIGGERS.values())),
    "id": FieldType.TEXT,
    "by": FieldType.TEXT,
    "attempt": FieldType.NUMBER,
    "seconds": FieldType.NUMBER,
    "size": FieldType.SIZE,
    "age": FieldType.DURATION,
}
"""`by` is who took it: a worker, or the controller."""
PROFILE_WORDS: Final = ("source", "type", "trigger", "id")

_VALUES: Final[dict[str, Callable[[ProfileRecord, int], object]]] = {
    "source": lambda record, _: record.source,
    "type": lambda record, _: TYPES.get(record.type, str(int(record.type))),
    "format": lambda record, _: FORMATS.get(record.format, str(int(record.format))),
    "trigger": lambda record, _: TRIGGERS.get(record.trigger, str(int(record.trigger))),
    "id": lambda record, _: record.profile_id,
    "by": lambda record, _: record.vm_id,
    "attempt": lambda record, _: record.attempt_id if record.HasField("attempt_id") else None,
    "seconds": lambda record, _: record.duration_seconds,
    "size": lambda record, _: record.size_bytes,
    "age": lambda record, now_ms: now_ms - record.captured_at_ms,
}


def profile_row(record: ProfileRecord, now_ms: int) -> Callable[[str], object]:
    """A profile's answers to a filter's fields."""
    return lambda name: _VALUES[name](record, now_ms)
