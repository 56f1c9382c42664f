"""LaunchJob: from a request to a job in the queue, in the order of control-plane §1.8.

What needs no state is settled first (`launch`), blobs are stored before anything names them, and the rest happens in the one
batch that brings the job in. A submission that has to wait for the attempts of the job it replaces waits here, between
batches. Must never bring a job in before its bundle and files are stored.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from iris_controller.rpc.budgets import require_band
from iris_controller.rpc.errors import RpcError, precondition
from iris_controller.rpc.launch import check_freshness, inherited, job_of, spec_of, take_blobs
from iris_controller.rpc.once import Once, remember
from iris_controller.state import submit
from iris_controller.state.overlay import Overlay
from iris_core.model.ids import JobId
from iris_core.wire.gen.iris.v1 import controller_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_controller.loop import ControllerLoop
    from iris_controller.rpc.bundles import Bundles
    from iris_controller.rpc.call import Call
    from iris_controller.rpc.dispatch import Router
    from iris_controller.rpc.feasibility import Feasibility
    from iris_controller.rpc.known_attributes import KnownAttributes
    from iris_controller.rpc.reruns import Reruns
    from iris_controller.state.records import Job
    from iris_controller.store.seal import Seal

REPLACE_WAIT_S = 120.0
WAIT_KEPT_S = 60.0
"""A wait that nobody kept up for so long begins anew."""
WAITS = 10_000


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a submission would come to: the outcome, the job as it would be in the queue, and what would be warned of."""

    outcome: submit.Admission
    job: Job
    warnings: list[str]


