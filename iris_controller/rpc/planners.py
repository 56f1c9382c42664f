"""What each change of the state would do: one planner for each method, which fills a reckoning and changes nothing.

A planner refuses what the RPC itself would refuse (RpcError), skips a target that the RPC would answer with "nothing to do", and says
the rest in numbers. `finish` puts into words what has to be counted over all requests. Must never plan what it cannot freeze.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from iris_controller.rpc.budgets import check_budget_user
from iris_controller.rpc.errors import invalid, not_found
from iris_controller.rpc.reckoning import MOST_TARGETS, SLICE, Reckoning, below
from iris_controller.rpc.submissions import require_submission
from iris_controller.rpc.tasks import KICK_ENDS, kickable
from iris_controller.state import kick
from iris_controller.state.generations import Frozen, generation_of
from iris_controller.state.overlay import Overlay
from iris_controller.state.rollup import terminates_children
from iris_controller.state.slices import GOING
from iris_core.model.bands import PriorityBand
from iris_core.model.errors import did_you_mean, shown
from iris_core.model.ids import JobId
from iris_core.model.states import ACTIVE, JobState, TaskState, job_label, task_label
from iris_core.model.text import counted
from iris_core.wire.gen.iris.v1 import autoscaler_pb2, budgets_pb2, controller_pb2, endpoints_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_controller.rpc.call import Call
    from iris_controller.state.model import Model
    from iris_controller.state.records import Job, Task
    from iris_core.config.scale_groups import ScaleGroup

KEPT: Final = "what they did so far and their logs stay; it cannot be taken back"
MANY: Final = 2
"""The tier of what ends more than one workload."""


# Jobs --------------------------------------------------------------------------------------------------------------


def end_job(
    model: Model,
    request: controller_pb2.TerminateJobRequest | controller_pb2.CompleteJobRequest,
    call: Call,
    r: Reckoning,
) -> None:
    """TerminateJob and CompleteJob: the job and everything below it that has not ended."""
    parsed = JobId.parse(request.job_id)
    job_id = str(parsed)
    call.identity.require_owner(parsed.user, job_id)
    job = model.jobs.get(job_id)
    cancels = isinstance(request, controller_pb2.TerminateJobRequest)
    if isinstance(request, controller_pb2.TerminateJobRequest) and job is not None:
        require_submission(job_id, request.incarnation, job.submitted_at_ms)
    if not r.end_jobs(model, below(model, job_id)) and not (
        cancels and job is not None and job.state is JobState.WORKER_FAILED
    ):
        r.skip(job_id, f"has ended as {job_label(job.state)}" if job is not None else "is no unfinished job")
        return
    r.named.add(job_id)
    note = job_label(job.state) if job is not None else ""
    r.parts.append((request, [Frozen("job", job_id, generation_of(Overlay(model), "job", job_id), note)]))


def finish_ending(r: Reckoning, word: str) -> None:
    """`as killed`, `as succeeded`: what ends, in numbers."""
    tasks = [counted(n, noun) for n, noun in ((r.running, "running task"), (r.waiting, "waiting task")) if n]
    more = "at least " if r.capped else ""
    r.effects[f"ends {more}{' and '.join(tasks) or counted(len(r.named), 'job')} {word}"] = None
    if r.children:
        r.effects[f"ends {more}{counted(r.children, 'child job')} below {_them(r)}, too"] = None
    if r.children or len(r.named) > 1:
        r.tier = max(r.tier, MANY)
    r.lasting[KEPT] = None


def _them(r: Reckoning) -> str:
    return "it" if len(r.named) == 1 else "them"


# Tasks -------------------------------------------------------------------------------------------------------------


async def kick_tasks(model: Model, request: controller_pb2.KickTasksRequest, call: Call, r: Reckoning) -> None:
    """KickTasks: the current attempts that its targets name; those without one are left out of what is to be sent.

    Sliced: between slices the state may change, and then the plan is refused when it is carried out.
    """
    end = KICK_ENDS.get(request.desired_state)
    if end is None:
        raise invalid("desired_state", "a task can be kicked to PREEMPTED or FAILED, nothing else")
    if len(request.targets) > MOST_TARGETS:
        raise invalid("targets", f"{len(request.targets)} targets, at most {MOST_TARGETS} at once")
    o = Overlay(model)
    sent = controller_pb2.KickTasksRequest()
    sent.CopyFrom(request)
    del sent.targets[:]
    frozen: list[Frozen] = []
    tasks: dict[str, Task] = {}
    for place, text in enumerate(dict.fromkeys(request.targets)):
        if place % SLICE == SLICE - 1:
            await asyncio.sleep(0)
            o = Overlay(model)
        target = kickable(text, call)
        if isinstance(target, JobId):
            r.skip(text, "is a job; name its tasks")
            continue
        found = target if isinstance(target, str) else kick.look_up(o, target)
        if isinstance(found, str):
            r.skip(text, found)
            continue
        sent.targets.append(text)
        for task in found:
            if task.task_id not in tasks:
                tasks[task.task_id] = task
                name, note = f"{task.task_id}:{task.attempt_number}", f"{task_label(task.state)} on {task.worker_id}"
                frozen.append(Frozen("attempt", name, task.attempt_uid, note))
    if not frozen:
        return
    r.parts.append((sent, frozen))
    _kick_effects(model, list(tasks.values()), end is TaskState.PREEMPTED, r)


def _kick_effects(model: Model, tasks: Sequence[Task], preempted: bool, r: Reckoning) -> None:
    one = len(tasks) == 1
    what = "the attempt" if one else counted(len(tasks), "attempt")
    each = "the task is" if one else "each task is"
    by_job = Counter(task.job_id for task in tasks)
    jobs = [model.jobs[job_id] for job_id in by_job]
    if preempted:
        r.effects[f"ends {what} as preempted and charges the preemption budget"] = None
        spent = sum(t.preemption_count + 1 > model.jobs[t.job_id].spec.max_retries_preemption for t in tasks)
        if spent < len(tasks):
            r.effects[f"{each} tried again while that budget lasts"] = None
        if spent:
            r.effects[f"{_that(one, spent)} no preemption budget left and ends for good"] = None
    else:
        r.effects[f"ends {what} as failed, whatever budget is left"] = None
        r.lasting[f"{'the task is' if one else 'the tasks are'} not tried again"] = None
        over = [j for j in jobs if j.counts[TaskState.FAILED] + by_job[j.job_id] > j.spec.max_task_failures]
        if over:
            r.end_jobs(model, iter([job.job_id for job in over]))
            r.named.update(job.job_id for job in over)
            r.effects[f"ends {_job_names(over)}: more tasks fail than tolerated"] = None
    gangs = [job for job in jobs if job.spec.group_by]
    members = sum(_active(job) for job in gangs)
    r.running += sum(_active(j) if j.spec.group_by else by_job[j.job_id] for j in jobs if j.job_id not in r.jobs)
    if gangs:
        r.effects[f"a gang stays whole: all {counted(members, 'running task')} of {_job_names(gangs)} are stopped"] = (
            None
        )
    for job in jobs:
        if terminates_children(job) and r.end_jobs(
            model, (name for name in below(model, job.job_id) if name != job.job_id)
        ):
            r.effects[f"ends the child jobs of {job.job_id}, too"] = None
    if len(tasks) > 1 or r.running + r.waiting > len(tasks) or r.children:
        r.tier = max(r.tier, MANY)


def _active(job: Job) -> int:
    return sum(job.counts[state] for state in ACTIVE)


def _that(one: bool, number: int) -> str:
    return "it has" if one else f"each of {number:,} has"


def _job_names(jobs: Sequence[Job]) -> str:
    return f"job {jobs[0].job_id}" if len(jobs) == 1 else counted(len(jobs), "job")


# Users, slices, endpoints ------------------------------------------------------------------------------------------


def set_budget(model: Model, request: budgets_pb2.SetUserBudgetRequest, call: Call, r: Reckoning) -> None:
    """SetUserBudget: old → new, and what the new limit means at once."""
    check_budget_user(request.user_id)
    before = model.budget_of(request.user_id)
    try:
        band = PriorityBand(request.max_band) or PriorityBand.INTERACTIVE
    except ValueError:
        raise invalid("max_band", f"priority band {request.max_band} is unknown") from None
    spent = model.spent.get(request.user_id, 0)
    own = "" if before.updated_at_ms else ", the defaults"
    note = f"limit {_limit(before.limit)}, max band {before.max_band.label}, {spent:,} spent now{own}"
    r.parts.append((request, [Frozen("budget", request.user_id, str(before.updated_at_ms), note)]))
    if request.budget_limit != before.limit:
        r.effects[f"limit of {request.user_id}: {_limit(before.limit)} → {_limit(request.budget_limit)}"] = None
    if band is not before.max_band:
        r.effects[f"max band of {request.user_id}: {before.max_band.label} → {band.label}"] = None
    if not r.effects:
        r.effects[f"{request.user_id} has this budget already"] = None
    if request.budget_limit and spent > request.budget_limit:
        r.effects[f"{spent:,} are spent now: their interactive work is served as batch at once"] = None
    r.hints["what runs goes on running; a budget that the cluster file names is set back to it at the next start"] = (
        None
    )


def _limit(limit: int) -> str:
    return f"{limit:,}" if limit else "unlimited"


def create_slice(
    model: Model,
    request: autoscaler_pb2.CreateSliceRequest,
    groups: Mapping[str, ScaleGroup],
    now_ms: int,
    r: Reckoning,
) -> None:
    """CreateSlice."""
    group = groups.get(request.scale_group)
    if group is None:
        near = did_you_mean(request.scale_group, groups)
        raise invalid("scale_group", f"there is no scale group {shown(request.scale_group)}", hint=near)
    note = f"{counted(group.num_vms, 'machine')} a slice"
    r.parts.append((request, [Frozen("scale_group", group.name, "", note)]))
    r.workers += group.num_vms
    r.effects[f"makes 1 slice of {group.name}: {counted(group.num_vms, 'machine')}"] = None
    r.effects["it is outside the autoscaler's care and costs until it is deleted"] = None
    memory = model.scaling_groups.get(group.name)
    if memory is not None and memory.quota_exceeded_until_ms > now_ms:
        r.hints[f"the provider says that its quota is used up: {memory.quota_reason}"] = None
    elif memory is not None and memory.backoff_until_ms > now_ms:
        r.hints[f"its last slice failed: {memory.failure_reason}"] = None


def delete_slice(model: Model, request: autoscaler_pb2.DeleteSliceRequest, call: Call, r: Reckoning) -> None:
    """DeleteSlice: its workers, and the running tasks that end with them."""
    row = model.slices.get(request.slice_id)
    if row is None:
        # No near one is named: what is alike in generated names says nothing, and this deletes.
        raise not_found(
            request.slice_id,
            f"there is no slice {shown(request.slice_id)}",
            hint="see: iris cluster vm status",
        )
    if row.lifecycle in GOING:
        r.skip(row.slice_id, f"is {row.lifecycle} already")
        return
    tasks = {attempt.task_id for worker_id in row.worker_ids for attempt in model.attempts_on(worker_id)}
    note = f"{row.lifecycle}, {counted(len(row.worker_ids), 'worker')} of {row.scale_group}"
    r.parts.append((request, [Frozen("slice", row.slice_id, str(row.updated_at_ms), note)]))
    r.workers += len(row.worker_ids)
    r.running += len(tasks)
    stops = f"stops {counted(len(tasks), 'running task')} on {counted(len(row.worker_ids), 'worker')}"
    r.effects[f"deleting {row.slice_id} {stops}"] = None
    if tasks:
        r.effects["what had begun is charged as preempted and tried again elsewhere while its budget lasts"] = None
        gangs = {task.rpartition("/")[0] for task in tasks}
        whole = sum(model.jobs[job].spec.group_by != "" for job in gangs if job in model.jobs)
        if whole:
            stop = f"{counted(whole, 'gang')} {'stops' if whole == 1 else 'stop'}"
            r.effects[f"a gang stays whole: {stop}, also on other slices, and one task of each is charged"] = None
    r.lasting["its machines go, with everything on their disks"] = None


def unregister_endpoint(
    model: Model, request: endpoints_pb2.UnregisterEndpointRequest, call: Call, r: Reckoning
) -> None:
    """UnregisterEndpoint."""
    endpoint = model.endpoints.by_id.get(request.endpoint_id)
    if endpoint is None:
        r.skip(request.endpoint_id, "is no endpoint that is registered")
        return
    call.identity.require_owner(JobId.parse(endpoint.job_id).user, endpoint.name)
    note = f"{endpoint.name} of {endpoint.task_id}"
    r.parts.append((request, [Frozen("endpoint", endpoint.endpoint_id, endpoint.attempt_uid, note)]))
    r.effects[f"{endpoint.name} is no longer found nor proxied; its task goes on and may register it again"] = None
