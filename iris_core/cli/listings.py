"""Which columns each listing has in which format (cli-auth-logs §1.2–1.4), over the specs that the console shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_core.cli.tables import Listing
from iris_core.live.checkpoint_columns import CHECKPOINTS, CheckpointRow
from iris_core.live.columns import ATTEMPTS, JOBS, TASKS
from iris_core.live.endpoint_columns import ENDPOINTS
from iris_core.live.event_columns import EVENTS, TaskEvent
from iris_core.live.profile_columns import PROFILES
from iris_core.live.table_columns import COLUMNS, TABLES, SchemaRow
from iris_core.live.user_columns import BUDGETS
from iris_core.live.worker_columns import WORKERS

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.budgets_pb2 import UserBudget
    from iris_core.wire.gen.iris.v1.controller_pb2 import AttemptStatus, JobStatus, TaskStatus, WorkerStatus
    from iris_core.wire.gen.iris.v1.endpoints_pb2 import Endpoint
    from iris_core.wire.gen.iris.v1.profiles_pb2 import ProfileRecord
    from iris_core.wire.gen.iris.v1.stats_pb2 import TableStatus


def _plain(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, "") for name in names)


JOB_LIST: Listing[JobStatus] = Listing(
    JOBS,
    table=_plain("job_id", "state", "submitted", "reason"),
    wide=_plain(
        "job_id", "state", "tasks", "submitted", "time", "failures", "preemptions", "user", "band", "exit", "resources", "reason"
    ),
    name=lambda job: job.job_id,
    optional=frozenset({"reason"}),
)  # fmt: skip

TASK_LIST: Listing[TaskStatus] = Listing(
    TASKS,
    table=(*_plain("task_id", "state", "attempt", "worker"), ("reason", "STATUS")),
    wide=(*_plain("task_id", "state", "exit", "attempt", "time", "failures", "preemptions", "memory_peak", "worker"), ("reason", "STATUS")),
    name=lambda task: task.task_id,
)  # fmt: skip

JOB_TASKS: Listing[TaskStatus] = Listing(
    TASKS,
    table=(*_plain("task_id", "state", "exit", "time", "memory_peak", "memory"), ("reason", "ERROR")),
    wide=(
        *_plain("task_id", "state", "exit", "attempt", "time", "memory_peak", "memory", "worker"),
        ("reason", "ERROR"),
    ),
    name=lambda task: task.task_id,
)

TASK_ATTEMPTS: Listing[AttemptStatus] = Listing(
    ATTEMPTS,
    table=_plain("attempt", "uid", "state", "exit", "worker", "reason"),
    wide=_plain("attempt", "uid", "state", "exit", "charge", "time", "memory_peak", "worker", "reason"),
    name=lambda attempt: f"{attempt.task_id}:{attempt.attempt_id}",
)

WORKER_LIST: Listing[WorkerStatus] = Listing(
    WORKERS,
    table=_plain("worker_id", "health", "running", "cpu", "memory", "reason"),
    wide=_plain("worker_id", "health", "running", "cpu", "memory", "address", "release", "reason"),
    name=lambda worker: worker.worker_id,
    optional=frozenset({"reason"}),
)

BUDGET_LIST: Listing[UserBudget] = Listing(
    BUDGETS,
    table=_plain("user", "limit", "spent", "max_band"),
    wide=_plain("user", "limit", "spent", "utilisation", "max_band", "effective_band", "updated"),
    name=lambda budget: budget.user_id,
)

ENDPOINT_LIST: Listing[Endpoint] = Listing(
    ENDPOINTS,
    table=_plain("name", "address", "task_id", "access", "age"),
    wide=_plain("name", "address", "task_id", "access", "age", "lease", "proxy_path", "endpoint_id", "metadata"),
    name=lambda endpoint: endpoint.name,
)

CHECKPOINT_LIST: Listing[CheckpointRow] = Listing(
    CHECKPOINTS,
    table=_plain("epoch_ms", "taken", "age", "size_bytes", "jobs", "tasks", "state"),
    wide=_plain("url", "taken", "age", "size_bytes", "database_bytes", "schema", "jobs", "tasks", "workers", "state"),
    name=lambda checkpoint: checkpoint.url,
)

PROFILE_LIST: Listing[ProfileRecord] = Listing(
    PROFILES,
    table=_plain("profile_id", "source", "type", "format", "trigger", "captured_at", "size_bytes"),
    wide=_plain(
        "profile_id", "source", "attempt", "type", "format", "trigger", "captured_at", "duration_seconds", "size_bytes",
        "vm_id", "attempt_uid",
    ),
    name=lambda record: record.profile_id,
)  # fmt: skip


TABLE_LIST: Listing[TableStatus] = Listing(
    TABLES,
    table=_plain("table", "key", "rows", "pending", "bytes", "segments", "latest", "policy"),
    wide=_plain(
        "table", "key", "columns", "rows", "pending", "bytes", "segments", "min_seq", "max_seq", "earliest", "latest",
        "producers", "removed", "missing", "policy",
    ),
    name=lambda table: table.table,
)  # fmt: skip

COLUMN_LIST: Listing[SchemaRow] = Listing(
    COLUMNS,
    table=_plain("column", "type", "nullable", "key"),
    wide=_plain("column", "type", "nullable", "key"),
    name=lambda row: row[0].name,
)


EVENT_LIST: Listing[TaskEvent] = Listing(
    EVENTS,
    table=_plain("time", "attempt", "type", "source", "action", "count", "message"),
    wide=_plain("time", "attempt", "uid", "type", "source", "action", "count", "message"),
    name=lambda event: f"{event.task_id}:{event.attempt_id}",
)


def title(listing: Listing[Any]) -> list[str]:
    """The headings of a listing's table."""
    return [name or listing.specs[spec].title for spec, name in listing.table]
