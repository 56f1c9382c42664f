"""The kinds of rows that can be watched: one line each, with the calls that tell the same.

Who may not make those calls may not watch. A new kind gets its line here, its field in `iris_core.live.watch_keys` and, unless it
follows batches, its look in `looks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.live.watch_filters import ROW_FILTERS
from iris_core.live.watch_keys import KIND_FIELDS, ROW_IDS
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from iris_core.live.watch_filters import RowFilter

FOLLOWED: Final = frozenset({pb.WATCH_KIND_JOBS, pb.WATCH_KIND_TASKS, pb.WATCH_KIND_WORKERS})
"""Kinds whose rows follow committed batches."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. `plural` is how it is named to people, `methods` are the unary calls that tell the same."""

    number: int
    plural: str
    methods: tuple[str, ...]

    @property
    def field(self) -> str:
        """Of `WatchRows`."""
        return KIND_FIELDS[self.number]

    @property
    def filter(self) -> RowFilter:
        return ROW_FILTERS[self.field]

    @property
    def row_id(self) -> Callable[[Any], str]:
        return ROW_IDS[self.field]


KINDS: Final[dict[int, Kind]] = {
    kind.number: kind
    for kind in (
        Kind(pb.WATCH_KIND_JOBS, "jobs", ("ListJobs",)),
        Kind(pb.WATCH_KIND_TASKS, "tasks", ("ListTasks",)),
        Kind(pb.WATCH_KIND_WORKERS, "workers", ("ListWorkers",)),
        Kind(pb.WATCH_KIND_ATTEMPTS, "attempts", ("GetTaskStatus",)),
        Kind(pb.WATCH_KIND_PENDING_BUCKETS, "pending buckets", ("GetSchedulerState",)),
        Kind(pb.WATCH_KIND_RUNNING_BUCKETS, "running buckets", ("GetSchedulerState",)),
        Kind(pb.WATCH_KIND_SCALE_GROUPS, "scale groups", ("GetAutoscalerStatus",)),
        Kind(pb.WATCH_KIND_SLICES, "slices", ("GetAutoscalerStatus",)),
        Kind(pb.WATCH_KIND_AUTOSCALER_ACTIONS, "autoscaler actions", ("GetAutoscalerStatus",)),
        Kind(pb.WATCH_KIND_USERS, "users", ("ListUsers", "ListUserBudgets")),
        Kind(pb.WATCH_KIND_ENDPOINTS, "endpoints", ("ListEndpoints",)),
        Kind(pb.WATCH_KIND_BACKENDS, "backends", ("ListBackends", "GetProviderStatus")),
        Kind(pb.WATCH_KIND_CONTROLLER, "the controller", ("GetProcessStatus", "GetPipelineHealth")),
        Kind(pb.WATCH_KIND_FLEET, "the fleet", ("GetClusterStatus", "ListBackends")),
    )
}
