"""The scheduler's own preemption in the kernel: evict and place together, charge what had begun, dispatch when the room is really free."""

from __future__ import annotations

from typing import Any

import pytest

from iris_controller.scheduling.order import explain_task
from iris_controller.state import kernel
from iris_controller.state.desired import StopReason, desired_for, withheld
from iris_controller.state.observed import Observed
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import Attempt, Charge
from iris_core.model.bands import PriorityBand
from iris_core.model.states import JobState, TaskState
from tests.unit.kernel_world import World, check_invariants

S = TaskState
PRODUCTION = PriorityBand.PRODUCTION
BATCH = PriorityBand.BATCH
LOW, HIGH = "/u/low", "/v/high"


def world_with_a_victim(*, begun: bool = True, **values: Any) -> tuple[World, str]:
    """One full worker with a BATCH task on it, and a PRODUCTION task that waits."""
    world = World()
    world.add_worker(cpu=4)
    world.submit(LOW, cpu=4, band=BATCH, **values)
    world.submit(HIGH, cpu=4, band=PRODUCTION)
    uid = world.running(job_id=LOW) if begun else world.assign(job_id=LOW)
    return world, uid


def displace(
    world: World,
    victims: list[tuple[str, int, str]],
    job_id: str = HIGH,
    band: PriorityBand = PRODUCTION,
    on: str = "w",
) -> list[Attempt]:
    with world.batch() as o:
        return kernel.displace(o, job_id, [(0, on, world.uid())], victims, band, world.now_ms)


@pytest.mark.parametrize("begun", [False, True])
def test_the_victim_goes_back_to_the_queue_and_the_other_takes_its_place_in_one_batch(begun: bool) -> None:
    world, uid = world_with_a_victim(begun=begun)
    (placed,) = displace(world, [(LOW, 0, uid)])
    victim, task = world.task(job_id=LOW), world.task(job_id=HIGH)
    assert (victim.state, victim.worker_id, victim.preemption_count) == (S.PENDING, "", int(begun))
    assert victim.error == f"Preempted by {HIGH}/0 (production over batch)"
    assert (task.state, task.attempt_uid, task.band, placed.displaces) == (S.ASSIGNED, placed.uid, PRODUCTION, (uid,))
    gone = world.model.attempts[uid]
    assert (gone.state, gone.finished_at_ms, gone.stop_reason) == (S.PREEMPTED, None, StopReason.PREEMPTED)
    assert gone.charge is (Charge.PREEMPTION if begun else Charge.NONE)
    assert f"task_preempted {LOW}/0" in world.audit
    check_invariants(world.model)


def test_the_audit_line_names_who_evicted_whom() -> None:
    world, uid = world_with_a_victim()
    o = Overlay(world.model)
    assert kernel.displace(o, HIGH, [(0, "w", world.uid())], [(LOW, 0, uid)], PRODUCTION, world.now_ms)
    (event,) = [event for event in o.audit if event.action == "task_preempted"]
    assert (event.entity, event.trigger) == (f"{LOW}/0", f"{HIGH}/0")
    assert event.values["worker"] == "w" and event.values["state"] == "pending" and event.values["band"] == "batch"


def test_a_victim_without_budget_left_ends_as_preempted() -> None:
    world, uid = world_with_a_victim(max_retries_preemption=0)
    displace(world, [(LOW, 0, uid)])
    assert world.last_task(job_id=LOW).state is S.PREEMPTED
    assert world.job(LOW).state is JobState.WORKER_FAILED
    check_invariants(world.model)


def test_one_that_had_only_been_assigned_does_not_need_budget() -> None:
    world, uid = world_with_a_victim(begun=False, max_retries_preemption=0)
    displace(world, [(LOW, 0, uid)])
    assert world.task(job_id=LOW).state is S.PENDING and world.task(job_id=LOW).preemption_count == 0


