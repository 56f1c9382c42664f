"""Columns: what machines and people read, what fits, and the bar of a job's tasks."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.live.columns import (
    ATTEMPTS,
    JOBS,
    SHARES,
    TASKS,
    ColumnSpec,
    Share,
    exit_text,
    iso,
    pick,
    share_cells,
    task_shares,
)
from iris_core.live.filters import JOB_FIELDS, TASK_FIELDS, WORKER_FIELDS, job_row, task_row, worker_row
from iris_core.live.fitting import fit
from iris_core.live.user_columns import USERS
from iris_core.live.worker_columns import WORKERS
from iris_core.model.filter import parse_filter
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.gen.iris.v1 import watch_rows_pb2
from providers.fake.clock import FakeClock
from providers.fake.samples import attempt, job, task

NOW = FakeClock().now_ms()
HOSTILE = "a\x1b]0;x\x07b\u202ec\n[bold]"
ROWS: list[tuple[dict[str, ColumnSpec[Any]], Any]] = [
    (JOBS, job("/ada/x", "FAILED", now_ms=NOW, counts={"FAILED": 1}, error=HOSTILE, exit_code=137)),
    (JOBS, pb.JobStatus()),
    (TASKS, task("/ada/x", 0, "FAILED", now_ms=NOW, error=HOSTILE, worker_id=HOSTILE, exit_code=1)),
    (TASKS, pb.TaskStatus()),
    (ATTEMPTS, attempt("/ada/x/0", 0, "KILLED", now_ms=NOW, error=HOSTILE, started_min=2, finished_min=1)),
    (ATTEMPTS, pb.AttemptStatus()),
    (WORKERS, pb.WorkerStatus(worker_id=HOSTILE, health=pb.WorkerStatus().health, health_reason=HOSTILE)),
    (WORKERS, pb.WorkerStatus()),
]


@pytest.mark.parametrize("specs, row", ROWS)
def test_every_column_is_safe_for_people_and_for_machines(specs: dict[str, ColumnSpec[Any]], row: Any) -> None:
    for spec in specs.values():
        text = spec.text(row, NOW)
        assert text and "\n" not in text and "\x1b" not in text and "\u202e" not in text, spec.id
        json.dumps(spec.value(row))
        if spec.sort is not None:
            assert spec.sort(row, NOW) == spec.sort(row, NOW)
        if spec.tone is not None:
            spec.tone(row)


def filled(message: Any, number: int) -> Any:
    """The message with that number in every field that has one, twice that where something ended."""
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            continue
        if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64, field.CPPTYPE_UINT32, field.CPPTYPE_DOUBLE):
            setattr(message, field.name, number * (2 if field.name == "finished_at_ms" else 1))
        elif field.cpp_type == field.CPPTYPE_MESSAGE and field.message_type.fields:
            filled(getattr(message, field.name), number)
    return message


@pytest.mark.parametrize(
    "specs, kind",
    [
        (JOBS, pb.JobStatus),
        (TASKS, pb.TaskStatus),
        (ATTEMPTS, pb.AttemptStatus),
        (WORKERS, pb.WorkerStatus),
        (USERS, watch_rows_pb2.UserRow),
    ],
)
def test_a_column_says_whether_its_sort_puts_the_largest_first(specs: dict[str, ColumnSpec[Any]], kind: Any) -> None:
    small, large = filled(kind(), 3), filled(kind(), 50)
    looked_at = 0
    for spec in specs.values():
        values = [spec.value(small), spec.value(large)]
        if spec.sort is None or not all(type(value) in (int, float) for value in values) or values[0] == values[1]:
            continue
        looked_at += 1
        assert spec.falls == (spec.sort(large, 100) < spec.sort(small, 100)), spec.id
    assert looked_at >= 2


def test_an_unknown_state_shows_as_its_number() -> None:
    status = pb.JobStatus()
    status.ParseFromString(bytes([3 << 3, 77]))
    assert JOBS["state"].text(status, NOW) == "77"


def test_machines_read_the_original_and_iso_times() -> None:
    row = ROWS[0][1]
    assert JOBS["reason"].value(row) == HOSTILE
    assert JOBS["submitted"].value(row) == iso(row.submitted_at_ms)
    assert iso(1_767_225_600_123) == "2026-01-01T00:00:00.123Z"
    assert iso(0) is None


def test_an_exit_by_signal_is_shown_by_name() -> None:
    assert exit_text(137) == "137 (SIGKILL)"
    assert exit_text(3) == "3"


def test_an_exit_code_that_the_program_chose_names_no_signal() -> None:
    """Field case C21."""
    assert exit_text(137, "exit code 137") == "137"
    assert exit_text(137, "setup step 1/2 failed: exit code 137") == "137"
    assert exit_text(137, "killed by SIGKILL (sender unknown)") == "137 (SIGKILL)"
    assert exit_text(137, "out of memory: limit 1GB, peak 1GB (the kernel killed 1 process)") == "137 (SIGKILL)"
    ended = task("/ada/x", 0, "FAILED", now_ms=NOW, exit_code=137, error="exit code 137")
    assert TASKS["exit"].text(ended, NOW) == "137"


@given(st.dictionaries(st.sampled_from(SHARES), st.integers(0, 10_000)), st.integers(0, 40))
def test_the_bar_has_the_width_asked_for_and_shows_every_share(counts: dict[Share, int], width: int) -> None:
    cells = dict(share_cells(counts, width))
    present = [name for name in SHARES if counts.get(name)]
    assert sum(cells.values()) == (width if present else 0)
    if len(present) <= width:
        assert set(cells) == set(present)
    assert list(cells) == [name for name in SHARES if name in cells]


def test_every_end_that_is_no_success_counts_as_failed_in_the_bar() -> None:
    row = job("/a/b", "RUNNING", now_ms=NOW, counts={"KILLED": 1, "PREEMPTED": 2, "SUCCEEDED": 3, "ASSIGNED": 1})
    assert {name: count for name, count in task_shares(row).items() if count} == {"done": 3, "failed": 3, "starting": 1}
    assert JOBS["tasks"].text(row, NOW) == "3/7"


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40])
def test_columns_fit_and_what_matters_stays(width: int) -> None:
    columns = pick(JOBS, ("job_id", "state", "tasks", "age", "time", "failures", "preemptions", "reason"))
    shown = fit(columns, width)
    names = [column.id for column, _ in shown]
    assert {"job_id", "state", "tasks", "reason"} <= set(names)
    if width >= 60:
        assert sum(room for _, room in shown) + len(shown) - 1 == width
    assert all(room >= column.min_width for column, room in shown)
    assert all(not column.max_width or room <= column.max_width for column, room in shown)
    assert ("time" in names) is (width >= 80)


def widths_of(columns: list[ColumnSpec[Any]], width: int, needs: dict[str, int]) -> dict[str, int]:
    return {column.id: room for column, room in fit(columns, width, needs=needs)}


def test_a_column_of_dashes_leaves_its_room_to_the_one_beside_it() -> None:
    columns = pick(TASKS, ("task_id", "state", "time", "worker", "reason"))
    empty = widths_of(columns, 120, {"task_id": 24, "state": 9, "worker": 38, "reason": 1})
    assert empty["worker"] == 38, "wider than its wish, as nobody else needs the room"
    assert empty["task_id"] == 24
    crowded = [replace(column, min_width=40) if column.id == "reason" else column for column in columns]
    assert widths_of(crowded, 91, {"task_id": 24, "worker": 38, "reason": 1})["worker"] == 38
    told = widths_of(columns, 120, {"task_id": 24, "state": 9, "worker": 38, "reason": 60})
    assert told["worker"] == 24, "it has its wish first"
    assert told["reason"] == 120 - 4 - 24 - 24 - told["state"] - told["time"]


def test_a_column_that_nothing_stands_in_is_hidden_where_another_would_be_cut_for_it() -> None:
    columns = pick(TASKS, ("task_id", "exit", "preemptions", "memory", "worker", "reason"))
    needs = {"task_id": 20, "exit": 13, "worker": 18, "reason": 60, "preemptions": 0, "memory": 0}
    assert set(widths_of(columns, 20 + 13 + 7 + 8 + 18 + 12 + 5, needs)) == set(needs), "all fit"
    tight = widths_of(columns, 20 + 13 + 8 + 18 + 12 + 4, needs)
    assert "preemptions" not in tight and tight["exit"] == 13 and tight["worker"] == 18, "the first to go suffices"
    assert not {"preemptions", "memory"} & set(widths_of(columns, 70, needs))
    told = widths_of(columns, 20 + 13 + 8 + 18 + 12 + 4, needs | {"preemptions": 1})
    assert "preemptions" in told and "memory" not in told, "what says something stays"
    unknown = widths_of(columns, 74, {name: cells for name, cells in needs.items() if cells})
    assert {"preemptions", "memory"} <= set(unknown), "nothing is hidden before a row was seen"


def test_the_column_that_rows_are_sorted_by_is_hidden_last() -> None:
    columns = pick(TASKS, ("task_id", "exit", "preemptions", "memory", "worker", "reason"))
    needs = {"task_id": 20, "exit": 13, "worker": 18, "reason": 60, "preemptions": 0, "memory": 0}

    def shown(width: int, keep: str = "") -> set[str]:
        return {column.id for column, _ in fit(columns, width, needs=needs, keep=keep)}

    for width in range(60, 120):
        gone = set(needs) - shown(width)
        assert all(name in shown(width, name) for name in gone), width
    assert "preemptions" not in shown(10, "preemptions"), "but nothing stands beside the terminal"


def test_a_time_is_not_cut_for_the_sake_of_numbers_that_are_short() -> None:
    columns = pick(USERS, ("user", "limit", "spent", "utilisation", "max_band", "effective_band", "updated"))
    needs = {"user": 8, "limit": 9, "spent": 5, "utilisation": 4, "max_band": 11, "effective_band": 11, "updated": 19}
    assert widths_of(columns, 90, needs)["updated"] == 19


@given(
    st.integers(40, 240),
    st.dictionaries(st.sampled_from(sorted(TASKS)), st.integers(0, 300)),
    st.lists(st.sampled_from(sorted(TASKS)), min_size=1, unique=True),
)
def test_however_much_is_needed_the_room_is_used_and_kept_to(
    width: int, needs: dict[str, int], names: list[str]
) -> None:
    columns = pick(TASKS, tuple(names))
    shown = fit(columns, width, needs=needs)
    used = sum(room for _, room in shown) + len(shown) - 1
    needed = {column.id: max(needs.get(column.id, 0), len(column.title)) for column, _ in shown}
    assert all(
        room >= (min(column.min_width, needed[column.id]) if column.flex else column.min_width)
        for column, room in shown
    )
    if used > width:
        assert all(not column.hide for column, _ in shown), "what may hide is hidden first"
    elif any(column.flex and not column.max_width for column, _ in shown):
        assert used == width


def test_every_filter_field_has_a_value() -> None:
    for name in JOB_FIELDS:
        job_row(ROWS[0][1], NOW)(name)
    for name in TASK_FIELDS:
        task_row(ROWS[2][1], NOW)(name)
    for name in WORKER_FIELDS:
        worker_row(ROWS[6][1])(name)


def test_workers_without_work_are_found_by_a_filter() -> None:
    wanted = parse_filter("health=healthy excluded=yes", WORKER_FIELDS)
    for excluded, health in itertools.product((False, True), (1, 2, 3)):
        worker = pb.WorkerStatus(worker_id="w", health=cast(Any, health), build_failures=3, excluded=excluded)
        assert wanted.matches(worker_row(worker)) == (excluded and health == 1)
