"""Statements and what they gave; what was changed on the cluster and by whom; checkpoints."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

_ROWS: Final = ("row", "job", "task", "attempt")

QUERY: Final[tuple[Action, ...]] = (
    Action(id="query.run", title="Run the statement", keys=("f5",), command="run", footer=1, cli="iris-core {at} query 'SELECT …'"),
    Action(id="query.templates", title="Statements to start from", keys=("f9",), command="templates", footer=2),
    Action(id="query.earlier", title="Earlier statements", keys=("f3",), command="earlier", footer=3),
    Action(
        id="query.database", title="Ask the other database: the controller's, or stats, events and logs", keys=("f4",), command="database",
        arguments="[controller|stats]", footer=4,
    ),
    Action(id="query.edit", title="Go to the statement", keys=("e",), command="edit-query", footer=5),
    Action(id="query.editor", title="Write the statement in the editor", keys=("f8",), command="query-editor"),
    Action(id="query.stop", title="End the statement that runs", command="stop-query"),
    Action(id="query.row", title="Show the whole row", keys=("enter",), command="row", menu="v", footer=10, kinds=_ROWS),
    Action(id="query.column", title="Choose the column whose ids actions are about", keys=("A",), command="act-on", arguments="[COLUMN]"),
    Action(id="query.copy_what", title="Copy a cell or the whole row", keys=("Y",), command="copy-cell", menu="Y", kinds=_ROWS),
    Action(id="query.save", title="Save the rows as CSV or JSON", keys=("ctrl+s",), command="save-rows", arguments="[FILE]", footer=60),
    Action(id="query.right", title="Leave out a column on the left", keys=("right",), moves=True),
    Action(id="query.left", title="Show it again", keys=("left",), moves=True),
)  # fmt: skip

AUDIT: Final[tuple[Action, ...]] = (
    Action(id="audit.open", title="Show the whole entry", keys=("enter",), command="entry", menu="o", footer=10, kinds=("entry",)),
    Action(
        id="audit.operators", title="Only what operators changed, or all that happened", keys=("O",), command="operators-only", footer=20,
        cli="iris-core {at} process logs --substring event=operator_change",
    ),
    Action(id="audit.copy", title="Copy the entry", keys=("c",), command="copy-entry", menu="c", kinds=("entry",)),
)  # fmt: skip

CHECKPOINTS: Final[tuple[Action, ...]] = (
    Action(
        id="checkpoints.open", title="See what it held", keys=("enter",), command="open-checkpoint",
        arguments="[PATH_OR_URL]", cli="iris-core --checkpoint={id} job list", menu="o", footer=10, kinds=("checkpoint",),
    ),
    Action(id="checkpoints.copy", title="Copy its place", keys=("c",), command="copy-checkpoint", menu="c", kinds=("checkpoint",)),
)  # fmt: skip
