"""The RPCs about profiles: take one now, list what is kept, get one; and the way in of those that workers take by themselves.

A task may have itself and its own job looked at, nobody else's. Whose a profile is, is never a worker's word: of one that was asked
for it is what was looked at, of one that a worker took by itself what the state knows of the attempt, which may have ended meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from typing import TYPE_CHECKING, Final

from iris_controller.profile_store import unpacked
from iris_controller.quiet import QuietLog
from iris_controller.rpc.call import unless_left
from iris_controller.rpc.errors import RpcError, invalid, not_found
from iris_controller.store.whose import Whose, whose
from iris_controller.worker.profiling import answering
from iris_controller.worker.profiling.options import limit_s, settled
from iris_controller.worker.profiling.periodic import Periodic
from iris_controller.worker.profiling.taking import Profiler
from iris_core.contracts import IrisError
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import profiles_pb2, worker_pb2
from iris_core.wire.profiles import FORMATS, TYPES

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from iris_controller.loop import ControllerLoop
    from iris_controller.profile_store import ProfileStore
    from iris_controller.rpc.attach import WorkerSessions
    from iris_controller.rpc.call import Call
    from iris_controller.rpc.dispatch import Router
    from iris_controller.rpc.once import Once
    from iris_controller.rpc.tasks import TaskService
    from iris_controller.store.reads import Readers
    from iris_controller.worker.profiling.taking import Taken, Target

log = logging.getLogger("iris.profiles")

CONTROLLER: Final = "/system/controller"
SYSTEM_WORKER: Final = "/system/worker/"
SELF: Final = "controller-self"
"""As the column `vm_id` has it."""
OWN: Final = frozenset({"", CONTROLLER, "/system/process"})
ANSWER_S: Final = 15.0
"""For the way there and back."""
_WAITING: Final = 64
"""So many captures wait to be kept; more are lost and counted."""


class ProfileService:
    """See the module."""

    def __init__(
        self,
        loop: ControllerLoop,
        readers: Readers,
        sessions: WorkerSessions,
        tasks: TaskService,
        once: Once,
        kept: ProfileStore,
        interval_s: float,
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._readers = readers
        self._sessions = sessions
        self._tasks = tasks
        self._once = once
        self._kept = kept
        self._profiler = Profiler()
        self._periodic = Periodic(self._profiler, self._own, self._keep_own, interval_s=interval_s)
        self._captures: asyncio.Queue[tuple[str, profiles_pb2.ProfileRecord, bytes]] = asyncio.Queue(_WAITING)
        """With the worker that sent it, "" = taken here."""
        self._quiet = QuietLog(log, 60.0)
        sessions.on_capture = self._captured

    def register(self, router: Router) -> None:
        router.add("ControllerService/ProfileTask", self.profile_task)
        router.add("ControllerService/ListProfiles", self.list_profiles)
        router.add("ControllerService/GetProfile", self.get_profile)

    # Now ----------------------------------------------------------------------------------------------------

    async def profile_task(
        self, request: profiles_pb2.ProfileTaskRequest, call: Call
    ) -> profiles_pb2.ProfileTaskResponse:
        if is_system(request.target) and not request.options.HasField("native"):
            # Reading the symbols of a large program holds it up for a second: not what runs everybody's tasks.
            request.options.native = request.options.type == profiles_pb2.PROFILE_TYPE_MEMORY
        try:
            options = settled(request.options)
        except ModelError as error:
            raise invalid(f"options.{error.field}", error.message, hint=error.hint) from None
        call.identity.require_scope(request.target)
        if options.locals and is_system(request.target):
            call.identity.require_owner("", f"what {request.target} has in memory")
        by = call.identity.principal
        asked = profiles_pb2.ProfileRequest(options=options, requested_by=by)
        owner = None if request.target in OWN else self._owner(request.target, asked, call)
        call.audit(entity=request.target or CONTROLLER)

        async def take() -> profiles_pb2.ProfileTaskResponse:
            await call.recheck(self._loop)
            if owner is not None:
                work = self._remote(owner, asked, options)
            else:
                work = answering.answer(self._profiler, answering.itself(CONTROLLER, SELF), options, by)
            part = await unless_left(work, call)
            if part is None:
                raise RpcError("CANCELLED", "the caller left; the profiler was ended", code="caller_left")
            return await self._answer(request.target or CONTROLLER, part)

        return await self._once.run_unstored(call, profiles_pb2.ProfileTaskResponse, take)

    def _owner(self, target: str, asked: profiles_pb2.ProfileRequest, call: Call) -> Whose:
        """Whose the profile will be, now that it is known: its attempt may end while it is taken. Raises RpcError."""
        if target.startswith(SYSTEM_WORKER):
            worker_id = target.removeprefix(SYSTEM_WORKER)
            if worker_id not in self._model.workers:
                raise not_found(target, f"there is no worker {worker_id}", hint="see: iris rpc controller list-workers")
            return Whose(target, 0, worker_id, 0)
        task, asked.attempt_uid = self._tasks.running(target, call)
        incarnation = self._model.jobs[task.job_id].submitted_at_ms
        return Whose(task.task_id, task.attempt_number, task.worker_id, incarnation)

    async def _remote(
        self, owner: Whose, asked: profiles_pb2.ProfileRequest, options: profiles_pb2.ProfileOptions
    ) -> profiles_pb2.ProfilePart:
        question = worker_pb2.WorkerRequest(profile=asked)
        reply = await self._sessions.request(owner.worker_id, question, limit_s(options) + ANSWER_S)
        if reply.error:
            return profiles_pb2.ProfilePart(error=reply.error, code="not_running")
        if not reply.HasField("profile"):
            return profiles_pb2.ProfilePart(error=f"worker {owner.worker_id} cannot take profiles", code="old_worker")
        if not reply.profile.error:
            _belongs(reply.profile.record, owner, asked.attempt_uid)
        return reply.profile

    async def _answer(self, target: str, part: profiles_pb2.ProfilePart) -> profiles_pb2.ProfileTaskResponse:
        if part.error:
            raise RpcError("FAILED_PRECONDITION", part.error, code=part.code, subject=target, hint=part.hint)
        data = await asyncio.to_thread(_unpacked, target, part.data)
        notes = list(part.notes)
        record = part.record
        if record.locals:
            notes.append("the dump is not kept: its local variables may hold secrets")
        else:
            try:
                record = await self._kept.keep(record, part.data)
            except (IrisError, RpcError) as error:
                notes.append(f"the profile is not kept: {error}")
        return profiles_pb2.ProfileTaskResponse(profile_data=data, record=record, notes=notes)

    # Kept ---------------------------------------------------------------------------------------------------

    async def list_profiles(
        self, request: profiles_pb2.ListProfilesRequest, call: Call
    ) -> profiles_pb2.ListProfilesResponse:
        if request.page_size < 0:
            raise invalid("page_size", f"page_size {request.page_size} is negative")
        if call.identity.task is not None:
            call.identity.require_scope(request.source or request.prefix)
        return await self._kept.list(request)

    async def get_profile(self, request: profiles_pb2.GetProfileRequest, call: Call) -> profiles_pb2.GetProfileResponse:
        if request.type and request.format and call.identity.task is None:
            record = self._kept.named(request.profile_id, request.type, request.format)
        else:
            record = await self._kept.find(request.profile_id)
            call.identity.require_scope(record.source)
        return profiles_pb2.GetProfileResponse(record=record, profile_data=await self._kept.load(record))

    # By themselves ------------------------------------------------------------------------------------------

    def _own(self) -> list[Target]:
        return [answering.itself(CONTROLLER, SELF)]

    def _keep_own(self, taken: Taken) -> None:
        self._queue("", taken.record, taken.data)

    def _captured(self, worker_id: str, capture: worker_pb2.ProfileCapture) -> None:
        self._queue(worker_id, capture.record, capture.data)

    def _queue(self, worker_id: str, record: profiles_pb2.ProfileRecord, data: bytes) -> None:
        try:
            self._captures.put_nowait((worker_id, record, data))
        except asyncio.QueueFull:
            self._quiet.warning("a periodic profile of %s is lost: the store does not keep up", record.source)

    def background(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What runs for ever, each with its name."""
        yield "periodic profiles", self._periodic.run()
        yield "keep profiles", self._keep()
        yield "old profiles", self._kept.run()

    async def _keep(self) -> None:
        while True:
            worker_id, record, data = await self._captures.get()
            try:
                if not worker_id or await self._claimed(worker_id, record):
                    await self._kept.keep(record, data)
            except (IrisError, RpcError, sqlite3.Error) as error:
                self._quiet.warning("a periodic profile of %s is not kept: %s", record.source, error)

    async def _claimed(self, worker_id: str, record: profiles_pb2.ProfileRecord) -> bool:
        """Fills in whose it is; False when that attempt is not this worker's, or its job is not kept any more."""
        uid = record.attempt_uid
        owner = self._placed(uid) or await self._readers.run(lambda c: whose(c, uid))
        if owner is None or owner.worker_id != worker_id:
            log.debug("worker %s sent a profile of an attempt that is not its own, or not kept any more", worker_id)
            return False
        if record.type not in TYPES or record.format not in FORMATS:
            log.debug("worker %s sent a profile of a kind that is not known here", worker_id)
            return False
        record.trigger = profiles_pb2.PROFILE_TRIGGER_PERIODIC
        _belongs(record, owner, uid)
        return True

    def _placed(self, uid: str) -> Whose | None:
        """Whose an attempt is that has not ended."""
        attempt = self._model.attempts.get(uid)
        job = self._model.jobs.get(attempt.job_id) if attempt is not None else None
        if attempt is None or job is None:
            return None
        return Whose(attempt.task_id, attempt.number, attempt.worker_id, job.submitted_at_ms)


def _belongs(record: profiles_pb2.ProfileRecord, owner: Whose, attempt_uid: str) -> None:
    record.source, record.vm_id, record.attempt_uid = owner.task_id, owner.worker_id, attempt_uid
    record.incarnation = owner.incarnation
    if attempt_uid:
        record.attempt_id = owner.number
    else:
        record.ClearField("attempt_id")


def is_system(target: str) -> bool:
    """Whether it is a process of Iris itself."""
    return not target or target.startswith("/system/")


def _unpacked(target: str, packed: bytes) -> bytes:
    try:
        return unpacked(packed)
    except Exception as error:  # whatever a worker sent
        raise RpcError("INTERNAL", f"the profile of {target} arrived damaged: {error}", code="damaged") from None
