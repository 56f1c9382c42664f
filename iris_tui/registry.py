"""The screens by name. Only the one that is shown first is loaded at start; the kit never imports a screen by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from iris_core.cli.beside import load as load_beside

if TYPE_CHECKING:
    from iris_tui.screen import ConsoleScreen
    from iris_tui.session import Session

SCREENS: Final[dict[str, str]] = {"jobs": "screens.jobs:JobsScreen"}
FIRST: Final = "jobs"


def load(name: str) -> Callable[[Session], ConsoleScreen]:
    """The class of a screen. Raises IrisError if another `screens` package is in the way, KeyError for an unknown name."""
    module, _, attribute = SCREENS[name].partition(":")
    return cast("Callable[[Session], ConsoleScreen]", getattr(load_beside(module), attribute))
