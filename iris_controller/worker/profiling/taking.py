"""Takes profiles, one per target at a time, and gives back what is to be kept: the bytes, small, and the row about them.

The periodic loop steps aside for whoever asks; of two who ask the second is told who the first is. A profiler that was killed may
leave its target stopped: what was not stopped before is let go on, and nothing else.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_controller.worker.profiling import cpu, memory, options, targets, threads
from iris_controller.worker.profiling.failures import CannotProfile, too_late
from iris_controller.worker.profiling.running import TooLarge
from iris_core.wire.gen.iris.v1 import profiles_pb2
from iris_core.wire.profiles import TYPES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

_log = logging.getLogger("iris.profiles")

LIMIT_BYTES: Final = 48 * 2**20
"""Of one profile, as the tool wrote it: what an answer carries has to stay below the largest message."""
PERIODIC: Final = "the periodic loop"


@dataclass(frozen=True, slots=True)
class Target:
    """What is profiled. `key` tells it from others on this host; `pids` is asked again for each profile."""

    key: str
    source: str
    """The id under which it is kept: of a task without its attempt."""
    name: str
    """How messages call it."""
    vm_id: str
    pids: Callable[[], Awaitable[Iterable[int]]]
    children: bool = True
    attempt_uid: str = ""
    attempt_id: int | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """One profile. `data` is gzip; the record has no id yet."""

    record: profiles_pb2.ProfileRecord
    data: bytes
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Holder:
    by: str
    what: str
    began: float
    task: asyncio.Task[object]
    gone: asyncio.Event


class Profiler:
    """See the module."""

    def __init__(self) -> None:
        self._holders: dict[str, _Holder] = {}

    async def take(self, target: Target, asked: profiles_pb2.ProfileOptions, by: str, *, periodic: bool) -> Taken:
        """A profile of `target`. Raises CannotProfile, ModelError. `by` is told to whoever asks meanwhile."""
        wanted = options.settled(asked)
        task = asyncio.current_task()
        assert task is not None
        while (holder := self._holders.get(target.key)) is not None:
            if periodic or holder.by != PERIODIC:
                raise _held(target, holder)
            holder.task.cancel()
            await holder.gone.wait()
        ours = _Holder(by, TYPES[wanted.type], time.monotonic(), task, asyncio.Event())
        self._holders[target.key] = ours
        try:
            return await self._take(target, wanted, periodic)
        finally:
            del self._holders[target.key]
            ours.gone.set()

    async def _take(self, target: Target, wanted: profiles_pb2.ProfileOptions, periodic: bool) -> Taken:
        began_ms = time.time_ns() // 1_000_000
        pids = await target.pids()
        found = await asyncio.to_thread(targets.find, target.name, pids, wanted.pid, children=target.children)
        notes: list[str] = []
        done = False
        try:
            async with asyncio.timeout(options.limit_s(wanted)):
                data = await _profile(found, wanted, notes)
            done = True
        except TimeoutError:
            raise too_late("the profiler", target.name, options.limit_s(wanted)) from None
        finally:
            if not done and (freed := targets.release(found.every)):
                _log.warning("processes %s were left stopped by a profiler: they go on", freed)
        if len(data) > LIMIT_BYTES:
            raise TooLarge(target.name, len(data), LIMIT_BYTES)
        record = profiles_pb2.ProfileRecord(
            source=target.source,
            attempt_id=target.attempt_id,
            attempt_uid=target.attempt_uid,
            vm_id=target.vm_id,
            captured_at_ms=began_ms,
            duration_seconds=wanted.duration_seconds,
            type=wanted.type,
            format=wanted.format,
            trigger=profiles_pb2.PROFILE_TRIGGER_PERIODIC if periodic else profiles_pb2.PROFILE_TRIGGER_ON_DEMAND,
            size_bytes=len(data),
            rate_hz=wanted.rate_hz,
            native=wanted.native,
            leaks=wanted.leaks,
            locals=wanted.locals,
        )
        packed = await asyncio.to_thread(gzip.compress, data, 6, mtime=0)
        return Taken(record, packed, tuple(notes))


async def _profile(found: targets.Found, wanted: profiles_pb2.ProfileOptions, notes: list[str]) -> bytes:
    match wanted.type:
        case profiles_pb2.PROFILE_TYPE_THREADS:
            return await threads.take(found, wanted, notes)
        case profiles_pb2.PROFILE_TYPE_CPU:
            return await cpu.take(found, wanted, notes, LIMIT_BYTES)
    return await memory.take(found, wanted, notes, LIMIT_BYTES)


def _held(target: Target, holder: _Holder) -> CannotProfile:
    ago = time.monotonic() - holder.began
    return CannotProfile(
        f"{target.name} is being profiled already ({holder.what}, by {holder.by}, for {ago:.0f} s)",
        hint="wait until that one is done",
        code="profile_running",
    )
