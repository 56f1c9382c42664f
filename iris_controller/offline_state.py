"""A checkpoint's database, answering: the controller's own services over a model that never changes.

Every reading RPC and Watch are answered as a controller would have at that moment: `now` is when the checkpoint was taken, workers are
taken as healthy, and the scheduler has looked once. Whatever would change something, or asks for what only a running controller has, is
refused with a reason. Opens the database only to read. Must never write, start a process but for a query, or reach the network.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Final

from iris_controller.boot import Stored
from iris_controller.checkpoint.layout import BadCheckpoint
from iris_controller.dry_run import CHECKPOINT, take_workers_as_healthy
from iris_controller.finelog_process import FinelogProcess
from iris_controller.loop import ControllerLoop
from iris_controller.options import ServeOptions
from iris_controller.rpc.answered import AnsweredIds
from iris_controller.rpc.auth import Authenticator
from iris_controller.rpc.dispatch import Router, as_bytes
from iris_controller.rpc.errors import as_rpc_error
from iris_controller.rpc.roles import ACCESS
from iris_controller.scheduling.cycle import UNCAPPED
from iris_controller.scheduling.plan import Planner
from iris_controller.services import Services
from iris_controller.store.database import open_reader
from iris_controller.store.load import load_model
from iris_controller.store.reads import Readers
from iris_controller.store.seal import Seal
from iris_controller.store.waits import requeued
from iris_controller.store.writer import CommitFailed, Statement
from iris_controller.ticker import SchedulerTicker
from iris_core.auth.keys import new_key
from iris_core.auth.tokens import KeySet, TokenSigner
from iris_core.client.calls import failure
from iris_core.config.cluster import ClusterConfig
from iris_core.contracts import RpcFailed, UsageFailed
from iris_core.wire.services import method

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from iris_controller.checkpoint.opening import Unpacked
    from iris_controller.state.model import Model

CONFIG: Final = ClusterConfig(name="checkpoint", source="checkpoint")
HERE: Final = {"iris-read-only": "1"}
PEER: Final = "127.0.0.1:1"
LOOK_S: Final = 1.0
ABSENT: Final = {
    "LogService/": "a checkpoint holds no logs",
    "StatsService/": "a checkpoint holds no measurements",
    "ControllerService/ListProfiles": "a checkpoint holds no profiles",
    "ControllerService/GetProfile": "a checkpoint holds no profiles",
    "ControllerService/GetProcessStatus": "nothing runs in a checkpoint",
    "ControllerService/GetPipelineHealth": "nothing runs in a checkpoint",
    "ControllerService/GetVmLogs": "nothing runs in a checkpoint",
    "ControllerService/ExecInContainer": "nothing runs in a checkpoint",
}
"""What asks a process that is not there, or a store that is in no checkpoint, by the beginning of its name."""


class OfflineState:
    """One unpacked checkpoint. `moment_ms` is what time it is in it."""

    def __init__(self, opened: Unpacked) -> None:
        """Loads what a controller holds in memory. Raises BadCheckpoint."""
        database = opened.database
        try:
            with closing(open_reader(database)) as connection:
                model, waits = load_model(connection, to_write=False), requeued(connection)
        except Exception as error:  # what is in it may be anything
            raise BadCheckpoint(
                f"checkpoint {opened.label} cannot be read: {type(error).__name__}: {error}"[:300]
            ) from error
        # What the controller's rooms log is of no concern here.
        self._log = logging.getLogger("iris")
        self._log_level = self._log.level
        self._log.setLevel(logging.ERROR)
        self.moment_ms = opened.epoch_ms or _newest(model)
        take_workers_as_healthy(model, CHECKPOINT)
        key = new_key()
        self._readers = Readers(database)
        stored = Stored(
            model=model,
            readers=self._readers,
            seal=Seal(os.urandom(32)),
            keys=KeySet(key.public),
            signer=TokenSigner(key),
            database=database,
            answered=AnsweredIds(),
        )
        _look_once(model)
        loop = ControllerLoop(model, _Nobody(), SchedulerTicker(model), wall_ms=lambda: self.moment_ms)
        self._router = Router(Authenticator(stored.keys, (), (), lambda _: False))
        folder = database.parent
        options = ServeOptions(config=CONFIG, state_dir=folder, host="", dry_run=True)
        finelog = FinelogProcess(folder)
        Services(
            options,
            stored,
            loop,
            finelog,
            "offline",
            self.moment_ms,
            list,
            {},
            lambda table, row: None,
            requeued=waits,
            unasked=CHECKPOINT,
        ).register(self._router)

    async def call(self, method_name: str, request: bytes) -> bytes:
        """Messages as they travel. Raises UsageFailed: only a controller can do that; RpcFailed: the answer is an error."""
        self.check(method_name)
        path = method(method_name).path
        try:
            entry, call = self._router.admit(path, HERE, PEER)
            return as_bytes(await self._router.one(entry, call, entry.decoded(request)))
        except Exception as error:
            raise _told(error, path) from error

    async def stream(self, method_name: str, request: bytes) -> AsyncGenerator[bytes, None]:
        """The answers of a streaming RPC, Watch among them: what there is, then heartbeats. Raises as `call`."""
        self.check(method_name)
        path = method(method_name).path
        try:
            entry, call = self._router.admit(path, HERE, PEER)
            async with aclosing(self._router.many(entry, call, entry.decoded(request))) as answers:
                async for answer in answers:
                    yield as_bytes(answer)
        except Exception as error:
            raise _told(error, path) from error

    @staticmethod
    def check(method_name: str) -> None:
        """Raises UsageFailed if no checkpoint can answer this."""
        for beginning, why in ABSENT.items():
            if method_name.startswith(beginning):
                raise UsageFailed(why, hint="ask a running controller")
        if ACCESS[method_name].mutates:
            raise UsageFailed(f"a checkpoint cannot be changed, and {method_name} changes something")

    def close(self) -> None:
        """Ends the threads that read."""
        self._readers.close()
        self._log.setLevel(self._log_level)


def _told(error: Exception, path: str) -> RpcFailed:
    told = as_rpc_error(error, path)
    return failure(told.status, told.message, told.detail())


def _look_once(model: Model) -> None:
    """Why what waits does wait: the scheduler goes through all of it, for a second at most; what it would place is forgotten."""
    until = time.perf_counter() + LOOK_S
    plan = Planner(UNCAPPED).plan(model, sys.maxsize, lambda: time.perf_counter() < until)
    model.reasons.update((job_id, reason) for job_id, reason in plan.reasons.items() if job_id in model.pending)


def _newest(model: Model) -> int:
    """The last moment that the model knows of; now, if it knows none."""
    moments = [job.finished_at_ms or job.started_at_ms or job.submitted_at_ms for job in model.jobs.values()]
    moments += [attempt.started_at_ms or attempt.created_at_ms for attempt in model.attempts.values()]
    return max(moments, default=0) or time.time_ns() // 1_000_000


class _Nobody:
    """In the place of the writer: no command ever comes here."""

    async def commit(self, statements: Sequence[Statement]) -> None:
        raise CommitFailed("a checkpoint cannot be changed")
