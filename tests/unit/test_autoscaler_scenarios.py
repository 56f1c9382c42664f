"""The autoscaler over hours of injected time: from nothing and back, and everything a provider can do wrong (targets R19)."""

from __future__ import annotations

import asyncio

import pytest

from iris_core.contracts import MachinesFailed, SliceInfo, SliceState, VmInfo, VmState
from iris_core.model.resources import Device
from iris_core.model.states import TaskState
from providers.fake.machines import FakeMachines, Outcome, quota, stock_out
from tests.unit.autoscaler_world import AutoscalerWorld, calm, group, tpu_group
from tests.unit.kernel_world import job_spec

pytestmark = pytest.mark.asyncio


async def test_from_zero_and_back() -> None:
    w = AutoscalerWorld(group(max_slices=2), delay_ms=60_000)
    await w.look(2)
    assert not w.machines.created
    w.world.submit(cpu=3)
    await w.look(3)
    assert [s.scale_group for s in w.machines.created] == ["cpu"]
    slice_id = w.machines.created[0].slice_id
    assert slice_id.startswith("cpu-") and len(slice_id) == len("cpu-") + 8
    await w.pass_time(20)
    assert w.lifecycles() == {slice_id: "ready"}
    task = w.world.task()
    assert (task.state, task.worker_id) == (TaskState.ASSIGNED, f"{slice_id}-w-0")
    w.world.observe(task.attempt_uid, TaskState.RUNNING, task.worker_id)
    await w.pass_time(300)
    assert w.count("ready") == 1 and len(w.machines.created) == 1
    w.world.observe(task.attempt_uid, TaskState.SUCCEEDED, task.worker_id)
    w.queue.tell()
    await w.look()
    await w.pass_time(50)
    assert w.count("ready") == 1, "idle for less than the delay"
    await w.pass_time(30)
    assert not w.lifecycles() and not w.machines.alive
    assert not w.world.model.workers
    assert w.said("scale_down", "pending") and w.said("scale_down", "completed")
    assert f"slice_pruned {slice_id}" in w.world.audit and f"slice_ready {slice_id}" in w.world.audit
    assert f"worker_pruned {slice_id}-w-0" in w.world.audit


async def test_a_slice_whose_task_is_being_set_up_is_busy_and_the_clock_starts_when_it_ends() -> None:
    w = AutoscalerWorld(group(), delay_ms=30_000)
    w.world.submit(cpu=3)
    await w.look(3)
    await w.pass_time(20)
    task = w.world.task()
    w.world.observe(task.attempt_uid, TaskState.BUILDING, task.worker_id)
    await w.pass_time(600)
    assert w.count("ready") == 1 and not w.said("scale_down")
    w.world.observe(task.attempt_uid, TaskState.SUCCEEDED, task.worker_id)
    w.queue.tell()
    await w.look()
    await w.pass_time(20)
    assert w.count("ready") == 1
    await w.pass_time(30)
    assert not w.lifecycles()


async def test_a_task_between_two_looks_begins_the_idle_time_anew() -> None:
    w = AutoscalerWorld(group(buffer_slices=0), delay_ms=30_000)
    w.world.submit(cpu=3)
    await w.look(3)
    await w.pass_time(20)
    task = w.world.task()
    w.world.observe(task.attempt_uid, TaskState.SUCCEEDED, task.worker_id)
    w.queue.tell()
    await w.look()
    await w.pass_time(25)
    w.world.submit("/u/short", cpu=1)
    w.world.plan()
    w.queue.tell()
    short = w.world.task(job_id="/u/short")
    w.world.observe(short.attempt_uid, TaskState.SUCCEEDED, short.worker_id)
    w.queue.tell()
    await w.pass_time(10)
    assert w.count("ready") == 1
    await w.pass_time(60)
    assert not w.lifecycles()


async def test_a_buffer_is_kept_beyond_what_is_busy() -> None:
    w = AutoscalerWorld(group(buffer_slices=1, max_slices=3))
    await w.look(3)
    await w.pass_time(20)
    assert w.count("ready") == 1
    w.world.submit(cpu=4)
    await w.pass_time(40)
    assert w.count("ready") == 2, "one busy, one to spare"
    await w.pass_time(3600)
    assert w.count("ready") == 2


