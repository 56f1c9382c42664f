"""Where the operator has been: screens with what they were about and how they were left, like pages in a browser.

Going somewhere from the middle of the history forgets what was ahead. A place is a value; the screen that shows it is made or
found by the app. View state is what `ConsoleScreen.view_state` gives and nothing else knows what is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

MOST: Final = 50


@dataclass(slots=True)
class Place:
    """A screen by its name, the id it is about ("" for lists), the cluster, and its view state when it was left."""

    cluster: str
    screen: str
    subject: str = ""
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is, without how it was left."""
        return (self.cluster, self.screen, self.subject)


class History:
    """The places in order, and which of them is shown."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._at = -1
        self._before = -1
        """The place that was shown before this one; -1 = none."""

    @property
    def here(self) -> Place | None:
        """The place that is shown."""
        return self._places[self._at] if self._places else None

    def visit(self, place: Place) -> Place:
        """Go somewhere new; to where one is already changes nothing. Returns the place as it is kept."""
        here = self.here
        if here is not None and here.key == place.key:
            return here
        del self._places[self._at + 1 :]
        self._places.append(place)
        del self._places[:-MOST]
        self._at = len(self._places) - 1
        self._before = self._at - 1
        return place

    def step(self, by: int) -> Place | None:
        """Go back (-1) or forward (+1); None and no move where there is nothing."""
        return self._go(self._at + by)

    def swap(self) -> Place | None:
        """The place that was shown before this one; asked again, the one it came from."""
        return self._go(self._before)

    def _go(self, wanted: int) -> Place | None:
        if not 0 <= wanted < len(self._places):
            return None
        self._before, self._at = self._at, wanted
        return self._places[wanted]

    def last_of(self, cluster: str) -> Place | None:
        """The place of a cluster that was shown last."""
        return next((place for place in reversed(self._places) if place.cluster == cluster), None)
