"""The rollback that an operator asks for: the release before the last deployment again, on the checkpoint that was taken for it.

Only this drops work, and its gate says how many jobs. It takes no checkpoint of its own: the database that is replaced is kept beside
the new one. Everything that it needs (the release before, the checkpoint, a record that says so) is proved before the controller is
stopped, and the record asks for the rollback only after that, so that no controller that was never touched can act on it later. The
old release restores at its boot, once, and marks that before it serves.

Nothing is dropped that no gate has named: right before the stop it is counted once more, and where more would be lost it is asked again.
Once the record asks for the rollback, an end that somebody asks for comes too late: the release before is started, and seen to serve.
"""

from __future__ import annotations

import time
from asyncio import to_thread
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError
from iris_core.procedures import lock, record, since
from iris_core.procedures.events import (
    APPROVE,
    Cancelled,
    Evidence,
    Gate,
    Grant,
    Outcome,
    Procedure,
    Report,
    Status,
    Step,
    StepFailed,
)
from iris_core.procedures.moves import Moves
from iris_core.procedures.nested import Inner, Parts, flat
from iris_core.procedures.record import NotAllowed, Phase
from iris_core.procedures.seen_through import seen_through

if TYPE_CHECKING:
    from iris_core.procedures.record import RolloutRecord
    from iris_core.procedures.target import Saved, Target

GATE: Final = "rollback"
AGAIN: Final = "restart --rollback"
_THROUGH: Final = frozenset({"back", "back-health", "start", "health", "unlock"})
"""What an end that is asked for does not keep from being done: until then no controller runs, or nobody knows whether one does."""


def rollback(target: Target) -> Procedure:
    """The procedure."""
    return seen_through(flat(_rollback(target)), _THROUGH)


@dataclass(slots=True)
class _So:
    """How far it came: the last of nothing, locked, stopping, stopped, asked; by what steps, and on what was named."""

    moves: Moves
    before: dict[str, Any]
    reached: str = "nothing"
    declined: bool = False
    healthy: dict[str, Any] = field(default_factory=dict)


async def _rollback(target: Target) -> Parts:
    yield Step(id="look", title=f"Look at {target.name}")
    before = yield Evidence(
        id="preflight",
        title="the record, the release and the checkpoint to go back to",
        gather=_preflight(target),
        timeout_s=300.0,
    )
    old, new, checkpoint = before["old"], before["new"], before["checkpoint"]
    so = _So(_moves(target, GATE, before), before)
    gate = Gate(
        id=GATE,
        title=f"Roll the controller of {target.name} back",
        grants=(*so.moves.locking, so.moves.restaging, *_granted(so.moves)),
        name=target.name,
        effects=_effects(target, before),
        undo=(
            "the database that runs now is moved aside on its host, and kept",
            "what is dropped comes back only by hand, from there",
        ),
        command=target.command,
        evidence={"old": old, "new": new, "checkpoint": checkpoint},
    )
    choice = yield gate
    if choice != APPROVE:
        yield Outcome(status=Status.STOPPED, state="nothing was changed")
        return
    failure: StepFailed | Cancelled | None = None
    details = list[str]()
    try:
        yield Inner("", _go(target, gate, so), is_part=True)
    except (StepFailed, Cancelled) as error:
        failure = error
    if so.declined:
        status, state, then = Status.STOPPED, "nothing was changed", ""
    elif failure is None:
        status, then = Status.DONE, ""
        state = f"{target.name} runs {old[:12]} again at {so.healthy['url']}"
        details.append(f"it went back to checkpoint {checkpoint}" if checkpoint else "it kept its database")
    else:
        status = Status.CANCELLED if isinstance(failure, Cancelled) else Status.FAILED
        state, then = f"nothing was changed: {failure.message}", failure.hint
    if failure is not None and so.reached == "stopping" and isinstance(failure, StepFailed) and not failure.untouched:
        status = Status.UNKNOWN
        then = f"look at it: {target.controller('status')}; this starts it again: {target.controller('start')}"
        state = f"{failure.message}; the record was not changed"
    elif failure is not None and so.reached == "stopped":
        end: dict[str, str] = {}
        yield Inner("", _again(target, so.moves, failure, new, end), is_part=True)
        state, then = end["state"], end["next"]
        status = Status(end.get("status", status))
    elif failure is not None and so.reached == "asked":
        status = Status.FAILED
        state = f"the rollback to {old[:12]} is asked for, and it did not come up: {failure.message}"
        then = f"look at the log; {record.go_on(target.program)}"
    if so.reached != "nothing":
        try:
            yield so.moves.unlock()
        except StepFailed as error:
            details.append(lock.kept(error.message, target.program))
    yield Outcome(status=status, state=state, next=then, details=tuple(details))