async def test_a_gang_takes_one_whole_slice() -> None:
    w = AutoscalerWorld(tpu_group(max_slices=3), group())
    device = Device("tpu", "v5litepod-16", 4)
    w.world.submit(tasks=4, spec=job_spec(1, device=device, group_by="tpu-name"))
    await w.look(3)
    await w.pass_time(30)
    assert [s.scale_group for s in w.machines.created] == ["tpu"]
    assert w.count("ready") == 1


async def test_a_stock_out_backs_off_doubling_and_a_ready_slice_forgives() -> None:
    w = AutoscalerWorld(group())
    w.machines.script("cpu", [stock_out(), stock_out(), stock_out(), Outcome()])
    w.world.submit(cpu=3)
    await w.look(2)
    row = w.world.model.scaling_groups["cpu"]
    assert (row.consecutive_failures, row.backoff_until_ms) == (1, w.world.now_ms + 10_000)
    assert row.failure_reason == "There is no more capacity in the zone"
    assert len(w.machines.created) == 1
    await w.pass_time(10)
    assert len(w.machines.created) == 2
    await w.pass_time(10)
    assert len(w.machines.created) == 2, "the second pause is twice as long"
    await w.pass_time(10)
    assert len(w.machines.created) == 3
    await w.pass_time(60)
    assert w.count("ready") == 1
    assert w.world.model.scaling_groups["cpu"].consecutive_failures == 0
    assert len(w.said("backoff_triggered")) == 3


async def test_a_quota_blocks_for_5_minutes_doubling_to_40_and_success_clears_it() -> None:
    w = AutoscalerWorld(group())
    w.machines.script("cpu", [quota("Quota 'CPUS' exceeded")] * 5 + [Outcome()])
    w.world.submit(cpu=3)
    await w.look(2)
    tried = [w.world.now_ms]
    for minutes in (5, 10, 20, 40, 40):
        before = len(w.machines.created)
        row = w.world.model.scaling_groups["cpu"]
        assert (row.quota_reason, row.consecutive_failures) == ("Quota 'CPUS' exceeded", 0)
        assert row.quota_exceeded_until_ms - tried[-1] == minutes * 60_000
        await w.pass_time(minutes * 60 - 10)
        assert len(w.machines.created) == before, f"tried again within {minutes} minutes"
        await w.pass_time(10)
        assert len(w.machines.created) == before + 1
        tried.append(w.world.now_ms)
    row = w.world.model.scaling_groups["cpu"]
    assert (row.quota_reason, row.quota_exceeded_until_ms, row.quota_blocks) == ("", 0, 0)
    await w.pass_time(20)
    assert w.count("ready") == 1
    assert len(w.said("quota_exceeded")) == 5


async def test_requests_that_fail_together_count_as_one() -> None:
    w = AutoscalerWorld(group(max_slices=8))
    w.machines.script("cpu", [stock_out()])
    w.world.submit(tasks=8, cpu=4)
    await w.look(2)
    assert len(w.machines.created) == 8
    assert w.world.model.scaling_groups["cpu"].consecutive_failures == 1
    await w.pass_time(10)
    assert len(w.machines.created) == 9, "after a failure one is tried at a time"


async def test_a_request_that_can_never_succeed_pauses_longest() -> None:
    w = AutoscalerWorld(group())
    w.machines.script("cpu", [Outcome(error=MachinesFailed("no such machine type", retryable=False))])
    w.world.submit(cpu=3)
    await w.look(2)
    assert w.world.model.scaling_groups["cpu"].backoff_until_ms == w.world.now_ms + 600_000


