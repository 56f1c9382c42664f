"""Where a job that is run again may be placed: the original's constraints, with those in their place that were named anew.

A place (region, zone) and all other constraints are changed apart from each other, so that moving a job to another region does not take
away what it needs of a worker. Shared by `job rerun` and the console's form, which shows the command line that does the same. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from iris_core.model.constraints import (
    REGION,
    ZONE,
    Constraint,
    Mode,
    Op,
    check_well_known,
    parse_constraint,
    place_constraint,
)
from iris_core.model.errors import ModelError

_WORD: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+|"')
"""A constraint among others: blanks end it, but not between quotes."""


def placed_again(
    before: Iterable[Constraint],
    *,
    regions: Sequence[str] | None = None,
    zone: str | None = None,
    required: Sequence[Constraint] | None = None,
    preferred: Sequence[Constraint] | None = None,
) -> list[Constraint]:
    """The constraints of the new job; None = as they were, empty = none of that kind."""
    found: list[Constraint] = []
    for constraint in before:
        if _is_place(constraint):
            kept = (regions if constraint.key == REGION else zone) is None
        else:
            kept = (required if constraint.mode is Mode.REQUIRED else preferred) is None
        if kept:
            found.append(constraint)
    if regions:
        found.append(place_constraint(REGION, regions))
    if zone:
        found.append(place_constraint(ZONE, [zone]))
    return [*found, *(required or ()), *(preferred or ())]


def place_of(constraints: Iterable[Constraint], key: str) -> str:
    """The regions, or the zones, that are asked for, with commas between them; "" = any."""
    wanted = [c for c in constraints if c.key == key and _is_place(c)]
    return ",".join(str(value) for constraint in wanted for value in constraint.values)


def others_of(constraints: Iterable[Constraint], mode: Mode) -> list[str]:
    """What else is asked for, or had better be, as it is written."""
    return [str(c) for c in constraints if c.mode is mode and not _is_place(c)]


def _is_place(constraint: Constraint) -> bool:
    """Whether it names the regions or zones that are wanted."""
    return constraint.mode is Mode.REQUIRED and constraint.key in (REGION, ZONE) and constraint.op in (Op.EQ, Op.IN)


def parse_constraints(text: str, mode: Mode, field: str) -> list[Constraint]:
    """Constraints with blanks between them. Raises ModelError with the field."""
    found: list[Constraint] = []
    for word in _WORD.findall(text):
        try:
            constraint = parse_constraint(word, mode=mode)
            check_well_known(constraint)
        except ModelError as error:
            raise ModelError(error.message, field=field, hint=error.hint) from None
        found.append(constraint)
    return found
