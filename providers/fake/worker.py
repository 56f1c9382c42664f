"""A worker that runs nothing: it attaches like a real one and reports what its script says.

For tests of the controller (lies, duplicates, late reports) and for measuring it without the cost of processes. Speaks the real protocol
over a real connection; must never be used to stand for a worker where a process matters.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from iris_core.wire.gen.iris.v1 import common_pb2, worker_pb2
from iris_core.wire.services import method

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Script = Callable[["FakeWorker", worker_pb2.DesiredAttempt], Iterable[worker_pb2.Observation]]
"""What to report for a newly desired attempt."""


def succeed(worker: FakeWorker, wanted: worker_pb2.DesiredAttempt) -> Iterable[worker_pb2.Observation]:
    """RUNNING, then SUCCEEDED at once; a stop is confirmed as KILLED."""
    if wanted.HasField("stop"):
        return [worker.observation(wanted.attempt_uid, common_pb2.TASK_STATE_KILLED)]
    return [
        worker.observation(wanted.attempt_uid, common_pb2.TASK_STATE_RUNNING),
        worker.observation(wanted.attempt_uid, common_pb2.TASK_STATE_SUCCEEDED, exit_code=0, log_lines=0),
    ]


def run_on(worker: FakeWorker, wanted: worker_pb2.DesiredAttempt) -> Iterable[worker_pb2.Observation]:
    """RUNNING for ever; a stop is confirmed as KILLED."""
    if wanted.HasField("stop"):
        return [worker.observation(wanted.attempt_uid, common_pb2.TASK_STATE_KILLED)]
    return [worker.observation(wanted.attempt_uid, common_pb2.TASK_STATE_RUNNING)]


class FakeWorker:
    """One attached worker. Use as an async context manager."""

    def __init__(
        self,
        target: str,
        worker_id: str,
        script: Script = succeed,
        *,
        cpu_millicores: int = 4_000,
        memory_bytes: int = 16 << 30,
        device: common_pb2.Device | None = None,
        attributes: dict[str, str] | None = None,
        boot_id: str = "",
        holding: Iterable[worker_pb2.Observation] = (),
        slice_id: str = "",
        scale_group: str = "",
        address: str = "",
    ) -> None:
        self.worker_id = worker_id
        self.boot_id = boot_id or secrets.token_hex(8)
        self.script = script
        self.desired = worker_pb2.DesiredSet()
        self.welcome = worker_pb2.Welcome()
        self.rejected: worker_pb2.Rejected | None = None
        self.acked = 0
        self.seen: dict[str, worker_pb2.DesiredAttempt] = {}
        self.specs: dict[str, worker_pb2.RunSpec] = {}
        """The last spec of each job, by its id."""
        self.requests: list[worker_pb2.WorkerRequest] = []
        """What it was asked; nothing is answered by itself."""
        self.changed = asyncio.Condition()
        self._target = target
        self._up: asyncio.Queue[worker_pb2.AttachRequest | None] = asyncio.Queue()
        self._seq = 0
        self._task: asyncio.Task[None] | None = None
        hello = worker_pb2.WorkerHello(
            worker_id=worker_id,
            boot_id=self.boot_id,
            pid=1,
            hostname="fake",
            total=common_pb2.Resources(cpu_millicores=cpu_millicores, memory_bytes=memory_bytes, disk_bytes=1 << 40),
            cpu_count=max(1, cpu_millicores // 1000),
            holding=holding,
            slice_id=slice_id,
            scale_group=scale_group,
            address=address,
        )
        if device is not None:
            hello.total.device.CopyFrom(device)
        for key, value in (attributes or {}).items():
            hello.attributes[key].text = value
        self._up.put_nowait(worker_pb2.AttachRequest(hello=hello))

    def observation(self, uid: str, state: common_pb2.TaskState, **values: Any) -> worker_pb2.Observation:
        self._seq += 1
        return worker_pb2.Observation(attempt_uid=uid, state=state, seq=self._seq, **values)

    def report(self, observations: Iterable[worker_pb2.Observation]) -> None:
        """Sends a report at once."""
        message = worker_pb2.WorkerReport(observations=observations, applied_generation=self.desired.generation)
        self._up.put_nowait(worker_pb2.AttachRequest(report=message))

    def heartbeat(self, usage: Iterable[worker_pb2.AttemptUsage] = ()) -> None:
        beat = worker_pb2.WorkerHeartbeat(applied_generation=self.desired.generation, healthy=True, usage=usage)
        self._up.put_nowait(worker_pb2.AttachRequest(heartbeat=beat))

    def send(self, message: worker_pb2.AttachRequest) -> None:
        """Sends any message at once."""
        self._up.put_nowait(message)

    async def until(self, condition: Callable[[FakeWorker], bool], timeout_s: float = 20.0) -> None:
        """Waits until the condition holds; raises TimeoutError."""
        async with asyncio.timeout(timeout_s), self.changed:
            await self.changed.wait_for(lambda: condition(self))

    async def __aenter__(self) -> FakeWorker:
        self._task = asyncio.create_task(self._run(), name=f"fake-{self.worker_id}")
        await self.until(lambda w: w.desired.generation > 0 or w.rejected is not None)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._up.put_nowait(None)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await self._task

    async def _requests(self) -> AsyncIterator[worker_pb2.AttachRequest]:
        while (message := await self._up.get()) is not None:
            yield message

    async def _run(self) -> None:
        attach = method("WorkerService/Attach")
        async with grpc.aio.insecure_channel(self._target) as channel:
            stream = channel.stream_stream(
                attach.path,
                request_serializer=worker_pb2.AttachRequest.SerializeToString,
                response_deserializer=worker_pb2.AttachResponse.FromString,
            )(self._requests())
            beats = asyncio.create_task(self._beat())
            try:
                async for message in stream:
                    await self._received(message)
            except grpc.aio.AioRpcError:
                return
            finally:
                beats.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep((self.welcome.heartbeat_ms or 1_000) / 1000)
            self.heartbeat()

    async def _received(self, message: worker_pb2.AttachResponse) -> None:
        kind = message.WhichOneof("message")
        if kind == "welcome":
            self.welcome = message.welcome
        elif kind == "rejected":
            self.rejected = message.rejected
        elif kind == "ack":
            self.acked = max(self.acked, message.ack.seq)
        elif kind == "request":
            self.requests.append(message.request)
        elif kind == "desired":
            self.desired = message.desired
            self.specs.update((spec.job_id, spec) for spec in message.desired.specs)
            observations: list[worker_pb2.Observation] = []
            for wanted in message.desired.attempts:
                known = self.seen.get(wanted.attempt_uid)
                stopping = wanted.HasField("stop") and not (known is not None and known.HasField("stop"))
                if known is None or stopping:
                    self.seen[wanted.attempt_uid] = wanted
                    observations.extend(self.script(self, wanted))
            self.report(observations)
        async with self.changed:
            self.changed.notify_all()
