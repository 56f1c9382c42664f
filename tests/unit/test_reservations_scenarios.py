"""Slices that go for more important work of the same reservation, on injected time: the real autoscaler, planner and kernel."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from iris_controller.autoscaling.demand import claim_of
from iris_controller.state import making_way
from iris_controller.state.records import Charge, JobSpec
from iris_controller.state.slices import Lifecycle
from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import parse_constraint
from iris_core.model.resources import Device
from iris_core.model.states import ACTIVE, JOB_TERMINAL, TERMINAL, JobState, TaskState
from providers.fake.machines import Outcome, quota, stock_out
from tests.unit.autoscaler_world import AutoscalerWorld, tpu_group
from tests.unit.kernel_world import check_invariants, job_spec

CHIPS = {"s": 8, "m": 16, "l": 32}
B, N, P = PriorityBand.BATCH, PriorityBand.INTERACTIVE, PriorityBand.PRODUCTION


def gang(kind: str, band: PriorityBand, **values: Any) -> JobSpec:
    device = Device("tpu", f"v5litepod-{CHIPS[kind]}", 4)
    required = (parse_constraint(f"device-variant=v5litepod-{CHIPS[kind]}"),)
    return job_spec(1, device=device, group_by="tpu-name", band=band, constraints=required, **values)


class Reserved(AutoscalerWorld):
    """Slices of 2, 4 and 8 hosts of four chips, of one reservation."""

    def __init__(self, chips: int, **values: object) -> None:
        groups = (
            tpu_group(name, hosts // 4, max_slices=8, quota_pool="p", reserved=True, scale_up_rate_limit=0)
            for name, hosts in CHIPS.items()
        )
        super().__init__(*groups, reservations={"p": chips}, **values)  # type: ignore[arg-type]

    def submit(self, name: str, kind: str, band: PriorityBand, **values: object) -> None:
        self.world.submit(name, tasks=CHIPS[kind] // 4, spec=gang(kind, band, **values))

    async def run(self, name: str, kind: str, band: PriorityBand, **values: object) -> None:
        """The gang is there, with a slice of its own, and runs."""
        self.submit(name, kind, band, **values)
        await self.pass_time(30)
        self.observe(name, TaskState.RUNNING)

    def observe(self, name: str, state: TaskState) -> None:
        """All living attempts of the job say that."""
        for attempt in list(self.world.model.attempts.values()):
            if attempt.job_id == name and attempt.state in ACTIVE:
                self.world.observe(attempt.uid, state, attempt.worker_id)
        self.queue.tell()

    def confirm(self, worker_prefix: str = "") -> None:
        """What was told to stop has stopped."""
        for attempt in list(self.world.model.attempts.values()):
            if attempt.state in TERMINAL and attempt.worker_id.startswith(worker_prefix):
                self.world.observe(attempt.uid, TaskState.KILLED, attempt.worker_id)
        self.queue.tell()

    def states(self, name: str) -> set[TaskState]:
        return {task.state for task in self.world.model.tasks.get(name, ())}

    def slices_of(self, name: str) -> set[str]:
        workers = {task.worker_id for task in self.world.model.tasks.get(name, ()) if task.worker_id}
        return {self.world.model.workers[worker_id].slice_id for worker_id in workers}

    def chips(self) -> int:
        return sum(CHIPS[slice_id[0]] for slice_id in self.machines.alive)

    def made_way(self) -> list[str]:
        return [reason for reason in self.said("scale_down", "pending") if "its chips go to" in reason]


@pytest.mark.asyncio
async def test_a_gang_has_as_many_slices_go_as_it_takes_and_is_made_when_they_are_gone() -> None:
    w = Reserved(64)
    for name, kind in (("/u/a", "s"), ("/u/b", "s"), ("/u/c", "m"), ("/u/d", "m")):
        await w.run(name, kind, B)
    assert w.chips() == 48
    w.submit("/u/big", "l", P)
    await w.look(2)
    assert w.made_way() == ["its chips go to /u/big (production) in the reservation p"], "one of 16, not two of 8"
    (evicted,) = [name for name in ("/u/c", "/u/d") if w.states(name) == {TaskState.PENDING}]
    assert w.states("/u/a") == w.states("/u/b") == {TaskState.RUNNING}
    await w.pass_time(20)
    assert len(w.machines.created) == 4, "their attempts are not over yet"
    w.confirm()
    await w.pass_time(50)
    assert w.states("/u/big") == {TaskState.ASSIGNED} and w.states(evicted) == {TaskState.PENDING}
    w.observe("/u/big", TaskState.RUNNING)
    w.submit("/u/more", "l", P)
    await w.look(2)
    assert w.count("draining") == 3, "all that it takes"
    error = w.world.task(job_id="/u/a").error
    assert error == "Preempted by /u/more (production over batch): its slice goes to the reservation p"
    w.confirm()
    await w.pass_time(50)
    assert w.states("/u/more") == {TaskState.ASSIGNED}
    assert len(w.made_way()) == 4 and w.chips() == 64


@pytest.mark.asyncio
async def test_what_goes_takes_no_work_is_charged_once_and_names_what_it_goes_for() -> None:
    w = Reserved(16)
    await w.run("/u/a", "s", B)
    w.submit("/u/b", "s", B)
    await w.pass_time(30)
    assert w.states("/u/b") == {TaskState.ASSIGNED}, "it has not begun"
    uids = {name: w.world.task(job_id=name).attempt_uid for name in ("/u/a", "/u/b")}
    w.submit("/u/big", "m", P)
    w.submit("/u/also", "s", B)
    await w.look(2)
    assert w.count("draining") == 2
    assert not any(worker.placeable for worker in w.world.model.workers.values())
    charges = {name: w.world.model.attempts[uid].charge for name, uid in uids.items()}
    assert charges == {"/u/a": Charge.PREEMPTION, "/u/b": Charge.NONE}
    assert [w.world.task(i, "/u/a").preemption_count for i in (0, 1)] == [1, 1]
    assert w.world.audit.count("task_preempted /u/a/0") == 1
    assert not w.machines.deleted, "their machines go when their work has ended"
    w.confirm()
    await w.look(2)
    assert len(w.machines.deleted) == 2


@pytest.mark.asyncio
async def test_a_used_up_preemption_budget_ends_the_job() -> None:
    w = Reserved(16)
    await w.run("/u/a", "m", B, max_retries_preemption=0)
    w.submit("/u/big", "m", P)
    w.submit("/u/s", "s", P)
    await w.look(3)
    w.confirm()
    await w.pass_time(30)
    assert w.world.job("/u/a").state in JOB_TERMINAL and w.world.job("/u/a").state is not JobState.SUCCEEDED


@pytest.mark.asyncio
async def test_what_was_evicted_neither_comes_back_nor_evicts_while_the_other_runs() -> None:
    w = Reserved(16)
    w.machines.script("l", [Outcome(ready_s=60)])
    w.machines.script("m", [Outcome(ready_s=120, delete_s=40)])
    w.machines.script("s", [Outcome(ready_s=5, delete_s=25)])
    await w.run("/u/a", "s", B)
    await w.run("/u/b", "s", B)
    w.submit("/u/big", "m", P)
    await w.look(2)
    w.confirm()
    await w.pass_time(600)
    w.observe("/u/big", TaskState.RUNNING)
    await w.pass_time(600)
    assert w.states("/u/big") == {TaskState.RUNNING}
    assert len(w.made_way()) == 2 and [s.scale_group for s in w.machines.created] == ["s", "s", "m"]
    assert w.said("reservation_short") and w.scaler.last.plan.decisions["s"].word == "blocked"
    w.observe("/u/big", TaskState.SUCCEEDED)
    w.queue.tell()
    await w.pass_time(200)
    assert w.states("/u/a") | w.states("/u/b") == {TaskState.ASSIGNED}, "the idle slice goes for what waits"
    assert w.chips() <= 16


@pytest.mark.asyncio
async def test_nobody_goes_for_an_equal_band_or_for_batch_and_all_say_why() -> None:
    w = Reserved(16)
    await w.run("/u/a", "s", P)
    await w.run("/u/b", "s", B)
    w.submit("/u/same", "m", P)
    w.submit("/u/low", "m", B)
    await w.pass_time(60)
    assert not w.made_way() and w.states("/u/b") == {TaskState.RUNNING}
    assert {entry.code for entry in w.scaler.last.plan.routing.unmet} == {"reservation_short"}
    assert w.said("reservation_short") == ["pool p: 0 of 16 chips free, 16 needed"]


@pytest.mark.asyncio
async def test_a_gang_over_several_slices_and_an_operators_slice_stay() -> None:
    w = Reserved(32)
    for _ in range(2):
        await w.scaler.create_manual(w.scaler.spec(w.config.scale_groups["s"], manual=True))
    await w.pass_time(30)
    assert w.chips() == 16 and w.count("ready") == 2
    w.submit("/u/manual", "s", B)
    await w.look(2)
    assert w.states("/u/manual") == {TaskState.ASSIGNED}
    await w.run("/u/a", "s", B)
    w.submit("/u/l", "l", P)
    await w.pass_time(60)
    assert not w.made_way(), "it would take the operator's, too"
    w.submit("/u/m", "m", P)
    await w.pass_time(60)
    assert len(w.slices_of("/u/m")) <= 1


@pytest.mark.asyncio
async def test_a_gang_that_spans_slices_stays() -> None:
    w = Reserved(16)
    device = Device("tpu", "v5litepod-8", 4)
    await w.run("/u/x", "s", N)
    await w.run("/u/y", "s", N)
    for name in ("/u/x", "/u/y"):
        w.observe(name, TaskState.SUCCEEDED)
    w.world.submit("/u/wide", tasks=4, spec=job_spec(1, device=device, group_by="device-variant", band=B))
    await w.look(2)
    assert len(w.slices_of("/u/wide")) == 2
    w.submit("/u/big", "m", P)
    await w.pass_time(60)
    assert not w.made_way() and w.states("/u/wide") == {TaskState.ASSIGNED}


@pytest.mark.asyncio
async def test_what_has_changed_since_it_was_planned_stops_it() -> None:
    w = Reserved(16)
    await w.run("/u/a", "s", B)
    await w.run("/u/b", "s", B)
    w.submit("/u/big", "m", P)
    slices = sorted(w.slices_of("/u/a") | w.slices_of("/u/b"))
    claim = claim_of(w.world.job("/u/big"), P)

    def attempt(job_id: str = "/u/big", band: PriorityBand = P) -> int:
        with w.world.batch() as o:
            gone = making_way.make_way(o, slices, job_id, band, claim.may_take, "p", w.world.now_ms)
            assert len(gone) in (0, 2) and bool(o.dirty) == bool(gone)
            return len(gone)

    assert not attempt(band=B), "an equal band"
    assert not attempt(job_id="/u/gone"), "nothing waits any more"
    row = w.world.model.slices[slices[1]]
    for values in ({"manual": True}, {"lifecycle": Lifecycle.FAILED}):
        with w.world.batch() as o:
            o.slices[row.slice_id] = replace(row, **values)
        assert not attempt(), values
        with w.world.batch() as o:
            o.slices[row.slice_id] = row
    assert attempt() == 2
    assert not attempt(), "they go already"


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(6))
async def test_a_busy_reservation_never_has_more_chips_and_finishes_all_work(seed: int) -> None:
    chance = random.Random(seed)
    w = Reserved(48, delay_ms=60_000)
    fails = seed % 2
    for name in CHIPS:
        well = Outcome(ready_s=chance.choice((0, 20, 60)), delete_s=chance.choice((0, 10, 30)))
        ill = chance.choices([stock_out(), quota(), Outcome(ready_s=40, fails="broken image"), well], k=6)
        w.machines.script(name, [*ill, well] if fails else [well])
    order: dict[str, PriorityBand] = {}
    for step in range(900):
        if step < 60 and chance.random() < 0.3:
            name, band = f"/u/j{step}", chance.choice((P, B, B))
            order[name] = band
            w.submit(name, chance.choice("sml"), band, max_retries_preemption=10_000)
        if chance.random() < 0.03:
            await w.scaler.close()
            w = Reserved(48, delay_ms=60_000, world=w.world, machines=w.machines, clock=w.clock)
        model = w.world.model
        for attempt in list(model.attempts.values()):
            if attempt.state in TERMINAL:
                if chance.random() < 0.7:
                    w.world.observe(attempt.uid, TaskState.KILLED, attempt.worker_id)
            elif attempt.state is TaskState.ASSIGNED:
                w.world.observe(attempt.uid, TaskState.RUNNING, attempt.worker_id)
        for name in order:
            if w.states(name) == {TaskState.RUNNING} and chance.random() < 0.1:
                w.observe(name, TaskState.SUCCEEDED)
        w.queue.tell()
        await w.pass_time(10)
        assert w.chips() <= 48, w.machines.alive
        check_invariants(model)
        for name, band in order.items():
            job = model.jobs[name]
            assert band is B or not job.preemption_count, f"{name} was evicted"
        if step >= 60 and not w.lifecycles() and all(model.jobs[name].state in JOB_TERMINAL for name in order):
            break
    else:
        raise AssertionError(f"it never came to rest: {w.lifecycles()} {w.scaler.last.plan.routing.unmet}")
    assert all(w.world.job(name).state is JobState.SUCCEEDED for name in order)
    evictions = sum(w.world.job(name).preemption_count / w.world.job(name).num_tasks for name in order)
    most = 4 * sum(band is P for band in order.values())
    assert fails or evictions <= most, "the largest slice is made of at most four of the smallest"
