"""What differs in a controller that only looks at a state (`serve --dry-run`): it is handed a copy, and reaches nothing outside it.

No worker is let in, so no task is dispatched; the workers of the state count as they were, so that the scheduler shows what it would do
with them. Machines, checkpoints, the rollout record and the claim of the remote state dir are left alone by their own rooms.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from iris_controller.rpc.errors import RpcError, unavailable
from iris_core.model.states import WorkerHealth

if TYPE_CHECKING:
    from iris_controller.state.model import Model
    from iris_core.wire.gen.iris.v1 import worker_pb2


@dataclass(frozen=True, slots=True)
class Unasked:
    """What is said where only a state is looked at, and no worker and no platform is asked.

    health      why a worker counts as healthy
    placing     beside a count of the workers that fit
    machines    in the place of what an autoscaler would know
    """

    health: str
    placing: str
    machines: str


DRY_RUN: Final = Unasked(
    health="taken as healthy in a dry run",
    placing="every worker is taken as healthy in a dry run, and no machines are made",
    machines="this controller is a dry run and makes no machines",
)
CHECKPOINT: Final = Unasked(
    health="taken as healthy: how it was is not in a checkpoint",
    placing="every worker is taken as healthy, and which machines could be made is not counted: neither is in a checkpoint",
    machines="not in a checkpoint: scale groups that never grew or failed, what each may make, what waits for it, and what was done",
)


def take_workers_as_healthy(model: Model, unasked: Unasked) -> None:
    """Before anything looks at the model: its workers can be placed on although none will attach."""
    for worker in list(model.workers.values()):
        model.workers[worker.worker_id] = replace(
            worker,
            health=WorkerHealth.HEALTHY,
            health_reason=unasked.health,
            attached=True,
            placeable=True,
        )


def refuse_to_store() -> None:
    """In the place of a check whether the store of bundles may be written to."""
    raise RpcError(
        "FAILED_PRECONDITION", "a dry run stores nothing", code="dry_run", hint="submit without a work directory"
    )


def refuse_attach(requests: object, call: Any) -> AsyncIterator[worker_pb2.AttachResponse]:
    """Answers a worker that finds this controller."""
    raise unavailable("this controller is a dry run and takes no workers", code="dry_run", retry_after_ms=60_000)
