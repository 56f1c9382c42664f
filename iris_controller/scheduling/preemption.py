"""What may be evicted so that work of a higher band fits, and what is the least that does (control-plane §2.7).

Asked only when a search for room found none. Candidates are kept by worker, or by group of workers for a gang, and looked at again
only where something changed, so that waiting on a full fleet costs nothing. Room that is about to be free, because what holds it
has been ended already, counts as free here: nothing is evicted where waiting for a moment does. Must never take work of an equal or
higher band, one member of a gang, or anything that does not help.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_controller.scheduling.gangs import LOOKS, GangSearch, Kin, Value, sort_key
from iris_controller.scheduling.pausing import Budget, OutOfBudget
from iris_controller.scheduling.snapshot import BUILDING_LIMIT
from iris_controller.state.budgets import budget_user, task_value
from iris_core.model.states import ACTIVE, EXECUTING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_controller.scheduling.shape import Shape
    from iris_controller.scheduling.snapshot import Node
    from iris_controller.state.model import Model
    from iris_controller.state.occupants import Occupants
    from iris_controller.state.records import Attempt, Job
    from iris_core.model.bands import PriorityBand
    from iris_core.model.resources import Resources

Cost = tuple[int, int, int, int, int]
"""What sorts evictions: the highest rank among the victims, their value, how many, how many had begun, the youngest last. None: zeros."""

NOTHING: Final[Cost] = (0, 0, 0, 0, 0)

STALE: Final = 1_000
"""So many entries of a heap may be out of date before it is made anew."""


class Room(NamedTuple):
    """Millicores, bytes and devices on one worker."""

    cpu: int
    memory: int
    devices: int

    def at_least(self, other: Room) -> Room:
        """The larger of each."""
        return Room(max(self.cpu, other.cpu), max(self.memory, other.memory), max(self.devices, other.devices))

    def and_of(self, node: Node, resources: Resources) -> Room:
        """With what one attempt on that worker holds."""
        device = resources.device
        same = device is not None and node.device is not None and device.kind == node.device.kind
        return Room(
            self.cpu + resources.cpu_millicores,
            self.memory + resources.memory_bytes,
            self.devices + (device.count if same and device is not None else 0),
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """Who asks: the effective band, the requested one, whose budget pays, and the job that submitted it ("" = none).

    Work of the same user that asked for as much is spared even where the user's budget has brought it down to BATCH: it would come
    back as soon as the spend is lower, and evict in turn what it was evicted for. So are the jobs that it descends from: they
    would take it with them, and submit it again.
    """

    band: PriorityBand
    requested: PriorityBand
    user: str
    parent: str = ""

    def may_take(self, job: Job) -> bool:
        """Whether work of the job, known to be of a lower band, may be evicted."""
        if self.parent and (self.parent == job.job_id or self.parent.startswith(f"{job.job_id}/")):
            return False
        return self.requested.outranks(job.spec.band.resolve(None)) or budget_user(job) != self.user


class Fleeting:
    """What will be free once what has been ended is gone. `gone` are the attempts that this slice evicts."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.gone: set[str] = set()
        self._where: set[str] = set()
        """The workers of `gone`."""

    def begin(self) -> None:
        """A slice begins: what the last one evicted is the model's to say."""
        self.gone.clear()
        self._where.clear()

    def evict(self, attempts: Iterable[Attempt]) -> None:
        """The slice evicts these."""
        for attempt in attempts:
            self.gone.add(attempt.uid)
            self._where.add(attempt.worker_id)

    def room(self, node: Node) -> Room:
        """What will be free on a worker once all that has been ended is gone."""
        room = Room(node.cpu, node.memory, node.devices)
        worker_id = node.worker_id
        if worker_id not in self._where and worker_id not in self.model.occupants.ending:
            return room
        for attempt in self.model.attempts_on(worker_id):
            if attempt.state not in ACTIVE or attempt.uid in self.gone:
                room = room.and_of(node, attempt.resources)
        return room


