"""The Jobs view as lines: for screen readers, dumb terminals and pipes.

First the jobs as they are, in the columns of the console; then a line for every job that changes, until the input ends, a
line `q` is read, or it is interrupted. No alternate screen, no cursor movement. A broken connection is a line, not an end.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from iris_core.live.columns import JOBS, ColumnSpec, fit, job_reason, pick
from iris_core.live.jobtree import JobTree
from iris_core.live.waiting import first_of
from iris_core.live.watch import Link, Watch
from iris_core.model.states import job_label
from iris_core.model.text import cell_width, one_line, truncate_cells

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.connect import Target
    from iris_core.contracts import AsyncClient
    from iris_core.live.clock import Clock

COLUMNS = ("job_id", "state", "tasks", "age", "failures", "reason")
LOOK_S = 0.25


def run_plain(target: Target) -> int:
    """Print the jobs of a cluster and what happens to them; returns the exit code."""
    from iris_core.connect import open_async_client
    from iris_core.live.clock import SystemClock

    async def run() -> None:
        client = open_async_client(target)
        try:
            await follow(client, target.cluster or target.url, SystemClock(), print_line, _input_ended())
        finally:
            await client.close()

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    return 0


def print_line(text: str) -> None:
    """One line on standard output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _input_ended() -> asyncio.Event:
    """Set when a line `q` or the end of standard input was read."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def readable() -> None:
        line = sys.stdin.readline()
        if not line or line.strip() in ("q", ":q", "quit"):
            loop.remove_reader(sys.stdin)
            ended.set()

    try:
        loop.add_reader(sys.stdin, readable)
    except (OSError, ValueError):
        return ended  # a file or no input at all: only an interrupt ends it
    return ended


async def follow(
    client: AsyncClient, cluster: str, clock: Clock, say: Callable[[str], None], ended: asyncio.Event
) -> None:
    """The view itself: the jobs, then every change, until `ended` is set."""
    tree = JobTree(client)
    watch = Watch(client, tree, clock)
    watch.select(tree.selectors())
    task = asyncio.create_task(watch.run(), name="watch")
    link = Link.CONNECTING
    listed = False
    try:
        while not (ended.is_set() and (listed or link in (Link.RECONNECTING, Link.DENIED))):
            if task.done():
                task.result()
            state = watch.state
            if state.link is not link:
                link = state.link
                say(f"{cluster}: {link.value}{': ' + state.detail if state.detail and not state.fresh else ''}")
            changes = tree.take_changes()
            if tree.loaded and not listed:
                listed = True
                tree.store.reorder(force=True)
                rows: list[Any] = [tree.store.rows[name].value for name in tree.store.order]
                for line in table(rows, clock.now_ms()):
                    say(line)
                say(f"{len(rows)} jobs. Changes follow; q and Enter ends.")
            elif listed:
                for name in sorted(changes.added | changes.changed | changes.removed):
                    say(change(tree.store.get(name), name))
            await first_of(clock.sleep(LOOK_S), *([] if ended.is_set() else [ended.wait()]))
    finally:
        task.cancel()


def change(row: Any, name: str) -> str:
    """What became of one job, in one line."""
    if row is None or row.gone:
        return f"{one_line(name)}: no longer listed"
    job = row.value
    reason = job_reason(job)
    return f"{one_line(name)}: {job_label(job.state)}, tasks {JOBS['tasks'].text(job, 0)}{', ' + one_line(reason) if reason else ''}"


def table(jobs: list[Any], now_ms: int, *, width: int = 120) -> list[str]:
    """The jobs as aligned lines; the ids are never cut."""
    columns: list[ColumnSpec[Any]] = list(pick(JOBS, COLUMNS))
    fitted = fit(columns, width)
    longest = max((cell_width(columns[0].text(job, now_ms)) for job in jobs), default=0)
    widths = {column.id: room for column, room in fitted}
    widths["job_id"] = max(longest, len("JOB ID"))

    def line(texts: dict[str, str]) -> str:
        cells = []
        for column, _ in fitted:
            room = widths[column.id]
            text = texts[column.id] if column.id == "job_id" else truncate_cells(texts[column.id], room)
            blank = " " * max(room - cell_width(text), 0)
            cells.append(blank + text if column.align == "right" else text + blank)
        return "  ".join(cells).rstrip()

    head = line({column.id: column.title for column, _ in fitted})
    return [head, *(line({column.id: column.text(job, now_ms) for column, _ in fitted}) for job in jobs)]