def _moves(target: Target, gate: str, before: dict[str, Any]) -> Moves:
    return Moves(target, gate, old=before["old"], new=before["new"], boot=before["boot_id"], before=before["record"])


def _granted(moves: Moves) -> tuple[Grant, ...]:
    """From the stop on."""
    return (moves.stopping, moves.requesting, *moves.returning, moves.starting)


async def _go(target: Target, gate: Gate, so: _So) -> Parts:
    """All that is done once it is approved, until the release before is seen to serve."""
    checkpoint, boot = so.before["checkpoint"], so.before["boot_id"]
    yield so.moves.lock()
    so.reached = "locked"
    counted = so.before.get("counted")
    if boot and counted is not None:  # a journal of an earlier version goes on as it began
        yield since.same_controller(target, boot, target.controller(AGAIN))
    yield so.moves.stage_old()
    if counted:
        yield Inner("", _only_named(target, gate, so), is_part=True)
        if so.declined:
            return
    stop = so.moves.stop_plainly()
    if counted:
        stop = since.only_named(stop, target, checkpoint, so.before, target.controller(AGAIN))
    so.reached = "stopping"
    yield stop
    so.reached = "stopped"
    yield so.moves.request(checkpoint, from_phase=Phase(so.before["phase"]))
    so.reached = "asked"
    yield so.moves.back()
    so.healthy = yield so.moves.health("back-health", so.before["old"], marked=True)


async def _only_named(target: Target, gate: Gate, so: _So) -> Parts:
    """Asks again for as long as more would be lost than was named; what follows rests on the last answer."""
    turn = 1
    while True:
        now = yield since.lost_now(target, f"lost-{turn}", so.before["checkpoint"])
        more = since.more_lost(so.before, now)
        if not more:
            return
        if turn == since.TURNS:
            raise since.too_often(more, target)
        turn += 1
        before = {**so.before, **now}
        moves = _moves(target, f"{GATE}-{turn}", before)
        choice = yield replace(
            gate,
            id=f"{GATE}-{turn}",
            grants=(moves.locking[1], *_granted(moves)),
            effects=(f"{more}, and nothing was changed yet", *_effects(target, before)),
        )
        if choice != APPROVE:
            so.declined = True
            return
        so.before, so.moves = before, moves


async def _again(target: Target, moves: Moves, failure: StepFailed | Cancelled, new: str, end: dict[str, str]) -> Parts:
    """The controller was stopped, and the rollback could not be asked for: what ran before is started again."""
    why = failure.message
    end["next"] = "" if isinstance(failure, Cancelled) else "mend that, then try again"
    try:
        yield moves.start()
        yield moves.health("health", new)
        end["state"] = f"{target.name} runs {new[:12]} again, nothing was changed: {why}"
    except StepFailed as error:
        end["status"] = Status.FAILED
        end["state"] = f"{why}; and {new[:12]} did not come up again either: {error.message}"
        end["next"] = f"look at the log, then: {target.controller('start')}"


