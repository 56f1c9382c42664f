"""One cluster of a rollout as this program reaches it: what is asked of its controller, and of the machine that the rollout runs on.

Command line and console put their rollouts together here, so that both look at the same and change the same. Calls block: the procedure
has them made beside its loop. Must never decide what a sample means.
"""

from __future__ import annotations

import http.client
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from iris_core.contracts import IrisError, RpcFailed
from iris_core.procedures.downtime import Downtime
from iris_core.procedures.rollout_checks import Check
from iris_core.procedures.rollout_cluster import SMOKE_ARGV, SMOKE_LINES, Site

if TYPE_CHECKING:
    from iris_core.cli.deployment import Deployment
    from iris_core.cli.session import Session
    from iris_core.procedures.rollout_scope import Candidate
    from iris_core.procedures.rollout_watch import Sample
    from iris_core.procedures.source_tree import SourceTree
    from iris_core.procedures.target import Target

ANSWER_S: Final = 20.0
HEALTH_S: Final = 1.0
ROOM_BYTES: Final = 256 << 20
"""What a release and its build take, with room to spare."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A cluster as one run reaches it.

    Attributes:
        session: Selects it.
        procedure: Holds its lock.
        account: Drives the procedure.
        owner: Whose the smoke job is: that of the run that began, whoever goes on.
    """

    session: Session
    found: Deployment
    procedure: str
    account: str
    owner: str

    def site(self, candidate: Candidate) -> Site:
        """The cluster for the procedure."""
        from iris_core.procedures.rollback import rollback
        from iris_core.procedures.source_tree import SourceTree

        nothing = SourceTree("", self.found.root, "", "", "", ())
        return Site(
            candidate=candidate,
            target=self.target,
            checks=self.checks(),
            sample=self.sample,
            downtime=Downtime(self.answers),
            submit=self.submit,
            smoke=self.smoke,
            job_id=lambda name: f"/{self.owner}/{name}",
            roll_back=lambda: rollback(self.target(nothing)),
        )

    def target(self, tree: SourceTree) -> Target:
        """What its restart into a tree works on."""
        from iris_core.cli.restart_target import target_of

        made = target_of(
            self.session, self.found, self.found.store(), self.procedure, self.account, lambda: tree
        )  # fmt: skip
        return replace(made, command=f"{made.program} cluster controller restart")

    # --- looking -----------------------------------------------------------------------------------------------------

    def answers(self) -> bool:
        """Whether its controller answers `/health` now; on another host, seen from there, past any tunnel."""
        if self.session.target.through is not None:
            try:
                self.found.host.await_healthy(0.0)
            except IrisError:
                return False
            return True
        parts = urlsplit(self.session.target.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=HEALTH_S)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def sample(self) -> Sample:
        """One look. Raises IrisError: it does not answer."""
        from iris_core.wire.gen.iris.v1 import controller_pb2, pipeline_pb2

        client = self.session.client
        status = client.call(
            "ControllerService/GetClusterStatus",
            controller_pb2.GetClusterStatusRequest(),
            controller_pb2.GetClusterStatusResponse,
            timeout_s=ANSWER_S,
        )
        logs = client.call(
            "ControllerService/GetPipelineHealth",
            pipeline_pb2.GetPipelineHealthRequest(),
            pipeline_pb2.GetPipelineHealthResponse,
            timeout_s=ANSWER_S,
        )
        return {
            "at_ms": status.now_ms,
            "reachable": True,
            "tree": status.tree,
            "boot_id": status.boot_id,
            "version": status.version,
            "ready": status.ready,
            "problems": list(status.problems),
            "workers_total": status.workers_total - status.workers_leaving,
            # One that gets no work because a job's staging failed on it is no word about the release.
            "workers_healthy": status.workers_healthy + status.workers_excluded,
            "jobs": dict(status.jobs_by_state),
            "tasks": dict(status.tasks_by_state),
            "failures": status.ends.failures,
            "failures_since_ms": status.ends.counted_since_ms or status.now_ms,
            "lag_ms": round(status.lag.p99_ms, 2),
            "store": logs.store.state,
            "store_lag_ms": max([logs.controller.lag_ms, *(worker.shipper.lag_ms for worker in logs.workers)]),
        }

    # --- the smoke job -----------------------------------------------------------------------------------------------

    def submit(self, name: str) -> str:
        """Submits the smoke job: no workspace and no setup, so that it tries the control plane and nothing else. Raises IrisError."""
        from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2

        request = controller_pb2.LaunchJobRequest(name=f"/{self.owner}/{name}", replicas=1)
        request.entrypoint.run_command.argv.extend(SMOKE_ARGV)
        request.resources.cpu_millicores = 100
        request.resources.memory_bytes = 1_000_000_000
        request.resources.disk_bytes = 5_000_000_000
        request.priority_band = common_pb2.PRIORITY_BAND_INTERACTIVE
        request.existing_job_policy = common_pb2.EXISTING_JOB_POLICY_KEEP
        made = self.session.client.call(
            "ControllerService/LaunchJob", request, controller_pb2.LaunchJobResponse, timeout_s=60.0
        )
        return made.job_id

    def smoke(self, job: str) -> dict[str, Any] | None:
        """How that job is, with its last lines once it has ended; None if there is none. Raises IrisError."""
        from iris_core.model.states import JOB_TERMINAL, JobState, label
        from iris_core.wire.gen.iris.v1 import controller_pb2

        request = controller_pb2.GetJobStatusRequest(job_id=job)
        try:
            found = self.session.client.call(
                "ControllerService/GetJobStatus", request, controller_pb2.GetJobStatusResponse, timeout_s=ANSWER_S
            )
        except RpcFailed as error:
            if error.status == "NOT_FOUND":
                return None
            raise
        state = JobState(found.job.state)
        ended = state in JOB_TERMINAL
        return {
            "state": label(state),
            "ended": ended,
            "passed": state is JobState.SUCCEEDED,
            "lines": self._lines(job) if ended else [],
        }

    def _lines(self, job: str) -> list[str]:
        from iris_core.client.logs import Logs
        from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2

        request = logs_pb2.FetchLogsRequest(
            source=job, match_scope=common_pb2.MATCH_SCOPE_PREFIX, max_lines=SMOKE_LINES, tail=True
        )
        try:
            return [entry.data.rstrip("\n")[:400] for entry in Logs(self.session.client).fetch(request).entries]
        except IrisError as error:
            return [f"(its lines cannot be had: {error.message})"]

    # --- preflight ---------------------------------------------------------------------------------------------------

    def checks(self) -> tuple[Check, ...]:
        """What its kind needs: a release is built here, from a git tree, in a folder that has room."""
        folder = self.found.releases.root

        def git() -> str:
            path = shutil.which("git")
            if path is None:
                raise IrisError("git is not installed", hint="install git")
            return path

        def room() -> str:
            from iris_core.model.quantities import format_size

            place = folder
            while not place.exists():
                place = place.parent
            try:
                free = shutil.disk_usage(place).free
            except OSError as error:
                raise IrisError(f"{place}: {error.strerror}") from error
            if free < ROOM_BYTES:
                raise IrisError(f"{place} has {format_size(free)} free, {format_size(ROOM_BYTES)} are needed")
            return f"{format_size(free)} free in {place}"

        def secrets() -> str:
            from iris_core.procedures.source_tree import SourceTree

            self.target(SourceTree("", folder, "", "", "", ())).secrets()
            return "all of them"

        probe = getattr(self.found, "probe", None)
        return (
            Check("git runs", "the tree is frozen with it", git),
            Check("there is room for a release", "it is built here", room),
            Check("the secrets can be had", "the next controller needs them", secrets),
            *([Check("its host takes it", "the release is copied there", probe)] if probe is not None else []),
        )
