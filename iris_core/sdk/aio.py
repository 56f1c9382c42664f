"""The client for an event loop: the same as `client`, and nothing blocks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from iris_core.client.context import of_this_program
from iris_core.contracts import ConnectFailed, RpcFailed
from iris_core.sdk import operations
from iris_core.sdk.client import check_break
from iris_core.sdk.steps import iterate_async, run_async
from iris_core.sdk.submission import prepare
from iris_core.sdk.watching import JobWatch
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from types import TracebackType

    from iris_core.contracts import AsyncClient
    from iris_core.sdk.records import EndpointInfo, Gone, JobInfo, LogLine, TaskInfo
    from iris_core.sdk.spec import JobSpec


class AsyncIrisClient:
    """As `IrisClient`. Make it inside the running loop."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    @classmethod
    def connect(
        cls, *, cluster: str = "", config: str = "", controller_url: str = "", read_only: bool = False
    ) -> AsyncIrisClient:
        """As `IrisClient.connect`."""
        from iris_core.connect import open_async_client, resolve

        return cls(
            open_async_client(
                resolve(cluster=cluster, config=config, controller_url=controller_url, read_only=read_only),
                context=of_this_program,
            )
        )

    @property
    def url(self) -> str:
        """The controller's address."""
        return self._client.url

    async def submit(self, spec: JobSpec) -> AsyncJob:
        """As `IrisClient.submit`; the workspace is read in a thread."""
        request, bundle = await asyncio.to_thread(prepare, spec, os.environ)
        answer = await run_async(self._client, operations.submit(request, bundle))
        return AsyncJob(self, answer.job_id, answer.incarnation, tuple(answer.warnings))

    async def job(self, job_id: str) -> AsyncJob:
        """As `IrisClient.job`."""
        found = await run_async(self._client, operations.get(job_id))
        return AsyncJob(self, found.job_id, found.incarnation)

    def jobs(self, filter: str = "", *, prefix: str = "", limit: int | None = None) -> AsyncIterator[JobInfo]:
        """As `IrisClient.jobs`."""
        return iterate_async(self._client, operations.list_jobs(filter, prefix, limit))

    async def cancel(self, job_id: str, reason: str = "") -> list[str]:
        """As `IrisClient.cancel`."""
        return await run_async(self._client, operations.cancel(job_id, reason))

    async def watch(self, filter: str = "", *, job_ids: tuple[str, ...] = ()) -> AsyncIterator[JobInfo | Gone]:
        """As `IrisClient.watch`."""
        watch = JobWatch(filter, job_ids)
        broken_since: float | None = None
        while True:
            try:
                async for message in self._client.stream("ControllerService/Watch", watch.request(), pb.WatchResponse):
                    broken_since = None
                    for news in watch.take(message):
                        yield news
            except (ConnectFailed, RpcFailed) as error:
                broken_since = check_break(error, broken_since, time.monotonic)
            await asyncio.sleep(operations.LONGEST_PAUSE_S)

    async def endpoints(self, prefix: str = "", *, exact: bool = False) -> list[EndpointInfo]:
        """As `IrisClient.endpoints`."""
        return await run_async(self._client, operations.endpoints(prefix, exact))

    async def register_endpoint(
        self,
        name: str,
        address: str,
        *,
        task_id: str = "",
        endpoint_id: str = "",
        metadata: Mapping[str, str] | None = None,
        lease_s: float = 0,
        link: bool = False,
    ) -> EndpointInfo:
        """As `IrisClient.register_endpoint`."""
        return await run_async(
            self._client,
            operations.register(name, address, task_id, endpoint_id, metadata or {}, round(lease_s * 1000), link),
        )

    async def unregister_endpoint(self, endpoint_id: str) -> bool:
        """As `IrisClient.unregister_endpoint`."""
        return await run_async(self._client, operations.unregister(endpoint_id))

    async def report(self, summary: str, detail: str = "") -> None:
        """As `IrisClient.report`."""
        await run_async(self._client, operations.report(summary, detail))

    async def run(self, operation: Any) -> Any:
        """Runs one operation of `iris_core.sdk.operations`."""
        return await run_async(self._client, operation)

    def results(self, operation: Any) -> AsyncIterator[Any]:
        """The results of one operation of `iris_core.sdk.operations`, as they come."""
        return iterate_async(self._client, operation)

    async def close(self) -> None:
        await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncJob:
    """As `Job`."""

    def __init__(self, client: AsyncIrisClient, job_id: str, incarnation: int, warnings: tuple[str, ...] = ()) -> None:
        self._iris = client
        self.id = job_id
        self.incarnation = incarnation
        self.warnings = warnings

    def __repr__(self) -> str:
        return f"AsyncJob({self.id!r})"

    async def status(self) -> JobInfo:
        """As `Job.status`."""
        found: JobInfo = await self._iris.run(operations.get(self.id, self.incarnation))
        return found

    async def wait(self, timeout_s: float | None = None) -> JobInfo:
        """As `Job.wait`."""
        found: JobInfo = await self._iris.run(operations.wait(self.id, self.incarnation, timeout_s))
        return found

    async def tasks(self) -> list[TaskInfo]:
        """As `Job.tasks`."""
        found: list[TaskInfo] = await self._iris.run(operations.tasks(self.id))
        return found

    def logs(
        self, *, follow: bool = False, regex: str = "", substring: str = "", children: bool = True
    ) -> AsyncIterator[LogLine]:
        """As `Job.logs`."""
        return self._iris.results(
            operations.logs(
                self.id, self.incarnation, follow=follow, regex=regex, substring=substring, children=children
            )
        )

    async def cancel(self, reason: str = "") -> list[str]:
        """As `Job.cancel`."""
        await self.status()
        return await self._iris.cancel(self.id, reason)
