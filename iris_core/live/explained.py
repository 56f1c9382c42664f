"""An explanation in words and tables: the cause first, then what somebody asks next. The command line and the console show the same.

Must never work anything out that the controller has not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.model.bands import band_label
from iris_core.model.quantities import format_cpu, format_size
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_core.wire.gen.iris.v1 import common_pb2
    from iris_core.wire.gen.iris.v1 import explain_pb2 as pb

VERDICTS: Final = {
    1: "there is room now",
    2: "waits until there is room",
    3: "never fits on these workers, however long it waits",
    4: "on workers",
    5: "over",
}
"""By `ExplainVerdict`, of what was submitted."""
WOULD: Final = {1: "would run now", 2: "would wait until there is room", 3: VERDICTS[3], 5: "would end at once"}
"""Of what was not."""
NOBODY: Final = {
    VERDICTS[2]: "waits for a worker: there is none, and no scale group that could make one",
    WOULD[2]: "would wait for a worker: there is none, and no scale group that could make one",
}
"""Where there is nothing in which there could be room."""
PART: Final = {VERDICTS[1]: "there is room now for a part", WOULD[1]: "a part would run now"}
"""Of what has more waiting tasks than there is room for."""


_SHORT: Final = 8
"""Characters of a size."""


@dataclass(frozen=True, slots=True)
class Table:
    """Headings, which of them stand right, and cells."""

    titles: tuple[str, ...]
    right: frozenset[str]
    rows: Sequence[tuple[str, ...]]


def verdict_text(found: pb.Explanation) -> str:
    """The verdict in words; an unknown one shows as its number."""
    words = VERDICTS if found.state and not found.what_if else WOULD | {4: VERDICTS[4]}
    text = words.get(found.verdict, str(found.verdict))
    if not found.workers and not found.scale_groups:
        text = NOBODY.get(text, text)
    return PART.get(text, text) if 0 < found.room < found.pending else text


def facts(found: pb.Explanation) -> list[tuple[str, str]]:
    """Label and text, one line each, most important first."""
    lines = [("Cause", found.cause), ("Verdict", verdict_text(found))]
    if found.state:
        waiting = f", {found.pending} of {found.tasks} tasks wait" if found.tasks > 1 and found.pending else ""
        lines.append(("State", found.state + waiting))
    if found.what_if:
        lines.append(("What if", ", ".join(found.what_if)))
    if found.scheduler_reason:
        lines.append(("Scheduler", found.scheduler_reason))
    lines += [("Warning", text) for text in found.warnings]
    lines += [("Note", text) for text in found.notes]
    if found.funnel:
        lines.append(("Asks for", _asks(found)))
    lines += [("Rather", f"{preference.wants}{_met(preference.met, found.fits)}") for preference in found.preferences]
    if found.HasField("place"):
        lines += _place(found.place)
    lines.append(("As of", f"revision {found.revision.boot_id}/{found.revision.n}"))
    return [(label, one_line(text)) for label, text in lines]


def _met(met: int, fits: int) -> str:
    """By how many of the workers that fit, nothing where none fits."""
    if fits == 1:
        return f", {'met' if met else 'not met'} by the worker that fits"
    return f", met by {met} of the {fits} workers that fit" if fits else ""


def _asks(found: pb.Explanation) -> str:
    amounts = found.resources
    cores = "core" if amounts.cpu_millicores == 1000 else "cores"
    parts = [
        f"{format_cpu(amounts.cpu_millicores)} {cores}",
        f"{format_size(amounts.memory_bytes, exact=True)} of memory",
    ]
    if amounts.HasField("device"):
        device = amounts.device
        variant = f"{device.variant} " if device.variant else ""
        parts.append(f"{device.count} {variant}{device.kind.upper()}{'' if device.count == 1 else 's'}")
    if found.group_by:
        size, group_by = found.gang_size, found.group_by
        parts.append(
            f"{size} tasks at once on workers of one {group_by}" if size != 1 else f"a worker that has {group_by}"
        )
    return ", ".join(parts)


def _place(place: pb.QueuePlace) -> list[tuple[str, str]]:
    requested, effective = band_label(place.requested_band), band_label(place.effective_band)
    limit = f" of {place.budget_limit}" if place.budget_limit else ", which has no limit"
    served = f", served as {effective} because the budget is spent" if requested != effective else ""
    return [
        ("Band", requested + served),
        ("Budget", f"{place.user_id} spends {place.budget_spent}{limit}"),
        ("Queue", f"place {place.position} of {place.queue} pending task{'' if place.queue == 1 else 's'}"),
    ]


def tables(found: pb.Explanation) -> list[Table]:
    """The funnel, a gang's groups, who holds what is missing, what could be made; those that have anything to say."""
    return [table for table in (_funnel(found), _groups(found), _blocked(found), _machines(found)) if table.rows]


