"""Checkpoints of a running controller: on request, from time to time, and who may take them.

The work is done by a process of its own (`child`), which is ended when it takes too long: a store that fails or hangs is a normal
state, told in `/readyz` and tried again. `last_checkpoint_epoch_ms` is written into the live database only after the manifest is in
the store. Must never touch the store or the disk on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from iris_controller.checkpoint import owner as owners
from iris_controller.checkpoint.layout import KEEP_MS, SCRATCH, Manifest, folder_of
from iris_controller.children import Child
from iris_controller.rpc.errors import RpcError, unavailable
from iris_controller.rpc.once import Once, remember
from iris_core.wire.gen.iris.v1 import checkpoints_pb2, watch_rows_pb2
from providers.local import last_checkpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from iris_controller.checkpoint.owner import Owner
    from iris_controller.loop import ControllerLoop
    from iris_controller.rpc.call import Call
    from iris_controller.rpc.dispatch import Router
    from iris_controller.state.overlay import Overlay
    from iris_controller.store.database import StateDir
    from iris_controller.store.writer import Writer

log = logging.getLogger("iris.checkpoint")

LONGEST_S: Final = 900.0
"""After so long a child is ended."""
RETRY_S: Final = 60.0
FIRST_S: Final = 300.0
"""After the start of a controller that never had one."""
CLAIM_S: Final = 10.0
SOON_S: Final = 10.0
"""After the start of a controller whose last one is older than the interval."""
ANSWER_S: Final = 1.0
"""Of the caller's time that is kept for the answer."""
META: Final = "last_checkpoint_epoch_ms"


