"""Forcing tasks to an end: freezing the attempts, what the gate says, and sending exactly those.

The targets are the attempts that are current when the gate opens, by number and uid. One that has ended or was replaced meanwhile is
refused, never the attempt that came after it. All go in one request with its own id, repeated with the same one when the
connection broke, so that it takes effect once.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iris_core.contracts import ConnectFailed, IrisError
from iris_core.live.columns import Tone
from iris_core.model.ids import AttemptId, JobId, TaskId, parse_target
from iris_core.model.states import ACTIVE, TaskState, task_label
from iris_core.model.text import one_line
from iris_tui.gate import GatePlan, GateScreen, GateTarget

if TYPE_CHECKING:
    from iris_tui.actions import Action
    from iris_tui.app import IrisApp
    from iris_tui.pages import Lines
    from iris_tui.session import Session

SHOWN_IN_COMMAND = 5
TRIES = 3
RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Frozen:
    """An attempt that was current and active: `id` is its own, `uid` tells it from one of the same number in a later job."""

    id: str
    task: str
    number: int
    uid: str
    worker: str
    state: int


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one target."""

    id: str
    done: bool
    words: str


async def kick(console: IrisApp, session: Session, action: Action, names: list[str]) -> None:
    """The whole way: freeze the attempts, ask at the gate, send, say what became of each."""
    store = session.tree.store
    store.freeze("gate")
    try:
        try:
            targets, refused = await freeze(session, names)
        except IrisError as error:
            console.say(f"{_verb(action)}: {one_line(error.message)}", severity="error")
            return
        if not targets:
            console.say(f"{_verb(action)}: nothing to do, {one_line(refused[0].id)} {refused[0].words}")
            return
        if not await console.pass_gate(gate(session, action, targets)):
            return
    finally:
        store.thaw("gate")
    results = await send(session, action, targets, secrets.token_hex(16))
    _report(console, session, action, [*results, *refused])


async def freeze(session: Session, names: list[str]) -> tuple[tuple[Frozen, ...], list[Result]]:
    """The current attempts that tasks and attempts name, and those names that have none. Raises IrisError."""
    found: dict[str, Frozen] = {}
    refused: list[Result] = []
    for name in dict.fromkeys(names):
        target = parse_target(name)
        if isinstance(target, JobId):
            refused.append(Result(name, False, "is a job; name one of its tasks"))
            continue
        task = await _task(session, target.task if isinstance(target, AttemptId) else target)
        number = int(task.current_attempt_id)
        if isinstance(target, AttemptId) and target.number != number:
            refused.append(Result(name, False, f"is not the current attempt, {number} is"))
        elif int(task.state) not in ACTIVE:
            refused.append(Result(name, False, f"is {task_label(task.state)}, on no worker"))
        else:
            attempt = Frozen(
                f"{task.task_id}:{number}", task.task_id, number, task.attempt_uid, task.worker_id, int(task.state)
            )
            found[attempt.id] = attempt
    return tuple(found.values()), refused


