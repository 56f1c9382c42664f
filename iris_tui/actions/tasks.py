"""The list of all tasks, and the pages of a job and of a task."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

TASKS: Final[tuple[Action, ...]] = (
    Action(
        id="tasks.open", title="Open the page of the task", keys=("enter",), command="open-task", cli="iris-core {at} task describe {id}",
        footer=10, kinds=("task",),
    ),
)  # fmt: skip

JOB: Final[tuple[Action, ...]] = (
    Action(
        id="job.open", title="Open the page of the row", keys=("enter",), command="open-part",
        cli="iris-core {at} {noun} describe {id}", footer=10, kinds=("task", "job"),
    ),
)  # fmt: skip

TASK: Final[tuple[Action, ...]] = (
    Action(
        id="task.open", title="Open the row", keys=("enter",), command="open-attempt",
        cli="iris-core {at} attempt logs {id} --follow", footer=10, kinds=("attempt",),
    ),
)  # fmt: skip

TABS: Final[tuple[Action, ...]] = (
    Action(id="tabs.next", title="Next part", keys=("tab",), command="tab-next", footer=12),
    Action(id="tabs.previous", title="The part before", keys=("shift+tab",), command="tab-previous"),
    *(
        Action(id=f"tabs.tab{number}", title=f"Part {number} of the page", keys=(str(number),), command=f"tab-{number}")
        for number in range(1, 8)
    ),
)  # fmt: skip
