"""What a rollback would drop, counted twice: nothing that came in between goes unseen, whatever else left meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.procedures.losses import counted_after, named_after
from iris_core.procedures.since import more_lost

AT = 1_700_000_000_000
"""The moment of the checkpoint."""
TABLES = """
CREATE TABLE jobs (job_id TEXT, submitted_at_ms INT, started_at_ms INT, finished_at_ms INT);
CREATE TABLE tasks (task_id TEXT, job_id TEXT);
CREATE TABLE task_attempts (task_id TEXT, created_at_ms INT, started_at_ms INT, finished_at_ms INT);
"""

Job = tuple[str, int]
"""Its name and when it was submitted, which no other job was."""


def counted(jobs: Iterable[Job]) -> dict[str, Any]:
    """As a controller counts whose database has these jobs, all of them submitted or changed after the checkpoint."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(TABLES)
    for name, submitted in jobs:
        connection.execute("INSERT INTO jobs VALUES (?, ?, ?, NULL)", (name, submitted, AT + 5_000))
    made, changed, newest, which = connection.execute(counted_after(AT)).fetchone()
    names = [row[0] for row in connection.execute(named_after(AT))]
    return {"submitted": made, "changed": changed, "jobs": names, "newest": newest, "which": which}


@given(
    older=st.sets(st.integers(AT - 50, AT), max_size=12),
    later=st.sets(st.integers(AT + 1, AT + 50), max_size=12),
    gone=st.sets(st.integers(AT - 50, AT + 50)),
    changed=st.sets(st.integers(AT - 50, AT), max_size=3),
    came=st.sets(st.integers(AT + 51, AT + 60), max_size=3),
    names=st.integers(1, 20),
)
def test_whatever_came_in_between_is_said(
    older: set[int], later: set[int], gone: set[int], changed: set[int], came: set[int], names: int
) -> None:
    def named(submitted: Iterable[int]) -> set[Job]:
        return {(f"/u/j{number % names}-{number > AT}", number) for number in submitted}

    before = older | later
    after = (before - gone) | changed | came
    more = more_lost(counted(named(before)), counted(named(after)))
    if after - before:
        assert more, (sorted(before), sorted(after))
    elif not before - after:
        assert more == ""


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        # One took a name over; another came as one was removed.
        ([("a", AT + 100)], [("a", AT + 200)], "at least one more job was submitted since the question"),
        ([("a", AT + 100), ("b", AT + 101)], [("b", AT + 101), ("d", AT + 200)], "at least one more job was submitted since the question"),
        ([("a", AT + 100), ("b", AT + 101)], [("d", AT + 200)], "at least one more job was submitted since the question"),
        ([("a", AT + 100)], [("a", AT + 100), ("b", AT + 101)], "1 more job was submitted since the question"),
        # One was removed, and nothing came.
        ([("a", AT + 100), ("b", AT + 101)], [("b", AT + 101)], ""),
        # More are submitted than are named, and one of the older ones was removed as another ended.
        (
            [*((f"n{number}", AT + 100 + number) for number in range(9)), ("o1", AT - 1), ("o2", AT - 2)],
            [*((f"n{number}", AT + 100 + number) for number in range(9)), ("o2", AT - 2), ("o3", AT - 3)],
            "the older jobs that were changed are not those of the question",
        ),
        ([("a", AT + 100)], [("a", AT + 200), ("o1", AT - 1)], "1 more older job was changed and at least one more job was submitted since the question"),
        ([("a", AT + 100), ("o1", AT - 1)], [("a", AT + 200), ("o2", AT - 2)], "at least one more job was submitted since the question; the older jobs that were changed are not those of the question"),
    ],
)  # fmt: skip
def test_it_says_no_more_than_it_knows(before: list[Job], after: list[Job], said: str) -> None:
    assert more_lost(counted(before), counted(after)) == said


@pytest.mark.parametrize("absent", [("which",), ("newest", "which")])
def test_a_journal_or_a_program_of_an_earlier_version_counts_as_it_can(absent: tuple[str, ...]) -> None:
    def less(found: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in found.items() if key not in absent}

    one, other = counted([("a", AT + 100), ("o1", AT - 1)]), counted([("a", AT + 100), ("o2", AT - 2)])
    for named, now in ((less(one), other), (one, less(other)), (less(one), less(other))):
        assert more_lost(named, now) == "other jobs were submitted or changed since the question"
        assert more_lost(named, less(one)) == ""
