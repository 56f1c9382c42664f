"""The big fleet in one process: 10,000 workers, 100,000 pending tasks in 2,000 jobs of 20 users, the real loop over a real database.

Everything of the controller that a placement passes through is here but the streams to the workers: nothing is dispatched. A watcher
on all jobs reads along. Prints its figures as one JSON object; a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import uvloop

from iris_controller import interpreter
from iris_controller.loop import ControllerLoop
from iris_controller.rpc.scheduler_state import SchedulerStateService
from iris_controller.state import kernel, submit
from iris_controller.state.model import Model
from iris_controller.state.records import ChildrenPolicy, JobSpec, Worker
from iris_controller.store.database import migrate
from iris_controller.store.writer import Writer
from iris_controller.ticker import SchedulerTicker
from iris_controller.watching.hub import WatchHub
from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import Mode, parse_constraint
from iris_core.model.resources import Device, Resources
from iris_core.model.states import TaskState, WorkerHealth
from iris_core.wire.gen.iris.v1 import controller_pb2

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from iris_controller.state.overlay import Overlay

WORKERS = 10_000
JOBS = 2_000
PER_JOB = 50
USERS = 20
REGIONS = 5
GPU_WORKERS = 2_000
GB = 10**9
NOW_MS = 1_700_000_000_000


def worker(number: int) -> Worker:
    """Room for one task each: one core, and every fifth one GPU."""
    gpu = number % (WORKERS // GPU_WORKERS) == 0
    return Worker(
        worker_id=f"w{number}",
        total=Resources(1000, 64 * GB, 0, Device("gpu", "h100", 1) if gpu else None),
        attributes={
            "region": f"r{number % REGIONS}",
            "preemptible": str(number % 2 == 0).lower(),
            "name": f"w{number}",
        },
        attached=True,
        health=WorkerHealth.HEALTHY,
        placeable=True,
    )


def new_job(number: int) -> submit.NewJob:
    """One of some 150 kinds of request: by memory, region, preference, accelerator and setup."""
    wants = []
    if number % 3:
        wants.append(parse_constraint(f"region=r{number % REGIONS}"))
    if number % 4 == 0:
        wants.append(parse_constraint("preemptible=false", mode=Mode.PREFERRED))
    device = Device("gpu", "h100", 1) if number % 7 == 0 else None
    user = f"user{number % USERS}"
    job_id = f"/{user}/job{number}"
    request = controller_pb2.LaunchJobRequest(name=job_id, replicas=PER_JOB)
    request.entrypoint.run_command.argv.append("true")
    spec = JobSpec(
        resources=Resources(1000, (1 + number % 5) * GB, 0, device),
        constraints=tuple(wants),
        band=(PriorityBand.BATCH, PriorityBand.INTERACTIVE, PriorityBand.INTERACTIVE, PriorityBand.PRODUCTION)[
            number % 4
        ],
        max_retries_failure=0,
        max_retries_preemption=100,
        max_task_failures=0,
        timeout_ms=0,
        scheduling_timeout_ms=0,
        children_policy=ChildrenPolicy.UNSPECIFIED,
        has_setup=number % 11 == 0,
        bundle_id="",
        request=request.SerializeToString(),
    )
    return submit.NewJob(job_id, user, PER_JOB, spec)


class HeldTicker(SchedulerTicker):
    """Plans nothing until it is let go."""

    held = True

    def wanted(self) -> bool:
        return not self.held and super().wanted()


class Lag:
    """How late a callback comes that is due every two milliseconds: what a request would wait for the loop."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.002)
            self.late_ms.append(max(0.0, (time.perf_counter() - began - 0.002) * 1000))

    def stop(self) -> tuple[float, float]:
        """The 99th percentile and the longest."""
        self._task.cancel()
        found = sorted(self.late_ms)
        return found[int(len(found) * 0.99)], found[-1]


async def read(hub: WatchHub, seen: list[int], first: asyncio.Event) -> None:
    """A watcher of everything that waits."""
    request = controller_pb2.WatchRequest()
    request.selectors.add(id="pending", kind=controller_pb2.WATCH_KIND_JOBS, filter="state=pending")
    async for message in hub.watch(request, None):
        seen.append(message.ByteSize())
        first.set()


