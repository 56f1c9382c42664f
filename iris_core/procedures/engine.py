"""The engine: runs a procedure, journals before it acts, and lets nothing change that no approved gate has named.

Going on after a crash is running the procedure again from its beginning with what the journal holds: evidence, answers and ends of
mutations come back as they were, and the first event without an end is where it goes on. A mutation that was begun and whose
end nobody wrote down is never repeated blindly: the world is looked at first. An approval is used once, by the account that gave it;
after a resume by somebody else, or more than a quarter of an hour later, what is left of it is asked for again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import ConnectFailed, IrisError
from iris_core.live.waiting import first_of
from iris_core.procedures.approvals import Answer, Approver, Refused, check
from iris_core.procedures.events import (
    STOP,
    Cancelled,
    Event,
    Evidence,
    Gate,
    Mutation,
    NotStarted,
    Outcome,
    Procedure,
    Status,
    Step,
    StepFailed,
    Suspended,
    Value,
    World,
)
from iris_core.procedures.grammar import FORMAT
from iris_core.procedures.grammar import check as check_journal
from iris_core.procedures.granted import Approvals, Unapproved
from iris_core.procedures.replay import JournalMismatch, Replay, as_asked, failure_of, outcome_of, reported, unfit

if TYPE_CHECKING:
    from iris_core.live.clock import Clock
    from iris_core.procedures.journal import Journal, Record

LOOK_TIMEOUT_S: Final = 60.0
_ENDS: Final = frozenset({"step", "gathered", "failed", "answered"})


class Engine:
    """Drives one procedure. `account` is who drives it now; `watch` is told every new line of the journal."""

    def __init__(
        self,
        journal: Journal,
        approver: Approver,
        clock: Clock,
        *,
        account: str,
        watch: Callable[[Record], None] = lambda record: None,
    ) -> None:
        self._journal = journal
        self._approver = approver
        self._clock = clock
        self._account = account
        self._watch = watch
        self._cancel = asyncio.Event()
        self._cancelled = False
        self._suspend = asyncio.Event()
        self._deaf: Exception | None = None
        self._replay = Replay(journal.records)
        self._approvals = Approvals()
        self._done: list[str] = []

    # --- from outside ------------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """End it at the next safe point: a mutation that was begun is seen to its end first."""
        self._cancel.set()

    def suspend(self) -> None:
        """Leave it at the next safe point, to be gone on with later: what was begun, and what is held to it, is seen to its end first."""
        self._suspend.set()

    async def run(self, name: str, arguments: dict[str, Value], procedure: Procedure) -> Outcome:
        """Run it to its end, or go on with it. A journal that has an end gives that end.

        Raises:
            JournalMismatch: the journal belongs to another procedure, or to another version of this one.
            JournalBroken: it holds what no procedure writes; nothing was done.
            Suspended: it was told to; the journal has no end, and the next run goes on with it.
            Unanswered: nobody could be asked at a gate; the same holds.
            Exception: what `watch` raised; the run went on to the next safe point first, where it was left.
            IrisError: the journal cannot be written; nothing was done after that.
        """
        arguments = _plain(arguments)
        records = self._journal.records
        check_journal(self._journal.path, records)
        ended = next((record for record in records if record["type"] == "ended"), None)
        if ended is not None:
            return outcome_of(ended)
        if records:
            first = records[0]
            if (first.get("procedure"), first.get("arguments")) != (name, arguments):
                raise JournalMismatch(
                    f"{self._journal.path.stem} is a {first.get('procedure')} with other arguments",
                    hint="choose another id",
                )
            self._write("resumed")
        else:
            self._write("started", format=FORMAT, procedure=name, arguments=arguments)
        self._replay.run += 1
        try:
            outcome = await self._drive(procedure)
        except Suspended:
            if self._deaf is not None:
                raise self._deaf from None
            raise
        finally:
            await procedure.aclose()
        self._write(
            "ended", status=str(outcome.status), state=outcome.state, next=outcome.next, details=list(outcome.details)
        )
        return outcome

    # --- the loop ----------------------------------------------------------------------------------------------------

    async def _drive(self, procedure: Procedure) -> Outcome:
        answer: Value = None
        thrown: IrisError | None = None
        while True:
            try:
                event = await (procedure.athrow(thrown) if thrown is not None else procedure.asend(answer))
            except StopAsyncIteration:
                return Outcome(
                    status=Status.FAILED, state="the procedure ended without saying how", details=self._summary()
                )
            except Cancelled:
                return Outcome(status=Status.CANCELLED, state=self._left(), details=self._summary())
            except StepFailed as error:
                status = Status.UNKNOWN if error.unknown else Status.FAILED
                return Outcome(
                    status=status, state=f"{error.step}: {error.message}", next=error.hint, details=self._summary()
                )
            except JournalMismatch:
                raise
            except IrisError as error:
                return Outcome(status=Status.FAILED, state=error.message, next=error.hint, details=self._summary())
            except Exception as error:
                if self._replay.run == 1:
                    raise  # a fault of the procedure's own
                raise unfit(self._journal.path.stem, error) from error
            if isinstance(event, Outcome):
                return event
            answer, thrown = None, None
            try:
                answer = await self._one(event)
            except (StepFailed, Cancelled, Unapproved) as error:
                thrown = error

    async def _one(self, event: Event) -> Value:
        assert not isinstance(event, Outcome)
        past = self._replay.of(event.id)
        if past and past[-1]["type"] == "cancelled":
            self._cancelled = True
            raise Cancelled("cancelled")
        if not isinstance(event, Mutation) and not _ENDS.intersection(record["type"] for record in past):
            self._check_cancelled(event.id)
            self._check_suspended(event)
        if isinstance(event, Step):
            if not past:
                self._write("step", event=event.id, title=event.title)
            return None
        if isinstance(event, Evidence):
            return await self._gather(event, past)
        if isinstance(event, Gate):
            return await self._gate(event, past)
        return await self._mutate(event, past)

    def _check_cancelled(self, name: str) -> None:
        if self._cancel.is_set() and not self._cancelled:
            self._cancelled = True
            self._write("cancelled", event=name)
            raise Cancelled("cancelled")

    def _check_suspended(self, event: Step | Evidence | Gate | Mutation) -> None:
        if self._suspend.is_set() and not self._cancelled and not _held(event):
            raise Suspended("it was left at a safe point")

    # --- evidence ----------------------------------------------------------------------------------------------------

    async def _gather(self, event: Evidence, past: list[Record]) -> Value:
        for record in reversed(past):
            if record["type"] == "gathered":
                return record["value"]
            if record["type"] == "failed":
                raise failure_of(record)
        self._write("gathering", event=event.id, title=event.title)

        def report(value: Value) -> None:
            self._write("progress", event=event.id, value=value)

        try:
            work = event.gathering(report, reported(past))
            value = await self._unless_left(event, asyncio.wait_for(work, event.timeout_s), event.id)
        except (Cancelled, Suspended):
            raise
        except TimeoutError:
            raise self._failed(event.id, f"no answer within {event.timeout_s:g} s") from None
        except IrisError as error:
            raise self._failed(event.id, error.message, hint=error.hint) from error
        except Exception as error:
            raise self._failed(event.id, f"{type(error).__name__}: {error}") from error
        value = _plain(value)
        self._write("gathered", event=event.id, value=value)
        return value

    async def _unless_left(self, event: Evidence | Gate, work: Any, about: str) -> Value:
        """The work's result; it is given up when the run is cancelled, which is noted of the event `about`, or suspended."""
        if self._cancelled:
            return await work
        task = asyncio.ensure_future(work)
        await first_of(task, self._cancel.wait(), *(() if _held(event) else (self._suspend.wait(),)))
        if task.done() and not task.cancelled():
            return task.result()
        self._check_cancelled(about)
        self._check_suspended(event)
        raise asyncio.CancelledError

    # --- gates -------------------------------------------------------------------------------------------------------

    async def _gate(self, gate: Gate, past: list[Record]) -> str:
        answered = next((record for record in reversed(past) if record["type"] == "answered"), None)
        if answered is None:
            return await self._ask(gate)
        if answered["token"] != gate.token():
            raise JournalMismatch(f"{gate.id} asked for something else when it was answered")
        choice = str(answered["choice"])
        renewed = [
            record for record in past if record["type"] == "answered_again" and record["choice"] in gate.approving
        ]
        last = renewed[-1] if renewed else answered
        self._approvals.note(gate, choice, str(last["by"]), int(last["at_ms"]), int(last["run"]))
        return choice

    async def _ask(self, gate: Gate, *, about: str = "") -> str:
        """Ask; `about` = for this mutation, once more."""
        again = bool(about)
        self._write("asked", **as_asked(gate), again=again)
        answer: Answer = await self._unless_left(gate, self._approver.ask(gate), about or gate.id)
        try:
            check(gate, answer)
        except Refused as error:
            # What does not fit is no approval, whatever was meant by it.
            self._write("refused", event=gate.id, message=error.message, hint=error.hint)
            answer = Answer(STOP, reason=error.message)
        kind = "answered_again" if again else "answered"
        self._write(kind, event=gate.id, choice=answer.choice, reason=answer.reason, token=gate.token())
        self._approvals.note(gate, answer.choice, self._account, self._clock.now_ms(), self._replay.run)
        return answer.choice

    async def _permit(self, event: Mutation) -> None:
        approval = self._approvals.of(event)
        if approval.is_stale(self._account, self._clock.now_ms(), self._replay.run):
            if await self._ask(approval.rest(), about=event.id) not in approval.gate.approving:
                raise self._failed(event.id, "not approved again", untouched=True)
            self._approvals.renewed(approval)
        self._approvals.use(event)

    # --- mutations ---------------------------------------------------------------------------------------------------

    async def _mutate(self, event: Mutation, past: list[Record]) -> Value:
        last = past[-1] if past else None
        if last is not None and last["type"] == "done":
            self._approvals.use(event)
            self._done.append(event.title)
            return last["value"]
        if last is not None and last["type"] == "failed":
            self._approvals.use(event)
            raise failure_of(last)
        if last is not None and last["type"] == "intent":
            self._approvals.of(event)
            found = await self._look(event)
            if found is not World.NOT_DONE:
                self._approvals.use(event)
                return await self._found(event, found, "the run that began it did not see its end")
            self._write("not_done", event=event.id)
        self._check_cancelled(event.id)
        self._check_suspended(event)
        await self._permit(event)
        self._make_room(event)
        await self._same_generation(event)
        self._write("intent", event=event.id, title=event.title, grant=event.grant.words)
        return await self._do(event)

    def _make_room(self, event: Mutation) -> None:
        """Has the journal keep room for what follows; without it nothing is begun, and what was begun goes on with what is left."""
        try:
            self._journal.reserve()
        except IrisError as error:
            if not self._approvals.begun(event):
                raise self._failed(event.id, error.message, hint=error.hint, untouched=True) from error

    async def _same_generation(self, event: Mutation) -> None:
        if event.generation is None or not event.grant.generation:
            return
        try:
            now = await asyncio.wait_for(event.generation(), LOOK_TIMEOUT_S)
        except (IrisError, TimeoutError) as error:
            words = error.message if isinstance(error, IrisError) else "no answer"
            raise self._failed(
                event.id, f"cannot see {event.grant.kind} {event.grant.id}: {words}", untouched=True
            ) from error
        if now != event.grant.generation:
            raise self._failed(
                event.id,
                f"{event.grant.kind} {event.grant.id} is not what was approved (then {event.grant.generation}, now {now})",
                hint="look again and plan anew",
                untouched=True,
            )

    async def _do(self, event: Mutation) -> Value:
        try:
            value = await asyncio.wait_for(event.do(), event.timeout_s)
        except NotStarted as error:
            raise self._failed(event.id, error.message, hint=error.hint, untouched=True) from error
        except TimeoutError:
            return await self._found(event, await self._look(event), f"no end within {event.timeout_s:g} s")
        except ConnectFailed as error:  # nobody answered: what became of it is seen by looking
            return await self._found(event, await self._look(event), error.message)
        except IrisError as error:
            raise self._failed(event.id, error.message, hint=error.hint) from error
        except Exception as error:  # a fault of the procedure's own must not hide what may have happened
            return await self._found(event, await self._look(event), f"{type(error).__name__}: {error}")
        return self._finish(event, value)

    async def _look(self, event: Mutation) -> World:
        try:
            return await asyncio.wait_for(event.look(), LOOK_TIMEOUT_S)
        except (IrisError, TimeoutError):
            return World.UNKNOWN

    async def _found(self, event: Mutation, found: World, why: str) -> Value:
        """What a look says about a mutation whose end was not seen."""
        if found is World.DONE:
            value = await event.result() if event.result is not None else None
            return self._finish(event, value)
        if found is World.NOT_DONE:
            raise self._failed(event.id, f"{why}; it did not take effect", untouched=True)
        raise self._failed(event.id, f"{why}; whether it took effect is not known", unknown=True)

    def _finish(self, event: Mutation, value: Value) -> Value:
        value = _plain(value)
        self._write("done", event=event.id, value=value)
        self._done.append(event.title)
        return value

    # --- the journal -------------------------------------------------------------------------------------------------

    def _failed(
        self, name: str, message: str, *, hint: str = "", unknown: bool = False, untouched: bool = False
    ) -> StepFailed:
        record: dict[str, Any] = {
            "event": name,
            "message": message,
            "hint": hint,
            "unknown": unknown,
            "untouched": untouched,
        }
        self._write("failed", **record)
        return failure_of(record)

    def _write(self, type_: str, **fields: Any) -> None:
        record: Record = {"type": type_, "at_ms": self._clock.now_ms(), "by": self._account, **fields}
        self._journal.append(record)
        if self._deaf is not None:
            return
        try:
            self._watch(record)
        except Exception as error:  # whoever looks on must not end what is half done
            self._deaf = error
            self.suspend()

    def _left(self) -> str:
        """How the world was left, in one line."""
        return (
            f"cancelled; done before that: {'; '.join(self._done)}" if self._done else "cancelled; nothing was changed"
        )

    def _summary(self) -> tuple[str, ...]:
        return tuple(f"done: {title}" for title in self._done)


def _held(event: Step | Evidence | Gate | Mutation) -> bool:
    return isinstance(event, (Evidence, Mutation)) and event.held


def _plain(value: Value) -> Value:
    """The value as the journal gives it back, so that a run and its repetition see the same."""
    return json.loads(json.dumps(value))
