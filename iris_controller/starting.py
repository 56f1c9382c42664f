"""What a controller does with its state directory before it opens anything of it.

What it will change is in no earlier one's last checkpoint; the state it is to start from is put in place; a release that is deployed
learns whether it is on probation; and a state that another controller owns by now is refused, unless it is taken over. Must run
under the lock of the state directory, in this order, and never on the event loop itself.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_controller import release
from iris_controller.checkpoint.choose import Wish, prepare, require_ours
from iris_controller.probation import on_probation
from iris_controller.store.database import StateDirError
from providers.local import last_checkpoint
from providers.objects import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from iris_controller.finelog_process import FinelogProcess
    from iris_controller.options import ServeOptions
    from iris_controller.store.database import StateDir
    from iris_core.contracts import ObjectStore

log = logging.getLogger("iris.controller")


@dataclass(frozen=True, slots=True)
class Start:
    """How it stands once the state is in place."""

    remote: ObjectStore
    """Where checkpoints lie."""
    deployed: str
    """The deployed release that starts, "" = it is none."""
    is_on_probation: bool


async def settle(options: ServeOptions, state: StateDir, finelog: FinelogProcess, now_ms: int) -> Start:
    """Leaves in the state directory what the controller is to open. Raises IrisError: it may not start from what is there."""
    if not options.dry_run:
        await asyncio.to_thread(_forget_last, state.path)
    remote = open_store(options.remote_state_dir)
    deployed = "" if options.dry_run or options.embedded else release.tree()
    wish = Wish(options.fresh, options.checkpoint, options.dry_run, options.take_over, deployed)
    log.info("starting from: %s", await asyncio.to_thread(prepare, state, remote, wish, now_ms))
    is_on_probation = await asyncio.to_thread(on_probation, remote, deployed, state.path)
    if options.config.remote_state_dir and not options.dry_run:
        await asyncio.to_thread(require_ours, state, remote)
    if options.take_over and not options.dry_run:
        await asyncio.to_thread(_take_logs_over, state, finelog)
    return Start(remote, deployed, is_on_probation)


def _forget_last(folder: Path) -> None:
    """What this controller will change is in no earlier one's last checkpoint."""
    try:
        last_checkpoint.forget(folder)
    except OSError as error:
        raise StateDirError(f"the state directory {folder} cannot be written: {error.strerror}") from error


def _take_logs_over(state: StateDir, finelog: FinelogProcess) -> None:
    try:
        finelog.take_over()
    except OSError as error:
        raise StateDirError(f"the logs in {state.finelog} cannot be taken over: {error}") from error
