"""The restart of a controller into another release: everything that can fail is tried before the old one is touched.

preflight → tree → gate → lock → build and stage → a first checkpoint → record PENDING → checkpoint and stop → start → health →
COMMITTED (rollout §2.2). A failure before the stop restores the record that stood, so that no later boot acts on it (the hazard of
§2.7). A release that was started and does not become healthy is on probation: it has changed nothing but the schema, so it is stopped
and the one before goes back to the last checkpoint, once, and loses nothing. If there is none that is known to hold everything, the
database is kept where both releases know it, and else a person decides. A controller that cannot be reached is never taken for one that
is not there.
"""

from __future__ import annotations

from asyncio import to_thread
from typing import Any, Final

from iris_core.contracts import ConnectFailed, IrisError
from iris_core.model.resources import format_age
from iris_core.model.text import going_on
from iris_core.procedures import lock, record
from iris_core.procedures.events import (
    APPROVE,
    Cancelled,
    Evidence,
    Gate,
    Outcome,
    Procedure,
    Report,
    Status,
    Step,
    StepFailed,
)
from iris_core.procedures.moves import Moves
from iris_core.procedures.nested import Inner, Parts, flat
from iris_core.procedures.record import Phase
from iris_core.procedures.seen_through import seen_through
from iris_core.procedures.source_tree import as_value
from iris_core.procedures.target import HEALTH_S, Lost, Saved, Target, hangs
from iris_core.procedures.way_back import So, way_back

__all__ = ["GATE", "HEALTH_S", "Lost", "Saved", "Target", "restart"]

GATE: Final = "restart"
SHOWN_BAD: Final = 3
"""Checkpoints that cannot be used, of which the question says why."""
_THROUGH: Final = frozenset(
    {"still-runs", "schema", "request", "halt", "back", "back-health", "committed-itself", "restore", "unlock"}
)
"""What an end that is asked for does not keep from being done: the way back, whatever it was gone for, and the lock."""


def restart(target: Target, *, skip_checkpoint: bool = False, checkpoint_timeout_s: float = 300.0) -> Procedure:
    """The procedure. `skip_checkpoint` takes none: to go back with, there is the newest whole one that was taken before."""
    return seen_through(flat(_restart(target, skip_checkpoint, checkpoint_timeout_s)), _THROUGH)


async def _restart(target: Target, skip_checkpoint: bool, timeout_s: float) -> Parts:
    yield Step(id="look", title=f"Look at {target.name}")
    before = yield Evidence(
        id="preflight", title="the controller, its record, its lock and its secrets", gather=_preflight(target)
    )
    tree = yield Evidence(id="tree", title="the tree", gather=_tree(target), timeout_s=300.0)
    new, old, boot = tree["id"], before["release"], before["boot_id"]
    moves = Moves(target, GATE, old=old, new=new, boot=boot, before=before["record"])
    so = So(skipped=skip_checkpoint)
    newest: dict[str, Any] = {}
    if skip_checkpoint:
        newest = yield moves.newest_whole("newest")
        so.checkpoint = newest["path"]
    choice = yield Gate(
        id=GATE,
        title=f"Restart the controller of {target.name}",
        grants=(
            *moves.locking, *moves.preparing, *moves.recording, moves.stopping, moves.starting, moves.requesting, *moves.returning,
        ),
        name=target.name,
        effects=_effects(target, before, tree, skip_checkpoint),
        undo=_undo(old, newest, skip_checkpoint),
        command=target.command,
        evidence={"tree": new, "boot_id": boot},
    )  # fmt: skip
    if choice != APPROVE:
        yield Outcome(status=Status.STOPPED, state="nothing was changed")
        return
    try:
        yield moves.lock()
        so.reached = "locked"
        yield moves.stage(tree)
        if not skip_checkpoint:
            so.checkpoint = yield moves.save(timeout_s)
        so.reached = "pending"
        yield moves.pending(so.checkpoint)
        so.reached = "stopping"
        last = yield (moves.stop_plainly() if skip_checkpoint else moves.stop(timeout_s))
        so.reached = "stopped"
        if not last and not skip_checkpoint:
            last = yield moves.ended_with()  # its answer was lost; without that one nothing new is started
        if last:
            so.checkpoint, so.whole = last, True
            yield moves.name_last(last)
        so.reached = "starting"
        yield moves.start()
        so.reached = "started"
        healthy = yield moves.health("health", new)
        so.reached = "healthy"
        yield moves.commit()
    except (StepFailed, Cancelled) as failure:
        end = yield Inner("", way_back(target, moves, so, failure, old, new))
        yield end
        return
    details = []
    try:
        yield moves.unlock()
    except StepFailed as error:
        details.append(lock.kept(error.message, target.program))
    yield Outcome(
        status=Status.DONE,
        state=f"{target.name} runs release {new[:12]} at {healthy['url']}",
        details=(f"before it {old[:12]}", f"checkpoint {so.checkpoint or 'none'}", *details),
    )


