"""What one committed batch touched, for all who follow the state: the watch hub, worker sessions, timers, the planner.

Filled by `Model.apply` and by nothing else. Must never hold what did not change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_controller.state.endpoints import Endpoint
    from iris_controller.state.records import Attempt, Task


@dataclass(slots=True)
class Changes:
    """What one committed batch touched; the watch hub and the worker sessions go by it."""

    jobs: set[str] = field(default_factory=set)
    removed_jobs: set[str] = field(default_factory=set)
    """No longer in the model: forgotten, or deleted."""
    deleted_jobs: set[str] = field(default_factory=set)
    """Gone for good with all their tasks; the name may be another job's already."""
    finished: dict[str, int] = field(default_factory=dict)
    """Jobs whose tasks are in memory no longer, with how many they were."""
    tasks: dict[tuple[str, int], Task] = field(default_factory=dict)
    """By (job id, task index); the whole of a new job's tasks is in `new_jobs` instead."""
    attempts: dict[str, Attempt] = field(default_factory=dict)
    new_jobs: set[str] = field(default_factory=set)
    workers: set[str] = field(default_factory=set)
    """Workers whose row or usage changed."""
    dispatch: set[str] = field(default_factory=set)
    """Workers whose desired set changed."""
    endpoints: dict[str, Endpoint | None] = field(default_factory=dict)
    """By id; None = gone."""
    slices: set[str] = field(default_factory=set)
    scaling_groups: set[str] = field(default_factory=set)
    budgets: set[str] = field(default_factory=set)
    """Users whose budget was set."""
    coming: set[str] = field(default_factory=set)
    """Jobs of which `Model.coming` says something else; nothing but what is shown depends on it."""

    def __bool__(self) -> bool:
        return bool(
            self.jobs
            or self.removed_jobs
            or self.tasks
            or self.new_jobs
            or self.workers
            or self.dispatch
            or self.budgets
            or self.slices
            or self.scaling_groups
            or self.endpoints
        )
