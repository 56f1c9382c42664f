"""The least a durable tick can cost: integer keys, plain SQLite, first fit over a list. Knows nothing of Iris (targets §2)."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from pathlib import Path


class Floor:
    """A table of tasks, of which some are pending, and workers with a region and free cores."""

    def __init__(self, workers: int, per_worker: int, regions: int, finished_tasks: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="iris-floor-")
        self._db = sqlite3.connect(Path(self._folder.name) / "floor.sqlite3", isolation_level=None)
        self._db.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
            "CREATE TABLE tasks (id INTEGER PRIMARY KEY, state INTEGER, region INTEGER, worker INTEGER);"
            "CREATE INDEX pending ON tasks (id) WHERE state=1;"
            "CREATE TABLE attempts (id INTEGER PRIMARY KEY, task INTEGER, worker INTEGER, state INTEGER);"
        )
        self._workers, self._per_worker, self._regions = workers, per_worker, regions
        self._add(finished_tasks, 4)
        self._attempts = 0

    def close(self) -> None:
        self._db.close()
        self._folder.cleanup()

    def _add(self, count: int, state: int) -> None:
        self._db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i+1 < ?)"
            " INSERT INTO tasks (state, region) SELECT ?, i % ? FROM n",
            (count, state, self._regions),
        )

    def add_pending(self, count: int) -> None:
        self._add(count, 1)

    def tick(self) -> int:
        """Reads what is pending, places it by first fit, writes it. Returns how many."""
        pending = self._db.execute("SELECT id, region FROM tasks WHERE state=1 ORDER BY id").fetchall()
        free = [self._per_worker] * self._workers
        cursor = list(range(self._regions))
        placed: list[tuple[int, int, int]] = []
        for task, region in pending:
            worker = cursor[region]
            while worker < self._workers and not free[worker]:
                worker += self._regions
            cursor[region] = worker
            if worker < self._workers:
                free[worker] -= 1
                self._attempts += 1
                placed.append((self._attempts, task, worker))
        self.write(placed)
        return len(placed)

    def write(self, placed: list[tuple[int, int, int]]) -> None:
        """One durable transaction: each task's row and an attempt's."""
        rows = json.dumps(placed)
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(
            "UPDATE tasks SET state=9, worker=v.w FROM (SELECT value->>1 AS t, value->>2 AS w FROM json_each(?)) AS v"
            " WHERE id=v.t",
            (rows,),
        )
        self._db.execute(
            "INSERT OR REPLACE INTO attempts (id, task, worker, state)"
            " SELECT value->>0, value->>1, value->>2, 9 FROM json_each(?)",
            (rows,),
        )
        self._db.execute("COMMIT")
