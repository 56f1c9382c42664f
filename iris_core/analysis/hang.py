"""Which ranks of a job stand where, put so that the one that waits elsewhere comes first.

In a hung job almost all ranks wait in the same place for one that is not there. Ranks are therefore put together by where their main
threads are, and the smallest group is shown first. Ranks of which nothing is known come last, and say why. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_core.analysis.dumps import Process

_SHOWN: Final = 20
"""Single ranks or spans that are named; more are counted."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One task. `processes` is empty when there is no dump of it.

    stored_ms   when a stored dump was taken that stands in for a fresh one; 0 = it is fresh
    problem     why there is no fresh one, "" if there is
    """

    index: int
    task_id: str
    processes: tuple[Process, ...] = ()
    stored_ms: int = 0
    problem: str = ""
    profile_id: str = ""


Place = tuple[tuple[tuple[str, ...], ...], ...]
"""Of each process, the places of its threads."""


@dataclass(slots=True)
class Group:
    """Ranks that stand at one place."""

    place: Place
    ranks: list[Rank] = field(default_factory=list)

    @property
    def example(self) -> Rank:
        """The rank whose dump is shown for all: a fresh one where there is one."""
        return min(self.ranks, key=lambda rank: (rank.stored_ms != 0, rank.index))

    @property
    def varied(self) -> bool:
        """Whether its ranks differ in threads that were not compared."""
        return len({place_of(rank, all_threads=True) for rank in self.ranks}) > 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """All groups, the smallest first, and the ranks nothing is known of."""

    groups: tuple[Group, ...]
    unknown: tuple[Rank, ...]


def place_of(rank: Rank, *, all_threads: bool) -> Place:
    """Where a rank stands; processes and threads in an order of their own, because ids differ between ranks."""
    found = []
    for process in rank.processes:
        if all_threads:
            found.append(tuple(sorted(thread.place for thread in process.threads)))
        elif process.main is not None:
            found.append((process.main.place,))
    return tuple(sorted(found))


def judge(ranks: Iterable[Rank], *, all_threads: bool = False) -> Verdict:
    """Groups the ranks; those with equal numbers of ranks stand in the order of their first rank."""
    groups: dict[Place, Group] = {}
    unknown = []
    for rank in sorted(ranks, key=lambda one: one.index):
        if not rank.processes:
            unknown.append(rank)
            continue
        place = place_of(rank, all_threads=all_threads)
        groups.setdefault(place, Group(place)).ranks.append(rank)
    ordered = sorted(groups.values(), key=lambda group: (len(group.ranks), group.ranks[0].index))
    return Verdict(tuple(ordered), tuple(unknown))


def spans(numbers: Sequence[int]) -> str:
    """`0-2,4,7-9`: the numbers in few words; what is too much is counted."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in found]
    if len(words) > _SHOWN:
        left = sum(last - first + 1 for first, last in found[_SHOWN:])
        return f"{','.join(words[:_SHOWN])} and {left} more"
    return ",".join(words)
