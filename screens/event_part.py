"""The part of a page that shows what was decided about a job's tasks: its columns, its rows newest first, and the state of it.

Shared by the page of a job, where each event says of which rank it is, and the page of a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from iris_core.live.columns import pick
from iris_core.live.event_columns import EVENTS
from iris_core.live.rows import Row
from iris_core.model.text import one_line
from iris_tui.drawing import Run
from iris_tui.tabbed import polled_status

if TYPE_CHECKING:
    from iris_core.live import measured
    from iris_core.live.columns import ColumnSpec
    from iris_core.live.event_columns import TaskEvent
    from iris_core.live.polled import Polled
    from iris_tui.tabbed import RowsPart, Tabbed

EVENT_RANK: Final[ColumnSpec[Any]] = replace(
    EVENTS["task_id"], id="rank", title="RANK", min_width=5, max_width=7, flex=0, align="right", hide=0,
    text=lambda event, _: one_line(event.task_id.rpartition("/")[2]),
)  # fmt: skip


def event_columns(names: Sequence[str]) -> list[ColumnSpec[Any]]:
    """The columns of events; the message gets its room before the others do."""
    return [*pick(EVENTS, names), replace(EVENTS["message"], min_width=28)]


def event_detail(row: Row[TaskEvent]) -> list[Run]:
    """The whole message."""
    event = row.value
    whose = f"{event.task_id}:{event.attempt_id}" if event.attempt_id >= 0 else event.task_id
    return [Run(f" {one_line(whose)}"), Run(f"  {one_line(event.reason)}"), Run(f"  {one_line(event.message)}")]


def event_rows(events: Sequence[TaskEvent]) -> list[Row[TaskEvent]]:
    """The rows of events, the newest first: what was decided last is seen at once."""
    count = len(events)
    return [Row(f"{count - place}", "event", event) for place, event in enumerate(reversed(events))]


def fill_events_state(screen: Tabbed, pane: RowsPart, polled: Polled[measured.Events]) -> None:
    """The state of a part with events."""
    found = polled.value
    empty: tuple[str, ...] = ()
    partial = ""
    if found is not None:
        empty = () if found.events else ("No events are kept; they are for 30 days.",)
        older = (f"the newest {len(found.events):,} are shown",) if found.older else ()
        partial = "; ".join((*older, *found.notes))
    pane.set_status(polled_status(screen, polled, "events", empty=empty, partial=partial))
