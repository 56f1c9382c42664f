"""What each change is on the wire: one row for each, beside which everything about changes is general (`changes`).

A row says which RPC it is, how its requests are built from the chosen ids and what the screen adds, and how an answer reads. Its key is
the name of the action (`target.cancel` → `cancel`), so that an action of any scope with that name is the same change. Adding one: a
row here, an `Action` with a tier and `mutates` under `iris_tui/actions/`, and a planner on the server. Must never decide what is sent
under a plan: that is the plan's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iris_core.live.wording import Tone
from iris_core.model.states import TaskState, task_label
from iris_core.model.text import counted, one_line, strip_to_sgr

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from iris_core.client.plans import Outcome

Fields = Mapping[str, Any]
"""What a screen adds to the ids: `command=[…]`, `limit=…`."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one target."""

    id: str
    done: bool
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeKind:
    """One kind of change.

    Attributes:
        method: The RPC.
        noun: What its targets are called: "job".
        build: The requests for these ids and fields. Raises ModelError for a field that is wrong or missing.
        results: What became of each target of a request that was done, from its answer.
        words: The same in one line for all of them, for a toast: "2 jobs ended".
        page: Lines worth a page of their own when one was done: the output of a command.
        timeout_s: How long one request may take; a field of that name wins.
    """

    method: str
    noun: str
    build: Callable[[Sequence[str], Fields], Sequence[Message]]
    results: Callable[[Any, Any], list[Result]]
    words: Callable[[Sequence[Any]], str] = lambda answers: "done"
    page: Callable[[Any], list[tuple[str, Tone]]] | None = None
    timeout_s: float = 60.0


# Jobs --------------------------------------------------------------------------------------------------------------


def _cancel(ids: Sequence[str], fields: Fields) -> Sequence[Message]:
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    return [pb.TerminateJobRequest(job_id=name) for name in ids]


def _complete(ids: Sequence[str], fields: Fields) -> Sequence[Message]:
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    return [pb.CompleteJobRequest(job_id=name) for name in ids]


def _job_result(request: Any, answer: Any) -> list[Result]:
    ended = f"{counted(len(answer.job_ids), 'job')} ended" if answer.job_ids else "had ended already"
    return [Result(request.job_id, True, ended)]


def _jobs_ended(answers: Sequence[Any]) -> str:
    ended = {name for answer in answers for name in answer.job_ids}
    return f"{counted(len(ended), 'job')} ended" if ended else "had ended already"


def _rerun(ids: Sequence[str], fields: Fields) -> Sequence[Message]:
    """`request`: a LaunchJobRequest with its `rerun` set."""
    return [fields["request"]]


def _submitted(request: Any, answer: Any) -> list[Result]:
    return [Result(answer.job_id, True, "is kept, it runs already" if answer.existing else "submitted")]


# Tasks -------------------------------------------------------------------------------------------------------------


def _kick(end: TaskState) -> Callable[[Sequence[str], Fields], Sequence[Message]]:
    def build(ids: Sequence[str], fields: Fields) -> Sequence[Message]:
        from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

        state: Any = end.value
        return [pb.KickTasksRequest(targets=list(ids), desired_state=state)]

    return build


def _kick_results(request: Any, answer: Any) -> list[Result]:
    word = task_label(request.desired_state)
    return [Result(k.target, k.queued, word if k.queued else f"rejected: {one_line(k.detail)}") for k in answer.results]


def _kicked(end: TaskState) -> Callable[[Sequence[Any]], str]:
    def words(answers: Sequence[Any]) -> str:
        number = sum(kicked.queued for answer in answers for kicked in answer.results)
        return task_label(end.value) if number == 1 else f"{counted(number, 'task')} {task_label(end.value)}"

    return words


