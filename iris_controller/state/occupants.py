"""Which unfinished attempts occupy a worker: active ones by the band that their task was stamped with, and those that are ending.

Preemption asks for work of lower bands only, so a fleet full of one band answers "nothing to evict" without a look at any of it
(control-plane §2.7). Kept by the model as attempts come and end; must never count an attempt that the controller has ended as
one that could be evicted, since that would free nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from iris_core.model.bands import PriorityBand


class Occupants:
    """See the module. Ranks are those of `PriorityBand.rank`."""

    def __init__(self) -> None:
        self._workers: dict[int, dict[str, dict[str, None]]] = {}
        """By rank and worker, the uids of active attempts, oldest first."""
        self._values: dict[int, dict[int, dict[str, str]]] = {}
        """By rank and value, the worker of each of them."""
        self._known: dict[str, tuple[int, int]] = {}
        """Rank and value of an active attempt."""
        self.ending: dict[str, dict[str, None]] = {}
        """By worker, the uids of attempts that the controller has ended and the worker has not confirmed."""

    def end(self, uid: str, worker_id: str) -> None:
        """The controller has ended the attempt; its room is held until `drop`."""
        self.drop(uid, worker_id)
        self.ending.setdefault(worker_id, {})[uid] = None

    def put(self, uid: str, worker_id: str, band: PriorityBand, value: int) -> None:
        """The attempt is active on the worker, and costs `value` (`task_value`). Saying so again is without effect."""
        if uid not in self._known:
            rank = band.rank()
            self._known[uid] = rank, value
            self._workers.setdefault(rank, {}).setdefault(worker_id, {})[uid] = None
            self._values.setdefault(rank, {}).setdefault(value, {})[uid] = worker_id

    def put_all(self, placed: Iterable[tuple[str, str, PriorityBand, int]]) -> None:
        """`put` for each (uid, worker id, band, value), none of them known: most of a slice's are of few bands and values."""
        ranks: dict[PriorityBand, tuple[int, dict[str, dict[str, None]]]] = {}
        kinds: dict[tuple[int, int], tuple[tuple[int, int], dict[str, str]]] = {}
        known = self._known
        for uid, worker_id, band, value in placed:
            ranked = ranks.get(band)
            if ranked is None:
                rank = band.rank()
                ranked = ranks[band] = rank, self._workers.setdefault(rank, {})
            rank, workers = ranked
            kind = kinds.get((rank, value))
            if kind is None:
                kind = kinds[(rank, value)] = (rank, value), self._values.setdefault(rank, {}).setdefault(value, {})
            known[uid], kind[1][uid] = kind[0], worker_id
            here = workers.get(worker_id)
            if here is None:
                workers[worker_id] = {uid: None}
            else:
                here[uid] = None

    def drop(self, uid: str, worker_id: str) -> None:
        """The attempt holds nothing any more; one that is not known is fine."""
        ending = self.ending.get(worker_id)
        if ending is not None and uid in ending:
            del ending[uid]
            if not ending:
                del self.ending[worker_id]
        known = self._known.pop(uid, None)
        if known is None:
            return
        rank, value = known
        values = self._values[rank]
        del values[value][uid]
        if not values[value]:
            del values[value]
        workers = self._workers[rank]
        del workers[worker_id][uid]
        if not workers[worker_id]:
            del workers[worker_id]
            if not workers:
                del self._workers[rank]

    def any_below(self, rank: int) -> bool:
        """Whether any attempt of a lower rank is active."""
        return any(held < rank for held in self._workers)

    def by_cost(self, rank: int) -> Iterator[tuple[int, int, dict[str, None]]]:
        """Of the lower ranks, lowest first: each value, least first, and the workers with an active attempt of it."""
        for held in sorted(self._values):
            if held < rank:
                values = self._values[held]
                for value in sorted(values):
                    yield held, value, dict.fromkeys(values[value].values())

    def below(self, worker_id: str, rank: int) -> Iterator[tuple[int, str]]:
        """Rank and uid of the active attempts of lower ranks on a worker, lowest rank first, then oldest first."""
        for held in sorted(self._workers):
            if held < rank:
                for uid in self._workers[held].get(worker_id, ()):
                    yield held, uid
