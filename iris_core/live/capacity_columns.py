"""The columns of scale groups, slices and machines, and of what was done to them; rules as in `columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_core.live.capacity_tree import Group, Machine, Slice
from iris_core.live.columns import ColumnSpec
from iris_core.live.wording import NOTHING, Tone, age, iso, or_nothing, when
from iris_core.live.worker_columns import health_of
from iris_core.model.quantities import format_duration
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.wire.gen.iris.v1.autoscaler_pb2 import AutoscalerAction, ScaleGroupStatus

AVAILABILITY: Final = {
    "available": Tone.GOOD,
    "requesting": Tone.BUSY,
    "cooldown": Tone.WAIT,
    "at_max_slices": Tone.WAIT,
    "backoff": Tone.BAD,
    "quota_exceeded": Tone.BAD,
}
LIFECYCLE: Final = {
    "ready": Tone.GOOD,
    "booting": Tone.BUSY,
    "initializing": Tone.BUSY,
    "draining": Tone.WARN,
    "failed": Tone.BAD,
}
MACHINE: Final = {
    "ready": Tone.GOOD,
    "booting": Tone.BUSY,
    "initializing": Tone.BUSY,
    "requesting": Tone.BUSY,
    "stopping": Tone.WARN,
    "preempted": Tone.WARN,
    "unhealthy": Tone.BAD,
    "failed": Tone.BAD,
    "terminated": Tone.DIM,
}
_STATUS: Final = {"pending": Tone.BUSY, "completed": Tone.GOOD, "failed": Tone.BAD}


def is_told(status: ScaleGroupStatus) -> bool:
    """Whether an autoscaler told of the group; else only what a state keeps of it is known, its slices and its failures."""
    return bool(status.availability)


def group_reason(group: Group) -> str:
    """What holds a scale group back, in the words of whoever said so; else what it last decided."""
    status = group.status
    return status.quota_reason or status.failure_reason or status.availability_reason or status.decision_reason


def group_state(group: Group, now_ms: int) -> str:
    """Its availability, for how much longer it is blocked, and its failures in a row."""
    status = group.status
    words = [status.availability.replace("_", " ")] if status.availability else []
    if status.blocked_until_ms > now_ms:
        words.append(format_duration(status.blocked_until_ms - now_ms))
    if status.consecutive_failures:
        words.append(f"{status.consecutive_failures} fails")
    return ", ".join(words) or NOTHING


def group_slices(group: Group) -> str:
    """How many slices there are, what is wanted, and the most: `2→3 of 8`; `2 of -` where the rest is not known."""
    status = group.status
    there = str(status.current_slices)
    if not is_told(status):
        return f"{there} of {NOTHING}"
    if status.target_slices != status.current_slices:
        there += f"→{status.target_slices}"
    return f"{there} of {status.max_slices}"


def group_demand(group: Group) -> str:
    """Slices that waiting work would fill, and those kept to spare."""
    status = group.status
    if not is_told(status):
        return NOTHING
    return f"{status.demand}+{status.buffer_slices}" if status.buffer_slices else str(status.demand)


def machine_reason(machine: Machine) -> str:
    """What is wrong with a machine or its worker; "" if nothing is known to be."""
    worker = machine.worker
    return machine.status.error or (worker.health_reason if worker is not None else "")


def machine_state(machine: Machine) -> tuple[str, Tone]:
    """The machine's state; where that is ready, the health of its worker."""
    state = machine.status.state
    tone = MACHINE.get(state, Tone.PLAIN)
    if machine.worker is not None and tone is Tone.GOOD:
        return health_of(machine.worker)
    if not machine.status.attached and tone is Tone.GOOD:
        return f"{state}, not attached", Tone.WARN
    return state or NOTHING, tone


def _slice_reason(item: Slice) -> str:
    manual = "made by an operator" if item.status.manual else ""
    return ", ".join(part for part in (item.status.error, manual) if part)


def _attached(item: Slice) -> str:
    return f"{sum(vm.attached for vm in item.status.vms)}/{len(item.status.vms)} workers"


def _column(**fields: Any) -> ColumnSpec[Any]:
    return ColumnSpec(**fields)


def _place(name: str, title: str, *, sorts: bool = True, **more: Any) -> ColumnSpec[Any]:
    return _column(
        id=name, title=title, value=str, text=lambda row, _: "", sort=(lambda row, _: 0) if sorts else None, **more
    )


COLUMNS: Final[tuple[ColumnSpec[Any], ...]] = (
    _place("name", "GROUP / SLICE / WORKER", min_width=24, flex=2),
    _place("state", "STATE", min_width=14, max_width=20),
    _place("slices", "SLICES", min_width=11, max_width=11, align="right"),
    _place("demand", "DEMAND", min_width=6, max_width=7, align="right", hide=1),
    _place("tasks", "TASKS", min_width=5, max_width=5, align="right"),
    _place("age", "AGE", min_width=6, max_width=6, align="right", hide=3),
    _place("idle", "IDLE", min_width=6, max_width=6, align="right", hide=2),
    _place("reason", "REASON", min_width=14, flex=4),
)
"""Widths and titles; what stands in them is the kind's."""


