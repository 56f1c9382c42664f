"""What workers have instead of what was asked for: their standing, their attributes, and what a misspelt word probably meant.

Must never judge whether a worker fits; that is `funnel`'s.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from iris_core.model.constraints import DEVICE_TYPE, WELL_KNOWN, Constraint, Op, canonical
from iris_core.model.errors import did_you_mean
from iris_core.model.states import WorkerHealth

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_controller.state.records import Worker

MAX_FOUND: Final = 5
"""Most different values that are told of by name."""


def standing(worker: Worker) -> str:
    """In a word, why a worker gets no work; "healthy" for one that does."""
    if worker.excluded and worker.placeable:
        return f"excluded ({worker.excluded_reason or 'fails to stage'})"
    if not worker.placeable and worker.health is WorkerHealth.HEALTHY:
        return "stopping" if worker.stopping else "cleaning up"
    return worker.health.value


def value_of(worker: Worker, key: str) -> str:
    """The worker's value of an attribute, or that it has none."""
    raw = worker.attributes.get(key)
    return f"no {key}" if raw is None else str(raw)


def commonest(values: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Different values and how often each is there, commonest first; the rest is summed up in one."""
    ranked = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))
    rest = ranked[MAX_FOUND:]
    others = ((f"{len(rest)} other values", sum(n for _, n in rest)),) if rest else ()
    return (*ranked[:MAX_FOUND], *others)


def suggest(constraint: Constraint, workers: Sequence[Worker]) -> str:
    """What a constraint that no worker meets probably meant, "" when nothing is near.

    Attributes that Iris knows and kinds of device are spelt right: what is missing is a worker that has them.
    """
    key = constraint.key
    values = {str(canonical(raw)) for worker in workers if (raw := worker.attributes.get(key)) is not None}
    if not values:
        return "" if constraint.op is Op.NOT_EXISTS else suggest_attribute(key, workers)
    if key == DEVICE_TYPE:
        return ""
    if constraint.op in (Op.EQ, Op.IN):
        near = (did_you_mean(str(value), sorted(values)) for value in constraint.values)
        return next((text for text in near if text), "")
    return ""


def suggest_attribute(key: str, workers: Iterable[Worker]) -> str:
    """Which attribute of the workers was probably meant by one that none has, "" when none is near."""
    if key in WELL_KNOWN:
        return ""
    return did_you_mean(key, sorted({known for worker in workers for known in worker.attributes}))
