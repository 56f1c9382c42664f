"""The one way in which the console changes anything: freeze, plan, gate, carry out, say what became of it.

A screen calls

    changes.start(self.console, self.session, BY_ID["capacity.delete_slice"], ["tpu-0badcafe"])
    changes.start(self.console, self.session, BY_ID["users.set_budget"], ["ada"], limit=8000, max_band=3)

with the action from the table, the ids it is about, and what the change needs besides (see the row of `change_requests.CHANGES` that the
action's name chooses; `kind=` chooses another one). `change` is the same to be awaited, from a worker of the app: it returns the
operation, None when nothing was sent. Everything else is the same for all: the ids are those that were chosen when it began, the
server counts the effects and freezes the generations, the gate is as high as the plan's tier, each request is sent once, what changed
meanwhile is refused by the server and shown anew, and the results stay in `:results`. The order of the list stands still while the
gate is open. Must never send anything that was not planned and confirmed.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from iris_core.client.context import ClientContext
from iris_core.client.plans import RETRY_S, Fate, Outcome, Plan, carry_out, make
from iris_core.contracts import IrisError
from iris_core.live.faults import fault_text
from iris_core.model.redact import redact_argv
from iris_core.model.resources import format_duration
from iris_core.model.states import ACTIVE, JOB_TERMINAL, job_label, task_label
from iris_core.model.text import counted, one_line
from iris_tui.change_requests import CHANGES, ChangeKind, Result, results_of
from iris_tui.gate import Decision, GatePlan, GateScreen, GateTarget
from iris_tui.operations import Operation

if TYPE_CHECKING:
    from iris_core.live.rows import RowStore
    from iris_tui.actions import Action
    from iris_tui.app import IrisApp
    from iris_tui.session import Session

SHOWN_IN_COMMAND: Final = 5
SHOWN_CHANGES: Final = 3
PAGED_FROM: Final = 9
"""Requests from which on their progress is shown on a page."""
FREEZE: Final = "gate"
SILENT_S: Final = 3.0
"""After so long without an answer it is said that there is none yet, so that nobody asks once more."""


def start(
    console: IrisApp, session: Session, action: Action, targets: Sequence[str], *, kind: str = "", **fields: Any
) -> None:
    """Begin a change; it goes on when the screen is left. See the module."""
    work = change(console, session, action, targets, kind=kind, **fields)
    console.run_worker(work, name=action.title, group="change", exit_on_error=False)


async def change(
    console: IrisApp, session: Session, action: Action, targets: Sequence[str], *, kind: str = "", **fields: Any
) -> Operation | None:
    """The whole way; see the module. Raises ModelError for a field that is wrong."""
    row = CHANGES[kind or action.name]
    verb = action.title.partition(":")[0]
    names = list(dict.fromkeys(targets))
    requests = list(row.build(names, fields))
    store = _store(console)
    again, before = "", Decision()
    while True:
        if busy := console.change_in_the_way():
            # It was asked for before that one was: in a form, or as what was refused and is shown anew.
            console.say(f"{verb}: nothing was done, {busy}", severity="warning")
            return None
        if store is not None:
            store.freeze(FREEZE)
        try:
            try:
                async with (
                    _prepared(console, verb),
                    _told_of_silence(console, session, f"{verb}: the controller has not answered yet what it would do"),
                ):
                    plan = await make(session.client, row.method, requests, tier=action.tier)
            except IrisError as error:
                _say_error(console, verb, error)
                return None
            if not plan.requests:
                console.say(f"{verb}: nothing to do, {_skipped(plan)}")
                return None
            command = command_of(action, session, plan, names, fields)
            decision: Decision | None = Decision()
            if plan.tier or action.tier or again:
                decision = await console.pass_gate(
                    _gate(session, action, row, plan, names, store, command, again, before)
                )
            if decision is None:
                console.say(f"{verb}: nothing was done")
                return None
            if session.read_only:
                # Its time was over while the gate was open, or another login may only read.
                console.say(f"{verb}: nothing was done, this console is read-only", severity="warning")
                return None
        finally:
            if store is not None:
                store.thaw(FREEZE)
        operation = Operation(
            _title(verb, row, plan), session.name, command, session.clock.now_ms(), len(plan.requests)
        )
        outcomes = await _carry_out(console, session, row, plan, decision, operation, store, fields)
        stale = [outcome for outcome in outcomes if outcome.fate is Fate.REPLAN]
        _report(console, session, row, operation, outcomes)
        if not stale or len(stale) < len(outcomes):
            return operation
        # Nothing was done: the operator sees what it is now, and decides anew.
        requests, again, before = list(plan.requests), stale[0].words, decision


def command_of(action: Action, session: Session, plan: Plan, names: Sequence[str], fields: Any) -> str:
    """The command line that does the same: its targets are those that the plan froze."""
    ids = [target.id for target in plan.targets] or list(names)
    shown = " ".join(ids[:SHOWN_IN_COMMAND]) + (" …" if len(ids) > SHOWN_IN_COMMAND else "")
    noun = plan.targets[0].kind if plan.targets else "job"
    text = action.cli.replace("{at}", session.selector).replace("{noun}", noun).replace("{id}", shown)
    for name, value in fields.items():
        if f"{{{name}}}" not in text:
            continue
        words = shlex.join(redact_argv(list(value))) if isinstance(value, (list, tuple)) else str(value)
        text = text.replace(f"{{{name}}}", words)
    return text


@asynccontextmanager
async def _prepared(console: IrisApp, verb: str) -> AsyncIterator[None]:
    """No other change begins meanwhile: else its gate would open above this one's."""
    console.preparing = verb
    try:
        yield
    finally:
        console.preparing = ""


