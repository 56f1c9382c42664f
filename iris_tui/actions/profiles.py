"""Profiles: what was captured, capturing now, and looking at one."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

PROFILES: Final[tuple[Action, ...]] = (
    Action(
        id="profiles.open", title="Look at the profile", keys=("enter",), command="open-profile", cli="iris-core {at} profile get {id}",
        menu="o", footer=10, kinds=("profile",),
    ),
    Action(
        id="profiles.compare", title="Compare the two marked CPU profiles", keys=("D",), command="compare-profiles", menu="d",
        kinds=("profile",), many=True,
    ),
    Action(
        id="profiles.capture", anywhere=True, title="Capture now: threads, cpu or memory of a program", mutates=True, command="capture",
        arguments="[TARGET [threads|cpu|mem [SECONDS]]]", cli="iris-core {at} process profile {what} --target {id}", menu="c",
        kinds=("profile",),
    ),
)  # fmt: skip

VIEWER: Final[tuple[Action, ...]] = (
    Action(id="viewer.open", title="Show the function in the flame graph", keys=("enter",), command="open-function", footer=10),
    Action(id="viewer.next_view", title="Next view: flame graph, functions", keys=("tab",), command="next-view", footer=20),
    Action(id="viewer.save", title="Save the profile", keys=("ctrl+s",), command="save-profile", arguments="[FILE]", footer=50),
    Action(id="viewer.save_svg", title="Save the flame graph as SVG", keys=("S",), command="save-svg", arguments="[FILE]"),
    Action(id="viewer.close", title="Back to the screen before", keys=("escape",), command="close-profile"),
)  # fmt: skip

FLAME: Final[tuple[Action, ...]] = (
    Action(id="flame.zoom", title="Zoom into the frame", keys=("enter",), command="zoom", footer=10),
    Action(id="flame.out", title="Zoom out by one frame", keys=("backspace",), command="zoom-out", footer=15),
    Action(id="flame.whole", title="Show the whole graph", keys=("0",), command="zoom-whole"),
    Action(id="flame.leave", title="Stop searching, zoom out, or go back", keys=("escape",), command="leave-flame"),
    Action(id="flame.find", title="Search a function or file", keys=("slash",), command="find-frame", arguments="[TEXT]", footer=30),
    Action(id="flame.next", title="Next hit, the heaviest first", keys=("n",), command="find-frame-next"),
    Action(id="flame.previous", title="Previous hit", keys=("N",), command="find-frame-previous"),
    Action(id="flame.down", title="To the heaviest callee", keys=("down", "j"), moves=True),
    Action(id="flame.up", title="To the caller", keys=("up", "k"), moves=True),
    Action(id="flame.left", title="To the box on the left", keys=("left", "h"), moves=True),
    Action(id="flame.right", title="To the box on the right", keys=("right", "l"), moves=True),
    Action(id="flame.page_down", title="A page of callees down", keys=("pagedown", "ctrl+d"), moves=True),
    Action(id="flame.page_up", title="A page of callers up", keys=("pageup", "ctrl+u"), moves=True),
)  # fmt: skip