class Checkpoints:
    """See the module. `remote` is the URL of the remote state dir; `owner` is None where nobody else can reach it, and `claim` is set
    once it has claimed it. `stop` ends this controller; None = it does not end at an RPC's word."""

    def __init__(
        self,
        loop: ControllerLoop,
        state: StateDir,
        remote: str,
        once: Once,
        *,
        interval_s: float,
        last_ms: int,
        cluster: str = "",
        keep_ms: int = KEEP_MS,
        owner: Owner | None = None,
        claim: asyncio.Event | None = None,
        dry_run: bool = False,
        stop: Callable[[], None] | None = None,
        boot_id: str = "",
    ) -> None:
        self._loop = loop
        self._database = state.database
        self._scratch: Path = state.path / SCRATCH
        self._remote = remote
        self._once = once
        self._interval_s = interval_s
        self._last_ms = last_ms
        self._cluster = cluster
        self._keep_ms = keep_ms
        self._owner = owner
        self._claim = claim
        self._dry_run = dry_run
        self._stop = stop
        self._state_dir = state.path
        self._boot_id = boot_id
        self._ending = False
        """The last one was taken, and this controller ends: no other one follows, and nothing is taken in again."""
        self._taking = asyncio.Lock()
        self._changes = -1
        """Of the loop, before the last one was taken; what has not changed since need not be copied again."""
        self._failure = ""
        self._size_bytes = 0
        self._due_ms = 0
        self._pruning: set[asyncio.Task[None]] = set()

    def register(self, router: Router) -> None:
        router.add("ControllerService/BeginCheckpoint", self.begin_checkpoint)

    async def begin_checkpoint(
        self, request: checkpoints_pb2.BeginCheckpointRequest, call: Call
    ) -> checkpoints_pb2.BeginCheckpointResponse:
        async def work() -> checkpoints_pb2.BeginCheckpointResponse:
            await call.recheck(self._loop)
            if request.stop:
                return await self._take_and_stop(call)
            return await self.take(call.identity.principal, call)

        return await self._once.run(call, checkpoints_pb2.BeginCheckpointResponse, work)

    async def _take_and_stop(self, call: Call) -> checkpoints_pb2.BeginCheckpointResponse:
        """Takes the last one: from here on nothing changes any more, and with its answer this controller ends. Where it fails, or the
        caller's time is over, everything goes on as before. Raises RpcError."""
        if self._stop is None:
            raise RpcError(
                "FAILED_PRECONDITION", "this controller ends with whoever started it", code="embedded", hint="end that"
            )
        left_s = call.time_left_s()
        try:
            async with asyncio.timeout(None if left_s is None else max(left_s - ANSWER_S, 0.0)):
                made = await self.take(call.identity.principal, call, last=True)
        except TimeoutError:
            raise RpcError(
                "DEADLINE_EXCEEDED",
                "the checkpoint was not finished in the time that was given; the controller goes on",
                code="too_slow",
            ) from None
        if call.cancelled.is_set():
            # Nobody knows of it: whoever asked must not find a controller gone that he takes for running.
            self._loop.resume()
            raise RpcError("CANCELLED", "the caller went away; the controller goes on", code="cancelled")
        log.info("ending after the checkpoint %s", made.checkpoint_path)
        self._ending = True
        try:
            # For whoever asked and does not hear the answer; from here on there is no way but the end.
            await asyncio.to_thread(last_checkpoint.note, self._state_dir, self._boot_id, made.checkpoint_path)
        except OSError as error:
            log.warning("that this was the last checkpoint is not written down: %s", error)
        finally:
            self._stop()
        return made

    async def run(self) -> None:
        """Takes one from time to time, for ever."""
        due_s = self._last_ms / 1000 + self._interval_s - self._loop.now_ms() / 1000 if self._last_ms else FIRST_S
        # Not while it still starts; and a clock that was set back puts nothing off for longer than usual.
        wait_s = min(max(due_s, SOON_S), self._interval_s)
        while True:
            self._due_ms = self._loop.now_ms() + int(wait_s * 1000) if not self._dry_run else 0
            await asyncio.sleep(wait_s)
            wait_s = self._interval_s
            if self._dry_run or self._loop.stats.changes == self._changes:
                continue
            try:
                await self.take("timer")
            except RpcError as error:
                log.warning("%s", error.message)
                wait_s = min(RETRY_S, self._interval_s)

    def problem(self) -> str:
        """What `/readyz` says, "" when the last one was taken as it should be."""
        if not self._failure:
            return ""
        since = f"the last one is of {_utc(self._last_ms)}" if self._last_ms else "there is none yet"
        return f"checkpoints fail: {self._failure}; {since}"

    def condition(self) -> watch_rows_pb2.CheckpointCondition:
        """How they stand: when the last one was taken, and when the next one is due if something changes until then."""
        return watch_rows_pb2.CheckpointCondition(
            last_at_ms=self._last_ms,
            size_bytes=self._size_bytes,
            next_due_ms=self._due_ms,
            failure=self._failure,
            place=self._remote,
            taking=self._taking.locked(),
        )

    async def take(
        self, trigger: str, call: Call | None = None, *, last: bool = False
    ) -> checkpoints_pb2.BeginCheckpointResponse:
        """Takes one now; what was acknowledged before is in it. With `last`, nothing is taken in from its beginning on, until the loop
        is told to `resume`; where it fails, the loop goes on. Raises RpcError."""
        if self._dry_run:
            raise RpcError("FAILED_PRECONDITION", "a dry run takes no checkpoints", code="dry_run")
        async with self._taking:
            if self._ending:
                raise RpcError("UNAVAILABLE", "this controller ends after its last checkpoint", code="ending")
            if not last:
                return await self._take(trigger, call)
            # Only here, in its turn: whoever gives up while it waits must not let go what another one's last checkpoint holds.
            try:
                await self._loop.hold("its last checkpoint is taken, then it ends")
                return await self._take(trigger, call, by_holder=True)
            except BaseException:
                self._loop.resume()
                raise

    async def _take(
        self, trigger: str, call: Call | None, *, by_holder: bool = False
    ) -> checkpoints_pb2.BeginCheckpointResponse:
        changes = self._loop.stats.changes
        await self._claimed()
        made = await self._make()
        response = checkpoints_pb2.BeginCheckpointResponse(
            checkpoint_path=f"{self._remote}/{folder_of(made.epoch_ms)}",
            created_at_ms=made.epoch_ms,
            job_count=made.jobs,
            task_count=made.tasks,
            worker_count=made.workers,
            size_bytes=made.size_bytes,
        )

        def plan(o: Overlay, now_ms: int) -> None:
            o.meta[META] = made.epoch_ms
            path = response.checkpoint_path
            o.note("checkpoint_taken", path, trigger, bytes=made.size_bytes, jobs=made.jobs, tasks=made.tasks)
            if call is not None:
                remember(o, call, response)

        await self._loop.submit("checkpoint taken", plan, by_holder=by_holder)
        self._last_ms, self._failure, self._changes = made.epoch_ms, "", changes
        self._size_bytes = made.size_bytes
        task = asyncio.create_task(self._prune(made.epoch_ms), name="prune checkpoints")
        self._pruning.add(task)
        task.add_done_callback(self._pruning.discard)
        return response

    async def _claimed(self) -> None:
        """A controller that has just started may not have claimed the remote state dir yet, where an earlier claim still stands."""
        if self._claim is not None:
            with contextlib.suppress(TimeoutError):
                # Not `wait_for`, which may swallow the cancellation of a call whose time is over.
                async with asyncio.timeout(CLAIM_S):
                    await self._claim.wait()

    async def _make(self) -> Manifest:
        try:
            await asyncio.to_thread(_empty, self._scratch)
            try:
                outcome = await self._child(
                    do="write",
                    database=str(self._database),
                    scratch=str(self._scratch),
                    now_ms=self._loop.now_ms(),
                    after_ms=self._last_ms,
                    cluster=self._cluster,
                )
            finally:
                await asyncio.to_thread(shutil.rmtree, self._scratch, True)
        except OSError as error:
            outcome = {"failed": f"the checkpoint cannot be made: {error}"}
        if "done" in outcome:
            return Manifest(**outcome["done"])
        self._failure = str(outcome.get("failed") or outcome.get("fenced") or "its process ended without a word")
        raise unavailable(
            f"the checkpoint failed: {self._failure}",
            code="checkpoint_failed",
            subject=self._remote,
            hint="the one before it can still be restored",
            retry_after_ms=int(RETRY_S * 1000),
        )

    async def _prune(self, newest_ms: int) -> None:
        outcome = await self._child(do="prune", newest_ms=newest_ms, keep_ms=self._keep_ms)
        if outcome.get("done"):
            log.info("pruned %d old checkpoints", len(outcome["done"]))
        elif "done" not in outcome:
            log.warning(
                "old checkpoints were not pruned: %s", outcome.get("failed") or outcome.get("fenced") or "no answer"
            )

    async def _child(self, **task: Any) -> dict[str, Any]:
        """Runs one; never raises but for cancellation."""
        words = {**task, "remote": self._remote, "claim": self._owner.claim if self._owner is not None else ""}
        try:
            process = await Child.start([sys.executable, "-m", "iris_controller.checkpoint.child"])
        except OSError as error:
            return {"failed": f"its process cannot be started: {error.strerror}"}
        stage, outcome = "start", dict[str, Any]()
        try:
            async with asyncio.timeout(LONGEST_S):
                process.stdin.write(json.dumps(words).encode() + b"\n")
                async for line in process.stdout:
                    said = json.loads(line)
                    stage = said.get("stage", stage)
                    outcome = said if "stage" not in said else {}
        except TimeoutError:
            return {"failed": f"it was ended after {LONGEST_S:.0f} s at the stage {stage!r}"}
        except (OSError, ValueError):
            return {"failed": f"its process broke down at the stage {stage!r}"}
        finally:
            with contextlib.suppress(TimeoutError):
                # One that hangs in the kernel cannot be waited for.
                async with asyncio.timeout(5.0):
                    await process.end()
        return outcome or {"failed": f"its process ended at the stage {stage!r}"}

    async def close(self) -> None:
        """Ends what is under way after an answer was given."""
        for task in list(self._pruning):
            task.cancel()
        await asyncio.gather(*self._pruning, return_exceptions=True)


