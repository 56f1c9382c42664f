"""Tasks: those of all jobs in one list, live, with any filter; older ones below as history.

What the list holds is data in `iris_core.live.task_feed`; this file says how it looks and what the keys do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.live.columns import TASKS, exit_text, pick
from iris_core.live.filters import TASK_FIELDS, TASK_WORDS, task_row
from iris_core.live.jobtree import HISTORY
from iris_core.live.task_feed import MOST_OLDER, TaskFeed
from iris_core.live.wording import Tone, task_reason, task_tone
from iris_core.model.states import TERMINAL, task_label
from iris_core.model.text import counted, one_line
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import ListScreen, Source, SpecCells
from screens.jobs_target import Target, from_row
from screens.jobs_words import OLDER
from screens.targets import TargetActions

if TYPE_CHECKING:
    from iris_core.live.rows import Row
    from iris_tui.session import Session
    from iris_tui.widgets.virtual_table import Cells, VirtualTable

MOST_LOOKED_INTO: Final = 200
"""Ended jobs that are looked into by itself while nothing matches a filter."""
UNREAD: Final = ", older ones not read"
COLUMNS = ("exit", "attempt", "age", "time", "failures", "preemptions", "memory", "worker")


class TasksScreen(ListScreen, TargetActions):
    """All tasks of one session's cluster."""

    SCOPES: ClassVar[tuple[str, ...]] = ("tasks", "target", "list")
    BINDINGS = bindings("tasks", "target", "list")
    CSS_PATH = "tasks.tcss"
    NOUN = "task"
    TITLE = "Tasks"
    FIELDS = TASK_FIELDS
    WORDS = TASK_WORDS
    MARKABLE = ("task",)

    def __init__(self, session: Session) -> None:
        self.feed = TaskFeed(session.client, session.clock)
        super().__init__(session)
        self._was_current = True

    def make_source(self) -> Source:
        return self.feed

    def make_cells(self) -> Cells:
        return SpecCells(
            [
                TASKS["task_id"],
                replace(TASKS["state"], max_width=14),
                *pick(TASKS, COLUMNS),
                replace(TASKS["reason"], min_width=22),
            ]
        )

    def filter_values(self, value: Any, now_ms: int) -> Any:
        return task_row(value, now_ms)

    def empty_words(self) -> tuple[str, ...]:
        said = "No tasks: no job has any that is not over, and no older ones are kept."
        if self.session.offline:
            return (said,)
        return (said, f"Submit a job: iris-core {self.session.selector} job run -- python3 -c \"print('hello')\"")

    @property
    def _behind(self) -> bool:
        """Whether the tasks that are here are those of a filter before: what is typed is not asked of the server yet."""
        return bool(self.feed.narrowed) and self.feed.narrowed != (self.filter.text if self.filter is not None else "")

    def _no_match(self) -> tuple[str, ...]:
        older = self.feed.older
        if self._behind:
            return (
                f"None of the tasks that match {one_line(self.feed.narrowed)} matches this.",
                f"Enter asks for it among all {counted(self.feed.total, 'task')}.",
            )
        words = super()._no_match()
        if older.exhausted:
            return words
        return (*words, f"{counted(older.jobs, 'ended job')} looked into; ^r looks into older ones.")

    def partial_words(self) -> str:
        older = self.feed.older
        if older.error:
            return f"older tasks not loaded: {older.error}; ^r tries again"
        if older.loading:
            return "loading older tasks"
        if older.left_out:
            return f"{counted(older.left_out, 'job')} ended with tasks that are not shown; ^r reads them"
        return f"no more than {MOST_OLDER:,} older tasks are kept" if older.full else ""

    def count_words(self) -> str:
        """As everywhere; of older ones those that were read, and that there may be more of them. With a filter they are counted
        apart: those alone that match are read."""
        counts, older = self.store.counts(), self.feed.older
        if not self.store.answered:
            return super().count_words()
        so_far = "" if older.complete else " so far"
        # What keeps them from being read is said beside it.
        unread = UNREAD if so_far and not self.partial_words() else ""
        if self.filter is None and not self.feed.narrowed:
            read = f" ({older.rows:,} older{so_far})" if older.rows else unread
            return super().count_words() + read
        live = self.feed.total if self.feed.narrowed else counts.total - older.rows
        least = "at least " if self._behind else ""
        found = f"{least}{max(counts.matched - older.rows, 0):,} of {counted(live, 'task')}"
        if not older.rows:
            return found + (unread if so_far else ", no older one")
        return f"{found}, {older.rows:,} older{so_far}"

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        task = row.value
        # The server sends those alone that match: one that is not sent any more need not have ended.
        gone = "" if not row.gone else " (does not match any more)" if self.feed.narrowed else " (gone)"
        runs = [Run(f" {one_line(row.id)}{gone}"), Run(f"  {task_label(task.state)}", task_tone(task.state))]
        if int(task.state) in TERMINAL and task.HasField("exit_code"):
            runs.append(Run(f"  exit {exit_text(task.exit_code, task.error)}"))
        if task.worker_id:
            runs.append(Run(f"  on {one_line(task.worker_id)}", Tone.DIM))
        if row.section == HISTORY:
            runs.append(Run(OLDER, Tone.DIM))
        reason = task_reason(task)
        if reason:
            runs.append(Run(f"  {one_line(reason)}"))
        return runs

    # --- live --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        feed = self.feed
        for job_id in feed.take_ending() if self.link.current else ():
            self.run_worker(
                feed.load_ended(job_id), name=f"tasks of {one_line(job_id)}", group="ended", exit_on_error=False
            )
        was_current, self._was_current = self._was_current, self.link.current
        if self._was_current and not was_current and feed.older.error:
            # What could not be read while nobody answered is read again without a key.
            feed.older.error = ""
            self._load_older()
        if not self.prompt.is_open:
            feed.narrow(self.filter.text if self.filter is not None else "")
        nothing = not self.store.order and self.is_ordered
        if feed.loaded and nothing and feed.older.jobs < MOST_LOOKED_INTO:
            self._load_older()
        super().flush()

    def reload(self) -> None:
        self.feed.restart(self.feed.older.filter)
        if not self.store.order:
            self._load_older()
        super().reload()

    def filtered(self) -> None:
        self.feed.restart(self.filter.text if self.filter is not None else "")

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        event.stop()
        if event.at_end and self.table.touched and self.feed.loaded:
            self._load_older()
        if self.is_current:
            self.show_state()

    def _load_older(self) -> None:
        older = self.feed.older
        if not (older.exhausted or older.loading or older.error or older.full):
            self.run_worker(self._older(), name="older tasks", group="history", exit_on_error=False)

    async def _older(self) -> None:
        if await self.feed.load_older():
            self._urgent = True

    # --- what the keys do --------------------------------------------------------------------------------------------

    def chosen_target(self) -> Target | None:
        self.table.touch()
        row = self.table.row
        return from_row(row) if row is not None else None

    def do_open(self) -> None:
        target = self.chosen_target()
        if target is not None:
            self.console.go("task", target.id)
