"""The way out of a rollback that was asked for and cannot be done: its checkpoint is lost, so that the release before never comes up.

A person decides between two: the release that was to be replaced goes on (the request is taken back), or the release before runs on the
database as it is (the rollback without its checkpoint). Both keep the database, so that neither drops a job; what is lost is the way
back to that checkpoint, and the gate says so. The record is written once nothing runs, over exactly the request that was shown, and
before anything is started, so that no boot acts on a request that was taken back. From then on an end that somebody asks for comes too
late: the release is started, and seen to serve. Must never put a checkpoint anywhere.
"""

from __future__ import annotations

import json
from asyncio import to_thread
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import GenerationMismatch, IrisError
from iris_core.procedures import lock, record
from iris_core.procedures.events import (
    APPROVE,
    Cancelled,
    Evidence,
    Gate,
    Grant,
    Mutation,
    NotStarted,
    Outcome,
    Procedure,
    Report,
    Status,
    Step,
    StepFailed,
    World,
)
from iris_core.procedures.moves import READ_S, Moves
from iris_core.procedures.record import Phase
from iris_core.procedures.seen_through import seen_through

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_core.procedures.target import Target

GATE: Final = "withdraw"
SHOW_S: Final = 60.0
_THROUGH: Final = frozenset({"back", "back-health", "unlock"})


def withdraw(target: Target, state_dir: str, *, to: str = "", keep: bool = False) -> Procedure:
    """The procedure. `to` is the release that goes on, "" = the one that was to be replaced; `keep` = the one before, without its checkpoint."""
    return seen_through(_withdraw(target, state_dir, to, keep), _THROUGH)


async def _withdraw(target: Target, state_dir: str, to: str, keep: bool) -> Procedure:
    yield Step(id="look", title=f"Look at {target.name}")
    before = yield Evidence(
        id="preflight", title="the request, its checkpoint and the release to go on with",
        gather=_preflight(target, state_dir, to, keep), timeout_s=READ_S + SHOW_S,
    )  # fmt: skip
    release, asked = before["release"], before["asked"]
    # `old` is the release that is started by them, in the place of whatever runs.
    moves = Moves(target, GATE, old=release, new=before["runs"] or asked, boot="", before=before["record"])
    writing = Grant("take back" if not keep else "drop the checkpoint of", "rollback", asked, before["updated"])
    choice = yield Gate(
        id=GATE,
        title=f"Take the rollback of {target.name} back"
        if not keep
        else f"Roll {target.name} back without a checkpoint",
        grants=(*moves.locking, moves.restaging, *moves.returning, writing),
        name=target.name,
        effects=_effects(target, before, keep),
        undo=(
            *(
                [f"to go on with that rollback instead: {target.controller('stop')}, then {target.controller('start')}"]
                if before["usable"]
                else []
            ),
            f"with {before['checkpoint'] or 'a checkpoint'} the rollback cannot be asked for again",
            f"to put another checkpoint in the place of the database afterwards: {target.program} runbook db-rollback",
        ),
        command=target.command,
        evidence={"release": release, "asked": asked, "checkpoint": before["checkpoint"], "why": before["why"]},
    )
    if choice != APPROVE:
        yield Outcome(status=Status.STOPPED, state="nothing was changed")
        return
    reached, details = "nothing", list[str]()
    try:
        yield moves.lock()
        reached = "locked"
        yield moves.stage_old()
        reached = "stopping"
        yield moves.halt()
        reached = "stopped"
        yield _written(target, writing, before, release, keep)
        reached = "written"
        yield moves.back()
        healthy = yield moves.health("back-health", release, marked=keep)
        status, then = Status.DONE, ""
        state = f"{target.name} runs {release[:12]} at {healthy['url']}, and kept its database"
        details.append(
            f"the rollback to {asked[:12]} was taken back" if not keep else "it went back without a checkpoint"
        )
    except (StepFailed, Cancelled) as failure:
        status = Status.CANCELLED if isinstance(failure, Cancelled) else Status.FAILED
        state, then = f"nothing was changed: {failure.message}", failure.hint
        if reached == "stopping" and not (isinstance(failure, StepFailed) and failure.untouched):
            state, then = (
                f"{failure.message}; the request stands",
                f"look at it: {target.controller('status')}; then try again",
            )
        elif reached == "stopped":
            state = f"no controller of {target.name} runs, and the request stands: {failure.message}"
            mend = "" if isinstance(failure, Cancelled) else "mend that, then "
            then = f"{mend}try again: {target.program} {record.WITHDRAW}"
        elif reached == "written":
            status = Status.FAILED
            state = f"the request was put right, and {release[:12]} did not come up: {failure.message}"
            then = f"look at the log, then: {target.controller('stop')}, then {target.controller('start')}"
    if reached != "nothing":
        try:
            yield moves.unlock()
        except StepFailed as error:
            details.append(lock.kept(error.message, target.program))
    yield Outcome(status=status, state=state, next=then, details=tuple(details))


