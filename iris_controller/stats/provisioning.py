"""How requests for slices ended, as rows of `iris.provisioning`: ready, stockout, error or preempted (cli-auth-logs §3.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from iris_controller.autoscaling.actions import Outcome
    from iris_core.config.scale_groups import ScaleGroup

MAX_MESSAGE: Final = 1_000


def row(outcome: Outcome, group: ScaleGroup | None, now_ms: int) -> dict[str, Any]:
    """The row of one outcome; `group` None = the scale group is no longer configured."""
    device = group.device if group is not None else None
    return {
        "ts": now_ms,
        "resource_type": device.kind if device is not None else "cpu",
        "scale_group": outcome.group,
        "zone": (group.zone or None) if group is not None else None,
        "accelerator_variant": (device.variant or None) if device is not None else None,
        "outcome": outcome.outcome,
        "error_message": outcome.message[:MAX_MESSAGE] or None,
        "worker_count": outcome.workers,
        "provision_latency_ms": outcome.latency_ms,
    }
