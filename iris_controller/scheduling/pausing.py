"""How a search that has much to look at gives way: it asks its budget now and then, and goes on where it was when asked again."""

from __future__ import annotations

from collections.abc import Callable

Budget = Callable[[], bool]
"""Whether there is time left in this slice."""


class OutOfBudget(Exception):
    """The slice's time is over before the search has an answer."""