class SubmitService:
    """See the module. `build_date` is that of this controller's code, "" = unknown."""

    def __init__(
        self,
        loop: ControllerLoop,
        seal: Seal,
        bundles: Bundles,
        once: Once,
        reruns: Reruns,
        known: KnownAttributes,
        feasibility: Feasibility,
        max_active_tasks: int = submit.MAX_ACTIVE_TASKS,
        build_date: str = "",
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._seal = seal
        self._bundles = bundles
        self._once = once
        self._reruns = reruns
        self._known = known
        self._feasibility = feasibility
        self._max_active_tasks = max_active_tasks
        self._build_date = build_date
        self._waits: dict[str, tuple[float, float]] = {}
        """Since when, and when last (monotonic), a submission waited for the attempts of the job it replaces."""

    def register(self, router: Router) -> None:
        """Makes the router answer LaunchJob."""
        router.add("ControllerService/LaunchJob", self.launch_job)

    async def launch_job(
        self, request: controller_pb2.LaunchJobRequest, call: Call
    ) -> controller_pb2.LaunchJobResponse:
        async def first() -> controller_pb2.LaunchJobResponse:
            # Not before it is known to be the first: a repeat may find its original replaced, by itself.
            return await (await self._prepared(await self._reruns.expand(request, call), call))()

        work = first if request.HasField("rerun") else await self._prepared(request, call)
        return await self._once.run(call, controller_pb2.LaunchJobResponse, work)

    async def _prepared(
        self, request: controller_pb2.LaunchJobRequest, call: Call
    ) -> Callable[[], Awaitable[controller_pb2.LaunchJobResponse]]:
        """Checks all that needs no state and stores what has to be stored; returns what brings the job in. Raises RpcError."""
        new, files, blobs = self._checked(request, call)
        spec = new.spec
        await self._store(request, spec.bundle_id, blobs)
        call.audit(entity=new.job_id, tasks=new.num_tasks, bundle=spec.bundle_id[:12])
        if request.system_reason:
            call.audit(system_reason=request.system_reason)
        warnings = self._doubts(new)

        async def work() -> controller_pb2.LaunchJobResponse:
            while True:
                force = self._waited_out(new.job_id)
                plan = partial(self._plan, new=new, files=files, call=call, force=force, warnings=warnings)
                outcome = await self._loop.submit("launch job", call.guarded(plan))
                if not isinstance(outcome, submit.MustWait):
                    self._waits.pop(new.job_id, None)
                    return _answer(outcome, warnings)
                while not self._waited_out(new.job_id, waiting=True) and self._holds_attempts(new.job_id):
                    if call.cancelled.is_set():
                        # Nobody hears the answer; a repeat that joined meanwhile takes over.
                        raise asyncio.CancelledError
                    await self._loop.next_commit(1.0)

        return work

    def rehearse(self, request: controller_pb2.LaunchJobRequest, call: Call) -> Rehearsal:
        """What launch_job would bring in now: refused as it would refuse, with nothing stored, waited for or changed.

        Bundle and blobs need not be stored. Raises RpcError, ModelError.
        """
        new, _, _ = self._checked(request, call)
        overlay = Overlay(self._model)
        outcome = self._admit(overlay, self._loop.now_ms(), new, call, force=False)
        job = overlay.job(new.job_id)
        if isinstance(outcome, submit.MustWait):
            # The name is still held; what would come then is what would come under a name that is free.
            overlay = Overlay(self._model)
            self._admit(overlay, self._loop.now_ms(), new, call, force=True)
            job = overlay.job(new.job_id)
        assert job is not None
        return Rehearsal(outcome, job, self._doubts(new))

    def _doubts(self, new: submit.NewJob) -> list[str]:
        spec = new.spec
        return self._known.doubts(spec.constraints, spec.group_by) or self._feasibility.doubts(spec, new.num_tasks)

    def _checked(
        self, request: controller_pb2.LaunchJobRequest, call: Call
    ) -> tuple[submit.NewJob, dict[str, bytes], dict[str, bytes]]:
        """The submission as far as it needs no state, its small files, and the large ones by id. Raises RpcError, ModelError."""
        job = job_of(request, call.identity)
        check_freshness(request, job, self._build_date)
        blobs = take_blobs(request)
        spec, files = spec_of(request, job, call.identity, self._seal)
        new = submit.NewJob(
            job_id=str(job),
            submitting_user=call.identity.user_id,
            num_tasks=request.replicas if request.replicas else 1,
            spec=spec,
            existing_policy=int(request.existing_job_policy),
        )
        return new, files, blobs

    async def _store(self, request: controller_pb2.LaunchJobRequest, bundle_id: str, blobs: dict[str, bytes]) -> None:
        """Stores the large files, and sees to it that the bundle and the others are stored. Raises RpcError."""
        for blob_id, data in blobs.items():
            await self._bundles.keep(blob_id, data)
        if bundle_id and not await self._bundles.stored(bundle_id):
            raise _missing(bundle_id, f"bundle {bundle_id}")
        for name, blob_id in request.entrypoint.workdir_file_refs.items():
            if blob_id not in blobs and not await self._bundles.stored(blob_id):
                raise _missing(blob_id, f"the content of {name[:80]!r}, {blob_id},")

    def _waited_out(self, job_id: str, waiting: bool = False) -> bool:
        """Whether the attempts of the job to be replaced have been waited for long enough, however many calls that took.

        `waiting` begins the wait, or goes on with one that somebody kept up until lately.
        """
        now = time.monotonic()
        since, last = self._waits.get(job_id, (now, now))
        if now - last > WAIT_KEPT_S:
            since = now
        if waiting:
            self._waits[job_id] = (since, now)
            if len(self._waits) > WAITS:
                self._waits = {job: wait for job, wait in self._waits.items() if now - wait[1] <= WAIT_KEPT_S}
        return now - since >= REPLACE_WAIT_S

    def _holds_attempts(self, job_id: str) -> bool:
        return any(job in self._model.held for job in self._model.subtree(job_id))

    def _plan(
        self,
        o: Overlay,
        now_ms: int,
        new: submit.NewJob,
        files: dict[str, bytes],
        call: Call,
        force: bool,
        warnings: list[str],
    ) -> submit.Admission:
        outcome = self._admit(o, now_ms, new, call, force)
        if isinstance(outcome, submit.MustWait):
            return outcome
        if isinstance(outcome, submit.Admitted) and files:
            o.files[outcome.job_id] = files
        remember(o, call, _answer(outcome, warnings))
        return outcome

    def _admit(self, o: Overlay, now_ms: int, new: submit.NewJob, call: Call, force: bool) -> submit.Admission:
        """The rules that need the state, in the order of control-plane §1.8. Raises RpcError."""
        require_band(o, new.job_id, new.spec.band, call.identity)
        above = JobId(new.job_id).parent
        parent = o.job(above.text) if above is not None else None
        if parent is not None:
            new = replace(new, spec=inherited(new.spec, parent.spec))
        try:
            return submit.admit(o, new, now_ms, force=force, max_active_tasks=self._max_active_tasks)
        except submit.Refused as no:
            raise RpcError(no.status_name, no.message, code=no.code, subject=no.subject, hint=no.hint) from None


def _answer(outcome: submit.Admitted | submit.KeptExisting, warnings: list[str]) -> controller_pb2.LaunchJobResponse:
    return controller_pb2.LaunchJobResponse(
        job_id=outcome.job_id,
        incarnation=outcome.incarnation,
        warnings=warnings,
        existing=isinstance(outcome, submit.KeptExisting),
    )


def _missing(blob_id: str, what: str) -> RpcError:
    return precondition(blob_id, f"{what} is not stored here", code="bundle_missing", hint="send it again")