def test_what_was_placed_is_dispatched_when_the_worker_says_that_the_victim_is_gone() -> None:
    world, uid = world_with_a_victim()
    (placed,) = displace(world, [(LOW, 0, uid)])
    assert withheld(world.model, placed)
    assert explain_task(world.model, world.task(job_id=HIGH)) == f"placed on w, waiting for {LOW}/0 to end there"
    assert [(d.uid, d.want) for d in desired_for(world.model, "w")] == [(uid, "stop")]
    assert world.observe(uid, S.KILLED)
    assert explain_task(world.model, world.task(job_id=HIGH)) == ""
    assert "w" in world.changes.dispatch
    assert not withheld(world.model, placed)
    assert [(d.uid, d.want) for d in desired_for(world.model, "w")] == [(placed.uid, "run")]
    usage = world.model.usage_of("w")
    assert (usage.cpu_millicores, usage.tasks) == (4_000, 1)


def test_what_is_ending_on_the_worker_already_is_waited_for_too() -> None:
    world = World()
    world.add_worker(cpu=4)
    world.submit(LOW, 2, cpu=2, band=BATCH)
    world.submit("/u/other", cpu=1, band=BATCH)
    world.submit(HIGH, cpu=4, band=PRODUCTION)
    uids = [world.running(0, LOW), world.running(1, LOW)]
    with world.batch() as o:
        kernel.cancel(o, LOW, "ann", "", world.now_ms)
    (placed,) = displace(world, [])
    assert placed.displaces == tuple(uids)
    for uid in uids:
        assert withheld(world.model, placed)
        assert world.observe(uid, S.KILLED)
    assert not withheld(world.model, placed)


def test_the_loss_of_the_worker_costs_a_withheld_attempt_nothing() -> None:
    world, uid = world_with_a_victim()
    (placed,) = displace(world, [(LOW, 0, uid)])
    with world.batch() as o:
        kernel.worker_lost(o, "w", "gone", world.now_ms)
    task = world.task(job_id=HIGH)
    assert (task.state, task.preemption_count) == (S.PENDING, 0)
    assert world.last_attempt(placed.uid).charge is Charge.NONE
    assert world.task(job_id=LOW).preemption_count == 1, "the victim is not charged twice"
    assert not world.model.attempts
    check_invariants(world.model)


def test_a_withheld_attempt_that_is_cancelled_is_told_to_stop_and_confirmed() -> None:
    world, uid = world_with_a_victim()
    (placed,) = displace(world, [(LOW, 0, uid)])
    with world.batch() as o:
        kernel.cancel(o, HIGH, "ann", "", world.now_ms)
    assert {(d.uid, d.want) for d in desired_for(world.model, "w")} == {(uid, "stop"), (placed.uid, "stop")}
    assert world.observe(placed.uid, S.MISSING)
    assert placed.uid not in world.model.attempts


@pytest.mark.parametrize("why", ["same band", "other attempt", "over", "job gone", "worker closed", "not pending"])
def test_nothing_is_evicted_for_what_cannot_be_placed_and_nothing_placed_for_what_cannot_be_evicted(why: str) -> None:
    world, uid = world_with_a_victim()
    victims, band, job_id = [(LOW, 0, uid)], PRODUCTION, HIGH
    if why == "same band":
        band = BATCH
    elif why == "other attempt":
        victims = [(LOW, 0, "0" * 16)]
    elif why == "over":
        assert world.observe(uid, S.SUCCEEDED)
    elif why == "job gone":
        job_id = "/u/nobody"
    elif why == "worker closed":
        world.change_worker(placeable=False)
    else:
        world.add_worker("w2")
        world.assign(job_id=HIGH, worker_id="w2")
    o = Overlay(world.model)
    assert kernel.displace(o, job_id, [(0, "w", world.uid())], victims, band, world.now_ms) == []
    assert not o.dirty and not o.audit


def gangs() -> tuple[World, list[tuple[str, int, str]]]:
    """A BATCH gang of 2 that runs, and a PRODUCTION gang of 2 that waits."""
    world = World()
    for index in range(2):
        world.add_worker(f"w{index}", cpu=4, attributes={"slice": "s"})
    world.submit(LOW, 2, cpu=4, band=BATCH, group_by="slice")
    world.submit(HIGH, 2, cpu=4, band=PRODUCTION, group_by="slice")
    with world.batch() as o:
        placed = kernel.assign_gang(o, LOW, [(i, f"w{i}", world.uid()) for i in range(2)], world.now_ms)
    for attempt in placed:
        world.observe(attempt.uid, S.RUNNING, attempt.worker_id)
    return world, [(LOW, attempt.task_index, attempt.uid) for attempt in placed]


