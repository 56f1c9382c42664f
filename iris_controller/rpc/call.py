"""A call as its handler sees it: who makes it, what came with it, and what is to be said of it afterwards.

The router makes one for each call and every handler takes one; neither needs the other for that. Must never hold a request or an
answer: those are the handler's arguments.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from iris_controller.audit import Value
    from iris_controller.loop import ControllerLoop
    from iris_controller.rpc.auth import Identity
    from iris_controller.rpc.client_context import ClientContext
    from iris_controller.rpc.passthrough import Metadata
    from iris_controller.state.overlay import Overlay
    from iris_core.wire.services import Method

T = TypeVar("T")

Answer = Message | bytes
"""What a handler gives: a message, or one already serialised."""
Argument = Message | bytes
"""What a handler is given: bytes if the method is passed through."""


@dataclass(slots=True)
class Call:
    """What a handler may know of the call it serves.

    request_id  of a mutation, "" if the caller gave none
    request_digest  of a request that has a request id, and `subject`, what it is about, "" = it does not say: as they came
    peer        the caller's real address
    cancelled   set when the caller went away or its time was over. A read is cancelled by that; a mutation is not, it runs to its
                end, so that what was committed is audited: one that waits for long looks at this
    replayed    set by a handler that gave the first answer of a repeated request again: nothing is audited
    plan_token  of the plan that this call carries out, "" = none
    confirm     the cluster's name, if the caller typed it
    context     what the client says of how the change came about
    guard       refuses the call if what it is about is no longer what was planned; to be run inside the command (`guarded`)
    """

    identity: Identity
    method: Method
    peer: str
    request_id: str = ""
    request_digest: bytes = b""
    subject: str = ""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    replayed: bool = False
    deadline: float | None = None
    trailing: Metadata = ()
    audit_fields: dict[str, Value] = field(default_factory=dict)
    audit_entity: str = ""
    audit_trigger: str = ""
    plan_token: str = ""
    confirm: str = ""
    context: ClientContext | None = None
    guard: Callable[[Overlay], None] | None = None

    def guarded(self, plan: Callable[[Overlay, int], T]) -> Callable[[Overlay, int], T]:
        """The command, which refuses with `replan` before anything else if a target is no longer what was confirmed."""
        guard = self.guard
        if guard is None:
            return plan

        def checked(o: Overlay, now_ms: int) -> T:
            guard(o)
            return plan(o, now_ms)

        return checked

    async def recheck(self, loop: ControllerLoop) -> None:
        """The same check by itself, for what is no command. Raises RpcError."""
        if self.guard is not None:
            await loop.submit("check a plan", self.guarded(lambda _o, _now_ms: None))

    def audit(self, *, entity: str = "", trigger: str = "", **fields: Value) -> None:
        """Adds to the audit line that is written once this call was answered OK; a name given twice keeps the last value."""
        self.audit_entity = entity or self.audit_entity
        self.audit_trigger = trigger or self.audit_trigger
        self.audit_fields.update(fields)

    def time_left_s(self) -> float | None:
        """Seconds until the caller gives up; None = it waits for ever."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


async def unless_left(work: Coroutine[Any, Any, T], call: Call) -> T | None:
    """What `work` gives; None when the caller went away before, and `work` was cancelled."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.create_task(call.cancelled.wait(), name="caller left")
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})
