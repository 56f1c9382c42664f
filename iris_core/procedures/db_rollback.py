"""The runbook for a controller that is wedged by its own database: an earlier checkpoint in its place, by hand as it were (rollout §4.6).

Nothing here asks the controller anything: it hangs. What would be lost is counted in the file of its database, beside it. It is ended, killed
if need be; its database is moved aside and never deleted; the checkpoint is restored under this procedure's id, found in its place, and
only then is the same release started. If it does not become healthy, the database of before is put back and started again. `undo` does that
later, also by hand. Where the controller still answers, `cluster controller restart --rollback` is the gentler way.
"""

from __future__ import annotations

import json
import time
from asyncio import to_thread
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError
from iris_core.model.quantities import format_size
from iris_core.model.resources import format_age
from iris_core.procedures import lock, record
from iris_core.procedures.events import (
    APPROVE,
    Cancelled,
    Evidence,
    Gate,
    Grant,
    Mutation,
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

if TYPE_CHECKING:
    from iris_core.procedures.target import Target

GATE: Final = "db-rollback"
KILL_S: Final = 10.0
"""What a controller that is to be ended may take; one that hangs ends by force."""
STOP_S: Final = 180.0
RESTORE_S: Final = 1_800.0
SHOW_S: Final = 90.0


async def db_rollback(target: Target, state_dir: str, checkpoint: str, id_: str) -> Procedure:
    """Puts a checkpoint in the place of the database in `state_dir`, on the controller's host. `id_` is this procedure's."""
    work = _Work(target, state_dir, id_)
    yield Step(id="look", title=f"Look at {target.name}, without asking its controller")
    before = yield Evidence(id="preflight", title="what is deployed, and how its process stands", gather=work.preflight)
    saved = yield Evidence(
        id="checkpoint", title="the checkpoint", gather=work.saved(checkpoint, before["release"]), timeout_s=READ_S
    )
    shown = yield Evidence(
        id="lost", title="what would be lost", gather=work.lost(saved["path"], before["release"]), timeout_s=SHOW_S + 30
    )
    release = before["release"]
    moves = Moves(target, GATE, old=release, new=release, boot=before["boot_id"], before=before["record"])
    choice = yield Gate(
        id=GATE,
        title=f"Put a checkpoint in the place of the database of {target.name}",
        grants=(
            *moves.locking,
            work.stopping,
            work.restoring(saved["path"]),
            moves.starting,
            *work.undoing,
            *moves.returning,
        ),
        name=target.name,
        effects=_effects(target, before, saved, shown),
        undo=(
            f"the database of now is kept beside it, as db.aside.{id_}",
            f"if {release[:12]} does not become healthy on the checkpoint, it is put back and started again",
            f"afterwards: runbook db-rollback --undo {id_}",
        ),
        command=target.command,
        evidence={"release": release, "checkpoint": saved["path"]},
    )
    if choice != APPROVE:
        yield Outcome(status=Status.STOPPED, state="nothing was changed")
        return
    reached, failure, healthy, details = "nothing", None, dict[str, Any](), list[str]()
    try:
        yield moves.lock()
        reached = "locked"
        yield work.stop()
        reached = "stopped"
        yield work.restore(saved["path"], release)
        reached = "restored"
        yield Evidence(id="verify", title="the restored database", gather=work.verify(release), timeout_s=SHOW_S + 30)
        yield moves.start()
        healthy = yield moves.health("health", release)
        reached = "healthy"
    except (StepFailed, Cancelled) as error:
        failure = error
    if failure is None:
        status, then = Status.DONE, f"to take it back: runbook db-rollback --undo {id_}"
        state = f"{target.name} runs {release[:12]} at {healthy['url']} on checkpoint {saved['path']}"
        details.append(f"the database of before is kept in {state_dir}/db.aside.{id_}")
    else:
        status = Status.CANCELLED if isinstance(failure, Cancelled) else Status.FAILED
        state, then = f"nothing was changed: {failure.message}", failure.hint
        if reached == "locked" and isinstance(failure, StepFailed) and not failure.untouched:
            status, state = Status.UNKNOWN, f"{failure.message}; the database was not touched"
            then = "look at it: cluster controller status; cluster controller start starts it again"
        elif reached in ("stopped", "restored"):
            status = Status.FAILED
            state = f"the database of before is in its place, and nothing was lost: {failure.message}"
            try:
                if reached == "restored" or not (isinstance(failure, StepFailed) and failure.untouched):
                    yield work.halt()
                    yield work.put_back(release)
                yield moves.back()
                then = "it is as it was; choose another checkpoint, or look at the log"
            except (StepFailed, Cancelled) as error:
                state = f"{failure.message}; and the database of before was not put back and started: {error.message}"
                then = f"runbook db-rollback --undo {id_}"
    if reached != "nothing":
        try:
            yield moves.unlock()
        except StepFailed as error:
            details.append(lock.kept(error.message))
    yield Outcome(status=status, state=state, next=then, details=tuple(details))


async def undo(target: Target, state_dir: str, restored: str, id_: str) -> Procedure:
    """Takes the restore of the procedure `restored` back: the database of before, and the same release."""
    work = _Work(target, state_dir, restored)
    yield Step(id="look", title=f"Look at {target.name}, without asking its controller")
    before = yield Evidence(id="preflight", title="what is deployed, and how its process stands", gather=work.preflight)
    release = before["release"]
    shown = yield Evidence(id="kept", title="the database of before", gather=work.kept(release), timeout_s=SHOW_S + 30)
    moves = Moves(target, GATE, old=release, new=release, boot=before["boot_id"], before=before["record"])
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
        status = (
            Status.CANCELLED if isinstance(failure, Cancelled) and reached in ("nothing", "locked") else Status.FAILED
        )
        state, then = f"nothing was changed: {failure.message}", failure.hint
        if reached == "stopped":
            state = f"the controller is stopped, and its database is as it was: {failure.message}"
            then = f"try again: runbook db-rollback --undo {restored}; or cluster controller start"
        elif reached == "put back":
            state = f"the database of before {restored} is in its place, and its controller does not serve: {failure.message}"
            then = "look at the log; another checkpoint: runbook db-rollback"
    if reached != "nothing":
        try:
            yield moves.unlock()
        except StepFailed as error:
            details.append(lock.kept(error.message))
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
        lines.append("it answers /health now: cluster controller restart --rollback is the gentler way")
    lines.append(f"release {before['release']} is started again on it; workers and their tasks go on until then")
    return tuple(lines)


class _Work:
    """What the events do. `id_` names the restore."""

    def __init__(self, target: Target, state_dir: str, id_: str) -> None:
        self._t = target
        self._state_dir = state_dir
        self._id = id_

    # --- evidence ------------------------------------------------------------------------------------------------

    async def preflight(self, report: Report) -> dict[str, Any]:
        """Raises IrisError: another procedure is at work, or it is not known what to start."""
        t = self._t
        await to_thread(lock.require_free, t.store, t.now_ms(), t.holder.procedure)
        standing = (await to_thread(record.read, t.store)).record
        if standing is not None and standing.phase is Phase.ROLLBACK_REQUESTED:
            raise IrisError(
                f"the record asks for a rollback to {standing.image[:12]}, which the next start would do over this",
                hint=record.GO_ON,
            )
        status = await to_thread(t.host.status)
        release = status.release or (standing.image if standing is not None else "")
        if not release:
            raise IrisError(f"nothing was ever deployed for {t.name}", hint="cluster controller start")
        await to_thread(t.schema, release)  # raises: it does not lie there
        healthy = False
        if status.url:
            try:
                await to_thread(t.host.await_healthy, 0.0)
                healthy = True
            except IrisError:
                pass  # that is why this is run
        return {
            "release": release,
            "boot_id": status.boot_id,
            "detail": status.detail,
            "healthy": healthy,
            "record": standing.to_json().decode() if standing is not None else "",
        }

    def saved(self, checkpoint: str, release: str) -> Any:
        async def gather(report: Report) -> dict[str, Any]:
            found = await to_thread(self._t.saved, checkpoint)
            known = list(await to_thread(self._t.schema, release))
            if found.schema and found.schema not in known:
                raise IrisError(
                    f"the checkpoint {found.path} has migration {found.schema}, which {release[:12]} does not know",
                    hint="choose an earlier one: runbook db-rollback lists them",
                )
            return {
                "path": found.path,
                "epoch_ms": found.epoch_ms,
                "age_ms": max(self._t.now_ms() - found.epoch_ms, 0),
            }

        return gather

    async def _show(self, release: str, checkpoint: str = "") -> dict[str, Any]:
        words = ["restore", *([checkpoint] if checkpoint else []), "--show", "--state-dir", self._state_dir]
        said = await to_thread(self._t.host.offline, release, words, SHOW_S)
        try:
            found: dict[str, Any] = json.loads(said)
            return found if "mark" in found else {**found, "mark": ""}
        except (ValueError, TypeError):
            raise IrisError(f"release {release[:12]} cannot show what a restore would do") from None

    def lost(self, checkpoint: str, release: str) -> Any:
        """What cannot be counted is said, and no reason not to go on."""

        async def gather(report: Report) -> dict[str, Any]:
            try:
                found = await self._show(release, checkpoint)
            except IrisError as error:
                return {"unknown": error.message}
            return found if "submitted" in found else {"unknown": "it was not counted", **found}

        return gather

    def kept(self, release: str) -> Any:
        async def gather(report: Report) -> dict[str, Any]:
            found = await self._show(release)
            if f"db.aside.{self._id}" not in found["kept"]:
                raise IrisError(
                    f"there is no database in {self._state_dir} that {self._id} moved aside",
                    hint=f"moved aside were: {', '.join(found['kept']) or 'none'}",
                )
            return {"mark": found["mark"]}

        return gather

    def verify(self, release: str) -> Any:
        async def gather(report: Report) -> dict[str, Any]:
            found = await self._show(release)
            if found["mark"] != self._id or not found["database_bytes"]:
                raise IrisError("the restored database is not in its place")
            return {"database_bytes": found["database_bytes"]}

        return gather

    # --- mutations -----------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> Grant:
        """Of `stop`; one that hangs has whatever generation it has."""
        return Grant("end", "controller", self._t.name)

    def restoring(self, checkpoint: str) -> Grant:
        """Of `restore`."""
        return Grant("restore", "checkpoint", checkpoint)

    @property
    def undoing(self) -> tuple[Grant, ...]:
        """Of `halt` and `put_back`."""
        return Grant("end again", "controller", self._t.name), Grant("put back", "database", self._t.name)

    def _ending(self, id_: str, title: str, grant: Grant) -> Mutation:
        async def do() -> None:
            await to_thread(self._t.host.stop, KILL_S)

        async def look() -> World:
            return World.NOT_DONE if (await to_thread(self._t.host.status)).running else World.DONE

        return Mutation(id=id_, title=title, gate=GATE, grant=grant, do=do, look=look, timeout_s=STOP_S)

    def stop(self) -> Mutation:
        """Ends the controller, by force after a while."""
        return self._ending("stop", f"end the controller of {self._t.name}", self.stopping)

    def halt(self) -> Mutation:
        """Ends the one that was started on the checkpoint."""
        return self._ending("halt", f"end the controller of {self._t.name} again", self.undoing[0])

    def restore(self, checkpoint: str, release: str) -> Mutation:
        """Moves the database aside and puts the checkpoint in its place."""

        async def do() -> None:
            words = ["restore", checkpoint, "--mark", self._id, "--state-dir", self._state_dir]
            await to_thread(self._t.host.offline, release, words, RESTORE_S)

        async def look() -> World:
            return World.DONE if (await self._show(release))["mark"] == self._id else World.NOT_DONE

        title = "move the database aside and restore the checkpoint"
        return Mutation(
            id="restore",
            title=title,
            gate=GATE,
            grant=self.restoring(checkpoint),
            do=do,
            look=look,
            timeout_s=RESTORE_S + 60,
        )

    def put_back(self, release: str) -> Mutation:
        """Puts the database of before in its place again, if another one stands there."""

        async def do() -> None:
            found = await self._show(release)
            if found["mark"] != self._id and f"db.aside.{self._id}" not in found["kept"]:
                return  # it never left
            words = ["restore", "--undo", self._id, "--state-dir", self._state_dir]
            await to_thread(self._t.host.offline, release, words, RESTORE_S)

        async def look() -> World:
            return World.DONE if f"db.aside.{self._id}" not in (await self._show(release))["kept"] else World.NOT_DONE

        return Mutation(
            id="put-back",
            title="put the database of before back",
            gate=GATE,
            grant=self.undoing[1],
            do=do,
            look=look,
            timeout_s=RESTORE_S + 60,
        )
