"""A state directory with a database worth keeping, and checkpoints of it, for the tests of checkpoints."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

from iris_controller.checkpoint.layout import Manifest
from iris_controller.checkpoint.write import write
from iris_controller.store.database import StateDir, migrate, open_writer
from iris_core.contracts import ObjectStore

T0 = 1_700_000_000_000


def insert_jobs(connection: sqlite3.Connection, first: int, count: int) -> None:
    """Finished jobs with one task each; their numbers make ids and times."""
    connection.execute("BEGIN IMMEDIATE")
    for n in range(first, first + count):
        job = f"/u/job{n}"
        connection.execute(
            "INSERT INTO jobs (job_id, user_id, root_job_id, depth, state, submitted_at_ms, root_submitted_at_ms, num_tasks,"
            " name, task_counts_json, error) VALUES (?, 'u', ?, 1, 4, ?, ?, 1, ?, '{\"SUCCEEDED\": 1}', ?)",
            (job, job, T0 + n, T0 + n, f"job{n}", hashlib.sha256(job.encode()).hexdigest() * 4),
        )
        connection.execute(
            "INSERT INTO job_config (job_id, res_cpu_millicores, res_memory_bytes, res_disk_bytes, priority_band)"
            " VALUES (?, 100, 1000, 0, 3)",
            (job,),
        )
        connection.execute(
            "INSERT INTO tasks (task_id, job_id, task_index, state, submitted_at_ms, priority_neg_depth,"
            " priority_root_submitted_ms, priority_insertion) VALUES (?, ?, 0, 4, ?, -1, ?, ?)",
            (f"{job}/0", job, T0 + n, T0 + n, n),
        )
    connection.execute("COMMIT")


def make_state(path: Path, jobs: int = 50) -> StateDir:
    """A state directory whose database holds so many jobs; nobody has it open."""
    state = StateDir(path)
    state.acquire()
    with closing(open_writer(state.database)) as connection:
        migrate(connection, T0)
        insert_jobs(connection, 0, jobs)
    state.release()
    return state


def add_machines(state: StateDir, *, slices: int = 2) -> None:
    """Ready slices of one machine each in the scale group `cpu`, which grew once, with their workers, and a job that waits."""
    with closing(open_writer(state.database)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO scaling_groups (name, last_scale_up_ms) VALUES ('cpu', ?)", (T0,))
        for n in range(slices):
            connection.execute(
                "INSERT INTO slices (slice_id, scale_group, lifecycle, worker_ids, created_at_ms) VALUES (?, 'cpu', 'ready', ?, ?)",
                (f"cpu-{n}", f'["cpu-{n}-w-0"]', T0 + n),
            )
            connection.execute(
                "INSERT INTO workers (worker_id, slice_id, scale_group, total_cpu_millicores, total_memory_bytes)"
                " VALUES (?, ?, 'cpu', 4000, 8000000000)",
                (f"cpu-{n}-w-0", f"cpu-{n}"),
            )
        connection.execute(
            "INSERT INTO jobs (job_id, user_id, root_job_id, depth, state, submitted_at_ms, root_submitted_at_ms, num_tasks,"
            " name, task_counts_json) VALUES ('/u/wide', 'u', '/u/wide', 1, 1, ?, ?, 1, 'wide', '{\"PENDING\": 1}')",
            (T0 - 1, T0 - 1),
        )
        connection.execute(
            "INSERT INTO job_config (job_id, res_cpu_millicores, res_memory_bytes, res_disk_bytes, priority_band)"
            " VALUES ('/u/wide', 64000, 1000, 0, 3)"
        )
        connection.execute(
            "INSERT INTO tasks (task_id, job_id, task_index, state, submitted_at_ms, priority_neg_depth,"
            " priority_root_submitted_ms, priority_insertion) VALUES ('/u/wide/0', '/u/wide', 0, 1, ?, -1, ?, 1000)",
            (T0 - 1, T0 - 1),
        )
        connection.execute("COMMIT")


def checkpoint(state: StateDir, store: ObjectStore, now_ms: int = T0, after_ms: int = 0) -> Manifest:
    """Takes one."""
    scratch = state.path / "scratch"
    scratch.mkdir(exist_ok=True)
    return write(state.database, scratch, store, now_ms=now_ms, after_ms=after_ms, claim="", cluster="lab")


def table_hashes(database: Path, *, but: tuple[str, ...] = ("meta",)) -> dict[str, str]:
    """A digest of every table's rows."""
    found = {}
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        tables = [
            row[0]
            for row in connection.execute(
                "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%'"
            )
        ]
        for table in tables:
            if table not in but:
                digest = hashlib.sha256()
                width = len(connection.execute(f"SELECT * FROM {table} LIMIT 1").description)
                order = ", ".join(str(n + 1) for n in range(width))
                for row in connection.execute(f"SELECT * FROM {table} ORDER BY {order}"):
                    digest.update(repr(row).encode())
                found[table] = digest.hexdigest()
    return found


def job_count(database: Path) -> int:
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        count: int = connection.execute("SELECT count(*) FROM jobs").fetchone()[0]
        return count
