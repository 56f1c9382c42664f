"""A checkpoint as if a controller served it: the third implementation of the client's protocol (`contracts.Client`).

The checkpoint is restored into a private temporary folder and brought to this release's schema there; the controller's own services
then answer from it, in this process, so that every command reads and prints as it does against a controller. Whatever would change
something, or asks for what only a running controller has, is refused with a reason. Must never write to where the checkpoint lies.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

from iris_controller.boot import open_state
from iris_controller.checkpoint import restore
from iris_controller.checkpoint.layout import BadCheckpoint
from iris_controller.finelog_process import FinelogProcess
from iris_controller.loop import ControllerLoop
from iris_controller.options import ServeOptions
from iris_controller.rpc.auth import Authenticator
from iris_controller.rpc.dispatch import Router, as_bytes
from iris_controller.rpc.errors import as_rpc_error
from iris_controller.rpc.roles import ACCESS
from iris_controller.services import Services
from iris_controller.state.overlay import Overlay
from iris_controller.store.database import StateDir
from iris_controller.ticker import SchedulerTicker
from iris_core.client.calls import failure
from iris_core.config.cluster import parse_config
from iris_core.contracts import IrisError, UsageFailed
from iris_core.wire.services import method

if TYPE_CHECKING:
    from types import TracebackType

    from google.protobuf.message import Message

R = TypeVar("R", bound="Message")

CONFIG: Final = "name: checkpoint\nplatform: {local: }\nworker_provider: {}\n"
PREFIX: Final = "iris-checkpoint-"
HERE: Final = {"iris-read-only": "1"}
PEER: Final = "127.0.0.1:1"
NOBODY: Final = frozenset(
    {"ControllerService/GetProcessStatus", "ControllerService/GetVmLogs", "ControllerService/ExecInContainer"}
)
"""What asks a process that is not there."""


class OfflineClient:
    """One checkpoint, opened. `url` is where it lies."""

    def __init__(self, place: str, note: Callable[[str], None] = lambda _: None) -> None:
        """Restores it. Raises UsageFailed, BadCheckpoint, IrisError; nothing is left behind then."""
        self.url = place
        self._closers: list[Callable[[], None]] = []
        _sweep()
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._closers.append(lambda: shutil.rmtree(self._folder, ignore_errors=True))
        try:
            candidate = restore.find(place)
            self.url = candidate.label
            self._open(candidate)
        except BadCheckpoint as bad:
            self.close()
            raise BadCheckpoint(f"checkpoint {self.url} cannot be used: {bad.message}", hint=bad.hint) from None
        except OSError as error:
            self.close()
            raise IrisError(
                f"the checkpoint cannot be unpacked in {self._folder}: {error.strerror or error}",
                hint="set TMPDIR to a folder with room",
            ) from error
        except BaseException:
            self.close()
            raise
        if candidate.epoch_ms:
            taken = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(candidate.epoch_ms / 1000))
            note(f"read from the checkpoint of {taken}; its workers are taken as healthy")

    def _open(self, candidate: restore.Candidate) -> None:
        state = StateDir(self._folder)
        state.acquire()
        self._closers.append(state.release)
        restore.stage(candidate, self._folder)
        restore.swap(self._folder, "db.empty")
        options = ServeOptions(config=parse_config(CONFIG), state_dir=self._folder, host="", dry_run=True)
        # What the controller's rooms log is of no concern here.
        quiet = logging.getLogger("iris")
        before = quiet.level
        quiet.setLevel(logging.ERROR)
        self._closers.append(lambda: quiet.setLevel(before))
        now_ms = time.time_ns() // 1_000_000
        opened = open_state(options, state, now_ms, self._closers)
        self._runner = asyncio.Runner()
        self._closers.append(self._runner.close)
        loop = ControllerLoop(opened.model, opened.writer, ticker := SchedulerTicker(opened.model))
        # The reasons of what waits are the scheduler's, who looks once; what it would place is forgotten.
        for job_id, reason in ticker.slice(Overlay(opened.model), now_ms).items():
            if job_id in opened.model.pending:
                opened.model.reasons[job_id] = reason
        authenticator = Authenticator(opened.keys, (), (), lambda _: False)
        self._router = Router(authenticator, lambda _: None)
        finelog = FinelogProcess(state.finelog)
        services = Services(options, opened, loop, finelog, "offline", now_ms, list, {}, lambda table, row: None)
        services.register(self._router)

    def call(self, method_name: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        """Raises UsageFailed: only a controller can do that; RpcFailed: the answer is an error."""
        self._check(method_name)
        return self._runner.run(self._call(method(method_name).path, request, response))

    async def _call(self, path: str, request: Message, response: type[R]) -> R:
        try:
            entry, call = self._router.admit(path, HERE, PEER)
            answer = await self._router.one(entry, call, request)
        except Exception as error:
            told = as_rpc_error(error, path)
            raise failure(told.status, told.message, told.detail()) from error
        return response.FromString(as_bytes(answer))

    def stream(self, method_name: str, request: Message, response: type[R]) -> Iterator[R]:
        self._check(method_name)
        raise UsageFailed("a checkpoint does not change: there is nothing to watch", hint="ask a running controller")

    @staticmethod
    def _check(method_name: str) -> None:
        if method_name.startswith("LogService/"):
            raise UsageFailed("a checkpoint holds no logs", hint="ask a running controller")
        if ACCESS[method_name].mutates:
            raise UsageFailed(f"a checkpoint cannot be changed, and {method_name} changes something")
        if method_name in NOBODY:
            raise UsageFailed("nothing runs in a checkpoint", hint="ask a running controller")

    def close(self) -> None:
        """Removes what was unpacked."""
        while self._closers:
            self._closers.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _sweep() -> None:
    """Removes what earlier ones left behind that were killed: theirs is the folder of ours whose lock nobody holds."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def open_checkpoint(place: str, note: Callable[[str], None]) -> OfflineClient:
    """The client of a checkpoint's path or URL. Raises IrisError."""
    return OfflineClient(place, note)
