"""Rollouts: begin, go on, leave, end. None of these changes a cluster: whatever does stands behind a gate of the rollout itself."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

ROLLOUT: Final[tuple[Action, ...]] = (
    Action(id="rollout.answer", title="Go to the question", keys=("enter",), command="rollout-answer", footer=10),
    Action(
        id="rollout.begin", anywhere=True, title="Begin a rollout: name the clusters, in their order", keys=("B",), command="rollout-begin",
        arguments="[A,B]", footer=20, cli="iris-core rollout run --clusters A,B",
    ),
    Action(
        id="rollout.resume", anywhere=True, title="Go on with a rollout that was left", keys=("o",), command="rollout-resume",
        arguments="[ID]", footer=30, cli="iris-core rollout resume ID",
    ),
    Action(id="rollout.leave", title="Leave it at the next safe point", keys=("L",), command="rollout-leave", footer=40),
    Action(id="rollout.report", title="Show its report", keys=("R",), command="rollout-report", footer=50, cli="iris-core rollout report"),
    Action(
        id="rollout.abort", title="End it, and put right what was begun", command="rollout-abort", cli="iris-core rollout abort ID",
    ),
    Action(id="rollout.all", title="Show all rollouts", keys=("a",), command="rollouts", footer=60, cli="iris-core rollout status"),
    Action(id="rollout.times", title="Times of the charts in UTC or local", keys=("t",), command="rollout-times"),
    Action(id="rollout.lines", title="Go to the lines, which scroll", keys=("l",), command="rollout-lines"),
)  # fmt: skip
