"""The cluster RPCs: workers, processes, who am I, how is it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from iris_controller import release
from iris_controller.loop import ControllerLoop
from iris_controller.process_info import own_process
from iris_controller.rpc.attach import WorkerSessions, process_request
from iris_controller.rpc.call import Call
from iris_controller.rpc.dispatch import Router
from iris_controller.rpc.errors import RpcError, invalid, not_found
from iris_controller.rpc.tasks import TaskService
from iris_controller.rpc.views import leaving, worker_view
from iris_controller.state.records import Job
from iris_core.live.filters import WORKER_FIELDS, WORKER_WORDS, worker_row
from iris_core.model.errors import ModelError
from iris_core.model.filter import parse_filter
from iris_core.model.states import TaskState, WorkerHealth, label
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, watch_rows_pb2, worker_pb2

WORKER_ANSWER_S = 10.0
SYSTEM_WORKER = "/system/worker/"


@dataclass(frozen=True, slots=True)
class About:
    """What never changes while the controller runs, and what tells its condition."""

    cluster: str
    boot_id: str
    started_at_ms: int
    state_dir: str
    problems: Callable[[], list[str]]
    finelog_release: Callable[[], str]
    rows: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """Rows of measurements and events: that wait for the log store, and that had to go."""


class ClusterService:
    """See the module."""

    def __init__(
        self,
        loop: ControllerLoop,
        sessions: WorkerSessions,
        tasks: TaskService,
        about: About,
        revision: Callable[[], common_pb2.Revision],
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._sessions = sessions
        self._tasks = tasks
        self._about = about
        self._revision = revision
        self.lag: Callable[[], watch_rows_pb2.LoopLag] = watch_rows_pb2.LoopLag
        """Is to tell how late the loop is, once it is measured."""
        self.ends: Callable[[], watch_rows_pb2.HourOfEnds] = watch_rows_pb2.HourOfEnds
        """Is to tell how attempts ended, once they are counted."""

    def register(self, router: Router) -> None:
        router.add("ControllerService/ListWorkers", self.list_workers)
        router.add("ControllerService/GetProcessStatus", self.get_process_status)
        router.add("ControllerService/GetClusterStatus", self.get_cluster_status)
        router.add("ControllerService/GetCurrentUser", self.get_current_user)

    async def list_workers(
        self, request: controller_pb2.ListWorkersRequest, call: Call
    ) -> controller_pb2.ListWorkersResponse:
        size = min(request.page_size or 1_000, 1_000)
        if size < 0:
            raise invalid("page_size", f"page_size {size} is negative")
        compiled = None
        if request.filter:
            try:
                compiled = parse_filter(request.filter, WORKER_FIELDS, default=WORKER_WORDS)
            except ModelError as error:
                raise invalid("filter", error.message, position=error.position, hint=error.hint) from None
        response = controller_pb2.ListWorkersResponse(revision=self._revision())
        matching = 0
        for worker_id in sorted(self._model.workers):
            status = worker_view(self._model, self._model.workers[worker_id], self._sessions.health.age_ms(worker_id))
            if compiled is not None and not compiled.matches(worker_row(status)):
                continue
            matching += 1
            if worker_id <= request.page_token:
                continue
            if len(response.workers) < size:
                response.workers.append(status)
            else:
                response.next_page_token = response.workers[-1].worker_id
        response.total_count = matching
        return response

    async def get_process_status(
        self, request: controller_pb2.GetProcessStatusRequest, call: Call
    ) -> controller_pb2.GetProcessStatusResponse:
        target = request.target
        if target in ("", "/system/controller", "/system/process"):
            return controller_pb2.GetProcessStatusResponse(process=self.own())
        if target.startswith(SYSTEM_WORKER):
            worker_id = target.removeprefix(SYSTEM_WORKER)
            if worker_id not in self._model.workers:
                raise not_found(target, f"there is no worker {worker_id}", hint="see: iris rpc controller list-workers")
            reply = await self._sessions.request(worker_id, process_request(), WORKER_ANSWER_S)
        else:
            task, uid = self._tasks.running(target, call)
            question = worker_pb2.WorkerRequest(task_process_status=uid)
            reply = await self._sessions.request(task.worker_id, question, WORKER_ANSWER_S)
        if reply.error:
            raise RpcError("FAILED_PRECONDITION", f"{target}: {reply.error}", code="process_status", subject=target)
        reply.process.target = target
        return controller_pb2.GetProcessStatusResponse(process=reply.process)

    def own(self) -> common_pb2.ProcessInfo:
        """This process, with the readings of its loop."""
        stats = self._loop.stats
        info = own_process("/system/controller", self._about.boot_id)
        info.details["batches"] = str(stats.batches)
        info.details["commands"] = str(stats.commands)
        info.details["queue"] = str(self._loop.depth)
        info.details["last_plan_ms"] = f"{stats.last_plan_ms:.2f}"
        info.details["last_commit_ms"] = f"{stats.last_commit_ms:.2f}"
        info.details["failed_commits"] = str(stats.failed_commits)
        info.details["ignored_observations"] = str(self._sessions.ignored_observations)
        waiting, lost = self._about.rows()
        info.details["stats_rows_waiting"], info.details["stats_rows_lost"] = str(waiting), str(lost)
        if stats.store_error:
            info.details["store_error"] = stats.store_error
        return info

    async def get_cluster_status(
        self, request: controller_pb2.GetClusterStatusRequest, call: Call
    ) -> controller_pb2.GetClusterStatusResponse:
        model = self._model
        problems = self._about.problems()
        staying = [worker for worker in model.workers.values() if not leaving(model, worker)]
        jobs, tasks = by_state(model.jobs.values())
        return controller_pb2.GetClusterStatusResponse(
            cluster=self._about.cluster,
            boot_id=self._about.boot_id,
            version=release.version(),
            release=release.release(),
            tree=release.tree(),
            started_at_ms=self._about.started_at_ms,
            workers_total=len(model.workers),
            workers_healthy=sum(w.health is WorkerHealth.HEALTHY and not w.excluded for w in staying),
            workers_excluded=sum(w.health is WorkerHealth.HEALTHY and w.excluded for w in staying),
            workers_leaving=len(model.workers) - len(staying),
            jobs_by_state=jobs,
            tasks_by_state=tasks,
            ready=not problems,
            problems=problems,
            state_dir=self._about.state_dir,
            finelog_release=self._about.finelog_release(),
            revision=self._revision(),
            now_ms=self._loop.now_ms(),
            slices_by_lifecycle=Counter(str(row.lifecycle) for row in model.slices.values()),
            lag=self.lag(),
            ends=self.ends(),
        )

    async def get_current_user(
        self, request: controller_pb2.GetCurrentUserRequest, call: Call
    ) -> controller_pb2.GetCurrentUserResponse:
        identity = call.identity
        return controller_pb2.GetCurrentUserResponse(
            user_id=identity.user_id, role=str(identity.role), read_only=identity.read_only
        )


def by_state(jobs: Iterable[Job]) -> tuple[Counter[str], Counter[str]]:
    """Jobs and their tasks, counted by state."""
    found: Counter[str] = Counter()
    sums = [0] * len(TaskState)
    for job in jobs:
        found[label(job.state)] += 1
        for state, count in enumerate(job.counts):
            sums[state] += count
    return found, Counter({label(TaskState(state)): count for state, count in enumerate(sums) if count})
