"""What the Jobs screen says about itself: the state of its pane, its title with honest counts, the line about the selected row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_core.live.watch import Link
from iris_core.live.wording import Tone
from iris_core.model.resources import format_age
from iris_core.model.text import one_line
from iris_tui.drawing import Run, counted
from iris_tui.widgets.pane import State, Status
from screens.jobs_rows import reason_of, state_of

if TYPE_CHECKING:
    from iris_core.live.jobtree import JobTree
    from iris_core.live.rows import Row
    from iris_core.model.filter import Filter
    from iris_tui.session import Session


def status(session: Session, filter_: Filter | None) -> Status:
    """How complete and how true the list is, in words."""
    tree, store, state = session.tree, session.tree.store, session.link
    if not tree.loaded and not store.rows:
        if state.link in (Link.RECONNECTING, Link.DENIED):
            words = "Not allowed to see" if state.link is Link.DENIED else "Cannot reach"
            where = session.client.url
            return Status(
                State.ERROR,
                "",
                (
                    f"{words} {one_line(session.name)}{' at ' + where if where else ''}: {state.detail}",
                    "It is tried again by itself, for as long as the console is open. ^r tries now, q quits.",
                ),
            )
        return Status(State.LOADING, "", (f"Loading the jobs of {one_line(session.name)} …",))
    if not state.fresh:
        age = format_age(int((state.age_s or 0) * 1000))
        return Status(State.STALE, f"STALE {age}: {state.detail}")
    if not tree.loaded:
        return Status(State.PARTIAL, f"loading, {len(store.rows):,} so far")
    if not store.order and not store.dirty:
        return _empty(session, filter_)
    if tree.history.error:
        return Status(State.PARTIAL, f"older jobs not loaded: {tree.history.error}; ^r tries again")
    if tree.history.loading:
        return Status(State.PARTIAL, "loading older jobs")
    return Status(State.READY)


def _empty(session: Session, filter_: Filter | None) -> Status:
    if filter_ is not None:
        total = session.tree.store.counts().total
        return Status(
            State.EMPTY,
            "",
            (
                f"None of {total:,} jobs matches {one_line(filter_.text)}",
                "Esc clears the filter, / changes it.",
            ),
        )
    return Status(
        State.EMPTY, "",
        ("No jobs yet.", f"Submit one: iris-core {session.selector} job run -- python3 -c \"print('hello')\""),
    )  # fmt: skip


def title(tree: JobTree, filter_: Filter | None, *, wrong: bool) -> tuple[list[Run], list[Run]]:
    """Both sides of the title. `wrong`: what is typed as a filter cannot be understood, the list is of the one before."""
    store = tree.store
    counts = store.counts()
    left = [Run("Jobs")]
    if filter_ is not None:
        left.append(Run(f"  / {one_line(filter_.text)}", Tone.WARN))
    if wrong:
        left.append(Run("  still the last valid filter" if filter_ is not None else "  still unfiltered", Tone.BAD))
    right: list[Run] = []
    if store.marks:
        hidden = store.hidden_marks()
        right.append(Run(f"{len(store.marks)} marked{f', {hidden} hidden' if hidden else ''}  ", Tone.WARN))
    if store.pending:
        right.append(Run(f"order kept, {store.pending:,} changes, r sorts  ", Tone.WARN))
    if tree.loaded:
        closed = counts.matched - counts.shown
        under = f", {closed:,} under closed rows" if filter_ is not None and closed > 0 else ""
        some = f"{counts.matched:,} of " if filter_ is not None else ""
        older = f" ({tree.history.rows:,} older)" if tree.history.rows else ""
        right.append(Run(f"{some}{counted(counts.total, 'job')}{under}{older}", Tone.DIM))
    return left, right


def detail(row: Row[Any] | None) -> list[Run]:
    """The selected row's whole id, state and reason."""
    if row is None or row.kind == "note":
        return []
    text, tone = state_of(row)
    gone = " (gone)" if row.gone else ""
    runs = [Run(f" {one_line(row.id)}{gone}"), Run(f"  {text}", tone)]
    reason = reason_of(row)
    if reason:
        runs.append(Run(f"  {one_line(reason)}", Tone.PLAIN))
    return runs
