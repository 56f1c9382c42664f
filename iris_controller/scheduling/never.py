"""Which of the waiting work no machine could ever take: counted for the pulse of the cluster, where it is a trouble and no queue.

A request that is larger than every machine waits as silently as one whose turn has not come; only holding it against the idle fleet
and against what the scale groups could make tells them apart. Requests of one shape are judged once. Must never be asked by the
scheduler, nor on the loop: one judgement goes through all workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_controller.autoscaling.demand import demand_for, probed
from iris_controller.autoscaling.verdict import verdicts
from iris_controller.scheduling.explain import Verdict, verdict_of
from iris_controller.scheduling.funnel import Asked, count, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_controller.autoscaling.groups import GroupState
    from iris_controller.scheduling.funnel import FleetView
    from iris_controller.state.availability import Obtained
    from iris_controller.state.records import Job

MOST_SHAPES: Final = 32
"""Different requests that are judged in one go."""
_PASSING: Final = "waiting"
"""How the scheduler's reasons begin that say that there are workers large enough (`reasons`)."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job with `tasks` pending tasks, and the reason why they wait."""

    job: Job
    tasks: int
    reason: str


@dataclass(frozen=True, slots=True)
class NeverFits:
    """What of the candidates can never run here; `first` is the first of them, `unjudged` tasks were left out of the count."""

    tasks: int = 0
    jobs: int = 0
    first: Candidate | None = None
    unjudged: int = 0


class Judgements:
    """What was found of each shape. `forget` when the fleet may have changed."""

    def __init__(self) -> None:
        self._known: dict[Asked, bool] = {}

    def forget(self) -> None:
        """Judge everything anew."""
        self._known.clear()

    def of(
        self, candidates: Iterable[Candidate], view: FleetView, states: Sequence[GroupState], obtained: Obtained
    ) -> NeverFits:
        """The candidates that no worker and no scale group could take, in their order. May run beside the loop, with an `obtained` of
        its own."""
        tasks = jobs = unjudged = judged = 0
        first: Candidate | None = None
        for candidate in candidates:
            asked = Asked.of(candidate.job.spec, candidate.tasks)
            never = self._known.get(asked)
            if never is None:
                if judged == MOST_SHAPES:
                    unjudged += candidate.tasks
                    continue
                judged += 1
                work, probes = probed(demand_for(candidate.job, candidate.tasks), obtained)
                groups = verdicts(work, states, probes=probes)
                never = verdict_of(asked, count(judge(view, asked)), groups) is Verdict.NEVER_FITS
                self._known[asked] = never
            if never:
                tasks, jobs, first = tasks + candidate.tasks, jobs + 1, first or candidate
        return NeverFits(tasks, jobs, first, unjudged)


def may_never_fit(reason: str) -> bool:
    """Whether the reason of the last cycle leaves it open that the work never fits; it costs nothing to ask."""
    return bool(reason) and not reason.startswith(_PASSING)
