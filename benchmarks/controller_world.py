"""A controller's state without a controller, for the figures of the scheduler: model, planner and kernel over a real database.

A batch here is what a batch is in the loop: planned into an overlay, one durable transaction, applied. Only the loop
around it is left out.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Sample
from iris_controller import interpreter
from iris_controller.scheduling.plan import Planner
from iris_controller.scheduling.plans import Plan
from iris_controller.state import kernel, submit
from iris_controller.state.model import Model
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import ChildrenPolicy, JobSpec, Worker
from iris_controller.store import encode
from iris_controller.store.database import migrate, open_writer
from iris_controller.ticker import apply_plan
from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import parse_constraint
from iris_core.model.resources import Resources
from iris_core.model.states import TaskState, WorkerHealth
from iris_core.wire.gen.iris.v1 import controller_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REGIONS = 5
FULL_TABLE = 200_000
"""Tasks in the database besides those that are measured."""


class World:
    """`workers` equal workers in turn in one of `REGIONS` regions, each with room for `per_worker` tasks of one core."""

    def __init__(self, workers: int, per_worker: int, finished_tasks: int = 0) -> None:
        self.model = Model()
        self.planner = Planner()
        self.now_ms = 1_700_000_000_000
        self.cpu_s: defaultdict[str, float] = defaultdict(float)
        """Processor time by part of a tick; whoever reads it empties it."""
        interpreter.set_up()
        self._folder = tempfile.TemporaryDirectory(prefix="iris-bench-")
        self._database = open_writer(Path(self._folder.name) / "controller.sqlite3")
        migrate(self._database, self.now_ms)
        self._uids = itertools.count(1)
        self._jobs = itertools.count(1)

        def add(o: Overlay) -> None:
            for number in range(workers):
                o.workers[f"w{number}"] = Worker(
                    worker_id=f"w{number}",
                    total=Resources(per_worker * 1000, per_worker * 10**9, 0, None),
                    attributes={"region": f"r{number % REGIONS}"},
                    attached=True,
                    health=WorkerHealth.HEALTHY,
                    placeable=True,
                )

        self.batch(add)
        if finished_tasks:
            self.batch(lambda o: kernel.cancel(o, self._admit(o, finished_tasks, ()), "bench", "", self.now_ms))

    def close(self) -> None:
        self._database.close()
        self._folder.cleanup()

    def batch(self, plan: Callable[[Overlay], object]) -> None:
        """Plans, commits and applies one batch."""
        o = Overlay(self.model)
        with self._spending("kernel"):
            plan(o)
            kernel.settle(o, self.now_ms)
        with self._spending("encoding"):
            statements = encode.statements(o, self.now_ms, None)
        with self._spending("SQLite"):
            self._database.execute("BEGIN IMMEDIATE")
            for sql, values in statements:
                self._database.execute(sql, values)
            self._database.execute("COMMIT")
        with self._spending("applying"):
            self.model.apply(o)

    @contextmanager
    def _spending(self, part: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.cpu_s[part] += time.process_time() - began

    def submit(self, tasks: int, *constraints: str) -> str:
        """One job of `tasks` tasks of one core. Returns its id."""
        made: list[str] = []
        self.batch(lambda o: made.append(self._admit(o, tasks, constraints)))
        return made[0]

    def _admit(self, o: Overlay, tasks: int, constraints: tuple[str, ...]) -> str:
        job_id = f"/bench/j{next(self._jobs)}"
        request = controller_pb2.LaunchJobRequest(name=job_id, replicas=tasks)
        request.entrypoint.run_command.argv.append("true")
        spec = JobSpec(
            resources=Resources(1000, 10**9, 0, None),
            constraints=tuple(parse_constraint(c) for c in constraints),
            band=PriorityBand.INHERIT,
            max_retries_failure=0,
            max_retries_preemption=100,
            max_task_failures=0,
            timeout_ms=0,
            scheduling_timeout_ms=0,
            children_policy=ChildrenPolicy.UNSPECIFIED,
            has_setup=False,
            bundle_id="",
            request=request.SerializeToString(),
        )
        submit.admit(
            o, submit.NewJob(job_id, "bench", tasks, spec), self.now_ms, max_replicas=10**6, max_active_tasks=10**9
        )
        return job_id

    def assign(self, o: Overlay, plan: Plan) -> None:
        apply_plan(o, plan, lambda: f"{next(self._uids):016x}", self.now_ms)

    def tick(self) -> int:
        """Places all that fits, slice after slice, each durable. Returns how many."""
        placed = 0
        while True:
            with self._spending("planning"):
                plan = self.planner.plan(self.model)
            placed += plan.size
            if plan.size:
                self.batch(lambda o, plan=plan: self.assign(o, plan))  # type: ignore[misc]
            if plan.done:
                return placed

    def observe_all(self, state: TaskState) -> int:
        """All unfinished attempts report the state, in one batch. Returns how many."""
        said = [(a.worker_id, kernel.Observed(a.uid, state)) for a in self.model.attempts.values()]

        def fold(o: Overlay) -> None:
            for worker_id, observation in said:
                assert kernel.observe(o, worker_id, observation, self.now_ms)

        self.batch(fold)
        return len(said)


def timed(action: Callable[[], object]) -> Sample:
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return Sample(time.perf_counter() - wall, time.process_time() - cpu)
