"""What the planner sees of the fleet: each worker's free capacity, and which workers a set of constraints leaves.

A `Node` is refreshed from the model when its worker or usage changed and is charged by the planner within a slice, so a plan
never copies the fleet. A `Group` is the workers that satisfy one set of constraints, shared by all jobs that ask for it, in tiers
of which an earlier one is always preferred. Must never hold a task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from iris_core.model.constraints import Constraint, Mode

if TYPE_CHECKING:
    from iris_controller.scheduling.shape import Shape
    from iris_controller.state.model import Usage
    from iris_controller.state.records import Worker
    from iris_core.model.resources import Device, Resources

BUILDING_LIMIT: Final = 8
"""Most tasks that are set up at once on one worker; only tasks with setup steps count (DESIGN §5.6)."""

VERDICTS: Final = 20_000
"""How many values a constraint remembers its verdict on."""

IDLE_GROUPS: Final = 64
"""How many groups are kept up to date that nothing waits for: most jobs ask for what others asked for shortly before."""

Tier = tuple[int, int]
Standing = tuple[bool, bool, bool, "Resources", Mapping[str, str | int | float]]
GroupKey = tuple[tuple[Constraint, ...], bool]

_order = attrgetter("order")


class Node:
    """One worker: what is free on it now, this slice's own placements included. Millicores, bytes, devices."""

    __slots__ = (
        "attributes",
        "building",
        "cpu",
        "device",
        "devices",
        "kind",
        "memory",
        "order",
        "resting",
        "tasks",
        "usable",
        "worker",
        "worker_id",
    )

    def __init__(self, worker: Worker, usage: Usage, order: int, kind: Kind) -> None:
        self.worker_id = worker.worker_id
        self.resting = False
        """It has been given as many tasks in this cycle as it may."""
        self.order = order
        """Position in the order in which workers were first seen."""
        self.become(worker, kind)
        self.refresh(usage)

    def become(self, worker: Worker, kind: Kind) -> None:
        """Takes in another row of the worker; `refresh` must follow."""
        self.worker = worker
        self.attributes: Mapping[str, str | int | float] = worker.attributes
        self.kind = kind
        self.usable = worker.placeable and not worker.excluded
        self.device: Device | None = worker.total.device

    def refresh(self, usage: Usage) -> None:
        """Takes in what the worker holds."""
        total = self.worker.total
        self.cpu = total.cpu_millicores - usage.cpu_millicores
        self.memory = total.memory_bytes - usage.memory_bytes
        self.devices = 0
        if total.device is not None:
            self.devices = total.device.count - (usage.gpu if total.device.kind == "gpu" else usage.tpu)
        self.building = usage.building
        self.tasks = usage.tasks

    def standing(self) -> Standing:
        """What decides where the worker belongs; all else about it is of no matter here."""
        worker = self.worker
        return self.usable, worker.attached, worker.placeable and worker.excluded, worker.total, worker.attributes

    def load(self) -> tuple[float, int, int]:
        """How busy the worker is: share of its CPU in use, then tasks, then its order."""
        total = self.worker.total.cpu_millicores
        return (1.0 - self.cpu / total if total > 0 else 1.0, self.tasks, self.order)


class Kind:
    """What some workers have in all; compared by identity, so that counting them costs little."""

    __slots__ = ("total",)

    def __init__(self, total: Resources) -> None:
        self.total = total


class _Test:
    """A constraint that remembers what it said of each value: a fleet has many workers and few different values."""

    __slots__ = ("_constraint", "_key", "_known")

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint
        self._key = constraint.key
        self._known: dict[str | int | float | None, bool] = {}

    def __call__(self, node: Node) -> bool:
        return bool(self.select([node], True))

    def select(self, nodes: list[Node], verdict: bool) -> list[Node]:
        """Those that satisfy it, or those that do not."""
        key, known = self._key, self._known
        try:
            return [node for node in nodes if known[node.attributes.get(key)] is verdict]
        except KeyError:
            if len(known) > VERDICTS:
                known.clear()
            for value in {node.attributes.get(key) for node in nodes}:
                known[value] = self._constraint.matches({} if value is None else {key: value})
            return [node for node in nodes if known[node.attributes.get(key)] is verdict]