async def test_a_hanging_request_holds_up_neither_the_evaluation_nor_other_groups() -> None:
    w = AutoscalerWorld(group("a", max_slices=1), group("b", max_slices=1, attributes={"pool": "b"}))
    w.machines.script("a", [Outcome(hangs=True)])
    w.world.submit("/u/a", cpu=3)
    await w.look(2)
    assert [s.scale_group for s in w.machines.created] == ["a"]
    w.world.submit("/u/b", cpu=3)
    await w.look(2)
    assert [s.scale_group for s in w.machines.created] == ["a", "b"]
    await w.pass_time(60)
    assert w.count("ready") == 1
    await w.pass_time(540)
    assert w.world.model.scaling_groups["a"].failure_reason.startswith(
        "the request for a slice did not answer within 10m"
    )


async def test_a_hanging_list_holds_up_nothing_and_is_said() -> None:
    w = AutoscalerWorld(group())
    await w.look(2)
    w.machines.list_hangs = True
    w.clock.advance(10)
    w.world.submit(cpu=3)
    await w.look(3)
    assert len(w.machines.created) == 1
    await w.pass_time(70)
    assert "did not answer" in w.scaler.problem
    w.machines.list_hangs = False
    await w.pass_time(80)
    assert w.scaler.problem == "" and w.count("ready") == 1


async def test_a_fault_of_ours_in_one_evaluation_is_said_and_the_next_one_goes_on() -> None:
    w = AutoscalerWorld(group())
    broken = [True]
    plan = w.world.plan

    def settle() -> None:
        if broken[0]:
            raise ZeroDivisionError("a rule that is wrong")
        plan()

    w.world.plan = settle  # type: ignore[method-assign, assignment]
    running = asyncio.ensure_future(w.scaler.run())
    w.world.submit(cpu=3)
    for _ in range(4):
        await calm()
        w.clock.advance(10)
    assert "ZeroDivisionError: a rule that is wrong" in w.scaler.fault
    assert not running.done()
    broken[0] = False
    for _ in range(6):
        await calm()
        w.clock.advance(10)
    assert w.scaler.fault == "" and len(w.machines.created) == 1
    running.cancel()
    await asyncio.wait({running})


async def test_nothing_is_made_before_the_provider_has_said_what_there_is() -> None:
    w = AutoscalerWorld(group(buffer_slices=2))
    w.machines.list_error = MachinesFailed("500 internal error")
    await w.look(3)
    assert not w.machines.created and w.scaler.problem == "500 internal error"
    w.machines.list_error = None
    await w.pass_time(20)
    assert len(w.machines.created) == 2


async def test_a_slice_that_fails_to_boot_goes_and_charges_its_group() -> None:
    w = AutoscalerWorld(group())
    w.machines.script("cpu", [Outcome(ready_s=30, fails="disk image missing"), Outcome()])
    w.world.submit(cpu=3)
    await w.look(3)
    await w.pass_time(40)
    assert w.said("slice_failed") == ["the provider could not make it: disk image missing"]
    assert w.world.model.scaling_groups["cpu"].consecutive_failures == 1
    await w.pass_time(60)
    assert w.count("ready") == 1 and w.count("failed") == 0


async def test_a_partial_slice_is_given_up_after_15_minutes() -> None:
    w = AutoscalerWorld(tpu_group(max_slices=1, buffer_slices=1), attach=False)
    w.machines.script("tpu", [Outcome(vms=3), Outcome()])
    w.machines.on_ready = lambda spec: [w.attach_worker(spec, worker_id) for worker_id in spec.worker_ids[:3]]  # type: ignore[assignment, func-returns-value]
    await w.look(3)
    await w.pass_time(30)
    assert w.count("initializing") == 1
    await w.pass_time(14 * 60)
    assert w.count("initializing") == 1
    await w.pass_time(90)
    assert "3 of 4 workers attached within 15m" in w.said("slice_failed")


async def test_a_broken_machine_of_a_booting_slice_fails_it_at_once() -> None:
    w = AutoscalerWorld(tpu_group(max_slices=1))
    w.machines.appear(
        SliceInfo("tpu-00000001", "tpu", SliceState.CREATING, (VmInfo("vm-1", "", "", VmState.FAILED, "no network"),))
    )
    await w.look(4)
    assert w.said("slice_failed") == ["machine vm-1 is failed: no network"]
    assert w.machines.deleted == ["tpu-00000001"]


