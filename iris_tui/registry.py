"""The screens by name. Only the one that is shown first is loaded at start; the kit never imports a screen by itself.

Job code often runs with `PYTHONPATH=.`, where a folder called `screens` may lie: one that is not ours is refused by its path
instead of being run.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from iris_tui.screen import ConsoleScreen
    from iris_tui.session import Session

SCREENS: Final[dict[str, str]] = {"jobs": "screens.jobs:JobsScreen"}
FIRST: Final = "jobs"


def load(name: str) -> Callable[[Session], ConsoleScreen]:
    """The class of a screen. Raises IrisError if another `screens` package shadows ours, KeyError for an unknown name."""
    module_name, _, attribute = SCREENS[name].partition(":")
    module = import_module(module_name)
    home = Path(__file__).resolve().parents[1]
    place = Path(module.__file__ or "?").resolve()
    if place.parent.parent != home:
        raise IrisError(
            f"{module_name} was found at {place}, which is not part of Iris",
            hint=f"run the console from another folder, or without PYTHONPATH; ours is in {home}",
        )
    return cast("Callable[[Session], ConsoleScreen]", getattr(module, attribute))
