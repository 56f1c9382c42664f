"""T17: what one tick sends to 79 attached workers for 5,000 tasks of a job whose payload is 100 KB, beside sending it with each task.

A file of this size travels apart, by its content and once a machine, when the attempt is staged; words of the command go with the
order, once a stream and job. So on 79 machines the whole of it is 1.6 % of payload × tasks, and no tick sends that of a file.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from benchmarks.controller_process import Running, controller, request
from iris_core.wire.gen.iris.v1 import worker_pb2
from providers.fake.worker import run_on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.measure import Report
    from iris_core.wire.gen.iris.v1 import controller_pb2
    from providers.fake.worker import FakeWorker

WORKERS = 79
TASKS = 5_000
PAYLOAD = 100_000
BOUND_PERCENT = 1.0


class Dispatched:
    """What the workers were told of one job; the script of all of them."""

    def __init__(self) -> None:
        self.tasks = 0
        self.bytes = 0
        self.all_there = asyncio.Event()

    def __call__(self, worker: FakeWorker, wanted: worker_pb2.DesiredAttempt) -> Iterable[worker_pb2.Observation]:
        if wanted.HasField("run"):
            self.tasks += 1
            self.bytes += wanted.ByteSize()
            if self.tasks == TASKS:
                self.all_there.set()
        return run_on(worker, wanted)


def as_file(made: controller_pb2.LaunchJobRequest) -> None:
    made.entrypoint.workdir_files["payload.bin"] = secrets.token_bytes(PAYLOAD)


def as_words(made: controller_pb2.LaunchJobRequest) -> None:
    made.entrypoint.run_command.argv.extend(secrets.token_hex(PAYLOAD // 200) for _ in range(100))


async def sent(running: Running, made: controller_pb2.LaunchJobRequest) -> tuple[int, int]:
    """Bytes of orders and specs, and of files that will be fetched, all workers together."""
    dispatched = Dispatched()
    for worker in running.workers:
        worker.script = dispatched
        worker.specs.clear()
    await running.launch(made)
    async with asyncio.timeout(300):
        await dispatched.all_there.wait()
    specs = [spec for worker in running.workers for spec in worker.specs.values()]
    assert len(specs) == WORKERS
    fetched = sum(len(spec.entrypoint.workdir_file_refs) * PAYLOAD for spec in specs)
    return dispatched.bytes + sum(spec.ByteSize() for spec in specs), fetched


async def measure() -> dict[str, tuple[int, int]]:
    found = {}
    for name, put in (("as a file", as_file), ("in the command", as_words)):
        async with controller(WORKERS) as running:
            made = request("/bench/wide", TASKS)
            put(made)
            found[name] = await sent(running, made)
    return found


def run(report: Report) -> None:
    whole = TASKS * PAYLOAD
    for name, (size, fetched) in asyncio.run(measure()).items():
        what = f"{TASKS:,} tasks on {WORKERS} streams, {PAYLOAD // 1000} KB {name}: the tick's bytes"
        # Words of the command cannot travel apart: for them there is no bound.
        report.absolute("T17", what, size / 1e6, "MB")
        bound = BOUND_PERCENT if fetched else None
        report.absolute("T17", f"{what}, of payload × tasks", 100 * size / whole, "%", at_most=bound)
        if fetched:
            report.absolute("T17", "fetched afterwards, once a machine", fetched / 1e6, "MB")
    report.missing("T17", "the existing Iris", "its published figure: 478 MB for the same tick")
