"""Which unfinished attempts occupy a worker: active ones by the band that their task was stamped with, and those that are ending.

Preemption asks for work of lower bands only, so a fleet full of one band answers "nothing to evict" without a look at any of it
(control-plane §2.7). Kept by the model as attempts come and end; must never count an attempt that the controller has ended as
one that could be evicted, since that would free nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_core.model.bands import PriorityBand


class Occupants:
    """See the module. Ranks are those of `PriorityBand.rank`."""

    def __init__(self) -> None:
        self._workers: dict[int, dict[str, dict[str, None]]] = {}
        """By rank and worker, the uids of active attempts, oldest first."""
        self._ranks: dict[str, int] = {}
        self.ending: dict[str, dict[str, None]] = {}
        """By worker, the uids of attempts that the controller has ended and the worker has not confirmed."""

    def end(self, uid: str, worker_id: str) -> None:
        """The controller has ended the attempt; its room is held until `drop`."""
        self.drop(uid, worker_id)
        self.ending.setdefault(worker_id, {})[uid] = None

    def put(self, uid: str, worker_id: str, band: PriorityBand) -> None:
        """The attempt is active on the worker. Saying so again is without effect."""
        if uid not in self._ranks:
            rank = self._ranks[uid] = band.rank()
            self._workers.setdefault(rank, {}).setdefault(worker_id, {})[uid] = None

    def drop(self, uid: str, worker_id: str) -> None:
        """The attempt holds nothing any more; one that is not known is fine."""
        ending = self.ending.get(worker_id)
        if ending is not None and uid in ending:
            del ending[uid]
            if not ending:
                del self.ending[worker_id]
        rank = self._ranks.pop(uid, None)
        if rank is None:
            return
        workers = self._workers[rank]
        del workers[worker_id][uid]
        if not workers[worker_id]:
            del workers[worker_id]
            if not workers:
                del self._workers[rank]

    def any_below(self, rank: int) -> bool:
        """Whether any attempt of a lower rank is active."""
        return any(held < rank for held in self._workers)

    def workers_below(self, rank: int) -> Iterator[str]:
        """Workers with an active attempt of a lower rank, lowest rank first; a worker comes once per rank."""
        for held in sorted(self._workers):
            if held < rank:
                yield from self._workers[held]

    def below(self, worker_id: str, rank: int) -> Iterator[tuple[int, str]]:
        """Rank and uid of the active attempts of lower ranks on a worker, lowest rank first, then oldest first."""
        for held in sorted(self._workers):
            if held < rank:
                for uid in self._workers[held].get(worker_id, ()):
                    yield held, uid
