"""A large state database, a steady load on it, and the processes that T6 and T7 race. All of it lies in one temporary folder.

python -m benchmarks.checkpoint_world load DATABASE      commits at a steady rate until its input ends, then prints latencies
python -m benchmarks.checkpoint_world held DATABASE FOLDER   the same while it has a checkpoint made, as the controller does
python -m benchmarks.checkpoint_world write DATABASE FOLDER
python -m benchmarks.checkpoint_world restore FOLDER TARGET
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTES = int(os.environ.get("IRIS_BENCH_CHECKPOINT_MB", "800"))
RATE = 200
ROWS = 5
WITHOUT_S = 8.0
STEP = 20_000
"""Tasks that are made in one statement."""

JOBS = """
WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :first + :count)
INSERT INTO jobs (job_id, user_id, root_job_id, depth, state, submitted_at_ms, root_submitted_at_ms, num_tasks, name,
  task_counts_json, request_proto)
SELECT '/user' || (i % 40) || '/job' || i, 'user' || (i % 40), '/user' || (i % 40) || '/job' || i, 1, 4, 1700000000000 + i,
  1700000000000 + i, 100, 'job' || i, '{"SUCCEEDED": 100}',
  CAST('python train.py --steps 100000 --config gs://bucket/configs/experiment.yaml ' || hex(randomblob(100)) AS BLOB) FROM n
"""
TASKS = """
WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :first + :count)
INSERT INTO tasks (task_id, job_id, task_index, state, submitted_at_ms, started_at_ms, finished_at_ms, current_attempt_id,
  current_attempt_uid, priority_neg_depth, priority_root_submitted_ms, priority_insertion, current_worker_id)
SELECT '/user' || ((i / 100) % 40) || '/job' || (i / 100) || '/' || (i % 100), '/user' || ((i / 100) % 40) || '/job' || (i / 100),
  i % 100, 4, 1700000000000 + i, 1700000000500 + i, 1700000009000 + i, 0, lower(hex(randomblob(8))), -1, 1700000000000 + i, i,
  'worker-' || (abs(random()) % 1000) FROM n
"""
ATTEMPTS = """
INSERT INTO task_attempts (task_id, attempt_id, worker_id, state, created_at_ms, started_at_ms, finished_at_ms, exit_code,
  error, attempt_uid)
SELECT task_id, 0, current_worker_id, 4, submitted_at_ms, started_at_ms, finished_at_ms, 0,
  'ended with exit code ' || (abs(random()) % 200) || ' on ' || current_worker_id, current_attempt_uid
FROM tasks WHERE priority_insertion >= :first AND priority_insertion < :first + :count
"""


def build(database: Path) -> int:
    """Makes a database of about `MEGABYTES`; returns how many tasks it has."""
    from iris_controller.store.database import migrate, open_writer

    database.parent.mkdir(mode=0o700, parents=True)
    with closing(open_writer(database)) as connection:
        migrate(connection, 1)
        connection.execute("PRAGMA synchronous=OFF")
        tasks = 0
        while database.stat().st_size < MEGABYTES * 1_000_000:
            connection.execute("BEGIN")
            connection.execute(JOBS, {"first": tasks // 100, "count": STEP // 100})
            for statement in (TASKS, ATTEMPTS):
                connection.execute(statement, {"first": tasks, "count": STEP})
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            tasks += STEP
    return tasks


class Load:
    """A process that commits `RATE` transactions a second to the database, as the controller does. `stop` gives milliseconds."""

    def __init__(self, database: Path) -> None:
        words = [sys.executable, "-m", "benchmarks.checkpoint_world", "load", str(database)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def stop(self) -> list[float]:
        """The latency of every commit since it began."""
        output, _ = self._process.communicate()
        found: list[float] = json.loads(output)
        return found


def held(database: Path, folder: Path) -> dict[str, float]:
    """The longest that an event loop which commits at that rate was held up, in milliseconds: `without` a checkpoint, and `during` one
    that it had made."""
    words = [sys.executable, "-m", "benchmarks.checkpoint_world", "held", str(database), str(folder)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


async def _commit(database: Path, ended: threading.Event, began: Callable[[], None]) -> list[float]:
    from iris_controller.store.writer import Writer

    writer = Writer(database)
    most = writer.connection.execute("SELECT max(rowid) FROM tasks").fetchone()[0]
    writer.start()
    began()
    dice = random.Random(1)
    latencies: list[float] = []
    start = time.perf_counter()
    while not ended.is_set():
        rows = json.dumps([dice.randrange(1, most) for _ in range(ROWS)])
        statement = (
            "UPDATE tasks SET finished_at_ms = finished_at_ms + 1 WHERE rowid IN (SELECT value FROM json_each(?))",
            (rows,),
        )
        before = time.perf_counter()
        await writer.commit([statement])
        latencies.append((time.perf_counter() - before) * 1000)
        await asyncio.sleep(max(0.0, start + len(latencies) / RATE - time.perf_counter()))
    writer.close()
    return latencies


async def _load(database: Path) -> None:
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    def ready() -> None:
        threading.Thread(target=wait, daemon=True).start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()

    print(json.dumps(await _commit(database, ended, ready)))


async def _held(database: Path, folder: Path) -> None:
    from benchmarks.controller_fleet import Lag
    from iris_controller.children import Child

    ended = threading.Event()
    committing = asyncio.ensure_future(_commit(database, ended, lambda: None))
    lag = Lag()
    await asyncio.sleep(WITHOUT_S)
    _, without = lag.stop()
    lag = Lag()
    child = await Child.start([sys.executable, "-m", "iris_controller.checkpoint.child"])
    child.stdin.write(json.dumps(_task(database, folder)).encode() + b"\n")
    said = await child.stdout.read()
    _, during = lag.stop()
    await child.end()
    ended.set()
    await committing
    if b"done" not in said.splitlines()[-1]:
        raise RuntimeError(said.decode())
    print(json.dumps({"without": without, "during": during}))


def _task(database: Path, folder: Path) -> dict[str, Any]:
    """What `iris_controller.checkpoint.child` is told."""
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return {
        "do": "write",
        "database": str(database),
        "scratch": str(scratch),
        "after_ms": 0,
        "claim": "",
        "remote": f"file://{folder}",
        "now_ms": time.time_ns() // 1_000_000,
        "cluster": "bench",
    }


def _write(database: Path, folder: Path) -> None:
    """As `iris_controller.checkpoint.child` does it."""
    from iris_controller.checkpoint.child import perform

    os.nice(10)
    outcome = perform(_task(database, folder))
    if "done" not in outcome:
        raise RuntimeError(str(outcome))


def _restore(folder: Path, target: Path) -> None:
    from iris_controller.checkpoint.restore import find, unpack

    unpack(find(str(folder)), target)


if __name__ == "__main__":
    kind, *paths = sys.argv[1:]
    if kind == "load":
        asyncio.run(_load(Path(paths[0])))
    elif kind == "held":
        uvloop.run(_held(*map(Path, paths)))
    else:
        {"write": _write, "restore": _restore}[kind](*map(Path, paths))
