"""The tables and columns that operators' SQL may name are there, under these names (control-plane §6.1); others may be added."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_controller.store.database import migrate, open_writer

COLUMNS = {
    "meta": "key value",
    "jobs": """job_id user_id submitting_user parent_job_id root_job_id depth state submitted_at_ms root_submitted_at_ms
        started_at_ms finished_at_ms scheduling_deadline_epoch_ms error exit_code num_tasks name backend_id cluster request_proto""",
    "job_config": """job_id name res_cpu_millicores res_memory_bytes res_disk_bytes res_device_json constraints_json
        has_coscheduling coscheduling_group_by scheduling_timeout_ms max_task_failures entrypoint_json environment_json bundle_id
        ports_json max_retries_failure max_retries_preemption timeout_ms preemption_policy existing_job_policy priority_band
        task_image submit_argv_json fail_if_exists container_profile""",
    "job_workdir_files": "job_id filename data",
    "tasks": """task_id job_id task_index state error exit_code submitted_at_ms started_at_ms finished_at_ms max_retries_failure
        max_retries_preemption current_attempt_id priority_neg_depth priority_root_submitted_ms priority_insertion priority_band
        current_worker_id current_worker_address backend_id cluster failure_count preemption_count""",
    "task_attempts": """task_id attempt_id worker_id state created_at_ms started_at_ms finished_at_ms exit_code error attempt_uid
        backend_id terminal_reason charge""",
    "workers": """worker_id address md_hostname md_ip_address md_cpu_count md_memory_bytes md_disk_bytes md_tpu_name
        md_tpu_worker_id md_gpu_count md_gpu_name md_device_json total_cpu_millicores total_memory_bytes total_gpu_count
        total_tpu_count device_type device_variant slice_id scale_group committed_cpu_millicores committed_mem_bytes
        metadata_proto""",
    "worker_attributes": "worker_id key value_type str_value int_value float_value",
    "endpoints": "endpoint_id name address task_id metadata_json registered_at_ms lease_deadline_ms access",
    "scaling_groups": """name consecutive_failures backoff_until_ms last_scale_up_ms last_scale_down_ms
        quota_exceeded_until_ms quota_reason updated_at_ms""",
    "slices": "slice_id scale_group lifecycle worker_ids created_at_ms error_message",
    "user_budgets": "user_id budget_limit max_band updated_at_ms",
    "schema_migrations": "name applied_at_ms",
}
DEFAULTS = {
    ("tasks", "current_attempt_id"): "-1",
    ("tasks", "priority_band"): "3",
    ("user_budgets", "max_band"): "3",
    ("user_budgets", "budget_limit"): "0",
    ("job_config", "max_retries_preemption"): "100",
    ("job_config", "max_retries_failure"): "0",
    ("job_config", "max_task_failures"): "0",
    ("jobs", "cluster"): "'local'",
    ("jobs", "backend_id"): "''",
}
"""As control-plane §6.1 has them, bands by DESIGN §5.9."""


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = open_writer(tmp_path / "c.sqlite3")
    migrate(made, 0)
    yield made
    made.close()


@pytest.mark.parametrize("table", COLUMNS)
def test_a_table_has_the_columns_that_operators_know(connection: sqlite3.Connection, table: str) -> None:
    found = {row[1]: row[4] for row in connection.execute(f"PRAGMA table_info({table})")}
    assert set(COLUMNS[table].split()) - set(found) == set()
    for (of, column), default in DEFAULTS.items():
        if of == table:
            assert found[column] == default, column


def test_the_file_is_wal_synced_and_shrinks_by_steps(connection: sqlite3.Connection) -> None:
    pragmas = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in (
        "journal_mode", "synchronous", "auto_vacuum", "foreign_keys",
    )}  # fmt: skip
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "auto_vacuum": 2, "foreign_keys": 1}


def test_a_worker_that_is_gone_takes_no_name_away(connection: sqlite3.Connection) -> None:
    """`current_worker_id` and `task_attempts.worker_id` are plain text (DESIGN §5.10)."""
    for table in ("tasks", "task_attempts"):
        assert "workers" not in {row[2] for row in connection.execute(f"PRAGMA foreign_key_list({table})")}


def test_a_job_takes_its_rows_along(connection: sqlite3.Connection) -> None:
    links = {
        (table, row[3]): (row[2], row[6])
        for table in COLUMNS
        for row in connection.execute(f"PRAGMA foreign_key_list({table})")
    }
    assert links == {
        ("jobs", "parent_job_id"): ("jobs", "CASCADE"),
        ("job_config", "job_id"): ("jobs", "CASCADE"),
        ("job_workdir_files", "job_id"): ("jobs", "CASCADE"),
        ("tasks", "job_id"): ("jobs", "CASCADE"),
        ("task_attempts", "task_id"): ("tasks", "CASCADE"),
        ("worker_attributes", "worker_id"): ("workers", "CASCADE"),
        ("endpoints", "task_id"): ("tasks", "CASCADE"),
    }
