"""Ending jobs: freezing the targets, what the gate says, and sending exactly that.

The targets are ids with the incarnation they had. A job that was replaced meanwhile is refused, not ended by its name. Every
request has its own id and is repeated with the same one when the connection broke, so that it takes effect once.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iris_core.contracts import ConnectFailed, IrisError
from iris_core.live.wording import Tone
from iris_core.model.states import JOB_TERMINAL, job_label
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
class Result:
    """What became of one target."""

    id: str
    done: bool
    words: str
    ended: tuple[str, ...] = ()


async def change(console: IrisApp, session: Session, action: Action, names: list[str]) -> None:
    """The whole way: freeze the targets, ask at the gate, send, say what became of each."""
    store = session.tree.store
    store.freeze("gate")
    try:
        try:
            targets = await freeze(session, names)
        except IrisError as error:
            console.say(f"{action.title}: {one_line(error.message)}", severity="error")
            return
        if not targets:
            console.say(f"{action.title}: nothing to do, {', '.join(map(one_line, names[:3]))} already finished")
            return
        if not await console.pass_gate(gate(session, action, targets)):
            return
    finally:
        store.thaw("gate")
    results = []
    for target in targets:
        result = await send(session, action, target, secrets.token_hex(16), tries=TRIES)
        results.append(result)
        if result.done:
            store.mark(target.id, on=False)
    _report(console, session, action, results)


def _report(console: IrisApp, session: Session, action: Action, results: list[Result]) -> None:
    """A toast when all went well or there was one; else a page with what became of each."""
    failed = [result for result in results if not result.done]
    verb = action.title.partition(":")[0]
    if not failed:
        ended = sum(len(result.ended) for result in results)
        what = one_line(results[0].id) if len(results) == 1 else f"{len(results)} jobs"
        console.say(f"{verb} {what}: {_count(ended, 'job')} ended")
        return
    if len(results) == 1:
        console.say(f"{verb} {one_line(failed[0].id)}: {failed[0].words}", severity="error")
        return
    from iris_tui.pages import TextPage

    async def load() -> Lines:
        return [(f"{result.id}  {result.words}", Tone.GOOD if result.done else Tone.BAD) for result in results]

    title = f"{verb}: {len(results) - len(failed)} done, {len(failed)} failed"
    console.push_screen(TextPage(session, title, load))


async def freeze(session: Session, names: list[str]) -> tuple[GateTarget, ...]:
    """The targets as they are now; finished jobs are left out. Raises IrisError for one that nobody knows."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    targets = []
    for name in dict.fromkeys(names):
        row = session.tree.store.get(name)
        if row is not None and row.kind == "job" and not row.gone:
            job: Any = row.value
        else:
            answer = await session.client.call(
                "ControllerService/GetJobStatus", pb.GetJobStatusRequest(job_id=name), pb.GetJobStatusResponse
            )
            job = answer.job
        if int(job.state) not in JOB_TERMINAL:
            targets.append(GateTarget(name, int(job.incarnation), job_label(job.state)))
    return tuple(targets)


def gate(session: Session, action: Action, targets: tuple[GateTarget, ...]) -> GateScreen:
    """The gate for ending these jobs. More than one job, or one with child jobs, is tier 2."""
    jobs: set[str] = set()
    running = waiting = 0
    for target in targets:
        below = session.tree.subtree(target.id)
        if target.id not in jobs:
            running += below.running
            waiting += below.waiting
        jobs.update(below.jobs)
    children = len(jobs - {target.id for target in targets})
    verb = action.title.partition(":")[0]
    word = "as succeeded" if action.name == "complete" else "as killed"
    tasks = [_count(number, noun) for number, noun in ((running, "running task"), (waiting, "waiting task")) if number]
    effects = [f"ends {' and '.join(tasks) or _count(len(targets), 'job')} {word}"]
    if children:
        effects.append(f"ends {_count(children, 'child job')} below {'it' if len(targets) == 1 else 'them'}, too")
    effects.append("what they did so far and their logs stay; it cannot be taken back")
    names = " ".join(target.id for target in targets[:SHOWN_IN_COMMAND])
    more = " …" if len(targets) > SHOWN_IN_COMMAND else ""
    return GateScreen(
        GatePlan(
            verb=verb,
            what=one_line(targets[0].id) if len(targets) == 1 else f"{len(targets)} jobs",
            tier=2 if len(targets) > 1 or children else action.tier,
            cluster=session.name,
            environment=session.environment,
            targets=targets,
            effects=tuple(effects),
            command=action.cli.replace("{at}", session.selector).replace("{id}", names + more),
            hidden=len({target.id for target in targets} - set(session.tree.store.order)),
            changed=lambda: _changed(session, targets),
            button=f"{verb} the job" if len(targets) == 1 else f"{verb} {len(targets)} jobs",
        )
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _state(session: Session, target: GateTarget) -> str:
    """What keeps a target from being ended as it was frozen, "" if nothing does."""
    row = session.tree.store.get(target.id)
    if row is None:
        return ""
    job: Any = row.value
    if row.gone:
        return "is gone"
    if int(job.incarnation) != target.generation:
        return "was replaced by a new job of that name"
    if int(job.state) in JOB_TERMINAL:
        return f"has {job_label(job.state)}" if job_label(job.state) == "succeeded" else f"is {job_label(job.state)}"
    return ""


def _changed(session: Session, targets: tuple[GateTarget, ...]) -> str:
    changes = [f"{target.id} {state}" for target in targets if (state := _state(session, target))]
    return "; ".join(changes[:3]) + (f" and {len(changes) - 3} more" if len(changes) > 3 else "")


async def send(session: Session, action: Action, target: GateTarget, request_id: str, *, tries: int) -> Result:
    """End one job, once, however often it has to be asked for."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    state = _state(session, target)
    if state:
        return Result(target.id, False, f"not sent: it {state}")
    for attempt in range(tries):
        try:
            if action.name == "complete":
                completed = await session.client.call(
                    "ControllerService/CompleteJob",
                    pb.CompleteJobRequest(job_id=target.id, request_id=request_id),
                    pb.CompleteJobResponse,
                )
                return Result(target.id, True, _ended(completed.job_ids), tuple(completed.job_ids))
            ended = await session.client.call(
                "ControllerService/TerminateJob",
                pb.TerminateJobRequest(job_id=target.id, reason="cancelled in the console", request_id=request_id),
                pb.TerminateJobResponse,
            )
            return Result(target.id, True, _ended(ended.job_ids), tuple(ended.job_ids))
        except ConnectFailed as error:
            if attempt + 1 == tries:
                return Result(target.id, False, f"not known whether it was done: {one_line(error.message)}")
            await asyncio.sleep(RETRY_S)
        except IrisError as error:
            return Result(target.id, False, one_line(error.message))
    return Result(target.id, False, "not sent")


def _ended(job_ids: Any) -> str:
    return f"{_count(len(job_ids), 'job')} ended"
