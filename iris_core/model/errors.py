"""The one error of the model: a value that breaks a rule.

Every parser in this package raises ``ModelError`` and nothing else, so that a
caller on any surface (command line, RPC, console) can turn bad input into one
clear line without a list of exception types. The message never carries raw
control characters: whatever came from outside is quoted with ``shown``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHOWN_LIMIT = 60


class ModelError(ValueError):
    """A value is not what the grammar or the rules allow.

    Attributes:
        message: One line that says what is wrong, safe to print.
        field: The name of the offending field or argument, ``""`` if unknown.
        position: Character offset of the fault in the parsed text, if known.
        end: Character offset just behind the fault, if it is a span.
        hint: What to do about it, ``""`` if there is nothing useful to say.
    """

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        position: int | None = None,
        end: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.position = position
        self.end = end
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


def shown(text: str, limit: int = _SHOWN_LIMIT) -> str:
    """Quote outside text for an error message: escaped, and cut with its length said."""
    if len(text) <= limit:
        return repr(text)
    return f"{text[:limit]!r}… ({len(text)} characters)"


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return ``"did you mean 'x'?"`` for the closest choice, or ``""`` if none is close."""
    import difflib  # an error path only: not worth its import time at start-up

    by_lower = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word[:_SHOWN_LIMIT].lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]!r}?" if close else ""