def _text(name: str, value: Callable[[Any], Any], **more: Any) -> ColumnSpec[Any]:
    """A column whose text is its value."""
    more.setdefault("text", lambda row, _: or_nothing(str(value(row))))
    more.setdefault("sort", lambda row, _: value(row))
    return _column(id=name, title=name.upper(), value=value, **more)


def _number(
    name: str, value: Callable[[Any], int], text: Callable[[Any, int], str], *, moves: bool = False
) -> ColumnSpec[Any]:
    """A column of numbers: the largest first."""
    return _text(name, value, text=text, sort=lambda row, _: -value(row), falls=True, moves=moves)


SPECS: Final[dict[str, dict[str, ColumnSpec[Any]]]] = {
    kind: {spec.id: spec for spec in specs}
    for kind, specs in {
        "scale group": (
            _text("name", lambda group: group.status.name),
            _text(
                "state",
                lambda group: group.status.availability,
                text=group_state,
                moves=True,
                tone=lambda group: AVAILABILITY.get(group.status.availability, Tone.PLAIN),
            ),
            _number("slices", lambda group: group.status.current_slices, lambda group, _: group_slices(group)),
            _number("demand", lambda group: group.status.demand, lambda group, _: group_demand(group)),
            _number("tasks", lambda group: group.running, lambda group, _: str(group.running)),
            _text("reason", group_reason, tone=lambda group: AVAILABILITY.get(group.status.availability, Tone.DIM)),
        ),
        "slice": (
            _text("name", lambda item: item.status.slice_id),
            _text(
                "state",
                lambda item: item.status.lifecycle,
                tone=lambda item: LIFECYCLE.get(item.status.lifecycle, Tone.PLAIN),
            ),
            _number("slices", lambda item: len(item.status.vms), lambda item, _: _attached(item)),
            _number("tasks", lambda item: item.running, lambda item, _: str(item.running)),
            _number(
                "age",
                lambda item: item.status.created_at_ms,
                lambda item, now: age(item.status.created_at_ms, now),
                moves=True,
            ),
            _number(
                "idle", lambda item: item.idle_since_ms, lambda item, now: age(item.idle_since_ms, now), moves=True
            ),
            _text("reason", _slice_reason, tone=lambda item: Tone.BAD if item.status.error else Tone.DIM),
        ),
        "machine": (
            _text("name", lambda machine: machine.status.worker_id or machine.status.vm_id),
            _text("state", lambda machine: machine_state(machine)[0], tone=lambda machine: machine_state(machine)[1]),
            _number(
                "tasks",
                lambda machine: machine.worker.running_tasks if machine.worker is not None else 0,
                lambda machine, _: str(machine.worker.running_tasks) if machine.worker is not None else NOTHING,
            ),
            _text(
                "reason",
                machine_reason,
                text=lambda machine, _: one_line(machine_reason(machine) or machine.status.address) or NOTHING,
                tone=lambda machine: Tone.BAD if machine_reason(machine) else Tone.DIM,
            ),
        ),
    }.items()
}
"""By kind of row, then by column."""

ACTIONS: Final[dict[str, ColumnSpec[AutoscalerAction]]] = {
    spec.id: spec
    for spec in (
        _column(
            id="age", title="AGO", min_width=6, max_width=6, align="right",
            value=lambda action: iso(action.at_ms),
            text=lambda action, now: age(action.at_ms, now), moves=True,
            sort=lambda action, _: -action.at_ms,
        ),
        _column(
            id="time", title="TIME (UTC)", min_width=19, max_width=19, hide=3,
            value=lambda action: iso(action.at_ms),
            text=lambda action, _: when(action.at_ms),
            sort=lambda action, _: -action.at_ms, falls=True,
            tone=lambda action: Tone.DIM,
        ),
        _column(
            id="action", title="ACTION", min_width=12, max_width=14,
            value=lambda action: action.action,
            text=lambda action, _: or_nothing(action.action.replace("_", " ")),
            sort=lambda action, _: action.action,
        ),
        _column(
            id="status", title="STATUS", min_width=9, max_width=10,
            value=lambda action: action.status,
            text=lambda action, _: or_nothing(action.status),
            sort=lambda action, _: action.status,
            tone=lambda action: _STATUS.get(action.status, Tone.PLAIN),
        ),
        _column(
            id="group", title="SCALE GROUP", min_width=12, max_width=14, hide=1,
            value=lambda action: action.scale_group or None,
            text=lambda action, _: or_nothing(action.scale_group),
            sort=lambda action, _: action.scale_group,
        ),
        _column(
            id="entity", title="WHAT", min_width=16, flex=1,
            value=lambda action: action.entity or None,
            text=lambda action, _: or_nothing(action.entity),
            sort=lambda action, _: action.entity,
        ),
        _column(
            id="reason", title="WHY", min_width=24, flex=4,
            value=lambda action: action.reason or None,
            text=lambda action, _: or_nothing(action.reason),
            sort=lambda action, _: action.reason,
            tone=lambda action: _STATUS.get(action.status, Tone.PLAIN) if action.status == "failed" else Tone.PLAIN,
        ),
    )
}  # fmt: skip
