"""The pulse of the cluster: each line leads to where more about it is shown."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

OVERVIEW: Final[tuple[Action, ...]] = (
    Action(id="overview.open", title="Show more about the line", keys=("enter", "right"), command="open-pulse", footer=10),
    Action(id="overview.times", title="Times of the charts in UTC or local", keys=("t",), command="chart-times"),
    Action(id="overview.close", title="Back to the screen before", keys=("escape",), command="close-overview"),
)  # fmt: skip