async def _task(session: Session, task: TaskId) -> Any:
    """The task as the table shows it, else as the server knows it. Raises IrisError."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    row = session.tree.store.get(str(task))
    if row is not None and row.kind == "task" and not row.gone:
        return row.value
    answer = await session.client.call(
        "ControllerService/GetTaskStatus", pb.GetTaskStatusRequest(task_id=str(task)), pb.GetTaskStatusResponse
    )
    return answer.task


def gate(session: Session, action: Action, targets: tuple[Frozen, ...]) -> GateScreen:
    """The gate for these attempts. More than one is tier 2."""
    verb = _verb(action)
    one = len(targets) == 1
    what = "the attempt" if one else f"{len(targets)} attempts"
    if action.name == "preempt":
        effects = [
            f"ends {what} as preempted and charges the preemption budget",
            f"{'the task is' if one else 'each task is'} tried again while that budget lasts",
        ]
    else:
        effects = [
            f"ends {what} as failed, whatever budget is left",
            f"{'the task is' if one else 'the tasks are'} not tried again; a job with more failures than it tolerates ends",
        ]
    names = " ".join(target.id for target in targets[:SHOWN_IN_COMMAND])
    more = " …" if len(targets) > SHOWN_IN_COMMAND else ""
    return GateScreen(
        GatePlan(
            verb=verb,
            what=one_line(targets[0].id) if one else what,
            tier=action.tier if one else 2,
            cluster=session.name,
            environment=session.environment,
            targets=tuple(
                GateTarget(target.id, target.number, f"{task_label(target.state)} on {target.worker}")
                for target in targets
            ),
            effects=tuple(effects),
            command=action.cli.replace("{at}", session.selector)
            .replace("{noun}", "attempt")
            .replace("{id}", names + more),
            changed=lambda: _changed(session, targets),
            button=f"{verb} {what}",
        )
    )


def _verb(action: Action) -> str:
    return action.title.partition(":")[0]


def _state(session: Session, target: Frozen) -> str:
    """What keeps an attempt from being ended as it was frozen, "" if nothing that is known here does."""
    row = session.tree.store.get(target.task)
    if row is None:
        return ""
    if row.gone:
        return "is gone"
    task: Any = row.value
    if task.attempt_uid != target.uid:
        return "is not the current attempt any more"
    return "" if int(task.state) in ACTIVE else f"is {task_label(task.state)}"


def _changed(session: Session, targets: tuple[Frozen, ...]) -> str:
    changes = [f"{target.id} {state}" for target in targets if (state := _state(session, target))]
    return "; ".join(changes[:3]) + (f" and {len(changes) - 3} more" if len(changes) > 3 else "")


async def send(session: Session, action: Action, targets: tuple[Frozen, ...], request_id: str) -> list[Result]:
    """Ends the attempts, once, however often it has to be asked for; one that changed is not sent."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    states = {target.id: _state(session, target) for target in targets}
    results = [Result(name, False, f"not sent: it {state}") for name, state in states.items() if state]
    names = [name for name, state in states.items() if not state]
    if not names:
        return results
    end = TaskState.PREEMPTED if action.name == "preempt" else TaskState.FAILED
    request = pb.KickTasksRequest(
        targets=names,
        desired_state=end.value,  # type: ignore[arg-type]
        reason="in the console",
        request_id=request_id,
    )
    for tried in range(1, TRIES + 1):
        try:
            answer = await session.client.call("ControllerService/KickTasks", request, pb.KickTasksResponse)
        except ConnectFailed as error:
            if tried == TRIES:
                words = f"not known whether it was done: {one_line(error.message)}"
                return [*results, *(Result(name, False, words) for name in names)]
            await asyncio.sleep(RETRY_S)
        except IrisError as error:
            return [*results, *(Result(name, False, one_line(error.message)) for name in names)]
        else:
            word = task_label(end)
            return [
                *results,
                *(
                    Result(k.target, k.queued, word if k.queued else f"rejected: {one_line(k.detail)}")
                    for k in answer.results
                ),
            ]
    return results


def _report(console: IrisApp, session: Session, action: Action, results: list[Result]) -> None:
    """A toast when all went well or there was one; else a page with what became of each."""
    failed = [result for result in results if not result.done]
    verb = _verb(action)
    if len(results) == 1:
        result = results[0]
        console.say(f"{verb} {one_line(result.id)}: {result.words}", severity="error" if failed else "information")
        return
    if not failed:
        console.say(f"{verb}: {len(results)} attempts {results[0].words}")
        return
    from iris_tui.pages import TextPage

    async def load() -> Lines:
        return [(f"{result.id}  {result.words}", Tone.GOOD if result.done else Tone.BAD) for result in results]

    console.push_screen(TextPage(session, f"{verb}: {len(results) - len(failed)} done, {len(failed)} rejected", load))
