"""Moving in tables."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

TABLE: Final[tuple[Action, ...]] = (
    Action(id="table.up", title="Up", keys=("up", "k"), moves=True),
    Action(id="table.down", title="Down", keys=("down", "j"), moves=True),
    Action(id="table.page_up", title="Page up", keys=("pageup", "ctrl+u"), moves=True),
    Action(id="table.page_down", title="Page down", keys=("pagedown", "ctrl+d"), moves=True),
    Action(id="table.top", title="First row", keys=("home", "g"), moves=True),
    Action(id="table.bottom", title="Last row", keys=("end", "G"), moves=True),
)  # fmt: skip