def _effects(target: Target, before: dict[str, Any], keep: bool) -> tuple[str, ...]:
    release, asked = before["release"], before["asked"]
    lines = [
        f"the record asks for a rollback to {asked} with {before['checkpoint'] or 'no checkpoint'}: {before['why']}"
    ]
    if before["usable"]:
        # Without a selector: what is approved is the same however the cluster is named when it is gone on with.
        lines.append("that rollback can be done: cluster controller stop, then start, goes on with it")
    if keep:
        lines.append(f"release {release} runs on the database as it is; one that it does not know it refuses")
    else:
        lines.append(f"release {release} goes on; what it was to be rolled back for is not mended by this")
    if before["restored"]:
        lines.append(
            "the checkpoint stands in the place of the database already: what came after it is aside on its host"
        )
    elif before["shown"]:
        lines.append("the database is not touched: no job is lost")
    else:
        lines.append("the database is not touched; whether a boot has put the checkpoint there before cannot be said")
    lines.append("what is lost is the way back to that checkpoint")
    running = f"{before['runs'][:12]} is ended first; " if before["runs"] else ""
    lines.append(f"{running}workers and their tasks go on")
    return tuple(lines)


def _preflight(target: Target, state_dir: str, to: str, keep: bool) -> Callable[[Report], Awaitable[dict[str, Any]]]:
    """Raises IrisError: no rollback is asked for, or there is nothing to go on with."""

    again = f"{target.program} {record.WITHDRAW}"

    async def gather(report: Report) -> dict[str, Any]:
        await to_thread(lock.require_free, target.store, target.now_ms(), target.holder.procedure, target.program)
        found = (await to_thread(record.read, target.store)).record
        if found is None or found.phase is not Phase.ROLLBACK_REQUESTED:
            said = f"the record says {found.phase} of {found.image[:12]}" if found is not None else "there is no record"
            raise IrisError(
                f"no rollback of {target.name} is asked for: {said}",
                hint=f"how it stands: {target.controller('status')}",
            )
        status = await to_thread(target.host.status)
        runs = status.release if status.running else ""
        replaced = found.replaces or (status.release if status.release != found.image else "")
        release = found.image if keep else to or replaced
        if not release:
            raise IrisError(
                f"which release was to be rolled back to {found.image[:12]} is not known",
                hint=f"name it: {again} --to RELEASE; they are listed by: {target.controller('status')}; "
                f"or go back without a checkpoint: {again} --keep-database",
            )
        known = list(await to_thread(target.schema, release))  # raises: it does not lie there
        if keep and replaced and not set(await to_thread(target.schema, replaced)) <= set(known):
            raise IrisError(
                f"{release[:12]} does not know the database of {replaced[:12]}, so that it cannot run on it",
                hint=f"go on with {replaced[:12]}: {again}",
            )
        why, usable = await _checkpoint(target, found.rollback_checkpoint)
        mark = await _mark(target, release, state_dir)
        return {
            "release": release, "asked": found.image, "runs": runs, "checkpoint": found.rollback_checkpoint,
            "updated": str(found.updated_at_ms), "why": why, "usable": usable, "shown": mark is not None,
            "restored": bool(found.rollback_checkpoint) and mark == record.mark_of(found),
            "record": found.to_json().decode(),
        }  # fmt: skip

    return gather


async def _checkpoint(target: Target, path: str) -> tuple[str, bool]:
    """How the checkpoint of a request is, in words, and whether it can be put back."""
    if not path:
        return "it keeps the database", True
    try:
        await to_thread(target.saved, path)
    except IrisError as error:
        return error.message, False
    return "it is there, and whole", True


async def _mark(target: Target, release: str, state_dir: str) -> str | None:
    """The request whose checkpoint a boot has put in place, "" = none; None = it cannot be said."""
    try:
        said = await to_thread(target.host.offline, release, ["restore", "--show", "--state-dir", state_dir], SHOW_S)
        return str(json.loads(said)["mark"])
    except (IrisError, ValueError, KeyError, TypeError):
        return None


def _written(target: Target, grant: Grant, before: dict[str, Any], release: str, keep: bool) -> Mutation:
    async def do() -> None:
        standing = await to_thread(record.read, target.store)
        if standing.record is None or standing.record.to_json().decode() != before["record"]:
            raise NotStarted("the request is not the one that was shown any more", hint="look again")
        if keep:
            made = record.without_checkpoint(standing, target.now_ms())
        else:
            made = record.withdrawn(standing, release, target.now_ms())
        try:
            await to_thread(record.write, target.store, made, standing)
        except GenerationMismatch as error:
            raise NotStarted("the request has changed meanwhile", hint="look again") from error

    async def look() -> World:
        found = (await to_thread(record.read, target.store)).record
        if found is None or found.to_json().decode() == before["record"]:
            return World.NOT_DONE
        wanted = (Phase.ROLLBACK_REQUESTED, Phase.ROLLED_BACK) if keep else (Phase.COMMITTED,)
        return World.DONE if found.phase in wanted and found.image == release else World.UNKNOWN

    title = "write the record: " + ("rollback without a checkpoint" if keep else "committed, the request is taken back")
    return Mutation(id="write", title=title, gate=GATE, grant=grant, do=do, look=look)
