"""Running a command line in this process against a scripted controller: what went out on both streams, and the exit
code.
"""

from __future__ import annotations

import io
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_core.cli.main import run
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from providers.fake.sync_client import FakeSyncClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T0 = 1_767_225_600_000
"""2026-01-01 00:00:00 UTC."""
URL = "--controller-url=http://fake.invalid:1"


@dataclass
class Done:
    """The outcome of one run."""

    code: int
    out: str
    err: str
    raw: bytes = b""


@dataclass
class World:
    """A client, and `cli(...)` to run commands against it."""

    client: FakeSyncClient = field(default_factory=FakeSyncClient)

    def cli(self, *argv: str, stdin: bytes = b"", program: str = "iris-core", selector: str = URL) -> Done:
        with captured(stdin) as (out, err):
            code = run(
                [selector, *argv],
                program=program,
                opener=lambda _target, _transport, _note: self.client,
            )
        return Done(code, out().decode(errors="replace"), err().decode(errors="replace"), out())

    def job(self, name: str, state: str = "running", **fields: object) -> pb.JobStatus:
        """A job in the world."""
        job = pb.JobStatus(
            job_id=name,
            name=name.rpartition("/")[2],
            state=f"JOB_STATE_{state.upper()}",
            user_id=name.split("/")[1],
            submitted_at_ms=T0,
            started_at_ms=T0 + 1000,
            num_tasks=1,
            incarnation=T0,
            priority_band=common.PRIORITY_BAND_INTERACTIVE,
            resources=common.Resources(cpu_millicores=100, memory_bytes=10**9, disk_bytes=5 * 10**9),
        )
        for key, value in fields.items():
            setattr(job, key, value)
        self.client.cluster.put(job)
        return job

    def task(self, name: str, state: str = "running", **fields: object) -> pb.TaskStatus:
        """A task in the world."""
        task = pb.TaskStatus(
            task_id=name,
            job_id=name.rpartition("/")[0],
            task_index=int(name.rpartition("/")[2]),
            state=f"TASK_STATE_{state.upper()}",
            current_attempt_id=0,
            attempt_uid="00000000000000aa",
            worker_id="w0",
            submitted_at_ms=T0,
            started_at_ms=T0 + 1000,
            incarnation=T0,
        )
        for key, value in fields.items():
            setattr(task, key, value)
        self.client.cluster.put(task)
        return task


class _Stream(io.TextIOWrapper):
    """A text stream over bytes that can be looked at."""

    def __init__(self, data: bytes = b"") -> None:
        self.bytes = io.BytesIO(data)
        super().__init__(self.bytes, encoding="utf-8", write_through=True)

    def written(self) -> bytes:
        """What was written so far. A bound method keeps the stream alive: one that is collected closes its bytes."""
        return self.bytes.getvalue()


@contextmanager
def captured(stdin: bytes = b"") -> Iterator[tuple[Callable[[], bytes], Callable[[], bytes]]]:
    """Standard streams that keep what is written; yields functions that give it."""
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = _Stream(), _Stream()
    sys.stdin, sys.stdout, sys.stderr = _Stream(stdin), out, err
    try:
        yield out.written, err.written
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
