"""Logs."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

LOG: Final[tuple[Action, ...]] = (
    Action(id="log.follow", title="Follow: jump to the end and stay there", keys=("F",), command="follow", footer=10),
    Action(
        id="log.filter", title="Filter all lines by a regular expression, on the server", keys=("ampersand",), command="grep",
        arguments="[REGEX]", cli="iris-core {at} {noun} logs {id} --regex REGEX", footer=20,
    ),
    Action(id="log.find", title="Find in the loaded lines", keys=("slash",), command="find", arguments="[TEXT]", footer=30),
    Action(id="log.next", title="Next hit", keys=("n",), command="find-next"),
    Action(id="log.previous", title="Previous hit", keys=("N",), command="find-previous"),
    Action(id="log.wrap", title="Wrap long lines", keys=("w",), command="wrap", footer=40),
    Action(id="log.times", title="Timestamps: off, UTC, local", keys=("t",), command="timestamps"),
    Action(id="log.full", title="Logs alone, or below the table", keys=("f",), command="fullscreen"),
    Action(id="log.close", title="Close the logs", keys=("escape", "q"), command="close-logs", footer=50),
    Action(id="log.up", title="Line up", keys=("up", "k"), moves=True),
    Action(id="log.down", title="Line down", keys=("down", "j"), moves=True),
    Action(id="log.page_up", title="Page up", keys=("pageup", "b", "ctrl+u"), moves=True),
    Action(id="log.page_down", title="Page down", keys=("pagedown", "space", "ctrl+d"), moves=True),
    Action(id="log.top", title="First line the store still holds", keys=("home", "g"), moves=True),
    Action(id="log.bottom", title="Last line", keys=("end", "G"), moves=True),
    Action(id="log.left", title="Scroll left", keys=("left", "h"), moves=True),
    Action(id="log.right", title="Scroll right", keys=("right",), moves=True),
)  # fmt: skip