def _funnel(found: pb.Explanation) -> Table:
    titles = ("STEP", "WANTS", "LEFT", "IF DROPPED", "INSTEAD")
    rows = [("workers", "", str(found.workers), "", "")] if found.funnel else []
    rows += [
        (step.name, step.wants, str(step.left), f"+{step.more}" if step.more else "", _instead(step))
        for step in found.funnel
    ]
    return Table(titles, frozenset({"LEFT", "IF DROPPED"}), rows)


def _instead(step: pb.FunnelStep) -> str:
    parts = [_counted(step.found)] if step.found else []
    if step.most_total:
        parts.append(f"most free {amount(step.name, step.most_free)} of {amount(step.name, step.most_total)}")
    if step.suggestion:
        parts.append(step.suggestion)
    return "; ".join(parts)


def _groups(found: pb.Explanation) -> Table:
    titles = (found.group_by.upper(), "WORKERS", "FIT", "IF IDLE", "MISSING", "BLOCKED BY")
    rows = [
        (g.value, str(g.workers), str(g.fits), str(g.capable), str(g.missing), _counted(g.blocked))
        for g in found.groups
    ]
    more = found.groups_total - len(found.groups)
    if more > 0:
        rows.append((f"and {more} more", "", "", "", "", ""))
    return Table(titles, frozenset(titles[1:5]), rows)


def _blocked(found: pb.Explanation) -> Table:
    rows = []
    for worker in found.blocked:
        holders = [
            f"{h.task_id} ({amount(worker.step, h.held)}{', ended, not confirmed' if h.ended else ''})"
            for h in worker.holders
        ]
        if worker.other_holders:
            holders.append(f"{worker.other_holders} more")
        rows.append(
            (worker.worker_id, f"{amount(worker.step, worker.missing, exact=True)} {worker.step}", ", ".join(holders))
        )
    return Table(("NEAREST", "LACKS", "HELD BY"), frozenset(), rows)


def _machines(found: pb.Explanation) -> Table:
    rows = [(group.scale_group, group.verdict.replace("_", " "), group.reason) for group in found.scale_groups]
    return Table(("SCALE GROUP", "SAYS", "WHY"), frozenset(), rows)


def amount(step: str, value: int, *, exact: bool = False) -> str:
    """A number in the step's unit as people read it; without `exact`, a size that is long to the byte is rounded."""
    if step == "cpu":
        return format_cpu(value)
    if step != "memory" or value < 0:
        return str(value)
    text = format_size(value, exact=True)
    return text if exact or len(text) <= _SHORT else format_size(value)


def constraints(found: Iterable[common_pb2.Constraint]) -> list[str]:
    """Constraints as they are typed."""
    from iris_core.wire.convert import constraint_from_wire

    return [str(constraint_from_wire(message)) for message in found]


def _counted(found: Iterable[pb.FoundValue]) -> str:
    return ", ".join(f"{value.workers} {value.value}" for value in found)
