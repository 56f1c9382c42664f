"""Mutations happen once per request id: a repeat within 24 hours gets the first answer (DESIGN §4 "Wire rules").

Another request under a used id is no repeat: it is refused, and told what the first one was about, but never given its answer. A row of a
release that kept no digest answers as it did then.

The answer is a row in the same transaction as the mutation, so it survives a kill between the commit and the reply.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import Message

from iris_controller.rpc.answered import AnsweredIds
from iris_controller.rpc.call import Call
from iris_controller.rpc.errors import RpcError, invalid
from iris_controller.rpc.requests import SingleFlight, subject_of
from iris_controller.state.overlay import Overlay, RequestAnswer
from iris_controller.store.reads import Readers, answer_of

R = TypeVar("R", bound=Message)
Answered = tuple[str, bytes, Message | bytes]
"""Method, digest of the request (b"" = not known), and answer."""

RECENT = 256
RECENT_BYTES = 32 << 20


class Once:
    """Runs mutations once per (principal, request id)."""

    def __init__(self, readers: Readers, answered: AnsweredIds) -> None:
        self._readers = readers
        self._answered = answered
        self._flight = SingleFlight()
        self._recent: OrderedDict[tuple[str, str], tuple[str, bytes, bytes]] = OrderedDict()
        self._recent_bytes = 0

    async def run(self, call: Call, kind: type[R], work: Callable[[], Awaitable[R]]) -> R:
        """The first answer of this request id, or what `work` returns. Raises what `work` raises; a failure is not kept.

        `work` must `remember` its answer in the batch that it commits.
        """
        key = (call.identity.principal, call.request_id)

        async def stored() -> tuple[str, bytes, bytes] | None:
            if key in self._answered:
                return await self._readers.run(lambda c: answer_of(c, *key))
            self._answered.add(key)
            return None

        return await self._run(call, kind, work, stored)

    async def run_unstored(self, call: Call, kind: type[R], work: Callable[[], Awaitable[R]]) -> R:
        """As `run`, for what changes nothing in the state: the latest answers are kept in memory and end with this process."""
        key = (call.identity.principal, call.request_id)

        async def recent() -> tuple[str, bytes, bytes] | None:
            return self._recent.get(key)

        async def kept() -> R:
            answer = await work()
            if call.request_id:
                self._keep(key, call, answer.SerializeToString())
            return answer

        return await self._run(call, kind, kept, recent)

    async def _run(
        self,
        call: Call,
        kind: type[R],
        work: Callable[[], Awaitable[R]],
        earlier: Callable[[], Awaitable[tuple[str, bytes, bytes] | None]],
    ) -> R:
        if not call.request_id:
            return await work()
        ours = False

        async def first() -> Answered:
            nonlocal ours
            stored = await earlier()
            if stored is not None:
                return stored
            ours = True
            return call.method.name, call.request_digest, await work()

        method, digest, answer = await self._flight.run((call.identity.principal, call.request_id), first)
        if method != call.method.name:
            raise invalid("request_id", f"request id {call.request_id} was used for {method}", code="request_id_reused")
        if digest and digest != call.request_digest:
            raise _another(call, kind, answer)
        call.replayed = not ours
        if isinstance(answer, bytes):
            return kind.FromString(answer)
        assert isinstance(answer, kind)
        return answer

    def _keep(self, key: tuple[str, str], call: Call, answer: bytes) -> None:
        self._recent[key] = (call.method.name, call.request_digest, answer)
        self._recent_bytes += len(answer)
        while len(self._recent) > RECENT or self._recent_bytes > RECENT_BYTES:
            _, (_, _, gone) = self._recent.popitem(last=False)
            self._recent_bytes -= len(gone)


def _another(call: Call, kind: type[Message], first: Message | bytes) -> RpcError:
    told = subject_of(kind.FromString(first) if isinstance(first, bytes) else first)
    name = call.method.name
    return invalid(
        "request_id",
        f"request id {call.request_id} was used for another {name}{f' ({told})' if told else ''}"
        f" than this one{f' ({call.subject})' if call.subject else ''}; nothing was done",
        code="request_id_reused",
        hint="give each request an id of its own, and repeat one only as it was",
    )


def remember(overlay: Overlay, call: Call, response: Message) -> None:
    """Keeps the answer in the batch that makes it true."""
    if call.request_id:
        overlay.answers.append(
            RequestAnswer(
                call.identity.principal,
                call.request_id,
                call.method.name,
                response.SerializeToString(deterministic=True),
                call.request_digest,
            )
        )
