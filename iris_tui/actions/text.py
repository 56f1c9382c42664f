"""Text pages: describe, spec, help, results."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

TEXT: Final[tuple[Action, ...]] = (
    Action(id="text.close", title="Close the page", keys=("escape", "q"), command="close-page", footer=30),
    Action(id="text.find", title="Find", keys=("slash",), command="find-text", arguments="[TEXT]", footer=10),
    Action(id="text.next", title="Next hit", keys=("n",), command="find-text-next"),
    Action(id="text.previous", title="Previous hit", keys=("N",), command="find-text-previous"),
    Action(id="text.wrap", title="Wrap long lines", keys=("w",), command="wrap-text", footer=20),
    Action(id="text.copy", title="Copy the page", keys=("c",), command="copy-page"),
    Action(id="text.save", title="Save the page in a file", keys=("ctrl+s",), command="save-page", arguments="[FILE]"),
    Action(id="text.pager", title="Open the page in the pager", keys=("P",), command="pager"),
    Action(id="text.editor", title="Open the page in the editor", keys=("E",), command="editor"),
    Action(id="text.up", title="Line up", keys=("up", "k"), moves=True),
    Action(id="text.down", title="Line down", keys=("down", "j"), moves=True),
    Action(id="text.page_up", title="Page up", keys=("pageup", "b", "ctrl+u"), moves=True),
    Action(id="text.page_down", title="Page down", keys=("pagedown", "space", "ctrl+d"), moves=True),
    Action(id="text.top", title="First line", keys=("home", "g"), moves=True),
    Action(id="text.bottom", title="Last line", keys=("end", "G"), moves=True),
    Action(id="text.left", title="Scroll left", keys=("left", "h"), moves=True),
    Action(id="text.right", title="Scroll right", keys=("right",), moves=True),
)  # fmt: skip
