"""A gang of eight of which rank 3 failed first, with everything that its pages show: attempts, events, measurements, profiles, endpoints.

The log store is asked in SQL; the answers here depend on the table and the task that a statement names, and on nothing else in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from iris_core.model.tables import ColumnType
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.gen.iris.v1 import endpoints_pb2, profiles_pb2, stats_pb2
from iris_core.wire.rows import values_to_wire
from providers.fake.samples import MINUTE, attempt, job, sample, task

if TYPE_CHECKING:
    from providers.fake.client import FakeClient
    from providers.fake.clock import FakeClock

GANG: Final = "/ada/pretrain"
RANKS: Final = 8
_GPU: Final = common.Resources(
    cpu_millicores=8000, memory_bytes=64 * 10**9, disk_bytes=10**11, device=common.Device(kind="gpu", variant="h100", count=8)
)  # fmt: skip
_TASK: Final = re.compile(r"task_id = '([^']*)'|prefix\(task_id, '([^']*)'\)")
_ATTEMPT: Final = re.compile(r"attempt_id = (\d+)")
_EVENTS: Final = ("task_id", "ts", "attempt_id", "attempt_uid", "type", "source", "reason", "message", "count")
_EVENT_TYPES: Final = (
    ColumnType.STRING, ColumnType.TIMESTAMP_MS, ColumnType.INT32, ColumnType.STRING, ColumnType.STRING, ColumnType.STRING,
    ColumnType.STRING, ColumnType.STRING, ColumnType.INT64,
)  # fmt: skip


def answer(client: FakeClient, method: str, handler: Callable[[Any], Any]) -> None:
    """Have another call answered: `answer(client, "ListProfiles", lambda request: …)`."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in method).lstrip("_")
    setattr(client, f"_{snake}", handler)


def troubled(clock: FakeClock, *, cluster: str = "lab") -> FakeClient:
    """The sample with the gang, whose second attempts have just failed."""
    client = sample(clock, cluster=cluster)
    now = clock.now_ms()
    client.put(
        job(GANG, "FAILED", now_ms=now, age_min=50, started_min=49, finished_min=2, counts={"FAILED": 1, "COSCHED_FAILED": 7},
            failure_count=2, preemption_count=1, exit_code=1, resources=_GPU,
            priority_band=common.PRIORITY_BAND_PRODUCTION, error="exit code 1: RuntimeError: NCCL error: unhandled system error"),
        job(f"{GANG}/eval", "SUCCEEDED", now_ms=now, parent=GANG, age_min=20, started_min=19, finished_min=12, counts={"SUCCEEDED": 2}),
    )  # fmt: skip
    for rank in range(RANKS):
        failed = rank == 3
        name = f"{GANG}/{rank}"
        why = (
            "exit code 1: RuntimeError: NCCL error: unhandled system error"
            if failed
            else "gang mate 3 failed: exit code 1"
        )
        client.put(
            task(GANG, rank, "FAILED" if failed else "COSCHED_FAILED", now_ms=now, attempt=1, started_min=20, finished_min=2.1 - rank / 100,
                 worker_id=f"h100-{rank}", exit_code=1 if failed else 143, failure_count=2 if failed else 0, error=why,
                 memory_peak_bytes=(40 + rank) * 10**9),
            attempt(name, 0, "PREEMPTED", now_ms=now, started_min=48, finished_min=25, worker_id=f"h100-{rank + 8}",
                    terminal_reason="preempted", charge=pb.ATTEMPT_CHARGE_PREEMPTION, error="preempted by /ops/urgent/0", memory_peak_bytes=39 * 10**9, log_lines=900),
            attempt(name, 1, "FAILED" if failed else "COSCHED_FAILED", now_ms=now, started_min=20, finished_min=2.1 - rank / 100,
                    worker_id=f"h100-{rank}", exit_code=1 if failed else 143, error=why, current=True, log_lines=7 if failed else 3,
                    memory_peak_bytes=(40 + rank) * 10**9, charge=pb.ATTEMPT_CHARGE_FAILURE if failed else pb.ATTEMPT_CHARGE_UNSPECIFIED, terminal_reason="command" if failed else "cosched_failed"),
        )  # fmt: skip
        for one in client.attempts[name]:
            one.attempt_uid = f"{rank:08x}{one.attempt_id:08x}"
            one.created_at_ms = one.started_at_ms - 2_000
    client.requests[GANG] = pb.LaunchJobRequest(
        name=GANG,
        entrypoint=pb.Entrypoint(run_command=pb.Command(argv=["torchrun", "pretrain.py", "--lr", "3e-4"])),
        environment=pb.Environment(env_vars={"WANDB_API_KEY": "[redacted:WANDB_API_KEY]", "RUN": "8"}),
        resources=_GPU,
        bundle_id="5f" * 32,
        replicas=RANKS,
        max_retries_failure=1,
        coscheduling=pb.CoschedulingConfig(group_by="pool"),
        priority_band=common.PRIORITY_BAND_PRODUCTION,
        submit_argv=[
            "iris-core",
            "job",
            "run",
            "--gpu",
            "H100x8",
            "--replicas",
            "8",
            "--",
            "torchrun",
            "pretrain.py",
            "--lr",
            "3e-4",
        ],
    )
    lines = (
        "step 4180 loss 2.01", "step 4190 loss 2.00", "Traceback (most recent call last):",
        '  File "pretrain.py", line 212, in all_reduce', "    torch.distributed.all_reduce(x)",
        "RuntimeError: NCCL error: unhandled system error, ib0: [red]link down[/red]",
    )  # fmt: skip
    client.log(f"{GANG}/3:1", *lines, source="stderr", epoch_ms=now - 2 * MINUTE)
    client.log(f"{GANG}/3:0", "step 100 loss 7.2", "SIGTERM: saving a checkpoint", epoch_ms=now - 25 * MINUTE)
    client.log(f"{GANG}/2:1", "step 4190 loss 2.00", "SIGTERM", epoch_ms=now - 2 * MINUTE)
    answer(client, "Query", lambda request: _stats(client, request, clock.now_ms()))
    answer(client, "ListProfiles", lambda request: _profiles(request, now))
    answer(client, "ListEndpoints", lambda request: _endpoints(now))
    return client


