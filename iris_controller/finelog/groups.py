"""Taking things in: pushes queue up, one thread stores whatever waits with one sync, and each is answered after that sync.

The more there is to do, the more a sync covers, so a slow disk costs delay and not throughput. What waits is bounded in bytes; beyond
that a push is refused at once with the time after which to try again. A disk that is full or broken refuses the pushes of that group
whole, and is tried again with the next one: nothing has to be restarted when there is space again.

Must never answer a push before what it brought is durable, and never let the writing thread end.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from iris_controller.quiet import QuietLog
from iris_controller.rpc.errors import RpcError, as_rpc_error, exhausted, unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

log = logging.getLogger("iris.finelog")

MAX_WAITING_BYTES = 64 << 20
GROUP_BYTES = 16 << 20
"""What one sync covers at most."""
INLINE_BYTES = 64 << 10
"""A push below it is decoded on the loop, in well under a millisecond; a larger one in a thread."""
RETRY_BUSY_MS = 200
RETRY_DISK_MS = 1000
SAY_SECONDS = 10.0

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Committer(Protocol[T_contra]):
    """Where groups are stored."""

    @property
    def folder(self) -> Path:
        """Named where the disk fails."""

    def commit(self, batches: Iterable[T_contra], now_ms: int) -> set[str]:
        """Stores them durably, all or nothing; returns the keys that got something. Raises OSError."""


@dataclass(slots=True)
class _Push(Generic[T]):
    batches: list[T]
    size: int
    done: asyncio.Future[None]
    error: RpcError | None = None


def disk_error(fault: OSError, hint: str) -> RpcError:
    """What a caller is told when the disk refused something; `hint` is for one that is full."""
    what = fault.strerror or str(fault)
    if fault.errno in _FULL:
        return exhausted(
            f"the log store's disk is full ({what})", code="disk_full", hint=hint, retry_after_ms=RETRY_DISK_MS
        )
    return unavailable(f"the log store's disk fails ({what})", code="disk_error", retry_after_ms=RETRY_DISK_MS)


class Groups(Generic[T]):
    """Belongs to one event loop.

    `parse(raw, now_ms)` checks a push, on the loop or in a thread; `what` names the RPC and `rows` what it brings, in errors.
    `on_stored` is called on the loop with the keys of each group that was stored.
    """

    def __init__(
        self,
        store: Committer[T],
        parse: Callable[[bytes, int], list[T]],
        on_stored: Callable[[set[str]], None],
        *,
        what: str,
        rows: str,
    ) -> None:
        self._store = store
        self._parse = parse
        self._what = what
        self._rows = rows
        self._on_stored = on_stored
        self._loop = asyncio.get_running_loop()
        self._waiting_bytes = 0
        self._queue: deque[_Push[T]] = deque()
        self._wake = threading.Condition()
        self._is_closed = False
        self._disk_fault = ""
        # On a disk that is almost full large pushes fail and small ones do not.
        self._faults, self._recoveries = QuietLog(log, SAY_SECONDS), QuietLog(log, SAY_SECONDS)
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="finelog-decode")
        self._writer = threading.Thread(target=self._write_groups, name="finelog-writer")
        self._writer.start()

    @property
    def fault(self) -> str:
        """Why pushes are refused, "" = they are not."""
        return self._disk_fault

    async def store(self, raw: bytes) -> list[T]:
        """Stores a serialised push and gives what was in it. Raises RpcError: nothing of it was stored, or it is not known to be."""
        if self._is_closed:
            raise unavailable("the log store is stopping", code="stopping", retry_after_ms=RETRY_DISK_MS)
        if self._waiting_bytes + len(raw) > MAX_WAITING_BYTES:
            raise exhausted(
                f"{self._waiting_bytes >> 20} MiB of pushed {self._rows} wait for the disk",
                code="busy",
                retry_after_ms=RETRY_BUSY_MS,
            )
        decoded = await self._decode(raw)
        if decoded:
            push = _Push(decoded, len(raw), self._loop.create_future())
            self._waiting_bytes += push.size
            with self._wake:
                self._queue.append(push)
                self._wake.notify()
            await push.done
            if push.error is not None:
                raise push.error
        return decoded

    async def _decode(self, raw: bytes) -> list[T]:
        now_ms = time.time_ns() // 1_000_000
        if len(raw) < INLINE_BYTES:
            return self._parse(raw, now_ms)
        self._waiting_bytes += len(raw)
        try:
            return await self._loop.run_in_executor(self._decoder, self._parse, raw, now_ms)
        finally:
            self._waiting_bytes -= len(raw)

    async def close(self) -> None:
        """Refuses what comes, stores what waits, and ends the threads."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        await asyncio.to_thread(self._writer.join)
        self._decoder.shutdown()

    # On the writing thread ------------------------------------------------------------------------------------------

    def _write_groups(self) -> None:
        while group := self._take_group():
            keys: set[str] = set()
            error: RpcError | None = None
            try:
                now_ms = time.time_ns() // 1_000_000
                keys = self._store.commit([batch for push in group for batch in push.batches], now_ms)
                self._disk_works()
            except OSError as fault:
                error = self._disk_fails(fault)
            except Exception as fault:
                error = as_rpc_error(fault, self._what)
            for push in group:
                push.error = error
            try:
                self._loop.call_soon_threadsafe(self._answer, group, keys)
            except RuntimeError:
                # The loop was closed without waiting for us.
                return

    def _take_group(self) -> list[_Push[T]]:
        """All that waits, up to what one sync may cover; empty at the end."""
        with self._wake:
            while not self._queue and not self._is_closed:
                self._wake.wait()
            group: list[_Push[T]] = []
            size = 0
            while self._queue and (not group or size + self._queue[0].size <= GROUP_BYTES):
                push = self._queue.popleft()
                group.append(push)
                size += push.size
            return group

    def _disk_fails(self, fault: OSError) -> RpcError:
        what = fault.strerror or str(fault)
        self._disk_fault = what
        self._faults.warning(
            "cannot store %s in %s: %s; pushes are refused until it can", self._rows, self._store.folder, what
        )
        return disk_error(fault, f"free space under {self._store.folder}; {self._rows} wait with their producers")

    def _disk_works(self) -> None:
        if self._disk_fault:
            self._recoveries.warning(
                "storing %s in %s works again after: %s", self._rows, self._store.folder, self._disk_fault
            )
            self._disk_fault = ""

    # On the loop --------------------------------------------------------------------------------------------------------

    def _answer(self, group: list[_Push[T]], keys: set[str]) -> None:
        for push in group:
            self._waiting_bytes -= push.size
            if not push.done.done():
                push.done.set_result(None)
        if keys:
            self._on_stored(keys)
