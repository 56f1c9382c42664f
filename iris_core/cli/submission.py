"""One submission of a name, told apart from a later job that took the name over (docs/decisions.md: its incarnation).

Whoever waits for a job, follows its log or cancels it means the job that had the name when he began. Another attempt, a retry and a
controller that was restarted change nothing of that; a later job of the name ends the waiting. Must never speak for that one.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from iris_core.cli import reads
from iris_core.contracts import IrisError, RpcFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from iris_core.cli.log_lines import Line
    from iris_core.cli.log_subject import Subject
    from iris_core.contracts import Client
    from iris_core.model.ids import JobId
    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest

T = TypeVar("T")

LINES_AT_ONCE: Final = 2_000
TERMINATE: Final = "ControllerService/TerminateJob"


class Replaced(IrisError):
    """The name `taken` is another job's by now. `later` is the incarnation of that one, 0 if that is not known."""

    def __init__(self, name: str, taken: JobId, pinned: int, later: int = 0) -> None:
        # After a checkpoint was restored it may be one that was there before.
        by = f"{'another' if 0 < later < pinned else 'a later'} job of this name"
        super().__init__(
            f"{name} was replaced by {by}" if name == str(taken) else f"{name} ended with {taken}, replaced by {by}",
            hint=f"what was written under that name: job logs {taken} --all-incarnations",
        )
        self.later = later


class Submission:
    """The job `job` as it was first found, or that of `incarnation` where that is known; `name` is what errors speak of."""

    def __init__(self, client: Client, name: str, job: JobId, incarnation: int = 0) -> None:
        self._client = client
        self._name = name
        self._job = job
        self._incarnation = incarnation

    def ask(self, question: Callable[[], T], incarnation: Callable[[T], int]) -> T:
        """What `question` answers about this submission. Raises Replaced, and what `question` raises."""
        try:
            found = question()
        except RpcFailed as error:
            if error.status == "NOT_FOUND" and self._incarnation:
                self._look_above()
            raise
        self._check(self._job, incarnation(found))
        return found

    def _check(self, job: JobId, seen: int) -> None:
        if not self._incarnation:
            self._incarnation = seen
        # A release that does not tell is taken at its word.
        elif seen and seen != self._incarnation:
            raise Replaced(self._name, job, self._incarnation, seen)

    def _look_above(self) -> None:
        """A later job may lack the task, and one of a parent's name the child. Raises Replaced."""
        above: JobId | None = self._job
        while above is not None:
            try:
                seen = reads.job_status(self._client, above).job.incarnation
            except RpcFailed as error:
                if error.status != "NOT_FOUND":
                    raise
            else:
                # What is above was submitted before.
                if seen > self._incarnation:
                    raise Replaced(self._name, above, self._incarnation, seen)
            above = above.parent


def later_lines(client: Client, request: FetchLogsRequest, seqs: Collection[int]) -> set[int]:
    """Which of these lines are among those that `request`, of a later incarnation, asks for; all when nobody can say."""
    from iris_core.cli.log_reader import LogReader

    if not seqs:
        return set()
    reader = LogReader(client, request, several=True)
    cursor, last = min(seqs) - 1, max(seqs)
    found: set[int] = set()
    while cursor < last:
        try:
            answer = reader.fetch(cursor=cursor, before=last + 1)
        except IrisError:
            return set(seqs)
        found.update(entry.seq for entry in answer.entries)
        if answer.cursor <= cursor:
            break
        cursor = answer.cursor
    return found


def own_lines(subject: Subject, lines: Iterable[Line]) -> Iterator[Line]:
    """The lines without those of a later submission: whose they are is asked after they were read. Raises IrisError of `lines`."""
    rest = iter(lines)
    while batch := list(islice(rest, LINES_AT_ONCE)):
        later: set[int] = set()
        try:
            subject.standing()
        except Replaced as replaced:
            later = subject.later_lines(replaced.later, [line.seq for line in batch])
        except IrisError:
            # Whoever goes on asking hears of it; these lines were there before.
            pass
        yield from (line for line in batch if line.seq not in later)


def cancel(client: Client, job: JobId, incarnation: int, reason: str, *, timeout_s: float) -> bool:
    """Cancels that submission. Returns whether it is sure that no later job was cancelled. Raises Replaced, IrisError."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    # A controller of an earlier release goes by the name alone: so the name is looked at first.
    found = client.call(
        "ControllerService/GetJobStatus",
        pb.GetJobStatusRequest(job_id=str(job)),
        pb.GetJobStatusResponse,
        timeout_s=timeout_s,
    ).job.incarnation
    if incarnation and found and found != incarnation:
        raise Replaced(str(job), job, incarnation, found)
    request = pb.TerminateJobRequest(job_id=str(job), reason=reason, incarnation=incarnation)
    try:
        ended = client.call(TERMINATE, request, pb.TerminateJobResponse, timeout_s=timeout_s)
    except RpcFailed as error:
        if error.code == "replaced":
            raise Replaced(str(job), job, incarnation) from None
        if error.code != "unknown_field":
            raise
        request.ClearField("incarnation")
        ended = client.call(TERMINATE, request, pb.TerminateJobResponse, timeout_s=timeout_s)
    return bool(ended.incarnation)