def test_a_gang_evicts_a_gang_whole_and_each_member_waits_for_its_own_worker() -> None:
    world, victims = gangs()
    with world.batch() as o:
        places = [(i, f"w{i}", world.uid()) for i in range(2)]
        placed = kernel.displace(o, HIGH, places, victims, PRODUCTION, world.now_ms)
    assert [a.displaces for a in placed] == [(uid,) for _, _, uid in victims]
    assert {world.task(i, LOW).state for i in range(2)} == {S.PENDING}
    assert [world.task(i, LOW).preemption_count for i in range(2)] == [1, 1]
    assert world.task(1, LOW).error == f"Preempted by {HIGH}/1 (production over batch)"
    assert world.observe(victims[0][2], S.KILLED, "w0")
    assert [withheld(world.model, a) for a in placed] == [False, True]
    check_invariants(world.model)


def test_a_gang_whose_budget_is_used_up_ends_whole() -> None:
    world, _ = gangs()
    with world.batch() as o:
        kernel.cancel(o, LOW, "ann", "", world.now_ms)
    for uid in list(world.model.attempts):
        world.observe(uid, S.KILLED, world.model.attempts[uid].worker_id)
    world.submit("/u/frail", 2, cpu=4, band=BATCH, group_by="slice", max_retries_preemption=0)
    with world.batch() as o:
        frail = kernel.assign_gang(o, "/u/frail", [(i, f"w{i}", world.uid()) for i in range(2)], world.now_ms)
    world.observe(frail[0].uid, S.RUNNING, "w0")
    with world.batch() as o:
        places = [(i, f"w{i}", world.uid()) for i in range(2)]
        assert kernel.displace(
            o, HIGH, places, [("/u/frail", a.task_index, a.uid) for a in frail], PRODUCTION, world.now_ms
        )
    assert [world.last_task(i, "/u/frail").state for i in range(2)] == [S.PREEMPTED, S.COSCHED_FAILED]
    assert world.job("/u/frail").state is JobState.WORKER_FAILED
    check_invariants(world.model)


@pytest.mark.parametrize("why", ["one member", "solo preemptor", "one place"])
def test_a_gang_is_never_broken(why: str) -> None:
    world, victims = gangs()
    job_id, places = HIGH, [(i, f"w{i}", world.uid()) for i in range(2)]
    if why == "one member":
        victims = victims[:1]
    elif why == "one place":
        places = places[:1]
    else:
        world.submit("/v/solo", cpu=4, band=PRODUCTION)
        job_id, places = "/v/solo", places[:1]
    o = Overlay(world.model)
    assert kernel.displace(o, job_id, places, victims, PRODUCTION, world.now_ms) == []
    assert not o.dirty


def test_after_a_restart_it_is_still_withheld(tmp_path: Any) -> None:
    import sqlite3

    from iris_controller.store import encode
    from iris_controller.store.database import migrate
    from iris_controller.store.load import load_model

    database = sqlite3.connect(tmp_path / "db", isolation_level=None)
    try:
        database.execute("PRAGMA foreign_keys=ON")
        migrate(database, 0)
        world = World()

        def store(o: Overlay) -> None:
            for sql, values in encode.statements(o, world.now_ms):
                database.execute(sql, values)

        world.before_commit = store
        world.add_worker(cpu=4)
        world.submit(LOW, cpu=4, band=BATCH)
        world.submit(HIGH, cpu=4, band=PRODUCTION)
        (placed,) = displace(world, [(LOW, 0, world.running(job_id=LOW))])
        loaded = load_model(database)
        assert loaded.attempts[placed.uid] == placed
        assert withheld(loaded, loaded.attempts[placed.uid])
        assert not loaded.occupants.any_below(PRODUCTION.rank())
        assert loaded.occupants.ending == world.model.occupants.ending
    finally:
        database.close()


def test_observations_of_a_withheld_attempt_are_no_truth_but_do_no_harm() -> None:
    world, uid = world_with_a_victim()
    (placed,) = displace(world, [(LOW, 0, uid)])
    with world.batch() as o:
        kernel.observe(o, "w", Observed(placed.uid, S.MISSING), world.now_ms)
    assert world.task(job_id=HIGH).state is S.PENDING and world.task(job_id=HIGH).preemption_count == 0
