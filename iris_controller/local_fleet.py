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
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from iris_controller.guarded import Guard
    from iris_controller.options import ServeOptions
    from iris_core.config.cluster import ClusterConfig
    from iris_core.contracts import SliceInfo, SliceSpec

log = logging.getLogger("iris.controller")


EMBEDDED_GRACE_S = 20.0
"""So long the tasks of a cluster that ends with its controller may go on."""


class LocalFleet:
    """The machines of one controller, none before `begin` and where the platform is another.

    They outlive the controller unless it ends them, with `end`, or with `kill` where it could not start.
    """

    def __init__(self, options: ServeOptions, guard: Guard) -> None:
        self._config = options.config
        self._guard = guard
        self._machines: LocalMachines | None = None

    async def begin(self, state_dir: Path, url: str) -> LocalMachines | None:
        """The machines of this computer, watched from now on, whose workers dial `url`; None where the platform is another."""
        if self._config.platform != LOCAL:
            return None
        self._machines = machines = LocalMachines(state_dir, url, sweep_folder)
        await _begin(machines, self._config)
        self._guard.spawn("local machines", machines.run())
        return machines

    async def end(self, running: int, is_hurried: Callable[[], bool]) -> None:
        """Ends the machines once their `running` tasks have ended, or the grace is over, or nobody wants to wait any more."""
        machines = self._machines
        if machines is None:
            return
        if running:
            log.info("waiting up to %.0f s for %d tasks to end", EMBEDDED_GRACE_S, running)
        await self._guard.end("local machines")
        ending = asyncio.create_task(asyncio.to_thread(machines.stop, EMBEDDED_GRACE_S, is_hurried))
        _say_killed(await ending)

    def kill(self) -> None:
        """Ends the machines at once."""
        if self._machines is not None:
            _say_killed(self._machines.stop(0.0))


def _say_killed(workers: Sequence[str]) -> None:
    if workers:
        log.warning("killed %s; what its tasks had not written is lost", ", ".join(workers))


async def _begin(machines: LocalMachines, config: ClusterConfig) -> None:
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
