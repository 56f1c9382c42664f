"""A change in two deliberate steps: ask the controller what it would do, then do exactly that, once (DESIGN §5.18).

`make` asks for a plan; what it says is shown to somebody; `carry_out` sends its requests under its token. Each request has an id of its
own and keeps it however often it has to be sent, so that it takes effect once; where the connection stays broken, "not known whether it
was done" is a result of its own. The server compares what was looked at with what is there, and refuses with `replan` when they differ:
then a new plan is made and shown. Must never send what was not planned, and never decide that something may be done.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from iris_core.client.calls import fate_unknown
from iris_core.client.context import ClientContext, sending
from iris_core.contracts import ConnectFailed, IrisError, RpcFailed
from iris_core.wire.services import method as method_of

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from iris_core.contracts import AsyncClient, Client
    from iris_core.wire.gen.iris.v1 import plan_pb2

PLAN: Final = "ControllerService/Plan"
REPLAN: Final = "replan"
"""The code of an error that says: it is no longer what was looked at."""
TRIES: Final = 3
RETRY_S: Final = 1.0
AT_ONCE: Final = 8
"""Requests of one plan that are under way together."""


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that a plan is about, as it was: `generation` names its state, `note` says what it was doing."""

    kind: str
    id: str
    generation: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a change would do.

    Attributes:
        tier: Of confirmation, 0 reversible … 3 the cluster, whose name is then to be typed.
        effects: What would happen, one line each; `lasting` is what of it cannot be taken back.
        skipped: Names that it would not touch, each with the reason.
        requests: What is to be sent, one after the other.
        token: Stands for exactly this plan for `expires_s` seconds; "" = there is nothing to do, or nobody to ask for one.
        cluster: The name to be typed.
        unchecked: Why the server could not be asked, "" where it was: nothing is counted, and nothing will be compared.
    """

    method: str
    tier: int
    effects: tuple[str, ...] = ()
    lasting: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    requests: tuple[Message, ...] = ()
    token: str = field(default="", repr=False)
    expires_s: float = 0.0
    cluster: str = ""
    jobs: int = 0
    child_jobs: int = 0
    running_tasks: int = 0
    waiting_tasks: int = 0
    workers: int = 0
    capped: bool = False
    unchecked: str = ""


class Fate(StrEnum):
    """What became of one request."""

    DONE = "done"
    REFUSED = "refused"
    REPLAN = "replan"
    """It is no longer what was looked at: nothing was done."""
    UNKNOWN = "unknown"
    """The connection broke: not known whether it was done."""
    NOT_SENT = "not sent"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one request: its fate, the error's words where it was not done, and the answer where it was."""

    request: Message
    fate: Fate
    words: str = ""
    hint: str = ""
    answer: Message | None = None


def question(method: str, requests: Sequence[Message]) -> plan_pb2.PlanRequest:
    """What asks for a plan."""
    from iris_core.wire.gen.iris.v1 import plan_pb2

    return plan_pb2.PlanRequest(method=method, requests=[request.SerializeToString() for request in requests])


def understood(answer: plan_pb2.PlanResponse) -> Plan:
    """The plan in a server's answer."""
    kind = method_of(answer.method).request
    counts = answer.counts
    return Plan(
        method=answer.method,
        tier=answer.tier,
        effects=tuple(answer.effects),
        lasting=tuple(answer.lasting),
        hints=tuple(answer.hints),
        targets=tuple(Target(t.kind, t.id, t.generation, t.note) for t in answer.targets),
        skipped=tuple((skip.id, skip.why) for skip in answer.skipped),
        requests=tuple(kind.FromString(raw) for raw in answer.requests),
        token=answer.token,
        expires_s=answer.expires_in_ms / 1000,
        cluster=answer.cluster,
        jobs=counts.jobs,
        child_jobs=counts.child_jobs,
        running_tasks=counts.running_tasks,
        waiting_tasks=counts.waiting_tasks,
        workers=counts.workers,
        capped=counts.capped,
    )


