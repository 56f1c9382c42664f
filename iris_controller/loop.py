"""The heart: every mutation is a command in one FIFO, one batch at a time.

A batch is planned in order against model + overlay, handed to the writer as one transaction, and only when that is durable
applied, answered, dispatched and published. If the commit fails the overlay is dropped, every command of the batch fails with
UNAVAILABLE, and the model is as it was. At most one batch is in flight; nothing else writes (DESIGN §4).

A command's plan must refuse before it changes anything: a refusal leaves the rest of its batch standing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from iris_controller.audit import audit
from iris_controller.commits import Command, Commits, Committed, LoopStats, Plan, Ticker
from iris_controller.crowd import Crowd
from iris_controller.quiet import Repeats
from iris_controller.rpc.errors import RpcError
from iris_controller.slicing import Slicing
from iris_controller.state import kernel
from iris_controller.state.changes import Changes
from iris_controller.state.model import Model
from iris_controller.state.overlay import AuditEvent, Overlay
from iris_controller.store import encode
from iris_controller.store.writer import CommitFailed
from iris_controller.write_gate import WriteGate, shutting_down, unwritable

log = logging.getLogger("iris.loop")

T = TypeVar("T")

BATCH_COMMANDS = 1_000
BATCH_SECONDS = 0.02
RETRY_SECONDS = 1.0
ANSWERS_KEPT_MS = 24 * 3_600_000
FORGET_EVERY_MS = 600_000
LAG_WARNING_S = 0.25
HOLD_LOOK_S = 0.05
LONG_PLAN_S = 0.005
"""A batch that took longer to plan lets others run before it is written down."""


class ControllerLoop:
    """See the module. `on_commit` is called in order for every committed batch and must not block."""

    def __init__(
        self,
        model: Model,
        writer: Commits,
        ticker: Ticker,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        crowd: Crowd | None = None,
    ) -> None:
        self.model = model
        self.stats = LoopStats()
        self.n = 0
        self._writer = writer
        self._ticker = ticker
        self._wall_ms = wall_ms
        self._queue: deque[Command[Any]] = deque()
        self._wake = asyncio.Event()
        self._listeners: list[Callable[[Committed], None]] = []
        self._gate = WriteGate()
        self._slicing = Slicing(model, ticker, self._gate)
        self._parked: list[Command[Any]] = []
        """The controller's own commands that came while the gate was held."""
        self._forgot_ms = 0
        self._in_hand: list[Command[Any]] = []
        """The commands of the batch that is planned or being written."""
        self._busy = False
        """There is such a batch; one that is a slice of the scheduler alone has no commands."""
        self._single = 0
        """So many commands are to be taken one by one."""
        self._failed_in_a_row = 0
        self._committed = asyncio.Condition()
        self._repeats = Repeats()
        self._crowd = crowd or Crowd()
        self._enough = 1
        """With so many commands in the queue the loop is woken."""

    def on_commit(self, listener: Callable[[Committed], None]) -> None:
        self._listeners.append(listener)

    @property
    def depth(self) -> int:
        """Commands that wait."""
        return len(self._queue)

    @property
    def in_hand(self) -> int:
        """Commands of the batch that is planned or written."""
        return len(self._in_hand)

    def now_ms(self) -> int:
        return self._wall_ms()

    async def submit(self, name: str, plan: Plan[T], *, by_holder: bool = False) -> T:
        """Runs a command and returns its result once it is durable; `by_holder` also while `hold` keeps others out. Raises RpcError."""
        self._gate.require_open(by_holder=by_holder)
        command: Command[T] = Command(name, plan, asyncio.get_running_loop().create_future())
        self._enqueue(command)
        # Nobody else waits for it: a caller who leaves ends the answer alone, the command is carried out.
        return await command.done

    def post(self, name: str, plan: Plan[T]) -> asyncio.Future[T]:
        """Queues a command of the controller's own: it is retried until its commit succeeds."""
        command: Command[T] = Command(name, plan, asyncio.get_running_loop().create_future(), internal=True)
        command.done.add_done_callback(_retrieve)
        if self._gate.fenced:
            command.done.set_exception(self._gate.refusal())
            return command.done
        if self._gate.held:
            self._parked.append(command)
            return command.done
        self._enqueue(command)
        return command.done

    def _enqueue(self, command: Command[Any]) -> None:
        self._queue.append(command)
        if len(self._queue) >= self._enough:
            self._wake.set()

    def wake(self) -> None:
        """The ticker has something to plan."""
        self._wake.set()

    async def next_commit(self, timeout_s: float) -> None:
        """Waits for the next committed batch, or until the time is over."""
        try:
            async with asyncio.timeout(timeout_s), self._committed:
                await self._committed.wait()
        except TimeoutError:
            return

    async def hold(self, why: str) -> None:
        """Takes nothing in any more: callers get UNAVAILABLE, the controller's own commands wait, nothing is scheduled. Returns once
        what was there before is durable; then the state does not change until `resume`."""
        self._gate.held = why
        self._wake.set()
        while self._queue or self._busy:
            await self.next_commit(HOLD_LOOK_S)

    def resume(self) -> None:
        """Goes on after a `hold`, with what waited first."""
        self._gate.held = ""
        self._queue.extend(self._parked)
        self._parked.clear()
        self._wake.set()

    async def run(self) -> None:
        """Runs until `close`; ends once the queue is drained."""
        while True:
            if not self._queue and not self._slice_due():
                if self._gate.closing:
                    return
                self._wake.clear()
                await self._rest()
                continue
            await self._gather()
            self._busy = True
            try:
                await self._batch()
            finally:
                self._busy = False

    def close(self) -> None:
        """No more commands from outside; what is queued is still done."""
        self._gate.closing = True
        self._wake.set()

    def abandon(self, why: str) -> None:
        """Answers whatever is still waiting with UNAVAILABLE: nothing will be committed any more. Closes too."""
        self.close()
        waiting = [*self._in_hand, *self._queue, *self._parked]
        self._queue.clear()
        self._parked.clear()
        for command in waiting:
            if not command.done.done():
                command.done.set_exception(shutting_down(why))

    def fence(self, why: str) -> None:
        """Another controller owns the state now: nothing more is planned, and every command, waiting or to come, is answered with
        UNAVAILABLE. Reading goes on. A batch that is being written ends as its commit does."""
        self._gate.fenced = why
        waiting = [*self._queue, *self._parked]
        self._queue.clear()
        self._parked.clear()
        for command in waiting:
            if not command.done.done():
                command.done.set_exception(self._gate.refusal())
        self._wake.set()

    def require_writable(self) -> None:
        """Raises UNAVAILABLE when nothing may be written any more."""
        self._gate.require_open()

    # One batch ----------------------------------------------------------------------------------------------

    def _slice_due(self) -> bool:
        return not self._single and self._slicing.is_due

    async def _rest(self) -> None:
        """Until there is something to do. A scheduler that failed is asked again a little later."""
        try:
            async with asyncio.timeout(self._slicing.pause_s()):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _gather(self) -> None:
        """Lets more commands come where they are likely to (`crowd`)."""
        enough = self._crowd.enough()
        if not 0 < len(self._queue) < enough or self._single or not self._gate.is_open:
            return
        self._enough = enough
        self._wake.clear()
        try:
            async with asyncio.timeout(self._crowd.patience_s()):
                await self._wake.wait()
        except TimeoutError:
            return
        finally:
            self._enough = 1

    async def _batch(self) -> None:
        commands = self._in_hand = self._take()
        now_ms = self._wall_ms()
        started = time.perf_counter()
        sliced = self._slice_due()
        overlay, reasons = self._plan(commands, sliced, now_ms)
        planned = time.perf_counter()
        self.stats.last_plan_ms = (planned - started) * 1000
        if planned - started > LAG_WARNING_S:
            log.warning("a batch of %d commands took %.0f ms to plan", len(commands), self.stats.last_plan_ms)
        if planned - started > LONG_PLAN_S:
            # Nothing of the state changes meanwhile: all that does is a batch, and this is the one.
            await _let_others_run()
            planned = time.perf_counter()
        if overlay.dirty:
            try:
                statements = encode.statements(overlay, now_ms, self._forget_before(now_ms))
                await self._writer.commit(statements)
            except CommitFailed as failure:
                await self._commit_failed(commands, str(failure))
                return
            except Exception as fault:
                self._isolate(commands, sliced, fault)
                return
            self.stats.last_commit_ms = (time.perf_counter() - planned) * 1000
            if self.stats.store_error:
                log.info("the state store accepts writes again")
            self.stats.store_error = ""
            self.stats.changes += overlay.changes_state
            self._crowd.committed(len(commands), len(self._queue), self.stats.last_commit_ms / 1000)
            self._failed_in_a_row = 0
        self._finish(commands, overlay, reasons, now_ms)
        self._in_hand = []
        if overlay.dirty:
            await self._announce()
        if sliced:
            # The next slice may follow at once, and the applying of this one took its time.
            await _let_others_run()

    def _take(self) -> list[Command[Any]]:
        most = 1 if self._single else BATCH_COMMANDS
        self._single = max(0, self._single - 1)
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def _plan(self, commands: list[Command[Any]], sliced: bool, now_ms: int) -> tuple[Overlay, dict[str, str]]:
        """Plans what fits into one slice of loop time; commands that do not are put back at the head of the queue."""
        while True:
            overlay, reasons = self._slicing.plan(now_ms) if sliced else (Overlay(self.model), {})
            culprit = self._plan_commands(overlay, commands, now_ms)
            if culprit is None:
                break
            # A fault of ours may have left half a change in the overlay: what came before it is planned once more.
            if sliced:
                self._ticker.dropped()
                sliced = self._ticker.wanted()
            self._put_back(commands[culprit + 1 :])
            del commands[culprit:]
        try:
            kernel.settle(overlay, now_ms)
        except Exception as fault:
            self._isolate(commands, sliced, fault)
            return Overlay(self.model), {}
        return overlay, reasons

    def _plan_commands(self, overlay: Overlay, commands: list[Command[Any]], now_ms: int) -> int | None:
        """Plans in order. Returns the position of one that failed by a fault of ours, already answered; else None."""
        deadline = time.perf_counter() + BATCH_SECONDS
        for position, command in enumerate(commands):
            if position and time.perf_counter() > deadline:
                self._put_back(commands[position:])
                del commands[position:]
                return None
            command.result, command.refused = None, None
            try:
                command.result = command.plan(overlay, now_ms)
            except RpcError as refusal:
                command.refused = refusal
            except Exception as fault:
                _fail(command, fault)
                return position
        return None

    def _put_back(self, commands: list[Command[Any]]) -> None:
        self._queue.extendleft(reversed(commands))

    def _isolate(self, commands: list[Command[Any]], sliced: bool, fault: BaseException) -> None:
        """The batch as a whole cannot be planned or written, by a fault of ours: its commands are tried one by one, without a
        slice, so that only the one at fault fails. Tried together again they would fail together for ever."""
        self.stats.failed_commits += 1
        alone = len(commands) == 1 and not sliced
        if alone:
            _fail(commands[0], fault)
        elif commands:
            log.error("a batch of %d commands failed; trying them one by one", len(commands), exc_info=fault)
            self._put_back(commands)
            self._single += len(commands)
            if sliced:
                self._ticker.dropped()
        elif sliced:
            self._slicing.failed(fault)
        commands.clear()

    def _forget_before(self, now_ms: int) -> int | None:
        if abs(now_ms - self._forgot_ms) < FORGET_EVERY_MS:
            return None
        self._forgot_ms = now_ms
        return now_ms - ANSWERS_KEPT_MS

    async def _commit_failed(self, commands: list[Command[Any]], why: str) -> None:
        self.stats.failed_commits += 1
        self._ticker.dropped()
        if not self.stats.store_error:
            log.error("the state store refuses writes: %s", why)
        self.stats.store_error = why
        kept = [c for c in commands if c.internal and not self._gate.fenced]
        for command in commands:
            if (command.internal and not self._gate.fenced) or command.done.done():
                continue
            if self._gate.fenced:
                command.done.set_exception(self._gate.refusal())
                continue
            # Also what was refused: the reason may have been another command of this batch, which has not happened.
            command.done.set_exception(unwritable(why))
        self._put_back(kept)
        self._in_hand = []
        self._failed_in_a_row += 1
        await asyncio.sleep(0 if self._gate.closing else RETRY_SECONDS)
        if self._gate.closing and self._failed_in_a_row > 3:
            self.abandon(f"the controller is shutting down and cannot write its state: {why}")

    def _finish(self, commands: list[Command[Any]], overlay: Overlay, reasons: dict[str, str], now_ms: int) -> None:
        changes = self.model.apply(overlay) if overlay.dirty or overlay.coming else Changes()
        changed_reasons = set(changes.coming)
        for job_id, reason in reasons.items():
            if job_id not in self.model.pending or self.model.reasons.get(job_id, "") == reason:
                continue
            self.model.reasons[job_id] = reason
            changed_reasons.add(job_id)
        for event in overlay.audit:
            self._write_down(event)
        self.stats.batches += 1
        self.stats.commands += len(commands)
        self._ticker.noticed(changes)
        if changes or changed_reasons:
            self.n += 1
            committed = Committed(self.n, changes, now_ms, changed_reasons)
            for listener in self._listeners:
                try:
                    listener(committed)
                except Exception:
                    log.exception("a listener failed on batch %d", self.n)
        for command in commands:
            if command.done.done():
                continue
            if command.refused is not None:
                command.done.set_exception(command.refused)
            else:
                command.done.set_result(command.result)

    def _write_down(self, event: AuditEvent) -> None:
        values = event.values
        if event.often:
            left_out = self._repeats.take((event.action, event.entity))
            if left_out is None:
                return
            if left_out:
                values = {**values, "left_out": left_out}
        audit(event.action, event.entity, event.trigger, **values)

    async def _announce(self) -> None:
        async with self._committed:
            self._committed.notify_all()


async def _let_others_run() -> None:
    """Also those whose timer or message came just now: the first pass of the event loop wakes them, the second runs them."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _fail(command: Command[Any], fault: BaseException) -> None:
    log.error("command %s failed", command.name, exc_info=fault)
    if not command.done.done():
        command.done.set_exception(RpcError("INTERNAL", f"internal error in {command.name}", code="internal"))


def _retrieve(done: asyncio.Future[Any]) -> None:
    """Marks a posted command's error as seen; it was logged where it happened."""
    if not done.cancelled():
        done.exception()
