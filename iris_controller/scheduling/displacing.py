"""Who comes in the place of whom: asks the searches for victims, which are made when work found no room and kept while of use.

Must never decide what an eviction costs (`preemption` does), nor whose turn it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_controller.scheduling.gangs import GangShape
from iris_controller.scheduling.plans import Eviction
from iris_controller.scheduling.preemption import Claim, Fleeting, GangVictims, Room, SoloVictims
from iris_core.model.bands import PriorityBand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_controller.scheduling.changelog import ChangeLog
    from iris_controller.scheduling.pausing import Budget
    from iris_controller.scheduling.shape import Shape
    from iris_controller.scheduling.snapshot import Node
    from iris_controller.scheduling.turns import Bucket
    from iris_controller.state.model import Model

SEARCHES_KEPT: Final = 128
"""More would mean that as many kinds of work wait for victims at once; the one not asked for longest is made anew when it is."""


class Displacer:
    """See the module. `log` tells of every worker on which anything changed, the slice's own placements and evictions included."""

    def __init__(self, model: Model, nodes: Mapping[str, Node], log: ChangeLog) -> None:
        self._occupants = model.occupants
        self._model = model
        self._nodes = nodes
        self._log = log
        self._now = Fleeting(model)
        self._searches: dict[tuple[Shape, Claim], SoloVictims | GangVictims] = {}
        self._heard: dict[tuple[Shape, Claim], int] = {}
        self._tops: dict[int, Room] = {}

    def begin(self, changed: Iterable[str], ranks: set[int]) -> None:
        """A slice begins: `changed` are the workers on which anything did since the last, `ranks` those of the bands that wait."""
        self._now.begin()
        self._tops = {}
        wanted = {rank for rank in ranks if self._occupants.any_below(rank)}
        if not wanted:
            self._searches.clear()
            self._heard.clear()
            return
        for worker_id in changed:
            node = self._nodes.get(worker_id)
            if node is not None and node.usable:
                self._look(node, wanted)

    def _look(self, node: Node, ranks: set[int]) -> None:
        room = self._now.room(node)
        for rank in ranks:
            largest = room if node.worker.worker_id in self._occupants.ending else None
            for _, uid in self._occupants.below(node.worker.worker_id, rank):
                with_it = room.and_of(node, self._model.attempts[uid].resources)
                largest = with_it if largest is None else largest.at_least(with_it)
            if largest is not None:
                known = self._tops.get(rank)
                self._tops[rank] = largest if known is None else known.at_least(largest)

    @property
    def hopeful(self) -> bool:
        """Whether `may_help` is worth asking."""
        return bool(self._tops)

    def may_help(self, shape: Shape) -> bool:
        """Whether what changed before this slice may have made a victim for a shape that found none before."""
        if not self._tops:
            return False
        top = self._tops.get(max((lane.seat.band.rank() for lane in shape.lines), default=0))
        if top is None:
            return False
        if isinstance(shape, GangShape):
            return True
        return shape.cpu <= top.cpu and shape.memory <= top.memory and shape.devices <= top.devices

    def any_below(self, band: PriorityBand) -> bool:
        """Whether anything of a lower band is on a worker."""
        return self._occupants.any_below(band.rank())

    def find(self, bucket: Bucket, taken: Mapping[str, int], budget: Budget) -> tuple[Bucket, Eviction] | None:
        """An eviction for one task of the bucket, or for its gang, whose shape has found no room; None when none helps.

        Where only work is in the way that this bucket has to spare, the others that wait for the same are asked in their turn.
        `taken` tells how many tasks of a job this slice has placed. What is found counts as evicted from here on.

        Raises:
            OutOfBudget: asked again, it goes on where it was.
        """
        found = self._for(bucket, taken, budget)
        if found is not None or not self._spares(bucket):
            return (bucket, found) if found is not None else None
        waiting = [each for line in bucket.line.shape.lines.values() for _, _, each in line.buckets if each.live]
        waiting.sort(key=lambda each: (-each.line.lane.seat.band.rank(), each.line.lane.seat.key(), each.key))
        asked = {self._claim(bucket)}
        for other in waiting:
            claim = self._claim(other)
            if claim in asked:
                continue
            asked.add(claim)
            found = self._for(other, taken, budget)
            if found is not None:
                return other, found
        return None

    def _for(self, bucket: Bucket, taken: Mapping[str, int], budget: Budget) -> Eviction | None:
        job_id, shape, band = bucket.job_id, bucket.line.shape, bucket.line.lane.seat.band
        if not self.any_below(band):
            return None
        search = self._search(shape, self._claim(bucket))
        waiting = self._model.pending[job_id]
        if isinstance(search, GangVictims):
            option = search.choose(self._nodes, self._now, budget)
            if option is None:
                return None
            uids, places = option.victims, list(zip(reversed(waiting), option.workers, strict=True))
        else:
            found = search.choose(self._nodes, self._now, budget)
            if found is None:
                return None
            uids, places = found[1], [(waiting[-1 - taken.get(job_id, 0)], found[0])]
        attempts = [self._model.attempts[uid] for uid in uids]
        self._now.evict(attempts)
        return Eviction(job_id, places, band, [(a.job_id, a.task_index, a.uid) for a in attempts])

    def _claim(self, bucket: Bucket) -> Claim:
        lane = bucket.line.lane
        # Only INTERACTIVE work has its like in a lower band, demoted; above it one search serves every user.
        user = lane.user.budget.user_id if lane.requested is PriorityBand.INTERACTIVE else ""
        return Claim(lane.seat.band, lane.requested, user, self._model.jobs[bucket.job_id].parent_job_id or "")

    def _spares(self, bucket: Bucket) -> bool:
        """Whether the bucket's search passed over work that somebody else's claim might take."""
        search = self._searches.get((bucket.line.shape, self._claim(bucket)))
        return search is not None and search.spared

    def _search(self, shape: Shape, claim: Claim) -> SoloVictims | GangVictims:
        key = (shape, claim)
        search = self._searches.pop(key, None)
        changed = self._log.since(self._heard.get(key, -1))
        if search is None:
            search = GangVictims(shape.search, claim) if isinstance(shape, GangShape) else SoloVictims(shape, claim)
            changed = None
        self._searches[key] = search
        self._heard[key] = self._log.now
        if changed is None:
            search.begin(self._occupants)
        else:
            search.hear(changed)
        if len(self._searches) > SEARCHES_KEPT:
            oldest = next(iter(self._searches))
            del self._searches[oldest], self._heard[oldest]
        return search
