"""The markers that `--reserve` asks for: where an accelerator has been obtained, every worker of the zone says so (control-plane §3.8)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from iris_controller.state import availability
from iris_controller.state.model import Model
from iris_controller.state.records import Worker
from iris_core.model.constraints import AVAILABILITY
from iris_core.model.resources import Device
from iris_core.model.states import WorkerHealth
from tests.unit.kernel_world import World, healthy_worker

H100 = Device("gpu", "H100", 8)


def put(world: World, worker_id: str, worker: Worker | None) -> None:
    """A worker comes, changes or goes, as a session or the autoscaler has it."""
    with world.batch() as o:
        before = o.worker(worker_id)
        o.workers[worker_id] = worker
        availability.mark(o, worker_id, before)


def markers(world: World, worker_id: str) -> set[str]:
    found = world.model.workers[worker_id].attributes
    return {key.removeprefix(AVAILABILITY) for key in found if key.startswith(AVAILABILITY)}


def worker(worker_id: str, zone: str, device: Device | None = None) -> Worker:
    return healthy_worker(worker_id, device=device, attributes={"zone": zone, "own": 1})


def test_a_zone_is_marked_from_its_first_accelerator_to_its_last() -> None:
    world = World()
    put(world, "cpu", worker("cpu", "a"))
    put(world, "far", worker("far", "b"))
    assert markers(world, "cpu") == set()
    put(world, "one", worker("one", "a", H100))
    put(world, "two", worker("two", "a", H100))
    assert markers(world, "cpu") == markers(world, "one") == {"h100"} and markers(world, "far") == set()
    put(world, "late", worker("late", "a"))
    assert markers(world, "late") == {"h100"}
    for worker_id, left in (("one", {"h100"}), ("two", set())):
        with world.batch() as o:
            before = world.model.workers[worker_id]
            o.set_worker(before, health=WorkerHealth.DEAD)
            availability.mark(o, worker_id, before)
        assert markers(world, "cpu") == left
    assert world.model.workers["cpu"].attributes == {"zone": "a", "own": 1}


def test_what_asks_for_a_marker_is_placed_in_such_a_zone_and_waits_until_there_is_one() -> None:
    from iris_core.model.constraints import Constraint, Op

    world = World()
    put(world, "cpu", worker("cpu", "a"))
    put(world, "far", worker("far", "b"))
    world.submit(constraints=(Constraint("availability:h100", Op.EXISTS),))
    assert world.plan() == []
    put(world, "gpu", worker("gpu", "b", H100))
    assert [placed[2] for placed in world.plan()] == ["far"]


ZONES = ("", "a", "b")
DEVICES = (None, H100, Device("tpu", "v4-8", 4), Device("gpu", "", 1))


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 4), st.booleans()), max_size=4),
        max_size=12,
    )
)
def test_markers_always_are_what_a_recount_says(batches: list[list[tuple[int, int, int, bool]]]) -> None:
    world = World()
    for batch in batches:
        with world.batch() as o:
            for number, zone, device, dead in batch:
                name = f"w{number}"
                before = o.worker(name)
                if device == len(DEVICES):
                    o.workers[name] = None
                else:
                    made = (
                        worker(name, ZONES[zone], DEVICES[device])
                        if zone
                        else healthy_worker(name, device=DEVICES[device])
                    )
                    o.workers[name] = replace(made, health=WorkerHealth.DEAD if dead else WorkerHealth.HEALTHY)
                availability.mark(o, name, before)
        check(world.model)
        again = Model()
        again.load(
            (),
            (),
            (),
            [replace(w, attributes=availability.without_markers(w.attributes)) for w in world.model.workers.values()],
        )
        assert again.workers == world.model.workers, "a restart finds the same"


def check(model: Model) -> None:
    for found in model.workers.values():
        zone = availability.zone_of(found)
        wanted = {
            where[1]
            for other in model.workers.values()
            if zone and (where := availability.place(other)) and where[0] == zone
        }
        assert {k.removeprefix(AVAILABILITY) for k in found.attributes if k.startswith(AVAILABILITY)} == wanted
