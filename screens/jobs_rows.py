"""How the rows of the Jobs tree look: one set of columns for jobs, tasks, attempts and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from iris_core.live.columns import (
    ATTEMPTS,
    JOBS,
    NOTHING,
    TASKS,
    ColumnSpec,
    Share,
    Tone,
    age,
    attempt_reason,
    exit_text,
    job_reason,
    pick,
    share_cells,
    task_reason,
    task_shares,
)
from iris_core.live.jobtree import HISTORY
from iris_core.model.states import TERMINAL
from iris_core.model.text import one_line
from iris_tui.drawing import Run, cut_middle

if TYPE_CHECKING:
    from iris_core.live.jobtree import Value
    from iris_core.live.rows import Row, RowStore
    from iris_tui.glyphs import Glyphs

BAR_CELLS: Final = 10
_INDENT: Final = 2

_SHARE_TONES: Final[dict[Share, Tone]] = {
    "done": Tone.GOOD,
    "failed": Tone.BAD,
    "running": Tone.BUSY,
    "starting": Tone.WAIT,
    "pending": Tone.DIM,
}
_SPECS: Final[dict[str, dict[str, ColumnSpec[Any]]]] = {"job": JOBS, "task": TASKS, "attempt": ATTEMPTS}


def state_of(row: Row[Value]) -> tuple[str, Tone]:
    """The state in words, and its tone."""
    spec = _SPECS[row.kind]["state"]
    assert spec.tone is not None
    return spec.text(row.value, 0), spec.tone(row.value)


def reason_of(row: Row[Value]) -> str:
    """Why the row is as it is, with its exit code; "" if there is nothing to say."""
    value: Any = row.value
    if row.kind == "job":
        return job_reason(value)
    reason = task_reason(value) if row.kind == "task" else attempt_reason(value)
    ended = int(value.state) in TERMINAL and value.HasField("exit_code") and value.exit_code
    if ended and "exit" not in reason:
        return f"exit {exit_text(value.exit_code)}{'  ' + reason if reason else ''}"
    return reason


class JobRows:
    """Columns and cells of the tree (`iris_tui.widgets.virtual_table.Cells`)."""

    def __init__(self, glyphs: Glyphs, store: RowStore[Value]) -> None:
        self._glyphs = glyphs
        self._store = store
        self.columns: Sequence[ColumnSpec[Any]] = [
            # Minima that leave every column which may not hide at 80 cells, with room for a reason.
            replace(JOBS["job_id"], id="name", title="JOB", min_width=22),
            replace(JOBS["state"], min_width=11),
            *pick(JOBS, ("tasks", "age", "time")),
            replace(JOBS["failures"], hide=0),
            *pick(JOBS, ("preemptions",)),
            replace(JOBS["reason"], min_width=18),
        ]
        self.moving = frozenset(spec.id for spec in self.columns if spec.moves)

    def whole(self, row: Row[Value]) -> list[Run] | None:
        """A note has the whole line."""
        if row.kind != "note":
            return None
        value: Any = row.value
        return [Run(" " * (row.depth * _INDENT + _INDENT) + one_line(value.text), value.tone)]

    def cells(self, row: Row[Value], column: str, width: int, now_ms: int) -> list[Run]:
        """The texts of one cell."""
        value: Any = row.value
        if column == "name":
            return self._name(row, width)
        if column == "reason":
            return self._reason(row)
        if column == "state" and row.gone:
            return [Run("gone", Tone.DIM)]
        if column == "tasks":
            return self._tasks(row, width)
        if column == "age" and row.kind == "attempt":
            return [Run(age(value.created_at_ms, now_ms), Tone.DIM)]
        spec = _SPECS[row.kind].get(column)
        if spec is None:
            return []
        return [Run(spec.text(value, now_ms), spec.tone(value) if spec.tone is not None else Tone.PLAIN)]

    def _name(self, row: Row[Value], width: int) -> list[Run]:
        glyphs = self._glyphs
        handle = (glyphs.opened if row.id in self._store.expanded else glyphs.closed) if row.expandable else " "
        runs = [Run(" " * (row.depth * _INDENT)), Run(f"{handle} ", Tone.DIM)]
        value: Any = row.value
        if row.kind == "job":
            name = row.id if not row.depth else row.id.rpartition("/")[2]
            room = width - sum(len(run.text) for run in runs)
            text = cut_middle(one_line(name), room, glyphs.ellipsis)
            runs.append(Run(text, Tone.DIM if row.section == HISTORY else Tone.PLAIN))
        elif row.kind == "task":
            runs += [Run("task ", Tone.DIM), Run(str(value.task_index))]
        else:
            runs += [Run("attempt ", Tone.DIM), Run(str(value.attempt_id))]
            if value.current:
                runs.append(Run(" current", Tone.DIM))
        return runs

    def _tasks(self, row: Row[Value], width: int) -> list[Run]:
        value: Any = row.value
        if row.kind != "job":
            return [Run(one_line(value.worker_id) if value.worker_id else NOTHING, Tone.DIM)]
        text = JOBS["tasks"].text(value, 0)
        room = min(width - len(text) - 1, BAR_CELLS)
        if room < 3:
            return [Run(text)]
        glyphs = self._glyphs
        drawn: dict[Share, str] = {
            "done": glyphs.done,
            "failed": glyphs.failed,
            "running": glyphs.running,
            "starting": glyphs.starting,
            "pending": glyphs.pending,
        }
        bar = [Run(drawn[share] * cells, _SHARE_TONES[share]) for share, cells in share_cells(task_shares(value), room)]
        if not bar:
            bar = [Run(glyphs.pending * room, Tone.DIM)]
        return [*bar, Run(f" {text}")]

    def _reason(self, row: Row[Value]) -> list[Run]:
        reason = reason_of(row)
        return [Run(one_line(reason), Tone.BAD if state_of(row)[1] is Tone.BAD else Tone.DIM)] if reason else []

    @staticmethod
    def sort_key(column: str, now_ms: Callable[[], int]) -> Callable[[Row[Value]], Any]:
        """The key for sorting siblings by a column; kinds that do not have it keep their natural order."""
        names = {"name": {"job": "job_id", "task": "task_id", "attempt": "attempt"}}.get(column, {})
        moment = now_ms()

        def key(row: Row[Value]) -> Any:
            spec = _SPECS.get(row.kind, {}).get(names.get(row.kind, column))
            return spec.sort(row.value, moment) if spec is not None and spec.sort is not None else 0

        return key
