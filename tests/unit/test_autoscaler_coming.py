"""A slice that is on its way shows wherever it is asked why its work waits."""

from __future__ import annotations

import pytest

from iris_controller.autoscaling.coming import coming
from iris_controller.autoscaling.demand import demand_for
from iris_controller.autoscaling.verdict import verdicts
from iris_controller.scheduling.order import explain_pending
from iris_core.model.resources import Device
from providers.fake.machines import Outcome
from tests.unit.autoscaler_world import AutoscalerWorld, group, tpu_group
from tests.unit.kernel_world import JOB, job_spec

pytestmark = pytest.mark.asyncio

V5 = Device("tpu", "v5litepod-16", 4)


def _why(w: AutoscalerWorld, job_id: str = JOB) -> str:
    return explain_pending(w.world.model, job_id)


def _verdict(w: AutoscalerWorld, name: str) -> str:
    model, states = w.world.model, w.scaler.states()
    demand = demand_for(model.jobs[JOB], len(model.pending[JOB]))
    under_way = coming(model.slices.values(), states)
    return next(v.reason for v in verdicts(demand, states, under_way) if v.group == name)


async def test_a_gang_is_told_of_the_slice_that_is_made_for_it_until_it_runs() -> None:
    w = AutoscalerWorld(tpu_group(max_slices=2), group())
    w.machines.script("tpu", [Outcome(answer_s=5, ready_s=30)])
    w.world.submit(tasks=4, spec=job_spec(1, device=V5, group_by="tpu-name"))
    await w.look(2)
    assert _why(w).startswith("a slice of tpu is being made for it (asked for); ")
    await w.pass_time(10)
    line = "a slice of tpu is being made for it (booting since 1970-01-01 00:16:50 UTC); "
    assert _why(w).startswith(line) and len(_why(w)) > len(line), "and why no worker that is there takes it"
    assert _verdict(w, "tpu") == ("1 slice is being made (booting since 1970-01-01 00:16:50 UTC); it may make 1 more")
    assert "being made" not in _verdict(w, "cpu")
    await w.pass_time(60)
    assert not w.world.model.pending and not w.world.model.coming
    assert _why(w) == ""


async def test_who_gets_nothing_of_what_is_made_is_told_nothing() -> None:
    w = AutoscalerWorld(tpu_group(max_slices=1))
    w.machines.script("tpu", [Outcome(ready_s=60)])
    gang = job_spec(1, device=V5, group_by="tpu-name")
    w.world.submit(tasks=4, spec=gang)
    w.world.submit("/u/second", tasks=4, spec=gang)
    await w.look(3)
    assert "is being made for it (booting since" in _why(w)
    assert "being made" not in _why(w, "/u/second")


async def test_several_slices_are_told_together_and_what_stays_the_same_is_told_once() -> None:
    w = AutoscalerWorld(group(max_slices=3))
    w.machines.script("cpu", [Outcome(ready_s=60), Outcome(ready_s=60), Outcome(hangs=True)])
    w.world.submit(tasks=3, cpu=3)
    await w.look(3)
    assert _why(w).startswith(
        "slices of cpu are being made, also for it (asked for, booting; the first since 1970-01-01 00:16:40 UTC); "
    )
    assert _verdict(w, "cpu") == (
        "3 slices are being made (1 asked for, 2 booting; the first since 1970-01-01 00:16:40 UTC)"
    )
    told: list[set[str]] = []
    w.world.before_commit = lambda o: told.append(set(o.coming))
    await w.look()
    assert not any(told)
