"""The pulse of a small cluster in which some things are wrong: rows of the fleet, the controller and its scale groups.

All times are relative to the time that is passed in, so that two runs give the same picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from iris_core.wire.gen.iris.v1 import autoscaler_pb2, common_pb2, pipeline_pb2
from iris_core.wire.gen.iris.v1 import watch_rows_pb2 as rows

if TYPE_CHECKING:
    from providers.fake.client import FakeClient

MINUTE = 60_000
GB = 10**9


def fleet(now_ms: int, **fields: Any) -> rows.FleetRow:
    """The pulse; `fields` replace those of the row."""
    row = rows.FleetRow(
        fleet_id="fleet",
        jobs_by_state={"running": 12, "pending": 3},
        tasks_by_state={"running": 96, "building": 4, "pending": 81},
        total=common_pb2.Resources(cpu_millicores=960_000, memory_bytes=3840 * GB),
        committed=common_pb2.Resources(cpu_millicores=710_500, memory_bytes=2210 * GB),
        workers_total=32,
        workers_leaving=1,
        users=5,
    )
    row.pending.add(
        band=cast("Any", 2), tasks=1, buckets=1, pending_since_ms=now_ms - 42 * MINUTE, job_id="/ada/train-llama"
    )
    row.pending.add(
        band=cast("Any", 4), tasks=80, buckets=2, pending_since_ms=now_ms - 95 * MINUTE, job_id="/bob/tokenize-web"
    )
    row.running.add(band=cast("Any", 2), tasks=7)
    row.running.add(band=cast("Any", 3), tasks=89)
    row.devices.add(kind="gpu", variant="h100", total=64, free=8, held_by_band={"production": 48, "batch": 8})
    for health, count in ((1, 28), (2, 1), (3, 3)):
        row.workers.add(health=cast("Any", health), count=count)
    row.ends.counted_since_ms = now_ms - 300 * MINUTE
    row.ends.failures, row.ends.preemptions = 9, 3
    row.ends.failures_by_minute.extend([0] * 40 + [1, 0, 2, 3, 1] + [0] * 12 + [1, 1, 0])
    row.ends.minute_started_ms = now_ms - now_ms % MINUTE
    scaler = row.autoscaler
    scaler.enabled, scaler.groups, scaler.groups_blocked, scaler.current_demand = True, 4, 1, 81
    scaler.slices_by_lifecycle.update({"ready": 6, "booting": 2})
    row.MergeFrom(rows.FleetRow(**fields))
    return row


def quiet_fleet(now_ms: int) -> rows.FleetRow:
    """A cluster where nothing waits and nothing is wrong."""
    row = rows.FleetRow(
        fleet_id="fleet", workers_total=2, total=common_pb2.Resources(cpu_millicores=8000, memory_bytes=16 * GB)
    )
    row.workers.add(health=cast("Any", 1), count=2)
    row.ends.counted_since_ms = now_ms - 2 * MINUTE
    return row


def controller(now_ms: int, **fields: Any) -> rows.ControllerRow:
    """The controller; `fields` replace those of the row."""
    row = rows.ControllerRow(
        controller_id="controller",
        cluster="lab",
        process=common_pb2.ProcessInfo(
            target="/system/controller", hostname="ctl-0", pid=4711, python="3.11.9", version="0.1.0", release="4f5e6d7c8b9a",
            boot_id="00000000000000b7", uptime_ms=26 * 3_600_000, cpu_millicores=180, memory_rss_bytes=412 * 10**6,
            memory_total_bytes=16 * GB, threads=14, open_fds=93, cpu_count=4,
        ),
        started_at_ms=now_ms - 26 * 3_600_000,
        state_dir="/var/lib/iris",
        lag=rows.LoopLag(p50_ms=0.4, p99_ms=3.1, max_ms=18.0, samples=600, window_ms=60_000),
        queued_commands=2, watchers=3, attached_workers=29, last_plan_ms=4.2, last_commit_ms=2.8, batches=81_234, commands=240_871,
        checkpoint=rows.CheckpointCondition(
            last_at_ms=now_ms - 12 * MINUTE, size_bytes=3_400_000, next_due_ms=now_ms + 18 * MINUTE,
            place="gs://lab-state/controller-state",
        ),
        store=pipeline_pb2.StoreHealth(
            state="serving", release="4f5e6d7c8b9a", last_seq=1_203_000, disk_bytes=12 * GB, max_bytes=100 * GB, disk_free_bytes=240 * GB,
            files=418, last_line_at_ms=now_ms - 1000,
        ),
        background=[rows.BackgroundTask(name=name, started_at_ms=now_ms - 26 * 3_600_000) for name in ("checkpoints", "loop", "timers")],
        ready=True, jobs=15, tasks=181, attempts=100, workers=32, slices=8, endpoints=4, observed_at_ms=now_ms,
    )  # fmt: skip
    row.MergeFrom(rows.ControllerRow(**fields))
    return row


def group(name: str, **fields: Any) -> autoscaler_pb2.ScaleGroupStatus:
    """A scale group."""
    return autoscaler_pb2.ScaleGroupStatus(name=name, **fields)


def put_pulse(client: FakeClient) -> None:
    """Publish all of it."""
    now = client.now_ms
    client.put(
        fleet(now),
        controller(now),
        group("cpu-pool", availability="available"),
        group(
            "v5e-16", availability="quota_exceeded", quota_exceeded_until_ms=now + 10 * MINUTE,
            quota_reason="Quota 'TPUV5sLitepodPerProjectPerZone' exhausted. Limit 32 in zone europe-west4-b",
        ),
    )  # fmt: skip
