"""The task RPCs: look, list, run a command inside, force to an end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from iris_controller.loop import ControllerLoop
from iris_controller.readings import Readings
from iris_controller.rpc.attach import WorkerSessions, exec_request
from iris_controller.rpc.call import Call, unless_left
from iris_controller.rpc.dispatch import Router
from iris_controller.rpc.errors import RpcError, invalid, not_found, precondition
from iris_controller.rpc.once import Once, remember
from iris_controller.rpc.views import overlay_reasons
from iris_controller.state import kick
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import Task
from iris_controller.store.reads import Page, Readers, one_task, states_of, tasks_page
from iris_core.client.calls import NOT_KNOWN_IF_RUN, UNHEARD_CODES
from iris_core.live.filters import TASK_FIELDS, TASK_WORDS, task_row
from iris_core.model.errors import ModelError
from iris_core.model.filter import Filter, parse_filter
from iris_core.model.ids import AttemptId, JobId, TaskId, parse_target
from iris_core.model.states import EXECUTING, TERMINAL, TaskState, label
from iris_core.wire.convert import resources_to_wire
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2

EXEC_DEFAULT_S = 60
EXEC_SLACK_S = 15.0
MAX_COMMAND_BYTES = 1 << 20
MAX_KICKS = 10_000
KICK_ENDS: dict[int, kick.End] = {
    int(TaskState.PREEMPTED): TaskState.PREEMPTED,
    int(TaskState.FAILED): TaskState.FAILED,
}
SQL_COLUMNS = {
    "task": "t.task_id",
    "job": "t.job_id",
    "worker": "t.current_worker_id",
    "error": "NULLIF(t.error, '')",
    "index": "t.task_index",
    "failures": "t.failure_count",
    "preemptions": "t.preemption_count",
    "exit": "t.exit_code",
}


class TaskService:
    """See the module."""

    def __init__(
        self,
        loop: ControllerLoop,
        readers: Readers,
        sessions: WorkerSessions,
        once: Once,
        revision: Callable[[], common_pb2.Revision],
        readings: Readings,
    ) -> None:
        self._once = once
        self._loop = loop
        self._model = loop.model
        self._readers = readers
        self._sessions = sessions
        self._revision = revision
        self._readings = readings

    def register(self, router: Router) -> None:
        router.add("ControllerService/GetTaskStatus", self.get_task_status)
        router.add("ControllerService/ListTasks", self.list_tasks)
        router.add("ControllerService/ExecInContainer", self.exec_in_container)
        router.add("ControllerService/KickTasks", self.kick_tasks)

    async def get_task_status(
        self, request: controller_pb2.GetTaskStatusRequest, call: Call
    ) -> controller_pb2.GetTaskStatusResponse:
        task_id = str(TaskId.parse(request.task_id))
        call.identity.require_scope(task_id)
        revision = self._revision()
        found = await self._readers.run(lambda c: one_task(c, task_id))
        if found is None:
            raise await self._missing(TaskId.parse(task_id))
        status, attempts, resources = found
        overlay_reasons(self._model, [status])
        self._readings.onto(status)
        for attempt in attempts:
            self._readings.onto_attempt(attempt)
        return controller_pb2.GetTaskStatusResponse(
            task=status, attempts=attempts, resources=resources_to_wire(resources), revision=revision
        )

    async def list_tasks(
        self, request: controller_pb2.ListTasksRequest, call: Call
    ) -> controller_pb2.ListTasksResponse:
        job_id = str(JobId.parse(request.job_id))
        call.identity.require_scope(job_id)
        page = Page.of(request.page_size, request.page_token, 500, 2_000, (int,))
        where = ""
        values: tuple[object, ...] = ()
        residual: Filter | None = None
        if request.filter:
            try:
                compiled = parse_filter(request.filter, TASK_FIELDS, default=TASK_WORDS)
            except ModelError as error:
                raise invalid("filter", error.message, position=error.position, hint=error.hint) from None
            where, values, residual = compiled.to_sql(SQL_COLUMNS)
        revision = self._revision()
        found = await self._readers.run(lambda c: tasks_page(c, job_id, page, where, values))
        if found is None:
            raise not_found(job_id, f"there is no job {job_id}")
        rows, token, total = found
        overlay_reasons(self._model, rows)
        for row in rows:
            self._readings.onto(row)
        if residual is not None:
            rows = [row for row in rows if residual.matches(task_row(row, self._loop.now_ms()))]
        return controller_pb2.ListTasksResponse(
            tasks=rows,
            next_page_token=token,
            total_count=total if residual is None else len(rows),
            total_capped=residual is not None and bool(token),
            revision=revision,
        )

    async def finished_tasks(self, job_id: str) -> list[controller_pb2.TaskStatus]:
        """All tasks of a job that is no longer in memory, for Watch; empty when the job is unknown."""
        tasks: list[controller_pb2.TaskStatus] = []
        token = ""
        while True:
            page = Page.of(0, token, 2_000, 2_000, (int,))
            found = await self._readers.run(partial(tasks_page, job_id=job_id, page=page))
            if found is None:
                return tasks
            rows, token, _ = found
            tasks.extend(rows)
            if not token:
                return tasks

    async def attempts_of(self, task_ids: Iterable[str]) -> list[controller_pb2.AttemptStatus]:
        """All attempts of these tasks, oldest first, for Watch; a task that is not known has none."""
        attempts: list[controller_pb2.AttemptStatus] = []
        for task_id in sorted(task_ids):
            found = await self._readers.run(partial(one_task, task_id=task_id))
            if found is not None:
                attempts.extend(found[1])
        for attempt in attempts:
            self._readings.onto_attempt(attempt)
        return attempts

    async def exec_in_container(
        self, request: controller_pb2.ExecInContainerRequest, call: Call
    ) -> controller_pb2.ExecInContainerResponse:
        task, uid = self.running(request.task_id, call)
        command = list(request.command)
        if not command or not command[0]:
            raise invalid("command", "there is no command to run", hint="put it after --")
        if any("\0" in word for word in command) or sum(len(w.encode()) for w in command) > MAX_COMMAND_BYTES:
            raise invalid("command", "the command contains a NUL character or is longer than 1 MiB")
        if request.timeout_seconds < -1:
            raise invalid("timeout_seconds", "use -1 for no limit, 0 for the default of 60 s")
        call.audit(entity=task.task_id, attempt_uid=uid, program=command[0])
        seconds = request.timeout_seconds or EXEC_DEFAULT_S
        timeout_ms = 0 if seconds < 0 else seconds * 1000

        async def work() -> controller_pb2.ExecInContainerResponse:
            await call.recheck(self._loop)
            limit_s = None if seconds < 0 else seconds + EXEC_SLACK_S
            asking = self._sessions.request(task.worker_id, exec_request(uid, command, timeout_ms), limit_s)
            try:
                reply = await unless_left(asking, call)
            except RpcError as error:
                if error.code not in UNHEARD_CODES:
                    raise
                # An answer, and kept like any: a repeat of the request must not run it again.
                why = f"{NOT_KNOWN_IF_RUN}: {error.message}"
                return controller_pb2.ExecInContainerResponse(exit_code=-1, error=why)
            if reply is None:
                left = "whoever asked for it left: its worker was told to end it"
                return controller_pb2.ExecInContainerResponse(exit_code=-1, error=left)
            if reply.error:
                return controller_pb2.ExecInContainerResponse(exit_code=-1, error=reply.error)
            return reply.exec

        return await self._once.run_unstored(call, controller_pb2.ExecInContainerResponse, work)

    async def kick_tasks(
        self, request: controller_pb2.KickTasksRequest, call: Call
    ) -> controller_pb2.KickTasksResponse:
        if not request.targets:
            raise invalid("targets", "there is nothing to act on", hint="name tasks, attempts or jobs")
        if len(request.targets) > MAX_KICKS:
            raise invalid("targets", f"{len(request.targets)} targets, at most {MAX_KICKS} at once")
        end = KICK_ENDS.get(request.desired_state)
        if end is None:
            raise invalid("desired_state", "a task can be kicked to PREEMPTED or FAILED, nothing else")
        targets = [(text, kickable(text, call)) for text in request.targets]
        trigger = call.identity.principal

        def plan(o: Overlay, now_ms: int) -> controller_pb2.KickTasksResponse:
            found = kick.kick(o, targets, end, trigger, request.reason, now_ms, dry_run=request.dry_run)
            response = controller_pb2.KickTasksResponse(
                results=[
                    controller_pb2.KickResult(target=k.target, task_id=k.task_id, queued=k.accepted, detail=k.detail)
                    for k in found
                ]
            )
            if not request.dry_run:
                remember(o, call, response)
            return response

        return await self._once.run(
            call, controller_pb2.KickTasksResponse, lambda: self._loop.submit("kick tasks", call.guarded(plan))
        )

    def running(self, target: str, call: Call) -> tuple[Task, str]:
        """The task whose current attempt executes, and that attempt's uid. Raises RpcError."""
        parsed = parse_target(target)
        if isinstance(parsed, JobId):
            raise invalid("task_id", f"{target} is a job, name one of its tasks: {target}/0")
        task_id = parsed.task if isinstance(parsed, AttemptId) else parsed
        call.identity.require_owner(task_id.job.user, target)
        task = self._model.task(str(task_id.job), task_id.index)
        if task is None:
            job = self._model.jobs.get(str(task_id.job))
            if job is not None and task_id.index < job.num_tasks:
                raise precondition(
                    target, f"{target} is not running: its job is {label(job.state)}", code="not_running"
                )
            raise not_found(target, f"there is no running task {target}")
        if isinstance(parsed, AttemptId) and parsed.number != task.attempt_number:
            raise precondition(
                target, f"{target} is not the current attempt, {task.attempt_number} is", code="stale_attempt"
            )
        if task.state not in EXECUTING:
            state = label(task.state)
            why = (
                ""
                if task.state in TERMINAL or task.state is TaskState.ASSIGNED
                else (f": {self._model.reasons.get(task.job_id, '')}")
            )
            raise precondition(target, f"{target} is not running, it is {state}{why}", code="not_running")
        return task, task.attempt_uid

    async def _missing(self, task: TaskId) -> RpcError:
        job_id = str(task.job)
        known = await self._readers.run(lambda c: states_of(c, [job_id]))
        if not known:
            return not_found(str(task), f"there is no job {job_id}")
        return not_found(str(task), f"job {job_id} has no task {task.index}")


def kickable(text: str, call: Call) -> kick.Target | str:
    """What a target names, or why this caller may not kick it: each is answered by itself."""
    try:
        target = parse_target(text)
        job = target if isinstance(target, JobId) else target.job if isinstance(target, TaskId) else target.task.job
        call.identity.require_owner(job.user, text)
    except ModelError as error:
        return f"{error.message}; {error.hint}" if error.hint else error.message
    except RpcError as refusal:
        return refusal.message
    return target
