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
    Action(id="log.find", title="Find a regular expression", keys=("slash",), command="find", arguments="[REGEX]", footer=30),
    Action(id="log.next", title="Next hit", keys=("n",), command="find-next"),
    Action(id="log.previous", title="Previous hit", keys=("N",), command="find-previous"),
    Action(id="log.error", title="Next error", keys=("e",), command="next-error", footer=35),
    Action(id="log.error_back", title="Error before", keys=("E",), command="previous-error"),
    Action(
        id="log.level", title="Least level: all, warning, error", keys=("L",), command="level", arguments="[LEVEL]",
        cli="iris-core {at} {noun} logs {id} --level LEVEL",
    ),
    Action(
        id="log.open", title="Open: the log around this hit, or all of this line", keys=("enter",), command="open-line", footer=38,
    ),
    Action(id="log.detail", title="All of this line, with JSON spelled out", keys=("d",), command="line"),
    Action(id="log.mark", title="Mark or unmark the line", keys=("m",), command="mark-line"),
    Action(id="log.copy", title="Copy the line, or the marked ones", keys=("c",), command="copy-lines"),
    Action(
        id="log.save", title="Save all lines that are shown in a file", keys=("ctrl+s",), command="save-log", arguments="[FILE]",
        cli="iris-core {at} {noun} logs {id} --save FILE", footer=45,
    ),
    Action(id="log.pager", title="Open all lines in the pager", keys=("P",), command="log-pager"),
    Action(id="log.editor", title="Open all lines in the editor", keys=("O",), command="log-editor"),
    Action(id="log.since_all", title="All lines, at the end", keys=("0",), command="log-all"),
    Action(id="log.since_head", title="All lines, from the first one on", keys=("1",), command="log-head"),
    Action(id="log.since_1m", title="Lines of the last minute", keys=("2",), command="log-1m"),
    Action(id="log.since_5m", title="Lines of the last 5 minutes", keys=("3",), command="log-5m"),
    Action(id="log.since_15m", title="Lines of the last 15 minutes", keys=("4",), command="log-15m"),
    Action(id="log.since_30m", title="Lines of the last 30 minutes", keys=("5",), command="log-30m"),
    Action(id="log.since_1h", title="Lines of the last hour", keys=("6",), command="log-1h"),
    Action(
        id="log.since", title="Lines since a time", command="since", arguments="[TIME]", cli="iris-core {at} {noun} logs {id} --since TIME",
    ),
    Action(id="log.at", title="Go to a time", keys=("T",), command="at", arguments="[TIME]"),
    Action(id="log.wrap", title="Wrap long lines", keys=("w",), command="wrap", footer=40),
    Action(id="log.times", title="Timestamps: off, UTC, local, relative", keys=("t",), command="timestamps"),
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