@asynccontextmanager
async def _told_of_silence(console: IrisApp, session: Session, words: str) -> AsyncIterator[None]:
    """Say these words if what is done meanwhile takes long; "" = say nothing."""

    async def later() -> None:
        await session.clock.sleep(SILENT_S)
        console.say(words, severity="warning")

    telling = asyncio.ensure_future(later()) if words else None
    try:
        yield
    finally:
        if telling is not None:
            telling.cancel()


def _store(console: IrisApp) -> RowStore[Any] | None:
    """The rows of the list from which the change was asked for, None if there is no list."""
    return getattr(console.console_screen, "store", None)


def _title(verb: str, row: ChangeKind, plan: Plan) -> str:
    return f"{verb} {_what(row, plan)}"


def _number(plan: Plan) -> int:
    """How many things it changes: its targets, or where it has none by name, its requests."""
    return len(plan.targets) or len(plan.requests)


def _what(row: ChangeKind, plan: Plan) -> str:
    return one_line(plan.targets[0].id) if len(plan.targets) == 1 else counted(_number(plan), row.noun)


def _skipped(plan: Plan) -> str:
    said = [f"{one_line(name)}: {one_line(why)}" for name, why in plan.skipped[:SHOWN_CHANGES]]
    more = len(plan.skipped) - SHOWN_CHANGES
    return "; ".join(said) + (f"; and {more:,} more" if more > 0 else "")


def _say_error(console: IrisApp, verb: str, error: IrisError) -> None:
    console.say(f"{verb}: {fault_text(error)}", severity="error")


def _gate(
    session: Session,
    action: Action,
    row: ChangeKind,
    plan: Plan,
    names: Sequence[str],
    store: RowStore[Any] | None,
    command: str,
    again: str,
    before: Decision,
) -> GateScreen:
    verb = action.title.partition(":")[0]
    what = _what(row, plan)
    number = _number(plan)
    shown = set(store.order) if store is not None and len(names) > 1 else set()
    effects = [*plan.effects, *plan.lasting]
    if plan.unchecked:
        effects.append(plan.unchecked)
    return GateScreen(
        GatePlan(
            verb=verb,
            what=what,
            tier=max(plan.tier, action.tier, 1),
            cluster=plan.cluster or session.name,
            environment=session.environment,
            targets=tuple(GateTarget(t.id, t.generation, t.note) for t in plan.targets)
            or tuple(GateTarget(name, "") for name in names),
            effects=tuple(effects),
            command=command,
            hidden=sum(store is not None and name in store.rows and name not in shown for name in names)
            if shown
            else 0,
            changed=lambda: changed_since(store, plan),
            button=f"{verb} {f'the {row.noun}' if number == 1 else counted(number, row.noun)}",
            skipped=_skipped(plan) if plan.skipped else "",
            hints=plan.hints,
            again=again,
            before=before,
        )
    )


