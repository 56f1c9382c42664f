"""A moment as people type it: a time with or without its date, so long ago, or an epoch time. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli.options import LAST_MS
from iris_core.model.quantities import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

_AGO: Final = re.compile(r"[0-9. ]+[a-z]+(?:[0-9. ]+[a-z]+)*")
_EPOCH: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_MS_FROM: Final = 100_000_000_000
"""A number from here on counts milliseconds: as seconds it would be the year 5138."""
EXAMPLES: Final = "10m, 1h30m, 2026-01-31T12:00:00Z, 2026-01-31 12:00+02:00, or an epoch time"


def parse_moment(text: str, now_ms: int) -> int:
    """Epoch milliseconds. `10m` is ten minutes before `now_ms`; a time without a zone is UTC, as in every log line shown.

    Raises ValueError: it is no moment, or none that a log can have (ModelError, for a duration that is none).
    """
    plain = text.strip()
    if plain == "now":
        return now_ms
    if _EPOCH.fullmatch(plain):
        number = float(plain)
        found = int(number if number >= _MS_FROM else number * 1000)
    elif _AGO.fullmatch(plain):
        found = now_ms - parse_duration(plain)
    else:
        try:
            moment = datetime.fromisoformat(plain)
        except ValueError:
            raise ValueError("that is no time") from None
        found = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if not 0 <= found <= LAST_MS:
        raise ValueError("that is before 1970 or too far ahead")
    return found


class Moment(click.ParamType[int]):
    """An option's value: epoch milliseconds."""

    name = "time"

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self._clock = clock

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        from iris_core.cli.reads import now_ms

        try:
            return parse_moment(value, (self._clock or now_ms)())
        except (ValueError, OverflowError) as error:
            self.fail(f"{value!r}: {error}; write {EXAMPLES}", param, ctx)
