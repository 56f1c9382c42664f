"""A controller that exists only in memory, for the command line: the scripted cluster of `FakeClient` behind the
synchronous protocol.

What the command line asks beyond the console is scripted per method: an answer, an exception, or a function of the
request. A read that would wait returns at once, because nothing happens by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self, cast

from iris_core.contracts import R
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from providers.fake.client import Call, FakeClient

Answer = Any


class FakeSyncClient:
    """`iris_core.contracts.Client` over a scripted cluster.

    `cluster` is the world behind it (`put`, `log`, `fail`, `deny`, `break_connection`). `script[method]` is a list:
    each call takes the next item, the last one stays. `before` runs before every call.
    """

    def __init__(self, cluster: FakeClient | None = None) -> None:
        self.cluster = cluster or FakeClient()
        self.url = self.cluster.url
        self.script: dict[str, list[Answer]] = {}
        self.streams: dict[str, list[Answer]] = {}
        self.before: Callable[[Call], None] = lambda _: None
        self.calls: list[Call] = []
        self.closed = False

    def answer(self, method: str, *answers: Answer) -> None:
        """Script a method (`LaunchJob`): messages, exceptions to raise, or functions of the request."""
        self.script[method] = list(answers)

    def called(self, method: str) -> list[Any]:
        """The requests of all calls of a method, in order."""
        return [call.request for call in self.calls if call.method.endswith("/" + method)]

    def call(self, method: str, request: Any, response: type[R], *, timeout_s: float = 30.0) -> R:
        made = Call(method, type(request).FromString(request.SerializeToString()))
        self.calls.append(made)
        self.before(made)
        name = method.rpartition("/")[2]
        scripted = self.script.get(name)
        if scripted:
            answer = scripted.pop(0) if len(scripted) > 1 else scripted[0]
            if isinstance(answer, BaseException):
                raise answer
            return cast("R", answer(request) if callable(answer) else answer)
        if name == "GetJobState":
            jobs = {job.job_id: job.state for job in (*self.cluster.jobs.values(), *self.cluster.history)}
            found = {job_id: jobs[job_id] for job_id in request.job_ids if job_id in jobs}
            return cast("R", pb.GetJobStateResponse(states=found))
        if name == "FetchLogs":
            made.request.wait_ms = 0
        return asyncio.run(self.cluster.call(method, made.request, response, timeout_s=timeout_s))

    def stream(self, method: str, request: Any, response: type[R]) -> Iterator[R]:
        self.calls.append(Call(method, request))
        for item in self.streams.get(method.rpartition("/")[2], []):
            if isinstance(item, BaseException):
                raise item
            yield cast("R", item)

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
