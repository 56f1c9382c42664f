"""The controller itself: what can be looked at, and what can be asked of it."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

CONTROLLER: Final[tuple[Action, ...]] = (
    Action(id="controller.menu", title="Actions for the controller", keys=("x",), command="controller-menu", footer=40),
    Action(
        id="controller.logs", anywhere=True, title="Show its log", keys=("l",), command="controller-log", menu="l", footer=20, kinds=("controller",),
        cli="iris-core {at} process logs",
    ),
    Action(
        id="controller.profiles", anywhere=True, title="Show its profiles", keys=("p",), command="controller-profiles", menu="p", footer=30,
        kinds=("controller",), cli="iris-core {at} profile list --target /system/controller",
    ),
    Action(
        id="controller.capture", anywhere=True, title="Profile it now", mutates=True, command="controller-capture",
        arguments="[threads|cpu|mem [SECONDS]]", menu="c", kinds=("controller",), cli="iris-core {at} process profile cpu",
    ),
    Action(
        id="controller.checkpoint", anywhere=True, title="Checkpoint: take one now", mutates=True, command="checkpoint-now", menu="k",
        kinds=("controller",), cli="iris-core {at} cluster controller checkpoint",
    ),
)  # fmt: skip
