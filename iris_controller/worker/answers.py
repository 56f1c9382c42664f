"""What a worker answers to the requests that come down its stream: commands beside an attempt, how processes are, profiles.

Whatever cannot be done is an answer, too. A request whose answer nobody waits for is cancelled, and ends what it began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.worker import status
from iris_controller.worker.execs import Execs
from iris_controller.worker.profiling import answering
from iris_core.wire.gen.iris.v1 import common_pb2, profiles_pb2, worker_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_controller.worker.agent import Agent
    from iris_controller.worker.attempt import Attempt
    from iris_controller.worker.profiling.taking import Profiler


class Answers:
    """To be called with each request. `own_status` says how the worker itself is."""

    def __init__(
        self, worker_id: str, agent: Agent, profiler: Profiler, own_status: Callable[[], common_pb2.ProcessInfo]
    ) -> None:
        self._worker_id = worker_id
        self._agent = agent
        self._profiler = profiler
        self._own_status = own_status
        self._meter = status.Meter()
        self._execs = Execs()

    async def __call__(self, request: worker_pb2.WorkerRequest) -> worker_pb2.WorkerReply:
        match request.WhichOneof("request"):
            case "exec":
                attempt = self._agent.attempts.get(request.exec.attempt_uid)
                if attempt is None or not attempt.running:
                    return worker_pb2.WorkerReply(error=_not_running(attempt))
                done = await self._execs.run(attempt, list(request.exec.command), request.exec.timeout_ms)
                return worker_pb2.WorkerReply(exec=done)
            case "process_status":
                return worker_pb2.WorkerReply(process=self._own_status())
            case "task_process_status":
                attempt = self._agent.attempts.get(request.task_process_status)
                if attempt is None or attempt.done:
                    return worker_pb2.WorkerReply(error=_not_running(attempt))
                self._meter.forget_others(self._agent.attempts.keys())
                info = await status.of_attempt(attempt, self._meter)
                info.details["execs"] = str(self._execs.count(attempt.uid))
                return worker_pb2.WorkerReply(process=info)
            case "profile":
                return await self._profile(request.profile)
            case other:
                return worker_pb2.WorkerReply(error=f"this worker does not know requests of kind {other}")

    async def _profile(self, asked: profiles_pb2.ProfileRequest) -> worker_pb2.WorkerReply:
        target = answering.itself(f"/system/worker/{self._worker_id}", self._worker_id)
        if asked.attempt_uid:
            attempt = self._agent.attempts.get(asked.attempt_uid)
            if attempt is None or not attempt.running:
                return worker_pb2.WorkerReply(error=_not_running(attempt))
            target = answering.of_attempt(attempt, self._worker_id)
        part = await answering.answer(self._profiler, target, asked.options, asked.requested_by)
        return worker_pb2.WorkerReply(profile=part)


def _not_running(attempt: Attempt | None) -> str:
    if attempt is None:
        return "the attempt is not running on this worker"
    if attempt.done:
        return "the attempt has ended"
    return "the attempt is building still: its command has not begun"
