"""The console itself: whether it may change anything, and how it fares."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

UPKEEP: Final[tuple[Action, ...]] = (
    Action(id="app.readonly", title="Make the cluster that is shown read-only", command="readonly"),
    Action(id="app.write", title="Let the cluster that is shown be changed again", command="write"),
    Action(id="app.debug", title="Show how the console itself fares", command="debug", cli="iris-core {at} debug info"),
)
