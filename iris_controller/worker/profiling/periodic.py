"""The periodic loop: where a hung job stood, and what a slow one did, is known afterwards because somebody looked every ten minutes.

Of each target its threads and then its CPU, one target after the other, so that a host never runs two profilers of this loop at
once. Rounds begin at times of their own on every host: a fleet that looked at itself in step would slow down in step. Must never
disturb whoever asks for a profile: `Profiler` ends this loop's for them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

from iris_controller.quiet import QuietLog
from iris_controller.worker.profiling import options
from iris_controller.worker.profiling.failures import CannotProfile
from iris_controller.worker.profiling.taking import PERIODIC
from iris_core.wire.gen.iris.v1 import profiles_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_controller.worker.profiling.taking import Profiler, Taken, Target

_log = logging.getLogger("iris.profiles")

INTERVAL_S: Final = 600.0
MOST_BYTES: Final = 4 * 2**20
"""Of one capture, packed; a larger one is dropped."""
_LOOK_S: Final = 5.0
_ROUND: Final = (
    profiles_pb2.ProfileOptions(type=options.THREADS),
    # Frames of compiled code cost seconds of CPU in a large program: too much for what nobody asked for.
    profiles_pb2.ProfileOptions(type=options.CPU, native=False),
)


class Periodic:
    """See the module. `interval_s` may change at any time; 0 = none. `targets` gives what runs, `keep` takes each profile."""

    def __init__(
        self,
        profiler: Profiler,
        targets: Callable[[], Sequence[Target]],
        keep: Callable[[Taken], None],
        *,
        interval_s: float = 0.0,
        chance: random.Random | None = None,
    ) -> None:
        self.interval_s = interval_s
        self._profiler = profiler
        self._targets = targets
        self._keep = keep
        self._chance = chance or random.Random()
        self._quiet = QuietLog(_log)
        self._rounds = 0

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        waited_from = loop.time()
        share = self._share()
        while True:
            due = waited_from + self.interval_s * share
            if not self.interval_s or loop.time() < due:
                left = due - loop.time() if self.interval_s else _LOOK_S
                await asyncio.sleep(min(max(left, 0.01), _LOOK_S))
                continue
            await self.round()
            waited_from, share = loop.time(), self._share()

    def _share(self) -> float:
        """Of the interval until the next round; the first comes sooner or later on each host."""
        self._rounds += 1
        return self._chance.uniform(0.5, 1.0) if self._rounds == 1 else self._chance.uniform(0.9, 1.1)

    async def round(self) -> None:
        """One look at every target."""
        for target in self._targets():
            for wanted in _ROUND:
                await self._one(target, wanted)

    async def _one(self, target: Target, wanted: profiles_pb2.ProfileOptions) -> None:
        # A task of its own, because whoever asks for a profile of the same target ends it.
        task = asyncio.create_task(
            self._profiler.take(target, wanted, PERIODIC, periodic=True), name="periodic profile"
        )
        try:
            taken = await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and not _asked_to_end():
                return
            task.cancel()
            raise
        except CannotProfile as error:
            _log.debug("no periodic profile of %s: %s", target.name, error.message)
            if error.code in {"no_profiler", "no_permission"}:
                self._quiet.warning("no periodic profiles: %s; %s", error.message, error.hint)
            return
        if len(taken.data) > MOST_BYTES:
            self._quiet.warning(
                "a periodic profile of %s has %d bytes, at most %d are kept", target.name, len(taken.data), MOST_BYTES
            )
        else:
            self._keep(taken)


def _asked_to_end() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