def _effects(target: Target, before: dict[str, Any]) -> tuple[str, ...]:
    lines = [f"release {before['old']} runs again in the place of {before['new']}"]
    if not before["checkpoint"]:
        lines.append("its database is kept: no job is lost")
    else:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(before["epoch_ms"] / 1000))
        lines.append(f"its database goes back to {at}: {before['checkpoint']}")
        if before["phase"] == Phase.COMMITTED:
            lines += _lost(before["submitted"], before["changed"], before["jobs"])
        elif before["whole"]:
            lines.append("no job is lost: the release that goes never left its probation")
        else:
            lines.append("what was done after it is lost; no controller can say how much that is")
    lines.append(f"{target.name} is without a controller for some seconds; what still runs and is known then goes on")
    return tuple(lines)


def _lost(submitted: int, changed: int, jobs: list[str]) -> list[str]:
    if not submitted and not changed:
        return ["no job was submitted or changed after it"]
    lines = [
        f"jobs that are lost, submitted after it: {submitted}; what runs of them is ended",
        f"older jobs that go back, changed after it: {changed}; their tasks that have ended since then run again",
    ]
    if jobs:
        more = submitted + changed - len(jobs)
        lines.append(f"among them {', '.join(jobs)}" + (f" and {more} more" if more > 0 else ""))
    return lines


def _preflight(target: Target) -> Any:
    """Raises IrisError: there is nothing to roll back to, or it cannot be done."""

    async def gather(report: Report) -> dict[str, Any]:
        await to_thread(lock.require_free, target.store, target.now_ms(), target.holder.procedure, target.program)
        standing = await to_thread(record.read, target.store)
        found = standing.record
        if found is not None and found.phase is Phase.ROLLBACK_REQUESTED:
            raise IrisError(f"a rollback to {found.image[:12]} is asked for already", hint=record.go_on(target.program))
        record.rollback_requested(standing, 0, target.program)  # raises NotAllowed: nothing to roll back to
        assert found is not None
        old, new, checkpoint = found.previous_image, found.image, found.rollback_checkpoint
        status = await to_thread(target.host.status)
        pending = found.phase is Phase.PENDING
        if not pending and not (status.running and status.url):
            raise IrisError(
                f"the controller of {target.name} does not serve, so that it cannot say what would be lost: {status.detail}",
                hint=f"start it: {target.controller('start')}; "
                f"or put a checkpoint back by hand: {target.restore_hint(checkpoint)}",
            )
        if status.running and status.release != new:
            raise IrisError(f"the record says {found.phase} of {new[:12]}, and {status.release[:12]} runs")
        saved = await _usable(target, found)
        made: dict[str, Any] = {
            "old": old, "new": new, "phase": str(found.phase), "checkpoint": checkpoint, "whole": found.whole,
            "epoch_ms": saved.epoch_ms if saved is not None else 0,
            "boot_id": status.boot_id, "record": found.to_json().decode(),
            "submitted": 0, "changed": 0, "jobs": [], "counted": saved is not None and not pending,
        }  # fmt: skip
        return {**made, **await since.count(target, checkpoint)} if made["counted"] else made

    return gather


async def _usable(target: Target, found: RolloutRecord) -> Saved | None:
    """The checkpoint to go back with, which the old release must know; None = the database is kept, which it knows."""
    known = list(await to_thread(target.schema, found.previous_image))
    old = found.previous_image[:12]
    if not found.rollback_checkpoint:
        if known != list(await to_thread(target.schema, found.image)):
            raise NotAllowed(
                f"there is no checkpoint to roll back to, and {old} does not know the database of {found.image[:12]}",
                hint=f"deploy a release that does: {target.controller('restart')}",
            )
        return None
    saved = await to_thread(target.saved, found.rollback_checkpoint)
    if saved.schema and saved.schema not in known:
        raise NotAllowed(
            f"the checkpoint {saved.path} has migration {saved.schema}, which {old} does not know",
            hint=f"deploy a release that does: {target.controller('restart')}",
        )
    return saved
