"""A call that came over HTTP: JSON in, and one JSON object or newline-delimited ones out.

The router does everything else; this only translates. A stream that fails at once is answered with the status of its error, later the
error is its last line, `{"error": …}`. Must never leave a handler's iterator open once the caller is gone.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iris_controller.rpc.errors import RpcError, as_rpc_error
from iris_controller.rpc.json_codec import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from google.protobuf.message import Message

    from iris_controller.rpc.call import Answer, Call
    from iris_controller.rpc.dispatch import Entry, Router

_FIRST_ANSWER_S = 0.5


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """One JSON object. `retry_after_ms` > 0 goes into a `retry-after` header."""

    status: int
    body: bytes
    retry_after_ms: int = 0


class JsonStream:
    """The lines of a server stream; `aclose` must be called in any case."""

    def __init__(
        self,
        router: Router,
        path: str,
        entry: Entry,
        call: Call,
        answers: AsyncGenerator[Answer, None],
        first: asyncio.Future[Answer],
        started: float,
    ) -> None:
        self._router = router
        self._path = path
        self._entry = entry
        self._call = call
        self._answers = answers
        self._first = first
        self._started = started
        self._status = "CANCELLED"
        self._closed = False

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Each answer as one line, with its line end; an error as the last one."""
        try:
            try:
                yield await self._line(await self._first)
            except _Empty:
                self._status = "OK"
                return
            async for answer in self._answers:
                yield await self._line(answer)
            self._status = "OK"
        except Exception as error:
            told = as_rpc_error(error, self._entry.method.full_name)
            self._status = told.status
            yield _dump({"error": told.as_json()}) + b"\n"

    async def aclose(self) -> None:
        """Ends the handler; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        self._call.cancelled.set()
        await _abandon(self._first)
        await self._answers.aclose()
        self._router.finished(self._path, self._status, self._started)

    async def _line(self, answer: Answer) -> bytes:
        return await to_json(_message(self._entry, answer)) + b"\n"


async def serve_json(
    router: Router,
    path: str,
    body: bytes | Callable[[int], Awaitable[bytes]],
    headers: Mapping[str, str],
    real_peer: str | None,
) -> JsonAnswer | JsonStream:
    """Serves `/iris.v1.Service/Name` with a JSON body. Never raises but for cancellation; a stream must be closed.

    `body` may be a function that reads it, of at most the given number of bytes: it is called once the caller is known.
    """
    started = time.monotonic()
    status = "OK"
    try:
        entry, call = router.admit(path, headers, real_peer)
        if entry.method.client_streaming:
            raise RpcError("UNIMPLEMENTED", f"{entry.method.full_name} takes a stream: use gRPC", code="needs_grpc")
        if not isinstance(body, bytes):
            # Base64 and field names: JSON is larger than what it stands for.
            body = await body(2 * entry.access.max_bytes)
        request = await from_json(body, entry.method.request)
        entry.check_size(request.ByteSize())
        argument = request if entry.raw is None else request.SerializeToString()
        if entry.method.server_streaming:
            answers = router.many(entry, call, argument)
            first = await _first_of(answers, call)
            return JsonStream(router, path, entry, call, answers, first, started)
        try:
            answer = await router.one(entry, call, argument)
        finally:
            call.cancelled.set()
        found = JsonAnswer(200, await to_json(_message(entry, answer)))
    except asyncio.CancelledError:
        router.finished(path, "CANCELLED", started)
        raise
    except Exception as error:
        told = as_rpc_error(error, path.rpartition(".")[2])
        status = told.status
        found = json_error(told)
    router.finished(path, status, started)
    return found


def json_error(error: RpcError) -> JsonAnswer:
    """An error as an HTTP answer."""
    return JsonAnswer(error.http_status, _dump(error.as_json()), error.retry_after_ms)


async def _first_of(answers: AsyncGenerator[Answer, None], call: Call) -> asyncio.Future[Answer]:
    """The first answer, on its way; raises the error that came instead if it came soon."""
    first = asyncio.ensure_future(_next(answers))
    try:
        await asyncio.wait({first}, timeout=_FIRST_ANSWER_S)
        if first.done() and (error := first.exception()) is not None and not isinstance(error, _Empty):
            raise error
    except BaseException:
        call.cancelled.set()
        await _abandon(first)
        await answers.aclose()
        raise
    return first


class _Empty(Exception):
    """A stream without answers: StopAsyncIteration must not leave a task."""


async def _next(answers: AsyncGenerator[Answer, None]) -> Answer:
    try:
        return await anext(answers)
    except StopAsyncIteration:
        raise _Empty from None


async def _abandon(first: asyncio.Future[Any]) -> None:
    if not first.done():
        first.cancel()
        await asyncio.wait({first})
    if not first.cancelled():
        # Asked for, so that nobody warns of an error nobody took.
        first.exception()


def _message(entry: Entry, answer: Answer) -> Message:
    return entry.method.response.FromString(answer) if isinstance(answer, bytes) else answer


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
