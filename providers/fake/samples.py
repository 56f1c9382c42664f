"""A small cluster that shows everything: for pictures and for tests of the console.

All times are relative to the clock that is passed in, so that two runs give the same picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from providers.fake.client import FakeClient

if TYPE_CHECKING:
    from providers.fake.clock import FakeClock

MINUTE = 60_000
_GPU = common.Resources(
    cpu_millicores=8000,
    memory_bytes=64 * 10**9,
    disk_bytes=10**11,
    device=common.Device(kind="gpu", variant="h100", count=8),
)
_SMALL = common.Resources(cpu_millicores=500, memory_bytes=10**9, disk_bytes=5 * 10**9)


def job(
    job_id: str,
    state: str,
    *,
    now_ms: int,
    age_min: float = 1,
    started_min: float | None = None,
    finished_min: float | None = None,
    counts: dict[str, int] | None = None,
    parent: str = "",
    **fields: Any,
) -> pb.JobStatus:
    """A job whose times are given as minutes ago; `counts` by task state's name."""
    status = pb.JobStatus(
        job_id=job_id,
        name=job_id.rpartition("/")[2],
        state=f"JOB_STATE_{state}",
        user_id=job_id.split("/")[1],
        submitting_user=job_id.split("/")[1],
        parent_job_id=parent,
        depth=job_id.count("/") - 1,
        submitted_at_ms=now_ms - int(age_min * MINUTE),
        started_at_ms=now_ms - int(started_min * MINUTE) if started_min is not None else 0,
        finished_at_ms=now_ms - int(finished_min * MINUTE) if finished_min is not None else 0,
        priority_band=cast("Any", fields.pop("priority_band", common.PRIORITY_BAND_INTERACTIVE)),
        resources=fields.pop("resources", _SMALL),
        incarnation=now_ms - int(age_min * MINUTE),
        **fields,
    )
    for name, count in (counts or {}).items():
        status.task_counts.add(state=common.TaskState.Value(f"TASK_STATE_{name}"), count=count)
        status.num_tasks += count
    return status


def task(
    job_id: str, index: int, state: str, *, now_ms: int, started_min: float | None = None, finished_min: float | None = None,
    attempt: int = 0, **fields: Any,
) -> pb.TaskStatus:  # fmt: skip
    """A task whose times are given as minutes ago."""
    return pb.TaskStatus(
        task_id=f"{job_id}/{index}",
        job_id=job_id,
        task_index=index,
        state=f"TASK_STATE_{state}",
        current_attempt_id=attempt,
        attempt_uid=f"{index:08x}{attempt:08x}",
        submitted_at_ms=now_ms - 3 * MINUTE,
        started_at_ms=now_ms - int(started_min * MINUTE) if started_min is not None else 0,
        finished_at_ms=now_ms - int(finished_min * MINUTE) if finished_min is not None else 0,
        **fields,
    )