class Fence:
    """Watches the claim from a thread of its own, which a hanging store holds up alone, and stops every write once it is lost.

    `stop_acting` ends what would change the world outside: machines belong to the new owner now.
    """

    def __init__(
        self, owner: Owner, loop: ControllerLoop, writer: Writer, stop_acting: Callable[[], Awaitable[None]]
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._writer = writer
        self._stop_acting = stop_acting
        self.claimed = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._closing = threading.Event()
        self._looked_at = time.monotonic()

    def start(self) -> None:
        """On the event loop."""
        running = asyncio.get_running_loop()
        threading.Thread(target=self._watch, args=(running,), name="checkpoint-owner", daemon=True).start()

    def _watch(self, running: asyncio.AbstractEventLoop) -> None:
        while not self._closing.is_set():
            self._owner.check()
            self._looked_at = time.monotonic()
            # The loop may have been closed meanwhile.
            with contextlib.suppress(RuntimeError):
                if self._owner.claimed:
                    running.call_soon_threadsafe(self.claimed.set)
                if self._owner.lost:
                    running.call_soon_threadsafe(self._lost)
            if self._owner.lost:
                return
            self._closing.wait(owners.CHECK_S)

    def _lost(self) -> None:
        log.error("fenced: %s; this controller writes nothing any more", self._owner.lost)
        self._writer.refuse(self._owner.lost)
        self._stopping = asyncio.create_task(self._stop(), name="fence")

    async def _stop(self) -> None:
        # First those who would take the refusal of their commands for a fault.
        try:
            await self._stop_acting()
        finally:
            self._loop.fence(self._owner.lost)

    def problem(self) -> str:
        """What `/readyz` says, "" when the remote state dir is ours."""
        if self._owner.lost:
            return f"fenced: {self._owner.lost}"
        silent_s = time.monotonic() - self._looked_at
        if silent_s > 60 + owners.CHECK_S:
            return (
                f"whether the remote state dir is still ours is not known: its store is silent since {silent_s:.0f} s"
            )
        return self._owner.problem

    def close(self) -> None:
        self._closing.set()


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)


def _utc(epoch_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(epoch_ms / 1000))
