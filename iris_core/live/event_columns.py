"""The columns of task events, for the command line's tables and the console; rules as in `columns`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from iris_core.live.columns import ColumnSpec, Tone, iso, when
from iris_core.live.wording import NOTHING, or_nothing

WARNING: Final = "Warning"


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """One row of `iris.task_event`, as far as it is shown."""

    task_id: str
    attempt_id: int
    attempt_uid: str
    at_ms: int
    type: str
    source: str
    reason: str
    message: str
    count: int


def _column(**fields: Any) -> ColumnSpec[Any]:
    return ColumnSpec(**fields)


EVENTS: Final[dict[str, ColumnSpec[TaskEvent]]] = {
    spec.id: spec
    for spec in (
        _column(
            id="time", title="TIME (UTC)", min_width=19, max_width=19,
            value=lambda event: iso(event.at_ms),
            text=lambda event, _: when(event.at_ms),
            sort=lambda event, _: event.at_ms,
            tone=lambda event: Tone.DIM,
        ),
        _column(
            id="task_id", title="TASK", min_width=12, flex=2, hide=4,
            value=lambda event: event.task_id,
            text=lambda event, _: or_nothing(event.task_id),
            sort=lambda event, _: event.task_id,
        ),
        _column(
            id="attempt", title="ATTEMPT", min_width=7, max_width=7, align="right",
            value=lambda event: event.attempt_id if event.attempt_id >= 0 else None,
            text=lambda event, _: str(event.attempt_id) if event.attempt_id >= 0 else NOTHING,
            sort=lambda event, _: event.attempt_id,
        ),
        _column(
            id="uid", title="UID", min_width=12, max_width=16, hide=5,
            value=lambda event: event.attempt_uid or None,
            text=lambda event, _: or_nothing(event.attempt_uid),
            sort=lambda event, _: event.attempt_uid,
            tone=lambda event: Tone.DIM,
        ),
        _column(
            id="type", title="TYPE", min_width=7, max_width=7, hide=1,
            value=lambda event: event.type,
            text=lambda event, _: or_nothing(event.type),
            sort=lambda event, _: event.type,
            tone=lambda event: Tone.WARN if event.type == WARNING else Tone.PLAIN,
        ),
        _column(
            id="source", title="SOURCE", min_width=15, max_width=16, hide=3,
            value=lambda event: event.source,
            text=lambda event, _: or_nothing(event.source),
            sort=lambda event, _: event.source,
        ),
        _column(
            id="action", title="ACTION", min_width=10, max_width=28,
            value=lambda event: event.reason,
            text=lambda event, _: or_nothing(event.reason),
            sort=lambda event, _: event.reason,
            tone=lambda event: Tone.WARN if event.type == WARNING else Tone.PLAIN,
        ),
        _column(
            id="count", title="COUNT", min_width=5, max_width=6, align="right", hide=2,
            value=lambda event: event.count,
            text=lambda event, _: str(event.count),
            sort=lambda event, _: -event.count, falls=True,
        ),
        _column(
            id="message", title="MESSAGE", min_width=12, flex=4,
            value=lambda event: event.message,
            text=lambda event, _: or_nothing(event.message),
            sort=lambda event, _: event.message,
        ),
    )
}  # fmt: skip
