"""The RPCs of jobs that exist: look, list, cancel, complete. `submitting` brings them in."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial

from iris_controller.loop import ControllerLoop
from iris_controller.rpc.call import Call
from iris_controller.rpc.dispatch import Router
from iris_controller.rpc.errors import RpcError, invalid, not_found
from iris_controller.rpc.once import Once, remember
from iris_controller.rpc.submissions import require_submission
from iris_controller.scheduling.order import explain_pending
from iris_controller.state import kernel
from iris_controller.state.overlay import Overlay
from iris_controller.store.reads import Page, Readers, incarnation_of, jobs_page, one_job, similar_jobs, states_of
from iris_controller.store.seal import redact_request
from iris_core.live.filters import JOB_FIELDS, JOB_WORDS, job_row
from iris_core.model.errors import ModelError
from iris_core.model.filter import Filter, parse_filter
from iris_core.model.ids import JobId
from iris_core.model.states import JobState
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2

RESIDUAL_SCAN = 20_000
SQL_COLUMNS = {
    "job": "j.job_id",
    "user": "j.user_id",
    "parent": "j.parent_job_id",
    "error": "NULLIF(j.error, '')",
    "tasks": "j.num_tasks",
    "failures": "j.failure_count",
    "preemptions": "j.preemption_count",
    "exit": "j.exit_code",
    "depth": "j.depth",
    "submitted": "j.submitted_at_ms",
    "started": "j.started_at_ms",
    "finished": "j.finished_at_ms",
}
Order = tuple[str, tuple[type[str | int], ...], Callable[[controller_pb2.JobStatus], list[str | int]]]
_BY_SUBMISSION: Order = ("j.submitted_at_ms", (int,), lambda job: [job.submitted_at_ms])
SORTS: dict[int, Order] = {
    controller_pb2.JOB_SORT_UNSPECIFIED: _BY_SUBMISSION,
    controller_pb2.JOB_SORT_SUBMITTED: _BY_SUBMISSION,
    controller_pb2.JOB_SORT_NAME: ("j.job_id", (str, int), lambda job: [job.job_id, job.submitted_at_ms]),
    controller_pb2.JOB_SORT_STATE: ("j.state", (int, int), lambda job: [job.state, job.submitted_at_ms]),
}
"""Column, the types of a page's key, and the key of a job."""


