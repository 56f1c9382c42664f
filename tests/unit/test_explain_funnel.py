"""The funnel counts what a naive recount counts, and what it says fits is what the planner places (DESIGN §5.7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.scheduling.explain import ClusterView, Explanation, Verdict, explain, place
from iris_controller.scheduling.funnel import Asked, FleetView, count, judge
from iris_controller.scheduling.snapshot import BUILDING_LIMIT
from iris_controller.scheduling.waiting import queue
from iris_controller.state import kernel, submit
from iris_controller.state.budgets import Budget
from iris_controller.state.records import Worker
from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import Mode, parse_constraint
from iris_core.model.resources import Device, Resources
from iris_core.model.states import TaskState, WorkerHealth
from tests.unit.kernel_world import GB, JOB, World, job_spec

H100 = Device("gpu", "h100", 8)
EU = {"region": "eu-west4", "zone": "a"}
US = {"region": "us-central1", "zone": "b"}


def asks(*wants: str, preferred: tuple[str, ...] = (), **asked: Any) -> dict[str, Any]:
    """Keywords of a job spec with constraints."""
    constraints = [
        *(parse_constraint(c) for c in wants),
        *(parse_constraint(c, mode=Mode.PREFERRED) for c in preferred),
    ]
    return {**asked, "constraints": tuple(constraints)}


def explained(world: World, job_id: str = JOB) -> Explanation:
    job = world.model.jobs[job_id]
    return explain(ClusterView.of(world.model), job, len(world.model.pending.get(job_id, ())))


def enter(world: World, job_id: str, tasks: int = 1, **asked: Any) -> None:
    """Submits as the owner of the name: who spends is then the user in it."""
    with world.batch() as o:
        submit.admit(o, submit.NewJob(job_id, "", tasks, job_spec(**asked)), world.now_ms)


def steps(found: Explanation) -> list[tuple[str, int, int]]:
    return [(step.name, step.left, step.more) for step in found.funnel.steps]


# Random fleets ------------------------------------------------------------------------------------------------

ATTRIBUTES = st.dictionaries(
    st.sampled_from(["region", "zone", "disks"]), st.sampled_from(["a", "b", 2, 4]), max_size=3
)
DEVICES = st.none() | st.builds(
    Device, st.sampled_from(["gpu", "tpu"]), st.sampled_from(["", "h100", "v4"]), st.integers(1, 4)
)
WORKERS = st.lists(
    st.builds(
        lambda total, attributes, placeable, excluded: {
            "total": total,
            "attributes": attributes,
            "placeable": placeable,
            "excluded": excluded,
        },
        st.builds(Resources, st.integers(0, 4_000), st.integers(0, 8), st.just(0), DEVICES),
        ATTRIBUTES,
        st.sampled_from([True, True, True, False]),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=7,
)
HOLDS = st.lists(st.builds(Resources, st.integers(0, 2_000), st.integers(0, 4), st.just(0), DEVICES), max_size=6)
CONSTRAINTS = st.lists(
    st.sampled_from(["region=a", "region!=a", "region", "!zone", "zone=a,b", "disks>=3", "disks<4"]).map(
        parse_constraint
    ),
    max_size=3,
    unique=True,
).map(tuple)
SPECS = st.builds(
    lambda resources, constraints, setup: replace(
        job_spec(), resources=resources, constraints=constraints, has_setup=setup
    ),
    st.builds(Resources, st.integers(0, 3_000), st.integers(0, 6), st.just(0), DEVICES),
    CONSTRAINTS,
    st.booleans(),
)


def busy_world(workers: list[dict[str, Any]], holds: list[Resources], setups: int) -> World:
    """A fleet on which tasks run where they fit, and `setups` that are being set up on the first worker."""
    world = World()
    for i, values in enumerate(workers):
        with world.batch() as o:
            o.workers[f"w{i}"] = Worker(f"w{i}", attached=True, health=WorkerHealth.HEALTHY, **values)
    for i, amount in enumerate(holds):
        world.submit(f"/held/h{i}", spec=replace(job_spec(), resources=amount))
    world.plan()
    for i in range(len(holds)):
        if f"/held/h{i}" in world.model.pending:
            with world.batch() as o:
                kernel.cancel(o, f"/held/h{i}", "test", "", world.now_ms)
    if workers and workers[0]["placeable"] and not workers[0]["excluded"] and setups:
        world.submit("/held/setups", tasks=setups, spec=replace(job_spec(cpu=0), has_setup=True))
        for index in range(setups):
            world.assign(index, "/held/setups", "w0")
    return world


def recount(world: World, asked: Asked) -> tuple[list[int], list[int]]:
    """Workers left after each step, and how many more fit without it: counted one by one, in the plainest way."""
    rows: list[list[bool]] = []
    for worker_id, worker in world.model.workers.items():
        usage = world.model.usage_of(worker_id)
        want, have = asked.resources, worker.total
        row = [worker.placeable and not worker.excluded]
        row += [c.matches(worker.attributes) for c in asked.constraints if c.mode is Mode.REQUIRED]
        row.append(want.cpu_millicores + usage.cpu_millicores <= have.cpu_millicores)
        row.append(want.memory_bytes + usage.memory_bytes <= have.memory_bytes)
        if want.device is not None:
            used = usage.gpu if want.device.kind == "gpu" else usage.tpu
            row.append(
                have.device is not None
                and have.device.is_like(want.device)
                and want.device.count + used <= have.device.count
            )
        if asked.has_setup:
            row.append(usage.building < BUILDING_LIMIT)
        rows.append(row)
    number = len(rows[0]) if rows else 3 + len(asked.constraints) + (asked.device is not None) + asked.has_setup
    left = [sum(all(row[: i + 1]) for row in rows) for i in range(number)]
    more = [sum(all(row[:i] + row[i + 1 :]) and not row[i] for row in rows) for i in range(number)]
    return left, more


@settings(max_examples=150, deadline=None)
@given(WORKERS, HOLDS, st.integers(0, BUILDING_LIMIT), SPECS)
def test_the_funnel_is_what_a_recount_says_and_what_the_planner_does(
    workers: list[dict[str, Any]], holds: list[Resources], setups: int, spec: Any
) -> None:
    world = busy_world(workers, holds, setups)
    asked = Asked.of(spec, 1)
    funnel = count(judge(FleetView.of(world.model), asked))
    left, more = recount(world, asked)
    assert [step.left for step in funnel.steps] == left
    assert [step.more for step in funnel.steps] == more
    assert funnel.fits == (left[-1] if left else 0)
    world.submit("/u/alone", spec=spec)
    found = explained(world, "/u/alone")
    placed = [worker for job, _, worker in world.plan() if job == "/u/alone"]
    assert bool(placed) == bool(funnel.fits) == (found.verdict is Verdict.RUNS_NOW), found.cause
    if found.verdict is Verdict.NEVER_FITS:
        assert funnel.capable == 0


@settings(max_examples=100, deadline=None)
@given(WORKERS, HOLDS, SPECS, st.integers(2, 30))
def test_there_is_room_for_as_many_tasks_as_are_then_placed(
    workers: list[dict[str, Any]], holds: list[Resources], spec: Any, tasks: int
) -> None:
    world = busy_world(workers, holds, 0)
    world.submit("/u/many", tasks=tasks, spec=spec)
    found = explained(world, "/u/many")
    placed = [worker for job, _, worker in world.plan() if job == "/u/many"]
    assert len(placed) == min(tasks, found.funnel.room), found.cause
    assert (f"for {len(placed)} of {tasks} tasks" in found.cause) == (0 < len(placed) < tasks)


@pytest.mark.parametrize(
    ("group_by", "tasks", "cpu", "cause"),
    [
        ("racc", 2, 1, "needs 2 workers that share one racc: no worker has that attribute; did you mean 'rack'?"),
        ("racc", 1, 1, "needs 1 worker that has racc: no worker has that attribute; did you mean 'rack'?"),
        ("tpu-name", 2, 1, "needs 2 workers that share one tpu-name: no worker has that attribute"),
        ("rack", 1, 1, "rack r1 has room for its task"),
        ("rack", 2, 1, "rack r1 has room for all 2 tasks"),
        ("rack", 1, 99, "needs 1 worker that has rack: the best of 1 group, r1, has 0 of 2 that could take one"),
        ("rack", 3, 1, "needs 3 workers that share one rack: the largest of 1 group, r1, has 2"),
    ],
)
def test_a_gang_is_told_of_in_its_number_and_of_what_its_attribute_meant(
    group_by: str, tasks: int, cpu: int, cause: str
) -> None:
    world = World()
    for name in ("w1", "w2"):
        world.add_worker(name, attributes={"rack": "r1", "tpu-names": "t"})
    world.submit(JOB, tasks=tasks, spec=job_spec(cpu, group_by=group_by))
    assert explained(world).cause == cause


@settings(max_examples=150, deadline=None)
@given(WORKERS, HOLDS, SPECS, st.integers(1, 4))
def test_a_gang_that_fits_is_placed_and_its_groups_are_counted(
    workers: list[dict[str, Any]], holds: list[Resources], spec: Any, size: int
) -> None:
    world = busy_world(workers, holds, 0)
    world.submit("/u/gang", tasks=size, spec=replace(spec, group_by="zone"))
    found = explained(world, "/u/gang")
    for group in found.funnel.groups:
        members = [w for w in world.model.workers.values() if str(w.attributes.get("zone")) == group.value]
        assert group.workers == len(members)
        assert group.fits + sum(count for _, count in group.blocked) == group.workers
        assert group.missing == max(0, size - group.fits) and group.fits <= group.capable
    placed = [worker for job, _, worker in world.plan() if job == "/u/gang"]
    assert bool(placed) == (found.verdict is Verdict.RUNS_NOW), found.cause
    if placed:
        assert len(placed) == size and not found.blocked


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ada", "bob", "cyd"]),
            st.sampled_from([PriorityBand.BATCH, PriorityBand.INTERACTIVE, PriorityBand.PRODUCTION]),
            st.integers(1, 4),
        ),
        min_size=1,
        max_size=9,
    ),
    st.dictionaries(st.sampled_from(["ada", "bob", "cyd"]), st.integers(0, 40)),
)
def test_the_place_in_the_queue_is_that_of_the_scheduler_state(
    jobs: list[tuple[str, PriorityBand, int]], spends: dict[str, int]
) -> None:
    world = World()
    world.add_worker(cpu=1_000)
    for user, cores in spends.items():
        enter(world, f"/{user}/spends", cpu=cores)
        world.assign(0, f"/{user}/spends")
    with world.batch() as o:
        for user in ("ada", "bob", "cyd"):
            o.put_budget(Budget(user, 50, PriorityBand.PRODUCTION, 1))
    for number, (user, band, tasks) in enumerate(jobs):
        enter(world, f"/{user}/j{number}", tasks, band=band)
    view = ClusterView.of(world.model)
    positions = {job_id: place(view, world.model.jobs[job_id]).position for job_id in world.model.pending}
    assert positions == {bucket.job.job_id: bucket.position for bucket in queue(world.model)}


# Prepared situations ------------------------------------------------------------------------------------------


def cause(*workers: dict[str, Any], tasks: int = 1, **asked: Any) -> str:
    world = World()
    for i, values in enumerate(workers):
        world.add_worker(f"w{i}", **values)
    world.submit(tasks=tasks, **asked)
    world.plan()
    return explained(world).cause


@pytest.mark.parametrize(
    ("said", "given"),
    [
        (cause(), "no worker is known"),
        (
            cause(
                {"placeable": False, "health": WorkerHealth.DEAD}, {"excluded": True, "excluded_reason": "disk full"}
            ),
            "none of 2 workers is healthy: 1 dead, 1 excluded (disk full)",
        ),
        (
            cause({"attributes": EU}, {"attributes": EU}, {"attributes": US}, **asks("region=eu-wset4")),
            "none of 3 healthy workers has region=eu-wset4: 2 eu-west4, 1 us-central1; did you mean 'eu-west4'?",
        ),
        (
            cause({"attributes": EU}, **asks("regoin=eu-west4")),
            "none of 1 healthy worker has regoin=eu-west4: 1 no regoin; did you mean 'region'?",
        ),
        (
            cause({"attributes": {"device-type": "cpu"}}, **asks("device-type=tpu")),
            "none of 1 healthy worker has device-type=tpu: 1 cpu",
        ),
        (
            cause({"attributes": {"gpu-variant": "h100"}}, **asks("device-variant=v5litepod-16")),
            "none of 1 healthy worker has device-variant=v5litepod-16: 1 no device-variant",
        ),
        (
            cause({"attributes": EU}, {"attributes": US}, **asks("region=eu-west4", "zone=b")),
            "none of 1 healthy worker with region=eu-west4 has zone=b: 1 a",
        ),
        (cause({"cpu": 16}, {"cpu": 4}, cpu=64), "needs 64 cores: the largest of 2 workers has 16 in all"),
        (cause({"cpu": 16}, cpu=12, tasks=2), "needs 12 cores free: the most on one of 1 worker is 4 of 16"),
        (
            cause({"cpu": 16}, {"cpu": 8}, cpu=10, tasks=2),
            "needs 10 cores free: the most on one of 2 workers is 8 of 8",
        ),
        (
            cause({"cpu": 8, "memory": 8 * GB}, {"memory": 64 * GB}, cpu=8, memory=12 * GB),
            "needs 12GB of memory: the largest of 1 worker with enough cpu has 8GB in all",
        ),
        (cause({}, device=H100), "needs 8 h100 GPUs: none of 1 worker with enough cpu and memory has any"),
        (
            cause({"device": H100}, cpu=0, device=Device("gpu", "h100", 5), tasks=2),
            "needs 5 h100 GPUs free: the most on one of 1 worker with enough cpu and memory is 3 of 8; "
            "someone is over budget (5000 spent of 1000), so it is served as batch",
        ),
        (
            cause({"cpu": 90}, tasks=9, has_setup=True),
            "no setup slot is free: each of 1 worker with enough cpu and memory already sets up 8 tasks",
        ),
    ],
    ids=lambda text: text[:50],
)
def test_the_cause_names_the_step_and_the_numbers(said: str, given: str) -> None:
    assert said == given


def test_nothing_is_said_to_be_less_than_nothing_while_an_evicted_task_ends() -> None:
    world = World()
    world.add_worker(cpu=4)
    enter(world, "/u/low", cpu=4, band=PriorityBand.BATCH)
    world.plan()
    world.observe(world.task(job_id="/u/low").attempt_uid, TaskState.RUNNING)
    enter(world, "/u/high", cpu=4, band=PriorityBand.PRODUCTION)
    world.plan()
    assert world.task(job_id="/u/high").state is TaskState.ASSIGNED
    found = explained(world, "/u/low")
    assert found.cause.endswith("is 0 of 4"), found.cause
    assert all(step.most_free >= 0 for step in found.funnel.steps)
