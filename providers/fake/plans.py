"""What the fake client answers to Plan, and how it holds a call against the plan that it carries out.

Jobs, tasks and attempts are counted from the fake's rows in the server's words; a plan of any other method says what the test scripted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import RpcFailed
from iris_core.model.states import ACTIVE, JOB_TERMINAL, TaskState, job_label, task_label
from iris_core.model.text import counted
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.gen.iris.v1 import plan_pb2
from iris_core.wire.services import method as method_of

if TYPE_CHECKING:
    from collections.abc import Mapping

ENDS: Final = {"ControllerService/TerminateJob": "killed", "ControllerService/CompleteJob": "succeeded"}
KICK: Final = "ControllerService/KickTasks"


@dataclass(slots=True)
class _Kept:
    method: str
    targets: tuple[tuple[str, str], ...]
    """Job, or attempt, with its generation."""


class FakePlans:
    """`scripted` has the answers for methods that are not counted here; `tokens` those that were handed out."""

    def __init__(self, cluster: str, jobs: Mapping[str, pb.JobStatus], tasks: Mapping[str, pb.TaskStatus]) -> None:
        self.cluster = cluster
        self.scripted: dict[str, plan_pb2.PlanResponse] = {}
        self.tokens: dict[str, _Kept] = {}
        self.harmless: set[str] = set()
        """Methods whose plans are of tier 0: they are carried out without a gate."""
        self.absent = False
        """The controller is of a release without plans."""
        self._jobs = jobs
        self._tasks = tasks

    def answer(self, request: plan_pb2.PlanRequest) -> plan_pb2.PlanResponse:
        """The plan."""
        if self.absent:
            raise RpcFailed("UNIMPLEMENTED", "this controller has no ControllerService/Plan", code="unknown_method")
        tier = 0 if request.method in self.harmless else 1
        found = plan_pb2.PlanResponse(method=request.method, tier=tier, cluster=self.cluster)
        kind = method_of(request.method).request
        requests: list[Any] = [kind.FromString(raw) for raw in request.requests]
        if request.method in ENDS:
            self._end(found, requests, ENDS[request.method])
        elif request.method == KICK:
            self._kick(found, requests[0])
        else:
            found.MergeFrom(self.scripted.get(request.method, plan_pb2.PlanResponse()))
            found.requests.extend(request.requests)
        if found.requests:
            found.token, found.expires_in_ms = f"plan-{len(self.tokens)}", 300_000
            self.tokens[found.token] = _Kept(request.method, tuple((t.id, t.generation) for t in found.targets))
        return found

    def check(self, method: str, request: Any, token: str) -> None:
        """Raises RpcFailed: a target of this call is no longer what was planned."""
        kept = self.tokens.get(token)
        if kept is None or kept.method != method:
            raise RpcFailed("FAILED_PRECONDITION", "this plan is not known here; nothing was done", code="replan")
        if method not in ENDS and method != KICK:
            return
        for name, generation in kept.targets:
            job = self._jobs.get(name)
            task = self._tasks.get(name.partition(":")[0])
            if method in ENDS:
                if name == request.job_id and (job is None or str(job.incarnation) != generation):
                    raise _replan(f"job {name} was replaced by a new job of that name")
            elif task is None or task.attempt_uid != generation:
                raise _replan(f"{name} is not the current attempt any more")

    def _end(self, found: plan_pb2.PlanResponse, requests: list[Any], word: str) -> None:
        ending: dict[str, None] = {}
        for request in requests:
            below = [n for n in self._jobs if n == request.job_id or n.startswith(request.job_id + "/")]
            open_jobs = [name for name in below if int(self._jobs[name].state) not in JOB_TERMINAL]
            job = self._jobs.get(request.job_id)
            if not open_jobs or job is None:
                state = "is no unfinished job" if job is None else f"has ended as {job_label(job.state)}"
                found.skipped.add(id=request.job_id, why=state)
                continue
            ending.update(dict.fromkeys(open_jobs))
            found.targets.add(kind="job", id=job.job_id, generation=str(job.incarnation), note=job_label(job.state))
            found.requests.append(request.SerializeToString())
        counts = [count for name in ending for count in self._jobs[name].task_counts]
        running = sum(count.count for count in counts if int(count.state) in ACTIVE)
        waiting = sum(count.count for count in counts if int(count.state) == TaskState.PENDING)
        children = len(ending) - len(found.targets)
        tasks = [counted(n, noun) for n, noun in ((running, "running task"), (waiting, "waiting task")) if n]
        if not found.targets:
            return
        found.effects.append(f"ends {' and '.join(tasks) or counted(len(found.targets), 'job')} as {word}")
        if children:
            found.effects.append(
                f"ends {counted(children, 'child job')} below {'it' if len(found.targets) == 1 else 'them'}, too"
            )
        if children or len(found.targets) > 1:
            found.tier = 2
        found.lasting.append("what they did so far and their logs stay; it cannot be taken back")
        found.counts.jobs, found.counts.child_jobs = len(ending), children
        found.counts.running_tasks, found.counts.waiting_tasks = running, waiting

    def _kick(self, found: plan_pb2.PlanResponse, request: pb.KickTasksRequest) -> None:
        sent = pb.KickTasksRequest(desired_state=request.desired_state)
        for text in request.targets:
            name, _, number = text.partition(":")
            task = self._tasks.get(name)
            if task is None:
                found.skipped.add(id=text, why=f"there is no task {name}")
            elif number and int(number) != task.current_attempt_id:
                found.skipped.add(
                    id=text, why=f"attempt {number} is not the current one, attempt {task.current_attempt_id} is"
                )
            elif int(task.state) not in ACTIVE:
                found.skipped.add(id=text, why="it is pending, on no worker")
            else:
                sent.targets.append(text)
                found.targets.add(
                    kind="attempt",
                    id=f"{name}:{task.current_attempt_id}",
                    generation=task.attempt_uid,
                    note=f"{task_label(task.state)} on {task.worker_id}",
                )
        one = len(found.targets) == 1
        what = "the attempt" if one else counted(len(found.targets), "attempt")
        if not found.targets:
            return
        if int(request.desired_state) == TaskState.PREEMPTED:
            found.effects.append(f"ends {what} as preempted and charges the preemption budget")
            found.effects.append(f"{'the' if one else 'each'} task is tried again while that budget lasts")
        else:
            found.effects.append(f"ends {what} as failed, whatever budget is left")
            found.lasting.append(f"{'the task is' if one else 'the tasks are'} not tried again")
        found.tier = 1 if one else 2
        found.counts.running_tasks = len(found.targets)
        found.requests.append(sent.SerializeToString())


def _replan(why: str) -> RpcFailed:
    return RpcFailed("FAILED_PRECONDITION", f"it was planned, and then changed: {why}; nothing was done", code="replan")
