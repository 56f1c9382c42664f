"""The machines of a controller with the local platform: what earlier ones left is taken over, and the first slices are made at once.

The autoscaler finds them as it finds any slice that it did not ask for. Must never decide how many slices there are beyond the
buffer of each group: that is the autoscaler's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from iris_controller.autoscaling.specs import is_manual, new_slice_id, slice_spec
from iris_controller.worker.sweep import sweep_folder
from iris_core.config.places import LOCAL
from iris_core.contracts import MachinesFailed
from providers.local.machines import LocalMachines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from iris_core.config.cluster import ClusterConfig
    from iris_core.contracts import SliceInfo, SliceSpec

log = logging.getLogger("iris.controller")


def local_machines(config: ClusterConfig, state_dir: Path, url: str) -> LocalMachines | None:
    """The machines of this computer, none of them looked at yet; None where the platform is another."""
    return LocalMachines(state_dir, url, sweep_folder) if config.platform == LOCAL else None


async def begin(machines: LocalMachines, config: ClusterConfig) -> None:
    """Takes over what earlier controllers left, and makes what is missing of each group's buffer."""
    await asyncio.to_thread(machines.adopt, lambda living, ended: _again(config, living, ended))
    there = _count(config, await machines.list())
    for group in config.scale_groups.values():
        for _ in range(group.buffer_slices - there[group.name]):
            spec = slice_spec(group, new_slice_id(group.name), config.platform, config.label_prefix)
            try:
                await machines.create(spec)
            except MachinesFailed as error:
                log.error("the first slices of %s cannot be made: %s", group.name, error)
                break


def _count(config: ClusterConfig, infos: Iterable[SliceInfo]) -> Counter[str]:
    """The autoscaler's own slices of each group."""
    return Counter(info.scale_group for info in infos if not is_manual(info.labels, config.label_prefix))


def _again(config: ClusterConfig, living: Sequence[SliceInfo], ended: Sequence[SliceInfo]) -> Iterator[SliceSpec]:
    """Of slices that ended with the computer, an operator's come back, and of the others as many as the buffer asks for."""
    there = _count(config, living)
    for info in ended:
        group = config.scale_groups.get(info.scale_group)
        manual = is_manual(info.labels, config.label_prefix)
        if group is None or not (manual or there[group.name] < group.buffer_slices):
            continue
        if not manual:
            there[group.name] += 1
        yield slice_spec(group, info.slice_id, config.platform, config.label_prefix, manual=manual)
