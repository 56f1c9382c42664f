"""Fills the model from the database at boot: every non-terminal job whole, and summaries of recent terminal ones."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from functools import lru_cache

from iris_controller.state.budgets import Budget
from iris_controller.state.endpoints import Endpoint, EndpointAccess
from iris_controller.state.model import TERMINAL_KEPT, Model
from iris_controller.state.records import Attempt, Charge, ChildrenPolicy, Job, JobSpec, Task, Worker
from iris_controller.store.machines import load_scaling_groups, load_slices
from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import Constraint, Mode, Op
from iris_core.model.resources import Device, Resources
from iris_core.model.states import JOB_TERMINAL, JobState, TaskState
from iris_core.wire.gen.iris.v1 import controller_pb2

LIVE = tuple(s for s in JobState if s not in JOB_TERMINAL)
JOB_COLUMNS = """
  SELECT j.*, c.res_cpu_millicores, c.res_memory_bytes, c.res_disk_bytes, c.res_device_json, c.constraints_json,
    c.max_task_failures, c.max_retries_failure, c.max_retries_preemption, c.timeout_ms, c.scheduling_timeout_ms,
    c.preemption_policy, c.priority_band AS band, c.bundle_id, c.coscheduling_group_by
  FROM jobs j JOIN job_config c ON c.job_id = j.job_id
"""

STILL_NEEDED = f"""
  WITH RECURSIVE up(id) AS (
    SELECT parent_job_id FROM jobs WHERE state IN ({", ".join(str(int(s)) for s in LIVE)}) AND parent_job_id IS NOT NULL
    UNION SELECT t.job_id FROM task_attempts a JOIN tasks t ON t.task_id = a.task_id WHERE a.finished_at_ms IS NULL
      AND a.worker_id IS NOT NULL
    UNION SELECT j.parent_job_id FROM up JOIN jobs j ON j.job_id = up.id WHERE j.parent_job_id IS NOT NULL
  ) {JOB_COLUMNS} WHERE j.job_id IN (SELECT id FROM up)
