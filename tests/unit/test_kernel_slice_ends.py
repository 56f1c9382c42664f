"""What the end of a slice costs those who are on it (control-plane §3.1, §1.6)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iris_controller.state.records import Charge
from iris_controller.state.slices import Lifecycle, Slice, forget, give_up
from iris_core.model.states import TaskState
from tests.unit.kernel_world import World, check_invariants
from tests.unit.test_kernel_gang import SIZE, gang, place

S = TaskState


def end_slice(world: World, order: tuple[str, ...] = ()) -> None:
    """Gives up the slice that all workers of the world are."""
    row = Slice("s1", "g", Lifecycle.READY, order or tuple(world.model.workers), world.now_ms)
    with world.batch() as o:
        o.slices["s1"] = row
    for worker_id in row.worker_ids:
        world.change_worker(worker_id, slice_id="s1")
    with world.batch() as o:
        give_up(o, row, Lifecycle.DRAINING, "autoscaler", "it goes", world.now_ms)


def charges(world: World, uids: list[str]) -> list[Charge]:
    return [world.model.attempts[uid].charge for uid in uids]


def test_what_had_begun_is_charged_and_what_was_only_assigned_is_free() -> None:
    world = World()
    world.add_worker("w")
    world.submit(tasks=2, max_retries_preemption=5)
    uids = [world.running(0), world.assign(1)]
    end_slice(world)
    assert charges(world, uids) == [Charge.PREEMPTION, Charge.NONE]
    assert [world.task(index).state for index in (0, 1)] == [S.PENDING, S.PENDING]
    assert (world.job().preemption_count, world.job().failure_count) == (1, 0)
    assert not world.model.workers["w"].placeable, "nothing more comes there"


def test_of_a_gang_one_member_pays() -> None:
    world = gang(max_retries_preemption=5)
    uids = place(world)
    end_slice(world)
    assert charges(world, uids) == [Charge.PREEMPTION] + [Charge.NONE] * (SIZE - 1)
    assert [world.model.attempts[uid].state for uid in uids] == [S.PREEMPTED] + [S.COSCHED_FAILED] * (SIZE - 1)
    assert {world.task(index).state for index in range(SIZE)} == {S.PENDING}
    assert world.job().preemption_count == 1


@given(
    began=st.lists(st.sampled_from([S.ASSIGNED, S.BUILDING, S.RUNNING]), min_size=SIZE, max_size=SIZE),
    order=st.permutations(range(SIZE)),
    budget=st.integers(0, 1),
)
def test_what_a_gang_pays_does_not_depend_on_the_order_of_its_workers(
    began: list[TaskState], order: list[int], budget: int
) -> None:
    def ended(order: list[int]) -> tuple[list[Charge], list[TaskState], int]:
        world = gang(max_retries_preemption=budget)
        uids = place(world, begin=False)
        for index, state in enumerate(began):
            if state is not S.ASSIGNED:
                assert world.observe(uids[index], state, f"w{index}")
        end_slice(world, tuple(f"w{index}" for index in order))
        check_invariants(world.model)
        states = [world.last_task(i).state for i in range(SIZE)]
        paid = sum(world.last_task(i).preemption_count for i in range(SIZE))
        return [world.last_attempt(uid).charge for uid in uids], states, paid

    charges, states, paid = ended(order)
    begun = [index for index, state in enumerate(began) if state is not S.ASSIGNED]
    assert [index for index, charge in enumerate(charges) if charge is not Charge.NONE] == begun[:1]
    assert paid == len(begun[:1])
    if begun and not budget:
        assert states == [S.PREEMPTED if index == begun[0] else S.COSCHED_FAILED for index in range(SIZE)]
    else:
        assert states == [S.PENDING] * SIZE
    assert (charges, states, paid) == ended(sorted(order))


def test_what_the_machines_still_held_when_they_went_is_lost_with_them() -> None:
    world = World()
    world.add_worker("w", slice_id="s1")
    world.add_worker("other")
    world.submit(tasks=2, max_retries_preemption=5)
    uids = [world.running(0), world.assign(1)]
    row = Slice("s1", "g", Lifecycle.READY, ("w",), world.now_ms)
    with world.batch() as o:
        o.slices["s1"] = row
        forget(o, row, "autoscaler", "the provider no longer has it", world.now_ms)
    ended = [world.last_attempt(uid) for uid in uids]
    assert [attempt.state for attempt in ended] == [S.WORKER_FAILED, S.WORKER_FAILED]
    assert [attempt.charge for attempt in ended] == [Charge.PREEMPTION, Charge.NONE]
    assert all(attempt.finished_at_ms is not None for attempt in ended), "nobody is left to confirm it"
    assert set(world.model.workers) == {"other"} and not world.model.slices
    assert [world.task(index).state for index in (0, 1)] == [S.PENDING, S.PENDING]
    check_invariants(world.model)
