"""What works wherever the console is."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

EVERYWHERE: Final[tuple[Action, ...]] = (
    Action(id="app.help", title="Show help", keys=("question_mark", "f1"), command="help", footer=90),
    Action(id="app.palette", title="Search all actions and jobs", keys=("ctrl+p",), command="palette", footer=80),
    Action(id="app.command", title="Type a command", keys=("colon",), command="command"),
    Action(id="app.goto", title="Go to a screen", keys=("v",), command="goto", footer=70),
    Action(id="app.past", title="Back to the screen before, as it was left", keys=("left_square_bracket",), command="previous"),
    Action(id="app.future", title="Forward again", keys=("right_square_bracket",), command="next"),
    Action(id="app.last", title="To the screen before this one, and back", keys=("minus",), command="last"),
    Action(id="app.refresh", title="Try the connection again now", keys=("ctrl+r",), command="refresh"),
    Action(id="app.cluster", title="Go to another cluster", command="cluster", arguments="[NAME]", cli="iris-core cluster list"),
    Action(id="app.theme", title="Change colours", command="theme", arguments="[NAME]"),
    Action(id="app.results", title="Show what was changed from this console", command="results"),
    Action(id="app.suspend", title="Suspend the console (fg resumes it)", keys=("ctrl+z",), command="suspend"),
    Action(id="app.quit", title="Quit, after asking", keys=("ctrl+q", "ctrl+c"), command="ask-quit"),
    Action(id="app.quit_now", title="Quit", command="quit", ),
    Action(id="app.back", title="Go back; at the root: quit, after asking", keys=("q",), command="back"),
)  # fmt: skip
