"""The machines of a controller with the local platform: what earlier ones left is taken over, and the first slices are made at once.

The autoscaler finds them as it finds any slice that it did not ask for. Must never decide how many slices there are beyond the
buffer of each group: that is the autoscaler's.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from typing import TYPE_CHECKING

from iris_controller.worker.sweep import sweep_folder
from iris_core.config.places import LOCAL
from iris_core.contracts import MachinesFailed, SliceSpec
from iris_core.model.resources import Resources
from providers.local.machines import LocalMachines

if TYPE_CHECKING:
    from pathlib import Path

    from iris_core.config.cluster import ClusterConfig
    from iris_core.config.scale_groups import ScaleGroup

log = logging.getLogger("iris.controller")


def local_machines(config: ClusterConfig, state_dir: Path, url: str) -> LocalMachines | None:
    """The machines of this computer, none of them looked at yet; None where the platform is another."""
    return LocalMachines(state_dir, url, sweep_folder) if config.platform == LOCAL else None


async def begin(machines: LocalMachines, config: ClusterConfig) -> None:
    """Takes over what earlier controllers left, and makes what is missing of each group's buffer."""
    groups = config.scale_groups

    def revived(group: str) -> int:
        return groups[group].buffer_slices if group in groups else 0

    await asyncio.to_thread(machines.adopt, revived, lambda slice_id, group: slice_spec(groups[group], slice_id))
    there = Counter(item.scale_group for item in await machines.list())
    for group in groups.values():
        for _ in range(group.buffer_slices - there[group.name]):
            try:
                await machines.create(slice_spec(group, f"{group.name}-{secrets.token_hex(4)}"))
            except MachinesFailed as error:
                log.error("the first slices of %s cannot be made: %s", group.name, error)
                break


def slice_spec(group: ScaleGroup, slice_id: str) -> SliceSpec:
    """A slice of a group, as the group is now."""
    options = group.template.get(LOCAL)
    return SliceSpec(
        slice_id=slice_id,
        scale_group=group.name,
        num_vms=group.num_vms,
        resources=group.resources(Resources()),
        attributes=group.worker_attributes(),
        labels=group.labels,
        zone=group.zone,
        preemptible=group.preemptible,
        cache_dir=group.cache_dir,
        options=options if isinstance(options, dict) else {},
    )
