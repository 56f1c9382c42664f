"""The single steps that change a deployed controller and its releases, each with how to tell whether it has happened, and what is looked at
for them.

`restart` and `rollback` put them in order; no other order than theirs is safe. Must never start a release on a database that it may not
know.
"""

from __future__ import annotations

import asyncio
from asyncio import to_thread
from collections.abc import Awaitable, Callable
from typing import Any, Final

from iris_core.contracts import ConnectFailed, ControllerUnhealthy, IrisError, RpcFailed
from iris_core.procedures.events import Evidence, Grant, Mutation, NotStarted, Report, World
from iris_core.procedures.record import Phase
from iris_core.procedures.record_moves import RecordMoves
from iris_core.procedures.source_tree import as_tree

STAGE_S: Final = 2_700.0
READ_S: Final = 300.0
"""What reading all of a checkpoint may take."""
ENDING_S: Final = 90.0
"""What a controller may take to end once its last checkpoint is answered."""
LOST_ANSWER_S: Final = 10.0
LOOK_S: Final = 0.2
BACK_S: Final = 300.0


class Moves(RecordMoves):
    """All the steps of one procedure on one target: those of its lock and record, and these of its host."""

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
            boot = self._boot
            try:
                checkpoint = await self._last_checkpoint(timeout_s)
            except ConnectFailed as error:
                # Whether it was heard is not known: it may still be saving, and end after that. Only asking again tells.
                serving = await self._serving(ENDING_S)
                if serving is None:
                    # Of one that answers in a moment nobody could tell whether it was killed after that, and started again.
                    raise _unheard(error) from error
                boot = serving
                checkpoint = await self._asked_again(timeout_s) if boot else ""
            if not await self._ended(ENDING_S, boot) and boot and (now := await self._boot_now()) != boot:
                # It died after its answer and before its end, and its keeper has started it again, or may have: what that one has taken in
                # is not in this checkpoint.
                checkpoint = await self._asked_again(timeout_s) if now else ""
                ended = not now or await self._ended(ENDING_S, now)
                found = await to_thread(self._t.host.status)
                if not ended:
                    checkpoint = ""
                elif now and not checkpoint and found.ended_boot == now:
                    # It was that one which had answered, to a new try of the client: it was ending already, and has noted what it ended with.
                    checkpoint = found.last_checkpoint
            await to_thread(self._t.host.stop)
            return checkpoint

        return self._stopping(do, 3 * timeout_s + 2 * ENDING_S)

    async def _boot_now(self) -> str:
        """Of the controller that serves, "" = none does."""
        return (await to_thread(self._t.host.status)).boot_id

    async def _serving(self, within_s: float) -> str | None:
        """The boot of the controller that serves, "" = none runs; None: one is there, and in all that time none serves."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while (status := await to_thread(self._t.host.status)).running:
            if status.boot_id:
                return status.boot_id
            if loop.time() >= deadline:
                return None
            await asyncio.sleep(LOOK_S)
        return ""

    async def _asked_again(self, timeout_s: float) -> str:
        """As `_last_checkpoint`, of one that may have been told before. Raises IrisError: whether it was is not known."""
        try:
            return await self._last_checkpoint(timeout_s)
        except ConnectFailed as error:
            raise _unheard(error) from error

    async def _last_checkpoint(self, timeout_s: float) -> str:
        """Its path, "" where the controller ended and its answer was lost. Raises NotStarted: it goes on; ConnectFailed: it still runs."""
        try:
            return await to_thread(self._t.checkpoint, True, timeout_s)
        except ConnectFailed:
            if not await self._ended(LOST_ANSWER_S):
                raise
            return ""
        except IrisError as error:
            # One that ends after another caller's request says so, and then it is gone.
            if isinstance(error, RpcFailed) and error.code == "ending":
                if await self._ended(ENDING_S):
                    return ""
                raise  # it does not go on either
            raise NotStarted(error.message, hint=error.hint) from error

    def stop_plainly(self) -> Mutation:
        """Ends the controller; what it did after its last checkpoint is in its database alone."""

        async def do() -> str:
            await to_thread(self._t.host.stop)
            return ""

        return self._stopping(do, 0.0)

    async def _stopped_by_us(self) -> World:
        """As `_stopped`, of a controller that serves: between its end and the word of its keeper it is neither."""
        boot = await self._serving(LOST_ANSWER_S)
        if boot is None:
            return World.UNKNOWN
        return World.NOT_DONE if boot else World.DONE

    def _stopping(self, do: Callable[[], Awaitable[str]], timeout_s: float) -> Mutation:
        async def stop() -> str:
            # The last moment at which nothing is lost: what was free at the gate may be taken by now.
            try:
                await to_thread(self._t.room)
            except IrisError as error:
                raise NotStarted(error.message, hint=error.hint) from error
            return await do()

        async def nothing_said() -> str:
            return ""

        return self._mutation(
            "stop", "stop the controller", self.stopping, stop, self._stopped_by_us,
            result=nothing_said, generation=self._boot_now if self._boot else None, timeout_s=timeout_s + ENDING_S + 60,
        )  # fmt: skip

    async def _ended(self, within_s: float, boot: str = "") -> bool:
        """Whether it ends in time; with `boot`, not once another one serves in its place."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while (status := await to_thread(self._t.host.status)).running:
            if loop.time() >= deadline or (boot and status.boot_id not in ("", boot)):
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

    def ended_with(self) -> Evidence:
        """The path of the checkpoint that the controller of this boot ended with, as it has noted beside its database.

        Any other one, however new, may lack what was taken in after it. Raises StepFailed: it ended without one, or that is not known.
        """

        async def gather(report: Report) -> str:
            found = await to_thread(self._t.host.status)
            if not found.last_checkpoint or found.ended_boot != self._boot:
                raise IrisError(
                    f"the answer of the controller that was stopped is lost, and which checkpoint it ended with is not known: {found.detail}",
                    hint="restart again",
                )
            return found.last_checkpoint

        return Evidence(id="ended-with", title="the checkpoint that the controller ended with", gather=gather)

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


def _unheard(error: ConnectFailed) -> IrisError:
    return IrisError(f"{error.message}; whether the controller was told to end is not known", hint=error.hint)
