"""Which state a controller starts from (DESIGN §5.12), decided before anything of it is opened.

In this order: a fresh start that was asked for, a rollback that a deployment asked for (once), a checkpoint named at the start, the healthy
local database, the newest valid checkpoint, nothing at all. Nothing is deleted: what is replaced is moved aside. Where there were
checkpoints, or may be, and none can be used, a controller refuses to start rather than to start empty. Must run under the lock of the
state directory, off the event loop.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_controller.checkpoint import restore
from iris_controller.checkpoint.claims import OwnClaims
from iris_controller.checkpoint.layout import BadCheckpoint
from iris_controller.checkpoint.owner import read_claim, require_takeable
from iris_controller.checkpoint.served import served_last
from iris_controller.store.database import StateDamaged, StateDir, StateDirError, check_integrity
from iris_core.contracts import IrisError
from iris_core.procedures import record as rollout

if TYPE_CHECKING:
    from pathlib import Path

    from iris_controller.checkpoint.restore import Candidate
    from iris_core.contracts import ObjectStore

log = logging.getLogger("iris.checkpoint")

LOCAL = "local"
FRESH_HINT = "start anew with --fresh, or name a checkpoint with --checkpoint-path"


class NoState(IrisError):
    """There is, or may be, state to start from, and it cannot be had."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How the controller was started. `dry_run` changes nothing outside the state directory, the rollout record included."""

    fresh: bool = False
    checkpoint: str = ""
    dry_run: bool = False
    take_over: bool = False
    """Go on with the local database also if another controller has taken over since."""
    release: str = ""
    """The deployed release that starts, "" = it is none: a rollback to another one is not its business."""


def prepare(state: StateDir, remote: ObjectStore, wish: Wish, now_ms: int) -> str:
    """Leaves in the state directory what the controller is to open, and returns where it came from, in words.

    Raises:
        StateDirError: the state directory, or the database in it, cannot be used.
        BadCheckpoint, UsageFailed: the checkpoint that was named cannot be used. Nothing was touched.
        NoState: what there is cannot be had; the hint has the ways out.
    """
    try:
        restore.settle(state.path)
        origin = _prepared(state, remote, wish, now_ms)
        if not wish.dry_run and (wish.take_over or origin != LOCAL):
            OwnClaims(state.path).forget()
        return origin
    except (OSError, sqlite3.Error) as error:
        raise StateDirError(f"the state in {state.path} cannot be prepared: {error}") from error


def require_ours(state: StateDir, remote: ObjectStore) -> None:
    """Raises Fenced if another controller took the remote state dir over after the local database was served last.

    A store that does not answer is no reason not to start: the claim is made later, under the same rule.
    """
    try:
        standing = read_claim(remote)
    except IrisError as error:
        log.warning("who owns %s is not known: %s", remote.url, error.message)
        return
    require_takeable(remote, standing, OwnClaims(state.path))


def _prepared(state: StateDir, remote: ObjectStore, wish: Wish, now_ms: int) -> str:
    if wish.fresh:
        aside = state.set_aside()
        if aside is not None:
            log.warning("starting fresh; the previous state was moved to %s", aside)
        return "fresh"
    asked = None if wish.dry_run else _rollback(state, remote, wish.release)
    if asked is not None:
        return _roll_back(state, remote, asked, now_ms)
    if wish.checkpoint:
        return _take(state, restore.find(wish.checkpoint), f"db.aside.{now_ms}")
    return _local(state, remote, now_ms)


def put_in_place(state: StateDir, checkpoint: str, now_ms: int, id_: str = "") -> tuple[str, Path | None]:
    """Restores a checkpoint that was named; returns which, and where the database that was there is kept. `id_` marks it, and names that.

    Raises as `prepare` does, and touches nothing then.
    """
    try:
        restore.settle(state.path)
        candidate = restore.find(checkpoint)
        kept = _swapped(state, candidate, f"db.aside.{id_ or now_ms}", id_)
        OwnClaims(state.path).forget()
        return candidate.label, kept
    except (OSError, sqlite3.Error) as error:
        raise StateDirError(f"the state in {state.path} cannot be prepared: {error}") from error


