"""When the planner comes to rest nothing that waits could be placed, freely or by the rules of eviction, read naively.

A model of the rules that looks at everything each time and keeps nothing between two looks, against the planner that keeps what
it knows: over random histories of work that comes, ends, is lost or dropped, of budgets that change and machines that falter.
"""

from __future__ import annotations

import random
from itertools import groupby
from typing import TYPE_CHECKING

import pytest

from iris_controller.scheduling.order import band_now
from iris_controller.state import kernel
from iris_controller.state.budgets import Budget, budget_user
from iris_controller.state.desired import withheld
from iris_controller.state.kick import kick
from iris_controller.state.submit import NewJob, Refused, admit
from iris_controller.ticker import apply_plan
from iris_core.model.bands import BANDS, PriorityBand
from iris_core.model.ids import parse_target
from iris_core.model.resources import Device
from iris_core.model.states import ACTIVE, TaskState, WorkerHealth
from tests.unit.kernel_world import World, check_invariants, job_spec

if TYPE_CHECKING:
    from iris_controller.state.records import Attempt, Job

CHIPS = Device("tpu", "v5litepod-16", 4)
RECREATE = 3
USERS = ("a", "b")


def free(world: World, worker_id: str, gone: tuple[Attempt, ...] = (), *, soon: bool = False) -> tuple[int, int]:
    """Millicores and chips that nobody holds; `soon` = once what is ending is over, without `gone`."""
    worker = world.model.workers[worker_id]
    held = [a for a in world.model.attempts_on(worker_id) if a not in gone and not (soon and a.state not in ACTIVE)]
    return (
        worker.total.cpu_millicores - sum(a.resources.cpu_millicores for a in held),
        worker.total.tpu_count - sum(a.resources.tpu_count for a in held),
    )


def fits(job: Job, room: tuple[int, int]) -> bool:
    asked = job.spec.resources
    return asked.cpu_millicores <= room[0] and asked.tpu_count <= room[1]


def may_evict(world: World, job: Job, victim: Job, task_band: PriorityBand) -> bool:
    if not band_now(world.model, job).outranks(task_band):
        return False
    asked, requested = job.spec.resources.device, job.spec.band.resolve(None)
    if victim.spec.resources.device is not None and asked is None:
        return False
    if job.job_id.startswith(f"{victim.job_id}/"):
        return False
    return requested.outranks(victim.spec.band.resolve(None)) or budget_user(job) != budget_user(victim)


def could_be_placed(world: World, job: Job) -> str:
    """Where the job, or one task of it, could go now; "" = nowhere."""
    model = world.model
    usable = [w for w, row in sorted(model.workers.items()) if row.placeable and not row.excluded]
    bands = {
        (a.job_id, a.task_index): model.tasks[a.job_id][a.task_index].band
        for a in model.attempts.values()
        if a.state in ACTIVE
    }
    below = any(band_now(model, job).outranks(band) for band in bands.values())
    if not job.spec.group_by:
        for w in usable:
            if fits(job, free(world, w)):
                return f"{w} has room"
            if fits(job, free(world, w, soon=True)):
                continue  # it will be looked at when that is gone
            for a in model.attempts_on(w):
                victim = model.jobs[a.job_id]
                if a.state not in ACTIVE or victim.spec.group_by:
                    continue
                if may_evict(world, job, victim, bands[a.job_id, a.task_index]) and fits(
                    job, free(world, w, (a,), soon=True)
                ):
                    return f"{w} could lose {a.task_id}"
        return ""
    size = len(model.pending[job.job_id])
    named = [w for w in usable if job.spec.group_by in model.workers[w].attributes]
    value = lambda w: str(model.workers[w].attributes[job.spec.group_by])  # noqa: E731
    for name, found in groupby(sorted(named, key=value), key=value):
        workers = list(found)
        if sum(fits(job, free(world, w)) for w in workers) >= size:
            return f"{name} has room"
        if not below or sum(fits(job, free(world, w, soon=True)) for w in workers) >= size:
            continue
        takeable = []
        for w in workers:
            for a in model.attempts_on(w):
                victim = model.jobs[a.job_id]
                if a.state not in ACTIVE or not may_evict(world, job, victim, bands[a.job_id, a.task_index]):
                    continue
                mates = [t for t in model.tasks[a.job_id] if t.state in ACTIVE] if victim.spec.group_by else []
                if all(band_now(model, job).outranks(t.band) for t in mates):
                    takeable.append(a)
        if sum(fits(job, free(world, w, tuple(takeable), soon=True)) for w in workers) >= size:
            return f"{name} could be made free"
    return ""


