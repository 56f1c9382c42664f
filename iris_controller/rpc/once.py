"""Mutations happen once per request id: a repeat within 24 hours gets the first answer (DESIGN §4 "Wire rules").

The answer is a row in the same transaction as the mutation, so it survives a kill between the commit and the reply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import Message

from iris_controller.rpc.dispatch import Call
from iris_controller.rpc.errors import invalid
from iris_controller.rpc.requests import SingleFlight
from iris_controller.state.overlay import Overlay, RequestAnswer
from iris_controller.store.reads import Readers, answer_of

R = TypeVar("R", bound=Message)


class Once:
    """Runs mutations once per (principal, method, request id)."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._flight = SingleFlight()

    async def run(self, call: Call, kind: type[R], work: Callable[[], Awaitable[R]]) -> R:
        """The first answer of this request id, or what `work` returns. Raises what `work` raises; a failure is not kept."""
        if not call.request_id:
            return await work()
        principal, request_id = call.identity.principal, call.request_id

        async def first() -> R:
            stored = await self._readers.run(lambda c: answer_of(c, principal, request_id))
            if stored is None:
                return await work()
            method, response = stored
            if method != call.method.name:
                raise invalid("request_id", f"request id {request_id} was used for {method}", code="request_id_reused")
            call.replayed = True
            return kind.FromString(response)

        return await self._flight.run((principal, request_id), first)


def remember(overlay: Overlay, call: Call, response: Message) -> None:
    """Keeps the answer in the batch that makes it true."""
    if call.request_id:
        overlay.answers.append(
            RequestAnswer(
                call.identity.principal, call.request_id, call.method.name, response.SerializeToString(deterministic=True)
            )
        )
