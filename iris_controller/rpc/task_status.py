"""What a task says about itself, on its way to `iris.task_status`.

Who speaks is taken from the task's token and never from the request. A status is no state: it is acknowledged when it is queued, and
of what one attempt says within a second the last is kept, so a loop that reports every step costs nobody anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from iris_controller.loop import ControllerLoop
from iris_controller.rpc.call import Call
from iris_controller.rpc.dispatch import Router
from iris_controller.rpc.errors import invalid, precondition
from iris_controller.rpc.once import Once
from iris_core.model.namespaces import TASK_STATUS
from iris_core.model.states import ACTIVE
from iris_core.model.tables import Table
from iris_core.wire.gen.iris.v1 import task_status_pb2

EVERY_S = 1.0
MAX_SUMMARY_BYTES = 1 << 10
MAX_DETAIL_BYTES = 64 << 10

Row = Mapping[str, Any]


class TaskStatusService:
    """See the module. `write` takes a row and never waits; `said` is told the uid and summary of what is written."""

    def __init__(
        self,
        loop: ControllerLoop,
        once: Once,
        write: Callable[[Table, Row], None],
        said: Callable[[str, str], None],
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._once = once
        self._write = write
        self._said = said
        self._held: dict[str, Row | None] = {}
        """The last word of attempts that have spoken within a second; None = it is written already."""

    def register(self, router: Router) -> None:
        router.add("ControllerService/UpdateTaskStatus", self.update_task_status)

    async def update_task_status(
        self, request: task_status_pb2.UpdateTaskStatusRequest, call: Call
    ) -> task_status_pb2.UpdateTaskStatusResponse:
        for name, text, most in (
            ("summary_md", request.summary_md, MAX_SUMMARY_BYTES),
            ("detail_md", request.detail_md, MAX_DETAIL_BYTES),
        ):
            size = len(text.encode())
            if size > most:
                raise invalid(name, f"the {name} has {size:,} bytes, at most {most:,} are kept", hint="shorten it")
        claims = call.identity.task
        attempt = self._model.attempts.get(claims.attempt_uid) if claims is not None else None
        if attempt is None or attempt.state not in ACTIVE:
            subject = claims.job_id if claims is not None else call.identity.principal
            raise precondition(subject, "only a running attempt has a status", code="not_running")
        job = self._model.jobs.get(attempt.job_id)
        row = {
            "task_id": attempt.task_id,
            "attempt_id": attempt.number,
            "ts": self._loop.now_ms(),
            "status_text_summary_md": request.summary_md,
            "status_text_detail_md": request.detail_md,
            "attempt_uid": attempt.uid,
            "incarnation": job.submitted_at_ms if job is not None else None,
        }

        async def work() -> task_status_pb2.UpdateTaskStatusResponse:
            self._take(attempt.uid, row)
            return task_status_pb2.UpdateTaskStatusResponse()

        return await self._once.run_unstored(call, task_status_pb2.UpdateTaskStatusResponse, work)

    def _take(self, uid: str, row: Row) -> None:
        if uid in self._held:
            self._held[uid] = row
        else:
            self._write_now(uid, row)

    def _write_now(self, uid: str, row: Row) -> None:
        self._write(TASK_STATUS, row)
        self._said(uid, row["status_text_summary_md"])
        self._held[uid] = None
        asyncio.get_running_loop().call_later(EVERY_S, self._due, uid)

    def _due(self, uid: str) -> None:
        row = self._held.pop(uid)
        if row is not None:
            self._write_now(uid, row)

    def flush(self) -> None:
        """Writes what is held back: nothing more will come."""
        held, self._held = self._held, dict.fromkeys(self._held)
        for row in held.values():
            if row is not None:
                self._write(TASK_STATUS, row)
