"""Which worker processes a controller with the local platform starts on its own machine, as words of their command lines.

Must never start one: that is `providers.local`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.model.resources import Resources
from providers.local.workers import WorkerPlan

if TYPE_CHECKING:
    from iris_core.config.cluster import ClusterConfig


def worker_plans(config: ClusterConfig) -> list[WorkerPlan]:
    """One plan for each local worker that the cluster file asks for."""
    plans: list[WorkerPlan] = []
    for worker in config.local_workers():
        group = worker.group
        words = ["--slice-id", worker.slice_id, "--scale-group", group.name]
        offered = group.resources(Resources())
        if group.cpu_millicores is not None:
            words += ["--cpu", f"{offered.cpu_millicores}m"]
        if group.memory_bytes is not None:
            words += ["--memory", str(offered.memory_bytes)]
        if group.disk_bytes is not None:
            words += ["--disk", str(offered.disk_bytes)]
        device = group.device
        if device is not None and device.kind == "gpu":
            words += ["--gpu", f"{device.variant}x{device.count}" if device.variant else str(device.count)]
        elif device is not None:
            words += ["--tpu", device.variant]
        for key, value in group.attributes.items():
            words += ["--attribute", f"{key}={value}"]
        plans.append(WorkerPlan(worker.worker_id, tuple(words)))
    return plans
