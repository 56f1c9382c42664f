"""The single steps that change a deployed controller, its record and its lock, each with how to tell whether it has happened.

`restart` and `rollback` put them in order; no other order than theirs is safe. The record moves by compare-and-set alone, along
`record`'s transitions: what a controller on probation has decided meanwhile stands, and whoever comes later obeys. Must never start a
release on a database that it may not know.
"""

from __future__ import annotations

import asyncio
from asyncio import to_thread
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import ConnectFailed, ControllerUnhealthy, GenerationMismatch, IrisError
from iris_core.procedures import lock, record
from iris_core.procedures.events import Evidence, Grant, Mutation, NotStarted, Report, World
from iris_core.procedures.record import Phase, RolloutRecord
from iris_core.procedures.source_tree import as_tree

if TYPE_CHECKING:
    from iris_core.procedures.target import Target

STAGE_S: Final = 2_700.0
READ_S: Final = 300.0
"""What reading all of a checkpoint may take."""
ENDING_S: Final = 90.0
"""What a controller may take to end once its last checkpoint is answered."""
LOST_ANSWER_S: Final = 10.0
LOOK_S: Final = 0.2
BACK_S: Final = 300.0


class Moves:
    """The steps of one procedure on one target, from release `old`, running as boot `boot`, to release `new`, under one gate.

    `before` is the record that stood, as JSON, "" = there was none. Each method that gives a Mutation has its grant among `grants`.
    """

    def __init__(self, target: Target, gate: str, *, old: str, new: str, boot: str, before: str) -> None:
        self._t = target
        self._gate = gate
        self._old = old
        self._new = new
        self._boot = boot
        self._before = before

    def _mutation(self, id_: str, title: str, grant: Grant, do: Any, look: Any, **more: Any) -> Mutation:
        return Mutation(id=id_, title=title, gate=self._gate, grant=grant, do=do, look=look, **more)

    # --- lock --------------------------------------------------------------------------------------------------------

    @property
    def _take(self) -> Grant:
        return Grant("take", "lock", self._t.name)

    @property
    def _give(self) -> Grant:
        return Grant("give back", "lock", self._t.name)

    @property
    def locking(self) -> tuple[Grant, ...]:
        """Of `lock` and `unlock`."""
        return self._take, self._give

    def lock(self) -> Mutation:
        """Takes the lock of the cluster, which nobody may have changed since it was looked at: a gate can stand open for hours."""

        async def do() -> None:
            try:
                await to_thread(lock.acquire, self._t.store, self._t.holder)
            except lock.LockHeld as error:
                raise NotStarted(error.message, hint=error.hint) from error
            try:
                self._same(await self.standing())
            except IrisError as error:
                await to_thread(lock.release, self._t.store, self._t.holder.procedure)
                raise NotStarted(error.message, hint=error.hint) from error

        return self._mutation("lock", f"take the lock of {self._t.name}", self._take, do, self._locked)

    def unlock(self) -> Mutation:
        """Gives it back, if it is ours."""

        async def do() -> None:
            await to_thread(lock.release, self._t.store, self._t.holder.procedure)

        async def look() -> World:
            return World.NOT_DONE if await self._locked() is World.DONE else World.DONE

        return self._mutation("unlock", "give the lock back", self._give, do, look)

    async def _locked(self) -> World:
        holder = (await to_thread(lock.read, self._t.store)).holder
        return World.DONE if holder is not None and holder.procedure == self._t.holder.procedure else World.NOT_DONE

    # --- record ------------------------------------------------------------------------------------------------------

    async def standing(self) -> record.Standing:
        """The record that stands now."""
        return await to_thread(record.read, self._t.store)

    def _same(self, standing: record.Standing) -> None:
        """Raises NotStarted: the record is not the one that the approval rests on."""
        found = standing.record
        if (found.to_json().decode() if found is not None else "") != self._before:
            said = f"{found.phase} of {found.image[:12]}" if found is not None else "that there is no deployment"
            raise NotStarted(
                f"{self._t.name} was changed since it was looked at: the record says {said} now",
                hint="look again and plan anew",
            )

    async def _write(self, made: RolloutRecord, standing: record.Standing) -> None:
        await to_thread(record.write, self._t.store, made, standing)

    async def _phase(self) -> tuple[Phase | None, str, str]:
        found = (await self.standing()).record
        return (found.phase, found.image, found.rollback_checkpoint) if found is not None else (None, "", "")

    @property
    def recording(self) -> tuple[Grant, ...]:
        """Of the record's mutations that a restart makes."""
        return (
            Grant("write pending", "record", self._new),
            Grant("name the last checkpoint in", "record", self._new),
            Grant("write committed", "record", self._new),
            Grant("restore", "record", self._old),
        )

    def pending(self, checkpoint: str) -> Mutation:
        """The record says that the new release is pending, and what it replaces."""

        async def do() -> None:
            now, standing = self._t.now_ms(), await self.standing()
            self._same(standing)  # also where the lock was broken under it
            if standing.record is not None and standing.record.phase is Phase.PENDING:
                # Left by a deployment that never ran, or was seen through: what runs is what is deployed.
                ran = replace(standing.record, phase=Phase.COMMITTED, image=self._old)
                standing = record.Standing(ran, standing.generation)
            made = record.pending(standing, self._new, checkpoint, now)
            await self._write(replace(made, previous_image=self._old), standing)

        return self._mutation("pending", "write the record: pending", self.recording[0], do, self._is_pending)

    async def _is_pending(self) -> World:
        return World.DONE if (await self._phase())[:2] == (Phase.PENDING, self._new) else World.NOT_DONE

    def name_last(self, checkpoint: str) -> Mutation:
        """The pending record names the checkpoint that the old release wrote when it ended."""

        async def do() -> None:
            standing = await self.standing()
            record.committed(standing, self._new, 0)  # refuses unless it is pending for this release
            assert standing.record is not None
            made = replace(standing.record, rollback_checkpoint=checkpoint, updated_at_ms=self._t.now_ms(), whole=True)
            await self._write(made, standing)

        async def look() -> World:
            return World.DONE if (await self._phase())[2] == checkpoint else World.NOT_DONE

        return self._mutation("last", "name the last checkpoint", self.recording[1], do, look)

    def commit(self) -> Mutation:
        """The record says that the new release is committed; if its controller wrote that first, it is done."""

        async def do() -> None:
            if await self._is_committed() is World.DONE:
                return
            standing = await self.standing()
            try:
                await self._write(record.committed(standing, self._new, self._t.now_ms()), standing)
            except IrisError:
                if await self._is_committed() is not World.DONE:
                    raise

        return self._mutation("commit", "write the record: committed", self.recording[2], do, self._is_committed)

    async def _is_committed(self) -> World:
        return World.DONE if (await self._phase())[:2] == (Phase.COMMITTED, self._new) else World.NOT_DONE

    def restore(self) -> Mutation:
        """Writes what stood before over our own pending record, and over nothing else: no later boot may act on that."""

        async def do() -> None:
            standing = await self.standing()
            if await self._is_pending() is not World.DONE:
                return
            made = record.parse(self._before.encode()) if self._before else None
            if made is None or made.phase is Phase.PENDING:
                made = RolloutRecord(Phase.COMMITTED, self._old, updated_at_ms=self._t.now_ms())
            await self._write(made, standing)

        async def look() -> World:
            return World.NOT_DONE if await self._is_pending() is World.DONE else World.DONE

        return self._mutation("restore", "restore the record", self.recording[3], do, look)

    @property
    def requesting(self) -> Grant:
        """Of `request`."""
        return Grant("ask for a rollback in", "record", self._old)

    def request(self, checkpoint: str, *, from_phase: Phase) -> Mutation:
        """The record asks for a rollback to the old release: its next boot restores the checkpoint, "" = it keeps the database.

        It is written over that phase alone: fails untouched if the controller has ended its probation by itself.
        """

        async def do() -> None:
            standing = await self.standing()
            found = standing.record
            if found is None or (found.phase, found.image) != (from_phase, self._new):
                raise NotStarted(f"the record is not {from_phase} for {self._new[:12]} any more")
            made = record.rollback_requested(standing, self._t.now_ms())
            made = replace(made, image=self._old, rollback_checkpoint=checkpoint)
            try:
                await self._write(made, standing)
            except GenerationMismatch as error:
                raise NotStarted(error.message) from error

        async def look() -> World:
            phase, image, _ = await self._phase()
            asked = phase in (Phase.ROLLBACK_REQUESTED, Phase.ROLLED_BACK) and image == self._old
            return World.DONE if asked else World.NOT_DONE

        return self._mutation("request", "write the record: rollback requested", self.requesting, do, look)

    # --- releases and checkpoints ------------------------------------------------------------------------------------

    @property
    def preparing(self) -> tuple[Grant, ...]:
        """Of `stage` and `save`."""
        return Grant("stage", "release", self._new), Grant("save", "checkpoint", self._t.name)

    def stage(self, tree: dict[str, Any]) -> Mutation:
        """Builds the release and puts it where it can be started."""

        async def do() -> None:
            built = await to_thread(self._t.build, as_tree(tree))
            if built != tree["id"]:
                raise IrisError(f"{built[:12]} was built instead of {tree['id'][:12]}")
            await to_thread(self._t.host.stage, built)

        title = f"build and stage {self._new[:12]}"
        return self._mutation("stage", title, self.preparing[0], do, _not_done, timeout_s=STAGE_S)

    @property
    def restaging(self) -> Grant:
        """Of `stage_old`."""
        return Grant("stage", "release", self._old)

    def stage_old(self) -> Mutation:
        """Sees to it that the old release can be started."""

        async def do() -> None:
            await to_thread(self._t.host.stage, self._old)

        title = f"see that {self._old[:12]} can be started"
        return self._mutation("stage", title, self.restaging, do, _not_done, timeout_s=STAGE_S)

    def save(self, timeout_s: float) -> Mutation:
        """A first checkpoint: it proves that one works. Comes back as its path."""

        async def do() -> str:
            return await to_thread(self._t.checkpoint, False, timeout_s)

        return self._mutation(
            "checkpoint", "take a checkpoint", self.preparing[1], do, _not_done, timeout_s=timeout_s + 60
        )

    # --- the controller ----------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> Grant:
        """Of `stop` and `stop_plainly`."""
        return Grant("stop", "controller", self._t.name, self._boot)

    def stop(self, timeout_s: float) -> Mutation:
        """Has the controller take its last checkpoint and end. Comes back as the path, "" if nobody heard it."""

        async def do() -> str:
            checkpoint = ""
            try:
                checkpoint = await to_thread(self._t.checkpoint, True, timeout_s)
            except ConnectFailed as error:
                # Its answer may be lost while it ends.
                if not await self._ended(LOST_ANSWER_S):
                    raise NotStarted(f"{error.message}; the controller goes on", hint=error.hint) from error
            except IrisError as error:
                raise NotStarted(error.message, hint=error.hint) from error
            await self._ended(ENDING_S)
            await to_thread(self._t.host.stop)
            return checkpoint

        return self._stopping(do, timeout_s)

    def stop_plainly(self) -> Mutation:
        """Ends the controller; what it did after its last checkpoint is in its database alone."""

        async def do() -> str:
            await to_thread(self._t.host.stop)
            return ""

        return self._stopping(do, 0.0)

    def _stopping(self, do: Callable[[], Awaitable[str]], timeout_s: float) -> Mutation:
        async def boot() -> str:
            return (await to_thread(self._t.host.status)).boot_id

        async def nothing_said() -> str:
            return ""

        return self._mutation(
            "stop", "stop the controller", self.stopping, do, self._stopped,
            result=nothing_said, generation=boot if self._boot else None, timeout_s=timeout_s + ENDING_S + 60,
        )  # fmt: skip

    async def _ended(self, within_s: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while (await to_thread(self._t.host.status)).running:
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def _stopped(self) -> World:
        return World.NOT_DONE if (await to_thread(self._t.host.status)).running else World.DONE

    @property
    def starting(self) -> Grant:
        """Of `start`."""
        return Grant("start", "release", self._new)

    def start(self) -> Mutation:
        """Starts the new release."""

        async def do() -> None:
            await to_thread(self._t.host.start, self._new)

        async def look() -> World:
            return await self._runs(self._new)

        return self._mutation("start", f"start {self._new[:12]}", self.starting, do, look)

    @property
    def returning(self) -> tuple[Grant, ...]:
        """Of `halt` and `back`."""
        return Grant("halt", "release", self._new), Grant("start again", "release", self._old)

    def halt(self) -> Mutation:
        """Ends the new release."""

        async def do() -> None:
            await to_thread(self._t.host.stop)

        title = f"stop {self._new[:12]}"
        return self._mutation("halt", title, self.returning[0], do, self._stopped, timeout_s=BACK_S)

    def back(self) -> Mutation:
        """Starts the old release in the place of whatever runs."""

        async def do() -> None:
            await to_thread(self._t.host.stop)
            await to_thread(self._t.host.start, self._old)

        async def look() -> World:
            return await self._runs(self._old)

        title = f"start {self._old[:12]} again"
        return self._mutation("back", title, self.returning[1], do, look, timeout_s=BACK_S)

    async def _runs(self, release: str) -> World:
        status = await to_thread(self._t.host.status)
        return World.DONE if status.running and status.release == release else World.NOT_DONE

    # --- evidence ----------------------------------------------------------------------------------------------------

    def health(self, id_: str, release: str, *, marked: bool = False) -> Evidence:
        """Waits until a release answers; with `marked`, a rollback must be marked as done, too."""

        async def gather(report: Report) -> dict[str, Any]:
            try:
                status = await to_thread(self._t.host.await_healthy, self._t.health_s)
            except ControllerUnhealthy as error:
                report({"lines": list(error.lines)})
                raise
            if status.release != release:
                raise IrisError(f"{status.release[:12]} runs instead of {release[:12]}")
            if marked and (found := (await self._phase())[:2]) != (Phase.ROLLED_BACK, release):
                raise IrisError(f"{release[:12]} serves, and the record says {found[0]} of {found[1][:12]}")
            return {"url": status.url, "boot_id": status.boot_id}

        title = "health" if release == self._new else "health of the release before"
        return Evidence(id=id_, title=title, gather=gather, timeout_s=self._t.health_s + 60)

    def same_schema(self) -> Evidence:
        """Whether both releases know the same database."""

        async def gather(report: Report) -> bool:
            return list(await to_thread(self._t.schema, self._new)) == list(await to_thread(self._t.schema, self._old))

        return Evidence(id="schema", title="the database of both releases", gather=gather)

    def newest(self, id_: str) -> Evidence:
        """The path of the newest checkpoint with a valid manifest, "" = there is none."""

        async def gather(report: Report) -> str:
            found = await to_thread(self._t.newest)
            return found.path if found is not None else ""

        return Evidence(id=id_, title="the newest checkpoint", gather=gather)

    def newest_whole(self, id_: str) -> Evidence:
        """The newest checkpoint of which all can be read: {"path", "age_ms", "passed_over"}; path "" = there is none.

        `passed_over` has a line for each newer one, which cannot be gone back to.
        """

        async def gather(report: Report) -> dict[str, Any]:
            passed_over: list[str] = []
            found = await to_thread(self._t.newest_whole, passed_over)
            path, epoch_ms = (found.path, found.epoch_ms) if found is not None else ("", self._t.now_ms())
            return {"path": path, "age_ms": max(self._t.now_ms() - epoch_ms, 0), "passed_over": passed_over}

        return Evidence(id=id_, title="the newest checkpoint, read whole", gather=gather, timeout_s=READ_S)

    def committed_itself(self) -> Evidence:
        """Whether the record says that the new release is committed: its controller wrote that."""

        async def gather(report: Report) -> bool:
            return await self._is_committed() is World.DONE

        return Evidence(id="committed-itself", title="what the record says", gather=gather)

    def still_runs(self) -> Evidence:
        """Whether a controller runs now."""

        async def gather(report: Report) -> bool:
            return (await to_thread(self._t.host.status)).running

        return Evidence(id="still-runs", title="whether the controller still runs", gather=gather)


async def _not_done() -> World:
    """Of what may be done twice."""
    return World.NOT_DONE