def _effects(target: Target, before: dict[str, Any], tree: dict[str, Any], skip: bool) -> tuple[str, ...]:
    running = before["tasks"].get("running", 0)
    lines = [
        f"ships tree {tree['id']} ({tree['branch']}, {tree['subject']}) in the place of {before['release']}",
        *tree["warnings"],
        f"{target.name} is without a controller for some seconds; {going_on(running)}",
    ]
    if before["stale"]:
        lines.append(f"the record says that {before['stale']}; it is put right")
    if skip:
        lines.append("no checkpoint is taken")
    return tuple(lines)


def _undo(old: str, newest: dict[str, Any], skip: bool) -> tuple[str, ...]:
    back = f"a release that does not become healthy is replaced by {old[:12]} by itself"
    later = "afterwards, restart --rollback goes back, and drops what came after the checkpoint"
    if not skip:
        return f"{back}, and nothing is lost", later
    passed_over = _few(newest["passed_over"])
    if not newest["path"]:
        return (
            *passed_over,
            "there is no checkpoint to go back with",
            f"{back} only if it did not change the database; else nothing runs until a person decides",
        )
    age = format_age(newest["age_ms"])
    which = "the newest checkpoint that is whole" if passed_over else "the newest checkpoint"
    return (
        *passed_over,
        f"{which} is {age} old: {newest['path']}",
        f"{back}; if it changed the database, what came after that checkpoint is lost",
        later,
    )


def _few(lines: list[str]) -> list[str]:
    more = len(lines) - SHOWN_BAD
    return [*lines[:SHOWN_BAD], *([f"and {more} more that cannot be used"] if more > 0 else [])]


def _tree(target: Target) -> Any:
    async def gather(report: Report) -> dict[str, Any]:
        return as_value(await to_thread(target.freeze))

    return gather


def _preflight(target: Target) -> Any:
    """Raises IrisError: this is no controller to be restarted now."""

    async def gather(report: Report) -> dict[str, Any]:
        await to_thread(target.secrets)
        await to_thread(lock.require_free, target.store, target.now_ms(), target.holder.procedure, target.program)
        status = await to_thread(target.host.status)
        if not status.running:
            raise IrisError(
                f"no controller of {target.name} runs: {status.detail}",
                hint=f"start it: {target.controller('start')}",
            )
        if not (status.url and status.boot_id and status.release):
            raise IrisError(
                f"the controller of {target.name} does not serve: {status.detail}",
                hint=f"look at its log first; {hangs(target.program)}",
            )
        try:
            tasks = await to_thread(target.running)
        except ConnectFailed as error:
            raise IrisError(error.message, hint=hangs(target.program)) from error
        standing = (await to_thread(record.read, target.store)).record
        stale = ""
        if standing is not None and standing.phase in (Phase.PENDING, Phase.ROLLBACK_REQUESTED):
            said = f"the deployment of {standing.image[:12]} is {standing.phase}"
            if standing.phase is Phase.ROLLBACK_REQUESTED:
                raise IrisError(
                    f"{said}, and {status.release[:12]} runs",
                    hint=record.go_on(target.program),
                )
            if standing.image == status.release:
                raise IrisError(
                    f"{said}: it commits itself within two minutes of being healthy", hint="try again after that"
                )
            # Nobody holds the lock, and that release does not run: its driver is gone, and it never came so far.
            stale = said
        elif standing is not None and standing.image != status.release:
            stale = f"{standing.image[:12]} is {standing.phase}, which is not what runs"
        return {
            "release": status.release,
            "boot_id": status.boot_id,
            "tasks": tasks,
            "record": standing.to_json().decode() if standing is not None else "",
            "stale": stale,
        }

    return gather