async def measure(folder: Path) -> dict[str, float]:
    writer = Writer(folder / "controller.sqlite3")
    migrate(writer.connection, NOW_MS)
    writer.start()
    model = Model()
    ticker = HeldTicker(model)
    loop = ControllerLoop(model, writer, ticker)
    ticker.wake = loop.wake

    async def finished(job_id: str) -> list[controller_pb2.TaskStatus]:
        raise AssertionError(f"nothing has ended, {job_id} neither")

    hub = WatchHub(loop, "bench", worker_age_ms=lambda worker_id: 0, finished_tasks=finished)
    running = asyncio.ensure_future(loop.run())
    for numbers in _batched(WORKERS, 1_000):
        await loop.submit("workers", lambda o, now_ms, numbers=numbers: _add_workers(o, numbers))  # type: ignore[misc]
    for numbers in _batched(JOBS, 100):
        await loop.submit("jobs", lambda o, now_ms, numbers=numbers: _add_jobs(o, numbers, now_ms))  # type: ignore[misc]
    gc.collect()
    gc.freeze()
    figures: dict[str, float] = {"rss_waiting_mb": psutil.Process().memory_info().rss / 2**20}
    seen: list[int] = []
    first = asyncio.Event()
    watcher = asyncio.ensure_future(read(hub, seen, first))
    await first.wait()
    figures["shapes"] = len({(j.spec.resources, j.spec.constraints, j.spec.has_setup) for j in model.jobs.values()})

    ticks: list[tuple[float, int]] = []
    loop.on_commit(lambda batch: ticks.append((time.perf_counter(), len(batch.changes.attempts))))
    lag = Lag()
    began, began_cpu = time.perf_counter(), time.process_time()
    ticker.held = False
    loop.wake()
    await _until(loop, lambda: not ticker.wanted())
    figures["placed_s"] = ticks[-1][0] - began
    figures["placed_cpu_s"] = time.process_time() - began_cpu
    figures["placed"] = sum(count for _, count in ticks)
    figures["slices"] = len(ticks)
    figures["lag_p99_ms"], figures["lag_max_ms"] = lag.stop()

    uids = list(model.attempts)
    for numbers in _batched(len(uids), 500):
        chosen = [uids[n] for n in numbers]
        await loop.submit("run", lambda o, now_ms, chosen=chosen: _report(o, chosen, TaskState.RUNNING, now_ms))  # type: ignore[misc]
    await _until(loop, lambda: not ticker.wanted())

    freed: list[float] = []
    freed_plan: list[float] = []
    for uid in uids[:: len(uids) // 60]:
        ticks.clear()
        await loop.submit("end", lambda o, now_ms, uid=uid: _report(o, [uid], TaskState.SUCCEEDED, now_ms))  # type: ignore[misc]
        await _until(loop, lambda: len(ticks) >= 2)
        freed.append((ticks[1][0] - ticks[0][0]) * 1000)
        freed_plan.append(loop.stats.last_plan_ms)
        assert ticks[1][1] == 1, ticks
    figures["freed_ms"] = _median(freed)
    figures["freed_plan_ms"] = _median(freed_plan)

    idle: list[float] = []
    flapped: list[float] = []
    for number in range(0, 400, 20):
        for times, values in ((idle, {"build_failures": number + 1}), (flapped, {"attached": number % 40 != 0})):
            ticks.clear()
            await loop.submit("worker", lambda o, now_ms, v=values: o.set_worker(o.worker("w7"), **v))  # type: ignore[misc]
            await _until(loop, lambda: not ticker.wanted())
            times.append(loop.stats.last_plan_ms)
    figures["idle_tick_ms"] = _median(idle)
    figures["flap_tick_ms"] = _median(flapped)
    figures["flap_tick_max_ms"] = max(flapped)

    service = SchedulerStateService(loop, hub.revision)
    states: list[float] = []
    for _ in range(11):
        began = time.perf_counter()
        answer = await service.get_scheduler_state(controller_pb2.GetSchedulerStateRequest(), None)  # type: ignore[arg-type]
        states.append((time.perf_counter() - began) * 1000)
    figures["state_ms"] = _median(states)
    figures["state_bytes"] = len(answer)
    figures["rss_mb"] = psutil.Process().memory_info().rss / 2**20
    figures["watch_bytes"] = sum(seen)
    watcher.cancel()
    loop.close()
    await running
    writer.close()
    return figures


def _batched(total: int, size: int) -> list[range]:
    return [range(start, min(start + size, total)) for start in range(0, total, size)]


def _add_workers(o: Overlay, numbers: Any) -> None:
    for number in numbers:
        made = worker(number)
        o.workers[made.worker_id] = made


def _add_jobs(o: Overlay, numbers: range, now_ms: int) -> None:
    for number in numbers:
        submit.admit(o, new_job(number), now_ms)


def _report(o: Overlay, uids: list[str], state: TaskState, now_ms: int) -> None:
    for uid in uids:
        attempt = o.attempt(uid)
        assert attempt is not None
        assert kernel.observe(o, attempt.worker_id, kernel.Observed(uid, state), now_ms)


async def _until(loop: ControllerLoop, condition: Callable[[], bool]) -> None:
    while not condition():
        await loop.next_commit(0.05)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    interpreter.set_up()
    with tempfile.TemporaryDirectory(prefix="iris-fleet-") as name:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(measure(Path(name)))))