def _exec(ids: Sequence[str], fields: Fields) -> Sequence[Message]:
    """`command`: its words; `timeout_seconds`, 0 = 60."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    return [
        pb.ExecInContainerRequest(
            task_id=name, command=fields["command"], timeout_seconds=int(fields.get("timeout_seconds", 0))
        )
        for name in ids
    ]


def _exec_words(answer: Any) -> str:
    return one_line(answer.error) if answer.error else f"exit code {answer.exit_code}"


def _exec_results(request: Any, answer: Any) -> list[Result]:
    return [Result(request.task_id, not answer.error and answer.exit_code == 0, _exec_words(answer))]


def _exec_page(answer: Any) -> list[tuple[str, Tone]]:
    lines: list[tuple[str, Tone]] = []
    for data, tone in ((answer.stdout, Tone.PLAIN), (answer.stderr, Tone.WARN)):
        text = strip_to_sgr(bytes(data).decode("utf-8", "replace"), keep_newlines=True)
        lines.extend((one_line(line), tone) for line in text.splitlines())
    if answer.truncated:
        lines.append(("the output was longer than is kept; the rest is lost", Tone.BAD))
    ended = Tone.GOOD if not answer.error and answer.exit_code == 0 else Tone.BAD
    return [*lines, ("", Tone.PLAIN), (_exec_words(answer), ended)]


KEPT_AS: Final = "kept as "
"""What the words of a profile's result begin with when it can be fetched; its id follows."""


def _profile(ids: Sequence[str], fields: Fields) -> Sequence[Message]:
    """`options`: a ProfileOptions."""
    from iris_core.wire.gen.iris.v1 import profiles_pb2

    return [profiles_pb2.ProfileTaskRequest(target=name, options=fields.get("options")) for name in ids]


def _profiled(request: Any, answer: Any) -> list[Result]:
    kept = f"{KEPT_AS}{answer.record.profile_id}" if answer.record.profile_id else "; ".join(answer.notes)
    return [Result(request.target or "/system/controller", True, one_line(kept))]


# The cluster -------------------------------------------------------------------------------------------------------


def _set_budget(ids: Sequence[str], fields: Fields) -> Sequence[Message]:
    """`limit`, 0 = unlimited; `max_band`: a number of PriorityBand."""
    from iris_core.wire.gen.iris.v1 import budgets_pb2

    return [
        budgets_pb2.SetUserBudgetRequest(
            user_id=name, budget_limit=int(fields["limit"]), max_band=fields.get("max_band")
        )
        for name in ids
    ]


def _budget_set(request: Any, answer: Any) -> list[Result]:
    limit = answer.budget.budget_limit
    return [Result(request.user_id, True, f"limit {f'{limit:,}' if limit else 'unlimited'}")]


def _create_slice(ids: Sequence[str], fields: Fields) -> Sequence[Message]:
    from iris_core.wire.gen.iris.v1 import autoscaler_pb2

    return [autoscaler_pb2.CreateSliceRequest(scale_group=name) for name in ids]


def _slice_made(request: Any, answer: Any) -> list[Result]:
    return [Result(request.scale_group, True, f"makes {answer.slice_id}")]


def _delete_slice(ids: Sequence[str], fields: Fields) -> Sequence[Message]:
    from iris_core.wire.gen.iris.v1 import autoscaler_pb2

    return [autoscaler_pb2.DeleteSliceRequest(slice_id=name) for name in ids]


def _slice_deleted(request: Any, answer: Any) -> list[Result]:
    return [Result(request.slice_id, True, f"is deleted; {counted(len(answer.task_ids), 'task')} stopped")]


def _unregister(ids: Sequence[str], fields: Fields) -> Sequence[Message]:
    from iris_core.wire.gen.iris.v1 import endpoints_pb2

    return [endpoints_pb2.UnregisterEndpointRequest(endpoint_id=name) for name in ids]


def _unregistered(request: Any, answer: Any) -> list[Result]:
    return [Result(request.endpoint_id, answer.removed, "removed" if answer.removed else "was gone already")]