def changed_since(store: RowStore[Any] | None, plan: Plan) -> str:
    """What the list already knows of targets that are no longer what was planned, "" if nothing."""
    if store is None:
        return ""
    said = [
        f"{target.id} {state}"
        for target in plan.targets
        if (state := _now(store, target.kind, target.id, target.generation))
    ]
    more = len(said) - SHOWN_CHANGES
    return "; ".join(said[:SHOWN_CHANGES]) + (f" and {more:,} more" if more > 0 else "")


def _now(store: RowStore[Any], kind: str, name: str, generation: str) -> str:
    row = store.get(name.partition(":")[0] if kind == "attempt" else name)
    if row is None:
        return ""
    if row.gone:
        return "is gone"
    value: Any = row.value
    if kind == "job" and row.kind == "job":
        if str(value.incarnation) != generation:
            return "was replaced by a new job of that name"
        return f"has ended as {job_label(value.state)}" if int(value.state) in JOB_TERMINAL else ""
    if kind == "attempt" and row.kind == "task":
        if value.attempt_uid != generation:
            return "is not the current attempt any more"
        return "" if int(value.state) in ACTIVE else f"has ended, its task is {task_label(value.state)}"
    return ""


async def _carry_out(
    console: IrisApp,
    session: Session,
    row: ChangeKind,
    plan: Plan,
    decision: Decision,
    operation: Operation,
    store: RowStore[Any] | None,
    fields: dict[str, Any],
) -> list[Outcome]:
    console.operations.begin(operation)
    if len(plan.requests) >= PAGED_FROM:
        console.show_results()

    def told(outcome: Outcome) -> None:
        operation.sent += 1
        results = results_of(row, outcome)
        operation.results.extend(results)
        for result in results:
            if result.done and store is not None:
                store.mark(result.id, on=False)

    stale = changed_since(store, plan) if plan.unchecked else ""
    context = ClientContext("console", operation.command, decision.reason, decision.pasted)
    if stale:
        # Nobody else would compare it.
        outcomes = [Outcome(request, Fate.NOT_SENT, f"not sent: {stale}") for request in plan.requests]
        for outcome in outcomes:
            told(outcome)
    else:
        paged = len(plan.requests) >= PAGED_FROM
        words = "" if paged else f"{operation.title}: no answer yet, :results shows what becomes of it"
        async with _told_of_silence(console, session, words):
            outcomes = await carry_out(
                session.client,
                plan,
                context,
                confirm=decision.typed,
                timeout_s=float(fields.get("timeout_s", row.timeout_s)),
                told=told,
                retry_s=RETRY_S,
            )
    operation.results.extend(Result(name, False, f"left out: {one_line(why)}") for name, why in plan.skipped)
    operation.finished = True
    return outcomes


def _report(
    console: IrisApp, session: Session, row: ChangeKind, operation: Operation, outcomes: Sequence[Outcome]
) -> None:
    """A toast when all went well or there was one; else the page of results."""
    title = operation.title
    if row.page is not None and len(outcomes) == 1 and outcomes[0].answer is not None:
        _show_page(console, session, operation, row.page(outcomes[0].answer))
    elif len(operation.results) == 1 and operation.failed:
        console.say(f"{title}: {operation.results[0].words}", severity="error")
    elif operation.failed and operation.requests >= PAGED_FROM:
        # Its page was shown from the beginning; who closed it is not interrupted.
        console.say(f"{title}: {operation.state()}; :results shows them", severity="error")
    elif operation.failed:
        console.show_results()
    else:
        console.say(f"{title}: {row.words([outcome.answer for outcome in outcomes])}")


def _show_page(console: IrisApp, session: Session, operation: Operation, lines: Any) -> None:
    from iris_tui.pages import TextPage

    took = format_duration(session.clock.now_ms() - operation.began_ms)
    tail = [*lines, (f"took {took}", operation_tone())]

    async def load() -> Any:
        return tail

    console.push_screen(TextPage(session, operation.title, load, command=operation.command))


def operation_tone() -> Any:
    """How the duration of an operation is drawn."""
    from iris_core.live.wording import Tone

    return Tone.DIM
