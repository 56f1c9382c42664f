"""The exact funnel: how many workers each requirement of a request leaves, counted over the whole fleet (DESIGN §5.7).

The planner stops at the first worker that fits and remembers little else; here everything is counted, for somebody who asks why. It
works on a `FleetView`: rows that never change, and a copy of what is held, so that counting may happen beside the loop. Its rules
are the planner's (control-plane §2.5–2.6), which a test holds it to. Must never look at the model after the view was taken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from iris_controller.scheduling.findings import commonest, standing, suggest, suggest_attribute, value_of
from iris_controller.scheduling.snapshot import BUILDING_LIMIT
from iris_core.model.constraints import Constraint, Mode, canonical
from iris_core.model.quantities import format_cpu, format_size
from iris_core.model.states import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_controller.state.model import Model
    from iris_controller.state.records import Attempt, JobSpec, Worker
    from iris_core.model.resources import Device, Resources

HEALTH: Final = "health"
CONSTRAINT: Final = "constraint"
CPU: Final = "cpu"
MEMORY: Final = "memory"
SLOTS: Final = "building slots"
"""Names of steps; the accelerator's is its kind, `gpu` or `tpu`."""


UNBOUNDED: Final = 2**31 - 1
"""Tasks that ask for nothing fit without an end."""

Held = tuple[int, int, int, int, int]
"""What unfinished attempts hold on one worker: millicores, bytes, GPUs, TPU chips, setup slots."""