def unasked(method: str, requests: Sequence[Message], tier: int, error: IrisError) -> Plan | None:
    """The plan for a controller of an earlier release, which makes none; None for any other error."""
    if not isinstance(error, RpcFailed) or error.status != "UNIMPLEMENTED":
        return None
    why = "this controller is of an earlier release: it cannot say what this would do, nor compare it when it is done"
    return Plan(method, tier, requests=tuple(requests), unchecked=why)


async def make(client: AsyncClient, method: str, requests: Sequence[Message], *, tier: int = 1) -> Plan:
    """Asks what requests of one method would do. `tier` counts only where the controller cannot say. Raises IrisError."""
    from iris_core.wire.gen.iris.v1 import plan_pb2

    try:
        return understood(await client.call(PLAN, question(method, requests), plan_pb2.PlanResponse))
    except RpcFailed as error:
        plan = unasked(method, requests, tier, error)
        if plan is None:
            raise
        return plan


def make_now(client: Client, method: str, requests: Sequence[Message], *, tier: int = 1) -> Plan:
    """The same for the command line."""
    from iris_core.wire.gen.iris.v1 import plan_pb2

    try:
        return understood(client.call(PLAN, question(method, requests), plan_pb2.PlanResponse))
    except RpcFailed as error:
        plan = unasked(method, requests, tier, error)
        if plan is None:
            raise
        return plan


async def carry_out(
    client: AsyncClient,
    plan: Plan,
    context: ClientContext,
    *,
    confirm: str = "",
    timeout_s: float = 60.0,
    told: Callable[[Outcome], None] | None = None,
    retry_s: float = RETRY_S,
) -> list[Outcome]:
    """Sends the requests of a plan, each once, and says what became of each, in their order. Never raises IrisError.

    `told` hears of each as soon as it is known. When the fate of one is unknown, those that were not begun are not sent.
    """
    outcomes: dict[int, Outcome] = {}
    places = iter(range(len(plan.requests)))
    broken = ""

    async def work() -> None:
        nonlocal broken
        for place in places:
            request = plan.requests[place]
            if broken:
                outcome = Outcome(request, Fate.NOT_SENT, broken)
            else:
                outcome = await _send(client, plan.method, _named(request, context.reason), timeout_s, retry_s)
                if outcome.fate is Fate.UNKNOWN:
                    broken = "not sent, since the connection broke"
            outcomes[place] = outcome
            if told is not None:
                told(outcome)

    with sending(plan_token=plan.token, confirm=confirm, context=context):
        await asyncio.gather(*(work() for _ in range(min(AT_ONCE, len(plan.requests)))))
    return [outcomes[place] for place in sorted(outcomes)]


def _named(request: Message, reason: str) -> Message:
    """A copy with a request id, and with the reason where the request has room for one."""
    named: Any = type(request)()
    named.CopyFrom(request)
    named.request_id = secrets.token_hex(16)
    if reason and "reason" in named.DESCRIPTOR.fields_by_name:
        from iris_core.model.redact import redact_text

        named.reason = redact_text(reason)
    return named  # type: ignore[no-any-return]


async def _send(client: AsyncClient, method: str, request: Message, timeout_s: float, retry_s: float) -> Outcome:
    """One request, under one id: asked as often as it takes where a repeat finds the first answer, else until it may have been heard."""
    response = method_of(method).response
    for tried in range(1, TRIES + 1):
        try:
            answer = await client.call(method, request, response, timeout_s=timeout_s)
        except IrisError as error:
            lost = fate_unknown(method, error)
            if isinstance(error, ConnectFailed) and not lost and tried < TRIES:
                await asyncio.sleep(retry_s)
                continue
            if lost or isinstance(error, ConnectFailed):
                return Outcome(request, Fate.UNKNOWN, f"not known whether it was done: {error.message}", error.hint)
            code = error.code if isinstance(error, RpcFailed) else ""
            return Outcome(request, Fate.REPLAN if code == REPLAN else Fate.REFUSED, error.message, error.hint)
        else:
            return Outcome(request, Fate.DONE, answer=answer)
    raise AssertionError("a last try decides")