class SoloVictims:
    """For one task at a time of a shape: the worker where the least goes. One victim at most, never a gang's member."""

    def __init__(self, shape: Shape, claim: Claim) -> None:
        self.shape = shape
        self.claim = claim
        self.spared = False
        """Whether something was passed over that another user's claim, or another job's, might take."""
        self._unread: dict[str, None] = {}
        self._rest: list[tuple[int, int, list[str]]] = []
        """Rank and value, the least last, and workers that have work of it and were not looked at yet."""
        self._best: dict[str, tuple[Cost, int, str]] = {}
        """By worker: what it costs, the worker's order, and the victim ("" = nobody has to go)."""
        self._heap: list[tuple[Cost, int, str]] = []

    def begin(self, occupants: Occupants) -> None:
        """Begins anew over all that has work of a lower band, or work that is ending."""
        self._best, self._heap = {}, []
        self._unread = dict.fromkeys(occupants.ending)
        classes = occupants.by_cost(self.claim.band.rank())
        self._rest = [(rank, value, list(workers)) for rank, value, workers in classes][::-1]

    def hear(self, changed: Iterable[str]) -> None:
        """Hears of workers on which anything changed."""
        self._unread.update(dict.fromkeys(changed))

    def choose(self, nodes: Mapping[str, Node], now: Fleeting, budget: Budget) -> tuple[str, tuple[str, ...]] | None:
        """The worker, and the attempt to be evicted there if one has to be; None when no eviction helps.

        The caller charges the worker and says so with `hear` before it asks again.

        Raises:
            OutOfBudget: asked again, it goes on where it was.
        """
        looks = 0
        while True:
            if self._unread:
                self._read(self._unread.popitem()[0], nodes, now)
            else:
                found = self._top()
                if found is not None and (not self._rest or self._best[found][0][:2] <= self._rest[-1][:2]):
                    victim = self._best[found][2]
                    return found, (victim,) if victim else ()
                if not self._rest:
                    return None
                workers = self._rest[-1][2]
                if workers:
                    self._read(workers.pop(), nodes, now)
                else:
                    self._rest.pop()
            looks += 1
            if not looks % LOOKS and not budget():
                raise OutOfBudget

    def _top(self) -> str | None:
        """The worker where least goes, of those looked at."""
        while self._heap:
            cost, _, worker_id = self._heap[0]
            best = self._best.get(worker_id)
            if best is not None and best[0] == cost:
                return worker_id
            heapq.heappop(self._heap)
        return None

    def _read(self, worker_id: str, nodes: Mapping[str, Node], now: Fleeting) -> None:
        node = nodes.get(worker_id)
        found = self._look(node, now) if node is not None and worker_id in self.shape.group.members else None
        if found is None:
            self._best.pop(worker_id, None)
        elif self._best.get(worker_id) != found:
            self._best[worker_id] = found
            heapq.heappush(self._heap, (found[0], found[1], worker_id))
            if len(self._heap) > 2 * len(self._best) + STALE:
                self._heap = [(cost, order, each) for each, (cost, order, _) in self._best.items()]
                heapq.heapify(self._heap)

    def _look(self, node: Node, now: Fleeting) -> tuple[Cost, int, str] | None:
        room = now.room(node)
        if fits(self.shape, node, room):
            return NOTHING, node.order, ""
        model = now.model
        best: tuple[Cost, int, str] | None = None
        for rank, uid in model.occupants.below(node.worker_id, self.claim.band.rank()):
            if best is not None and rank > best[0][0]:
                break
            attempt = model.attempts[uid]
            job = model.jobs[attempt.job_id]
            if uid in now.gone or job.spec.group_by or not takes(self.shape, job):
                continue
            if not self.claim.may_take(job):
                self.spared = True
                continue
            if fits(self.shape, node, room.and_of(node, attempt.resources)):
                found = (_cost([(rank, attempt)]), node.order, uid)
                best = found if best is None else min(best, found)
        return best


