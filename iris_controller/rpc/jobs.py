"""The job RPCs: launch, look, list, cancel, complete."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from functools import partial

from iris_controller.loop import ControllerLoop
from iris_controller.rpc.bundles import Bundles
from iris_controller.rpc.dispatch import Call, Router
from iris_controller.rpc.errors import RpcError, invalid, not_found, precondition
from iris_controller.rpc.launch import job_of, spec_of
from iris_controller.rpc.once import Once, remember
from iris_controller.scheduling.order import explain_pending
from iris_controller.state import kernel, submit
from iris_controller.state.overlay import Overlay
from iris_controller.store.reads import Page, Readers, jobs_page, one_job, similar_jobs, states_of
from iris_controller.store.seal import Seal, redact_request
from iris_core.live.filters import JOB_FIELDS, JOB_WORDS, job_row
from iris_core.model.errors import ModelError
from iris_core.model.filter import Filter, parse_filter
from iris_core.model.ids import JobId
from iris_core.model.states import JobState
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2

REPLACE_WAIT_S = 120.0
WAIT_KEPT_S = 60.0
"""A wait that nobody kept up for so long begins anew."""
WAITS = 10_000
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
        seal: Seal,
        bundles: Bundles,
        once: Once,
        revision: Callable[[], common_pb2.Revision],
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._readers = readers
        self._seal = seal
        self._bundles = bundles
        self._once = once
        self._revision = revision
        self._waits: dict[str, tuple[float, float]] = {}
        """Since when, and when last (monotonic), a submission waited for the attempts of the job it replaces."""

    def register(self, router: Router) -> None:
        for name in ("LaunchJob", "GetJobStatus", "GetJobState", "ListJobs", "TerminateJob", "CompleteJob"):
            router.add(f"ControllerService/{name}", getattr(self, _snake(name)))

    async def launch_job(
        self, request: controller_pb2.LaunchJobRequest, call: Call
    ) -> controller_pb2.LaunchJobResponse:
        job = job_of(request, call.identity)
        spec, files = spec_of(request, job, call.identity, self._seal)
        if spec.group_by:
            raise precondition(
                str(job),
                "gangs are not placed yet",
                code="gangs_not_placed",
                hint="submit it without coscheduling if its tasks may run apart",
            )
        if spec.bundle_id and not await self._bundles.stored(spec.bundle_id):
            raise precondition(
                spec.bundle_id,
                f"bundle {spec.bundle_id} is not stored here",
                code="bundle_missing",
                hint="send it again",
            )
        new = submit.NewJob(
            job_id=str(job),
            submitting_user=call.identity.user_id,
            num_tasks=request.replicas if request.replicas else 1,
            spec=spec,
            existing_policy=int(request.existing_job_policy),
        )
        call.audit(entity=str(job), tasks=new.num_tasks, bundle=spec.bundle_id[:12])

        async def work() -> controller_pb2.LaunchJobResponse:
            while True:
                force = self._waited_out(new.job_id)
                plan = partial(self._plan, new=new, files=files, call=call, force=force)
                outcome = await self._loop.submit("launch job", plan)
                if not isinstance(outcome, submit.MustWait):
                    self._waits.pop(new.job_id, None)
                    return controller_pb2.LaunchJobResponse(job_id=outcome.job_id, incarnation=outcome.incarnation)
                while not self._waited_out(new.job_id, waiting=True) and self._holds_attempts(new.job_id):
                    if call.cancelled.is_set():
                        # Nobody hears the answer; a repeat that joined meanwhile takes over.
                        raise asyncio.CancelledError
                    await self._loop.next_commit(1.0)

        return await self._once.run(call, controller_pb2.LaunchJobResponse, work)

    def _waited_out(self, job_id: str, waiting: bool = False) -> bool:
        """Whether the attempts of the job to be replaced have been waited for long enough, however many calls that took.

        `waiting` begins the wait, or goes on with one that somebody kept up until lately.
        """
        now = time.monotonic()
        since, last = self._waits.get(job_id, (now, now))
        if now - last > WAIT_KEPT_S:
            since = now
        if waiting:
            self._waits[job_id] = (since, now)
            if len(self._waits) > WAITS:
                self._waits = {job: wait for job, wait in self._waits.items() if now - wait[1] <= WAIT_KEPT_S}
        return now - since >= REPLACE_WAIT_S

    def _holds_attempts(self, job_id: str) -> bool:
        return any(job in self._model.held for job in self._model.subtree(job_id))

    @staticmethod
    def _plan(
        o: Overlay, now_ms: int, new: submit.NewJob, files: dict[str, bytes], call: Call, force: bool
    ) -> submit.Admission:
        try:
            outcome = submit.admit(o, new, now_ms, force=force)
        except submit.Refused as no:
            raise RpcError(no.status_name, no.message, code=no.code, subject=no.subject, hint=no.hint) from None
        if isinstance(outcome, submit.MustWait):
            return outcome
        if isinstance(outcome, submit.Admitted) and files:
            o.files[outcome.job_id] = files
        remember(o, call, controller_pb2.LaunchJobResponse(job_id=outcome.job_id, incarnation=outcome.incarnation))
        return outcome

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

        def plan(o: Overlay, now_ms: int) -> controller_pb2.TerminateJobResponse:
            ended = kernel.cancel(o, job_id, trigger, request.reason, now_ms)
            response = controller_pb2.TerminateJobResponse(job_ids=ended)
            remember(o, call, response)
            return response

        return await self._once.run(
            call, controller_pb2.TerminateJobResponse, lambda: self._loop.submit("terminate job", plan)
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
            call, controller_pb2.CompleteJobResponse, lambda: self._loop.submit("complete job", plan)
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
