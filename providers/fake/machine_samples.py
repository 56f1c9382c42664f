"""What the sample cluster's scheduler, machines, users and endpoints look like: for pictures and tests of those screens.

Put on top of `samples.sample`; times are relative to the clock that is passed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as scaling
from iris_core.wire.gen.iris.v1 import backends_pb2 as backends
from iris_core.wire.gen.iris.v1 import budgets_pb2 as budgets
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.gen.iris.v1 import endpoints_pb2 as endpoints
from iris_core.wire.gen.iris.v1 import explain_pb2 as explain
from iris_core.wire.gen.iris.v1 import watch_rows_pb2 as rows
from providers.fake.samples import MINUTE, sample, task

if TYPE_CHECKING:
    from providers.fake.client import FakeClient
    from providers.fake.clock import FakeClock

GIB = 1024**3
GANG = "/ada/pretrain-gang"
SLICE = "tpu-v5e-16-0badcafe"
"""A slice of four workers on which tasks run."""
_BANDS = {
    "production": common.PRIORITY_BAND_PRODUCTION,
    "interactive": common.PRIORITY_BAND_INTERACTIVE,
    "batch": common.PRIORITY_BAND_BATCH,
}


def machine_sample(clock: FakeClock) -> FakeClient:
    """The sample cluster with its machines, queue, users and endpoints."""
    client = sample(clock)
    add_machines(client, clock)
    return client


def add_machines(client: FakeClient, clock: FakeClock) -> None:
    """Rows of every kind that those screens watch, and two explanations."""
    now = clock.now_ms()
    client.put(
        *_waiting(now),
        *_running(),
        *_users(),
        *_groups(now),
        *_slices(now),
        *_workers(),
        *_actions(now),
        *_served(now),
        _backend(),
    )
    client.put(
        *(
            task("/cleo/sweep-lr", number, "RUNNING", now_ms=now, started_min=30, worker_id=f"{SLICE}-w-{number}")
            for number in range(3)
        )
    )
    client.explanations[GANG] = gang_explained()
    client.explanations[f"{GANG}?"] = gang_explained(what_if=True)
    answers: Any = client
    answers._set_user_budget = _set_budget
    answers._create_slice = lambda request: scaling.CreateSliceResponse(slice_id=f"{request.scale_group}-new")
    answers._delete_slice = lambda request: scaling.DeleteSliceResponse(task_ids=["/cleo/sweep-lr/0"])
    answers._unregister_endpoint = lambda request: endpoints.UnregisterEndpointResponse(removed=True)
    answers._get_vm_logs = _vm_logs


def _set_budget(request: budgets.SetUserBudgetRequest) -> budgets.SetUserBudgetResponse:
    budget = budgets.UserBudget(user_id=request.user_id, budget_limit=request.budget_limit, max_band=request.max_band)
    return budgets.SetUserBudgetResponse(budget=budget)


def _vm_logs(request: scaling.GetVmLogsRequest) -> scaling.GetVmLogsResponse:
    vm = scaling.VmStatus(vm_id=request.vm_id, worker_id=f"{SLICE}-w-0", state="ready", attached=True)
    return scaling.GetVmLogsResponse(
        vm=vm, lines=["startup script began", "\x1b]0;owned\x07 docker: pulled", "worker started"]
    )


def resources(cores: float, memory_gib: int, *, kind: str = "", variant: str = "", count: int = 0) -> common.Resources:
    """What a task asks for, or a worker has."""
    found = common.Resources(cpu_millicores=int(cores * 1000), memory_bytes=memory_gib * GIB)
    if count:
        found.device.CopyFrom(common.Device(kind=kind, variant=variant, count=count))
    return found


def pending(
    job_id: str, band: str, count: int, position: int, *, now_ms: int, waits_min: float, reason: str, asks: common.Resources,
    user: str = "", gang: bool = False,
) -> rows.PendingBucketRow:  # fmt: skip
    """The pending tasks of a job."""
    return rows.PendingBucketRow(
        bucket_id=job_id, job_id=job_id, band=_BANDS[band], requested_band=_BANDS[band], user_id=user or job_id.split("/")[1],
        backend_id="workers", count=count, position=position, pending_since_ms=now_ms - int(waits_min * MINUTE), reason=reason,
        resources=asks, gang=gang,
    )  # fmt: skip


def running(job_id: str, band: str, count: int, worker_id: str) -> rows.RunningBucketRow:
    """The running tasks of a job on a worker."""
    return rows.RunningBucketRow(
        bucket_id=f"{job_id} {band} {worker_id}", job_id=job_id, band=_BANDS[band], user_id=job_id.split("/")[1], worker_id=worker_id,
        backend_id="workers", count=count,
    )  # fmt: skip


def _waiting(now: int) -> list[rows.PendingBucketRow]:
    tpu = resources(100, 128, kind="tpu", variant="v5litepod-16", count=4)
    gpu = resources(8, 64, kind="gpu", variant="h100", count=8)
    return [
        pending("/ada/train-llama", "production", 1, 1, now_ms=now, waits_min=3, asks=gpu,
                reason="no worker has 8 free h100: 2 of 3 are full, 1 is degraded"),
        pending(GANG, "interactive", 4, 2, now_ms=now, waits_min=12, asks=tpu, gang=True,
                reason="no tpu-name has room for all 4 tasks: the nearest lacks 2"),
        pending("/cleo/sweep-lr", "batch", 16, 6, now_ms=now, waits_min=130, asks=resources(0.5, 1),
                reason="budget of cleo is spent, served as batch: cpu is short by 8 cores"),
        pending("/bob/tokenize-web", "batch", 64, 22, now_ms=now, waits_min=5, asks=resources(0.5, 1),
                reason="waiting for 64 tasks: cpu is short by 12 cores"),
        pending("/bob/[red]brackets[/red]", "batch", 1, 86, now_ms=now, waits_min=1, asks=resources(1, 2),
                reason="bad [/tag] in a reason"),
    ]  # fmt: skip


def _running() -> list[rows.RunningBucketRow]:
    return [
        *(running("/ada/train-llama", "production", 1, f"h100-{number}") for number in range(6)),
        *(running("/cleo/sweep-lr", "batch", 1, f"{SLICE}-w-{number}") for number in range(3)),
        running("/cleo/sweep-lr", "batch", 9, "cpu-1"),
    ]


def user(
    name: str, spent: int, limit: int, *, band: str = "interactive", served: str = "interactive", jobs: int = 1, active: int = 1,
    running_tasks: int = 1, most: int = 0, role: str = "user",
) -> rows.UserRow:  # fmt: skip
    """A user with a budget."""
    return rows.UserRow(
        user_id=name,
        budget=budgets.UserBudget(
            user_id=name, budget_limit=limit, budget_spent=spent, max_band=_BANDS[band], effective_band=_BANDS[served],
            utilization_percent=100 * spent / limit if limit else 0, updated_at_ms=1_700_000_000_000 if limit else 0,
        ),
        summary=budgets.UserSummary(
            user_id=name, role=role, active_jobs=jobs, running_tasks=running_tasks,
            tasks_by_state={"running": running_tasks, "pending": active - running_tasks},
        ),
        active_tasks=active, max_active_tasks=most,
    )  # fmt: skip


def _users() -> list[rows.UserRow]:
    return [
        user("ada", 48_400, 0, band="production", jobs=3, active=11, running_tasks=6, role="admin"),
        user("bob", 0, 4_000, jobs=1, active=65, running_tasks=0, most=80),
        user("cleo", 8_300, 8_000, served="batch", jobs=1, active=28, running_tasks=12, most=100),
        user("dan", 6_100, 8_000, jobs=0, active=0, running_tasks=0),
    ]


def _groups(now: int) -> list[scaling.ScaleGroupStatus]:
    return [
        scaling.ScaleGroupStatus(
            name="tpu-v5e-16", accelerator="v5litepod-16", num_vms=4, buffer_slices=1, max_slices=8, priority=10, zone="us-central1-a",
            demand=2, peak_demand=5, availability="requesting", availability_reason="1 slice is on its way", decision="requesting",
            decision_reason="2 gangs wait", current_slices=2, target_slices=3, preemptible=True, allocation_tier=1,
            slice_state_counts={"ready": 1, "booting": 1}, idle_threshold_ms=600_000, last_scale_up_ms=now - 2 * MINUTE,
            resources=resources(112, 192, kind="tpu", variant="v5litepod-16", count=4),
        ),
        scaling.ScaleGroupStatus(
            name="tpu-v5p-8", accelerator="v5p-8", num_vms=1, max_slices=4, priority=20, zone="us-east5-a", demand=1, peak_demand=1,
            availability="backoff", availability_reason="3 failures in a row", blocked_until_ms=now + 4 * MINUTE,
            backoff_until_ms=now + 4 * MINUTE, consecutive_failures=3, decision="blocked", current_slices=0, target_slices=1,
            failure_reason="Stockout: There is no more capacity in the zone \"us-east5-a\"; you can try in another zone.",
        ),
        scaling.ScaleGroupStatus(
            name="gpu-h100", accelerator="h100", num_vms=1, max_slices=2, priority=30, zone="us-west1-b", availability="quota_exceeded",
            blocked_until_ms=now + 22 * MINUTE, quota_exceeded_until_ms=now + 22 * MINUTE, current_slices=1, target_slices=2, demand=1,
            quota_reason="Quota 'NVIDIA_H100_GPUS' exceeded. Limit: 8.0 in region us-west1.", decision="blocked",
            slice_state_counts={"failed": 1},
        ),
        scaling.ScaleGroupStatus(name="cpu", num_vms=1, max_slices=20, priority=40, availability="available", decision="idle"),
    ]  # fmt: skip


def _slices(now: int) -> list[scaling.SliceStatus]:
    found = [
        scaling.SliceStatus(
            slice_id=SLICE, scale_group="tpu-v5e-16", lifecycle="ready", created_at_ms=now - 300 * MINUTE, generation=7, busy=True,
        ),
        scaling.SliceStatus(
            slice_id="tpu-v5e-16-1cebabe0", scale_group="tpu-v5e-16", lifecycle="booting", created_at_ms=now - 2 * MINUTE, generation=2,
        ),
        scaling.SliceStatus(
            slice_id="gpu-h100-77aa", scale_group="gpu-h100", lifecycle="failed", created_at_ms=now - 60 * MINUTE, generation=4, manual=True,
            error="the machine was taken away: maintenance event", idle_ms=9 * MINUTE,
        ),
    ]  # fmt: skip
    for item, number, state in ((found[0], 4, "ready"), (found[1], 4, "booting"), (found[2], 1, "failed")):
        for index in range(number):
            ready = state == "ready"
            item.vms.add(
                vm_id=f"{item.slice_id}-vm-{index}", worker_id=f"{item.slice_id}-w-{index}" if ready or state == "failed" else "",
                address=f"10.0.0.{index + 1}:10001" if ready else "", state=state, attached=ready,
                error="preempted by the provider" if state == "failed" else "",
            )  # fmt: skip
    return found


def worker(
    worker_id: str, health: str = "HEALTHY", *, has: common.Resources, used: common.Resources | None = None, tasks: int = 0,
    reason: str = "", silent_ms: int = 2000, builds: int = 0, **attributes: str,
) -> pb.WorkerStatus:  # fmt: skip
    """A worker."""
    return pb.WorkerStatus(
        worker_id=worker_id, address=f"{worker_id}.lab:10001", health=cast("Any", f"WORKER_HEALTH_{health}"), health_reason=reason,
        hostname=worker_id, total=has, committed=used or common.Resources(), running_tasks=tasks, last_message_age_ms=silent_ms,
        boot_id="b007", pid=4711, version="0.1.0", release="3f9ac1d2e4b5", attached=health == "HEALTHY", build_failures=builds,
        attributes={name: common.AttributeValue(text=value) for name, value in attributes.items()},
    )  # fmt: skip


def _workers() -> list[pb.WorkerStatus]:
    tpu = resources(112, 192, kind="tpu", variant="v5litepod-16", count=4)
    gpu = resources(96, 512, kind="gpu", variant="h100", count=8)
    return [
        *(
            worker(
                f"{SLICE}-w-{number}", has=tpu, used=resources(0.5, 1) if number < 3 else None, tasks=int(number < 3),
                region="us-central1", zone="us-central1-a",
            )
            for number in range(4)
        ),
        worker("h100-0", has=gpu, used=resources(8, 64, kind="gpu", variant="h100", count=8), tasks=1, region="us-west1"),
        worker("h100-1", "DEGRADED", has=gpu, reason="silent for 12s: no new work", silent_ms=12_000, region="us-west1"),
        worker("cpu-1", has=resources(16, 64), used=resources(4.5, 9), tasks=9, builds=2,
               reason="excluded for 4m: 2 builds in a row failed (pip: no space left on device)"),
        worker("cpu-2", "DEAD", has=resources(16, 64), reason="silent for 51s", silent_ms=51_000),
    ]  # fmt: skip


def _actions(now: int) -> list[scaling.AutoscalerAction]:
    def action(
        number: int, minutes: float, name: str, status: str, group: str, entity: str, reason: str
    ) -> scaling.AutoscalerAction:
        return scaling.AutoscalerAction(
            action_id=str(number), at_ms=now - int(minutes * MINUTE), action=name, status=status, scale_group=group, entity=entity,
            reason=reason,
        )  # fmt: skip

    return [
        action(1, 300, "scale_up", "completed", "tpu-v5e-16", SLICE, "1 gang of 4 waits"),
        action(2, 60, "create_slice", "completed", "gpu-h100", "gpu-h100-77aa", "asked for by ada"),
        action(
            3,
            9,
            "slice_failed",
            "completed",
            "gpu-h100",
            "gpu-h100-77aa",
            "the machine was taken away: maintenance event",
        ),
        action(
            4, 6, "scale_up", "failed", "tpu-v5p-8", "", 'Stockout: There is no more capacity in the zone "us-east5-a"'
        ),
        action(5, 2, "scale_up", "pending", "tpu-v5e-16", "tpu-v5e-16-1cebabe0", "2 gangs wait, 1 slice is missing"),
    ]


def _served(now: int) -> list[endpoints.Endpoint]:
    return [
        endpoints.Endpoint(
            name="/system/log-server", address="127.0.0.1:40123", access=endpoints.ENDPOINT_ACCESS_PRIVATE,
            proxy_path="/proxy/system.log-server/",
        ),
        endpoints.Endpoint(
            endpoint_id="e-1", name="/ada/train-llama/board", address="10.0.0.7:6006", task_id="/ada/train-llama/0",
            attempt_uid="0000000000000000", registered_at_ms=now - 40 * MINUTE, lease_ms=60_000, access=endpoints.ENDPOINT_ACCESS_LINK,
            proxy_path="/proxy/ada.train-llama.board/", metadata={"kind": "tensorboard"},
        ),
        endpoints.Endpoint(
            endpoint_id="e-2", name="/cleo/sweep-lr/coordinator", address="10.0.0.9:7000", task_id="/cleo/sweep-lr/0",
            attempt_uid="0000000000000000", registered_at_ms=now - 129 * MINUTE, access=endpoints.ENDPOINT_ACCESS_PRIVATE,
            proxy_path="/proxy/cleo.sweep-lr.coordinator/",
        ),
    ]  # fmt: skip


def _backend() -> rows.BackendRow:
    return rows.BackendRow(
        backend_id="workers",
        status=backends.BackendStatus(
            backend_id="workers", name="workers", kind="worker_daemon", capabilities=["exec", "profile"], workers_total=8, workers_healthy=6,
            pending_tasks=86, running_tasks=18, total=resources(560, 1344), committed=resources(14, 76),
            devices=[backends.DeviceAvailability(kind="gpu", variant="h100", total=8, free=0)],
        ),
        provider=backends.GetProviderStatusResponse(
            backend_id="workers", kind="worker_daemon", platform="gcp",
            capacity=[
                backends.ScaleGroupCapacity(
                    scale_group="tpu-v5e-16", slices=1, workers_total=4, workers_healthy=4, total=resources(448, 768),
                    committed=resources(1.5, 3),
                ),
                backends.ScaleGroupCapacity(workers_total=4, workers_healthy=2, total=resources(112, 576), committed=resources(12.5, 73)),
            ],
            scheduling_events=[
                backends.SchedulingEvent(reason="cpu is short by 12 cores", jobs=2, tasks=80, example_job_id="/bob/tokenize-web"),
            ],
            problems=[
                backends.WorkerProblem(worker_id="cpu-2", health=common.WORKER_HEALTH_DEAD, reason="silent for 51s"),
                backends.WorkerProblem(worker_id="h100-1", health=common.WORKER_HEALTH_DEGRADED, reason="silent for 12s: no new work"),
            ],
            problems_total=2,
        ),
    )  # fmt: skip


def gang_explained(*, what_if: bool = False) -> explain.Explanation:
    """Why the sample's gang waits; with `what_if`, in another region."""
    step = explain.FunnelStep
    region = "us-east5" if what_if else "us-central1"
    found = explain.Explanation(
        subject=GANG,
        verdict=explain.EXPLAIN_VERDICT_NEVER_FITS if what_if else explain.EXPLAIN_VERDICT_WAITS,
        cause=(
            "no worker in us-east5 has a TPU: tpu-v5p-8 cannot be made for another 4m"
            if what_if
            else "no tpu-name has room for all 4 tasks: tpu-v5e-16-0badcafe lacks 2 of 4"
        ),
        state="pending", tasks=4, pending=4, workers=8, fits=0 if what_if else 2, capable=0 if what_if else 4,
        resources=resources(100, 128, kind="tpu", variant="v5litepod-16", count=4), group_by="tpu-name", gang_size=4,
        funnel=[
            step(name="health", wants="healthy", left=6, found=[explain.FoundValue(value="degraded", workers=1)]),
            step(name="region", wants=region, left=0 if what_if else 4, more=2 if what_if else 0,
                 found=[explain.FoundValue(value="us-west1", workers=2)]),
            step(name="cpu", wants="100", left=0 if what_if else 4, needed=100_000, most_free=112_000, most_total=112_000),
            step(name="tpu", wants="4", left=0 if what_if else 2, more=0 if what_if else 2, needed=4, most_free=4, most_total=4,
                 suggestion="" if what_if else "2 workers hold tasks of /cleo/sweep-lr"),
        ],
        groups=[] if what_if else [explain.GangGroup(value=SLICE, workers=4, fits=2, capable=4, missing=2,
                                   blocked=[explain.FoundValue(value="tpu", workers=2)])],
        groups_total=0 if what_if else 1,
        place=explain.QueuePlace(
            requested_band=common.PRIORITY_BAND_INTERACTIVE, effective_band=common.PRIORITY_BAND_INTERACTIVE, user_id="ada",
            budget_spent=48_400, position=2, queue=86,
        ),
        scheduler_reason="no tpu-name has room for all 4 tasks: the nearest lacks 2",
        revision=common.Revision(boot_id="0000000000000001", n=17),
        scale_groups=[
            explain.ScaleGroupVerdict(scale_group="tpu-v5e-16", verdict="requesting", reason="1 slice is on its way", can_ever=True),
            explain.ScaleGroupVerdict(scale_group="tpu-v5p-8", verdict="backoff", reason="3 failures in a row", can_ever=True),
            explain.ScaleGroupVerdict(scale_group="cpu", verdict="no_matching_group", reason="it has no TPU"),
        ],
    )  # fmt: skip
    if what_if:
        found.what_if.append("region=us-east5")
    return found