@dataclass(frozen=True, slots=True)
class GangOption:
    """What a gang could have in one group: its workers in the order of the tasks, and who goes."""

    cost: Cost
    workers: tuple[str, ...]
    victims: tuple[str, ...]
    version: int
    """Of the group as it was looked at."""


class GangVictims:
    """For one gang at a time: the group of workers where the least goes, whole gangs and single tasks alike.

    Of what is in the way the cheapest is taken until enough workers have room, and then left again whatever was not needed, dearest
    first. So a small task on one host goes alone, and a gang only where nothing less will do.
    """

    def __init__(self, search: GangSearch, claim: Claim) -> None:
        self.search = search
        self.claim = claim
        self.spared = False
        """As of `SoloVictims`."""
        self._unread: dict[Value, None] = {}
        self._best: dict[Value, GangOption] = {}
        self._heap: list[tuple[Cost, tuple[int, float, str], Value]] = []

    def begin(self, occupants: Occupants) -> None:
        """Begins anew, as `SoloVictims.begin`. `search` must be up to date, here and below."""
        self._best, self._heap, self._unread = {}, [], {}
        self.hear(occupants.ending)
        for _, _, workers in occupants.by_cost(self.claim.band.rank()):
            self.hear(workers)

    def hear(self, changed: Iterable[str]) -> None:
        """Hears of workers on which anything changed."""
        self._unread.update((value, None) for w in changed if (value := self.search.value_of(w)) is not None)

    def choose(self, nodes: Mapping[str, Node], now: Fleeting, budget: Budget) -> GangOption | None:
        """The workers and what has to go from them; None when no eviction helps. As `SoloVictims.choose`."""
        while True:
            while self._unread:
                self._read(self._unread.popitem()[0], nodes, now)
                if not budget():
                    raise OutOfBudget
            if not self._heap:
                return None
            cost, _, value = self._heap[0]
            best, kin = self._best.get(value), self.search.kin.get(value)
            if best is None or best.cost != cost or kin is None:
                heapq.heappop(self._heap)
            elif best.version != kin.version:
                # A worker has left the group since.
                self._unread[value] = None
            else:
                return best

    def _read(self, value: Value, nodes: Mapping[str, Node], now: Fleeting) -> None:
        kin = self.search.kin.get(value)
        found = self._look(kin, nodes, now) if kin is not None else None
        if found is None:
            self._best.pop(value, None)
        elif self._best.get(value) != found:
            self._best[value] = found
            heapq.heappush(self._heap, (found.cost, sort_key(value), value))
            if len(self._heap) > 2 * len(self._best) + STALE:
                self._heap = [(option.cost, sort_key(value), value) for value, option in self._best.items()]
                heapq.heapify(self._heap)

    def _look(self, kin: Kin, nodes: Mapping[str, Node], now: Fleeting) -> GangOption | None:
        if len(kin.able) < self.search.size:
            return None
        shape = self.search.shape
        rooms = {worker_id: now.room(nodes[worker_id]) for worker_id in kin.able}
        fitting = {worker_id for worker_id, room in rooms.items() if fits(shape, nodes[worker_id], room)}
        free = frozenset(fitting)
        units: list[list[tuple[int, Attempt]]] = []
        if len(fitting) < self.search.size:
            units = self._take(self._units(rooms, now), rooms, fitting, nodes)
            if len(fitting) < self.search.size:
                return None
        victims = [each for unit in units for each in unit]
        # Workers that need nobody to go come first: what is evicted makes up for those that are missing.
        chosen = self.search.pick(free, nodes)[: self.search.size]
        missing = self.search.size - len(chosen)
        if missing:
            chosen += self.search.pick(fitting - free, nodes)[:missing]
        uids = tuple(attempt.uid for _, attempt in victims)
        return GangOption(_cost(victims), tuple(self.search.pick(chosen, nodes)), uids, kin.version)

    def _units(self, rooms: Mapping[str, Room], now: Fleeting) -> list[list[tuple[int, Attempt]]]:
        """What may go, cheapest first: a task that is alone, or a gang with all of its members, wherever they are."""
        model, rank = now.model, self.claim.band.rank()
        units: list[list[tuple[int, Attempt]]] = []
        gangs: set[str] = set()
        for worker_id in rooms:
            for held, uid in model.occupants.below(worker_id, rank):
                attempt = model.attempts[uid]
                job = model.jobs[attempt.job_id]
                if uid in now.gone or attempt.job_id in gangs or not takes(self.search.shape, job):
                    continue
                if not self.claim.may_take(job):
                    self.spared = True
                    continue
                if not job.spec.group_by:
                    units.append([(held, attempt)])
                    continue
                gangs.add(attempt.job_id)
                active = [task for task in model.tasks[attempt.job_id] if task.state in ACTIVE]
                if all(task.band.rank() < rank for task in active):
                    units.append([(task.band.rank(), model.attempts[task.attempt_uid]) for task in active])
        return sorted(units, key=_cost)

    def _take(
        self,
        units: list[list[tuple[int, Attempt]]],
        rooms: dict[str, Room],
        fitting: set[str],
        nodes: Mapping[str, Node],
    ) -> list[list[tuple[int, Attempt]]]:
        """The units that have to go; `rooms` and `fitting` then say what that makes free."""
        taken: list[list[tuple[int, Attempt]]] = []
        for unit in units:
            taken.append(unit)
            self._move(unit, 1, rooms, fitting, nodes)
            if len(fitting) >= self.search.size:
                break
        else:
            return []
        for unit in reversed(taken[:-1]):
            self._move(unit, -1, rooms, fitting, nodes)
            if len(fitting) >= self.search.size:
                taken.remove(unit)
            else:
                self._move(unit, 1, rooms, fitting, nodes)
        return taken

    def _move(
        self,
        unit: list[tuple[int, Attempt]],
        sign: int,
        rooms: dict[str, Room],
        fitting: set[str],
        nodes: Mapping[str, Node],
    ) -> None:
        for _, attempt in unit:
            worker_id = attempt.worker_id
            if worker_id not in rooms:
                continue
            node, room = nodes[worker_id], rooms[worker_id]
            freed = Room(0, 0, 0).and_of(node, attempt.resources)
            room = rooms[worker_id] = Room(*(have + sign * more for have, more in zip(room, freed, strict=True)))
            if fits(self.search.shape, node, room):
                fitting.add(worker_id)
            else:
                fitting.discard(worker_id)


def fits(shape: Shape, node: Node, room: Room) -> bool:
    """Whether a task of the shape fits into that much room on the worker.

    Where only a setup slot is missing, or the worker has had its share of a cycle, nobody is evicted: that passes soon.
    """
    if shape.cpu > room.cpu or shape.memory > room.memory:
        return False
    if shape.device is not None and not (shape.devices <= room.devices and shape.likes(node.device)):
        return False
    return not (node.resting or (shape.setup and node.building >= BUILDING_LIMIT))


def takes(shape: Shape, job: Job) -> bool:
    """Whether a job's tasks, known to be of a lower band, are of a kind that goes for a task of the shape.

    Work without accelerators evicts only its like; work with accelerators takes the same ones, and whatever sits on their host
    without any.
    """
    device = job.spec.resources.device
    return device is None or device.count <= 0 or (shape.device is not None and shape.likes(device))


def _cost(victims: list[tuple[int, Attempt]]) -> Cost:
    if not victims:
        return NOTHING
    return (
        max(rank for rank, _ in victims),
        sum(task_value(attempt.resources) for _, attempt in victims),
        len(victims),
        sum(attempt.state in EXECUTING for _, attempt in victims),
        -max(attempt.created_at_ms for _, attempt in victims),
    )
