"""`Plan`: what a change would do to exactly what, counted here, and the token under which that is done (DESIGN §5.18).

The planners of each method are in `planners`; those that have to ask something else than the model are here. Whoever may make a change
may plan it, also a read-only console, which then cannot carry it out. Must never change anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from iris_controller.rpc import planners
from iris_controller.rpc.errors import RpcError, as_rpc_error, denied, invalid, precondition
from iris_controller.rpc.plan_tokens import LIFE_S
from iris_controller.rpc.profiles import OWN, SYSTEM_WORKER
from iris_controller.rpc.reckoning import MOST_TARGETS, SLICE, Reckoning
from iris_controller.rpc.roles import ACCESS
from iris_controller.state import submit
from iris_controller.state.generations import Frozen, generation_of
from iris_controller.state.overlay import Overlay
from iris_core.model.errors import ModelError, did_you_mean
from iris_core.model.redact import redact_argv
from iris_core.model.states import JOB_TERMINAL, job_label, task_label
from iris_core.model.text import counted
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, plan_pb2, profiles_pb2
from iris_core.wire.services import method as method_of

if TYPE_CHECKING:
    from iris_controller.loop import ControllerLoop
    from iris_controller.rpc.bundles import Bundles
    from iris_controller.rpc.call import Call
    from iris_controller.rpc.dispatch import Router
    from iris_controller.rpc.plan_tokens import PlanTokens
    from iris_controller.rpc.reruns import Reruns
    from iris_controller.rpc.submitting import SubmitService
    from iris_controller.rpc.tasks import TaskService
    from iris_core.config.cluster import ClusterConfig
    from iris_core.wire.services import Method

MOST_REQUESTS: Final = 1_000
MOST_WORDS: Final = 300
"""Characters of a command line that an effect shows."""

Planner = Callable[[Any, "Call", Reckoning], Awaitable[None]]


class PlanService:
    """See the module. `makes_machines` says whether there is somebody who could make a slice."""

    def __init__(
        self,
        loop: ControllerLoop,
        tokens: PlanTokens,
        tasks: TaskService,
        submits: SubmitService,
        reruns: Reruns,
        bundles: Bundles,
        config: ClusterConfig,
        makes_machines: Callable[[], bool],
        revision: Callable[[], common_pb2.Revision],
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._tokens = tokens
        self._tasks = tasks
        self._submits = submits
        self._reruns = reruns
        self._bundles = bundles
        self._config = config
        self._makes_machines = makes_machines
        self._revision = revision
        self._planners: dict[str, Planner] = {
            "ControllerService/TerminateJob": self._end_job,
            "ControllerService/CompleteJob": self._end_job,
            "ControllerService/KickTasks": self._kick_tasks,
            "ControllerService/SetUserBudget": self._set_budget,
            "ControllerService/CreateSlice": self._create_slice,
            "ControllerService/DeleteSlice": self._delete_slice,
            "ControllerService/UnregisterEndpoint": self._unregister_endpoint,
            "ControllerService/BeginCheckpoint": self._checkpoint,
            "ControllerService/ExecInContainer": self._exec,
            "ControllerService/ProfileTask": self._profile,
            "ControllerService/LaunchJob": self._launch,
        }

    @property
    def methods(self) -> frozenset[str]:
        """What can be planned."""
        return frozenset(self._planners)

    def register(self, router: Router) -> None:
        router.add("ControllerService/Plan", self.plan)
        router.plans = self._tokens

    async def plan(self, request: plan_pb2.PlanRequest, call: Call) -> plan_pb2.PlanResponse:
        planner = self._planners.get(request.method)
        if planner is None:
            near = did_you_mean(request.method, self._planners)
            raise invalid("method", f"{request.method[:80]!r} cannot be planned", hint=near)
        access = ACCESS[request.method]
        if call.identity.role not in access.roles:
            raise denied(f"{call.identity.role} may not call {request.method}", subject=request.method, code="role")
        revision = self._revision()
        r = Reckoning(access.tier or 0)
        requests = _requests(request, method_of(request.method))
        for place, one in enumerate(requests):
            if place % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            try:
                await planner(one, call, r)
            except (RpcError, ModelError) as error:
                if len(requests) == 1:
                    raise
                told = as_rpc_error(error, request.method)
                r.skip(told.subject or "-", told.message)
            if sum(len(part) for _, part in r.parts) > MOST_TARGETS:
                raise invalid("requests", f"more than {MOST_TARGETS} targets at once")
        if request.method == "ControllerService/TerminateJob":
            planners.finish_ending(r, "as killed")
        elif request.method == "ControllerService/CompleteJob":
            planners.finish_ending(r, "as succeeded")
        answer = await r.response(request.method)
        answer.cluster = self._config.name
        answer.revision.CopyFrom(revision)
        if r.parts:
            answer.token = self._tokens.issue(call.identity.principal, request.method, r.parts, r.totals())
            answer.expires_in_ms = int(LIFE_S * 1000)
        else:
            del answer.effects[:], answer.lasting[:]
        return answer

    # What the model alone tells ------------------------------------------------------------------------------------

    async def _end_job(self, request: Any, call: Call, r: Reckoning) -> None:
        planners.end_job(self._model, request, call, r)

    async def _kick_tasks(self, request: Any, call: Call, r: Reckoning) -> None:
        await planners.kick_tasks(self._model, request, call, r)

    async def _set_budget(self, request: Any, call: Call, r: Reckoning) -> None:
        planners.set_budget(self._model, request, call, r)

    async def _create_slice(self, request: Any, call: Call, r: Reckoning) -> None:
        self._require_machines()
        planners.create_slice(self._model, request, self._config.scale_groups, self._loop.now_ms(), r)

    async def _delete_slice(self, request: Any, call: Call, r: Reckoning) -> None:
        self._require_machines()
        planners.delete_slice(self._model, request, call, r)

    async def _unregister_endpoint(self, request: Any, call: Call, r: Reckoning) -> None:
        planners.unregister_endpoint(self._model, request, call, r)

    def _require_machines(self) -> None:
        if not self._makes_machines():
            raise precondition(
                self._config.name,
                f"this controller makes no machines on the platform {self._config.platform}",
                code="no_machines",
            )

    async def _checkpoint(self, request: Any, call: Call, r: Reckoning) -> None:
        r.parts.append((request, [Frozen("controller", self._config.name, "")]))
        r.effects[
            "saves the whole state beside the other checkpoints, changes nothing more, and ends; workers and tasks go on"
            if request.stop
            else "saves the whole state beside the other checkpoints; nothing stops meanwhile"
        ] = None

    # What needs a running task ---------------------------------------------------------------------------------

    async def _exec(self, request: controller_pb2.ExecInContainerRequest, call: Call, r: Reckoning) -> None:
        target = self._attempt(request.task_id, call)
        words = " ".join(redact_argv(list(request.command)))
        if not words:
            raise invalid("command", "there is no command to run", hint="put it after --")
        if len(words) > MOST_WORDS:
            words = f"{words[:MOST_WORDS]}… ({len(words)} characters)"
        r.parts.append((request, [target]))
        r.running += 1
        r.effects[f"runs beside the task: {words}"] = None
        r.lasting["what the command does cannot be taken back"] = None

    async def _profile(self, request: profiles_pb2.ProfileTaskRequest, call: Call, r: Reckoning) -> None:
        call.identity.require_scope(request.target)
        if request.target in OWN:
            target = Frozen("controller", self._config.name, "")
        elif request.target.startswith(SYSTEM_WORKER):
            worker_id = request.target.removeprefix(SYSTEM_WORKER)
            worker = self._model.workers.get(worker_id)
            if worker is None:
                raise precondition(request.target, f"there is no worker {worker_id}", code="not_running")
            target = Frozen("worker", worker_id, worker.boot_id, str(worker.health.name).lower())
        else:
            target = self._attempt(request.target, call)
        r.parts.append((request, [target]))
        kind = profiles_pb2.ProfileType.Name(request.options.type).removeprefix("PROFILE_TYPE_").lower()
        r.effects[f"takes a {kind} profile; the program goes on, somewhat slower meanwhile"] = None

    def _attempt(self, text: str, call: Call) -> Frozen:
        task, uid = self._tasks.running(text, call)
        note = f"{task_label(task.state)} on {task.worker_id}"
        return Frozen("attempt", f"{task.task_id}:{task.attempt_number}", uid, note)

    # What brings a job in --------------------------------------------------------------------------------------

    async def _launch(self, request: controller_pb2.LaunchJobRequest, call: Call, r: Reckoning) -> None:
        whole = request
        if request.HasField("rerun"):
            whole = await self._reruns.expand(request, call)
            await self._require_stored(whole)
        rehearsed = self._submits.rehearse(whole, call)
        outcome, job = rehearsed.outcome, rehearsed.job
        before = self._model.jobs.get(job.job_id)
        generation = generation_of(Overlay(self._model), "job", job.job_id)
        note = f"replaces the one that has {job_label(before.state)}" if before is not None else "new"
        if isinstance(outcome, submit.KeptExisting):
            r.skip(job.job_id, "is running already and is kept")
            return
        r.parts.append((request, [Frozen("job", job.job_id, generation, note)]))
        band = job.spec.band.resolve(None).label
        r.effects[f"submits {job.job_id}: {counted(job.num_tasks, 'task')} in band {band}"] = None
        if request.HasField("rerun"):
            r.effects[
                f"runs {request.rerun.job_id} again: its command, files and secret values but for what is changed"
            ] = None
        if before is not None and before.state not in JOB_TERMINAL:
            r.end_jobs(self._model, iter([job.job_id]))
            r.effects[f"ends the job {job.job_id} that runs now"] = None
            r.tier = max(r.tier, 1)
        r.hints.update(dict.fromkeys(rehearsed.warnings))

    async def _require_stored(self, whole: controller_pb2.LaunchJobRequest) -> None:
        """Raises FAILED_PRECONDITION: the files of the original are gone."""
        names = {whole.bundle_id: "its bundle"} if whole.bundle_id else {}
        names |= {blob_id: f"its file {name[:80]!r}" for name, blob_id in whole.entrypoint.workdir_file_refs.items()}
        for blob_id, what in names.items():
            if not await self._bundles.still_stored(blob_id):
                raise precondition(
                    whole.rerun.job_id,
                    f"{whole.rerun.job_id} cannot be run again: {what}, {blob_id[:12]}, is no longer stored",
                    code="bundle_missing",
                    hint="submit it anew with job run, from its work directory",
                )


def _requests(request: plan_pb2.PlanRequest, method: Method) -> list[Message]:
    """The requests of a plan, as messages of its method. Raises INVALID_ARGUMENT."""
    if request.requests and request.requests_json:
        raise invalid("requests_json", "requests and requests_json exclude each other")
    number = len(request.requests) + len(request.requests_json)
    if not 0 < number <= MOST_REQUESTS:
        raise invalid("requests", f"a plan has 1 to {MOST_REQUESTS} requests, not {number}")
    name = method.request.DESCRIPTOR.full_name
    found: list[Message] = []
    try:
        for raw in request.requests:
            found.append(method.request.FromString(raw))
        for text in request.requests_json:
            found.append(json_format.Parse(text, method.request()))
    except (DecodeError, json_format.ParseError) as error:
        field = "requests" if request.requests else "requests_json"
        why = f": {' '.join(str(error).split())[:200]}" if request.requests_json else ""
        raise invalid(field, f"number {len(found)} is not a valid {name}{why}", code="bad_request") from None
    return found
