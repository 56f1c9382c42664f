"""The real planner and kernel on a seeded fleet of workers that really hold what they run: gangs, bands, budgets, evictions, losses.

Each worker follows its desired set as a real one does, late and in its own time, and refuses to start more than fits into it: so
"never more than it has" is checked where it matters, on the machine. Everything random comes from one seed; a failure names it.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from iris_controller.scheduling.order import NOT_PLANNED
from iris_controller.scheduling.plans import Plan
from iris_controller.state import kernel
from iris_controller.state.budgets import Budget
from iris_controller.state.desired import desired_for
from iris_controller.state.kick import kick
from iris_controller.state.model import Model
from iris_controller.state.observed import Observed
from iris_controller.state.overlay import Overlay
from iris_controller.state.submit import NewJob, Refused, admit
from iris_controller.store import encode
from iris_controller.store.database import migrate
from iris_controller.store.load import load_model
from iris_controller.ticker import apply_plan
from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import parse_constraint
from iris_core.model.ids import parse_target
from iris_core.model.resources import Device, Resources
from iris_core.model.states import ACTIVE, JOB_TERMINAL, TaskState, WorkerHealth
from iris_core.wire.gen.iris.v1 import controller_pb2
from tests.unit.kernel_world import World, check_invariants, healthy_worker, job_spec
from tests.unit.test_kernel_simulation import Ledger, persisted, replay

S = TaskState
SEEDS = 1_000 if os.environ.get("IRIS_SOAK") == "1" else 16
STEPS = 120
CHIPS = Device("tpu", "v5litepod-16", 4)
BANDS = (PriorityBand.SYSTEM, PriorityBand.PRODUCTION, *[PriorityBand.INTERACTIVE] * 3, *[PriorityBand.BATCH] * 3)


@dataclass
class Process:
    """An attempt on a machine. `left` steps until it ends by itself, `dying` steps until it has been stopped; None = it is not."""

    resources: Resources
    left: int
    fails: bool
    setup: bool
    dying: int | None = None


@dataclass
class Machine:
    """A worker process and what it runs."""

    worker_id: str
    total: Resources
    attributes: dict[str, str | int | float]
    processes: dict[str, Process] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    """Ends that were reported; a real worker forgets them once they are acknowledged."""
    alive: bool = True
    silent: int = 0
    """Steps for which nothing is heard of it."""
    boots: int = 0


class Fleet:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World()
        self.world.model.budget_defaults = Budget("", limit=self.dice.choice([0, 0, 40, 4_050]))
        self.world.before_commit = self._store
        self.ledger = Ledger()
        self.batches: list[Overlay] = []
        self.reached: Counter[str] = Counter()
        self.machines: dict[str, Machine] = {}
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.execute("PRAGMA foreign_keys=ON")
        migrate(self.database, 0)
        for name in ("x", "y", "z"):
            for index in range(3):
                attributes: dict[str, str | int | float] = {"tpu-name": name, "tpu-worker-id": index, "region": "eu"}
                self._machine(f"{name}-{index}", Resources(4_000, 16, 0, CHIPS), attributes)
        for index in range(3):
            self._machine(
                f"cpu-{index}", Resources((2_000, 4_000)[index % 2], 16, 0), {"region": ("eu", "us")[index % 2]}
            )
        with self.world.batch() as o:
            for machine in self.machines.values():
                self._attach(o, machine)

    def _machine(self, worker_id: str, total: Resources, attributes: dict[str, str | int | float]) -> None:
        self.machines[worker_id] = Machine(worker_id, total, attributes)

    def _store(self, o: Overlay) -> None:
        self.batches.append(o)
        self.database.execute("BEGIN")
        for sql, values in encode.statements(o, self.world.now_ms):
            self.database.execute(sql, values)
        self.database.execute("COMMIT")

    # History --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            for _ in range(STEPS):
                self.step(calm=False)
            assert persisted(load_model(self.database)) == persisted(self.world.model)
            for _ in range(400):
                if not self.world.model.attempts and not self._placeable_work():
                    break
                self.step(calm=True)
            self.finish()
        finally:
            self.database.close()

    def step(self, calm: bool) -> None:
        """One batch, which may fail to be committed; then the machines take a step of their own."""
        self.world.now_ms += 1_000
        dice, o = self.dice, Overlay(self.world.model)
        looks = iter([True] * (1_000 if calm else dice.choice([1, 3, 1_000])))
        plan = self.world.planner.plan(
            self.world.model, max_assignments=dice.choice([1, 3, 100]), budget=lambda: next(looks, False)
        )
        self._check_plan(plan)
        apply_plan(o, plan, self.world.uid, self.world.now_ms)
        assert sum(a.uid not in self.world.model.attempts for a in o.attempts.values()) == plan.size
        if not calm:
            for _ in range(dice.randrange(3)):
                dice.choice([self._submit, self._submit, self._submit, self._cancel, self._kick, self._time_out])(o)
        reports = self._reports()
        self._check_order_does_not_matter(o, reports)
        for worker_id, observed in reports:
            kernel.observe(o, worker_id, observed, self.world.now_ms)
        self._faults(o, calm)
        kernel.settle(o, self.world.now_ms)
        if not calm and dice.random() < 0.1:
            self.reached["dropped"] += 1
            return
        changes = self.world.commit(o)
        self.world.take_reasons(plan.reasons)
        for worker_id, observed in reports:
            if observed.state not in (S.BUILDING, S.RUNNING):
                self.machines[worker_id].over.discard(observed.attempt_uid)
        self._note(o)
        check_invariants(self.world.model)
        self.ledger.take(self.world, changes)
        self._check_gangs()
        for machine in self.machines.values():
            if not machine.silent and (calm or dice.random() < 0.7):
                self._work(machine)

    def _submit(self, o: Overlay) -> None:
        dice = self.dice
        user, together = dice.choice("uv"), dice.random() < 0.4
        device = CHIPS if dice.random() < 0.4 else None
        request = controller_pb2.LaunchJobRequest()
        has_setup = dice.random() < 0.3
        if has_setup:
            request.environment.setup_scripts.append("true")
        if together:
            request.coscheduling.group_by = "tpu-name"
        parents = [j for j, job in self.world.model.jobs.items() if job.state not in JOB_TERMINAL and job.depth < 3]
        parent = dice.choice(parents) if parents and dice.random() < 0.2 else f"/{user}"
        spec = job_spec(
            cpu=dice.choice([0.5, 1, 2, 4]),
            memory=dice.choice([0, 4, 8, 16]),
            device=device,
            band=dice.choice(BANDS),
            group_by="tpu-name" if together else "",
            constraints=(parse_constraint(dice.choice(["region=eu", "region=us"])),) if dice.random() < 0.2 else (),
            has_setup=has_setup,
            max_retries_failure=dice.randrange(3),
            max_retries_preemption=dice.choice([0, 1, 100]),
            max_task_failures=dice.randrange(2),
            timeout_ms=20_000,
            request=request.SerializeToString(deterministic=True),
        )
        name = f"{parent}/j{len(self.batches)}x{dice.randrange(10)}"
        try:
            admit(o, NewJob(name, "", 1 + dice.randrange(4), spec), self.world.now_ms)
        except Refused:
            self.reached["refused"] += 1

    def _cancel(self, o: Overlay) -> None:
        jobs = [j for j, job in self.world.model.jobs.items() if job.state not in JOB_TERMINAL]
        if jobs and self.dice.random() < 0.4:
            kernel.cancel(o, self.dice.choice(jobs), "ann", "", self.world.now_ms)

    def _kick(self, o: Overlay) -> None:
        tasks = [a.task_id for a in self.world.model.attempts.values() if a.state in ACTIVE]
        if tasks and self.dice.random() < 0.5:
            text, end = self.dice.choice(tasks), self.dice.choice([S.PREEMPTED, S.PREEMPTED, S.FAILED])
            kick(o, [(text, parse_target(text))], end, "ann", "", self.world.now_ms)  # type: ignore[arg-type]

    def _time_out(self, o: Overlay) -> None:
        if self.world.model.attempts and self.dice.random() < 0.2:
            kernel.time_out(o, self.dice.choice(sorted(self.world.model.attempts)), self.world.now_ms)

    # Machines -------------------------------------------------------------------------------------------------

    def _attach(self, o: Overlay, machine: Machine) -> None:
        row = healthy_worker(machine.worker_id, attributes=machine.attributes, boot_id=str(machine.boots))
        o.workers[machine.worker_id] = row
        o.set_worker(row, total=machine.total)

    def _faults(self, o: Overlay, calm: bool) -> None:
        """A worker restarts with nothing left of what it ran; one is not heard of, is given up, and returns."""
        for machine in self.machines.values():
            row = o.worker(machine.worker_id)
            assert row is not None
            if machine.silent:
                machine.silent -= 1
                if machine.silent == 4 and row.health is not WorkerHealth.DEAD:
                    self.reached["lost"] += 1
                    kernel.worker_lost(o, machine.worker_id, "silent", self.world.now_ms)
                    row = o.worker(machine.worker_id)
                    assert row is not None
                    o.set_worker(row, health=WorkerHealth.DEAD, placeable=False, attached=False)
                if not machine.silent or calm:
                    # It confirms that what it should not hold is gone before it is placed on again.
                    machine.silent = 0
                    known = {attempt.uid for attempt in o.attempts_on(machine.worker_id)}
                    machine.processes = {uid: p for uid, p in machine.processes.items() if uid in known}
                    self._attach(o, machine)
                    kernel.attempts_missing(
                        o, machine.worker_id, set(machine.processes) | machine.over, self.world.now_ms
                    )
            elif not calm and self.dice.random() < 0.01:
                machine.silent = self.dice.choice([2, 7])
                o.set_worker(row, health=WorkerHealth.DEGRADED, placeable=False)
            elif not calm and self.dice.random() < 0.01:
                self.reached["restarted"] += 1
                machine.boots += 1
                machine.processes.clear()
                machine.over.clear()
                self._attach(o, machine)
                kernel.attempts_missing(o, machine.worker_id, set(), self.world.now_ms)

    def _work(self, machine: Machine) -> None:
        """Follows the desired set as of now, as a real worker does."""
        wanted = {d.uid: d.want for d in desired_for(self.world.model, machine.worker_id)}
        for uid, process in list(machine.processes.items()):
            if wanted.get(uid) not in ("run", "keep") and process.dying is None:
                process.dying = self.dice.randrange(4)
            if process.dying == 0:
                del machine.processes[uid]
                machine.over.add(uid)
            elif process.dying is not None:
                process.dying -= 1
            elif process.setup:
                process.setup = self.dice.random() < 0.3
            else:
                process.left -= 1
        for uid, want in wanted.items():
            if want == "run" and uid not in machine.processes and uid not in machine.over:
                attempt = self.world.model.attempts[uid]
                setup = self.world.model.jobs[attempt.job_id].spec.has_setup
                left, fails = self.dice.randrange(1, 15), self.dice.random() < 0.15
                machine.processes[uid] = Process(attempt.resources, left, fails, setup)
        held = [process.resources for process in machine.processes.values()]
        total = machine.total
        assert sum(r.cpu_millicores for r in held) <= total.cpu_millicores, f"{machine} holds too much"
        assert sum(r.memory_bytes for r in held) <= total.memory_bytes, f"{machine} holds too much"
        assert sum(r.tpu_count for r in held) <= total.tpu_count, f"{machine} holds too much"

    def _reports(self) -> list[tuple[str, Observed]]:
        """What the machines that are heard say in this batch; some of it is late."""
        said = []
        for machine in self.machines.values():
            if machine.silent:
                continue
            here = {a.uid: a for a in self.world.model.attempts_on(machine.worker_id)}
            for uid, attempt in here.items():
                process = machine.processes.get(uid)
                if process is None:
                    known = uid in machine.over or attempt.state is S.ASSIGNED
                    if uid in machine.over:
                        said.append((machine.worker_id, Observed(uid, S.KILLED)))
                    elif not known:
                        said.append((machine.worker_id, Observed(uid, S.MISSING)))
                elif self.dice.random() < 0.6 and process.dying is None:
                    state = S.BUILDING if process.setup else S.RUNNING
                    if not process.setup and process.left <= 0 and attempt.state is S.RUNNING:
                        state = S.FAILED if process.fails else S.SUCCEEDED
                        del machine.processes[uid]
                        machine.over.add(uid)
                    said.append((machine.worker_id, Observed(uid, state, int(process.fails))))
        return said

    # What must hold -------------------------------------------------------------------------------------------

    def _check_plan(self, plan: Plan) -> None:
        model = self.world.model
        for eviction in plan.evictions:
            self.reached["gang evicts" if len(eviction.places) > 1 else "task evicts"] += bool(eviction.victims)
            self.reached["waits for what ends"] += not eviction.victims
            mates: dict[str, int] = {}
            for job_id, index, uid in eviction.victims:
                task = model.tasks[job_id][index]
                assert task.state in ACTIVE and task.attempt_uid == uid
                assert eviction.band.outranks(task.band), f"{eviction.band} evicts {task.band}"
                mates[job_id] = mates.get(job_id, 0) + 1
            for job_id, taken in mates.items():
                if model.jobs[job_id].spec.group_by:
                    assert model.jobs[eviction.job_id].spec.group_by, "a task that is alone breaks a gang"
                    assert taken == sum(task.state in ACTIVE for task in model.tasks[job_id]), "a gang is broken"
                    self.reached["gang evicted"] += 1
        for gang in plan.gangs:
            values = {model.workers[w].attributes["tpu-name"] for _, w in gang.places}
            assert values == {gang.value} and len({w for _, w in gang.places}) == len(gang.places)
            self.reached["gang placed"] += 1
        if plan.done and not plan.size:
            for job_id in model.pending:
                reason = plan.reasons.get(job_id) or model.reasons.get(job_id)
                assert reason and reason != NOT_PLANNED, f"{job_id} waits and nobody says why"

    def _check_order_does_not_matter(self, planned: Overlay, reports: list[tuple[str, Observed]]) -> None:
        if len(reports) < 2:
            return

        def fold(order: list[tuple[str, Observed]]) -> tuple[Any, ...]:
            o = Overlay(self.world.model)
            for worker_id, observed in order:
                kernel.observe(o, worker_id, observed, self.world.now_ms)
            kernel.settle(o, self.world.now_ms)
            return (
                o.jobs,
                {key: (t.state, t.failure_count, t.preemption_count, t.worker_id) for key, t in o.tasks.items()},
                {uid: (a.state, a.charge, a.finished_at_ms) for uid, a in o.attempts.items()},
            )

        shuffled = reports[:]
        self.dice.shuffle(shuffled)
        (jobs, *rest), (others, *others_rest) = fold(reports), fold(shuffled)
        assert rest == others_rest
        assert {j: (job.state, job.counts) for j, job in jobs.items()} == {
            j: (job.state, job.counts) for j, job in others.items()
        }

    def _check_gangs(self) -> None:
        for job_id, tasks in self.world.model.tasks.items():
            if self.world.model.jobs[job_id].spec.group_by:
                states = {"on a worker" if task.state in ACTIVE else task.state.name for task in tasks}
                assert not {"on a worker", "PENDING"} <= states, f"the gang {job_id} is in pieces: {states}"

    def _note(self, o: Overlay) -> None:
        for attempt in o.attempts.values():
            self.reached[f"{attempt.state.name} {attempt.charge.name}"] += 1
            self.reached["displaces"] += bool(attempt.displaces)

    def _placeable_work(self) -> bool:
        return bool(self.world.planner.plan(self.world.model).size)

    def finish(self) -> None:
        """All that can run has run; what waits says that it never will, and the batches alone give this state again."""
        model = self.world.model
        assert not model.attempts, f"still held: {list(model.attempts.values())[:3]}"
        for job_id in model.pending:
            reason = model.reasons[job_id]
            assert "waiting for capacity" not in reason and "largest group has" not in reason, f"{job_id}: {reason}"
        assert all(usage.cpu_millicores == usage.tasks == 0 for usage in model.usage.values())
        again: Model = replay(self.batches)
        assert persisted(again) == persisted(model)
        assert persisted(load_model(self.database)) == persisted(model)


@pytest.mark.soak
def test_a_fleet_with_gangs_bands_evictions_and_losses() -> None:
    reached: Counter[str] = Counter()
    for seed in range(SEEDS):
        fleet = Fleet(seed)
        try:
            fleet.run()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        reached += fleet.reached
    wanted = {
        "task evicts", "gang evicts", "gang evicted", "gang placed", "waits for what ends", "displaces", "lost", "restarted",
        "dropped", "PREEMPTED NONE", "PREEMPTED PREEMPTION", "COSCHED_FAILED NONE", "WORKER_FAILED NONE",
        "WORKER_FAILED PREEMPTION", "FAILED FAILURE", "SUCCEEDED NONE", "KILLED NONE",
    }  # fmt: skip
    assert wanted <= set(reached), f"the histories never reach {wanted - set(reached)}"