class Group:
    """The usable workers that satisfy all required constraints, by tier: more preferred constraints met comes first, then, for
    work without accelerators, workers that have none. Looked for when first asked for."""

    def __init__(
        self,
        constraints: tuple[Constraint, ...],
        wants_device: bool,
        nodes: Mapping[str, Node],
        tests: dict[Constraint, _Test],
    ) -> None:
        self.required = tuple(c for c in constraints if c.mode is Mode.REQUIRED)
        self.preferred = tuple(c for c in constraints if c.mode is Mode.PREFERRED)
        self.wants_device = wants_device
        self.nothing_for: dict[Shape, None] = {}
        """Shapes of which no member has room for a task."""
        self.shapes = 0
        """How many shapes use this group; it is dropped with the last."""
        self.version = 0
        """Grows when a member comes, goes or changes in what it has in all."""
        self.start = 0
        """Where the next scan begins, so that one job after the other does not begin at the same worker."""
        self._nodes = nodes
        for constraint in constraints:
            tests.setdefault(constraint, _Test(constraint))
        self._musts = [tests[c] for c in self.required]
        self._wishes = [tests[c] for c in self.preferred]
        self._members: dict[str, Tier] | None = None
        self._kind_of: dict[str, Kind] | None = None
        """Kept up only once somebody has asked what the members have in all."""
        self._kinds: Counter[Kind] = Counter()
        self._tiers: list[tuple[Tier, tuple[Node, ...]]] | None = None

    @property
    def members(self) -> dict[str, Tier]:
        return self._look() if self._members is None else self._members

    def _look(self) -> dict[str, Tier]:
        """The first look at all workers: whole tiers at a time, since each of many groups goes through all of them."""
        fitting = [node for node in self._nodes.values() if node.usable]
        for must in self._musts:
            fitting = must.select(fitting, True)
        tiers: dict[Tier, list[Node]] = {(0, 0): fitting}
        if not self.wants_device:
            with_device = [node for node in fitting if node.device is not None]
            if with_device:
                tiers = {(0, 0): [node for node in fitting if node.device is None], (0, 1): with_device}
        for wish in self._wishes:
            split: dict[Tier, list[Node]] = {}
            for (unmet, other), nodes in tiers.items():
                for tier, found in (
                    ((unmet, other), wish.select(nodes, True)),
                    ((unmet + 1, other), wish.select(nodes, False)),
                ):
                    split[tier] = sorted(split[tier] + found, key=_order) if tier in split else found
            tiers = split
        self._members = members = dict.fromkeys([node.worker_id for node in fitting], (0, 0))
        self._tiers = [(tier, tuple(tiers[tier])) for tier in sorted(tiers) if tiers[tier]]
        for tier, workers in self._tiers:
            if tier != (0, 0):
                members.update(dict.fromkeys([node.worker_id for node in workers], tier))
        return members

    @property
    def totals(self) -> list[Resources]:
        """What the members have in all, each once: a fleet has few kinds of workers."""
        if self._kind_of is None:
            nodes = self._nodes
            self._kind_of = {worker_id: nodes[worker_id].kind for worker_id in self.members}
            self._kinds = Counter(self._kind_of.values())
        return [kind.total for kind in self._kinds]

    def update(self, worker_id: str, node: Node | None) -> None:
        """Takes in that a worker came, went, or changed in attributes, total or usability."""
        members = self._members
        if members is None:
            return
        kind_of = self._kind_of
        had = kind_of.pop(worker_id, None) if kind_of is not None else None
        if had is not None:
            self._kinds[had] -= 1
            if not self._kinds[had]:
                del self._kinds[had]
        if node is not None and node.usable and all(must(node) for must in self._musts):
            members[worker_id] = self._tier(node)
            if kind_of is not None:
                kind_of[worker_id] = node.kind
                self._kinds[node.kind] += 1
        elif members.pop(worker_id, None) is None:
            return
        self.version += 1
        self._tiers = None

    def _tier(self, node: Node) -> Tier:
        unmet = sum(not wish(node) for wish in self._wishes) if self._wishes else 0
        return unmet, int(node.device is not None and not self.wants_device)

    def tiers(self) -> list[tuple[Tier, tuple[Node, ...]]]:
        """The members by tier, best first, within a tier in the order in which they came."""
        members, nodes = self.members, self._nodes
        if self._tiers is None:
            self._tiers = [
                (tier, tuple([nodes[worker_id] for worker_id, its in members.items() if its == tier]))
                for tier in sorted(set(members.values()))
            ]
        return self._tiers


