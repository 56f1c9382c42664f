"""The client for ordinary code: every call blocks until it is answered.

One client belongs to one thread. Must never keep a connection that its user has closed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from iris_core.client.context import of_this_program
from iris_core.contracts import ConnectFailed, IrisError, RpcFailed
from iris_core.sdk import operations
from iris_core.sdk.steps import iterate, run
from iris_core.sdk.submission import prepare
from iris_core.sdk.watching import JobWatch
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from types import TracebackType

    from iris_core.contracts import Client
    from iris_core.sdk.records import EndpointInfo, Gone, JobInfo, LogLine, TaskInfo
    from iris_core.sdk.spec import JobSpec


class IrisClient:
    """A connection to one controller. Use it as a context manager, or `close` it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @classmethod
    def connect(
        cls, *, cluster: str = "", config: str = "", controller_url: str = "", read_only: bool = False
    ) -> IrisClient:
        """Chooses the controller as the command line does; without a word inside a task its own, else a running local cluster.

        Nothing is dialled before the first call. Raises UsageFailed, ConnectFailed.
        """
        from iris_core.connect import open_client, resolve

        return cls(
            open_client(
                resolve(cluster=cluster, config=config, controller_url=controller_url, read_only=read_only),
                context=of_this_program,
            )
        )

    @property
    def url(self) -> str:
        """The controller's address."""
        return self._client.url

    def submit(self, spec: JobSpec) -> Job:
        """Submits a job; inside a task it becomes a child of the task's job. Raises IrisError.

        `job.warnings` has what was accepted and is probably a mistake.
        """
        request, bundle = prepare(spec, os.environ)
        answer = run(self._client, operations.submit(request, bundle))
        return Job(self, answer.job_id, answer.incarnation, tuple(answer.warnings))

    def job(self, job_id: str) -> Job:
        """The job that has this name now. Raises Missing."""
        found = run(self._client, operations.get(job_id))
        return Job(self, found.job_id, found.incarnation)

    def jobs(self, filter: str = "", *, prefix: str = "", limit: int | None = None) -> Iterator[JobInfo]:
        """Jobs, newest first: those that match a filter as in `job list --filter`, below `prefix`. Raises IrisError."""
        return iterate(self._client, operations.list_jobs(filter, prefix, limit))

    def cancel(self, job_id: str, reason: str = "") -> list[str]:
        """Ends a job and all below it. Returns the ids of what this call ended. Raises IrisError."""
        return run(self._client, operations.cancel(job_id, reason))

    def watch(self, filter: str = "", *, job_ids: tuple[str, ...] = ()) -> Iterator[JobInfo | Gone]:
        """Every job that matches as it is now, then each change as it happens, for ever; over broken connections too.

        Raises ConnectFailed when nobody has answered for a minute, RpcFailed for a filter that cannot be read.
        """
        watch = JobWatch(filter, job_ids)
        broken_since: float | None = None
        while True:
            try:
                for message in self._client.stream("ControllerService/Watch", watch.request(), pb.WatchResponse):
                    broken_since = None
                    yield from watch.take(message)
            except (ConnectFailed, RpcFailed) as error:
                broken_since = check_break(error, broken_since, time.monotonic)
            time.sleep(operations.LONGEST_PAUSE_S)

    def endpoints(self, prefix: str = "", *, exact: bool = False) -> list[EndpointInfo]:
        """What serves under names that begin with `prefix`, or are it. Raises IrisError."""
        return run(self._client, operations.endpoints(prefix, exact))

    def register_endpoint(
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
        """Registers what a task serves at `address` (":8080"), or renews it by its id. Raises IrisError.

        `lease_s` 0 = as long as its attempt. `link` allows expiring URLs that need no other credential.
        """
        return run(
            self._client,
            operations.register(name, address, task_id, endpoint_id, metadata or {}, round(lease_s * 1000), link),
        )

    def unregister_endpoint(self, endpoint_id: str) -> bool:
        """Removes it; False when it was gone. Raises IrisError."""
        return run(self._client, operations.unregister(endpoint_id))

    def report(self, summary: str, detail: str = "") -> None:
        """Says how the task goes whose token this client has: `summary` one line of Markdown, `detail` as long as 64 KiB.

        Of what is said within a second the last is kept. Raises IrisError.
        """
        run(self._client, operations.report(summary, detail))

    def run(self, operation: Any) -> Any:
        """Runs one operation of `iris_core.sdk.operations`."""
        return run(self._client, operation)

    def results(self, operation: Any) -> Iterator[Any]:
        """The results of one operation of `iris_core.sdk.operations`, as they come."""
        return iterate(self._client, operation)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Job:
    """One job incarnation: a later job of the same name is another, and asking this one raises Missing then."""

    def __init__(self, client: IrisClient, job_id: str, incarnation: int, warnings: tuple[str, ...] = ()) -> None:
        self._iris = client
        self.id = job_id
        self.incarnation = incarnation
        self.warnings = warnings

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def status(self) -> JobInfo:
        """As it stands. Raises Missing, IrisError."""
        found: JobInfo = self._iris.run(operations.get(self.id, self.incarnation))
        return found

    def wait(self, timeout_s: float | None = None) -> JobInfo:
        """Blocks until it has ended, however it ended. Raises TimeoutError, Missing, IrisError."""
        found: JobInfo = self._iris.run(operations.wait(self.id, self.incarnation, timeout_s))
        return found

    def tasks(self) -> list[TaskInfo]:
        """Its tasks, by index. Raises IrisError."""
        found: list[TaskInfo] = self._iris.run(operations.tasks(self.id))
        return found

    def logs(
        self, *, follow: bool = False, regex: str = "", substring: str = "", children: bool = True
    ) -> Iterator[LogLine]:
        """Its lines in the order they reached the store; with `follow`, until it has ended and every line is there.

        Raises UsageFailed or RpcFailed for a regex that is none, with the position; Missing, IrisError.
        """
        return self._iris.results(
            operations.logs(
                self.id, self.incarnation, follow=follow, regex=regex, substring=substring, children=children
            )
        )

    def cancel(self, reason: str = "") -> list[str]:
        """Ends it and all below it. Raises Missing, IrisError."""
        self.status()
        return self._iris.cancel(self.id, reason)


def check_break(error: IrisError, since: float | None, clock: Callable[[], float]) -> float:
    """When a stream broke first. Raises the error when it will not pass, or has not for a minute."""
    lasting = isinstance(error, RpcFailed) and error.status not in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
    if lasting or (since is not None and clock() - since > operations.RECONNECT_FOR_S):
        raise error
    return clock() if since is None else since