async def test_a_slice_whose_state_nobody_knows_is_given_up_after_15_minutes() -> None:
    w = AutoscalerWorld(group(max_slices=1, buffer_slices=1))
    await w.look(3)
    await w.pass_time(20)
    first = w.machines.created[0].slice_id
    w.machines.force(first, SliceState.UNKNOWN)
    await w.pass_time(14 * 60)
    assert w.lifecycles() == {first: "ready"}
    await w.pass_time(120)
    assert first not in w.lifecycles() and w.count("ready") == 1
    assert w.said("worker_failed") == ["its state is unknown for 15m"]


async def test_a_preempted_slice_is_replaced_and_charges_nobody() -> None:
    w = AutoscalerWorld(group(max_slices=2))
    w.world.submit(cpu=3)
    await w.look(3)
    await w.pass_time(20)
    first = w.machines.created[0].slice_id
    task = w.world.task()
    w.world.observe(task.attempt_uid, TaskState.RUNNING, task.worker_id)
    w.machines.preempt(first)
    await w.pass_time(20)
    assert w.said("worker_failed") == ["the provider took it back"]
    assert w.world.task().preemption_count == 1
    await w.pass_time(60)
    assert first not in w.lifecycles() and w.count("ready") == 1
    assert w.world.model.scaling_groups["cpu"].consecutive_failures == 0
    assert w.world.task().state is TaskState.ASSIGNED


async def test_a_slice_that_vanishes_takes_its_workers_with_it() -> None:
    w = AutoscalerWorld(group(max_slices=2))
    w.world.submit(cpu=3)
    await w.look(3)
    await w.pass_time(20)
    first = w.machines.created[0].slice_id
    w.machines.preempt(first, vanish=True)
    await w.pass_time(10)
    assert first in w.lifecycles(), "a worker that is attached is better evidence than a list"
    w.lose_worker(f"{first}-w-0")
    await w.pass_time(40)
    assert first not in w.lifecycles() and f"{first}-w-0" not in w.world.model.workers


async def test_a_dead_worker_takes_its_slice_and_siblings_end_before_it_is_torn_down() -> None:
    w = AutoscalerWorld(tpu_group(max_slices=2))
    device = Device("tpu", "v5litepod-16", 4)
    w.world.submit(tasks=4, spec=job_spec(1, device=device, group_by="tpu-name"))
    await w.look(3)
    await w.pass_time(20)
    first = w.machines.created[0].slice_id
    w.world.submit("/u/side", cpu=1)
    w.world.plan()
    w.queue.tell()
    side = w.world.task(job_id="/u/side")
    for index in range(4):
        task = w.world.task(index)
        w.world.observe(task.attempt_uid, TaskState.RUNNING, task.worker_id)
    held = [a.uid for a in w.world.model.attempts.values()]
    dead = next(f"{first}-w-{i}" for i in range(4) if f"{first}-w-{i}" != side.worker_id)
    w.lose_worker(dead)
    await w.look()
    assert w.lifecycles()[first] == "draining" and not w.machines.deleted
    assert w.said("worker_failed") == [f"worker {dead} is lost: no message for 50 s"]
    assert [w.world.task(i).preemption_count for i in range(4)].count(1) == 1
    assert w.world.task(job_id="/u/side").state is TaskState.PENDING, "also what is alone has to leave"
    assert not any(w.world.model.workers[f"{first}-w-{i}"].placeable for i in range(4))
    for uid in held:
        attempt = w.world.model.attempts.get(uid)
        if attempt is not None and attempt.finished_at_ms is None:
            w.world.observe(uid, TaskState.KILLED, attempt.worker_id)
    await w.look()
    assert w.machines.deleted == [first]
    await w.pass_time(60)
    assert first not in w.lifecycles() and w.count("ready") >= 1
    assert {w.world.task(i).state for i in range(4)} == {TaskState.ASSIGNED}


