"""Which workers a gang may have together: all of them share one value of an attribute (control-plane §1.6).

Workers are kept by that value for one kind of request and size, so a change of one worker costs a look at that worker and its
group, however large the fleet. A gang is placed whole or not at all, one member per worker. Must never place part of one, and
never know which gang it is looking for.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_controller.scheduling.pausing import Budget, OutOfBudget
from iris_controller.scheduling.reasons import reason_for
from iris_controller.scheduling.shape import Shape, ShapeKey
from iris_core.model.constraints import TPU_WORKER_ID
from iris_core.model.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from iris_controller.scheduling.changelog import ChangeLog
    from iris_controller.scheduling.snapshot import Fleet, Group, Node

GROUPS_NAMED: Final = 3
"""So many groups are named in a reason, the fullest first."""

LOOKS: Final = 64
"""So many workers are looked at between two looks at the budget."""

STALE: Final = 1_000
"""So many entries of the heap may be out of date before it is made anew."""

GangKey = tuple[ShapeKey, str, int]
"""What one member asks for, `group_by`, and the number of members to be placed."""

Value = str | int | float
GroupRank = tuple[int, int, int, tuple[int, float, str]]


@dataclass(slots=True)
class Kin:
    """The workers that meet the constraints and share one value."""

    value: Value
    members: dict[str, None] = field(default_factory=dict)
    able: set[str] = field(default_factory=set)
    """Those that could hold a member if they were idle."""
    fitting: set[str] = field(default_factory=set)
    """Those that have room for a member now."""
    version: int = 0


@dataclass(frozen=True, slots=True)
class GroupFit:
    """One group as operators are told of it: how many workers it has, how many are large enough, and how many have room now."""

    value: Value
    workers: int
    able: int
    fitting: int


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """All groups: how many, the most workers of one, the most of one that are large enough, and those with most room by name."""

    count: int
    workers: int
    able: int
    fullest: tuple[GroupFit, ...]


class GangSearch:
    """The groups of workers for gangs of one shape, one `group_by` and one number of members to be placed."""

    def __init__(self, shape: Shape, group_by: str, size: int) -> None:
        self.shape = shape
        self.group_by = group_by
        self.size = size
        self.kin: dict[Value, Kin] = {}
        self._value_of: dict[str, Value] = {}
        self._unread: dict[str, None] = {}
        self._changed: dict[Value, None] = {}
        self._versions = 0
        self._heap: list[tuple[GroupRank, int, Value]] = []

    def hear(self, changed: Iterable[str]) -> None:
        """Hears of workers that came, went, or changed in any way. At first: all of them."""
        self._unread.update(dict.fromkeys(changed))

    def _read(self, nodes: Mapping[str, Node], budget: Budget) -> None:
        while self._unread:
            worker_id = self._unread.popitem()[0]
            self._look(worker_id, nodes.get(worker_id))
            if not len(self._unread) % LOOKS and not budget():
                raise OutOfBudget

    def _look(self, worker_id: str, node: Node | None) -> None:
        value = self._shared(worker_id, node)
        before = self._value_of.get(worker_id)
        if before is not None and before != value:
            self._leave(worker_id, before)
        if value is None or node is None:
            return
        kin = self.kin.get(value)
        if kin is None:
            kin = self.kin[value] = Kin(value)
        self._value_of[worker_id] = value
        kin.members[worker_id] = None
        _put(kin.able, worker_id, could_hold(self.shape, node))
        _put(kin.fitting, worker_id, self.shape.fits(node))
        self._changed[value] = None

    def _shared(self, worker_id: str, node: Node | None) -> Value | None:
        if node is None or worker_id not in self.shape.group.members:
            return None
        return node.worker.attributes.get(self.group_by)

    def _leave(self, worker_id: str, value: Value) -> None:
        kin = self.kin[value]
        del self._value_of[worker_id]
        del kin.members[worker_id]
        kin.able.discard(worker_id)
        kin.fitting.discard(worker_id)
        self._changed[value] = None
        if not kin.members:
            del self.kin[value]

    @property
    def workers(self) -> set[str]:
        """All that have a part in this search."""
        return set(self._value_of)

    def value_of(self, worker_id: str) -> Value | None:
        """The group a worker is in; None when it has no part in this search."""
        return self._value_of.get(worker_id)

    def choose(self, nodes: Mapping[str, Node], budget: Budget) -> tuple[Value, list[str]] | None:
        """The group that takes the gang and the workers in the order of the tasks, or None when no group has room for all.

        The group whose workers meet the most preferred constraints together wins; among equals the one that is left with the fewest
        free workers. The caller charges the workers and says so with `hear` before it asks again.

        Raises:
            OutOfBudget: asked again, it goes on where it was.
        """
        self._read(nodes, budget)
        for value in self._changed:
            kin = self.kin.get(value)
            if kin is not None:
                self._versions += 1
                kin.version = self._versions
                if len(kin.fitting) >= self.size:
                    heapq.heappush(self._heap, (self._rank(kin, nodes), kin.version, value))
        self._changed.clear()
        if len(self._heap) > 2 * len(self.kin) + STALE:
            current = {kin.version for kin in self.kin.values()}
            self._heap = [entry for entry in self._heap if entry[1] in current]
            heapq.heapify(self._heap)
        while self._heap:
            _, version, value = self._heap[0]
            kin = self.kin.get(value)
            if kin is not None and kin.version == version:
                return value, self.pick(kin.fitting, nodes)
            heapq.heappop(self._heap)
        return None

    def pick(self, workers: Iterable[str], nodes: Mapping[str, Node]) -> list[str]:
        """The best workers for the members, in the order of the tasks: by `tpu-worker-id`, as a number where it is one."""
        members = self.shape.group.members
        chosen = heapq.nsmallest(self.size, workers, key=lambda w: (members[w], in_slice(nodes[w])))
        return sorted(chosen, key=lambda w: in_slice(nodes[w]))

    def _rank(self, kin: Kin, nodes: Mapping[str, Node]) -> GroupRank:
        tiers = [self.shape.group.members[w] for w in self.pick(kin.fitting, nodes)]
        return (
            sum(tier[0] for tier in tiers),
            sum(tier[1] for tier in tiers),
            len(kin.fitting) - self.size,
            sort_key(kin.value),
        )

    def summary(self) -> GroupSummary:
        """What there is to say of all groups."""
        groups = self.kin.values()
        fullest = heapq.nsmallest(GROUPS_NAMED, groups, key=_fullest_first)
        return GroupSummary(
            len(groups),
            max((len(kin.members) for kin in groups), default=0),
            max((len(kin.able) for kin in groups), default=0),
            tuple(GroupFit(k.value, len(k.members), len(k.able), len(k.fitting)) for k in fullest),
        )


class GangShape(Shape):
    """What gangs of one kind and size ask for: a `Shape` that is placed by group and never one by one."""

    def __init__(self, key: GangKey, group: Group) -> None:
        super().__init__(key[0], group)
        self.gang_key = key
        self.search = GangSearch(self, key[1], key[2])
        self._heard = -1

    def close(self) -> None:
        # Says nothing of single workers: `Group.nothing_for` is not for gangs.
        self.open = False
        self.waits_for_slot.clear()

    def listen(self, log: ChangeLog) -> None:
        """Hears what changed on workers since it was last asked."""
        changed = log.since(self._heard)
        self.search.hear(self.search.workers | self.group.members.keys() if changed is None else changed)
        self._heard = log.now

    def explain(self, fleet: Fleet) -> str:
        """Why no group takes it, in one line that names the fullest groups."""
        if not self.group.members:
            return reason_for(self, fleet)
        return gang_reason(self.search.group_by, self.search.size, self.search.summary())


def gang_reason(group_by: str, size: int, groups: GroupSummary) -> str:
    """Why none of the groups takes a gang. Says so where none could even if it were idle."""
    needs = f"needs {size} workers sharing {group_by}" if size != 1 else f"needs 1 worker with {group_by}"
    if not groups.count:
        return f"{needs}, no worker that meets its constraints has {group_by}"
    never = "no group here could hold it"
    if groups.workers < size:
        return f"{needs}, {never}: the largest of {counted(groups.count, 'group')} has {groups.workers}"
    if groups.able < size:
        named = _named(group_by, groups, lambda g: f"{g.able} large enough of {g.workers}")
        return f"{needs}, {never}: at most {groups.able} of one {'is' if groups.able == 1 else 'are'} large enough ({named})"
    named = _named(group_by, groups, lambda g: f"{_fit(g.fitting)} of {g.workers}")
    return f"{needs}, largest group has {_fit(groups.fullest[0].fitting, 'that ')} ({named})"


def could_hold(shape: Shape, node: Node) -> bool:
    """Whether a worker has what a task of the shape asks for when nothing else is on it."""
    total = node.worker.total
    if shape.cpu > total.cpu_millicores or shape.memory > total.memory_bytes:
        return False
    device = node.device
    return shape.device is None or (device is not None and shape.likes(device) and shape.devices <= device.count)


def in_slice(node: Node) -> tuple[int, float, str, int]:
    """Sorts the workers of a group: by `tpu-worker-id`, numbers before words before none, then in the order they came."""
    value = node.worker.attributes.get(TPU_WORKER_ID)
    if value is None:
        return 2, 0.0, "", node.order
    return *sort_key(value), node.order


def sort_key(value: Value) -> tuple[int, float, str]:
    """Sorts attribute values: numbers before words."""
    return (1, 0.0, value) if isinstance(value, str) else (0, float(value), "")


def _fullest_first(kin: Kin) -> tuple[int, int, int, tuple[int, float, str]]:
    return -len(kin.fitting), -len(kin.able), -len(kin.members), sort_key(kin.value)


def _put(where: set[str], worker_id: str, there: bool) -> None:
    if there:
        where.add(worker_id)
    else:
        where.discard(worker_id)


def _fit(number: int, that: str = "") -> str:
    return f"{number} {that}{'fits' if number == 1 else 'fit'}"


def _named(group_by: str, groups: GroupSummary, told: Callable[[GroupFit], str]) -> str:
    names = [f"{group_by}={group.value}: {told(group)}" for group in groups.fullest]
    if groups.count > len(names):
        names.append(f"and {groups.count - len(names)} more")
    return "; ".join(names)
