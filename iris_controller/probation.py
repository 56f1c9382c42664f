"""The time in which a new release is not known to be good: it reads, answers and takes workers in, and changes nothing.

While the rollout record says that the release that runs is pending, mutations are refused, observations wait unacknowledged, and
no worker is told what to run: the database stays as the migrations left it, so that going back to the last checkpoint of the release
before loses nothing. The record ends it, and both sides move it by compare-and-set alone: the driver of the deployment, or, when that
is gone, this controller, a while after it became healthy. Whoever loses obeys what stands. Must never act on what it could not read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from iris_controller.checkpoint.choose import require_known
from iris_controller.rpc.errors import unavailable
from iris_core.contracts import GenerationMismatch, IrisError
from iris_core.procedures import record as rollout
from iris_core.procedures.record import Phase

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from iris_core.contracts import ObjectStore
    from iris_core.live.clock import Clock

log = logging.getLogger("iris.probation")

COMMIT_S: Final = 120.0
"""After so long healthy, a release whose driver is gone commits itself."""
LOOK_S: Final = 1.0
RETRY_MS: Final = 2_000


def on_probation(remote: ObjectStore, release: str, state_dir: Path) -> bool:
    """Whether this release has to start on probation. `release` "" = it is none that was deployed.

    Raises NoState: the record cannot be read, and another release served this state last.
    """
    if not release:
        return False
    try:
        record = rollout.read(remote).record
    except IrisError as error:
        require_known(error, release, state_dir)
        return False
    if record is None:
        return False
    ours = record.image == release
    return (record.phase is Phase.PENDING and ours) or (record.phase is Phase.ROLLBACK_REQUESTED and not ours)


class Probation:
    """One controller's, from its start on. `attached` counts its workers."""

    def __init__(
        self, remote: ObjectStore, release: str, clock: Clock, attached: Callable[[], int] = lambda: 0
    ) -> None:
        self._remote = remote
        self._release = release
        self._clock = clock
        self._attached = attached
        self._since: float | None = None
        self._problem = ""
        self.over = False

    @property
    def why(self) -> str:
        """Why nothing is changed, one line."""
        return self._problem or f"release {self._release[:12]} is on probation until its deployment is committed"

    def problem(self) -> str:
        """What `/readyz` says, "" when it is over."""
        return "" if self.over else f"{self.why}; it changes nothing; workers attached: {self._attached()}"

    def refuse(self) -> None:
        """Raises UNAVAILABLE while it lasts."""
        if not self.over:
            raise unavailable(
                f"the controller changes nothing now: {self.why}",
                code="on_probation",
                hint="nothing was done; try again in a moment",
                retry_after_ms=RETRY_MS,
            )

    async def run(self) -> None:
        """Returns when this release may act. To be called once it is healthy."""
        self._since = self._clock.monotonic()
        log.info("%s", self.why)
        while not await asyncio.to_thread(self._look, self._clock.monotonic() - self._since >= COMMIT_S):
            await self._clock.sleep(LOOK_S)
        self.over = True
        log.info("release %s is committed: it acts from now on", self._release[:12])

    def _look(self, overdue: bool) -> bool:
        try:
            standing = rollout.read(self._remote)
            record = standing.record
            if record is None or record.image != self._release or record.phase is Phase.ROLLBACK_REQUESTED:
                said = f"it says {record.phase} of {record.image[:12]}" if record is not None else "it is gone"
                self._tell(f"the rollout record is not that of release {self._release[:12]} any more: {said}")
                return False
            if record.phase is not Phase.PENDING:
                return True
            self._tell("")
            if overdue:
                made = rollout.committed(standing, self._release, self._clock.now_ms())
                rollout.write(self._remote, made, standing)
                log.warning("nobody committed the deployment within %.0f s: it commits itself", COMMIT_S)
                return True
        except GenerationMismatch:
            return False  # somebody else decided: what stands is looked at next
        except IrisError as error:
            self._tell(f"how the deployment of {self._release[:12]} stands is not known: {error.message}")
        return False

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.warning("%s", problem)
        self._problem = problem