def _rollback(state: StateDir, remote: ObjectStore, release: str) -> rollout.Standing | None:
    """The rollout record, if it asks this release for a rollback (control-plane §6.4). Raises NoState: it may."""
    try:
        standing = rollout.read(remote)
    except IrisError as error:
        require_known(error, release, state.path)
        return None
    record = standing.record
    if record is None or record.phase is not rollout.Phase.ROLLBACK_REQUESTED:
        return None
    if release and record.image and record.image != release:
        log.warning("a rollback to release %s is asked for; this one leaves it alone", record.image[:12])
        return None
    return standing


def require_known(error: IrisError, release: str, state_dir: Path) -> None:
    """Raises NoState unless this release may start though the rollout record cannot be read."""
    if release and served_last(state_dir) != release:
        raise NoState(
            f"whether release {release[:12]} may serve is not known: {error.message}",
            hint="it starts once the record can be read; the release that served here last may start without",
        ) from error
    log.warning("the rollout record is not known: %s", error.message)


def _roll_back(state: StateDir, remote: ObjectStore, standing: rollout.Standing, now_ms: int) -> str:
    record = standing.record
    assert record is not None
    named = record.rollback_checkpoint
    try:
        if not named:
            found = _local(state, remote, now_ms)
        elif restore.mark_of(state.path) == rollout.mark_of(record):
            # Killed before the record said so: nothing was served from it.
            found = f"rollback, checkpoint {named} was restored before"
        else:
            found = f"rollback, {_take(state, restore.find(named), f'db.aside.{now_ms}', rollout.mark_of(record))}"
    except IrisError as error:
        raise NoState(
            f"the rollback to {named or 'the release before'} cannot be done: {error.message}",
            hint=f"the request stands in {remote.url}/{rollout.RECORD}; bring the checkpoint back, or decide without it: "
            f"{rollout.WITHDRAW}",
        ) from error
    try:
        # Not served before it is consumed: a second start would throw away what was done since the first.
        rollout.write(remote, rollout.rolled_back(standing, now_ms), standing)
    except IrisError as error:
        raise NoState(
            f"the rollback was done, and cannot be marked as done: {error.message}",
            hint="start the controller again once the store takes writes",
        ) from error
    return found


def _local(state: StateDir, remote: ObjectStore, now_ms: int) -> str:
    damage: StateDamaged | None = None
    if state.database.exists():
        try:
            check_integrity(state.database)
            if state.database.stat().st_size:
                return LOCAL
            # Nothing is in it: that is no state, and there may be a checkpoint of one.
        except StateDamaged as error:
            damage = error
    skipped: list[str] = []
    try:
        for candidate in restore.newest_first(remote, skipped):
            try:
                found = _take(state, candidate, f"db.corrupt.{now_ms}" if damage is not None else f"db.aside.{now_ms}")
            except BadCheckpoint as bad:
                skipped.append(bad.message)
                continue
            for line in skipped:
                log.warning("skipped: %s", line)
            if damage is not None:
                log.error("%s", damage.message)
            log.warning(
                "restored %s; what was changed after %s UTC is missing",
                candidate.label,
                time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(candidate.epoch_ms / 1000)),
            )
            return found
    except IrisError as error:
        if damage is not None:
            raise StateDirError(f"{damage.message}; {error.message}", hint=damage.hint) from error
        raise NoState(
            f"there is no state in {state.path}, and whether there is a checkpoint is not known: {error.message}",
            hint=f"try again, or {FRESH_HINT}",
        ) from error
    why = "; ".join(skipped[:5]) + (f"; and {len(skipped) - 5} more" if len(skipped) > 5 else "")
    if damage is not None:
        raise StateDirError(damage.message + (f"; no checkpoint can be used: {why}" if why else ""), hint=damage.hint)
    if skipped:
        raise NoState(f"there is no state in {state.path}, and no checkpoint can be used: {why}", hint=FRESH_HINT)
    return "fresh"


def _take(state: StateDir, candidate: Candidate, aside: str, mark: str = "") -> str:
    """Restores it. Raises BadCheckpoint, named; nothing was touched then."""
    kept = _swapped(state, candidate, aside, mark)
    if kept is not None:
        log.warning("the database that was here is kept in %s", kept)
    return f"checkpoint {candidate.label}"


def _swapped(state: StateDir, candidate: Candidate, aside: str, mark: str = "") -> Path | None:
    if candidate.doubt:
        log.warning("%s", candidate.doubt)
    try:
        restore.stage(candidate, state.path, mark)
    except BadCheckpoint as bad:
        raise BadCheckpoint(f"checkpoint {candidate.label} cannot be used: {bad.message}", hint=bad.hint) from None
    return restore.swap(state.path, aside)
