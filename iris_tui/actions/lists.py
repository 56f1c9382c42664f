"""Lists: filter, sort and marks work the same in every one; trees, whose rows open and close; and the tree of jobs."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action


def _sort(column: str, title: str, key: str) -> Action:
    return Action(id=f"jobs.sort_{column}", title=f"Sort by {title}", keys=(key,), command=f"sort-{column}")


LISTS: Final[tuple[Action, ...]] = (
    Action(id="list.filter", title="Filter", keys=("slash",), command="filter", arguments="[FILTER]", footer=40),
    Action(id="list.unfilter", title="Clear the filter, or go back", keys=("escape",), command="unfilter"),
    Action(id="list.filters", title="Choose a filter that was saved or typed before", keys=("ctrl+f",), command="filters", arguments="[NAME]"),
    Action(id="list.save_filter", title="Save the filter under a name", command="save-filter", arguments="NAME"),
    Action(id="list.forget_filter", title="Forget a saved filter", command="forget-filter", arguments="NAME"),
    Action(id="list.sort", title="Sort by a column; without one, as it was", command="sort", arguments="[COLUMN]"),
    Action(id="list.sort_right", title="Sort by the next column", keys=("greater_than_sign",), command="sort-next"),
    Action(id="list.sort_left", title="Sort by the column before", keys=("less_than_sign",), command="sort-previous"),
    Action(id="list.reverse", title="Sort the other way round", keys=("o",), command="reverse"),
    Action(id="list.reorder", title="Sort again now, also while rows are marked", keys=("r",), command="reorder"),
    Action(id="list.mark", title="Mark or unmark the row", keys=("space",), command="mark"),
    Action(id="list.mark_range", title="Mark from the last marked row to this one", keys=("V", "ctrl+space"), command="mark-range"),
    Action(id="list.mark_all", title="Mark all that match the filter, hidden ones too", command="mark-all"),
    Action(id="list.unmark", title="Unmark all", keys=("u",), command="unmark"),
    Action(id="list.menu", title="Actions for the row or the marked rows", keys=("x",), command="actions", footer=50),
)  # fmt: skip

TREE: Final[tuple[Action, ...]] = (
    Action(id="tree.open", title="Open or close the row", keys=("enter",), command="open", footer=10),
    Action(id="tree.into", title="Open the row, or go to the first one below it", keys=("right",), command="into"),
    Action(id="tree.close", title="Close the row, or go to the one above it", keys=("left",), command="close"),
)  # fmt: skip

JOBS: Final[tuple[Action, ...]] = (
    _sort("name", "name", "N"),
    _sort("state", "state", "S"),
    _sort("tasks", "tasks done", "T"),
    _sort("age", "age", "A"),
    _sort("time", "run time", "D"),
    _sort("failures", "failures", "F"),
    _sort("preemptions", "preemptions", "P"),
    _sort("reason", "reason", "R"),
)  # fmt: skip
