"""Statements that an operator starts from: the tables that the schema does not join by itself, joined once, here.

Each stands in one place for the console's menu and its tests, which run every one on the real schema. A text in angle brackets is to be
replaced by who uses it. Must only read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Database = Literal["controller", "stats"]


@dataclass(frozen=True, slots=True)
class Template:
    """A statement to start from.

    Attributes:
        title: What it answers.
        database: Where it is asked: the controller's database, or the log store's tables.
        sql: One statement.
    """

    title: str
    database: Database
    sql: str

    @property
    def blank(self) -> tuple[int, int] | None:
        """Where the first text in angle brackets begins and ends, None if there is nothing to replace."""
        start = self.sql.find("'<")
        end = self.sql.find(">'", start)
        return (start + 1, end + 1) if 0 <= start < end else None


TEMPLATES: Final = (
    Template("Tasks by state", "controller", "SELECT state, count(*) AS tasks\nFROM tasks GROUP BY state ORDER BY state"),
    Template("Jobs by state", "controller", "SELECT state, count(*) AS jobs\nFROM jobs GROUP BY state ORDER BY state"),
    Template(
        "The newest failed jobs, with their errors", "controller",
        "SELECT job_id, error, exit_code FROM jobs\nWHERE state = 5 ORDER BY submitted_at_ms DESC LIMIT 100",
    ),
    Template(
        "Attempts of a job's tasks", "controller",
        "SELECT task_id, attempt_id, state, exit_code, error FROM task_attempts\n"
        "WHERE task_id LIKE '<job>/%' ORDER BY task_id, attempt_id",
    ),
    Template(
        "Which scale group has slices of which size", "controller",
        "SELECT scale_group, device_variant, count(*) AS workers,\n"
        "       count(DISTINCT slice_id) AS slices\n"
        "FROM workers WHERE device_type = 'tpu'\nGROUP BY scale_group, device_variant",
    ),
    Template(
        "Slices that are ready, with their workers", "controller",
        "SELECT slice_id, scale_group, lifecycle, worker_ids\nFROM slices WHERE lifecycle = 'ready' ORDER BY scale_group",
    ),
    Template(
        "What occupies a slice, by job and state", "controller",
        "SELECT t.job_id, t.state, count(*) AS tasks FROM tasks t\n"
        "JOIN workers w ON t.current_worker_id = w.worker_id\n"
        "WHERE w.slice_id = '<slice_id>' AND t.state IN (2, 3, 9)\nGROUP BY t.job_id, t.state",
    ),
    Template(
        "Tasks on a slice, to drain it", "controller",
        "SELECT t.task_id, t.state, w.worker_id FROM tasks t\n"
        "JOIN workers w ON t.current_worker_id = w.worker_id\n"
        "WHERE w.slice_id = '<slice_id>' AND t.state IN (2, 3, 9)\nORDER BY t.task_id",
    ),
    Template(
        "Who shares its machines with a job", "controller",
        "WITH mine(job_id) AS (SELECT '<job_id>')\n"
        "SELECT t.task_id, t.job_id, w.worker_id, w.md_tpu_worker_id FROM tasks t\n"
        "JOIN workers w ON t.current_worker_id = w.worker_id\n"
        "WHERE t.state IN (2, 3, 9) AND t.job_id NOT IN (SELECT job_id FROM mine)\n"
        "  AND w.worker_id IN (\n"
        "    SELECT o.current_worker_id FROM tasks o JOIN mine ON o.job_id = mine.job_id\n"
        "    WHERE o.state IN (2, 3, 9)\n"
        "  ) ORDER BY w.worker_id, t.task_id",
    ),
    Template(
        "Scale groups that fail or have no quota", "controller",
        "SELECT name, consecutive_failures, quota_reason FROM scaling_groups\n"
        "WHERE consecutive_failures > 0 OR quota_reason != ''",
    ),
    Template(
        "What of each worker is given away", "controller",
        "SELECT worker_id, slice_id, committed_cpu_millicores, committed_mem_bytes\n"
        "FROM workers ORDER BY committed_cpu_millicores DESC",
    ),
    Template(
        "Running tasks whose worker is gone", "controller",
        "SELECT task_id, current_worker_id FROM tasks\n"
        "WHERE state = 3 AND current_worker_id NOT IN (SELECT worker_id FROM workers)",
    ),
    Template("The tables of the database", "controller", "SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name"),
    Template(
        "What happened to tasks in the last hour, by reason", "stats",
        'SELECT reason, count(*) AS events FROM "iris.task_event"\n'
        "WHERE ts > now() - INTERVAL '1 hour' GROUP BY reason ORDER BY events DESC",
    ),
    Template(
        "What happened to one task", "stats",
        'SELECT ts, attempt_id, type, source, reason, message, "count"\n'
        "FROM \"iris.task_event\" WHERE task_id = '<task_id>' ORDER BY ts",
    ),
    Template(
        "Error lines of the last hour", "stats",
        "SELECT key, data FROM log\n"
        "WHERE level >= 4 AND epoch_ms >= epoch_ms(now() - INTERVAL '1 hour')\nORDER BY seq DESC LIMIT 1000",
    ),
    Template(
        "Busiest workers of the last ten minutes", "stats",
        'SELECT worker_id, max(cpu_pct) AS cpu_pct, max(mem_bytes) AS mem_bytes\nFROM "iris.worker"\n'
        "WHERE ts > now() - INTERVAL '10 minutes'\nGROUP BY worker_id ORDER BY cpu_pct DESC",
    ),
)  # fmt: skip


def of_database(database: str) -> list[Template]:
    """Those that are asked there."""
    return [template for template in TEMPLATES if template.database == database]
