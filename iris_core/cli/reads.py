"""Questions to the controller that several commands ask, and the patience of those that wait.

A read that loses the connection may be asked again; the commands that wait for something do so for RECONNECT_FOR_S
and say so once. Must never change anything.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

from iris_core.client.calls import Timeout
from iris_core.contracts import ConnectFailed, RpcFailed, UsageFailed
from iris_core.model.errors import shown
from iris_core.model.ids import JobId
from iris_core.model.states import JOB_TERMINAL, TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from iris_core.cli.diagnostics import Diagnostics
    from iris_core.contracts import Client
    from iris_core.model.ids import TaskId
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

T = TypeVar("T")

PAGE: Final = 1000
RECONNECT_FOR_S: Final = 60.0
"""How long a command that follows or waits puts up with a controller that does not answer."""


_stands_at_ms = 0


def stand_still(moment_ms: int) -> None:
    """From now on it is that moment, which is what time it is in a checkpoint; 0 = time passes again."""
    global _stands_at_ms
    _stands_at_ms = moment_ms


def now_ms() -> int:
    """The time that ages are counted to."""
    return _stands_at_ms or time.time_ns() // 1_000_000


def job_ended(state: int) -> bool:
    """Whether a job in that state is over."""
    return state in JOB_TERMINAL


def task_ended(state: int) -> bool:
    """Whether a task or attempt in that state is over."""
    return state in TERMINAL


def job_status(client: Client, job: JobId) -> pb.GetJobStatusResponse:
    """The job. Raises IrisError."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    return client.call(
        "ControllerService/GetJobStatus", pb.GetJobStatusRequest(job_id=str(job)), pb.GetJobStatusResponse
    )


def task_status(client: Client, task: TaskId) -> pb.GetTaskStatusResponse:
    """The task with its attempts. Raises IrisError."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    return client.call(
        "ControllerService/GetTaskStatus", pb.GetTaskStatusRequest(task_id=str(task)), pb.GetTaskStatusResponse
    )


def list_tasks(client: Client, job: JobId | str) -> list[pb.TaskStatus]:
    """All tasks of one job, by index. Raises IrisError."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    found: list[pb.TaskStatus] = []
    token = ""
    while True:
        answer = client.call(
            "ControllerService/ListTasks",
            pb.ListTasksRequest(job_id=str(job), page_size=PAGE, page_token=token),
            pb.ListTasksResponse,
        )
        found.extend(answer.tasks)
        token = answer.next_page_token
        if not token:
            return found


def list_jobs(
    client: Client, *, prefix: str = "", states: Iterable[int] = (), filter_text: str = "", limit: int = 0
) -> tuple[list[pb.JobStatus], bool]:
    """Jobs, newest submission first, and whether there are more than `limit` (0 = all).

    `prefix` begins the id, in the middle of a component too; one that names only a user means that user alone. Raises
    IrisError.
    """
    found: list[pb.JobStatus] = []
    for job in _jobs(client, prefix, states, filter_text, limit):
        if limit and len(found) == limit:
            return found, True
        found.append(job)
    return found, False


def _jobs(client: Client, prefix: str, states: Iterable[int], filter_text: str, limit: int) -> Iterator[pb.JobStatus]:
    from iris_core.model.quoting import quote
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    # The server matches whole components; the rest of the prefix narrows by its filter and is checked here.
    whole = prefix.rpartition("/")[0] if prefix.count("/") > 1 else prefix
    partial = prefix if whole != prefix else ""
    words = f"job:{quote(partial)} {filter_text}".strip() if partial.rpartition("/")[2] else filter_text
    token = ""
    while True:
        answer = client.call(
            "ControllerService/ListJobs",
            pb.ListJobsRequest(
                prefix=whole,
                states=list(states),  # type: ignore[arg-type]  # the numbers of the enum
                filter=words,
                page_size=min(limit + 1, PAGE) if limit and not partial else PAGE,
                page_token=token,
            ),
            pb.ListJobsResponse,
        )
        yield from (job for job in answer.jobs if job.job_id.startswith(partial))
        token = answer.next_page_token
        if not token:
            return


def check_prefix(prefix: str, *, wide: bool) -> str:
    """An id's beginning. Without `wide` it must reach into the job's name: a user's whole work is too much to name by
    accident.

    Raises UsageFailed.
    """
    text = prefix.strip()
    if not text:
        raise UsageFailed("the prefix is empty", hint="write the beginning of an id, as /user/name")
    if not text.startswith("/"):
        raise UsageFailed(f"the prefix {shown(text)} does not start with '/'", hint="ids start with /user/")
    components = text[1:].split("/")
    if not components[0] or not all(character.isprintable() and character != ":" for character in text) or "//" in text:
        raise UsageFailed(f"the prefix {shown(text)} begins no id", hint="write the beginning of an id, as /user/name")
    if not wide and (len(components) < 2 or not components[1]):
        raise UsageFailed(
            f"the prefix {shown(text)} is too wide: it names all jobs of a user", hint="add the beginning of a name"
        )
    return text


class Patience:
    """Asks again while the controller does not answer, up to RECONNECT_FOR_S in a row; says so once per outage."""

    def __init__(
        self,
        diagnostics: Diagnostics,
        meanwhile: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._diagnostics = diagnostics
        self._meanwhile = meanwhile
        self._clock = clock
        self._sleep = sleep
        self._since: float | None = None
        self._step_s = 0.2

    def ask(self, question: Callable[[], T]) -> T:
        """The answer. Raises what `question` raises; ConnectFailed only when the patience is over."""
        while True:
            try:
                answer = question()
            except (ConnectFailed, RpcFailed) as error:
                if isinstance(error, RpcFailed) and error.status != "UNAVAILABLE":
                    raise
                self._wait(error)
            else:
                if self._since is not None:
                    self._diagnostics.note("connected again")
                    self._since, self._step_s = None, 0.2
                return answer

    def _wait(self, error: ConnectFailed | RpcFailed) -> None:
        now = self._clock()
        if self._since is None:
            self._since = now
            self._diagnostics.note(f"{error.message}; {self._meanwhile}; trying again for {RECONNECT_FOR_S:.0f} s")
        if now - self._since >= RECONNECT_FOR_S:
            raise error
        if not isinstance(error, Timeout):
            self._sleep(self._step_s)
            self._step_s = min(self._step_s * 2, 2.0)
