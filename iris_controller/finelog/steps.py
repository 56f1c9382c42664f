"""The places between two steps of changing the disk, by name: at each of them the process may die and nothing may be lost or doubled.

A test stands at every one of them and looks at what a crash would leave; it finds the names in the source, so that a new step cannot
be forgotten. Must never do anything of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_watcher: Callable[[str], None] | None = None


def reached(step: str) -> None:
    """All up to this step is done, and nothing behind it is."""
    if _watcher is not None:
        _watcher(step)


def watch(watcher: Callable[[str], None] | None) -> None:
    """Calls `watcher` at every step from now on; None stops that."""
    global _watcher
    _watcher = watcher
