"""Ten pending situations and more, prepared on a real controller: the cause in words, and every number of the funnel (DESIGN §5.7)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from iris_controller.scheduling.order import NOT_PLANNED
from iris_core.auth.keys import load_key
from iris_core.auth.tokens import TokenSigner
from iris_core.contracts import Denied, RpcFailed
from iris_core.wire.gen.iris.v1 import budgets_pb2, common_pb2, controller_pb2, explain_pb2, worker_pb2
from providers.fake.worker import FakeWorker, run_on
from tests.integration.controller_rig import Rig, connect, launch_request, rig

pytestmark = pytest.mark.asyncio

GIB = 1 << 30
H100 = common_pb2.Device(kind="gpu", variant="h100", count=8)
EU = {"region": "eu-west4", "zone": "eu-west4-a"}
US = {"region": "us-central1", "zone": "us-central1-b"}
RUNNING = common_pb2.TASK_STATE_RUNNING
NOW = explain_pb2.EXPLAIN_VERDICT_RUNS_NOW
WAITS = explain_pb2.EXPLAIN_VERDICT_WAITS
NEVER = explain_pb2.EXPLAIN_VERDICT_NEVER_FITS
PLACED = explain_pb2.EXPLAIN_VERDICT_PLACED
ENDED = explain_pb2.EXPLAIN_VERDICT_ENDED


def asked(
    name: str,
    cpu: float = 0.1,
    memory: int = GIB,
    tasks: int = 1,
    device: common_pb2.Device | None = None,
    setup: bool = False,
    **constraints: str,
) -> controller_pb2.LaunchJobRequest:
    request = launch_request(name, resources=common_pb2.Resources(cpu_millicores=int(cpu * 1000), memory_bytes=memory))
    request.replicas = tasks
    if device is not None:
        request.resources.device.CopyFrom(device)
    if setup:
        request.environment.setup_scripts.append("true")
    for key, value in constraints.items():
        one = request.constraints.add(key=key.replace("_", "-"), op=common_pb2.CONSTRAINT_OP_EQ)
        one.values.add(text=value)
    return request


async def submit(r: Rig, *requests: controller_pb2.LaunchJobRequest) -> None:
    for request in requests:
        await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)


async def running(r: Rig, request: controller_pb2.LaunchJobRequest) -> None:
    """Submits, and waits until all of its tasks run."""
    await submit(r, request)
    tasks = request.replicas
    await r.until(request.name, lambda j: any(c.state == RUNNING and c.count == tasks for c in j.task_counts))


async def pending(r: Rig, request: controller_pb2.LaunchJobRequest) -> explain_pb2.Explanation:
    """Submits what will wait, and explains it once the scheduler has looked at it."""
    await submit(r, request)
    await r.until(request.name, lambda j: j.pending_reason not in ("", NOT_PLANNED))
    return await explain(r, request.name)


async def explain(r: Rig, job_id: str, what_if: explain_pb2.WhatIf | None = None) -> explain_pb2.Explanation:
    request = controller_pb2.ExplainJobRequest(job_id=job_id, what_if=what_if)
    return (await r.call("ExplainJob", request, controller_pb2.ExplainJobResponse)).explanation


async def rehearse(r: Rig, request: controller_pb2.LaunchJobRequest) -> explain_pb2.Explanation:
    question = controller_pb2.ExplainJobRequest(launch=request)
    return (await r.call("ExplainJob", question, controller_pb2.ExplainJobResponse)).explanation


def funnel(found: explain_pb2.Explanation) -> list[tuple[str, int, int]]:
    return [(step.name, step.left, step.more) for step in found.funnel]


async def test_no_worker_at_all_and_none_that_is_healthy(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        found = await pending(r, asked("/u/a"))
        assert found.cause == "no worker is known" and found.verdict == WAITS
        assert funnel(found) == [("health", 0, 0), ("cpu", 0, 0), ("memory", 0, 0)]
        await r.cancel("/u/a")
        async with r.worker("w1"), r.worker("w2"):
            pass
        await r.until_workers(lambda workers: not any(w.attached for w in workers))
        found = await pending(r, asked("/u/b"))
        assert found.cause == "none of 2 workers is healthy: 2 degraded" and found.verdict == WAITS
        assert funnel(found) == [("health", 0, 2), ("cpu", 0, 0), ("memory", 0, 0)]
        assert found.capable == 2 and list(found.notes) == ["workers that would fit: 2 if they were healthy"]
        assert found.revision.boot_id == r.controller.boot_id and found.revision.n == r.controller.loop.n


async def test_every_cpu_is_taken(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on), r.worker("w2", run_on, cpu_millicores=8_000):
        await running(r, asked("/u/full", cpu=3, tasks=3))
        found = await pending(r, asked("/u/a", cpu=3))
        assert found.cause == "needs 3 cores free: the most on one of 2 workers is 2 of 8"
        assert found.verdict == WAITS
        assert funnel(found) == [("health", 2, 0), ("cpu", 0, 2), ("memory", 0, 0)]
        assert [(b.worker_id, b.step, b.missing, b.other_holders) for b in found.blocked] == [
            ("w2", "cpu", 1_000, 0),
            ("w1", "cpu", 2_000, 0),
        ]
        assert {h.task_id for b in found.blocked for h in b.holders} == {f"/u/full/{i}" for i in range(3)}
        assert (found.place.position, found.place.queue) == (1, 1)
        less = await explain(r, "/u/a", explain_pb2.WhatIf(cpu_millicores=2_000))
        assert less.verdict == NOW and less.fits == 1 and list(less.what_if) == ["cpu 2"]
        assert less.cause == "1 of 2 workers has room for it"


async def test_every_byte_is_taken(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on), r.worker("w2", run_on, cpu_millicores=1_000):
        await running(r, asked("/u/full", memory=10 * GIB, tasks=2))
        found = await pending(r, asked("/u/a", cpu=2, memory=7 * GIB))
        assert found.cause == "needs 7GiB of memory free: the most on one of 1 worker with enough cpu is 6GiB of 16GiB"
        assert funnel(found) == [("health", 2, 0), ("cpu", 1, 0), ("memory", 0, 1)]
        assert [(b.worker_id, b.step, b.missing) for b in found.blocked] == [("w1", "memory", GIB)]
        assert found.blocked[0].holders[0].held == 10 * GIB
        huge = await explain(r, "/u/a", explain_pb2.WhatIf(memory_bytes=32 * GIB))
        assert huge.cause == "needs 32GiB of memory: the largest of 1 worker with enough cpu has 16GiB in all"
        assert huge.verdict == NEVER and huge.capable == 0


async def test_too_few_gpus_are_free(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("g1", run_on, device=H100), r.worker("c1", run_on):
        three = common_pb2.Device(kind="gpu", variant="h100", count=3)
        await running(r, asked("/u/full", device=three, tasks=2))
        found = await pending(r, asked("/u/a", device=three))
        assert found.cause == (
            "needs 3 h100 GPUs free: the most on one of 1 worker matching its constraints "
            "with enough cpu and memory is 2 of 8; u is over budget (3001 spent of 1000), so it is served as batch"
        )
        assert funnel(found) == [
            ("health", 2, 0),
            ("constraint", 1, 0),
            ("constraint", 1, 0),
            ("cpu", 1, 0),
            ("memory", 1, 0),
            ("gpu", 0, 1),
        ]
        assert [step.wants for step in found.funnel[1:3]] == ["device-type=gpu", "device-variant=h100"]
        none = await explain(r, "/u/a", explain_pb2.WhatIf(device=common_pb2.Device()))
        assert none.verdict == NOW and none.fits == 2 and not none.constraints


async def test_the_wrong_variant(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("g1", device=H100), r.worker("g2", device=H100):
        found = await pending(r, asked("/u/a", device=common_pb2.Device(kind="gpu", variant="a100", count=1)))
        assert found.cause == (
            "none of 2 healthy workers with device-type=gpu has device-variant=a100: 2 h100; did you mean 'h100'?"
        )
        assert found.verdict == NEVER
        assert [(s.left, s.more) for s in found.funnel] == [(2, 0), (2, 0), (0, 0), (0, 0), (0, 0), (0, 0)]


async def test_a_misspelt_attribute_and_a_misspelt_region(tmp_path: Path) -> None:
    async with (
        rig(tmp_path) as r,
        r.worker("w1", attributes=EU),
        r.worker("w2", attributes=EU),
        r.worker("w3", attributes=US),
    ):
        found = await pending(r, asked("/u/a", regoin="eu-west4"))
        assert found.cause == "none of 3 healthy workers has regoin=eu-west4: 3 no regoin; did you mean 'region'?"
        assert funnel(found) == [("health", 3, 0), ("constraint", 0, 3), ("cpu", 0, 0), ("memory", 0, 0)]
        assert found.verdict == NEVER
        found = await pending(r, asked("/u/b", region="eu-wset4"))
        assert found.cause == (
            "none of 3 healthy workers has region=eu-wset4: 2 eu-west4, 1 us-central1; did you mean 'eu-west4'?"
        )
        assert [(v.value, v.workers) for v in found.funnel[1].found] == [("eu-west4", 2), ("us-central1", 1)]
        found = await pending(r, asked("/u/c", region="eu-west4", zone="us-central1-b"))
        assert found.cause == "none of 2 healthy workers with region=eu-west4 has zone=us-central1-b: 2 eu-west4-a"
        assert funnel(found)[:3] == [("health", 3, 0), ("constraint", 2, 1), ("constraint", 0, 2)]
        moved = explain_pb2.WhatIf(without=["region"])
        assert (await explain(r, "/u/c", moved)).fits == 1
        with pytest.raises(RpcFailed, match="no constraint on regoin to drop") as caught:
            await explain(r, "/u/c", explain_pb2.WhatIf(without=["regoin"]))
        assert caught.value.field == "what_if.without" and "'region'" in caught.value.hint


def gang(name: str, tasks: int, cpu: float = 1) -> controller_pb2.LaunchJobRequest:
    request = asked(name, cpu=cpu, tasks=tasks)
    request.coscheduling.group_by = "tpu-name"
    return request


async def test_a_gang_that_no_group_is_large_enough_for_and_one_that_lacks_a_member(tmp_path: Path) -> None:
    slices = {"w1": "s1", "w2": "s1", "w3": "s1", "w4": "s2", "w5": "s2"}
    async with rig(tmp_path) as r, contextlib.AsyncExitStack() as stack:
        for worker_id, name in slices.items():
            await stack.enter_async_context(r.worker(worker_id, run_on, attributes={"tpu-name": name}))
        large = await pending(r, gang("/u/large", 4))
        assert large.cause == "needs 4 workers that share one tpu-name: the largest of 2 groups, s1, has 3"
        assert large.verdict == NEVER and large.gang_size == 4 and large.groups_total == 2
        assert [(g.value, g.workers, g.fits, g.capable, g.missing) for g in large.groups] == [
            ("s1", 3, 3, 3, 1),
            ("s2", 2, 2, 2, 2),
        ]
        assert funnel(large) == [("health", 5, 0), ("cpu", 5, 0), ("memory", 5, 0)]
        await r.cancel("/u/large")
        await running(r, asked("/u/hole", cpu=3.5, tpu_name="s1"))
        found = await pending(r, gang("/u/three", 3))
        assert found.cause == ("needs 3 workers with room that share one tpu-name: s1 has 2, 1 missing (1 lacks cpu)")
        assert found.verdict == WAITS
        assert [(g.value, g.fits, g.missing, [(b.value, b.workers) for b in g.blocked]) for g in found.groups] == [
            ("s1", 2, 1, [("cpu", 1)]),
            ("s2", 2, 1, []),
        ]
        assert [(b.step, b.missing, [h.task_id for h in b.holders]) for b in found.blocked] == [
            ("cpu", 500, ["/u/hole/0"])
        ]
        fewer = await explain(r, "/u/three", explain_pb2.WhatIf(replicas=2))
        assert fewer.verdict == NOW and fewer.cause == "tpu-name s1 has room for all 2 tasks"
        batch = asked("/u/batch", cpu=4, tasks=4)
        batch.priority_band = common_pb2.PRIORITY_BAND_BATCH
        await submit(r, batch)
        await r.until("/u/batch", lambda j: any(c.state == RUNNING for c in j.task_counts))
        tried = await rehearse(r, gang("/u/two", 2))
        assert tried.verdict == WAITS and "work of a lower band is running" in tried.notes[-1]


def build_on(worker: FakeWorker, wanted: worker_pb2.DesiredAttempt) -> Iterable[worker_pb2.Observation]:
    """BUILDING for ever."""
    return [worker.observation(wanted.attempt_uid, common_pb2.TASK_STATE_BUILDING)]


async def test_every_building_slot_is_taken(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", build_on):
        request = asked("/u/full", tasks=8, setup=True)
        await submit(r, request)
        building = common_pb2.TASK_STATE_BUILDING
        await r.until("/u/full", lambda j: any(c.state == building and c.count == 8 for c in j.task_counts))
        found = await pending(r, asked("/u/a", setup=True))
        assert (
            found.cause == "no setup slot is free: each of 1 worker with enough cpu and memory already sets up 8 tasks"
        )
        assert funnel(found) == [("health", 1, 0), ("cpu", 1, 0), ("memory", 1, 0), ("building slots", 0, 1)]
        assert [(b.step, b.missing, b.other_holders) for b in found.blocked] == [("building slots", 1, 5)]


async def test_over_budget_it_is_served_as_batch_behind_the_others(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on):
        budget = budgets_pb2.SetUserBudgetRequest(user_id="ada", budget_limit=10)
        await r.call("SetUserBudget", budget, budgets_pb2.SetUserBudgetResponse)
        await running(r, asked("/ada/full", cpu=4))
        await submit(r, asked("/bob/waits", cpu=2, tasks=3))
        found = await pending(r, asked("/ada/more", cpu=2))
        assert found.cause == (
            "needs 2 cores free: the most on one of 1 worker is 0 of 4; ada is over budget (21 spent of 10), "
            "so it is served as batch, behind 3 tasks"
        )
        place = found.place
        assert (place.user_id, place.budget_spent, place.budget_limit, place.position, place.queue) == (
            "ada",
            21,
            10,
            4,
            4,
        )
        assert place.requested_band == common_pb2.PRIORITY_BAND_INTERACTIVE
        assert place.effective_band == common_pb2.PRIORITY_BAND_BATCH
        assert funnel(found) == [("health", 1, 0), ("cpu", 0, 1), ("memory", 0, 0)]
        raised = await explain(r, "/ada/more", explain_pb2.WhatIf(priority_band=common_pb2.PRIORITY_BAND_PRODUCTION))
        assert raised.place.position == 1 and raised.place.effective_band == common_pb2.PRIORITY_BAND_PRODUCTION


async def test_room_that_ended_attempts_still_hold(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with r.worker("w1", lambda w, d: [] if d.HasField("stop") else run_on(w, d)):
            await running(r, asked("/u/old", cpu=4))
            await r.cancel("/u/old")
            found = await pending(r, asked("/u/a", cpu=4))
            assert found.cause == (
                "1 worker will have room once ended attempts are confirmed gone; "
                "needs 4 cores free: the most on one of 1 worker is 0 of 4"
            )
            assert funnel(found) == [("health", 1, 0), ("cpu", 0, 1), ("memory", 0, 0)]
            assert found.released == 1 and found.verdict == WAITS
            assert [(h.task_id, h.held, h.ended) for h in found.blocked[0].holders] == [("/u/old/0", 4_000, True)]


async def test_a_task_that_waits_for_an_evicted_one_says_so(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with r.worker("w1", lambda w, d: [] if d.HasField("stop") else run_on(w, d)):
            batch, important = asked("/u/batch", cpu=4), asked("/v/important", cpu=4)
            batch.priority_band = common_pb2.PRIORITY_BAND_BATCH
            important.priority_band = common_pb2.PRIORITY_BAND_PRODUCTION
            await running(r, batch)
            await submit(r, important)
            await r.until(
                "/v/important", lambda j: any(c.state == common_pb2.TASK_STATE_ASSIGNED for c in j.task_counts)
            )
            question = controller_pb2.ExplainTaskRequest(task_id="/v/important/0")
            task = (await r.call("ExplainTask", question, controller_pb2.ExplainTaskResponse)).explanation
            assert task.verdict == PLACED
            assert task.cause == "assigned on w1 as attempt 0, held back until the evicted /u/batch/0 has left w1"
            question = controller_pb2.ExplainTaskRequest(task_id="/u/batch/0")
            task = (await r.call("ExplainTask", question, controller_pb2.ExplainTaskResponse)).explanation
            assert task.verdict == WAITS and task.state == "pending"
            assert any("attempt 0 ended as preempted on w1" in note for note in task.notes), task.notes
            assert "charged so far: failures 0, 0 may be retried; preemptions 1, 100 may be" in task.notes


def cannot_stage(worker: FakeWorker, wanted: worker_pb2.DesiredAttempt) -> Iterable[worker_pb2.Observation]:
    if wanted.HasField("stop"):
        return []
    state, kind = common_pb2.TASK_STATE_WORKER_FAILED, worker_pb2.FAILURE_KIND_STAGING
    return [worker.observation(wanted.attempt_uid, state, failure_kind=kind, error="no space left")]


async def test_a_worker_that_cannot_stage_gets_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("bad", cannot_stage):
        await submit(r, asked("/u/a"))
        await r.until("/u/a", lambda j: "excluded" in j.pending_reason)
        found = await explain(r, "/u/a")
        assert found.cause == "none of 1 worker is healthy: 1 excluded (no space left)"
        told = await r.call(
            "GetClusterStatus", controller_pb2.GetClusterStatusRequest(), controller_pb2.GetClusterStatusResponse
        )
        assert (told.workers_total, told.workers_healthy, told.workers_excluded) == (1, 0, 1)
        listed = await r.call("ListWorkers", controller_pb2.ListWorkersRequest(), controller_pb2.ListWorkersResponse)
        assert listed.workers[0].health_reason == (
            "gets no work, it failed to stage 3 times: no space left; mend the machine, then restart its worker"
        )
        assert funnel(found) == [("health", 0, 1), ("cpu", 0, 0), ("memory", 0, 0)]
        question = controller_pb2.ExplainTaskRequest(task_id="/u/a/0")
        task = (await r.call("ExplainTask", question, controller_pb2.ExplainTaskResponse)).explanation
        assert task.cause == found.cause and task.state == "pending"
        assert [note for note in task.notes if note.startswith("attempt")] == [
            f"attempt {n} ended as worker_failed on bad: no space left" for n in range(3)
        ]


async def test_what_does_not_wait_says_where_it_is_and_how_it_ended(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on):
        await running(r, asked("/u/a", tasks=2))
        found = await explain(r, "/u/a")
        assert found.verdict == PLACED and found.cause == "no task waits: 2 running" and not found.funnel
        question = controller_pb2.ExplainTaskRequest(task_id="/u/a/1")
        task = (await r.call("ExplainTask", question, controller_pb2.ExplainTaskResponse)).explanation
        assert task.verdict == PLACED and task.cause == "running on w1 as attempt 0"
        request = controller_pb2.TerminateJobRequest(job_id="/u/a", reason="enough")
        await r.call("TerminateJob", request, controller_pb2.TerminateJobResponse)
        found = await explain(r, "/u/a")
        assert found.verdict == ENDED and found.cause.startswith("ended as killed")
        task = (await r.call("ExplainTask", question, controller_pb2.ExplainTaskResponse)).explanation
        assert task.verdict == ENDED and task.cause.startswith("ended as killed on w1")
        with pytest.raises(RpcFailed, match="there is no job /u/b") as caught:
            await explain(r, "/u/b")
        assert caught.value.status == "NOT_FOUND"
        question = controller_pb2.ExplainTaskRequest(task_id="/u/a/7")
        with pytest.raises(RpcFailed, match="job /u/a has no task 7"):
            await r.call("ExplainTask", question, controller_pb2.ExplainTaskResponse)


async def test_a_rehearsal_says_what_a_submit_would_come_to_and_leaves_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on):
        await r.until_workers(lambda workers: all(w.placeable for w in workers))
        before = r.controller.loop.n
        found = await rehearse(r, asked("/u/a", cpu=2))
        assert (found.verdict, found.fits, found.cause, found.state) == (NOW, 1, "1 of 1 worker has room for it", "")
        assert (await rehearse(r, asked("/u/b", cpu=16))).verdict == NEVER
        bundled = asked("/u/c")
        bundled.bundle_id = "ab" * 32
        assert (await rehearse(r, bundled)).verdict == NOW, "the bundle need not be stored"
        assert r.controller.loop.n == before and not r.controller.model.jobs
        await running(r, asked("/u/a", cpu=3))
        with pytest.raises(RpcFailed, match="job /u/a exists and is running") as real:
            await submit(r, asked("/u/a"))
        with pytest.raises(RpcFailed) as tried:
            await rehearse(r, asked("/u/a"))
        assert (tried.value.status, tried.value.message, tried.value.hint) == (
            real.value.status,
            real.value.message,
            real.value.hint,
        )
        waits = await rehearse(r, asked("/u/d", cpu=2))
        assert waits.verdict == WAITS and waits.blocked[0].holders[0].task_id == "/u/a/0"
        assert (waits.place.position, waits.place.queue) == (1, 1)
        keep = asked("/u/a")
        keep.existing_job_policy = common_pb2.EXISTING_JOB_POLICY_KEEP
        kept = await rehearse(r, keep)
        assert kept.verdict == PLACED and list(kept.notes) == ["it exists and would be kept"]
        anew = asked("/u/a", cpu=4)
        anew.existing_job_policy = common_pb2.EXISTING_JOB_POLICY_RECREATE
        replaced = await rehearse(r, anew)
        assert replaced.notes[0] == "it would first wait until the tasks of the present /u/a are gone"
        assert (await r.job("/u/a")).state == common_pb2.JOB_STATE_RUNNING
        impatient = asked("/u/f", cpu=4)
        impatient.scheduling_timeout_ms = 3_600_000
        said = await pending(r, impatient)
        assert any(note.startswith("it ends as unschedulable in 59m") for note in said.notes), said.notes
        wrong = asked("/u/e")
        wrong.priority_band = 77  # type: ignore[assignment]
        with pytest.raises(RpcFailed, match="priority band 77 is unknown"):
            await rehearse(r, wrong)


GROUPS = """
name: rig
platform: {local: }
controller: {local: {port: 0}}
worker_provider: {}
scale_groups:
  small:
    num_vms: 1
    max_slices: 2
    resources: {cpu: 2, ram: 2GB}
    zones: [eu-west4-a]
