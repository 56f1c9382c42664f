"""Reads for operators, from SQL: pages, single jobs and tasks, attempts of long ago.

Each call runs on a reader thread with a connection of its own and one consistent snapshot. Must never be called from the loop
thread directly (`Readers.run` moves it) and never write.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from iris_controller.store.database import open_reader
from iris_controller.store.load import counts_from_json, device_from_json
from iris_controller.store.outputs import from_json
from iris_core.model.bands import PriorityBand
from iris_core.model.errors import ModelError
from iris_core.model.resources import Resources
from iris_core.model.states import TaskState
from iris_core.wire.convert import band_to_wire, resources_to_wire
from iris_core.wire.gen.iris.v1 import controller_pb2

T = TypeVar("T")
COUNT_CAP = 10_000
MAX_TOKEN = 2_000
READERS = 2


class Readers:
    """A small pool of reader threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="sqlite-reader")

    async def run(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `read` in one read transaction. Raises sqlite3.Error."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._run, read)

    def _run(self, read: Callable[[sqlite3.Connection], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = open_reader(self._path)
            self._opened.append(connection)
        connection.execute("BEGIN")
        try:
            return read(connection)
        finally:
            connection.execute("ROLLBACK")

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for connection in self._opened:
            connection.close()


@dataclass(frozen=True, slots=True)
class Page:
    """A keyset page: `after` is the last row's sort key, None = from the start."""

    size: int
    after: list[str | int] | None

    @classmethod
    def of(cls, size: int, token: str, default: int, most: int, key: tuple[type[str | int], ...]) -> Page:
        """`key` are the types of the sort key. Raises ModelError on a token that this server did not make for that key."""
        if size < 0:
            raise ModelError(f"page_size {size} is negative", field="page_size")
        try:
            after = _key_of(token, key) if token else None
        except (ValueError, RecursionError):
            raise ModelError("page_token is not one of this server for this order", field="page_token") from None
        return cls(min(size or default, most), after)

    @staticmethod
    def token(key: list[str | int]) -> str:
        return urlsafe_b64encode(json.dumps(key).encode()).decode()


def _key_of(token: str, key: tuple[type[str | int], ...]) -> list[str | int]:
    """Raises ValueError or RecursionError."""
    if len(token) > MAX_TOKEN:
        raise ValueError
    after = json.loads(urlsafe_b64decode(token))
    if not isinstance(after, list) or [type(value) for value in after] != list(key):
        raise ValueError
    for value in after:
        if isinstance(value, str):
            value.encode()
        elif not -(1 << 63) <= value < 1 << 63:
            raise ValueError
    return after


INHERITED = band_to_wire(PriorityBand.INHERIT)
"""What a band that was never resolved shows as."""

JOB_ROW = """
  SELECT j.*, c.priority_band AS band, c.res_cpu_millicores, c.res_memory_bytes, c.res_disk_bytes, c.res_device_json,
    EXISTS (SELECT 1 FROM jobs k WHERE k.parent_job_id = j.job_id) AS has_children
  FROM jobs j JOIN job_config c ON c.job_id = j.job_id
"""
TASK_ROW = f"""
  SELECT t.task_id, t.job_id, t.task_index, t.state, t.current_attempt_id, t.current_attempt_uid AS attempt_uid,
    t.current_worker_id AS worker_id, t.current_worker_address AS worker_address, t.exit_code, t.error,
    t.submitted_at_ms, t.started_at_ms, t.finished_at_ms, t.failure_count, t.preemption_count,
    a.memory_peak_bytes, a.log_lines, j.submitted_at_ms AS incarnation,
    coalesce(nullif(c.priority_band, 0), {INHERITED}) AS priority_band,
    CASE WHEN t.current_attempt_id >= 0 THEN coalesce(nullif(t.priority_band, 0), {INHERITED}) END AS placed_band
  FROM tasks t JOIN jobs j ON j.job_id = t.job_id LEFT JOIN job_config c ON c.job_id = t.job_id
  LEFT JOIN task_attempts a ON a.task_id = t.task_id AND a.attempt_id = t.current_attempt_id
"""
"""A column for each field of TaskStatus, under its name."""


def resources_of(row: sqlite3.Row) -> Resources:
    return Resources(
        row["res_cpu_millicores"],
        row["res_memory_bytes"],
        row["res_disk_bytes"],
        device_from_json(row["res_device_json"]),
    )


def job_status(row: sqlite3.Row) -> controller_pb2.JobStatus:
    status = controller_pb2.JobStatus(
        job_id=row["job_id"],
        name=row["name"],
        state=row["state"],
        user_id=row["user_id"],
        submitting_user=row["submitting_user"],
        parent_job_id=row["parent_job_id"] or "",
        root_job_id=row["root_job_id"],
        depth=row["depth"],
        submitted_at_ms=row["submitted_at_ms"],
        started_at_ms=row["started_at_ms"] or 0,
        finished_at_ms=row["finished_at_ms"] or 0,
        error=row["error"] or "",
        exit_code=row["exit_code"],
        num_tasks=row["num_tasks"],
        failure_count=row["failure_count"],
        preemption_count=row["preemption_count"],
        has_children=bool(row["has_children"]),
        priority_band=row["band"],
        resources=resources_to_wire(resources_of(row)),
        incarnation=row["submitted_at_ms"],
    )
    for state, count in enumerate(counts_from_json(row["task_counts_json"])):
        if count:
            status.task_counts.add(state=TaskState(state).value, count=count)
    return status


def _tasks(connection: sqlite3.Connection, rest: str, values: tuple[object, ...]) -> list[controller_pb2.TaskStatus]:
    cursor = connection.cursor()
    # Plain rows, and fields set one by one: a page of a thousand would take twice as long by name and as arguments.
    cursor.row_factory = None
    cursor.execute(f"{TASK_ROW} {rest}", values)
    names = [column[0] for column in cursor.description]
    found = []
    for row in cursor:
        status = controller_pb2.TaskStatus()
        for name, value in zip(names, row, strict=True):
            if value is not None:
                setattr(status, name, value)
        found.append(status)
    return found


def attempt_status(row: sqlite3.Row, current: str) -> controller_pb2.AttemptStatus:
    return controller_pb2.AttemptStatus(
        attempt_uid=row["attempt_uid"],
        task_id=row["task_id"],
        attempt_id=row["attempt_id"],
        state=row["state"],
        worker_id=row["worker_id"] or "",
        created_at_ms=row["created_at_ms"],
        started_at_ms=row["started_at_ms"] or 0,
        finished_at_ms=row["finished_at_ms"] or 0,
        exit_code=row["exit_code"],
        error=row["error"] or "",
        terminal_reason=row["terminal_reason"],
        memory_peak_bytes=row["memory_peak_bytes"],
        log_lines=row["log_lines"],
        current=row["attempt_uid"] == current,
        outputs=from_json(row["outputs_json"]),
        charge=row["charge"],
    )


def one_job(
    connection: sqlite3.Connection, job_id: str
) -> tuple[controller_pb2.JobStatus, controller_pb2.LaunchJobRequest] | None:
    """The job and its sealed request, or None."""
    row = connection.execute(f"{JOB_ROW} WHERE j.job_id = ?", (job_id,)).fetchone()
    if row is None:
        return None
    request = controller_pb2.LaunchJobRequest.FromString(row["request_proto"])
    for name, data in connection.execute("SELECT filename, data FROM job_workdir_files WHERE job_id = ?", (job_id,)):
        request.entrypoint.workdir_files[name] = data
    return job_status(row), request


def workdir_files(connection: sqlite3.Connection, job_id: str) -> dict[str, bytes]:
    rows = connection.execute("SELECT filename, data FROM job_workdir_files WHERE job_id = ?", (job_id,))
    return {row["filename"]: row["data"] for row in rows}


def one_task(
    connection: sqlite3.Connection, task_id: str
) -> tuple[controller_pb2.TaskStatus, list[controller_pb2.AttemptStatus], Resources] | None:
    found = _tasks(connection, "WHERE t.task_id = ?", (task_id,))
    if not found:
        return None
    attempts = [
        attempt_status(a, found[0].attempt_uid)
        for a in connection.execute("SELECT * FROM task_attempts WHERE task_id = ? ORDER BY attempt_id", (task_id,))
    ]
    config = connection.execute("SELECT * FROM job_config WHERE job_id = ?", (found[0].job_id,)).fetchone()
    return found[0], attempts, resources_of(config)


def tasks_page(
    connection: sqlite3.Connection, job_id: str, page: Page, where: str = "", values: tuple[object, ...] = ()
) -> tuple[list[controller_pb2.TaskStatus], str, int] | None:
    """Tasks by index, the next page's token, and the exact total; None when the job is unknown."""
    if connection.execute("SELECT 1 FROM jobs WHERE job_id = ?", (job_id,)).fetchone() is None:
        return None
    condition = f"t.job_id = ?{f' AND ({where})' if where else ''}"
    total = connection.execute(f"SELECT count(*) FROM tasks t WHERE {condition}", (job_id, *values)).fetchone()[0]
    after = int(page.after[0]) if page.after else -1
    found = _tasks(
        connection,
        f"WHERE {condition} AND t.task_index > ? ORDER BY t.task_index LIMIT ?",
        (job_id, *values, after, page.size + 1),
    )
    token = Page.token([found[page.size - 1].task_index]) if len(found) > page.size else ""
    return found[: page.size], token, total


def jobs_page(
    connection: sqlite3.Connection,
    where: str,
    values: tuple[object, ...],
    sort: str,
    ascending: bool,
    page: Page,
) -> tuple[list[controller_pb2.JobStatus], str, int, bool]:
    """Jobs by `sort` (a column of ours, never a caller's text) then submission; token, total, total capped."""
    capped = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM jobs j WHERE {where} LIMIT ?)",
        (*values, COUNT_CAP + 1),
    ).fetchone()[0]
    order = "ASC" if ascending else "DESC"
    beyond = ">" if ascending else "<"
    key = f"{sort}, j.submitted_at_ms" if sort != "j.submitted_at_ms" else "j.submitted_at_ms"
    columns = key.split(", ")
    resume = ""
    if page.after is not None:
        resume = f" AND ({key}) {beyond} ({', '.join('?' * len(columns))})"
    rows = connection.execute(
        f"{JOB_ROW} WHERE {where}{resume} ORDER BY {', '.join(f'{c} {order}' for c in columns)} LIMIT ?",
        (*values, *(page.after or ()), page.size + 1),
    ).fetchall()
    token = ""
    if len(rows) > page.size:
        token = Page.token([rows[page.size - 1][c.removeprefix("j.")] for c in columns])
    return [job_status(row) for row in rows[: page.size]], token, min(capped, COUNT_CAP), capped > COUNT_CAP


def states_of(connection: sqlite3.Connection, job_ids: list[str]) -> dict[str, int]:
    rows = connection.execute(
        "SELECT job_id, state FROM jobs WHERE job_id IN (SELECT value FROM json_each(?))", (json.dumps(job_ids),)
    )
    return {row["job_id"]: row["state"] for row in rows}


def incarnation_of(connection: sqlite3.Connection, job_id: str) -> int:
    """The submit time of the job that has the name, 0 if none has."""
    row = connection.execute("SELECT submitted_at_ms FROM jobs WHERE job_id = ?", (job_id,)).fetchone()
    return int(row["submitted_at_ms"]) if row is not None else 0


def answer_of(connection: sqlite3.Connection, principal: str, request_id: str) -> tuple[str, bytes, bytes] | None:
    """(method, digest of the request or b"" if it is not known, response) of an earlier request with that id."""
    row = connection.execute(
        "SELECT method, request_sha256, response FROM request_ids WHERE principal = ? AND request_id = ?",
        (principal, request_id),
    ).fetchone()
    return (row["method"], row["request_sha256"], row["response"]) if row is not None else None


def similar_jobs(connection: sqlite3.Connection, job_id: str, most: int = 5) -> list[str]:
    """Jobs of the same parent or user with a name alike, the nearest first, for the hint of a NOT_FOUND.

    What all of them begin with counts for nothing: it would make short names alike that have no letter in common.
    """
    stem, _, name = job_id.rpartition("/")
    stem += "/"
    rows = connection.execute(
        "SELECT job_id FROM jobs WHERE job_id >= ? AND job_id < ? ORDER BY submitted_at_ms DESC LIMIT 500",
        (stem, stem[:-1] + "0"),
    )
    import difflib

    near = difflib.get_close_matches(name, [row["job_id"].removeprefix(stem) for row in rows], n=most, cutoff=0.6)
    return [stem + found for found in near]
