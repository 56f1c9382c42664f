"""Where which accelerator has been obtained: the marker `availability:<variant>` of every worker in such a zone (control-plane §3.8).

A zone has a marker while a worker with that variant is there that is not given up. All its workers carry it as an attribute, so that
`--reserve` is a constraint like any other, to the scheduler and to those who explain it. It follows from the workers and is
never stored. Must never hold capacity: a marker says "there was some", not "there is room".
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from iris_core.model.constraints import AVAILABILITY, ZONE
from iris_core.model.states import WorkerHealth

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Worker

Attributes = dict[str, str | int | float]


class Obtained:
    """Workers by zone and variant, kept as workers change. The model's own."""

    def __init__(self) -> None:
        self._zones: dict[str, Counter[str]] = {}

    def copy(self) -> Obtained:
        """The same as of now, for a reader beside the loop."""
        made = Obtained()
        made._zones = {zone: counts.copy() for zone, counts in self._zones.items()}
        return made

    def change(self, before: Worker | None, after: Worker | None) -> None:
        """A worker is now `after`."""
        if place(before) == place(after):
            return
        for worker, sign in ((before, -1), (after, 1)):
            where = place(worker)
            if where is None:
                continue
            zone, variant = where
            counts = self._zones.setdefault(zone, Counter())
            counts[variant] += sign
            if not counts[variant]:
                del counts[variant]
            if not counts:
                del self._zones[zone]

    def zones(self, variant: str) -> list[str]:
        """The zones that have workers of the variant."""
        return sorted(zone for zone, counts in self._zones.items() if variant in counts)

    def of(self, zone: str) -> Counter[str]:
        """Workers of each variant in the zone."""
        return Counter(self._zones.get(zone, ()))


def place(worker: Worker | None) -> tuple[str, str] | None:
    """Zone and variant that the worker is evidence of, None = of nothing."""
    if worker is None or worker.health is WorkerHealth.DEAD:
        return None
    device, zone = worker.total.device, zone_of(worker)
    return (zone, device.variant.lower()) if zone and device is not None and device.variant else None


def zone_of(worker: Worker | None) -> str:
    """The zone a worker says it is in, "" = none."""
    return str(worker.attributes.get(ZONE, "")) if worker is not None else ""


def without_markers(attributes: Mapping[str, str | int | float]) -> Attributes:
    """What the worker itself says: this is what is stored."""
    return {key: value for key, value in attributes.items() if not key.startswith(AVAILABILITY)}


def with_markers(worker: Worker, variants: Iterable[str]) -> Attributes:
    """The attributes with exactly these markers; the same object when it had them."""
    wanted = {AVAILABILITY + variant for variant in variants}
    if wanted == {key for key in worker.attributes if key.startswith(AVAILABILITY)}:
        return worker.attributes
    return without_markers(worker.attributes) | dict.fromkeys(sorted(wanted), "true")


def mark(o: Overlay, worker_id: str, before: Worker | None) -> None:
    """Brings the markers in order after a worker was changed in the overlay; `before` is what it was there until then.

    Costs a look at all workers only when a zone gains its first worker of a variant or loses its last.
    """
    after = o.worker(worker_id)
    gained, lost = place(after), place(before)
    if gained == lost and before is not None and after is not None and after.attributes is before.attributes:
        return
    for zone in {zone_of(before), zone_of(after)} - {""}:
        now = _counts(o, zone)
        was = now.copy()
        if gained is not None and gained[0] == zone:
            was[gained[1]] -= 1
        if lost is not None and lost[0] == zone:
            was[lost[1]] += 1
        if set(+was) != set(now):
            for other in {**o.model.workers, **o.workers}.values():
                _set(o, other if other is None else o.worker(other.worker_id), zone, now)
        elif after is not None:
            _set(o, after, zone, now)


def _counts(o: Overlay, zone: str) -> Counter[str]:
    """Workers of each variant in the zone as of now."""
    counts = o.model.obtained.of(zone)
    for worker_id, worker in o.workers.items():
        for found, sign in ((o.model.workers.get(worker_id), -1), (worker, 1)):
            where = place(found)
            if where is not None and where[0] == zone:
                counts[where[1]] += sign
    return +counts


def _set(o: Overlay, worker: Worker | None, zone: str, variants: Iterable[str]) -> None:
    if worker is None or zone_of(worker) != zone:
        return
    attributes = with_markers(worker, variants)
    if attributes is not worker.attributes:
        o.set_worker(worker, attributes=attributes)
