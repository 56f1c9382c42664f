"""What is done when a restart fails, by how far it came: nothing was touched, nothing new ever ran, or a release ran that is not healthy.

A release that ran is on probation, so that its database differs from the last checkpoint by its migrations alone. The record asks for
the rollback by compare-and-set over `pending`: if the controller has committed itself before that, it stands. Only then is the new
release stopped and the old one started, whose boot restores the checkpoint once and marks that before it serves. Must never start the
old release on a database that it may not know, nor drop anything that the gate did not name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_core.procedures import lock
from iris_core.procedures.events import Cancelled, Outcome, Status, StepFailed
from iris_core.procedures.nested import Inner
from iris_core.procedures.record import WITHDRAW, Phase

if TYPE_CHECKING:
    from iris_core.procedures.moves import Moves
    from iris_core.procedures.nested import Parts
    from iris_core.procedures.target import Target

ROLL_BACK: Final = "restart --rollback"


@dataclass(slots=True)
class So:
    """How far a restart came, and what is to be said of it.

    Attributes:
        skipped: It takes no checkpoint, and its gate said what going back to `checkpoint` drops.
        reached: The last of nothing, locked, pending, stopping, stopped, starting, started, healthy.
        checkpoint: To go back with, "" = there is none.
        whole: It holds all that was ever acknowledged.
        restore: The record is to be put back as it was.
    """

    skipped: bool
    reached: str = "nothing"
    checkpoint: str = ""
    whole: bool = False
    status: Status = Status.FAILED
    state: str = ""
    next: str = ""
    details: list[str] = field(default_factory=list)
    restore: bool = True

    def way(self, *, same_schema: bool) -> str | None:
        """The checkpoint to go back with; "" = the database is kept; None = a person has to decide."""
        if self.whole:
            return self.checkpoint
        if same_schema:
            return ""
        return (self.checkpoint or None) if self.skipped else None


async def way_back(target: Target, moves: Moves, so: So, failure: StepFailed | Cancelled, old: str, new: str) -> Parts:
    """Leaves the cluster in a state that its outcome names."""
    untouched = not isinstance(failure, StepFailed) or failure.untouched
    if so.reached == "stopping" and not untouched:
        # It may have been told to end: one that still runs may be about to.
        runs = True
        try:
            runs = yield moves.still_runs()
        except (StepFailed, Cancelled) as error:
            so.details.append(error.message)
        if runs:
            yield Outcome(
                status=Status.UNKNOWN,
                state=f"{failure.message}; the record is pending and the lock is kept",
                next=f"look at it: {target.controller('status')}; then {target.program} {lock.BREAK}",
                details=tuple(so.details),
            )
            return
        so.reached = "stopped"
    so.state, so.next = f"nothing was changed: {failure.message}", failure.hint
    so.status = Status.CANCELLED if isinstance(failure, Cancelled) else Status.FAILED
    if so.reached == "healthy":
        so.restore = False
        so.state = f"release {new[:12]} runs and is healthy, and the record is still pending: {failure.message}"
        so.next = "it commits itself two minutes after it became healthy, once the store takes that"
    elif so.reached == "started" or (so.reached == "starting" and not untouched):
        so.restore = False
        yield Inner("", _from_probation(target, moves, so, failure, old, new), is_part=True)
    elif so.reached in ("stopped", "starting"):
        yield Inner("", _never_ran(target, moves, so, failure, old), is_part=True)
    try:
        if so.restore and so.reached not in ("nothing", "locked"):
            yield moves.restore()
    except StepFailed as error:
        # The lock is kept with it: it keeps everybody out until a person has looked.
        so.details.append(f"the record is not as it was: {error.message}; the next restart puts that right")
        so.state = so.state.replace("nothing was changed", "no controller was touched", 1)
        said = f"that {new[:12]} is being shipped"
        # Until `stopping` nobody has heard that it was written.
        so.state += f"; {f'whether the record says {said} is not known' if so.reached == 'pending' else f'the record still says {said}'}"
        first = f"once its store takes that: {target.program} {lock.BREAK}"
        if so.status is Status.FAILED and so.reached in ("stopped", "starting"):
            # Nothing runs: there is nothing to restart.
            so.next = f"{first}; then {so.next}; until the record is put right a plain start would run {new[:12]}"
        else:
            so.next = f"{first}, then restart again; a plain start would run {new[:12]}"
        so.details.append(lock.kept(error.message, target.program))
    else:
        if so.reached != "nothing":
            try:
                yield moves.unlock()
            except StepFailed as error:
                so.details.append(lock.kept(error.message, target.program))
    yield Outcome(status=so.status, state=so.state, next=so.next, details=tuple(so.details))


async def _never_ran(target: Target, moves: Moves, so: So, failure: StepFailed | Cancelled, old: str) -> Parts:
    """The old release was stopped, and no other one touched its database."""
    try:
        yield moves.back()
        yield moves.health("back-health", old)
        so.status, so.next = Status.ROLLED_BACK, "mend it and restart again"
        so.state = f"{target.name} runs {old[:12]} again, nothing was lost: {failure.message}"
    except StepFailed as error:
        so.status = Status.FAILED
        so.state = f"{failure.message}; and {old[:12]} did not come up again either: {error.message}"
        so.next = _not_up(target)


async def _from_probation(
    target: Target, moves: Moves, so: So, failure: StepFailed | Cancelled, old: str, new: str
) -> Parts:
    """The new release was started, and is not known to be good."""
    so.status = Status.FAILED
    same = so.whole
    if not so.whole:
        try:
            same = yield moves.same_schema()
        except StepFailed as error:
            so.details.append(error.message)
    way = so.way(same_schema=same)
    if way is None:
        yield Inner("", _halt(moves, so, new), is_part=True)
        so.state = f"no controller of {target.name} runs, and its database is that of {new[:12]}: {failure.message}"
        so.next = (
            f"to go back to {so.checkpoint}, which drops what came after it: {target.controller(ROLL_BACK)}"
            if so.checkpoint
            else f"there is no checkpoint to go back with: mend what keeps {new[:12]} from coming up, then: {target.controller('start')}"
        )
        return
    step = "request"
    try:
        yield moves.request(way, from_phase=Phase.PENDING)
        step = "halt"
        yield moves.halt()
        step = "back"
        yield moves.back()
        yield moves.health("back-health", old, marked=True)
    except (StepFailed, Cancelled) as error:
        yield Inner("", _stuck(target, moves, so, failure, error, step, old, new), is_part=True)
        return
    so.status, so.next = Status.ROLLED_BACK, "mend it and restart again"
    lost = "what came after its checkpoint is lost" if way and not so.whole else "nothing was lost"
    so.state = f"{target.name} runs {old[:12]} again, {lost}: {failure.message}"
    so.details.append(f"it went back to checkpoint {way}" if way else "it kept its database")


async def _stuck(
    target: Target,
    moves: Moves,
    so: So,
    failure: StepFailed | Cancelled,
    error: StepFailed | Cancelled,
    step: str,
    old: str,
    new: str,
) -> Parts:
    """The rollback came to no end."""
    if step == "request":
        itself = False
        try:
            itself = yield moves.committed_itself()
        except StepFailed as unknown:
            so.details.append(unknown.message)
        if itself:
            so.state = f"{target.name} runs {new[:12]}, which has committed itself and was not seen to be healthy: {failure.message}"
            so.next = f"look at it: {target.program} cluster status; to go back: {target.controller(ROLL_BACK)}"
            return
        yield Inner("", _halt(moves, so, new), is_part=True)
        so.state = f"{failure.message}; and the rollback to {old[:12]} could not be asked for: {error.message}"
        so.next = f"once that is mended: {target.controller(ROLL_BACK)}"
    elif step == "halt":
        so.state = f"{failure.message}; the rollback to {old[:12]} is asked for, and {new[:12]} was not stopped: {error.message}"
        so.next = f"{target.controller('stop')}, then {target.controller('start')}: that goes on with the rollback"
    else:
        so.state = f"{failure.message}; and {old[:12]} did not come up again either: {error.message}"
        so.next = _not_up(target)


def _not_up(target: Target) -> str:
    """What leads out where the old release did not come up again."""
    start = f"{target.controller('stop')}, then {target.controller('start')}"
    return f"look at the log, then: {start}; without its checkpoint: {target.program} {WITHDRAW}"


async def _halt(moves: Moves, so: So, new: str) -> Parts:
    try:
        yield moves.halt()
    except StepFailed as error:
        so.details.append(f"{new[:12]} was not stopped: {error.message}")
