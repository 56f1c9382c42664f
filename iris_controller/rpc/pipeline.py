"""How the way of log lines is: the log store, each worker's shipping, the controller's own.

Workers say with their heartbeats how their spools are, the store is asked now, and both are put into words here, so that every
reader of logs can tell "nothing printed" from "nothing arrived". Must never wait long for a store that does not answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.passthrough import PassThrough
from iris_core.model.ids import AttemptId, JobId, parse_target
from iris_core.model.resources import format_age
from iris_core.model.states import ACTIVE
from iris_core.model.text import counted
from iris_core.wire.gen.iris.v1 import logs_pb2, pipeline_pb2
from iris_core.wire.services import method

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_controller.loop import ControllerLoop
    from iris_controller.rpc.attach import WorkerSessions
    from iris_controller.rpc.call import Call
    from iris_controller.rpc.dispatch import Router

STORE_S = 3.0
"""How long the store may take to say how it is."""
UNSHIPPED_MS = 300_000
"""Rows that are on one disk alone for longer are worth a word."""
LATE_MS = 10_000
"""A line that waits longer is worth a word."""
SILENT_MS = 5_000
SILENT_SHARE = 0.3
"""A worker says how it is ten times before it counts as lost; three of them left out are worth a word, and `SILENT_MS` at least."""


class PipelineService:
    """See the module. `address` is that of the log store; `own` is to tell of the controller's own lines once it ships them."""

    def __init__(
        self,
        loop: ControllerLoop,
        sessions: WorkerSessions,
        address: Callable[[], str],
        dead_after_s: float,
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._sessions = sessions
        self._silent_ms = max(SILENT_MS, int(dead_after_s * SILENT_SHARE * 1000))
        self._store = PassThrough(address, "the log store")
        self.own: Callable[[], pipeline_pb2.ShipperHealth] = pipeline_pb2.ShipperHealth

    def register(self, router: Router) -> None:
        router.add("ControllerService/GetPipelineHealth", self.get_pipeline_health)

    async def close(self) -> None:
        """Ends the connection to the store."""
        await self._store.close()

    async def get_pipeline_health(
        self, request: pipeline_pb2.GetPipelineHealthRequest, call: Call
    ) -> pipeline_pb2.GetPipelineHealthResponse:
        if request.target or call.identity.task is not None:
            call.identity.require_scope(request.target)
            names = self._workers_of(request.target)
        else:
            names = set(self._model.workers)
        response = pipeline_pb2.GetPipelineHealthResponse(
            store=await self.ask_store(), controller=self.own(), now_ms=self._loop.now_ms()
        )
        for worker_id in sorted(names):
            response.workers.append(self._sessions.pipeline(worker_id))
        response.problems.extend(problems(response, self._silent_ms))
        return response

    def _workers_of(self, target: str) -> set[str]:
        """The workers that hold an active attempt of it now."""
        found = parse_target(target)
        if isinstance(found, JobId):
            name, below = str(found), f"{found}/"
            jobs = [job_id for job_id in self._model.tasks if job_id == name or job_id.startswith(below)]
            only = ""
        else:
            task_id = found.task if isinstance(found, AttemptId) else found
            jobs, only = [str(task_id.job)], str(task_id)
        return {
            task.worker_id
            for job_id in jobs
            for task in self._model.tasks.get(job_id, ())
            if task.worker_id and task.state in ACTIVE and only in ("", task.task_id)
        }

    async def ask_store(self) -> pipeline_pb2.StoreHealth:
        """How the log store is, by its own word; "down" when it says none in time."""
        question = logs_pb2.GetStoreHealthRequest().SerializeToString()
        try:
            answer, _ = await self._store.unary(method("LogService/GetStoreHealth"), question, STORE_S)
        except RpcError as error:
            why = f"nothing within {STORE_S:g} s" if error.status == "DEADLINE_EXCEEDED" else error.message
            return pipeline_pb2.StoreHealth(state="down", problem=why)
        return logs_pb2.GetStoreHealthResponse.FromString(answer).store


def problems(found: pipeline_pb2.GetPipelineHealthResponse, silent_ms: int = SILENT_MS) -> list[str]:
    """What is wrong, a line each, worst first. A worker that said nothing for `silent_ms` is silent."""
    said = []
    if found.store.state == "down":
        said.append(f"the log store does not answer ({found.store.problem}); lines are kept by the workers meanwhile")
    elif found.store.problem:
        said.append(f"the log store is {found.store.state}: {found.store.problem}")
    shipping = found.store.shipping
    if shipping.state == "stopped":
        said.append(f"logs and stats are not shipped any more, and would be lost with the disk: {shipping.problem}")
    elif shipping.unshipped_since_ms and found.now_ms - shipping.unshipped_since_ms > UNSHIPPED_MS:
        why = f" ({shipping.problem})" if shipping.problem else ""
        minutes = (found.now_ms - shipping.unshipped_since_ms) // 60_000
        said.append(f"logs and stats of the last {minutes} min would be lost with the disk of the log store{why}")
    for worker in found.workers:
        said.extend(_worker_problems(worker, silent_ms))
    own = found.controller
    if own.lost_lines:
        said.append(
            f"{counted(own.lost_lines, 'line')} of the controller's own log {'is' if own.lost_lines == 1 else 'are'} lost"
        )
    if own.lag_ms > LATE_MS:
        said.append(f"the controller's own log is {format_age(own.lag_ms)} behind")
    return said


def _worker_problems(worker: pipeline_pb2.WorkerPipeline, silent_ms: int) -> Iterable[str]:
    name, shipper = worker.worker_id, worker.shipper
    if not worker.attached:
        yield f"worker {name} is not reachable: what its tasks print is not seen until it is"
    if not worker.HasField("shipper"):
        return
    if worker.attached and worker.age_ms > silent_ms:
        yield f"worker {name} has said nothing for {format_age(worker.age_ms)}"
    if shipper.lag_ms > LATE_MS:
        why = f": {shipper.problem}" if shipper.problem else ""
        yield (
            f"worker {name} is {format_age(shipper.lag_ms)} behind with its log lines"
            f" ({shipper.waiting_bytes:,} of {shipper.spool_cap_bytes:,} bytes wait){why}"
        )
    elif shipper.problem:
        yield f"worker {name} cannot deliver its log lines: {shipper.problem}"
    if shipper.lost_lines:
        yield f"worker {name} lost {counted(shipper.lost_lines, 'log line')} since it started"
