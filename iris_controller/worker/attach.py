"""The worker's one connection: it dials the controller, says what it holds, and follows what it is told, for ever.

Nothing here decides anything about attempts: a broken, refused or silent connection is a normal state in which the agent goes on
as it is. Nothing is treated as unwanted until the first complete set of this very stream has arrived. One coroutine writes to the
stream, so that messages keep their order.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import grpc

from iris_controller.worker.bundles import CannotFetch
from iris_controller.worker.config import read_token
from iris_controller.worker.profiling.answering import pieces
from iris_core.wire.gen.iris.v1 import worker_pb2
from iris_core.wire.services import method

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path
    from typing import Any

    from iris_controller.worker.agent import Agent

_log = logging.getLogger("iris.worker.attach")

_FIRST_BACKOFF_S = 0.1
_LAST_BACKOFF_S = 5.0
_WELCOME_S = 10.0
_HEARTBEAT_S = 5.0
_GOOD_S = 2.0
_AWAY = frozenset({"UNAVAILABLE", "CANCELLED", "UNKNOWN", "INTERNAL"})
"""What a call ends with when its controller goes away in the middle of it."""
_MAX_MESSAGE = 128 * 1024 * 1024
_CAPTURES = 16
"""So many periodic profiles wait for a slow stream; the oldest of more give way."""

Request = worker_pb2.AttachRequest


class Rejected(Exception):
    """The controller will never accept this identity."""


def dial(target: str, *, tls: bool = False) -> grpc.aio.Channel:
    """A new channel to `host:port` that shares no connection, and no back-off, with any other."""
    host = target.rpartition(":")[0].strip("[]")
    near = host in {"127.0.0.1", "::1", "localhost"}
    options: list[tuple[str, Any]] = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        # How long one attempt may take, in spite of its name: a busy controller answers late.
        ("grpc.min_reconnect_backoff_ms", 10_000),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.max_receive_message_length", _MAX_MESSAGE),
        ("grpc.max_send_message_length", _MAX_MESSAGE),
        ("grpc.enable_http_proxy", 0 if near else 1),
    ]
    if not near:
        # A peer that vanished without a word (power, NAT) is noticed; on loopback the kernel always tells.
        options += [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000)]
    if tls:
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(), options=options)
    return grpc.aio.insecure_channel(target, options=options)


def target_of(url: str) -> tuple[str, bool]:
    """`host:port` and whether to speak TLS, of a controller's URL."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"[{host}]:{parts.port}" if ":" in host else f"{host}:{parts.port}", parts.scheme == "https"


def credentials(token_file: Path | None) -> tuple[tuple[str, str], ...]:
    """The metadata of a call, with the token as it is now."""
    try:
        token = read_token(token_file)
    except OSError as error:
        _log.error("cannot read the token file: %s", error)
        return ()
    return (("authorization", f"Bearer {token}"),) if token else ()