class JobService:
    """See the module."""

    def __init__(
        self,
        loop: ControllerLoop,
        readers: Readers,
        once: Once,
        revision: Callable[[], common_pb2.Revision],
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._readers = readers
        self._once = once
        self._revision = revision

    def register(self, router: Router) -> None:
        for name in ("GetJobStatus", "GetJobState", "ListJobs", "TerminateJob", "CompleteJob"):
            router.add(f"ControllerService/{name}", getattr(self, _snake(name)))

    async def get_job_status(
        self, request: controller_pb2.GetJobStatusRequest, call: Call
    ) -> controller_pb2.GetJobStatusResponse:
        job_id = str(JobId.parse(request.job_id))
        call.identity.require_scope(job_id)
        revision = self._revision()
        found = await self._readers.run(lambda c: one_job(c, job_id))
        if found is None:
            raise await self.missing(job_id)
        status, shown = found
        self._live(status)
        redact_request(shown)
        return controller_pb2.GetJobStatusResponse(job=status, request=shown, revision=revision)

    async def get_job_state(
        self, request: controller_pb2.GetJobStateRequest, call: Call
    ) -> controller_pb2.GetJobStateResponse:
        if len(request.job_ids) > 10_000:
            raise invalid("job_ids", f"{len(request.job_ids)} ids, at most 10000 at once")
        states: dict[str, int] = {}
        unknown: list[str] = []
        for job_id in request.job_ids:
            call.identity.require_scope(job_id)
            job = self._model.jobs.get(job_id)
            if job is not None:
                states[job_id] = job.state.value
            else:
                unknown.append(job_id)
        if unknown:
            states.update(await self._readers.run(lambda c: states_of(c, unknown)))
        response = controller_pb2.GetJobStateResponse()
        for job_id, state in states.items():
            response.states[job_id] = state  # type: ignore[assignment]
        return response

    async def list_jobs(self, request: controller_pb2.ListJobsRequest, call: Call) -> controller_pb2.ListJobsResponse:
        if request.sort not in SORTS:
            raise invalid("sort", f"sort {request.sort} is unknown")
        sort, key, key_of = SORTS[request.sort]
        page = Page.of(request.page_size, request.page_token, 500, 1_000, key)
        where, values, residual = self._where(request, call)
        revision = self._revision()
        ascending = request.ascending
        jobs: list[controller_pb2.JobStatus] = []
        scanned = 0
        while True:
            read = partial(jobs_page, where=where, values=values, sort=sort, ascending=ascending, page=page)
            rows, token, total, capped = await self._readers.run(read)
            scanned += len(rows)
            for row in rows:
                self._live(row)
            if residual is None:
                jobs = rows
                break
            jobs.extend(r for r in rows if residual.matches(job_row(r, self._loop.now_ms())))
            if len(jobs) > page.size:
                del jobs[page.size :]
                token = Page.token(key_of(jobs[-1]))
            if not token or len(jobs) >= page.size or scanned >= RESIDUAL_SCAN:
                total, capped = len(jobs), bool(token)
                break
            page = Page.of(page.size, token, 500, 1_000, key)
        return controller_pb2.ListJobsResponse(
            jobs=jobs, next_page_token=token, total_count=total, total_capped=capped, revision=revision
        )

    def _where(
        self, request: controller_pb2.ListJobsRequest, call: Call
    ) -> tuple[str, tuple[object, ...], Filter | None]:
        parts: list[str] = ["1"]
        values: list[object] = []
        if request.states:
            known = sorted({*request.states} & {*JobState})
            parts.append(f"j.state IN ({', '.join('?' * len(known))})")
            values.extend(int(state) for state in known)
        prefixes = [request.prefix.rstrip("/")] if request.prefix else []
        if request.prefix and not request.prefix.startswith("/"):
            raise invalid("prefix", f"prefix {request.prefix!r} does not start with /")
        if call.identity.task is not None:
            prefixes.append(call.identity.task.job_id)
        for prefix in prefixes:
            parts.append("(j.job_id = ? OR (j.job_id >= ? AND j.job_id < ?))")
            values.extend((prefix, prefix + "/", prefix + "0"))
        if request.parent_job_id:
            parts.append("j.parent_job_id = ?")
            values.append(request.parent_job_id)
        if request.roots_only:
            parts.append("j.parent_job_id IS NULL")
        residual: Filter | None = None
        if request.filter:
            try:
                compiled = parse_filter(request.filter, JOB_FIELDS, default=JOB_WORDS)
            except ModelError as error:
                raise invalid("filter", error.message, position=error.position, hint=error.hint) from None
            sql = compiled.to_sql(SQL_COLUMNS)
            parts.append(sql.where)
            values.extend(sql.params)
            residual = sql.residual
        return " AND ".join(f"({p})" for p in parts), tuple(values), residual

    async def terminate_job(
        self, request: controller_pb2.TerminateJobRequest, call: Call
    ) -> controller_pb2.TerminateJobResponse:
        job_id = await self._owned(request.job_id, call)
        trigger = call.identity.principal
        known = self._model.jobs.get(job_id)
        kept = known.submitted_at_ms if known else await self._readers.run(lambda c: incarnation_of(c, job_id))

        def plan(o: Overlay, now_ms: int) -> controller_pb2.TerminateJobResponse:
            job = o.job(job_id)
            # What ended long ago is in the database alone, where it does not change.
            incarnation = job.submitted_at_ms if job is not None else kept
            require_submission(job_id, request.incarnation, incarnation)
            ended = kernel.cancel(o, job_id, trigger, request.reason, now_ms)
            response = controller_pb2.TerminateJobResponse(job_ids=ended, incarnation=incarnation)
            remember(o, call, response)
            return response

        return await self._once.run(
            call, controller_pb2.TerminateJobResponse, lambda: self._loop.submit("terminate job", call.guarded(plan))
        )

    async def complete_job(
        self, request: controller_pb2.CompleteJobRequest, call: Call
    ) -> controller_pb2.CompleteJobResponse:
        job_id = await self._owned(request.job_id, call)
        trigger = call.identity.principal

        def plan(o: Overlay, now_ms: int) -> controller_pb2.CompleteJobResponse:
            ended = kernel.complete(o, job_id, trigger, now_ms)
            response = controller_pb2.CompleteJobResponse(job_ids=ended)
            remember(o, call, response)
            return response

        return await self._once.run(
            call, controller_pb2.CompleteJobResponse, lambda: self._loop.submit("complete job", call.guarded(plan))
        )

    async def _owned(self, text: str, call: Call) -> str:
        """The id of an existing job that the caller may change. Raises RpcError."""
        job = JobId.parse(text)
        job_id = str(job)
        if call.identity.task is not None:
            call.identity.require_scope(job_id)
        else:
            call.identity.require_owner(job.user, job_id)
        if job_id not in self._model.jobs and not await self._readers.run(lambda c: states_of(c, [job_id])):
            raise await self.missing(job_id)
        call.audit(entity=job_id)
        return job_id

    async def missing(self, job_id: str) -> RpcError:
        """NOT_FOUND with up to five near names."""

        def near(connection: sqlite3.Connection) -> list[str]:
            return similar_jobs(connection, job_id)

        names = await self._readers.run(near)
        return not_found(job_id, f"there is no job {job_id}", hint=f"did you mean {', '.join(names)}?" if names else "")

    def _live(self, status: controller_pb2.JobStatus) -> None:
        """Adds what only the model knows to a row read from SQL."""
        status.pending_reason = explain_pending(self._model, status.job_id)


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
