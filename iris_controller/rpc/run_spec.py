"""What a worker is told to run: the stored request opened, with the cluster's task environment beneath it."""

from __future__ import annotations

from collections.abc import Mapping

from iris_controller.state.records import Job
from iris_controller.store.reads import Readers, workdir_files
from iris_controller.store.seal import Seal
from iris_core.wire.convert import resources_to_wire
from iris_core.wire.gen.iris.v1 import controller_pb2, worker_pb2


class RunSpecs:
    """Builds `RunSpec`s. Sealed values are opened here, at dispatch, and nowhere else (DESIGN §5.22)."""

    def __init__(self, readers: Readers, seal: Seal, task_env: Mapping[str, str]) -> None:
        self._readers = readers
        self._seal = seal
        self._task_env = dict(task_env)

    async def of(self, job: Job) -> worker_pb2.RunSpec:
        """Raises SealedElsewhere when a secret cannot be opened here."""
        request = controller_pb2.LaunchJobRequest.FromString(job.spec.request)
        self._seal.open_request(request)
        for name, value in self._task_env.items():
            if name not in request.environment.env_vars:
                request.environment.env_vars[name] = value
        if job.spec.has_files:
            files = await self._readers.run(lambda c: workdir_files(c, job.job_id))
            for name, data in files.items():
                request.entrypoint.workdir_files[name] = data
        return worker_pb2.RunSpec(
            spec_id=f"{job.job_id}@{job.submitted_at_ms}",
            job_id=job.job_id,
            incarnation=job.submitted_at_ms,
            num_tasks=job.num_tasks,
            entrypoint=request.entrypoint,
            environment=request.environment,
            bundle_id=job.spec.bundle_id,
            resources=resources_to_wire(job.spec.resources),
            ports=request.ports,
            timeout_ms=job.spec.timeout_ms,
            priority_band=request.priority_band,
            processes_per_task=request.processes_per_task,
        )