_HELD = attrgetter("cpu_millicores", "memory_bytes", "gpu", "tpu", "building")
_NOTHING: Final[Held] = (0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class FleetView:
    """The fleet at one moment. Taking it costs a few milliseconds for 10,000 workers; rows are shared, usage is copied."""

    workers: tuple[Worker, ...]
    held: dict[str, Held]
    attempts: Sequence[Attempt] = ()
    """All that hold something."""

    @classmethod
    def of(cls, model: Model) -> FleetView:
        held = dict(zip(model.usage, map(_HELD, model.usage.values()), strict=True))
        return cls(tuple(model.workers.values()), held, list(model.attempts.values()))


@dataclass(frozen=True, slots=True)
class Asked:
    """What one task asks for. `group_by` and `size`: so many tasks at once, on workers that share that attribute's value."""

    resources: Resources
    constraints: tuple[Constraint, ...] = ()
    has_setup: bool = False
    group_by: str = ""
    size: int = 1

    @classmethod
    def of(cls, spec: JobSpec, tasks: int) -> Asked:
        return cls(spec.resources, spec.constraints, spec.has_setup, spec.group_by, tasks if spec.group_by else 1)

    @property
    def device(self) -> Device | None:
        device = self.resources.device
        return device if device is not None and device.count > 0 else None


@dataclass(frozen=True, slots=True)
class Step:
    """One requirement. Amounts are in the requirement's unit (millicores, bytes, devices, tasks), 0 where it has none.

    left        workers that pass this and all before
    more        workers that would fit in the end if this requirement alone were dropped
    found       what those that fell out here have instead, commonest first, each with how many have it
    most_free   the most that is free on one of the workers that came this far
    most_total  what that worker has in all
    largest     the most that any of those that came this far has in all
    suggestion  what was probably meant, where no worker at all has it
    """

    name: str
    wants: str
    left: int
    more: int
    found: tuple[tuple[str, int], ...] = ()
    needed: int = 0
    most_free: int = 0
    most_total: int = 0
    largest: int = 0
    suggestion: str = ""


@dataclass(frozen=True, slots=True)
class Preference:
    """A constraint that only ranks, and how many of the workers that fit meet it."""

    wants: str
    met: int


@dataclass(frozen=True, slots=True)
class GangGroup:
    """The workers that share one value: how many there are, fit now, could when idle, and are missing for the gang.

    `blocked` are the steps at which the others fall out, commonest first.
    """

    value: str
    workers: int
    fits: int
    capable: int
    missing: int
    blocked: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Funnel:
    """See the module. `capable` counts the workers that would fit if they were healthy and idle, `released` those that will fit once
    their ended attempts are confirmed gone (two-phase finish)."""

    workers: int
    steps: tuple[Step, ...]
    fits: int
    capable: int
    released: int
    room: int = UNBOUNDED
    """Tasks that the workers that fit would take all together."""
    preferences: tuple[Preference, ...] = ()
    groups: tuple[GangGroup, ...] = ()
    """Of a gang: those that could take it whole when idle first, of them the one that lacks least."""
    meant: str = ""
    """Of a gang that no worker has the attribute for: which attribute it probably meant, as a question."""

    @property
    def stopped_by(self) -> Step | None:
        """The first step that leaves no worker."""
        return next((step for step in self.steps if not step.left), None)


@dataclass(slots=True)
class Requirement:
    """A requirement, and which workers pass it."""

    name: str
    wants: str
    passes: list[bool]
    constraint: Constraint | None = None
    needed: int = 0
    free: Sequence[int] | None = None
    total: Sequence[int] | None = None

    @property
    def passes_idle(self) -> list[bool]:
        """Which workers would pass it with nothing on them."""
        return [self.needed <= amount for amount in self.total] if self.total is not None else self.passes

    @property
    def label(self) -> str:
        return self.wants if self.constraint is not None else self.name


@dataclass(frozen=True, slots=True)
class Judged:
    """Every worker of a view against every requirement of a request; lists are in the order of `view.workers`."""

    view: FleetView
    asked: Asked
    requirements: tuple[Requirement, ...]
    first: list[int]
    """The first requirement that each fails, the number of requirements for one that fits."""
    failures: list[int]
    """How many requirements each fails."""
    capable: list[bool]
    """Which would fit if they were healthy and idle."""


def judge(view: FleetView, asked: Asked) -> Judged:
    """Holds the request against the whole fleet."""
    requirements = tuple(_requirements(view, asked))
    rows = list(zip(*(r.passes for r in requirements), strict=True))
    failures = [row.count(False) for row in rows]
    first = [row.index(False) if failed else len(row) for row, failed in zip(rows, failures, strict=True)]
    idle = [r.passes_idle for r in requirements if r.name != HEALTH]
    capable = [all(row) for row in zip(*idle, strict=True)]
    return Judged(view, asked, requirements, first, failures, capable)


def count(judged: Judged) -> Funnel:
    """The funnel, in the fixed order of DESIGN §5.7."""
    workers, asked, first = judged.view.workers, judged.asked, judged.first
    fell: list[list[int]] = [[] for _ in range(len(judged.requirements) + 1)]
    for w, number in enumerate(first):
        fell[number].append(w)
    fitting = fell[-1]
    sole = Counter(number for number, failed in zip(first, judged.failures, strict=True) if failed == 1)
    steps: list[Step] = []
    left = len(workers)
    for number, requirement in enumerate(judged.requirements):
        left -= len(fell[number])
        reached = [w for w, f in enumerate(first) if f >= number] if requirement.free is not None else []
        steps.append(_step(requirement, workers, left, reached, fell[number], sole[number]))
    groups = _groups(judged) if asked.group_by else ()
    return Funnel(
        workers=len(workers),
        steps=tuple(steps),
        fits=len(fitting),
        capable=sum(judged.capable),
        released=_released(judged.view, asked),
        room=min(UNBOUNDED, sum(_takes(judged.requirements, w) for w in fitting)),
        preferences=tuple(
            Preference(str(c), sum(c.matches(workers[w].attributes) for w in fitting))
            for c in asked.constraints
            if c.mode is Mode.PREFERRED
        ),
        groups=groups,
        meant=suggest_attribute(asked.group_by, workers) if asked.group_by and not groups else "",
    )


# Requirements -------------------------------------------------------------------------------------------------


def _takes(requirements: Sequence[Requirement], w: int) -> int:
    """How many tasks one worker that fits would take."""
    return min((r.free[w] // r.needed for r in requirements if r.free is not None and r.needed > 0), default=UNBOUNDED)


def _requirements(view: FleetView, asked: Asked) -> Iterable[Requirement]:
    workers = view.workers
    held = [view.held.get(worker.worker_id, _NOTHING) for worker in workers]
    cpu, memory, gpu, tpu, building = zip(*held, strict=True) if held else ((),) * 5
    yield Requirement(HEALTH, "healthy", [_is_usable(worker) for worker in workers])
    for constraint in asked.constraints:
        if constraint.mode is Mode.REQUIRED:
            yield Requirement(CONSTRAINT, str(constraint), _meeting(constraint, workers), constraint)
    wants = asked.resources
    yield _amount(
        CPU,
        f"{format_cpu(wants.cpu_millicores)} {'core' if wants.cpu_millicores == 1000 else 'cores'}",
        wants.cpu_millicores,
        [w.total.cpu_millicores for w in workers],
        cpu,
    )
    yield _amount(
        MEMORY,
        format_size(wants.memory_bytes, exact=True),
        wants.memory_bytes,
        [w.total.memory_bytes for w in workers],
        memory,
    )
    device = asked.device
    if device is not None:
        total = [_devices(worker, device) for worker in workers]
        devices = gpu if device.kind == "gpu" else tpu
        used = [count if has else 0 for count, has in zip(devices, total, strict=True)]
        yield _amount(device.kind, device_text(device), device.count, total, used)
    if asked.has_setup:
        free = [BUILDING_LIMIT - count for count in building]
        yield Requirement(
            SLOTS,
            f"fewer than {BUILDING_LIMIT} tasks being set up",
            [f > 0 for f in free],
            needed=1,
            free=free,
            total=[BUILDING_LIMIT] * len(workers),
        )


def _amount(name: str, wants: str, needed: int, total: Sequence[int], used: Sequence[int]) -> Requirement:
    free = [t - u for t, u in zip(total, used, strict=True)]
    return Requirement(name, wants, [needed <= f for f in free], needed=needed, free=free, total=total)


def device_text(device: Device) -> str:
    """The accelerators as a person says it: `8 h100 GPUs`."""
    variant = f"{device.variant} " if device.variant else ""
    return f"{device.count} {variant}{device.kind.upper()}{'' if device.count == 1 else 's'}"


def _is_usable(worker: Worker) -> bool:
    return worker.placeable and not worker.excluded


def _devices(worker: Worker, wanted: Device) -> int:
    """How many accelerators of the kind and variant asked for a worker has."""
    device = worker.total.device
    return device.count if device is not None and device.is_like(wanted) else 0


def _meeting(constraint: Constraint, workers: Sequence[Worker]) -> list[bool]:
    """Which workers meet it; each different value is judged once."""
    key, known = constraint.key, dict[str | int | float | None, bool]()
    result: list[bool] = []
    for worker in workers:
        raw = worker.attributes.get(key)
        met = known.get(raw)
        if met is None:
            met = known[raw] = constraint.matches({key: raw} if raw is not None else {})
        result.append(met)
    return result


def _released(view: FleetView, asked: Asked) -> int:
    """How many more workers fit once the attempts that have ended are confirmed gone by their workers."""
    back: dict[str, Held] = {}
    for attempt in view.attempts:
        if attempt.state in TERMINAL:
            back[attempt.worker_id] = _plus(back.get(attempt.worker_id, _NOTHING), held_by(attempt))
    if not back:
        return 0
    touched = tuple(worker for worker in view.workers if worker.worker_id in back)
    after = {w: _plus(view.held.get(w, _NOTHING), gone, -1) for w, gone in back.items()}
    return _fitting(FleetView(touched, after), asked) - _fitting(FleetView(touched, view.held), asked)


def held_by(attempt: Attempt) -> Held:
    """What one unfinished attempt holds, setup slots apart."""
    amount = attempt.resources
    return amount.cpu_millicores, amount.memory_bytes, amount.gpu_count, amount.tpu_count, 0


def _plus(left: Held, right: Held, sign: int = 1) -> Held:
    cpu, memory, gpu, tpu, building = (a + sign * b for a, b in zip(left, right, strict=True))
    return cpu, memory, gpu, tpu, building


def _fitting(view: FleetView, asked: Asked) -> int:
    return sum(
        all(row) for row in zip(*(requirement.passes for requirement in _requirements(view, asked)), strict=True)
    )


# What is told of a step ---------------------------------------------------------------------------------------


def _step(
    requirement: Requirement, workers: Sequence[Worker], left: int, reached: list[int], fell: list[int], more: int
) -> Step:
    found: tuple[tuple[str, int], ...] = ()
    suggestion = ""
    if requirement.constraint is not None:
        key = requirement.constraint.key
        found = commonest(value_of(workers[w], key) for w in fell)
        if not any(requirement.passes):
            suggestion = suggest(requirement.constraint, workers)
    elif requirement.name == HEALTH:
        found = commonest(standing(workers[w]) for w in fell)
    free, total = requirement.free, requirement.total
    most_free = most_total = largest = 0
    if free is not None and total is not None and reached:
        # Of one worker, so that the pair can be read as "so much of so much". Where work waits for what it evicts, both are held
        # against the worker.
        most_free, most_total = max((max(0, free[w]), total[w]) for w in reached)
        largest = max(total[w] for w in reached)
    return Step(
        name=requirement.name,
        wants=requirement.wants,
        left=left,
        more=more,
        found=found,
        needed=requirement.needed,
        most_free=most_free,
        most_total=most_total,
        largest=largest,
        suggestion=suggestion,
    )


# Gangs --------------------------------------------------------------------------------------------------------


def _groups(judged: Judged) -> tuple[GangGroup, ...]:
    asked, first, none = judged.asked, judged.first, len(judged.requirements)
    members: dict[str | int | float, list[int]] = {}
    for w, worker in enumerate(judged.view.workers):
        raw = worker.attributes.get(asked.group_by)
        if raw is not None:
            members.setdefault(canonical(raw), []).append(w)
    groups: list[GangGroup] = []
    for value, ids in members.items():
        fits = sum(first[w] == none for w in ids)
        groups.append(
            GangGroup(
                value=str(value),
                workers=len(ids),
                fits=fits,
                capable=sum(judged.capable[w] for w in ids),
                missing=max(0, asked.size - fits),
                blocked=commonest(judged.requirements[first[w]].label for w in ids if first[w] < none),
            )
        )
    # Of groups with room for all, the planner takes the one that is left with the fewest free workers.
    return tuple(
        sorted(
            groups,
            key=lambda g: (
                g.capable < asked.size,
                g.missing,
                -g.capable if g.missing else g.fits,
                -g.workers if g.missing else 0,
                g.value,
            ),
        )
    )
