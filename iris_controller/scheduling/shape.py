"""What one task asks for, and the search for workers that have it.

Jobs that ask for the same are one shape and share one search. A worker that was found too full is not looked at again before
something on it changed, so placing a task costs about one look, however large the fleet. Must never know which task it
is looking for.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from iris_controller.scheduling.snapshot import BUILDING_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_controller.scheduling.snapshot import Group, Node, Tier
    from iris_controller.scheduling.turns import Bucket, Lane, Line
    from iris_controller.state.records import JobSpec
    from iris_core.model.constraints import Constraint
    from iris_core.model.resources import Device

ShapeKey = tuple[int, int, tuple[str, str, int] | None, tuple["Constraint", ...], bool]

_EMPTY: Final[tuple[Node, ...]] = ()


def shape_key(spec: JobSpec) -> ShapeKey:
    """What makes tasks interchangeable to the scheduler. Disk is not checked (control-plane §2.6)."""
    asked = spec.resources
    device = asked.device
    wanted = (device.kind, device.variant.lower(), device.count) if device is not None and device.count > 0 else None
    return asked.cpu_millicores, asked.memory_bytes, wanted, spec.constraints, spec.has_setup


class _TierSearch:
    """Workers of one tier still worth a look: those not looked at yet, and those that took a task or got room since."""

    __slots__ = ("again", "again_set", "fresh", "held", "left", "position")

    def __init__(self, fresh: tuple[Node, ...], start: int) -> None:
        self.fresh = fresh
        self.position = start % len(fresh) if fresh else 0
        self.left = len(fresh)
        self.again: deque[str] = deque()
        self.again_set: set[str] = set()
        self.held: str | None = None

    def push(self, worker_id: str) -> None:
        if worker_id not in self.again_set:
            self.again_set.add(worker_id)
            self.again.append(worker_id)

    def pop(self) -> str | None:
        """Of those that changed, the next."""
        if self.again:
            worker_id = self.again.popleft()
            self.again_set.discard(worker_id)
            return worker_id
        return None


class Shape:
    """One kind of request, who waits for it, and its search over the group of workers that its constraints leave."""

    def __init__(self, key: ShapeKey, group: Group) -> None:
        self.cpu, self.memory, self.device, self.constraints, self.setup = key
        self.devices = self.device[2] if self.device is not None else 0
        self.key = key
        self.group = group
        self.lines: dict[Lane, Line] = {}
        self.size = 0
        """Number of buckets."""
        self.seen = -1
        """Position in the planner's log of changed workers up to which the search knows them; -1 = it has not begun."""
        self.open = True
        """Whether something may fit; when not, `reason` says why."""
        self.reason = ""
        self.reason_for: tuple[int, int, int] | None = None
        self.untold: dict[Bucket, None] = {}
        """Buckets that have not been given `reason`."""
        self.waits_for_slot: set[str] = set()
        """Workers with room for it that are setting up as many tasks as they may, or have had their share of the cycle."""
        self._tiers: dict[Tier, _TierSearch] = {}
        self._order: list[Tier] = []

    def close(self) -> None:
        """The search found nothing."""
        self.open = False
        self.waits_for_slot &= self.group.members.keys()
        if not self.waits_for_slot:
            self.group.nothing_for[self] = None

    def reopen(self) -> None:
        """Something may fit again."""
        self.open = True
        self.group.nothing_for.pop(self, None)

    def asks_less(self, other: Shape) -> bool:
        """Whether every worker without room for this one has none for the other either; both are of one group."""
        return (
            self.cpu <= other.cpu
            and self.memory <= other.memory
            and (not self.setup or other.setup)
            and (
                self.device is None
                or (
                    other.device is not None
                    and self.device[0] == other.device[0]
                    and self.device[1] in ("", other.device[1])
                    and self.devices <= other.devices
                )
            )
        )

    def restart(self, seen: int) -> None:
        """Begins the search anew over the whole group, or where one for less has just ended without a find."""
        self.waits_for_slot.clear()
        for other in self.group.nothing_for:
            if other.asks_less(self):
                self._tiers, self._order, self.seen = {}, [], other.seen
                return
        start = 0 if self.device is not None else self.group.start
        self._tiers = {tier: _TierSearch(workers, start) for tier, workers in self.group.tiers()}
        self._order = sorted(self._tiers)
        self.seen = seen

    def hear(self, changed: Iterable[str], seen: int) -> None:
        """Takes in the workers that may have got room since."""
        members = self.group.members
        for worker_id in changed:
            self.waits_for_slot.discard(worker_id)
            tier = members.get(worker_id)
            if tier is None:
                continue
            search = self._tiers.get(tier)
            if search is None:
                search = self._tiers[tier] = _TierSearch(_EMPTY, 0)
                self._order = sorted(self._tiers)
            search.push(worker_id)
        self.seen = seen

    def find(self, nodes: dict[str, Node]) -> Node | None:
        """The worker for one task, or None when none has room. The caller charges it before it asks again.

        Work without accelerators spreads: of the next two workers that fit, the less busy one is taken, so load stays even without
        looking at all of them. Work with accelerators fills one worker before the next, so that whole workers stay free.
        """
        for tier in self._order:
            search = self._tiers[tier]
            first = self._next(search, tier, nodes, held=True)
            if first is None:
                continue
            if self.device is not None:
                search.held = first.worker.worker_id
                return first
            self.group.start += 1
            second = self._next(search, tier, nodes, held=False)
            if second is not None:
                if second.load() < first.load():
                    first, second = second, first
                search.held = second.worker.worker_id
            search.push(first.worker.worker_id)
            return first
        return None

    def _next(self, search: _TierSearch, tier: Tier, nodes: dict[str, Node], held: bool) -> Node | None:
        members = self.group.members
        worker_id = search.held if held else None
        if worker_id is not None:
            search.held = None
            if members.get(worker_id) == tier and self.fits(nodes[worker_id]):
                return nodes[worker_id]
        if search.left:
            found = self._scan(search, tier, nodes)
            if found is not None:
                return found
        while (worker_id := search.pop()) is not None:
            if members.get(worker_id) == tier and self.fits(nodes[worker_id]):
                return nodes[worker_id]
        return None

    def _scan(self, search: _TierSearch, tier: Tier, nodes: dict[str, Node]) -> Node | None:
        """The next that fits of those not looked at yet. Most do not, so what rules them out comes first."""
        fresh, size, position, left = search.fresh, len(search.fresh), search.position, search.left
        members, cpu, memory, devices = self.group.members, self.cpu, self.memory, self.devices
        found = None
        while left:
            node = fresh[position]
            left -= 1
            position = position + 1 if position + 1 < size else 0
            if (
                node.cpu >= cpu
                and node.memory >= memory
                and node.devices >= devices
                and members.get(node.worker_id) == tier
                and nodes[node.worker_id] is node
                and self.fits(node)
            ):
                found = node
                break
        search.position, search.left = position, left
        return found

    def fits(self, node: Node) -> bool:
        """Whether one task goes onto the worker now; remembers one where only a setup slot, or the next cycle, is missing."""
        if self.cpu > node.cpu or self.memory > node.memory:
            return False
        if self.device is not None and not (self.devices <= node.devices and self.likes(node.device)):
            return False
        if node.resting or (self.setup and node.building >= BUILDING_LIMIT):
            self.waits_for_slot.add(node.worker.worker_id)
            return False
        return True

    def likes(self, device: Device | None) -> bool:
        """Whether a worker's accelerators, if any are asked for, are of the kind and variant asked for."""
        if self.device is None:
            return True
        kind, variant, _ = self.device
        return (
            device is not None
            and device.kind == kind
            and (not variant or not device.variant or variant == device.variant.lower())
        )

    def charge(self, node: Node) -> None:
        """Takes one task's worth from a node."""
        node.cpu -= self.cpu
        node.memory -= self.memory
        node.tasks += 1
        if self.device is not None:
            node.devices -= self.devices
        if self.setup:
            node.building += 1
