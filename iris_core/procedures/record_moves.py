"""The single steps that change the lock and the record of a deployed controller, each with how to tell whether it has happened.

The record moves by compare-and-set alone, along `record`'s transitions: what a controller on probation has decided meanwhile stands, and
whoever comes later obeys. Must never write over a record that is not the one its procedure looked at, or wrote.
"""

from __future__ import annotations

from asyncio import to_thread
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from iris_core.contracts import GenerationMismatch, IrisError
from iris_core.procedures import lock, record
from iris_core.procedures.events import Grant, Mutation, NotStarted, World
from iris_core.procedures.record import Phase, RolloutRecord

if TYPE_CHECKING:
    from iris_core.procedures.target import Target


class RecordMoves:
    """The steps of one procedure on one target, from release `old`, running as boot `boot`, to release `new`, under one gate.

    `before` is the record that stood, as JSON, "" = there was none. The grant of each Mutation
    is in a property that names the method.
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
                await to_thread(lock.acquire, self._t.store, self._t.holder, self._t.program)
            except lock.LockHeld as error:
                raise NotStarted(error.message, hint=error.hint) from error
            try:
                self._same(await self.standing())
            except IrisError as error:
                await to_thread(lock.release, self._t.store, self._t.holder.procedure, self._t.program)
                raise NotStarted(error.message, hint=error.hint) from error

        return self._mutation("lock", f"take the lock of {self._t.name}", self._take, do, self._locked)

    def unlock(self) -> Mutation:
        """Gives it back, if it is ours."""

        async def do() -> None:
            await to_thread(lock.release, self._t.store, self._t.holder.procedure, self._t.program)

        async def look() -> World:
            return World.NOT_DONE if await self._locked() is World.DONE else World.DONE

        return self._mutation("unlock", "give the lock back", self._give, do, look)

    async def _locked(self) -> World:
        holder = (await to_thread(lock.read, self._t.store, self._t.program)).holder
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
            made = record.pending(standing, self._new, checkpoint, now, self._t.program)
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
            made = record.rollback_requested(standing, self._t.now_ms(), self._t.program)
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