def come_to_rest(world: World, drop: bool) -> None:
    for _ in range(60):
        plan = world.planner.plan(world.model)
        if drop:
            drop = False
            continue
        before = len(world.model.attempts)
        with world.batch() as o:
            apply_plan(o, plan, world.uid, world.now_ms)
            placed = [a for a in o.attempts.values() if a.uid not in world.model.attempts]
            assert len(placed) == plan.size, f"the kernel refused what was planned ({before} attempts)"
        world.take_reasons(plan.reasons)
        if plan.done and not plan.size:  # what it placed is a change, and has it look again
            return
    raise AssertionError("the planner does not come to rest")


def step(world: World, rng: random.Random) -> str:
    model = world.model
    kind = rng.choice(
        ["submit"] * 5
        + ["end"] * 3
        + ["begin", "confirm", "confirm", "fail", "lose", "falter", "budget", "cancel", "kick"]
    )
    if kind == "submit":
        user = rng.choice(USERS)
        parents = [j for j in model.tasks if j.startswith(f"/{user}/") and j.count("/") < 4]
        under = rng.choice(parents) if parents and rng.random() < 0.3 else f"/{user}"
        together = rng.random() < 0.35
        device = CHIPS if together or rng.random() < 0.3 else None
        spec = job_spec(
            cpu=rng.choice([1, 2, 4]),
            device=device,
            band=rng.choice(BANDS),
            group_by="tpu-name" if together else "",
            max_retries_failure=2,
        )
        tasks = rng.choice([2, 3]) if together else rng.choice([1, 1, 2, 5])
        with world.batch() as o:
            try:
                admit(
                    o,
                    NewJob(f"{under}/j{rng.randrange(6)}", user, tasks, spec, rng.choice([0, RECREATE])),
                    world.now_ms,
                )
            except Refused:
                return "refused"
    elif kind in ("end", "fail") and model.attempts:
        attempt = model.attempts[rng.choice(sorted(model.attempts))]
        if not withheld(model, attempt) and attempt.state in ACTIVE:
            state = TaskState.SUCCEEDED if kind == "end" else rng.choice([TaskState.FAILED, TaskState.WORKER_FAILED])
            world.observe(attempt.uid, state, attempt.worker_id)
    elif kind == "begin":
        for attempt in list(model.attempts.values()):
            if attempt.state is TaskState.ASSIGNED and not withheld(model, attempt):
                world.observe(attempt.uid, TaskState.RUNNING, attempt.worker_id)
    elif kind == "confirm":
        for attempt in list(model.attempts.values()):
            if attempt.state not in ACTIVE and rng.random() < 0.6:
                world.observe(attempt.uid, TaskState.KILLED, attempt.worker_id)
    elif kind == "lose":
        with world.batch() as o:
            kernel.worker_lost(o, rng.choice(sorted(model.workers)), "gone", world.now_ms)
    elif kind == "falter":
        worker_id = rng.choice(sorted(model.workers))
        well = not model.workers[worker_id].placeable
        health = WorkerHealth.HEALTHY if well else WorkerHealth.DEGRADED
        world.change_worker(worker_id, placeable=well, health=health)
    elif kind == "budget":
        with world.batch() as o:
            o.put_budget(Budget(rng.choice(USERS), rng.choice([0, 10, 4000, 12_000]), PriorityBand.SYSTEM))
    elif kind in ("cancel", "kick") and model.tasks:
        job_id = rng.choice(sorted(model.tasks))
        with world.batch() as o:
            if kind == "cancel":
                kernel.cancel(o, job_id, "someone", "", world.now_ms)
            else:
                kick(o, [(job_id, parse_target(job_id))], TaskState.PREEMPTED, "ann", "", world.now_ms)
    return kind


@pytest.mark.parametrize("seed", range(12))
def test_at_rest_nothing_that_waits_could_be_placed(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    for name in "xy":
        for index in range(3):
            attributes = {"tpu-name": name, "tpu-worker-id": index}
            world.add_worker(f"{name}{index}", cpu=4, device=CHIPS, attributes=attributes)
    world.add_worker("cpu", cpu=4)
    history = []
    for _ in range(150):
        world.now_ms += 1000
        history.append(step(world, rng))
        come_to_rest(world, drop=rng.random() < 0.1)
        check_invariants(world.model)
        for job_id in world.model.pending:
            found = could_be_placed(world, world.model.jobs[job_id])
            assert not found, f"{job_id} waits ({world.model.reasons.get(job_id)}) though {found}; {history[-5:]}"
            assert world.model.reasons.get(job_id), f"{job_id} waits for no reason"
