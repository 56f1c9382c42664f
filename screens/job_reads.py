"""What the page of a job reads beside its stream: the request, the cause of the first failure, measurements and events.

Each is read for the job of that name that the stream tells of; when another one takes the name all of it is read anew. Which tasks are to
blame is looked for once a second at most, and only where something failed or ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.live import measured
from iris_core.live.polled import Polled
from iris_core.model.states import JOB_TERMINAL
from screens import causes

if TYPE_CHECKING:
    from iris_core.live.job_feed import JobFeed
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_tui.session import Session


class JobReads:
    """Call `look` once a second, and read what is due."""

    def __init__(self, session: Session, feed: JobFeed, job_id: str) -> None:
        self._session = session
        self._feed = feed
        self._job_id = job_id
        self.found: Polled[pb.GetJobStatusResponse] = Polled(self._read_job, every_s=0)
        self.cause: Polled[causes.Cause | None] = Polled(self._read_cause, every_s=0)
        self.usage: Polled[measured.Usage] = Polled(self._read_usage)
        self.events: Polled[measured.Events] = Polled(self._read_events)
        self.suspects: list[pb.TaskStatus] = []
        """The tasks that failed, the one that began it first."""
        self.blamed = ""
        """Changes whenever another task is to blame, or it failed once more."""
        self._incarnation = 0

    @property
    def job(self) -> pb.JobStatus | None:
        """The job: as the stream tells it, else as it was read."""
        if self._feed.job is not None:
            return self._feed.job
        return self.found.value.job if self.found.value is not None else None

    def look(self) -> None:
        """A second passed."""
        job = self.job
        if job is None:
            return
        if job.incarnation != self._incarnation:
            before, self._incarnation = self._incarnation, int(job.incarnation)
            for polled in (self.found, self.cause, self.usage, self.events) if before else ():
                polled.want()  # another job has the name now
        if job.failure_count or self.suspects or int(job.state) in JOB_TERMINAL:
            self._look_for_failures()

    def _look_for_failures(self) -> None:
        """Which tasks failed, and whose log says why."""
        self.suspects = causes.suspects(row.value for row in self._feed.store.rows.values() if not row.gone)
        first = self.suspects[0] if self.suspects else None
        blamed = f"{first.task_id} {first.failure_count} {first.state}" if first is not None else ""
        if blamed != self.blamed:
            self.blamed = blamed
            self.cause.want()

    async def _read_job(self) -> pb.GetJobStatusResponse:
        from iris_core.wire.gen.iris.v1 import controller_pb2

        return await self._session.client.call(
            "ControllerService/GetJobStatus",
            controller_pb2.GetJobStatusRequest(job_id=self._job_id),
            controller_pb2.GetJobStatusResponse,
        )

    async def _known(self) -> pb.JobStatus:
        return self._feed.job or (await self._read_job()).job

    async def _read_cause(self) -> causes.Cause | None:
        return await causes.cause_of(self._session, self.suspects[0].task_id) if self.suspects else None

    async def _read_usage(self) -> measured.Usage:
        job = await self._known()
        now = self._session.clock.now_ms()
        where = measured.whose(self._job_id, job.incarnation, task=False)
        started = job.started_at_ms or job.submitted_at_ms
        return await measured.usage(self._session.client, where, started, job.finished_at_ms or now)

    async def _read_events(self) -> measured.Events:
        job = await self._known()
        where = measured.whose(self._job_id, job.incarnation, task=False)
        return await measured.events(self._session.client, where)
