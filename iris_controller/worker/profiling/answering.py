"""What a worker and a controller answer to a request for a profile: which target is meant, and the parts that go up the stream.

Nothing here fails: a profile that cannot be had is an answer, too.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from iris_controller.worker.profiling.failures import CannotProfile
from iris_controller.worker.profiling.taking import Target
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import profiles_pb2, worker_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from iris_controller.worker.attempt import Attempt
    from iris_controller.worker.profiling.taking import Profiler

PART_BYTES: Final = 2**20
"""Of a piece: others have their turn on the stream after each."""


def itself(source: str, vm_id: str) -> Target:
    """This process, without its children."""

    async def pids() -> Iterable[int]:
        return (os.getpid(),)

    return Target(f"process {os.getpid()}", source, source, vm_id, pids, children=False)


def of_attempt(attempt: Attempt, worker_id: str) -> Target:
    """Every process of an attempt."""
    task_id, _, number = attempt.key.rpartition(":")
    return Target(
        attempt.uid, task_id, attempt.key, worker_id, attempt.processes.pids,
        attempt_uid=attempt.uid, attempt_id=int(number),
    )  # fmt: skip


async def answer(
    profiler: Profiler, target: Target, options: profiles_pb2.ProfileOptions, by: str
) -> profiles_pb2.ProfilePart:
    """One part with everything in it."""
    try:
        taken = await profiler.take(target, options, by, periodic=False)
    except CannotProfile as error:
        return profiles_pb2.ProfilePart(last=True, error=error.message, hint=error.hint, code=error.code)
    except ModelError as error:
        return profiles_pb2.ProfilePart(last=True, error=error.message, hint=error.hint, code="bad_options")
    return profiles_pb2.ProfilePart(data=taken.data, last=True, record=taken.record, notes=taken.notes)


def pieces(reply: worker_pb2.WorkerReply) -> Iterator[worker_pb2.WorkerReply]:
    """The reply itself, or a large profile in the parts in which it travels."""
    if reply.WhichOneof("reply") != "profile" or len(reply.profile.data) <= PART_BYTES:
        yield reply
        return
    data = reply.profile.data
    for at in range(0, len(data), PART_BYTES):
        piece = worker_pb2.WorkerReply(request_id=reply.request_id)
        if at + PART_BYTES >= len(data):
            piece.profile.CopyFrom(reply.profile)
        piece.profile.data = data[at : at + PART_BYTES]
        yield piece
