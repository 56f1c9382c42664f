"""A submission that nothing could ever run is told so at once, and nothing else is."""

from __future__ import annotations

from iris_controller.rpc.feasibility import KEPT_S, Feasibility
from iris_core.model.constraints import parse_constraint
from iris_core.model.resources import Device
from tests.unit.autoscaler_world import group, tpu_group
from tests.unit.kernel_world import GB, World, job_spec


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_no_group_and_no_worker_could_host_is_said() -> None:
    w = World()
    known = Feasibility(w.model, [group(), group("off", max_slices=0, cpu_millicores=64_000)])
    assert known.doubts(job_spec(4), 1) == []
    assert known.doubts(job_spec(64), 1) == [
        "nothing here could run it: asks for 64 cores; a machine of cpu has 4 cores, 16GB"
    ]
    found = Feasibility(w.model, [group(memory_bytes=24_683_656 * 1024)])
    assert found.doubts(job_spec(64), 1) == [
        "nothing here could run it: asks for 64 cores; a machine of cpu has 4 cores, 25.3GB"
    ]
    far = job_spec(1, constraints=(parse_constraint("zone=mars"),))
    assert known.doubts(far, 1) == ["nothing here could run it: no scale group has zone=mars"]


def test_a_gang_larger_than_any_slice_is_said() -> None:
    w = World()
    known = Feasibility(w.model, [tpu_group(num_vms=4)])
    gang = job_spec(1, device=Device("tpu", "v5litepod-16", 4), group_by="tpu-name")
    assert known.doubts(gang, 4) == []
    said = known.doubts(gang, 5)
    assert said == [
        "nothing here could run it: no scale group has slices for a gang of 5: tpu has 4 machines in a slice"
    ]


def test_a_worker_of_no_group_counts_too_and_an_answer_is_kept_for_a_while_only() -> None:
    w, clock = World(), Clock()
    known = Feasibility(w.model, [group()], clock)
    large = job_spec(32, memory=64 * GB)
    assert known.doubts(large, 1)
    w.add_worker("big", cpu=32, memory=64 * GB)
    assert known.doubts(large, 1), "the answer of a moment ago"
    clock.now += KEPT_S + 1
    assert known.doubts(large, 1) == []
    gang = job_spec(32, group_by="rack")
    w.change_worker("big", attributes={"rack": "a"})
    assert known.doubts(gang, 1) == [] and known.doubts(gang, 2)


def test_workers_without_the_attribute_that_a_gang_shares_are_no_group() -> None:
    w = World()
    known = Feasibility(w.model, [group()])
    for name in ("a", "b", "c"):
        w.add_worker(name)
    w.change_worker("c", attributes={"rack": "r1"})
    assert known.doubts(job_spec(1, group_by="rack"), 1) == []
    assert known.doubts(job_spec(1, group_by="rack"), 2), "one of them has a rack, two have none"


def test_a_fleet_without_scale_groups_is_not_judged() -> None:
    assert Feasibility(World().model, []).doubts(job_spec(10_000), 1) == []


def test_reserved_work_is_held_against_the_accelerators_group() -> None:
    w = World()
    known = Feasibility(w.model, [tpu_group(zone="a"), group(zone="a"), group("far", zone="b", cpu_millicores=32_000)])
    asks = (parse_constraint("availability:v5litepod-16"),)
    assert known.doubts(job_spec(1, constraints=asks), 1) == []
    other = job_spec(1, constraints=(parse_constraint("availability:v4-8"),))
    assert len(known.doubts(other, 1)) == 1
    assert known.doubts(job_spec(64, constraints=asks), 1) == [
        "nothing here could run it: asks for 64 cores; a machine of tpu has 4 cores, 16GB; "
        "a machine of cpu has 4 cores, 16GB; a machine of far has 32 cores, 16GB"
    ]
    assert known.doubts(job_spec(32, constraints=asks), 1) == [
        "nothing here could run it: no zone has a scale group of v5litepod-16 and one for the work"
    ]


def test_an_accelerator_outside_every_zone_makes_no_place_for_reserved_work() -> None:
    known = Feasibility(World().model, [tpu_group(), group()])
    asks = job_spec(1, constraints=(parse_constraint("availability:v5litepod-16"),))
    assert known.doubts(asks, 1) == ["nothing here could run it: no scale group has zone"]
