"""What a plan comes to: its targets, what it would not touch, and its effects counted over all its requests at once.

Counts come from the model's own (a job knows its tasks by state), so a plan costs what the jobs and attempts that it names cost, never
what is in them. A job that several requests end is counted once. Must never change anything.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from iris_controller.state.generations import Frozen
from iris_core.model.states import ACTIVE, JOB_TERMINAL, TaskState
from iris_core.wire.gen.iris.v1 import plan_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message

    from iris_controller.state.model import Model

MOST_TARGETS: Final = 10_000
MOST_JOBS: Final = 10_000
"""Jobs that are counted; where there are more, the counts are lower bounds and say so."""
MOST_SKIPPED: Final = 1_000
SLICE: Final = 500
"""So many targets or requests are looked at before others have their turn on the loop."""


@dataclass(slots=True)
class Reckoning:
    """Filled by one planner for each request of a plan."""

    tier: int
    parts: list[tuple[Message, list[Frozen]]] = field(default_factory=list)
    """What is to be sent, each with what it is about."""
    skipped: list[tuple[str, str]] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """Jobs that a request names."""
    jobs: dict[str, None] = field(default_factory=dict)
    """Jobs that end."""
    running: int = 0
    waiting: int = 0
    workers: int = 0
    capped: bool = False
    effects: dict[str, None] = field(default_factory=dict)
    lasting: dict[str, None] = field(default_factory=dict)
    hints: dict[str, None] = field(default_factory=dict)

    @property
    def targets(self) -> list[Frozen]:
        """All of them, each once."""
        return list(dict.fromkeys(target for _, part in self.parts for target in part))

    @property
    def children(self) -> int:
        """Jobs that end without being named."""
        return len(self.jobs.keys() - self.named)

    def skip(self, name: str, why: str) -> None:
        """The change would not touch it."""
        self.skipped.append((name, why))

    def end_jobs(self, model: Model, names: Iterator[str]) -> int:
        """Counts jobs that have not ended, with their tasks; returns how many."""
        found = 0
        for name in islice(names, MOST_JOBS):
            job = model.jobs.get(name)
            if job is None or job.state in JOB_TERMINAL:
                continue
            found += 1
            if name in self.jobs:
                continue
            if len(self.jobs) >= MOST_JOBS:
                break
            self.jobs[name] = None
            self.running += sum(job.counts[state] for state in ACTIVE)
            self.waiting += job.counts[TaskState.PENDING]
        if next(names, None) is not None:
            self.capped = True
        return found

    async def response(self, method: str) -> plan_pb2.PlanResponse:
        """The answer but for token, cluster and revision; made in slices."""
        answer = plan_pb2.PlanResponse(
            method=method,
            tier=self.tier,
            effects=self.effects,
            lasting=self.lasting,
            hints=self.hints,
            counts=plan_pb2.PlanCounts(
                jobs=len(self.jobs),
                child_jobs=self.children,
                running_tasks=self.running,
                waiting_tasks=self.waiting,
                workers=self.workers,
                capped=self.capped,
            ),
            skipped=[plan_pb2.PlanSkip(id=name, why=why) for name, why in self.skipped[:MOST_SKIPPED]],
            requests=[request.SerializeToString() for request, _ in self.parts],
        )
        targets = self.targets
        for start in range(0, len(targets), SLICE):
            for t in targets[start : start + SLICE]:
                answer.targets.add(kind=t.kind, id=t.id, generation=t.generation, note=t.note)
            await asyncio.sleep(0)
        if len(self.skipped) > MOST_SKIPPED:
            answer.hints.append(f"{len(self.skipped) - MOST_SKIPPED:,} more are left out")
        return answer

    def totals(self) -> dict[str, int]:
        """For the audit lines of the calls that carry it out: what is not zero."""
        found = {
            "plan_targets": len(self.targets),
            "plan_jobs": len(self.jobs),
            "plan_running_tasks": self.running,
            "plan_waiting_tasks": self.waiting,
            "plan_workers": self.workers,
        }
        return {name: number for name, number in found.items() if number}


def below(model: Model, job_id: str) -> Iterator[str]:
    """The job and its descendants, in no particular order."""
    stack = [job_id]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(model.children.get(current, ()))
