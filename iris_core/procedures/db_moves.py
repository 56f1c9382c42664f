"""The single steps of the runbook for a controller that is wedged by its own database, and what is looked at for them.

All of it is done beside the controller, by the program of its release. Must never ask the controller anything, nor delete a database.
"""

from __future__ import annotations

import json
from asyncio import to_thread
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError
from iris_core.procedures import lock, record
from iris_core.procedures.events import Grant, Mutation, Report, World
from iris_core.procedures.record import Phase

if TYPE_CHECKING:
    from iris_core.procedures.target import Target

GATE: Final = "db-rollback"
KILL_S: Final = 10.0
"""What a controller that is to be ended may take; one that hangs ends by force."""
STOP_S: Final = 180.0
RESTORE_S: Final = 1_800.0
SHOW_S: Final = 90.0


class DbMoves:
    """The steps of one procedure on one target. `id_` names the restore, `gate` what approved it."""

    def __init__(self, target: Target, state_dir: str, id_: str, gate: str = GATE) -> None:
        self._t = target
        self._state_dir = state_dir
        self._id = id_
        self._gate = gate

    def under(self, gate: str) -> DbMoves:
        """The same steps, approved by another gate."""
        return DbMoves(self._t, self._state_dir, self._id, gate)

    # --- evidence ------------------------------------------------------------------------------------------------

    async def preflight(self, report: Report) -> dict[str, Any]:
        """Raises IrisError: another procedure is at work, or it is not known what to start."""
        t = self._t
        await to_thread(lock.require_free, t.store, t.now_ms(), t.holder.procedure, t.program)
        standing = (await to_thread(record.read, t.store)).record
        if standing is not None and standing.phase is Phase.ROLLBACK_REQUESTED:
            raise IrisError(
                f"the record asks for a rollback to {standing.image[:12]}, which the next start would do over this",
                hint=record.go_on(t.program),
            )
        status = await to_thread(t.host.status)
        release = status.release or (standing.image if standing is not None else "")
        if not release:
            raise IrisError(f"nothing was ever deployed for {t.name}", hint=f"deploy it: {t.controller('start')}")
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
            "asks_again": True,
            "record": standing.to_json().decode() if standing is not None else "",
        }

    def saved(self, checkpoint: str, release: str) -> Any:
        async def gather(report: Report) -> dict[str, Any]:
            found = await to_thread(self._t.saved, checkpoint)
            known = list(await to_thread(self._t.schema, release))
            if found.schema and found.schema not in known:
                raise IrisError(
                    f"the checkpoint {found.path} has migration {found.schema}, which {release[:12]} does not know",
                    hint=f"choose an earlier one; they are listed by: {self._t.program} runbook db-rollback",
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

        return Mutation(id=id_, title=title, gate=self._gate, grant=grant, do=do, look=look, timeout_s=STOP_S)

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
            gate=self._gate,
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
            gate=self._gate,
            grant=self.undoing[1],
            do=do,
            look=look,
            timeout_s=RESTORE_S + 60,
        )
