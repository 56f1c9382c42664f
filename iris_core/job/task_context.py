"""The task that this process belongs to, from the environment that its worker gave it (control-plane §4.3).

Must never import providers or screens: job code often runs with `PYTHONPATH=.`, where folders of the same names may lie.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from iris_core.contracts import IrisError
from iris_core.model.errors import ModelError
from iris_core.model.ids import AttemptId, JobId, TaskId

if TYPE_CHECKING:
    from iris_core.job.serving import Serving
    from iris_core.sdk import EndpointInfo, IrisClient, Job, JobInfo, JobSpec, TaskInfo

PORT_PREFIX = "IRIS_PORT_"
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


class NotInTask(IrisError):
    """This process was not started by a worker."""


def context(environ: Mapping[str, str] | None = None) -> Context:
    """The task of this process. Raises NotInTask."""
    variables = os.environ if environ is None else environ
    text = variables.get("IRIS_TASK_ID", "")
    if not text:
        raise NotInTask("this process is not part of a task", hint="IRIS_TASK_ID is not set; run it with: iris job run")
    try:
        attempt = AttemptId.parse(text)
        tasks = int(variables.get("IRIS_NUM_TASKS", "1"))
    except (ModelError, ValueError) as error:
        raise NotInTask(f"IRIS_TASK_ID {text!r} or IRIS_NUM_TASKS is not what a worker sets: {error}") from None
    return Context(
        task=attempt.task,
        attempt=attempt.number,
        num_tasks=tasks,
        worker_id=variables.get("IRIS_WORKER_ID", ""),
        controller_url=variables.get("IRIS_CONTROLLER_URL", ""),
        workdir=Path(variables.get("IRIS_WORKDIR") or "."),
        output_dir=Path(variables["IRIS_OUTPUT_DIR"]) if variables.get("IRIS_OUTPUT_DIR") else None,
        ports=_ports(variables),
    )


def _ports(variables: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in variables.items():
        if name.startswith(PORT_PREFIX) and value.isascii() and value.isdigit():
            found[name.removeprefix(PORT_PREFIX).lower()] = int(value)
    return found


@dataclass(frozen=True)
class Context:
    """Who this process is. `ports` are the job's named ports, names in lower case with `_`."""

    task: TaskId
    attempt: int
    num_tasks: int
    worker_id: str
    controller_url: str
    workdir: Path
    output_dir: Path | None
    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def job(self) -> JobId:
        """The job of this task."""
        return self.task.job

    @property
    def index(self) -> int:
        """Which of the job's tasks it is, from 0."""
        return self.task.index

    @cached_property
    def iris(self) -> IrisClient:
        """A client of this task's controller, with this task's rights. Raises IrisError."""
        from iris_core.sdk import IrisClient

        if not self.controller_url:
            raise NotInTask("the worker gave no controller: IRIS_CONTROLLER_URL is not set")
        return IrisClient.connect(controller_url=self.controller_url)

    def submit(self, spec: JobSpec) -> Job:
        """Submits a job below this one. Without a workspace it gets this job's files, environment and setup. Raises IrisError."""
        return self.iris.submit(spec)

    def children(self) -> list[JobInfo]:
        """The jobs below this task's, newest first. Raises IrisError."""
        own = str(self.job)
        return [found for found in self.iris.jobs(prefix=own) if found.job_id != own]

    def siblings(self) -> list[TaskInfo]:
        """All tasks of this job, this one included, by index. Raises IrisError."""
        return self.iris.job(str(self.job)).tasks()

    def serve(
        self,
        name: str,
        port: int,
        *,
        metadata: Mapping[str, str] | None = None,
        lease_s: float = 30.0,
        link: bool = False,
    ) -> Serving:
        """Registers what listens at `port` on this machine under `name`, and keeps the lease alive until it is closed.

        The name lies below the root job of this task; several tasks may share one. Raises IrisError.
        """
        from iris_core.job.serving import Serving

        values = {"index": str(self.index), **(metadata or {})}
        return Serving(self, name, port, values, lease_s, link)

    def report(self, summary: str, detail: str = "") -> None:
        """Says how this attempt goes: `summary` one line of Markdown, `detail` as long as 64 KiB. Raises IrisError.

        Operators see the newest in `iris.task_status`; of what is said within a second the last is kept, so it may be called
        at every step.
        """
        self.iris.report(summary, detail)

    def find(self, name: str, *, count: int = 1, timeout_s: float = 0.0) -> list[EndpointInfo]:
        """The endpoints of that name in this tree, once there are at least `count` of them, by task.

        `name` is below the root job, or whole with a "/" in front. Raises TimeoutError, IrisError.
        """
        full = name if name.startswith("/") else f"{self.job.root}/{name}"
        until = time.monotonic() + timeout_s
        pause = FIRST_PAUSE_S
        while True:
            found = self.iris.endpoints(full, exact=True)
            if len(found) >= count:
                return sorted(found, key=lambda endpoint: TaskId.parse(endpoint.task_id).index)
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{len(found)} of {count} endpoints {full} are there after {timeout_s:.0f} s")
            time.sleep(min(pause, left))
            pause = min(pause * 2, LONGEST_PAUSE_S)