class Attachment:
    """The stream and everything that goes over it. `welcomed` is called with each Welcome."""

    def __init__(
        self,
        url: str,
        token_file: Path | None,
        agent: Agent,
        *,
        hello: Callable[[], worker_pb2.WorkerHello],
        heartbeat: Callable[[], worker_pb2.WorkerHeartbeat],
        answer: Callable[[worker_pb2.WorkerRequest], Awaitable[worker_pb2.WorkerReply]],
        welcomed: Callable[[worker_pb2.Welcome], None],
    ) -> None:
        self.attached = False
        self._stopping = False
        self._beat_now = False
        self._url = url
        self._token_file = token_file
        self._agent = agent
        self._hello = hello
        self._heartbeat = heartbeat
        self._answer = answer
        self._welcomed = welcomed
        self._wake = asyncio.Event()
        self._replies: deque[worker_pb2.WorkerReply] = deque()
        self._answering: dict[int, asyncio.Task[None]] = {}
        self._captures: deque[worker_pb2.ProfileCapture] = deque(maxlen=_CAPTURES)
        self._told = ""

    def wake(self) -> None:
        """There is something to send."""
        self._wake.set()

    def capture(self, taken: worker_pb2.ProfileCapture) -> bool:
        """Sends a profile that nobody asked for. Returns False when an older one had to go: the stream does not keep up."""
        full = len(self._captures) == _CAPTURES
        self._captures.append(taken)
        self._wake.set()
        return not full

    def say_stopping(self) -> None:
        """Tells the controller, at once and from now on, that this worker ends and takes nothing new."""
        self._stopping = self._beat_now = True
        self._wake.set()

    async def run(self) -> None:
        """Dials for ever. Raises Rejected."""
        backoff = _FIRST_BACKOFF_S
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._session()
                self._say("the controller ended the stream")
            except grpc.aio.AioRpcError as error:
                self._say(f"{error.code().name}: {(error.details() or '').splitlines()[0] if error.details() else ''}")
            except (OSError, TimeoutError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
                self._say(str(error) or "no answer")
            finally:
                self.attached = False
            backoff = _FIRST_BACKOFF_S if loop.time() - began > _GOOD_S else min(backoff * 2, _LAST_BACKOFF_S)
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))

    def _say(self, problem: str) -> None:
        if problem != self._told:
            _log.warning("no controller at %s: %s (tasks run on; trying again)", self._url, problem)
            self._told = problem

    async def _session(self) -> None:
        target, tls = target_of(self._url)
        attach = method("WorkerService/Attach")
        async with dial(target, tls=tls) as channel:
            open_stream = channel.stream_stream(
                attach.path,
                request_serializer=Request.SerializeToString,
                response_deserializer=worker_pb2.AttachResponse.FromString,
            )
            call = open_stream(None, metadata=credentials(self._token_file))
            try:
                await self._talk(call)
            finally:
                call.cancel()

    async def _talk(self, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        hello = self._hello()
        hello.holding.extend(self._agent.holding())
        await call.write(Request(hello=hello))
        async with asyncio.timeout(_WELCOME_S):
            first = await _next(call)
        if first is None:
            return
        if first.WhichOneof("message") == "rejected":
            self._rejected(first.rejected)
            return
        if first.WhichOneof("message") != "welcome":
            raise OSError("the peer does not speak the worker protocol")
        _log.info("attached to %s (controller boot %s)", self._url, first.welcome.controller_boot_id)
        self._told = ""
        self.attached = True
        self._replies.clear()
        self._welcomed(first.welcome)
        self._agent.new_stream()
        writing = asyncio.create_task(self._write(call, first.welcome), name="attach writer")
        reading = asyncio.create_task(self._read(call), name="attach reader")
        try:
            await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            writing.cancel()
            reading.cancel()
            for asked in list(self._answering.values()):
                asked.cancel()  # its answer could go nowhere
            results = await asyncio.gather(writing, reading, return_exceptions=True)
        for result in reversed(results):
            if isinstance(result, Exception):
                raise result

    def _rejected(self, rejected: worker_pb2.Rejected) -> None:
        if rejected.permanent:
            raise Rejected(rejected.message or rejected.code)
        raise OSError(f"rejected: {rejected.message or rejected.code}")

    async def _read(self, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        while (message := await _next(call)) is not None:
            match message.WhichOneof("message"):
                case "desired":
                    self._agent.apply(message.desired)
                case "ack":
                    self._agent.ack(message.ack.seq)
                case "request":
                    self._asked(message.request)
                case "rejected":
                    self._rejected(message.rejected)
                case other:
                    _log.warning("a message of kind %s is not understood", other)

    def _asked(self, request: worker_pb2.WorkerRequest) -> None:
        kind = request.WhichOneof("request")
        if kind == "give_up":
            if (given_up := self._answering.get(request.give_up)) is not None:
                given_up.cancel()
            return
        task = asyncio.create_task(self._reply(request), name=f"{kind} request")
        self._answering[request.request_id] = task
        task.add_done_callback(lambda _: self._answered(request.request_id, task))

    def _answered(self, number: int, task: asyncio.Task[None]) -> None:
        if self._answering.get(number) is task:
            del self._answering[number]

    async def _reply(self, request: worker_pb2.WorkerRequest) -> None:
        try:
            reply = await self._answer(request)
        except Exception as error:
            _log.exception("request %d failed", request.request_id)
            reply = worker_pb2.WorkerReply(error=f"the worker failed: {type(error).__name__}: {error}")
        reply.request_id = request.request_id
        self._replies.extend(pieces(reply))
        self._wake.set()

    async def _write(self, call: grpc.aio.StreamStreamCall[Any, Any], welcome: worker_pb2.Welcome) -> None:
        loop = asyncio.get_running_loop()
        every = welcome.heartbeat_ms / 1000 if welcome.heartbeat_ms > 0 else _HEARTBEAT_S
        next_beat = loop.time()
        applied = -1
        while True:
            if self._beat_now or loop.time() >= next_beat:
                self._beat_now = False
                beat = self._heartbeat()
                beat.applied_generation = self._agent.applied
                beat.stopping = self._stopping
                await call.write(Request(heartbeat=beat))
                next_beat = loop.time() + every
            try:
                async with asyncio.timeout_at(next_beat):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()
            if self._beat_now:
                next_beat = loop.time()
                continue
            while self._replies:
                await call.write(Request(reply=self._replies.popleft()))
                if self._replies and loop.time() >= next_beat:
                    self._wake.set()
                    break
            if self._captures and not self._replies:
                await call.write(Request(capture=self._captures.popleft()))
                if self._captures:
                    self._wake.set()
            report = self._agent.report()
            if report.observations or report.applied_generation != applied:
                applied = report.applied_generation
                await call.write(Request(report=report))


async def _next(call: grpc.aio.StreamStreamCall[Any, Any]) -> worker_pb2.AttachResponse | None:
    message = await call.read()
    return message if isinstance(message, worker_pb2.AttachResponse) else None


def fetcher(url: str, token_file: Path | None) -> Callable[[str], AsyncIterator[bytes]]:
    """How bundles are streamed from the controller; it is waited for while it is away."""

    async def fetch(bundle_id: str) -> AsyncIterator[bytes]:
        target, tls = target_of(url)
        get = method("WorkerService/GetBundle")
        try:
            async with dial(target, tls=tls) as channel:
                call = channel.unary_stream(
                    get.path,
                    request_serializer=worker_pb2.GetBundleRequest.SerializeToString,
                    response_deserializer=worker_pb2.GetBundleResponse.FromString,
                )(
                    worker_pb2.GetBundleRequest(bundle_id=bundle_id),
                    metadata=credentials(token_file),
                    wait_for_ready=True,
                    timeout=300.0,
                )
                async for message in call:
                    yield message.chunk
        except grpc.aio.AioRpcError as error:
            name = error.code().name
            gone = name == "NOT_FOUND"
            raise CannotFetch(f"{name}: {error.details()}", away=name in _AWAY, gone=gone) from None

    return fetch


def log_targets(addresses: Sequence[str], url: str) -> list[tuple[str, bool]]:
    """Where lines are pushed to: the log store's own addresses, then the dialled port, which passes them on."""
    return [*dict.fromkeys([*((address, False) for address in addresses), target_of(url)])]
