"""A controller that exists only in memory: what a client of it sees, scripted line by line.

It answers the calls that the console makes from plain dictionaries, what they change is told as the real one tells it (`watch`),
and it can be made to break the connection, to freeze, to deny, or to fail one method. Nothing in it happens by itself: no time
passes, nothing is random, and every message it sends was caused by the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from iris_core.client.context import PLAN_HEADER, headers_now
from iris_core.contracts import ConnectFailed, Denied, IrisError, R, RpcFailed
from iris_core.live.filters import JOB_FIELDS, JOB_WORDS, job_row
from iris_core.model.filter import parse_filter
from iris_core.model.states import ACTIVE, JOB_TERMINAL
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.gen.iris.v1 import explain_pb2, plan_pb2
from iris_core.wire.gen.iris.v1 import logs_pb2 as logs
from iris_core.wire.gen.iris.v1 import pipeline_pb2 as pipeline
from providers.fake.log_views import FakeViews
from providers.fake.plans import FakePlans
from providers.fake.watch import FakeWatch, Stream

if TYPE_CHECKING:
    from google.protobuf.message import Message


@dataclass(slots=True)
class Call:
    """One call that was made, with what it said besides its request."""

    method: str
    request: Any
    headers: dict[str, str] = field(default_factory=dict)


class FakeClient:
    """`iris_core.contracts.AsyncClient` over a scripted cluster.

    Script it with `put`, `drop`, `take`, `log`, `heartbeat`, `break_connection`/`restore`, `freeze`/`thaw`, `deny`, `fail` and
    `restart`. `calls` has every call in order; `history` holds jobs that only `ListJobs` knows.
    """

    def __init__(self, *, cluster: str = "fake", role: str = "admin", user: str = "ada", now_ms: int = 0) -> None:
        self.url = "http://fake.invalid:10000"
        self.cluster = cluster
        self.role = role
        self.user = user
        self.now_ms = now_ms
        self.watch = FakeWatch()
        self.rows = self.watch.rows
        """What Watch shows: by field of `WatchRows`, then by id."""
        self.jobs: dict[str, pb.JobStatus] = self.rows["jobs"]
        self.tasks: dict[str, pb.TaskStatus] = self.rows["tasks"]
        self.attempts: dict[str, list[pb.AttemptStatus]] = {}
        self.requests: dict[str, pb.LaunchJobRequest] = {}
        self.explanations: dict[str, explain_pb2.Explanation] = {}
        """By the id of a job or task; that of a job with "?" behind it is what is answered to any what-if."""
        self.history: list[pb.JobStatus] = []
        self.lines: list[logs.StoredLine] = []
        self.pipeline = pipeline.GetPipelineHealthResponse(store=pipeline.StoreHealth(state="serving"))
        """What GetPipelineHealth answers."""
        self.calls: list[Call] = []
        self.closed = False
        self._failure: IrisError | None = None
        self._failures: dict[str, list[IrisError]] = {}
        self._open = asyncio.Event()
        self._open.set()
        self._silent: dict[str, asyncio.Event] = {}
        """Set when a service that is silent speaks again."""
        self._written = asyncio.Event()
        self._answers: dict[str, Any] = {}
        self.views = FakeViews(self.lines)
        self.plans = FakePlans(cluster, self.jobs, self.tasks)

    # --- the script --------------------------------------------------------------------------------------------------

    def put(self, *items: Message) -> None:
        """Publish the latest values of these, rows of any kind, as one batch."""
        for item in items:
            if isinstance(item, pb.AttemptStatus):
                known = self.attempts.setdefault(item.task_id, [])
                known[:] = [old for old in known if old.attempt_id != item.attempt_id] + [item]
                known.sort(key=lambda attempt: attempt.attempt_id)
        self.watch.put(*items)

    def drop(self, *job_ids: str) -> None:
        """The model lets go of these jobs."""
        self.take("jobs", *job_ids)

    def take(self, name: str, *row_ids: str) -> None:
        """These rows of a field of `WatchRows` are gone."""
        for row_id in row_ids:
            self.rows[name].pop(row_id, None)
        self.watch.publish(*((name, row_id) for row_id in row_ids))

    def log(
        self,
        key: str,
        *texts: str,
        source: str = "stdout",
        level: int = 0,
        epoch_ms: int = 0,
        gap: int = 0,
        incarnation: int = 0,
    ) -> None:
        """Lines written under a key, such as `/u/j/0:0`; without an incarnation they are of any."""
        attempt = int(key.rpartition(":")[2]) if ":" in key else 0
        for text in texts:
            self.lines.append(
                logs.StoredLine(
                    seq=len(self.lines) + 1,
                    key=key,
                    epoch_ms=epoch_ms or self.now_ms,
                    source=source,
                    data=text,
                    level=cast("Any", level),
                    attempt_id=attempt,
                    number=len(self.lines),
                    gap=gap,
                )
            )
            if incarnation:
                self.views.incarnations[len(self.lines)] = incarnation
        self._written.set()
        self._written = asyncio.Event()

    def heartbeat(self) -> None:
        """Tell every stream that nothing happened."""
        self.watch.beat(self.now_ms)

    def break_connection(self, message: str = "connection refused by fake.invalid:10000") -> None:
        """Every stream ends and every call fails until `restore`."""
        self._failure = ConnectFailed(message)
        self.watch.end_streams(self._failure)

    def deny(self, message: str = "the token has expired") -> None:
        """Every stream ends and every call is refused until `restore`."""
        self._failure = Denied("UNAUTHENTICATED", message)
        self.watch.end_streams(self._failure)

    def restore(self) -> None:
        """The next call is answered again."""
        self._failure = None

    def restart(self) -> None:
        """Another boot id: no stream can resume."""
        self.watch.restart()
        self.watch.end_streams(ConnectFailed("connection reset by fake.invalid:10000"))

    def freeze(self, *services: str) -> None:
        """Nothing is answered, nothing ends, as with a stopped process: of these services or calls (`LogService`, `ListProfiles`), else
        of none at all."""
        if services:
            self._silent.update({service: asyncio.Event() for service in services})
        else:
            self._open.clear()

    def thaw(self) -> None:
        """What was asked meanwhile is answered now."""
        self._open.set()
        for silent in self._silent.values():
            silent.set()
        self._silent.clear()

    async def _answering(self, method: str) -> None:
        await self._open.wait()
        for silent in [self._silent[name] for name in method.split("/") if name in self._silent]:
            await silent.wait()

    def fail(self, method: str, error: IrisError, *, times: int = 1) -> None:
        """The next calls of this method (`ListTasks`) fail."""
        self._failures.setdefault(method, []).extend([error] * times)

    def called(self, method: str) -> list[Any]:
        """The requests of all calls of a method, in order."""
        return [call.request for call in self.calls if call.method.endswith("/" + method)]

    # --- AsyncClient -------------------------------------------------------------------------------------------------

    async def call(self, method: str, request: Any, response: type[R], *, timeout_s: float = 30.0) -> R:
        headers = dict(headers_now())
        self.calls.append(Call(method, request, headers))
        await self._answering(method)
        name = method.rpartition("/")[2]
        if self._failure is not None:
            raise self._failure
        if self._failures.get(name):
            raise self._failures[name].pop(0)
        handler: Callable[[Any], Any] | None = getattr(self, f"_{_snake(name)}", None)
        if handler is None:
            raise RpcFailed("UNIMPLEMENTED", f"the fake does not know {method}")
        request_id = getattr(request, "request_id", "")
        if request_id and request_id in self._answers:
            return cast("R", self._answers[request_id])
        if PLAN_HEADER in headers:
            self.plans.check(method, request, headers[PLAN_HEADER])
        answer = handler(request)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if request_id:
            self._answers[request_id] = answer
        return cast("R", answer)

    async def stream(self, method: str, request: Any, response: type[R]) -> AsyncIterator[R]:
        self.calls.append(Call(method, request))
        await self._answering(method)
        if self._failure is not None:
            raise self._failure
        if method == "LogService/ExportLogs":
            yield cast("R", self.views.export(request))
            return
        if method == "LogService/Tail":
            async for answer in self._tail(request):
                yield cast("R", answer)
        stream = Stream(list(request.selectors))
        self.watch.streams.add(stream)
        try:
            for selector in stream.selectors:
                for message in self.watch.begin(selector):
                    yield cast("R", message)
            yield cast("R", self.watch.heartbeat(self.now_ms))
            while True:
                item = await stream.queue.get()
                await self._open.wait()
                if isinstance(item, IrisError):
                    raise item
                yield cast("R", item)
        finally:
            self.watch.streams.discard(stream)

    async def close(self) -> None:
        self.closed = True

    # --- calls -------------------------------------------------------------------------------------------------------

    def _get_current_user(self, request: pb.GetCurrentUserRequest) -> pb.GetCurrentUserResponse:
        return pb.GetCurrentUserResponse(user_id=self.user, role=self.role)

    def _get_cluster_status(self, request: pb.GetClusterStatusRequest) -> pb.GetClusterStatusResponse:
        return pb.GetClusterStatusResponse(
            slices_by_lifecycle={"ready": 2, "booting": 1},
            cluster=self.cluster, boot_id=self.watch.revision.boot_id, version="0.1.0", workers_total=2, workers_healthy=2,
            ready=True, now_ms=self.now_ms, revision=self.watch.revision,
        )  # fmt: skip

    def _list_jobs(self, request: pb.ListJobsRequest) -> pb.ListJobsResponse:
        wanted = parse_filter(request.filter, JOB_FIELDS, default=JOB_WORDS)
        found = [
            job
            for job in (*self.jobs.values(), *self.history)
            if (not request.states or job.state in request.states)
            and (not request.roots_only or not job.parent_job_id)
            and (not request.parent_job_id or job.parent_job_id == request.parent_job_id)
            and wanted.matches(job_row(job, self.now_ms))
        ]
        found.sort(key=lambda job: -job.submitted_at_ms)
        start = int(request.page_token or 0)
        end = start + (request.page_size or 500)
        token = str(end) if end < len(found) else ""
        return pb.ListJobsResponse(
            jobs=found[start:end], next_page_token=token, total_count=len(found), revision=self.watch.revision
        )

    def _list_tasks(self, request: pb.ListTasksRequest) -> pb.ListTasksResponse:
        found = sorted(
            (task for task in self.tasks.values() if task.job_id == request.job_id), key=lambda task: task.task_index
        )
        start = int(request.page_token or 0)
        end = start + (request.page_size or 500)
        token = str(end) if end < len(found) else ""
        return pb.ListTasksResponse(tasks=found[start:end], next_page_token=token, total_count=len(found))

    def _get_task_status(self, request: pb.GetTaskStatusRequest) -> pb.GetTaskStatusResponse:
        task = self.tasks.get(request.task_id)
        if task is None:
            raise RpcFailed("NOT_FOUND", f"no task {request.task_id}", code="task_not_found")
        job = self.jobs.get(task.job_id)
        return pb.GetTaskStatusResponse(
            task=task, attempts=self.attempts.get(task.task_id, []), resources=job.resources if job else None
        )

    def _get_job_status(self, request: pb.GetJobStatusRequest) -> pb.GetJobStatusResponse:
        job = self.jobs.get(request.job_id) or next((old for old in self.history if old.job_id == request.job_id), None)
        if job is None:
            raise RpcFailed("NOT_FOUND", f"no job {request.job_id}", code="job_not_found")
        return pb.GetJobStatusResponse(
            job=job, request=self.requests.get(job.job_id, pb.LaunchJobRequest(name=job.job_id))
        )

    def _explain_job(self, request: pb.ExplainJobRequest) -> pb.ExplainJobResponse:
        what_if = "?" if request.HasField("what_if") else ""
        return pb.ExplainJobResponse(explanation=self._explained(request.job_id + what_if))

    def _explain_task(self, request: pb.ExplainTaskRequest) -> pb.ExplainTaskResponse:
        return pb.ExplainTaskResponse(explanation=self._explained(request.task_id))

    def _explained(self, name: str) -> explain_pb2.Explanation:
        found = self.explanations.get(name)
        if found is None:
            raise RpcFailed("NOT_FOUND", f"nothing is known of {name}", code="not_found")
        return found

    def _plan(self, request: plan_pb2.PlanRequest) -> plan_pb2.PlanResponse:
        return self.plans.answer(request)

    def _terminate_job(self, request: pb.TerminateJobRequest) -> pb.TerminateJobResponse:
        job = self.jobs.get(request.job_id)
        incarnation = job.incarnation if job is not None else 0
        if request.incarnation and job is not None and request.incarnation != incarnation:
            raise RpcFailed("FAILED_PRECONDITION", f"job {request.job_id} was replaced by a later job", code="replaced")
        ended = self._end(request.job_id, common.JOB_STATE_KILLED)
        return pb.TerminateJobResponse(job_ids=ended, incarnation=incarnation)

    def _complete_job(self, request: pb.CompleteJobRequest) -> pb.CompleteJobResponse:
        return pb.CompleteJobResponse(job_ids=self._end(request.job_id, common.JOB_STATE_SUCCEEDED))

    def _kick_tasks(self, request: pb.KickTasksRequest) -> pb.KickTasksResponse:
        answer = pb.KickTasksResponse()
        for target in request.targets:
            name, _, number = target.partition(":")
            task = self.tasks.get(name)
            detail = ""
            if task is None:
                detail = f"there is no task {name}"
            elif number and int(number) != task.current_attempt_id:
                detail = f"attempt {number} is not the current one, attempt {task.current_attempt_id} is"
            elif int(task.state) not in ACTIVE:
                detail = "it is pending, on no worker"
            elif not request.dry_run:
                preempted = request.desired_state == common.TASK_STATE_PREEMPTED
                task.state = common.TASK_STATE_PENDING if preempted else common.TASK_STATE_FAILED
                self.watch.publish(("tasks", name))
            answer.results.add(target=target, task_id=name, queued=not detail, detail=detail)
        return answer

    def _end(self, job_id: str, state: common.JobState) -> list[str]:
        if job_id not in self.jobs:
            raise RpcFailed("NOT_FOUND", f"no job {job_id}", code="job_not_found")
        ended = [
            name
            for name, job in self.jobs.items()
            if (name == job_id or name.startswith(job_id + "/")) and int(job.state) not in JOB_TERMINAL
        ]
        for name in ended:
            self.jobs[name].state = state
        self.watch.publish(*(("jobs", name) for name in ended))
        return ended

    async def _fetch_logs(self, request: logs.FetchLogsRequest) -> logs.FetchLogsResponse:
        while True:
            written = self._written
            answer = self._read(request)
            if answer.entries or not request.wait_ms:
                return answer
            await written.wait()
            await self._open.wait()
            if self._failure is not None:
                raise self._failure

    async def _tail(self, request: logs.TailRequest) -> AsyncIterator[logs.TailResponse]:
        """For ever: the lines from `first` on, and what is written later."""
        at = request.first
        while True:
            written = self._written
            page = self.views.read(logs.ReadLinesRequest(view_id=request.view_id, first=max(at, 0), count=1_000_000))
            fresh = page.lines if at >= 0 else []
            at = page.state.lines
            yield logs.TailResponse(lines=fresh, state=page.state)
            await written.wait()
            await self._open.wait()
            if self._failure is not None:
                raise self._failure

    def _open_log_view(self, request: logs.OpenLogViewRequest) -> logs.OpenLogViewResponse:
        return self.views.open(request)

    def _read_lines(self, request: logs.ReadLinesRequest) -> logs.ReadLinesResponse:
        return self.views.read(request)

    def _find_next(self, request: logs.FindNextRequest) -> logs.FindNextResponse:
        return self.views.find(request)

    def _close_log_view(self, request: logs.CloseLogViewRequest) -> logs.CloseLogViewResponse:
        return self.views.close(request)

    def _get_pipeline_health(self, request: pipeline.GetPipelineHealthRequest) -> pipeline.GetPipelineHealthResponse:
        return self.pipeline

    def _read(self, request: logs.FetchLogsRequest) -> logs.FetchLogsResponse:
        return self.views.fetch(request)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