def _checkpoint(ids: Sequence[str], fields: Fields) -> Sequence[Message]:
    from iris_core.wire.gen.iris.v1 import checkpoints_pb2

    return [checkpoints_pb2.BeginCheckpointRequest()]


def _checkpoint_taken(request: Any, answer: Any) -> list[Result]:
    return [
        Result(
            answer.checkpoint_path, True, f"{counted(answer.job_count, 'job')}, {counted(answer.task_count, 'task')}"
        )
    ]


_C: Final = "ControllerService/"
CHANGES: Final[Mapping[str, ChangeKind]] = {
    "cancel": ChangeKind(method=f"{_C}TerminateJob", noun="job", build=_cancel, results=_job_result, words=_jobs_ended),
    "complete": ChangeKind(
        method=f"{_C}CompleteJob", noun="job", build=_complete, results=_job_result, words=_jobs_ended
    ),
    "preempt": ChangeKind(
        method=f"{_C}KickTasks",
        noun="attempt",
        build=_kick(TaskState.PREEMPTED),
        results=_kick_results,
        words=_kicked(TaskState.PREEMPTED),
    ),
    "fail": ChangeKind(
        method=f"{_C}KickTasks",
        noun="attempt",
        build=_kick(TaskState.FAILED),
        results=_kick_results,
        words=_kicked(TaskState.FAILED),
    ),
    "exec": ChangeKind(
        method=f"{_C}ExecInContainer",
        noun="attempt",
        build=_exec,
        results=_exec_results,
        words=lambda answers: _exec_words(answers[0]) if len(answers) == 1 else "run",
        page=_exec_page,
        timeout_s=90.0,
    ),
    "profile": ChangeKind(
        method=f"{_C}ProfileTask",
        noun="program",
        build=_profile,
        results=_profiled,
        words=lambda answers: "profile taken",
        timeout_s=600.0,
    ),
    "rerun": ChangeKind(
        method=f"{_C}LaunchJob", noun="job", build=_rerun, results=_submitted, words=lambda answers: "submitted"
    ),
    "set_budget": ChangeKind(
        method=f"{_C}SetUserBudget", noun="user", build=_set_budget, results=_budget_set, words=lambda answers: "set"
    ),
    "create_slice": ChangeKind(
        method=f"{_C}CreateSlice",
        noun="scale group",
        build=_create_slice,
        results=_slice_made,
        words=lambda answers: f"makes {', '.join(answer.slice_id for answer in answers)}",
        timeout_s=700.0,
    ),
    "delete_slice": ChangeKind(
        method=f"{_C}DeleteSlice",
        noun="slice",
        build=_delete_slice,
        results=_slice_deleted,
        words=lambda answers: f"{counted(sum(len(answer.task_ids) for answer in answers), 'task')} stopped",
    ),
    "unregister": ChangeKind(
        method=f"{_C}UnregisterEndpoint",
        noun="endpoint",
        build=_unregister,
        results=_unregistered,
        words=lambda answers: "removed",
    ),
    "checkpoint": ChangeKind(
        method=f"{_C}BeginCheckpoint",
        noun="controller",
        build=_checkpoint,
        results=_checkpoint_taken,
        words=lambda answers: f"saved as {answers[0].checkpoint_path}",
        timeout_s=960.0,
    ),
}
"""By the name of the action."""


def results_of(kind: ChangeKind, outcome: Outcome) -> list[Result]:
    """What became of each target of one request."""
    if outcome.answer is not None:
        return kind.results(outcome.request, outcome.answer)
    words = one_line(outcome.words) + (f"; {one_line(outcome.hint)}" if outcome.hint else "")
    return [Result(name, False, words) for name in _names(outcome.request)]


def _names(request: Any) -> list[str]:
    """What a request that was not done was about."""
    for name in ("job_id", "task_id", "target", "user_id", "slice_id", "scale_group", "endpoint_id", "name"):
        if getattr(request, name, ""):
            return [getattr(request, name)]
    return list(getattr(request, "targets", ())) or ["the controller"]
