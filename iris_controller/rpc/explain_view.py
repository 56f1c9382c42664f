"""Explanations as the wire shows them. Must never explain anything by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_core.wire.convert import band_to_wire, constraint_to_wire, resources_to_wire
from iris_core.wire.gen.iris.v1 import explain_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_controller.scheduling.explain import Explanation
    from iris_controller.scheduling.funnel import GangGroup, Step

MAX_GROUPS: Final = 20


def fill(into: explain_pb2.Explanation, found: Explanation, may_see: Callable[[str], bool]) -> None:
    """Adds what the explanation counts. Tasks that the caller `may_see` are named, others are only counted."""
    asked, funnel, place = found.asked, found.funnel, found.place
    into.resources.CopyFrom(resources_to_wire(asked.resources))
    into.constraints.extend(constraint_to_wire(c) for c in asked.constraints)
    into.workers = funnel.workers
    into.fits = funnel.fits
    into.capable = funnel.capable
    into.released = funnel.released
    whole = asked.size if any(not group.missing for group in funnel.groups) else 0
    into.room = whole if asked.group_by else funnel.room
    into.funnel.extend(_step(step) for step in funnel.steps)
    into.preferences.extend(explain_pb2.Preference(wants=p.wants, met=p.met) for p in funnel.preferences)
    into.group_by = asked.group_by
    if asked.group_by:
        into.gang_size = asked.size
        into.groups.extend(_group(group) for group in funnel.groups[:MAX_GROUPS])
        into.groups_total = len(funnel.groups)
    for worker in found.blocked:
        shown = [holder for holder in worker.holders if may_see(holder.task_id)]
        into.blocked.add(
            worker_id=worker.worker_id,
            step=worker.step,
            missing=worker.missing,
            holders=[explain_pb2.BlockHolder(task_id=h.task_id, held=h.held, ended=h.ended) for h in shown],
            other_holders=worker.others + len(worker.holders) - len(shown),
        )
    for verdict in found.scale_groups:
        into.scale_groups.add(
            scale_group=verdict.group, verdict=verdict.word, reason=verdict.reason, can_ever=verdict.can_ever
        )
    into.place.CopyFrom(
        explain_pb2.QueuePlace(
            requested_band=band_to_wire(place.requested),
            effective_band=band_to_wire(place.effective),
            user_id=place.user,
            budget_spent=place.spent,
            budget_limit=place.limit,
            position=place.position,
            queue=place.queue,
        )
    )


def _values(found: Iterable[tuple[str, int]]) -> list[explain_pb2.FoundValue]:
    return [explain_pb2.FoundValue(value=value, workers=workers) for value, workers in found]


def _step(step: Step) -> explain_pb2.FunnelStep:
    return explain_pb2.FunnelStep(
        name=step.name,
        wants=step.wants,
        left=step.left,
        more=step.more,
        found=_values(step.found),
        needed=step.needed,
        most_free=step.most_free,
        most_total=step.most_total,
        suggestion=step.suggestion,
    )


def _group(group: GangGroup) -> explain_pb2.GangGroup:
    return explain_pb2.GangGroup(
        value=group.value,
        workers=group.workers,
        fits=group.fits,
        capable=group.capable,
        missing=group.missing,
        blocked=_values(group.blocked),
    )
