"""The Python client: submit jobs, wait for them, read their logs, list, cancel and watch them.

    from iris_core.sdk import IrisClient, JobSpec, ResourceSpec

    with IrisClient.connect(cluster="local") as iris:
        job = iris.submit(JobSpec(["python", "train.py"], resources=ResourceSpec(cpu=1, memory="2GB")))
        for line in job.logs(follow=True):
            print(line.text)
        print(job.wait().state)

`AsyncIrisClient` is the same for an event loop. Failures are `iris_core.contracts.IrisError`: one line each, with the server's
error code where it answered.
"""

from __future__ import annotations

from iris_core.sdk.aio import AsyncIrisClient, AsyncJob
from iris_core.sdk.client import IrisClient, Job
from iris_core.sdk.records import EndpointInfo, Gone, JobInfo, LogLine, Missing, TaskInfo
from iris_core.sdk.spec import EnvironmentSpec, JobSpec, ResourceSpec

__all__ = [
    "AsyncIrisClient",
    "AsyncJob",
    "EndpointInfo",
    "EnvironmentSpec",
    "Gone",
    "IrisClient",
    "Job",
    "JobInfo",
    "JobSpec",
    "LogLine",
    "Missing",
    "ResourceSpec",
    "TaskInfo",
]
