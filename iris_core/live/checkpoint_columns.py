"""The columns of checkpoints, for the command line's tables and the console; rules as in `columns`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from iris_core.live.columns import ColumnSpec, age, iso, when
from iris_core.live.wording import NOTHING, Tone
from iris_core.model.filter import Field, FieldType
from iris_core.model.quantities import format_size


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint of a state dir, or half of one.

    url        what `--checkpoint` takes
    epoch_ms   when it was taken
    size_bytes of what lies in the store
    fault      why it is never chosen, "" = it is valid; then the rest is known:
    database_bytes, jobs, tasks, workers   what is in it
    unpacked   it lies in this user's cache, so that it opens at once
    schema     the last migration of its database
    rollback   the rollout record names it: a rollback of the deployment goes back to it
    """

    url: str
    epoch_ms: int
    size_bytes: int
    fault: str = ""
    database_bytes: int = 0
    jobs: int = 0
    tasks: int = 0
    workers: int = 0
    unpacked: bool = False
    schema: str = ""
    rollback: bool = False

    @property
    def source(self) -> str:
        """`local` if it lies on this machine's disk, else the kind of store: `gs`, `s3`."""
        kind = self.url.partition("://")[0]
        return "local" if kind == "file" else kind


def state_text(row: CheckpointRow) -> str:
    """`valid`, `valid, unpacked here`, or why it is never chosen; and whether a rollback goes back to it."""
    said = row.fault or ("valid, unpacked here" if row.unpacked else "valid")
    return f"a rollback takes it: {said}" if row.rollback else said


def _column(**fields: Any) -> ColumnSpec[Any]:
    return ColumnSpec(**fields)


def _count(name: str, hide: int) -> ColumnSpec[Any]:
    def value(row: CheckpointRow) -> int | None:
        return None if row.fault else int(getattr(row, name))

    return _column(
        id=name, title=name.upper(), min_width=5, max_width=11, align="right", hide=hide, value=value,
        text=lambda row, _: NOTHING if row.fault else f"{getattr(row, name):,}", sort=lambda row, _: getattr(row, name),
    )  # fmt: skip


def _size(name: str, title: str, known: Callable[[CheckpointRow], bool], hide: int) -> ColumnSpec[Any]:
    return _column(
        id=name, title=title, min_width=6, max_width=8, align="right", hide=hide,
        value=lambda row: getattr(row, name) if known(row) else None,
        text=lambda row, _: format_size(getattr(row, name)) if known(row) else NOTHING,
        sort=lambda row, _: getattr(row, name),
    )  # fmt: skip


CHECKPOINTS: Final[dict[str, ColumnSpec[CheckpointRow]]] = {
    spec.id: spec
    for spec in (
        _column(
            id="url", title="CHECKPOINT", min_width=16, flex=3, hide=5,
            value=lambda row: row.url,
            text=lambda row, _: row.url,
            sort=lambda row, _: row.url,
        ),
        _column(
            id="epoch_ms", title="EPOCH MS", min_width=13, max_width=15,
            value=lambda row: row.epoch_ms,
            text=lambda row, _: str(row.epoch_ms),
            sort=lambda row, _: row.epoch_ms,
        ),
        _column(
            id="taken", title="TAKEN", min_width=19, max_width=23, hide=2,
            value=lambda row: iso(row.epoch_ms),
            text=lambda row, _: when(row.epoch_ms),
            sort=lambda row, _: row.epoch_ms,
        ),
        _column(
            id="age", title="AGE", min_width=4, max_width=8, align="right",
            value=lambda row: iso(row.epoch_ms),
            text=lambda row, now_ms: age(row.epoch_ms, now_ms), moves=True,
            sort=lambda row, _: -row.epoch_ms,
        ),
        _size("size_bytes", "SIZE", lambda row: bool(row.size_bytes), 0),
        _size("database_bytes", "DATABASE", lambda row: not row.fault, 4),
        _column(
            id="source", title="SOURCE", min_width=6, max_width=6, hide=7,
            value=lambda row: row.source,
            text=lambda row, _: row.source,
            sort=lambda row, _: row.source,
        ),
        _column(
            id="schema", title="SCHEMA", min_width=6, max_width=24, hide=6,
            value=lambda row: row.schema or None,
            text=lambda row, _: row.schema or NOTHING,
            sort=lambda row, _: row.schema,
        ),
        _count("jobs", 1),
        _count("tasks", 1),
        _count("workers", 3),
        _column(
            id="state", title="STATE", min_width=5, flex=2,
            value=state_text,
            text=lambda row, _: state_text(row),
            sort=lambda row, _: state_text(row),
            tone=lambda row: Tone.BAD if row.fault else Tone.GOOD,
        ),
    )
}  # fmt: skip

CHECKPOINT_FIELDS: Final[dict[str, FieldType | Field]] = {
    "state": FieldType.TEXT,
    "place": FieldType.TEXT,
    "source": FieldType.TEXT,
    "schema": FieldType.TEXT,
    "epoch": FieldType.NUMBER,
    "age": FieldType.DURATION,
    "size": FieldType.SIZE,
    "jobs": FieldType.NUMBER,
    "tasks": FieldType.NUMBER,
    "workers": FieldType.NUMBER,
}
CHECKPOINT_WORDS: Final = ("state", "place")

_VALUES: Final[dict[str, Callable[[CheckpointRow, int], object]]] = {
    "state": lambda row, _: state_text(row),
    "place": lambda row, _: row.url,
    "source": lambda row, _: row.source,
    "schema": lambda row, _: row.schema,
    "epoch": lambda row, _: row.epoch_ms,
    "age": lambda row, now_ms: now_ms - row.epoch_ms,
    "size": lambda row, _: row.size_bytes,
    "jobs": lambda row, _: None if row.fault else row.jobs,
    "tasks": lambda row, _: None if row.fault else row.tasks,
    "workers": lambda row, _: None if row.fault else row.workers,
}


def checkpoint_values(row: CheckpointRow, now_ms: int) -> Callable[[str], object]:
    """A checkpoint's answers to a filter's fields."""
    return lambda name: _VALUES[name](row, now_ms)