async def test_work_that_does_not_leave_is_not_waited_for_for_ever() -> None:
    w = AutoscalerWorld(tpu_group(num_vms=2, max_slices=1))
    w.world.submit(tasks=2, spec=job_spec(1, device=Device("tpu", "v5litepod-8", 4), group_by="tpu-name"))
    await w.look(3)
    await w.pass_time(20)
    first = w.machines.created[0].slice_id
    for index in range(2):
        task = w.world.task(index)
        w.world.observe(task.attempt_uid, TaskState.RUNNING, task.worker_id)
    w.lose_worker(f"{first}-w-0")
    await w.look()
    await w.pass_time(20)
    assert not w.machines.deleted
    await w.pass_time(20)
    assert w.machines.deleted == [first]


async def test_a_deletion_that_never_ends_is_asked_for_again_and_its_slice_counts() -> None:
    w = AutoscalerWorld(group(max_slices=1), delay_ms=20_000)
    w.machines.script("cpu", [Outcome(delete_s=None)])
    w.world.submit(cpu=3)
    await w.look(3)
    await w.pass_time(10)
    task = w.world.task()
    w.world.observe(task.attempt_uid, TaskState.SUCCEEDED, task.worker_id)
    w.queue.tell()
    await w.pass_time(200)
    assert w.count("draining") == 1 and len(w.machines.deleted) >= 3
    w.world.submit("/u/next", cpu=3)
    await w.pass_time(60)
    assert len(w.machines.created) == 1, "never more machines than the maximum"
    assert "1 being deleted" in w.scaler.last.plan.decisions["cpu"].reason


async def test_a_failing_deletion_is_said_and_tried_again() -> None:
    w = AutoscalerWorld(group(max_slices=1), delay_ms=20_000)
    w.world.submit(cpu=3)
    await w.look(3)
    await w.pass_time(10)
    task = w.world.task()
    w.world.observe(task.attempt_uid, TaskState.SUCCEEDED, task.worker_id)
    w.queue.tell()
    w.machines.delete_error = MachinesFailed("429 too many requests")
    await w.pass_time(60)
    assert "429 too many requests" in w.said("scale_down", "failed")
    w.machines.delete_error = None
    await w.pass_time(90)
    assert not w.lifecycles()


async def test_a_controller_that_starts_goes_on_with_what_there_is() -> None:
    w = AutoscalerWorld(group(max_slices=3))
    w.world.submit(cpu=3)
    await w.look(3)
    await w.pass_time(20)
    kept = w.machines.created[0].slice_id
    w.machines.appear(SliceInfo("cpu-0badcafe", "cpu", SliceState.CREATING, created_at_ms=5))
    w.machines.appear(SliceInfo("cpu-0000dead", "cpu", SliceState.DELETING))
    again = AutoscalerWorld(group(max_slices=3), world=w.world, machines=w.machines, clock=w.clock)
    await again.look(2)
    assert again.lifecycles() == {kept: "ready", "cpu-0badcafe": "booting"}
    assert again.world.model.slices["cpu-0badcafe"].worker_ids == ("cpu-0badcafe-w-0",)
    assert again.said("adopted") == ["the provider has it"]
    w.machines.preempt(kept, vanish=True)
    w.lose_worker(f"{kept}-w-0")
    await again.pass_time(40)
    assert kept not in again.lifecycles()


async def test_a_pause_outlives_the_controller_and_no_clock_step_moves_it() -> None:
    w = AutoscalerWorld(group())
    w.machines.script("cpu", [quota()])
    w.world.submit(cpu=3)
    await w.look(2)
    w.world.now_ms += 120_000
    again = AutoscalerWorld(group(), world=w.world, machines=w.machines, clock=w.clock)
    await again.look(2)
    assert len(w.machines.created) == 1
    again.world.now_ms += 3_600_000
    await again.look(2)
    assert len(w.machines.created) == 1, "the wall clock jumped, no time has passed"
    await again.pass_time(170)
    assert len(w.machines.created) == 1
    await again.pass_time(20)
    assert len(w.machines.created) == 2


