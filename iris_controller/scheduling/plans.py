"""One slice of a plan, as the planner hands it to whoever applies it. Plain values; must never know how they were found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from iris_core.model.bands import PriorityBand

Place = tuple[int, str]
"""Task index and worker id."""


class Assignment(NamedTuple):
    """One task for one worker. `band` is the effective one, with which `kernel.assign` stamps the task."""

    job_id: str
    task_index: int
    worker_id: str
    band: PriorityBand


class GangPlacement(NamedTuple):
    """All pending tasks of a gang for workers that share `value`, for `kernel.assign_gang`."""

    job_id: str
    places: list[Place]
    band: PriorityBand
    value: str | int | float


class Eviction(NamedTuple):
    """One task, or a gang, in the place of work of lower bands, for `kernel.displace`.

    `victims` are (job id, task index, attempt uid); none where it only waits for what is ending already.
    """

    job_id: str
    places: list[Place]
    band: PriorityBand
    victims: list[tuple[str, int, str]]


@dataclass(slots=True)
class Plan:
    """One slice. `assignments` are for `kernel.assign` in that order: bands by importance, inside each the users in turn. `gangs`
    and `evictions` were planned among them and fit beside them, in any order.

    `reasons` are the lines that changed, for `Model.reasons` where the job still has pending tasks. One that is not there when the
    next slice is planned is said again. `done` says that nothing more fits now.
    """

    assignments: list[Assignment] = field(default_factory=list)
    gangs: list[GangPlacement] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    done: bool = True
    size: int = 0
    """Tasks placed in all."""
    resting: bool = False
    """Whether jobs or workers have had their share of this cycle: ask again in the next."""

    def first(self) -> tuple[str, int] | None:
        """One of the tasks that it places; None when there is none."""
        if self.assignments:
            return self.assignments[0][:2]
        if self.gangs:
            return self.gangs[0].job_id, self.gangs[0].places[0][0]
        return (self.evictions[0].job_id, self.evictions[0].places[0][0]) if self.evictions else None
