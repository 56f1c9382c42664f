"""Why there are no lines yet: the likely cause, read off the account that the log pipeline gives of itself. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.pipeline_pb2 import GetPipelineHealthResponse


def likely_cause(found: GetPipelineHealthResponse) -> str:
    """Why something that runs has no line, "" = this account does not tell: nothing is known of a worker that it is on."""
    if found.problems:
        return "; ".join(found.problems)
    waiting = [worker.shipper.lag_ms for worker in found.workers if worker.shipper.lag_ms]
    if waiting:
        return f"its lines are on the way, for {max(waiting) / 1000:.1f} s"
    if not found.workers:
        return ""
    return "nothing printed yet; its workers have delivered all that there was"
