"""The machines of a controller with the local platform: what earlier ones left is taken over, and the first slices are made at once.

The autoscaler finds them as it finds any slice that it did not ask for. Must never decide how many slices there are beyond the
buffer of each group: that is the autoscaler's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from iris_controller.autoscaling.specs import new_slice_id, slice_spec
from iris_controller.worker.sweep import sweep_folder
from iris_core.config.places import LOCAL
from iris_core.contracts import MachinesFailed
from providers.local.machines import LocalMachines

if TYPE_CHECKING:
    from pathlib import Path

    from iris_core.config.cluster import ClusterConfig
    from iris_core.contracts import SliceSpec

log = logging.getLogger("iris.controller")


def local_machines(config: ClusterConfig, state_dir: Path, url: str) -> LocalMachines | None:
    """The machines of this computer, none of them looked at yet; None where the platform is another."""
    return LocalMachines(state_dir, url, sweep_folder) if config.platform == LOCAL else None


async def begin(machines: LocalMachines, config: ClusterConfig) -> None:
    """Takes over what earlier controllers left, and makes what is missing of each group's buffer."""
    groups = config.scale_groups

    def revived(group: str) -> int:
        return groups[group].buffer_slices if group in groups else 0

    def spec_of(slice_id: str, group: str) -> SliceSpec:
        return slice_spec(groups[group], slice_id, config.platform, config.label_prefix)

    await asyncio.to_thread(machines.adopt, revived, spec_of)
    there = Counter(item.scale_group for item in await machines.list())
    for group in groups.values():
        for _ in range(group.buffer_slices - there[group.name]):
            try:
                await machines.create(spec_of(new_slice_id(group.name), group.name))
            except MachinesFailed as error:
                log.error("the first slices of %s cannot be made: %s", group.name, error)
                break