def _stats(client: FakeClient, request: stats_pb2.QueryRequest, now: int) -> stats_pb2.QueryResponse:
    if '"iris.task_event"' in request.sql:
        return _events(client, request.sql, now)
    if '"iris.task_status"' in request.sql:
        return _columns(
            ("summary", "detail"),
            (ColumnType.STRING, ColumnType.STRING),
            [("**step 4190** of 10000", "loss 2.00\nlr 3e-4")],
        )
    names = ("at", "cpu", "memory", "peak", "busy", "held", "tasks")
    types = (ColumnType.TIMESTAMP_MS,) + (ColumnType.INT64,) * 3 + (ColumnType.FLOAT64,) + (ColumnType.INT64,) * 2
    rows = []
    for minute in range(48, 2, -1):
        if 20 < minute < 25:
            continue  # between the attempts nothing ran
        wave = (minute * 7) % 10
        rows.append(
            (
                now - minute * MINUTE,
                5000 + wave * 250,
                30_000 + (48 - minute) * 200,
                47_000,
                80.0 + wave,
                60 * 10**9,
                RANKS,
            )
        )
    return _columns(names, types, rows)


def _events(client: FakeClient, sql: str, now: int) -> stats_pb2.QueryResponse:
    found = _TASK.search(sql)
    wanted = _ATTEMPT.search(sql)
    named, below = (found[1] or "", found[2] or "") if found is not None else ("", "")
    rows: list[tuple[Any, ...]] = []
    for name, attempts in client.attempts.items():
        if name != named and not (below and name.startswith(below)):
            continue
        for one in attempts:
            if wanted is not None and int(wanted[1]) != one.attempt_id:
                continue
            uid, ended = one.attempt_uid, int(one.state) not in (1, 2, 3, 9)
            rows.append(
                (
                    name,
                    one.created_at_ms,
                    one.attempt_id,
                    uid,
                    "Normal",
                    "iris/controller",
                    "Assigned",
                    one.worker_id,
                    1,
                )
            )
            if one.started_at_ms:
                rows.append(
                    (name, one.started_at_ms, one.attempt_id, uid, "Normal", "iris/controller", "Started", "", 1)
                )
            if ended and one.finished_at_ms:
                reason = {"preempted": "Preempted", "command": "Failed"}.get(
                    one.terminal_reason, "CoscheduledSiblingTerminated"
                )
                rows.append(
                    (name, one.finished_at_ms, one.attempt_id, uid, "Warning", "iris/controller", reason, one.error, 1)
                )
    rows.sort(key=lambda row: -row[1])
    return _columns(_EVENTS, _EVENT_TYPES, rows)


def _columns(
    names: tuple[str, ...], types: tuple[ColumnType, ...], rows: list[tuple[Any, ...]]
) -> stats_pb2.QueryResponse:
    columns = [
        values_to_wire(name, kind, [row[place] for row in rows])
        for place, (name, kind) in enumerate(zip(names, types, strict=True))
    ]
    return stats_pb2.QueryResponse(columns=columns, row_count=len(rows))


def _profiles(request: profiles_pb2.ListProfilesRequest, now: int) -> profiles_pb2.ListProfilesResponse:
    if request.source != f"{GANG}/3":
        return profiles_pb2.ListProfilesResponse()
    kinds = (
        (profiles_pb2.PROFILE_TYPE_THREADS, profiles_pb2.PROFILE_FORMAT_TEXT, 3, 4_200),
        (profiles_pb2.PROFILE_TYPE_CPU, profiles_pb2.PROFILE_FORMAT_SPEEDSCOPE, 12, 88_000),
    )
    return profiles_pb2.ListProfilesResponse(
        profiles=[
            profiles_pb2.ProfileRecord(
                profile_id=f"{place:021x}", source=request.source, attempt_id=1, attempt_uid="0000000300000001", vm_id="h100-3",
                captured_at_ms=now - minutes * MINUTE, duration_seconds=10 if size > 10_000 else 0, type=kind, format=form,
                trigger=profiles_pb2.PROFILE_TRIGGER_PERIODIC, size_bytes=size,
            )
            for place, (kind, form, minutes, size) in enumerate(kinds)
        ]
    )  # fmt: skip


def _endpoints(now: int) -> endpoints_pb2.ListEndpointsResponse:
    return endpoints_pb2.ListEndpointsResponse(
        endpoints=[
            endpoints_pb2.Endpoint(
                endpoint_id=f"e{rank}", name=f"{GANG}/metrics-{rank}", address=f"10.0.0.{rank}:9090", task_id=f"{GANG}/{rank}",
                registered_at_ms=now - 19 * MINUTE, proxy_path=f"/proxy/ada.pretrain.metrics-{rank}/",
            )
            for rank in range(RANKS)
        ]
    )  # fmt: skip
