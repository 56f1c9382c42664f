"""`--reserve` and the autoscaler: a slice is asked for to see whether the accelerator can be had, and the work follows it (control-plane §3.8)."""

from __future__ import annotations

import pytest

from iris_controller.autoscaling.demand import demand_for, probed
from iris_controller.autoscaling.verdict import verdicts
from iris_controller.scheduling.explain import ClusterView, Verdict, explain
from iris_controller.scheduling.funnel import FleetView
from iris_controller.scheduling.never import Candidate, Judgements
from iris_core.model.constraints import Constraint, Op
from iris_core.model.resources import Device
from tests.unit.autoscaler_world import AutoscalerWorld, group

H100 = Device("gpu", "h100", 8)
RESERVED = (Constraint("availability:h100", Op.EXISTS),)


def fleet() -> AutoscalerWorld:
    return AutoscalerWorld(
        group("gpu-eu", device=H100, zone="eu-a", region="eu", priority=1),
        group("gpu-us", device=H100, zone="us-a", region="us", priority=2),
        group("cpu-eu", zone="eu-a", region="eu", priority=9),
        group("cpu-us", zone="us-a", region="us", priority=1),
        delay_ms=30_000,
    )


@pytest.mark.asyncio
async def test_one_slice_is_made_to_see_whether_it_can_be_had_and_the_work_goes_where_it_was() -> None:
    w = fleet()
    for n in range(3):
        w.world.submit(f"/u/j{n}", cpu=3, constraints=RESERVED)
    await w.look(2)
    assert [made.scale_group for made in w.machines.created] == ["gpu-eu"], "one for all who ask"
    await w.pass_time(60)
    assert {made.scale_group for made in w.machines.created} == {"gpu-eu", "cpu-eu"}, "never where it was not obtained"
    placed = {w.world.task(0, f"/u/j{n}").worker_id for n in range(3)}
    assert all("-eu-" in worker for worker in placed)


@pytest.mark.asyncio
async def test_work_that_waits_for_its_probe_is_never_said_never_to_fit() -> None:
    """It would be run in the end: whoever reads "never" cancels what only has to wait."""
    w = fleet()
    w.world.submit(cpu=3, constraints=RESERVED)
    job = w.world.model.jobs["/u/job"]

    def said() -> tuple[Verdict, dict[str, tuple[str, str]]]:
        work, probes = probed(demand_for(job, 1), w.world.model.obtained)
        groups = verdicts(work, w.scaler.states(), probes=probes)
        found = explain(ClusterView.of(w.world.model, ((job, 1),)), job, 1, groups)
        in_vain = Judgements().of(
            [Candidate(job, 1, "no worker matches")],
            FleetView.of(w.world.model),
            w.scaler.states(),
            w.world.model.obtained.copy(),
        )
        assert (found.verdict is Verdict.NEVER_FITS) == bool(in_vain.jobs)
        return found.verdict, {verdict.group: (verdict.word, verdict.reason) for verdict in groups}

    w.world.add_worker("old", cpu=8)
    verdict, groups = said()
    assert verdict is Verdict.WAITS
    assert groups == {
        "gpu-eu": ("available", "a slice of it shows whether h100 can be had; it may make 4 more"),
        "gpu-us": ("available", "a slice of it shows whether h100 can be had; it may make 4 more"),
        "cpu-eu": ("no_matching_group", "it does not meet device-type=gpu device-variant=h100"),
        "cpu-us": ("no_matching_group", "it does not meet device-type=gpu device-variant=h100"),
    }
    await w.look(2)
    await w.pass_time(40)
    assert w.world.model.obtained.zones("h100") == ["eu-a"]
    _, groups = said()
    assert groups["cpu-eu"][0] == "available", "obtained: now it is for the machines of that zone"
    assert groups["cpu-us"] == ("no_matching_group", "it does not meet zone=eu-a")


@pytest.mark.asyncio
async def test_no_slice_is_made_to_find_out_about_a_zone_that_it_is_not_in() -> None:
    w = AutoscalerWorld(group("gpu", device=H100), group("cpu", zone="eu-a"))
    w.world.submit(cpu=3, constraints=RESERVED)
    await w.look(2)
    await w.pass_time(60)
    assert w.machines.created == []


@pytest.mark.asyncio
async def test_a_probe_keeps_to_the_places_the_work_may_run_in() -> None:
    w = fleet()
    w.world.submit(cpu=3, constraints=(*RESERVED, Constraint("region", Op.EQ, ("us",))))
    await w.look(2)
    assert [made.scale_group for made in w.machines.created] == ["gpu-us"]


@pytest.mark.asyncio
async def test_a_probe_that_is_idle_goes_and_is_not_made_again_while_nobody_asks() -> None:
    w = fleet()
    w.world.submit(cpu=3, constraints=RESERVED)
    await w.look(2)
    await w.pass_time(20)
    task = w.world.task()
    assert task.worker_id
    with w.world.batch() as o:
        from iris_controller.state import kernel

        kernel.cancel(o, "/u/job", "x", "", w.world.now_ms)
        kernel.worker_lost(o, task.worker_id, "stopped", w.world.now_ms)
    w.queue.tell()
    await w.pass_time(300)
    made = len(w.machines.created)
    assert not w.lifecycles()
    await w.pass_time(60)
    assert len(w.machines.created) == made
