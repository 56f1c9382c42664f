"""The runbook for a controller that is wedged by its own database: an earlier checkpoint in its place, by hand as it were (rollout §4.6).

Nothing here asks the controller anything: it hangs. What would be lost is counted in the file of its database, beside it. It is ended, killed
if need be; its database is moved aside and never deleted; the checkpoint is restored under this procedure's id, found in its place, and
only then is the same release started. If it does not become healthy, the database of before is put back and started again. `undo` does that
later, also by hand. Where the controller still answers, `cluster controller restart --rollback` is the gentler way.

One that still takes jobs takes them while the question stands, too. So what would be lost is counted again before the controller is ended, and
asked again where it is more; and once more after that, when nothing changes it: what no gate named is not dropped, and the same database is
started again. An end that somebody asks for comes too late once the database of before is being put back.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from iris_core.model.quantities import format_size
from iris_core.model.resources import format_age
from iris_core.procedures import lock, since
from iris_core.procedures.db_moves import GATE, SHOW_S, DbMoves
from iris_core.procedures.events import (
    APPROVE,
    Cancelled,
    Evidence,
    Gate,
    Grant,
    Outcome,
    Procedure,
    Status,
    Step,
    StepFailed,
)
from iris_core.procedures.moves import READ_S, Moves
from iris_core.procedures.nested import Inner, Parts, flat
from iris_core.procedures.seen_through import seen_through

if TYPE_CHECKING:
    from iris_core.procedures.target import Target

_THROUGH: Final = frozenset({"halt", "put-back", "back", "back-health", "unlock"})
"""What an end that is asked for does not keep from being done: the database of before comes back into its place, and is started."""
_UNDONE: Final = "runbook db-rollback --undo"


def db_rollback(target: Target, state_dir: str, checkpoint: str, id_: str) -> Procedure:
    """Puts a checkpoint in the place of the database in `state_dir`, on the controller's host. `id_` is this procedure's."""
    return seen_through(flat(_db_rollback(target, state_dir, checkpoint, id_)), _THROUGH)


def undo(target: Target, state_dir: str, restored: str) -> Procedure:
    """Takes the restore of the procedure `restored` back: the database of before, and the same release."""
    return seen_through(_undo(target, state_dir, restored), _THROUGH)


@dataclass(slots=True)
class _So:
    """How far it came: the last of nothing, locked, stopped, restored, healthy; by what steps, and on what was named."""

    moves: Moves
    work: DbMoves
    shown: dict[str, Any]
    reached: str = "nothing"
    declined: bool = False
    healthy: dict[str, Any] = field(default_factory=dict)


async def _db_rollback(target: Target, state_dir: str, checkpoint: str, id_: str) -> Parts:
    work = DbMoves(target, state_dir, id_)
    taken_back = f"{target.program} {_UNDONE} {id_}"
    yield Step(id="look", title=f"Look at {target.name}, without asking its controller")
    before = yield Evidence(id="preflight", title="what is deployed, and how its process stands", gather=work.preflight)
    saved = yield Evidence(
        id="checkpoint", title="the checkpoint", gather=work.saved(checkpoint, before["release"]), timeout_s=READ_S
    )
    shown = yield _lost("lost", "what would be lost", work, before, saved)
    release = before["release"]
    so = _So(_moves(target, GATE, before), work, shown)
    gate = Gate(
        id=GATE,
        title=f"Put a checkpoint in the place of the database of {target.name}",
        grants=(*so.moves.locking, *_granted(so, saved)),
        name=target.name,
        effects=_effects(target, before, saved, shown),
        undo=(
            f"the database of now is kept beside it, as db.aside.{id_}",
            f"if {release[:12]} does not become healthy on the checkpoint, it is put back and started again",
            f"afterwards: {taken_back}",
            *([f"the gentler way: {target.controller('restart --rollback')}"] if before["healthy"] else []),
        ),
        command=target.command,
        evidence={"release": release, "checkpoint": saved["path"]},
    )
    choice = yield gate
    if choice != APPROVE:
        yield Outcome(status=Status.STOPPED, state="nothing was changed")
        return
    failure: StepFailed | Cancelled | None = None
    details = list[str]()
    try:
        yield Inner("", _go(target, gate, so, before, saved), is_part=True)
    except (StepFailed, Cancelled) as error:
        failure = error
    if so.declined:
        status, state, then = Status.STOPPED, "nothing was changed", ""
    elif failure is None:
        status, then = Status.DONE, f"to take it back: {taken_back}"
        state = f"{target.name} runs {release[:12]} at {so.healthy['url']} on checkpoint {saved['path']}"
        details.append(f"the database of before is kept in {state_dir}/db.aside.{id_}")
    else:
        untouched = isinstance(failure, StepFailed) and failure.untouched
        status = Status.CANCELLED if isinstance(failure, Cancelled) else Status.FAILED
        state, then = f"nothing was changed: {failure.message}", failure.hint
        if so.reached == "locked" and isinstance(failure, StepFailed) and not untouched:
            status, state = Status.UNKNOWN, f"{failure.message}; the database was not touched"
            then = f"look at it: {target.controller('status')}; this starts it again: {target.controller('start')}"
        elif so.reached in ("stopped", "restored"):
            status = Status.FAILED
            state = f"the database of before is in its place, and nothing was lost: {failure.message}"
            try:
                if so.reached == "restored" or not untouched:
                    yield so.work.halt()
                    yield so.work.put_back(release)
                yield so.moves.back()
                then = f"it is as it was; {failure.hint or 'choose another checkpoint, or look at the log'}"
            except StepFailed as error:
                state = f"{failure.message}; and the database of before was not put back and started: {error.message}"
                then = taken_back
    if so.reached != "nothing":
        try:
            yield so.moves.unlock()
        except StepFailed as error:
            details.append(lock.kept(error.message, target.program))
    yield Outcome(status=status, state=state, next=then, details=tuple(details))


def _moves(target: Target, gate: str, before: dict[str, Any]) -> Moves:
    release = before["release"]
    return Moves(target, gate, old=release, new=release, boot=before["boot_id"], before=before["record"])


def _granted(so: _So, saved: dict[str, Any]) -> tuple[Grant, ...]:
    """From the end of the controller on."""
    work, moves = so.work, so.moves
    return work.stopping, work.restoring(saved["path"]), moves.starting, *work.undoing, *moves.returning


def _lost(id_: str, title: str, work: DbMoves, before: dict[str, Any], saved: dict[str, Any]) -> Evidence:
    return Evidence(id=id_, title=title, gather=work.lost(saved["path"], before["release"]), timeout_s=SHOW_S + 30)


async def _go(target: Target, gate: Gate, so: _So, before: dict[str, Any], saved: dict[str, Any]) -> Parts:
    """All that is done once it is approved, until the release is seen to serve on the checkpoint."""
    release = before["release"]
    yield so.moves.lock()
    so.reached = "locked"
    counted = (
        bool(before.get("asks_again")) and "submitted" in so.shown
    )  # a journal of an earlier version goes on as it began
    if counted:
        yield Inner("", _only_named(target, gate, so, before, saved), is_part=True)
        if so.declined:
            return
    yield so.work.stop()
    so.reached = "stopped"
    if counted:
        last = yield _lost("lost-last", "what is lost, now that nothing changes it any more", so.work, before, saved)
        more = since.more_lost(so.shown, last) if "submitted" in last else f"it cannot be counted: {last['unknown']}"
        if more:
            refused = StepFailed("lost-last", more, untouched=True)
            refused.hint = f"look again: {target.program} runbook db-rollback {shlex.quote(saved['path'])}"
            raise refused
    yield so.work.restore(saved["path"], release)
    so.reached = "restored"
    yield Evidence(id="verify", title="the restored database", gather=so.work.verify(release), timeout_s=SHOW_S + 30)
    yield so.moves.start()
    so.healthy = yield so.moves.health("health", release)
    so.reached = "healthy"


async def _only_named(target: Target, gate: Gate, so: _So, before: dict[str, Any], saved: dict[str, Any]) -> Parts:
    """Asks again for as long as more would be lost than was named; what follows rests on the last answer."""
    turn = 1
    while True:
        now = yield _lost(f"lost-{turn}", "what would be lost now", so.work, before, saved)
        more = since.more_lost(so.shown, now) if "submitted" in now else ""
        if not more:
            return  # what cannot be counted beside the controller is counted once it has ended
        if turn == since.TURNS:
            raise since.too_often(more, target)
        turn += 1
        id_ = f"{GATE}-{turn}"
        again = _So(_moves(target, id_, before), so.work.under(id_), now)
        choice = yield replace(
            gate,
            id=id_,
            grants=(again.moves.locking[1], *_granted(again, saved)),
            effects=(f"{more}, and nothing was changed yet", *_effects(target, before, saved, now)),
        )
        if choice != APPROVE:
            so.declined = True
            return
        so.moves, so.work, so.shown = again.moves, again.work, now


async def _undo(target: Target, state_dir: str, restored: str) -> Procedure:
    work = DbMoves(target, state_dir, restored)
    yield Step(id="look", title=f"Look at {target.name}, without asking its controller")
    before = yield Evidence(id="preflight", title="what is deployed, and how its process stands", gather=work.preflight)
    release = before["release"]
    shown = yield Evidence(id="kept", title="the database of before", gather=work.kept(release), timeout_s=SHOW_S + 30)
    moves = _moves(target, GATE, before)
    choice = yield Gate(
        id=GATE,
        title=f"Put the database of {target.name} back that {restored} replaced",
        grants=(*moves.locking, work.stopping, *work.undoing, *moves.returning),
        name=target.name,
        effects=(
            f"the database that {restored} moved aside stands in its place again; it may be what kept the controller from serving",
            "what was done since is kept beside it, and not seen by the controller any more",
        ),
        undo=(f"the database of now is kept in {state_dir}/db.undone.{restored}",),
        command=target.command,
        evidence={"release": release, "restored": restored, "mark": shown["mark"]},
    )
    if choice != APPROVE:
        yield Outcome(status=Status.STOPPED, state="nothing was changed")
        return
    reached, details = "nothing", list[str]()
    try:
        yield moves.lock()
        reached = "locked"
        yield work.stop()
        reached = "stopped"
        yield work.put_back(release)
        reached = "put back"
        yield moves.back()
        healthy = yield moves.health("back-health", release)
        status, then = Status.DONE, ""
        state = f"{target.name} runs {release[:12]} at {healthy['url']} on the database of before {restored}"
    except (StepFailed, Cancelled) as failure:
        status = Status.CANCELLED if isinstance(failure, Cancelled) else Status.FAILED
        state, then = f"nothing was changed: {failure.message}", failure.hint
        if reached == "locked" and isinstance(failure, StepFailed) and not failure.untouched:
            status, state = Status.UNKNOWN, f"{failure.message}; the database was not touched"
            then = f"look at it: {target.controller('status')}; this starts it again: {target.controller('start')}"
        elif reached == "stopped":
            state = f"the controller is stopped, and its database is as it was: {failure.message}"
            then = f"try again: {target.program} {_UNDONE} {restored}; or start it so: {target.controller('start')}"
        elif reached == "put back":
            state = f"the database of before {restored} is in its place, and its controller does not serve: {failure.message}"
            then = f"look at the log; another checkpoint: {target.program} runbook db-rollback"
    if reached != "nothing":
        try:
            yield moves.unlock()
        except StepFailed as error:
            details.append(lock.kept(error.message, target.program))
    yield Outcome(status=status, state=state, next=then, details=tuple(details))


def _effects(target: Target, before: dict[str, Any], saved: dict[str, Any], shown: dict[str, Any]) -> tuple[str, ...]:
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(saved["epoch_ms"] / 1000))
    lines = [
        f"the controller of {target.name} ({before['detail']}) is ended; one that hangs is killed",
        f"its database of {format_size(shown.get('database_bytes', 0))} is moved aside, and goes back to {at}:"
        f" {saved['path']}, {format_age(saved['age_ms'])} old",
    ]
    if "submitted" in shown:
        lines.append(f"jobs that are lost, submitted after it: {shown['submitted']}; what runs of them is ended")
        lines.append(f"older jobs that go back, changed after it: {shown['changed']}")
        if shown["jobs"]:
            lines.append(f"among them {', '.join(shown['jobs'])}")
    else:
        lines.append(f"jobs and state that came after it are lost; how much that is cannot be said: {shown['unknown']}")
    if before["healthy"]:
        # Without a selector: what is approved is the same however the cluster is named when it is gone on with.
        lines.append("it answers /health now: cluster controller restart --rollback is the gentler way")
    lines.append(f"release {before['release']} is started again on it; workers and their tasks go on until then")
    return tuple(lines)
