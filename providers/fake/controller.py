"""A controller and log store that decide nothing: a test says what is desired, and sees what a real worker does about it.

Speaks the real worker and log protocols over a real port, keeps every observation and line, and can be made to be away, to refuse
lines, or to leave observations unacknowledged. Lines are taken by the rule of the store: what is below a producer's mark is dropped.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2, worker_pb2
from iris_core.wire.services import method
from providers.fake.stats import FakeStats, Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

_OPTIONS = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
]

TERMINAL = frozenset(
    {
        common_pb2.TASK_STATE_SUCCEEDED,
        common_pb2.TASK_STATE_FAILED,
        common_pb2.TASK_STATE_KILLED,
        common_pb2.TASK_STATE_WORKER_FAILED,
        common_pb2.TASK_STATE_MISSING,
    }
)


@dataclass(slots=True)
class Lines:
    """What one producer delivered."""

    key: str = ""
    attempt_uid: str = ""
    incarnation: int = 0
    next: int = 0
    entries: list[logs_pb2.LogEntry] = field(default_factory=list)

    @property
    def text(self) -> list[str]:
        """The data of its lines, gap records left out."""
        return [entry.data for entry in self.entries if not entry.gap]


@dataclass(slots=True)
class _Stream:
    hello: worker_pb2.WorkerHello
    out: asyncio.Queue[worker_pb2.AttachResponse | None]
    generation: int = 0
    specs: set[str] = field(default_factory=set)


class FakeController:
    """One controller for one worker. Use as an async context manager, or `start` and `stop` it again and again."""

    def __init__(self) -> None:
        self.boot_id = ""
        self.port = 0
        self.hellos: list[worker_pb2.WorkerHello] = []
        self.observations: list[worker_pb2.Observation] = []
        self.heartbeats: list[worker_pb2.WorkerHeartbeat] = []
        self.applied = 0
        self.lines: dict[str, Lines] = {}
        self.pushes = 0
        self.bundles: dict[str, bytes] = {}
        self.bundle_calls = 0
        self.tokens: list[str] = []
        self.reject: worker_pb2.Rejected | None = None
        self.log_addresses: list[str] = []
        self.heartbeat_ms = 200
        self.stats = FakeStats()
        self.stats_interval_ms = 0
        self.profile_interval_ms = 0
        self.captures: list[worker_pb2.ProfileCapture] = []
        self.acknowledge = True
        self.refuse_lines = False
        self.greet = True
        """Whether a new stream gets the desired set at once."""
        self._desired: dict[str, worker_pb2.DesiredAttempt] = {}
        self._specs: dict[str, worker_pb2.RunSpec] = {}
        self._server: grpc.aio.Server | None = None
        self._stream: _Stream | None = None
        self._changed = asyncio.Condition()
        self._replies: dict[int, asyncio.Future[worker_pb2.WorkerReply]] = {}
        self._parts: dict[int, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> FakeController:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listens, on the port it had before if there was one."""
        self.boot_id = secrets.token_hex(8)
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers(
            tuple(map(self._handlers, ("WorkerService", "LogService", "StatsService")))
        )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        """Goes away, as a killed controller does."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    # What is desired ----------------------------------------------------------------------------------------------

    def run(
        self,
        argv: Sequence[str],
        *,
        uid: str = "",
        task_id: str = "/u/job/0",
        attempt_id: int = 0,
        env: Mapping[str, str] | None = None,
        setup: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        bundle: bytes | None = None,
        bundle_id: str = "",
        memory: int = 0,
        disk: int = 0,
        ports: Sequence[str] = (),
        timeout_ms: int = 0,
        token: str = "",
        blobs: Mapping[str, bytes] | None = None,
        processes: int = 0,
        gpus: int = 0,
        send: bool = True,
    ) -> str:
        """Wants an attempt to run. Returns its uid."""
        uid = uid or secrets.token_hex(8)
        if bundle is not None:
            bundle_id = hashlib.sha256(bundle).hexdigest()
            self.bundles[bundle_id] = bundle
        spec = worker_pb2.RunSpec(
            spec_id=uid,
            job_id=task_id.rpartition("/")[0],
            incarnation=7,
            num_tasks=1,
            bundle_id=bundle_id,
            resources=common_pb2.Resources(memory_bytes=memory, disk_bytes=disk),
            ports=ports,
            processes_per_task=processes,
        )
        if gpus:
            spec.resources.device.CopyFrom(common_pb2.Device(kind="gpu", count=gpus))
        for name, data in (blobs or {}).items():
            blob_id = spec.entrypoint.workdir_file_refs[name] = hashlib.sha256(data).hexdigest()
            self.bundles[blob_id] = data
        spec.entrypoint.run_command.argv.extend(argv)
        spec.entrypoint.workdir_files.update(files or {})
        spec.environment.env_vars.update(env or {})
        spec.environment.setup_scripts.extend(setup)
        self._specs[uid] = spec
        want = worker_pb2.DesiredAttempt(attempt_uid=uid)
        want.run.CopyFrom(
            worker_pb2.RunTask(
                spec_id=uid, task_id=task_id, attempt_id=attempt_id, token=token, timeout_remaining_ms=timeout_ms
            )
        )
        self._desired[uid] = want
        if send:
            self.send()
        return uid

    def keep(self, uid: str) -> None:
        """Wants it kept."""
        self._desired[uid] = worker_pb2.DesiredAttempt(attempt_uid=uid, keep=True)
        self.send()

    def end(self, uid: str, reason: int = common_pb2.STOP_REASON_CANCELLED, grace_ms: int = 0) -> None:
        """Wants it stopped."""
        want = worker_pb2.DesiredAttempt(attempt_uid=uid)
        want.stop.grace_ms = grace_ms
        want.stop.reason = reason  # type: ignore[assignment]
        self._desired[uid] = want
        self.send()

    def forget(self, *uids: str, send: bool = True) -> None:
        """Leaves it out of the set."""
        for uid in uids:
            self._desired.pop(uid, None)
        if send:
            self.send()

    def send(self) -> None:
        """Sends the set."""
        stream = self._stream
        if stream is None:
            return
        stream.generation += 1
        desired = worker_pb2.DesiredSet(generation=stream.generation, attempts=self._desired.values())
        for uid in self._desired.keys() & self._specs.keys() - stream.specs:
            desired.specs.append(self._specs[uid])
            stream.specs.add(uid)
        stream.out.put_nowait(worker_pb2.AttachResponse(desired=desired))

    def ack(self, seq: int) -> None:
        """Acknowledges observations up to `seq`."""
        if self._stream is not None:
            self._stream.out.put_nowait(worker_pb2.AttachResponse(ack=worker_pb2.ObservationAck(seq=seq)))

    def drop(self) -> None:
        """Ends the stream."""
        if self._stream is not None:
            self._stream.out.put_nowait(None)

    async def ask(self, request: worker_pb2.WorkerRequest) -> worker_pb2.WorkerReply:
        """Sends a request and waits for its reply."""
        assert self._stream is not None
        request.request_id = len(self._replies) + 1
        future: asyncio.Future[worker_pb2.WorkerReply] = asyncio.get_running_loop().create_future()
        self._replies[request.request_id] = future
        self._stream.out.put_nowait(worker_pb2.AttachResponse(request=request))
        return await future

    def give_up(self, request: worker_pb2.WorkerRequest) -> None:
        """Says that nobody waits for the answer to `request` any more."""
        assert self._stream is not None
        told = worker_pb2.WorkerRequest(give_up=request.request_id)
        self._stream.out.put_nowait(worker_pb2.AttachResponse(request=told))

    # What is seen -------------------------------------------------------------------------------------------------

    async def until(self, true: Callable[[], Any], timeout_s: float = 20.0) -> None:
        """Waits until `true()`. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(true)

    def of(self, uid: str) -> list[worker_pb2.Observation]:
        """What was observed of an attempt, in order."""
        return [observation for observation in self.observations if observation.attempt_uid == uid]

    async def observed(self, uid: str, *states: int, timeout_s: float = 20.0) -> worker_pb2.Observation:
        """The first observation in one of the states."""

        def found() -> list[worker_pb2.Observation]:
            return [observation for observation in self.of(uid) if observation.state in states]

        await self.until(found, timeout_s)
        return found()[0]

    async def ended(self, uid: str, timeout_s: float = 20.0) -> worker_pb2.Observation:
        """The end of an attempt, and with it every line it announces."""
        end = await self.observed(uid, *TERMINAL, timeout_s=timeout_s)
        if end.log_lines and not self.refuse_lines:
            await self.until(lambda: uid in self.lines and self.lines[uid].next >= end.log_lines, timeout_s)
        return end

    async def attached(self, count: int = 1, timeout_s: float = 20.0) -> worker_pb2.WorkerHello:
        """The hello of the `count`-th stream."""
        await self.until(lambda: len(self.hellos) >= count, timeout_s)
        return self.hellos[count - 1]

    # The services -------------------------------------------------------------------------------------------------

    def _handlers(self, service: str) -> Any:
        made = {
            "WorkerService": {
                "Attach": grpc.stream_stream_rpc_method_handler(
                    self._attach,
                    method("WorkerService/Attach").request.FromString,
                    worker_pb2.AttachResponse.SerializeToString,
                ),
                "GetBundle": grpc.unary_stream_rpc_method_handler(
                    self._get_bundle,
                    worker_pb2.GetBundleRequest.FromString,
                    worker_pb2.GetBundleResponse.SerializeToString,
                ),
            },
            "LogService": {
                "PushLogs": grpc.unary_unary_rpc_method_handler(
                    self._push, logs_pb2.PushLogsRequest.FromString, logs_pb2.PushLogsResponse.SerializeToString
                )
            },
            "StatsService": {"WriteRows": grpc.unary_unary_rpc_method_handler(self._write_rows, bytes, bytes)},
        }
        return grpc.method_handlers_generic_handler(f"iris.v1.{service}", made[service])

    async def _attach(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[worker_pb2.AttachResponse]:
        self.tokens += [value for name, value in context.invocation_metadata() if name == "authorization"]
        first = await anext(aiter(requests))
        await self._note(lambda: self.hellos.append(first.hello))
        if self.reject is not None:
            yield worker_pb2.AttachResponse(rejected=self.reject)
            return
        stream = self._stream = _Stream(first.hello, asyncio.Queue())
        welcome = worker_pb2.Welcome(
            controller_boot_id=self.boot_id,
            cluster="test",
            dead_after_ms=10_000,
            heartbeat_ms=self.heartbeat_ms,
            stats_interval_ms=self.stats_interval_ms,
            profile_interval_ms=self.profile_interval_ms,
            log_addresses=self.log_addresses,
        )
        yield worker_pb2.AttachResponse(welcome=welcome)
        if self.greet:
            self.send()
        reading = asyncio.create_task(self._read(requests, stream))
        try:
            while (message := await stream.out.get()) is not None:
                yield message
        finally:
            reading.cancel()
            if self._stream is stream:
                self._stream = None

    async def _read(self, requests: AsyncIterator[Any], stream: _Stream) -> None:
        try:
            async for message in requests:
                await self._note(lambda message=message: self._received(message, stream))  # type: ignore[misc]
        finally:
            stream.out.put_nowait(None)

    def _received(self, message: worker_pb2.AttachRequest, stream: _Stream) -> None:
        match message.WhichOneof("message"):
            case "report":
                self.applied = message.report.applied_generation
                self.observations += message.report.observations
                if self.acknowledge and message.report.observations:
                    seq = max(observation.seq for observation in message.report.observations)
                    stream.out.put_nowait(worker_pb2.AttachResponse(ack=worker_pb2.ObservationAck(seq=seq)))
            case "heartbeat":
                self.heartbeats.append(message.heartbeat)
            case "reply":
                self._replied(message.reply)
            case "capture":
                self.captures.append(message.capture)

    def _replied(self, reply: worker_pb2.WorkerReply) -> None:
        if reply.HasField("profile"):
            parts = self._parts.get(reply.request_id, b"") + reply.profile.data
            self._parts[reply.request_id] = reply.profile.data = parts
            if not reply.profile.last:
                return
        self._replies[reply.request_id].set_result(reply)

    async def _get_bundle(
        self, request: worker_pb2.GetBundleRequest, context: Any
    ) -> AsyncIterator[worker_pb2.GetBundleResponse]:
        self.bundle_calls += 1
        data = self.bundles.get(request.bundle_id)
        if data is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such bundle")
            return
        for at in range(0, len(data), 65536):
            yield worker_pb2.GetBundleResponse(chunk=data[at : at + 65536], total_bytes=len(data))

    async def _push(self, request: logs_pb2.PushLogsRequest, context: Any) -> logs_pb2.PushLogsResponse:
        if self.refuse_lines:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the log store is away")
        response = logs_pb2.PushLogsResponse()
        for batch in request.batches:
            known = self.lines.setdefault(batch.producer, Lines())
            known.key, known.attempt_uid, known.incarnation = batch.key, batch.attempt_uid, batch.incarnation
            for entry in batch.entries:
                if entry.number >= known.next:
                    known.entries.append(entry)
                    known.next = entry.number + max(1, entry.gap)
            response.marks.add(producer=batch.producer, next_number=known.next)
        await self._note(lambda: None)
        self.pushes += 1
        return response

    async def _write_rows(self, body: bytes, context: Any) -> bytes:
        try:
            return await self.stats.push(body)
        except (Unavailable, Refused) as error:
            code = grpc.StatusCode.NOT_FOUND if isinstance(error, Refused) else grpc.StatusCode.UNAVAILABLE
            await context.abort(code, str(error))
            raise

    async def _note(self, change: Callable[[], object]) -> None:
        async with self._changed:
            change()
            self._changed.notify_all()
