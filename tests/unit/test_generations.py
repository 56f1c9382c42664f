"""Whatever becomes of a target between its plan and its change: the change is refused, and nothing is done."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.rpc.auth import Identity, Role
from iris_controller.rpc.call import Call
from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.plan_tokens import PlanTokens
from iris_controller.rpc.planners import delete_slice, end_job, finish_ending, kick_tasks
from iris_controller.rpc.reckoning import Reckoning
from iris_controller.rpc.roles import ACCESS
from iris_controller.state import kernel, slices
from iris_controller.state.budgets import Budget
from iris_controller.state.endpoints import Endpoint
from iris_controller.state.generations import Frozen, differences, generation_of
from iris_controller.state.overlay import Overlay
from iris_controller.state.slices import Lifecycle, Slice
from iris_core.model.bands import PriorityBand
from iris_core.model.states import TaskState
from iris_core.wire.gen.iris.v1 import autoscaler_pb2, common_pb2
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.services import method
from tests.unit.kernel_world import World

JOBS = ("/u/a", "/u/b")
TARGETS = [
    ("job", "/u/a"),
    ("job", "/u/b"),
    ("attempt", "/u/a/0:0"),
    ("attempt", "/u/a/1:0"),
    ("attempt", "/u/b/0:0"),
    ("worker", "w"),
    ("budget", "ada"),
    ("budget", "eve"),
    ("slice", "s"),
    ("endpoint", "e"),
]


def world() -> World:
    found = World()
    found.add_worker(cpu=100, boot_id="boot1")
    for job_id in JOBS:
        found.submit(job_id, tasks=2)
        found.running(0, job_id)
        found.running(1, job_id)
    with found.batch() as o:
        o.slices["s"] = Slice("s", "g", Lifecycle.READY, ("w",), 1, updated_at_ms=5)
        o.put_budget(Budget("ada", 7, PriorityBand.BATCH, 1))
        uid = found.task(0, "/u/b").attempt_uid
        o.endpoints["e"] = Endpoint("e", "/u/b/x", "1.1.1.1:1", "/u/b", 0, uid, 1, {})
    return found


def preempt(o: Overlay, job_id: str, index: int, now_ms: int) -> None:
    from iris_controller.state import kick
    from iris_core.model.ids import TaskId

    kick.kick(o, [("", TaskId.parse(f"{job_id}/{index}"))], TaskState.PREEMPTED, "t", "", now_ms)


EVENTS = {
    "cancel a": lambda o, now: kernel.cancel(o, "/u/a", "t", "", now),
    "complete b": lambda o, now: kernel.complete(o, "/u/b", "t", now),
    "preempt a/0": lambda o, now: preempt(o, "/u/a", 0, now),
    "preempt b/0": lambda o, now: preempt(o, "/u/b", 0, now),
    "worker starts anew": lambda o, now: o.set_worker(o.worker("w"), boot_id=f"boot{now}"),
    "worker goes": lambda o, now: o.workers.__setitem__("w", None),
    "budget of ada": lambda o, now: o.put_budget(Budget("ada", 9, PriorityBand.BATCH, now)),
    "budget of eve": lambda o, now: o.put_budget(Budget("eve", 9, PriorityBand.BATCH, now)),
    "slice changes": lambda o, now: slices.change_slice(o, o.slice("s"), now, error_message="x"),
    "slice goes": lambda o, now: o.slices.__setitem__("s", None),
    "endpoint goes": lambda o, now: o.endpoints.__setitem__("e", None),
}


def call_of(token: str) -> Call:
    name = "ControllerService/KickTasks"
    call = Call(Identity("root", Role.ADMIN, "token", "10.0.0.1:1"), method(name), "10.0.0.1:1", request_id="r")
    call.plan_token = token
    return call


@settings(max_examples=60, deadline=None)
@given(
    chosen=st.lists(st.sampled_from(TARGETS), min_size=1, unique=True),
    events=st.lists(st.sampled_from(sorted(EVENTS)), max_size=3, unique=True),
)
def test_a_change_goes_through_if_and_only_if_nothing_it_is_about_has_changed(
    chosen: list[tuple[str, str]], events: list[str]
) -> None:
    w = world()
    before = Overlay(w.model)
    frozen = [Frozen(kind, name, generation_of(before, kind, name)) for kind, name in chosen]
    assert differences(before, frozen) == ""
    request = pb.KickTasksRequest(targets=["/u/a/0"])
    tokens = PlanTokens("lab")
    call = call_of(tokens.issue("root", "ControllerService/KickTasks", [(request, frozen)]))
    call.guard = tokens.guard(call, request, ACCESS["ControllerService/KickTasks"])
    for event in events:
        # One event may take away what the next one is about; then there is nothing it could do.
        if event.startswith("slice") and w.model.slices.get("s") is None:
            continue
        if event.startswith("worker") and w.model.workers.get("w") is None:
            continue
        w.now_ms += 1
        with w.batch() as o:
            EVENTS[event](o, w.now_ms)  # type: ignore[no-untyped-call]
    after = Overlay(w.model)
    changed = [target for target in frozen if generation_of(after, target.kind, target.id) != target.generation]
    done: list[int] = []
    guarded = call.guarded(lambda _o, now_ms: done.append(now_ms))
    if changed:
        with pytest.raises(RpcError, match="nothing was done") as refused:
            guarded(after, w.now_ms)
        assert refused.value.code == "replan" and changed[0].id in refused.value.message
    else:
        guarded(after, w.now_ms)
    assert bool(done) == (not changed)
    assert not after.dirty, "looking changes nothing"


@pytest.mark.parametrize(
    ("event", "gone"),
    [
        ("cancel a", ["attempt /u/a/0:0", "attempt /u/a/1:0"]),
        ("preempt b/0", ["attempt /u/b/0:0", "endpoint e"]),
        ("worker starts anew", ["worker w"]),
        ("budget of eve", ["budget eve"]),
        ("slice changes", ["slice s"]),
    ],
)
def test_what_an_event_changes(event: str, gone: list[str]) -> None:
    w = world()
    before = Overlay(w.model)
    frozen = [Frozen(kind, name, generation_of(before, kind, name)) for kind, name in TARGETS]
    w.now_ms += 1
    with w.batch() as o:
        EVENTS[event](o, w.now_ms)  # type: ignore[no-untyped-call]
    after = Overlay(w.model)
    assert [f"{t.kind} {t.id}" for t in frozen if generation_of(after, t.kind, t.id) != t.generation] == gone


def test_a_job_of_the_same_name_is_another_one_and_a_free_name_may_be_taken() -> None:
    w = world()
    o = Overlay(w.model)
    of_a, free = Frozen("job", "/u/a", generation_of(o, "job", "/u/a")), Frozen("job", "/u/new", "")
    w.submit("/u/new")
    with w.batch() as o:
        kernel.cancel(o, "/u/a", "t", "", w.now_ms)
    for attempt in list(w.model.attempts.values()):
        if attempt.job_id == "/u/a":
            w.observe(attempt.uid, TaskState.KILLED)
    w.now_ms += 1
    w.submit("/u/a")
    after = Overlay(w.model)
    assert differences(after, [of_a]) == "job /u/a was replaced by a new job of that name"
    assert differences(after, [free]) == "there is a job /u/new by now"
    many = [replace(of_a, generation=str(number)) for number in range(5)]
    assert differences(after, many).endswith("; and 2 more")


# Planners -----------------------------------------------------------------------------------------------------------


def test_the_counts_come_from_the_jobs_and_a_job_counts_once() -> None:
    w = world()
    w.submit("/u/a/child", tasks=3)
    r = Reckoning(1)
    for name in ("/u/a", "/u/a/child", "/u/b", "/u/none"):
        end_job(w.model, pb.TerminateJobRequest(job_id=name), call_of(""), r)
    finish_ending(r, "as killed")
    assert list(r.effects) == ["ends 4 running tasks and 3 waiting tasks as killed"]
    assert (len(r.jobs), r.children, r.tier) == (3, 0, 2)
    assert r.skipped == [("/u/none", "is no unfinished job")]


def test_more_jobs_than_are_counted_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_controller.rpc.reckoning.MOST_JOBS", 2)
    w = world()
    for name in ("x", "y", "z"):
        w.submit(f"/u/a/{name}")
    r = Reckoning(1)
    end_job(w.model, pb.TerminateJobRequest(job_id="/u/a"), call_of(""), r)
    finish_ending(r, "as killed")
    assert r.capped and len(r.jobs) == 2 and all("at least" in effect for effect in r.effects)


def test_a_gang_is_counted_whole_and_an_empty_budget_is_said() -> None:
    w = World()
    w.add_worker("w", cpu=100, attributes={"k": "1"})
    w.submit("/u/g", tasks=4, group_by="k", max_retries_preemption=0)
    with w.batch() as o:
        assert kernel.assign_gang(o, "/u/g", [(index, "w", w.uid()) for index in range(4)], w.now_ms)
    r = Reckoning(1)
    state = common_pb2.TASK_STATE_PREEMPTED
    asyncio.run(kick_tasks(w.model, pb.KickTasksRequest(targets=["/u/g/1"], desired_state=state), call_of(""), r))
    assert list(r.effects) == [
        "ends the attempt as preempted and charges the preemption budget",
        "it has no preemption budget left and ends for good",
        "a gang stays whole: all 4 running tasks of job /u/g are stopped",
    ]
    assert (r.running, r.tier) == (4, 2)


def test_deleting_a_slice_names_its_workers_and_what_dies_there() -> None:
    w = world()
    r = Reckoning(3)
    delete_slice(w.model, autoscaler_pb2.DeleteSliceRequest(slice_id="s"), call_of(""), r)
    assert next(iter(r.effects)) == "deleting s stops 4 running tasks on 1 worker"
    assert r.targets == [Frozen("slice", "s", "5", "ready, 1 worker of g")] and r.workers == 1
    with pytest.raises(RpcError, match="there is no slice 't'"):
        delete_slice(w.model, autoscaler_pb2.DeleteSliceRequest(slice_id="t"), call_of(""), r)