"""
"""Jobs with a running descendant or an attempt that is still on its worker, however long ago they ended."""


def load_model(connection: sqlite3.Connection, *, to_write: bool = True) -> Model:
    """Reads everything the model holds; without `to_write` no table of history is read through for what only the next job needs.

    Raises sqlite3.Error.
    """
    connection.row_factory = sqlite3.Row
    try:
        model = Model()
        live = f"j.state IN ({', '.join(str(int(s)) for s in LIVE)})"
        jobs = [_job(row) for row in connection.execute(f"{JOB_COLUMNS} WHERE {live}")]
        recent = connection.execute(
            f"{JOB_COLUMNS} WHERE NOT ({live}) ORDER BY j.submitted_at_ms DESC LIMIT ?", (TERMINAL_KEPT,)
        )
        jobs.extend(_job(row) for row in recent)
        known = {j.job_id for j in jobs}
        jobs.extend(_job(row) for row in connection.execute(STILL_NEEDED) if row["job_id"] not in known)
        jobs.sort(key=lambda j: j.submitted_at_ms)
        model.load(
            jobs,
            _tasks(connection),
            _attempts(connection),
            _workers(connection),
            _budgets(connection),
            load_slices(connection),
            load_scaling_groups(connection),
        )
        for endpoint in _endpoints(connection):
            model.endpoints.put(endpoint)
        if to_write:
            newest = connection.execute(
                "SELECT max(submitted_at_ms), max(priority_insertion + num_tasks) FROM jobs"
            ).fetchone()
            model.last_submitted_ms = max(model.last_submitted_ms, newest[0] or 0)
            model.next_insertion = max(model.next_insertion, newest[1] or 0)
        return model
    finally:
        connection.row_factory = None


# Thousands of jobs say the same few things in these columns, and reading JSON is a third of what loading a job costs.
@lru_cache(1024)
def device_from_json(text: str | None) -> Device | None:
    if not text:
        return None
    value = json.loads(text)
    return Device("gpu" if value["kind"] == "gpu" else "tpu", value["variant"], int(value["count"]))


@lru_cache(1024)
def constraints_from_json(text: str | None) -> tuple[Constraint, ...]:
    return tuple(
        Constraint(c["key"], Op[c["op"]], tuple(c["values"]), Mode[c["mode"]]) for c in json.loads(text or "[]")
    )


@lru_cache(4096)
def counts_from_json(text: str) -> tuple[int, ...]:
    counts = [0] * 13
    for name, number in json.loads(text or "{}").items():
        counts[TaskState[name]] = int(number)
    return tuple(counts)


def _job(row: sqlite3.Row) -> Job:
    request = controller_pb2.LaunchJobRequest.FromString(row["request_proto"])
    spec = JobSpec(
        resources=Resources(
            row["res_cpu_millicores"],
            row["res_memory_bytes"],
            row["res_disk_bytes"],
            device_from_json(row["res_device_json"]),
        ),
        constraints=constraints_from_json(row["constraints_json"]),
        band=PriorityBand(row["band"]),
        max_retries_failure=row["max_retries_failure"],
        max_retries_preemption=row["max_retries_preemption"],
        max_task_failures=row["max_task_failures"],
        timeout_ms=row["timeout_ms"] or 0,
        scheduling_timeout_ms=row["scheduling_timeout_ms"] or 0,
        children_policy=ChildrenPolicy(row["preemption_policy"]),
        has_setup=bool(request.environment.setup_scripts),
        bundle_id=row["bundle_id"],
        request=row["request_proto"],
        has_files=bool(request.entrypoint.workdir_files),
        group_by=row["coscheduling_group_by"],
    )
    return Job(
        job_id=row["job_id"],
        user_id=row["user_id"],
        submitting_user=row["submitting_user"],
        parent_job_id=row["parent_job_id"],
        root_job_id=row["root_job_id"],
        depth=row["depth"],
        name=row["name"],
        num_tasks=row["num_tasks"],
        submitted_at_ms=row["submitted_at_ms"],
        root_submitted_ms=row["root_submitted_at_ms"],
        priority_insertion=row["priority_insertion"],
        spec=spec,
        state=JobState(row["state"]),
        started_at_ms=row["started_at_ms"],
        finished_at_ms=row["finished_at_ms"],
        scheduling_deadline_ms=row["scheduling_deadline_epoch_ms"],
        scheduling_expired=bool(row["scheduling_expired"]),
        error=row["error"],
        exit_code=row["exit_code"],
        counts=counts_from_json(row["task_counts_json"]),
        failure_count=row["failure_count"],
        preemption_count=row["preemption_count"],
    )


def _tasks(connection: sqlite3.Connection) -> Iterator[Task]:
    states = ", ".join(str(int(s)) for s in LIVE)
    rows = connection.execute(
        f"SELECT t.* FROM jobs j JOIN tasks t ON t.job_id = j.job_id WHERE j.state IN ({states})"
        " ORDER BY t.job_id, t.task_index"
    )
    for row in rows:
        yield Task(
            job_id=row["job_id"],
            index=row["task_index"],
            submitted_at_ms=row["submitted_at_ms"],
            state=TaskState(row["state"]),
            attempt_number=row["current_attempt_id"],
            attempt_uid=row["current_attempt_uid"],
            worker_id=row["current_worker_id"] or "",
            band=PriorityBand(row["priority_band"]),
            started_at_ms=row["started_at_ms"],
            finished_at_ms=row["finished_at_ms"],
            error=row["error"],
            exit_code=row["exit_code"],
            failure_count=row["failure_count"],
            preemption_count=row["preemption_count"],
        )


def _attempts(connection: sqlite3.Connection) -> Iterator[Attempt]:
    rows = connection.execute(
        "SELECT a.*, t.job_id, t.task_index, c.res_cpu_millicores, c.res_memory_bytes, c.res_disk_bytes, c.res_device_json"
        " FROM task_attempts a JOIN tasks t ON t.task_id = a.task_id JOIN job_config c ON c.job_id = t.job_id"
        " WHERE a.finished_at_ms IS NULL AND a.worker_id IS NOT NULL"
    )
    for row in rows:
        yield Attempt(
            uid=row["attempt_uid"],
            job_id=row["job_id"],
            task_index=row["task_index"],
            number=row["attempt_id"],
            worker_id=row["worker_id"],
            created_at_ms=row["created_at_ms"],
            resources=Resources(
                row["res_cpu_millicores"],
                row["res_memory_bytes"],
                row["res_disk_bytes"],
                device_from_json(row["res_device_json"]),
            ),
            state=TaskState(row["state"]),
            executed=bool(row["executed"]),
            started_at_ms=row["started_at_ms"],
            exit_code=row["exit_code"],
            error=row["error"],
            terminal_reason=row["terminal_reason"],
            charge=Charge(row["charge"]),
            memory_peak_bytes=row["memory_peak_bytes"],
            log_lines=row["log_lines"],
            stop_reason=row["stop_reason"],
            displaces=tuple(json.loads(row["displaces_json"])),
            outputs=row["outputs_json"],
        )


def _workers(connection: sqlite3.Connection) -> Iterator[Worker]:
    attributes: dict[str, dict[str, str | int | float]] = {}
    for row in connection.execute("SELECT * FROM worker_attributes"):
        value = {"str": row["str_value"], "int": row["int_value"], "float": row["float_value"]}[row["value_type"]]
        attributes.setdefault(row["worker_id"], {})[row["key"]] = value
    for row in connection.execute("SELECT * FROM workers ORDER BY worker_id"):
        device: Device | None = None
        if row["total_gpu_count"]:
            device = Device("gpu", row["device_variant"], row["total_gpu_count"])
        elif row["total_tpu_count"]:
            device = Device("tpu", row["device_variant"], row["total_tpu_count"])
        yield Worker(
            worker_id=row["worker_id"],
            address=row["address"],
            hostname=row["md_hostname"],
            total=Resources(row["total_cpu_millicores"], row["total_memory_bytes"], row["md_disk_bytes"], device),
            cpu_count=row["md_cpu_count"],
            attributes=attributes.get(row["worker_id"], {}),
            slice_id=row["slice_id"],
            scale_group=row["scale_group"],
            boot_id=row["boot_id"],
            pid=row["pid"],
            version=row["version"],
            release=row["release"],
            build_failures=row["build_failures"],
            excluded=bool(row["excluded"]),
        )


def _budgets(connection: sqlite3.Connection) -> Iterator[Budget]:
    for row in connection.execute("SELECT * FROM user_budgets"):
        yield Budget(row["user_id"], row["budget_limit"], PriorityBand(row["max_band"]), row["updated_at_ms"])


def _endpoints(connection: sqlite3.Connection) -> Iterator[Endpoint]:
    rows = connection.execute(
        "SELECT e.*, t.job_id, t.task_index FROM endpoints e JOIN tasks t ON t.task_id = e.task_id ORDER BY e.endpoint_id"
    )
    for row in rows:
        yield Endpoint(
            endpoint_id=row["endpoint_id"],
            name=row["name"],
            address=row["address"],
            job_id=row["job_id"],
            task_index=row["task_index"],
            attempt_uid=row["attempt_uid"],
            registered_at_ms=row["registered_at_ms"],
            metadata=json.loads(row["metadata_json"]),
            lease_ms=row["lease_ms"],
            access=EndpointAccess.PRIVATE if row["access"] is None else EndpointAccess(row["access"]),
        )
