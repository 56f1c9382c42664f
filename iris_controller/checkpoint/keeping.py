"""Checkpoints and the claim of one controller process, put together: what `serve` starts, asks and ends.

The remote state dir is claimed where the cluster file names one; the local one that stands in for it is held by its lock. A dry run
claims nothing and writes nothing.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from iris_controller.checkpoint.claims import OwnClaims
from iris_controller.checkpoint.layout import KEEP_MS, LOCAL_KEEP_MS
from iris_controller.checkpoint.owner import Owner
from iris_controller.checkpoint.service import Checkpoints, Fence

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_controller.boot import Opened
    from iris_controller.loop import ControllerLoop
    from iris_controller.options import ServeOptions
    from iris_controller.rpc.dispatch import Router
    from iris_controller.rpc.once import Once
    from iris_controller.store.database import StateDir
    from iris_core.contracts import ObjectStore
    from iris_core.wire.gen.iris.v1 import watch_rows_pb2

HOURLY_S: Final = 3600.0


class Keeping:
    """See the module."""

    def __init__(
        self,
        options: ServeOptions,
        state: StateDir,
        opened: Opened,
        loop: ControllerLoop,
        once: Once,
        remote: ObjectStore,
        stop_acting: Callable[[], Awaitable[None]],
        stop: Callable[[], None],
        boot_id: str,
    ) -> None:
        owner: Owner | None = None
        self._fence: Fence | None = None
        if options.config.remote_state_dir and not options.dry_run:
            owner = Owner(
                remote, str(state.path), os.getpid(), lambda: time.time_ns() // 1_000_000, OwnClaims(state.path)
            )
            self._fence = Fence(owner, loop, opened.writer, stop_acting)
        self._checkpoints = Checkpoints(
            loop,
            state,
            remote.url,
            once,
            interval_s=options.checkpoint_interval_s or options.config.checkpoint_interval_s or HOURLY_S,
            last_ms=opened.last_checkpoint_ms,
            cluster=options.config.name,
            keep_ms=KEEP_MS if options.config.remote_state_dir else LOCAL_KEEP_MS,
            owner=owner,
            claim=self._fence.claimed if self._fence is not None else None,
            dry_run=options.dry_run,
            stop=None if options.embedded else stop,
            boot_id=boot_id,
        )

    def register(self, router: Router) -> None:
        self._checkpoints.register(router)

    async def run(self) -> None:
        """For ever."""
        if self._fence is not None:
            self._fence.start()
        await self._checkpoints.run()

    def problems(self) -> list[str]:
        """What `/readyz` says."""
        found = [self._checkpoints.problem()]
        if self._fence is not None:
            found.insert(0, self._fence.problem())
        return [problem for problem in found if problem]

    def condition(self) -> watch_rows_pb2.CheckpointCondition:
        """How the checkpoints stand."""
        return self._checkpoints.condition()

    def let_go(self) -> None:
        """Ends the thread that watches the claim."""
        if self._fence is not None:
            self._fence.close()

    async def close(self) -> None:
        self.let_go()
        await self._checkpoints.close()