class Fleet:
    """All workers of the model as nodes, and the groups in use."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.groups: dict[GroupKey, Group] = {}
        self._idle: dict[GroupKey, None] = {}
        self._kinds: dict[Resources, Kind] = {}
        self._tests: dict[Constraint, _Test] = {}
        self.attached = 0
        self.usable = 0
        self.excluded = 0
        """Those that take no work only because they failed to stage too often."""
        self.version = 0
        """Grows when a worker comes, goes or changes otherwise than in what it runs."""
        self._orders = 0

    def put(self, worker: Worker, usage: Usage) -> bool:
        """Takes in a worker's row and usage. Returns whether something may fit now that did not before."""
        node = self.nodes.get(worker.worker_id)
        if node is None:
            node = self.nodes[worker.worker_id] = Node(worker, usage, self._orders, self._kind(worker))
            self._orders += 1
            self._count(node.standing(), 1)
            self._regroup(worker.worker_id, node)
            return node.usable
        cpu, memory, devices, building = node.cpu, node.memory, node.devices, node.building
        if node.worker is not worker:
            standing = node.standing()
            node.become(worker, self._kind(worker))
            if node.standing() != standing:
                node.refresh(usage)
                self._count(standing, -1)
                self._count(node.standing(), 1)
                self._regroup(worker.worker_id, node)
                return node.usable
        node.refresh(usage)
        # Most often it holds what the planner itself has given it.
        more = node.cpu > cpu or node.memory > memory or node.devices > devices or node.building < building
        return more and node.usable

    def drop(self, worker_id: str) -> None:
        """Forgets a worker that the model does not know any more."""
        node = self.nodes.pop(worker_id, None)
        if node is not None:
            self._count(node.standing(), -1)
            self._regroup(worker_id, None)

    def group(self, constraints: tuple[Constraint, ...], wants_device: bool) -> Group:
        """The group for these constraints, made when it is not there."""
        key = (constraints, wants_device)
        self._idle.pop(key, None)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(constraints, wants_device, self.nodes, self._tests)
        return group

    def release(self, constraints: tuple[Constraint, ...], wants_device: bool) -> None:
        """One shape less uses the group."""
        key = (constraints, wants_device)
        group = self.groups[key]
        group.shapes -= 1
        if not group.shapes:
            self._rest(key)

    def meets(self, constraint: Constraint) -> bool:
        """Whether a usable worker satisfies the constraint."""
        key = ((constraint,), True)
        group = self.group(*key)
        if not group.shapes:
            self._rest(key)
        return bool(group.members)

    def _rest(self, key: GroupKey) -> None:
        self._idle[key] = None
        if len(self._idle) > IDLE_GROUPS:
            oldest = next(iter(self._idle))
            del self._idle[oldest], self.groups[oldest]
            if len(self._tests) > VERDICTS:
                self._tests.clear()

    def _kind(self, worker: Worker) -> Kind:
        kind = self._kinds.get(worker.total)
        if kind is None:
            kind = self._kinds[worker.total] = Kind(worker.total)
        return kind

    def _regroup(self, worker_id: str, node: Node | None) -> None:
        for group in self.groups.values():
            group.update(worker_id, node)

    def _count(self, standing: Standing, sign: int) -> None:
        usable, attached, excluded = standing[:3]
        self.attached += sign * attached
        self.usable += sign * usable
        self.excluded += sign * excluded
        self.version += 1