"""


async def test_each_scale_group_has_its_say(tmp_path: Path) -> None:
    async with rig(tmp_path, GROUPS) as r:
        fits = await rehearse(r, asked("/u/a", cpu=1, region="eu-west4"))
        assert [(g.scale_group, g.verdict, g.reason, g.can_ever) for g in fits.scale_groups] == [
            ("small-eu-west4-a", "available", "it may make 2 more", True)
        ]
        assert fits.verdict == WAITS
        large = await rehearse(r, asked("/u/b", cpu=8, region="eu-west4"))
        assert [(g.verdict, g.can_ever) for g in large.scale_groups] == [("insufficient_resources", False)]
        assert large.verdict == NEVER
        found = await pending(r, asked("/u/c", region="eu-wset4"))
        assert [(g.verdict, g.reason) for g in found.scale_groups] == [
            ("no_matching_group", "it does not meet region=eu-wset4")
        ]
        assert found.verdict == NEVER
        assert any("eu-west4" in note for note in found.notes), found.notes


async def test_who_may_ask_what_and_over_json(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on):
        await running(r, asked("/v/full", cpu=3.9))
        await running(r, asked("/u/parent"))
        await pending(r, asked("/u/parent/kid", cpu=4))
        signer = TokenSigner(load_key(tmp_path / "signing.key"))
        task = (await r.task("/u/parent/0")).task
        inside = connect(r.controller, signer.task_token("u", "/u/parent", "/u/parent", task.attempt_uid))
        viewer = connect(r.controller, signer.user_token("eve", dashboard=True))
        method, answer = "ControllerService/ExplainJob", controller_pb2.ExplainJobResponse
        try:
            kid = controller_pb2.ExplainJobRequest(job_id="/u/parent/kid")
            found = (await inside.call(method, kid, answer)).explanation
            assert [(h.task_id, h.held) for b in found.blocked for h in b.holders] == [("/u/parent/0", 100)]
            assert [b.other_holders for b in found.blocked] == [1], "a task is not told what others run"
            with pytest.raises(Denied, match="may not reach /v/full"):
                await inside.call(method, controller_pb2.ExplainJobRequest(job_id="/v/full"), answer)
            assert len((await viewer.call(method, kid, answer)).explanation.blocked[0].holders) == 2
            with pytest.raises(Denied, match="may not submit"):
                await viewer.call(method, controller_pb2.ExplainJobRequest(launch=asked("/eve/a")), answer)
        finally:
            await inside.close()
            await viewer.close()
        status, said = await r.post("ExplainJob", {"job_id": "/u/parent/kid", "what_if": {"cpu_millicores": 50}})
        assert status == 200
        assert said["explanation"]["verdict"] == "EXPLAIN_VERDICT_WAITS"
        assert said["explanation"]["what_if"] == ["cpu 0.05"]
        status, wrong = await r.post("ExplainJob", {"job_id": "/u/parent/kid", "what_if": {"replicas": -1}})
        assert status == 400 and wrong["field"] == "what_if.replicas"


async def test_a_reason_of_any_length_and_content_is_one_short_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on):
        await running(r, asked("/u/a"))
        reason = "\x1b]0;evil\x07 one\ntwo \u202e" + "a" * 100_000
        kick = controller_pb2.KickTasksRequest(
            targets=["/u/a/0"], desired_state=common_pb2.TASK_STATE_PREEMPTED, reason=reason
        )
        await r.call("KickTasks", kick, controller_pb2.KickTasksResponse)
        question = controller_pb2.ExplainTaskRequest(task_id="/u/a/0")
        task = (await r.call("ExplainTask", question, controller_pb2.ExplainTaskResponse)).explanation
        note = next(note for note in task.notes if "preempted by" in note)
        assert len(note) < 400 and note.isprintable()
    lines = [record.getMessage() for record in caplog.records if "event=task_preempted" in record.getMessage()]
    assert len(lines) == 1 and len(lines[0]) < 10_000
