"""Which attributes and values the fleet has, so that a submit with a misspelt region is told at once (control-plane §2.5).

Kept by what each commit changed, never by a look at all workers. What nobody has may still come: this room only ever warns,
and the scheduler's own words say why work waits. Must never refuse anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from iris_core.model.constraints import AVAILABILITY, DEVICE_TYPE, WELL_KNOWN, Constraint, Mode, Op, canonical
from iris_core.model.errors import did_you_mean

if TYPE_CHECKING:
    from iris_controller.commits import Committed
    from iris_controller.loop import ControllerLoop

Attributes = Mapping[str, str | int | float]

DIRECTIVES = frozenset({"cluster", "backend"})
"""Keys that speak of where a job is sent, not of a worker (control-plane §2.5)."""


class KnownAttributes:
    """Of the workers, and of those that the scale groups would make (`groups`: the attributes of one worker of each)."""

    def __init__(self, loop: ControllerLoop, groups: Iterable[Attributes] = ()) -> None:
        self._model = loop.model
        self._values: dict[str, Counter[str | int | float]] = {}
        self._seen: dict[str, Attributes] = {}
        for attributes in groups:
            self._count(attributes, 1)
        for worker_id in self._model.workers:
            self._look(worker_id)
        loop.on_commit(self._committed)

    def _committed(self, batch: Committed) -> None:
        for worker_id in batch.changes.workers:
            self._look(worker_id)

    def _look(self, worker_id: str) -> None:
        worker = self._model.workers.get(worker_id)
        attributes = worker.attributes if worker is not None else {}
        seen = self._seen.get(worker_id, {})
        if attributes is seen:
            return
        self._count(seen, -1)
        self._count(attributes, 1)
        if attributes:
            self._seen[worker_id] = attributes
        else:
            self._seen.pop(worker_id, None)

    def _count(self, attributes: Attributes, change: int) -> None:
        for key, raw in attributes.items():
            values = self._values.setdefault(key, Counter())
            value = canonical(raw)
            values[value] += change
            if not values[value]:
                del values[value]
            if not values:
                del self._values[key]

    def doubts(self, constraints: Iterable[Constraint], group_by: str = "") -> list[str]:
        """One line for each required constraint that asks for what nobody has, and for the attribute that a gang is grouped by; none
        while there is nobody at all.
        """
        if not self._values:
            return []
        found = [text for constraint in constraints if (text := self._doubt(constraint))]
        # Those that Iris knows come with a machine, as the name of its slice does: a scale group cannot say them beforehand.
        if group_by and group_by not in WELL_KNOWN and group_by not in self._values:
            found.append(self._nobody_has(group_by))
        return found

    def _doubt(self, constraint: Constraint) -> str:
        key = constraint.key
        if (
            constraint.mode is Mode.PREFERRED
            or constraint.op in (Op.NE, Op.NOT_EXISTS)
            or key in DIRECTIVES
            or key.startswith(AVAILABILITY)
        ):
            return ""
        known = self._values.get(key)
        if known is None:
            return self._nobody_has(key)
        if constraint.op not in (Op.EQ, Op.IN) or any(value in known for value in constraint.values):
            return ""
        # Kinds of device are spelt right: "gpu" never meant "tpu".
        near = "" if key == DEVICE_TYPE else did_you_mean(str(constraint.values[0]), sorted(map(str, known)))
        return f"no worker has {constraint}" + (f"; {near}" if near else "")

    def _nobody_has(self, key: str) -> str:
        near = did_you_mean(key, sorted({*self._values, *WELL_KNOWN} - {key}))
        return f"no worker has an attribute {key}" + (f"; {near}" if near else "")
