"""Scheduler: what waits and what runs, by band, by user, by job; each user's budget beside it; why a job waits.

The rows are made in `iris_core.live.scheduler_tree`; this file says how they look and where Enter leads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from iris_core.live.bucket_columns import COLUMNS, SPECS
from iris_core.live.scheduler_tree import PENDING, RUNNING, Group, SchedulerTree
from iris_core.live.tree_filters import BUCKET_FIELDS, BUCKET_WORDS, bucket_row
from iris_core.live.wording import Tone, resources_text
from iris_core.model.text import counted, one_line
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import Source
from iris_tui.tree_rows import TreeCells, TreeRows
from screens.jobs_target import Target
from screens.targets import TargetActions

if TYPE_CHECKING:
    from iris_core.live.rows import Row
    from iris_core.model.filter import Filter
    from iris_tui.session import Session
    from iris_tui.widgets.virtual_table import Cells


class SchedulerScreen(TreeRows, TargetActions):
    """Pending and running buckets of one cluster."""

    SCOPES: ClassVar[tuple[str, ...]] = ("tree", "target", "list")
    BINDINGS = bindings("tree", "target", "list")
    CSS_PATH = "lists.tcss"
    NOUN = "bucket"
    TITLE = "Scheduler"
    FIELDS = BUCKET_FIELDS
    WORDS = BUCKET_WORDS

    def __init__(self, session: Session) -> None:
        self.buckets = SchedulerTree(session.client, session.clock)
        super().__init__(session)

    def make_source(self) -> Source:
        return self.buckets

    def make_cells(self) -> Cells:
        return TreeCells(COLUMNS, SPECS, self.console.glyphs, self.store)

    def filter_values(self, value: Any, now_ms: int) -> Any:
        return bucket_row(value, now_ms)

    def match_row(self, row: Row[Any], wanted: Filter, now_ms: int) -> bool | None:
        # A band or user is shown for what is below it.
        return row.kind == "job" and wanted.matches(bucket_row(row.value, now_ms))

    def empty_words(self) -> tuple[str, ...]:
        said = "Nothing waits and nothing runs."
        if self.session.offline:
            return (said,)
        return (said, f"Submit a job: iris-core {self.session.selector} job run -- python3 -c \"print('hello')\"")

    def count_words(self) -> str:
        waiting, buckets = self.buckets.totals(PENDING)
        running, _ = self.buckets.totals(RUNNING)
        counts = self.store.counts()
        some = f"{counts.matched:,} of {counted(counts.total, 'bucket')}  " if self.filter is not None else ""
        return f"{some}{counted(waiting, 'task')} of {counted(buckets, 'job')} pending, {running:,} running"

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        value = row.value
        gone = " (gone)" if row.gone else ""
        if isinstance(value, Group):
            text = SPECS[row.kind]["reason"].text(value, 0)
            name = SPECS[row.kind]["name"].text(value, 0)
            return [Run(f" {name}{gone}"), Run(f"  {one_line(text)}", Tone.DIM)]
        runs = [Run(f" {one_line(value.job_id)}{gone}  {counted(value.count, 'task')}")]
        if row.id.startswith(PENDING):
            runs.append(Run(f"  each asks for {resources_text(value.resources)}", Tone.DIM))
        return [*runs, Run(f"  {SPECS['job']['reason'].text(value, 0)}")]

    # --- what an action is about -------------------------------------------------------------------------------------

    def enter_row(self, row: Row[Any]) -> None:
        self.console.go("explain", row.value.job_id)

    def chosen_target(self) -> Target | None:
        self.table.touch()
        row = self.table.row
        if row is None or isinstance(row.value, Group):
            return None
        return Target("job", row.value.job_id, row.value.job_id)

    def chosen_ids(self, kinds: Sequence[str]) -> list[str]:
        rows = [self.store.get(name) for name in super().chosen_ids(kinds)]
        return list(dict.fromkeys(row.value.job_id for row in rows if row is not None))