async def test_an_operators_slice_is_left_alone() -> None:
    w = AutoscalerWorld(group(max_slices=1), delay_ms=10_000)
    spec = w.scaler.spec(w.config.scale_groups["cpu"], manual=True)
    await w.scaler.create_manual(spec)
    await calm()
    await w.look(2)
    await w.pass_time(60)
    assert w.lifecycles() == {spec.slice_id: "ready"} and not w.said("scale_down")
    w.lose_worker(f"{spec.slice_id}-w-0")
    await w.pass_time(60)
    assert w.lifecycles() == {spec.slice_id: "ready"} and not w.machines.deleted
    w.world.submit(cpu=3)
    await w.pass_time(30)
    assert len(w.machines.created) == 2, "it does not count against the maximum"


async def test_health_is_asked_only_of_workers_without_a_stream_that_can_be_reached() -> None:
    w = AutoscalerWorld(group(buffer_slices=1, max_slices=1))
    w.machines.reached = lambda address: address == "10.0.0.1:10001"
    await w.look(3)
    await w.pass_time(20)
    worker_id = f"{w.machines.created[0].slice_id}-w-0"
    w.world.change_worker(worker_id, address="10.0.0.1:10001")
    await w.pass_time(30)
    assert not w.asked
    w.world.change_worker(worker_id, attached=False, placeable=False, address="10.0.0.2:10001")
    await w.pass_time(30)
    assert not w.asked
    w.world.change_worker(worker_id, address="10.0.0.1:10001")
    w.well = lambda _: True
    await w.pass_time(300)
    assert len(w.asked) > 20 and w.count("ready") == 1
    w.well = lambda _: False
    await w.pass_time(120)
    assert any("answered none of 10 health probes" in reason for reason in w.said("worker_failed"))


async def test_a_full_rate_puts_off_and_says_so_once() -> None:
    w = AutoscalerWorld(group(max_slices=40, scale_up_rate_limit=4))
    w.machines.script("cpu", [Outcome(ready_s=10_000)])
    w.world.submit(tasks=20, cpu=4)
    await w.look(3)
    assert len(w.machines.created) == 4
    await w.pass_time(60)
    assert 7 <= len(w.machines.created) <= 8
    assert w.said("rate_limited") == ["cpu makes at most 4 slices a minute"]


async def test_all_groups_together_make_60_a_minute() -> None:
    groups = [group(f"g{i}", max_slices=40, scale_up_rate_limit=0) for i in range(3)]
    w = AutoscalerWorld(*groups)
    w.machines.script("g0", [Outcome(ready_s=10_000)])
    w.world.submit(tasks=120, cpu=4)
    await w.look(2)
    assert len(w.machines.created) == 60
    assert {d.action for d in w.scaler.last.plan.deferred} == {"create_throttled"}


async def test_the_fake_is_the_contract() -> None:
    from iris_core.contracts import Machines
    from providers.fake.clock import FakeClock

    machines: Machines = FakeMachines(FakeClock())
    assert not machines.reachable("10.0.0.1:1")


async def test_a_worker_that_is_lost_before_its_slice_is_ready_takes_it_along() -> None:
    w = AutoscalerWorld(tpu_group(max_slices=1), attach=False)
    w.machines.script("tpu", [Outcome(ready_s=0), Outcome(ready_s=10)])
    w.world.submit(tasks=4, spec=job_spec(1, device=Device("tpu", "v5litepod-16", 4), group_by="tpu-name"))
    await w.look(3)
    first = w.machines.created[0]
    for worker_id in first.worker_ids[:3]:
        w.attach_worker(first, worker_id)
    await w.look(2)
    assert w.lifecycles() == {first.slice_id: "initializing"}
    w.lose_worker(first.worker_ids[1])
    w.machines.on_ready = w.attach
    await w.pass_time(120)
    assert first.slice_id not in w.lifecycles() and len(w.machines.created) == 2
    assert all(task.state is TaskState.ASSIGNED for task in w.world.model.tasks["/u/job"])
    assert "is lost" in w.said("slice_failed")[0]
