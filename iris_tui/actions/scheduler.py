"""Why a job waits, and what if it asked for something else."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

EXPLAIN: Final[tuple[Action, ...]] = (
    Action(
        id="explain.what_if", title="Ask what if it asked for something else", keys=("e",), command="what-if", arguments="[OPTIONS]",
        cli="iris-core {at} job explain JOB --gpu H100x4 --region us-central1", footer=10,
    ),
    Action(id="explain.as_it_is", title="Only as it is: drop the what-if", keys=("backspace",), command="as-it-is"),
    Action(id="explain.other", title="To the other explanation", keys=("tab",), command="other-explanation", footer=12),
    Action(
        id="explain.scheduler", title="Show the job among what waits", keys=("enter",), command="in-scheduler",
        cli="iris-core {at} rpc controller get-scheduler-state", footer=14,
    ),
)  # fmt: skip