def sample(clock: FakeClock, *, cluster: str = "lab") -> FakeClient:
    """The cluster: running, waiting, failing and finished jobs, child jobs, retries, logs, and older jobs."""
    now = clock.now_ms()
    client = FakeClient(cluster=cluster, now_ms=now)
    client.put(
        job(
            "/ada/train-llama", "RUNNING", now_ms=now, age_min=42, started_min=41, counts={"RUNNING": 6, "SUCCEEDED": 1, "PENDING": 1},
            failure_count=1, preemption_count=3, resources=_GPU, has_children=True, priority_band=common.PRIORITY_BAND_PRODUCTION,
            pending_reason="no worker has 8 free h100: 2 of 3 are full, 1 is degraded",
        ),
        job("/ada/train-llama/eval-step-1000", "SUCCEEDED", now_ms=now, parent="/ada/train-llama", age_min=20, started_min=19,
            finished_min=12, counts={"SUCCEEDED": 2}),
        job("/ada/train-llama/eval-step-2000", "RUNNING", now_ms=now, parent="/ada/train-llama", age_min=3, started_min=2.5,
            counts={"RUNNING": 2}),
        job("/bob/tokenize-web", "PENDING", now_ms=now, age_min=5, counts={"PENDING": 64},
            pending_reason="waiting for 64 tasks: cpu is short by 12 cores", priority_band=common.PRIORITY_BAND_BATCH),
        job("/bob/[red]brackets[/red]", "FAILED", now_ms=now, age_min=8, started_min=8, finished_min=7.9, counts={"FAILED": 1},
            failure_count=1, exit_code=1, error="bad [/tag] [/] [reverse"),
        job("/cleo/sweep-lr", "RUNNING", now_ms=now, age_min=130, started_min=129,
            counts={"SUCCEEDED": 31, "FAILED": 2, "RUNNING": 12, "ASSIGNED": 3, "PENDING": 16}, failure_count=5),
        job("/cleo/wide-失敗-name", "KILLED", now_ms=now, age_min=240, started_min=239, finished_min=200, counts={"KILLED": 4},
            error="cancelled by cleo"),
        job("/dan/export", "SUCCEEDED", now_ms=now, age_min=600, started_min=599, finished_min=590, counts={"SUCCEEDED": 1}),
        job("/dan/oom", "FAILED", now_ms=now, age_min=605, started_min=604, finished_min=603, counts={"FAILED": 1}, failure_count=3,
            exit_code=137, error="memory limit of 1GB exceeded (peak 1.02GB)"),
        job("/eve/stuck", "UNSCHEDULABLE", now_ms=now, age_min=700, counts={"UNSCHEDULABLE": 1},
            error="no worker fits within 30m: gpu b200 is nowhere"),
    )  # fmt: skip
    for index in range(6):
        client.put(
            task("/ada/train-llama", index, "RUNNING", now_ms=now, started_min=41 - index, worker_id=f"h100-{index}")
        )
    client.put(
        task("/ada/train-llama", 6, "SUCCEEDED", now_ms=now, started_min=41, finished_min=1, worker_id="h100-6", exit_code=0),
        task("/ada/train-llama", 7, "PENDING", now_ms=now, attempt=1, failure_count=1, pending_reason="no worker has 8 free h100"),
        task("/dan/oom", 0, "FAILED", now_ms=now, attempt=2, started_min=604, finished_min=603, exit_code=137, failure_count=3,
             error="memory limit of 1GB exceeded (peak 1.02GB)", worker_id="cpu-1", memory_peak_bytes=1_020_000_000),
        attempt("/ada/train-llama/7", 0, "FAILED", now_ms=now, started_min=40, finished_min=30, exit_code=137,
                error="out of memory", worker_id="h100-7"),
        attempt("/ada/train-llama/7", 1, "PENDING", now_ms=now, current=True),
    )  # fmt: skip
    client.requests["/ada/train-llama"] = pb.LaunchJobRequest(
        name="/ada/train-llama",
        entrypoint=pb.Entrypoint(run_command=pb.Command(argv=["python", "train.py", "--config", "llama 8b.yaml"])),
        environment=pb.Environment(
            env_vars={"WANDB_API_KEY": "<redacted>", "RUN": "8"}, setup_scripts=["uv sync --frozen"]
        ),
        resources=_GPU,
        bundle_id="5f" * 32,
        replicas=8,
        max_retries_failure=2,
        submit_argv=["iris", "job", "run", "--gpu", "H100x8", "--replicas", "8", "--", "python", "train.py"],
    )
    for number in range(400):
        rank = number % 4
        client.log(
            f"/ada/train-llama/{rank}:0",
            f"step {number // 4 * 10} rank{rank} loss {2.5 - number / 400:.4f} grad_norm {0.5 + rank / 10:.2f}",
            epoch_ms=now - (400 - number) * 1000,
            level=common.LOG_LEVEL_INFO,
        )
    client.log(
        "/ada/train-llama/1:0", "[W] NCCL retry on ib0", source="stderr", level=common.LOG_LEVEL_WARNING, epoch_ms=now
    )
    client.log(
        "/ada/train-llama/2:0",
        "Traceback (most recent call last):",
        source="stderr",
        level=common.LOG_LEVEL_ERROR,
        epoch_ms=now,
    )
    client.log("/ada/train-llama/2:0", "\x1b[32mgreen\x1b[0m \x1b]0;owned\x07 [bold]literal[/bold] 失敗", epoch_ms=now)
    client.log("/ada/train-llama/3:0", "spool was full", epoch_ms=now, gap=12)
    client.history = [
        job(f"/old/run-{number:03d}", "SUCCEEDED", now_ms=now, age_min=3000 + number, started_min=2999 + number,
            finished_min=2990 + number, counts={"SUCCEEDED": 1})
        for number in range(3)
    ]  # fmt: skip
    return client


def attempt(
    task_id: str, number: int, state: str, *, now_ms: int, started_min: float | None = None, finished_min: float | None = None,
    current: bool = False, **fields: Any,
) -> pb.AttemptStatus:  # fmt: skip
    """An attempt whose times are given as minutes ago."""
    return pb.AttemptStatus(
        attempt_uid=f"{number:016x}",
        task_id=task_id,
        attempt_id=number,
        state=f"TASK_STATE_{state}",
        created_at_ms=now_ms - 41 * MINUTE,
        started_at_ms=now_ms - int(started_min * MINUTE) if started_min is not None else 0,
        finished_at_ms=now_ms - int(finished_min * MINUTE) if finished_min is not None else 0,
        current=current,
        **fields,
    )
