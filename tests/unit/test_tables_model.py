"""Schemas of tables: what is one, how it may grow, and that rows on the wire are what was put in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_core.model.errors import ModelError
from iris_core.model.namespaces import NAMESPACES, PROFILE, TASK_EVENT, TASK_STATUS
from iris_core.model.tables import Column, ColumnType, StoragePolicy, Table, check_table, grown
from iris_core.wire.rows import batch_of, rows_of, table_from_wire, table_to_wire
from tests.unit.tables_world import EVERYTHING, METRIC, OTHER

EXTRA = Column("extra", ColumnType.INT64, nullable=True)


def test_every_own_table_is_sound_and_says_which_attempt_a_row_is_about() -> None:
    assert len({table.name for table in NAMESPACES}) == len(NAMESPACES) == 9
    for table in NAMESPACES:
        check_table(table)
        assert table.column("attempt_uid") == Column("attempt_uid", ColumnType.STRING, nullable=True)
        assert table_from_wire(table_to_wire(table)) == table
    assert TASK_EVENT.policy.max_age_seconds == 30 * 24 * 3600
    assert PROFILE.policy.max_age_seconds == 7 * 24 * 3600
    assert TASK_STATUS.policy == StoragePolicy(max_bytes=100 << 20, max_age_seconds=3600)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (replace(METRIC, name="Bad"), "no table can be called"),
        (replace(METRIC, name="a..b"), "no table can be called"),
        (replace(METRIC, name="../x"), "no table can be called"),
        (replace(METRIC, name="log"), "built in"),
        (replace(METRIC, name="memory.x"), "no query could read"),
        (replace(METRIC, name="pg_catalog.pg_settings"), "no query could read"),
        (replace(METRIC, name="runs.json"), "no query could read"),
        (replace(METRIC, columns=()), "0 columns"),
        (replace(METRIC, columns=(*METRIC.columns, Column("seq", ColumnType.INT64))), "no column can be called 'seq'"),
        (replace(METRIC, columns=(*METRIC.columns, Column("a b", ColumnType.INT64))), "no column can be called"),
        (replace(METRIC, columns=(*METRIC.columns, METRIC.columns[0])), "two columns name"),
        (replace(METRIC, key_column="nope"), "does not have the key column 'nope'"),
        (replace(METRIC, key_column=""), "timestamp_ms"),
        (replace(METRIC, key_column="labels"), "must be a scalar"),
        (replace(METRIC, key_column="value"), "must be a scalar and not nullable"),
        (replace(METRIC, policy=StoragePolicy(max_bytes=-1)), "below zero"),
    ],
)
def test_what_is_no_schema(table: Table, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        check_table(table)


def test_a_table_grows_by_nullable_columns_and_keeps_its_policy() -> None:
    old = replace(METRIC, policy=StoragePolicy(max_bytes=5))
    # In another order: it is the names that count.
    new = replace(METRIC, columns=(EXTRA, *reversed(METRIC.columns)))
    assert grown(old, new) == replace(old, columns=(*METRIC.columns, EXTRA))
    assert grown(old, replace(METRIC, policy=StoragePolicy(max_age_seconds=7))).policy == StoragePolicy(0, 0, 7)
    assert grown(old, METRIC) == old


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (replace(METRIC, key_column="ts"), "keyed by name, not by ts"),
        (replace(METRIC, columns=METRIC.columns[:-1]), "has a column labels, which is missing now"),
        (
            replace(METRIC, columns=(*METRIC.columns[:2], Column("value", ColumnType.INT64, True), METRIC.columns[3])),
            "FLOAT64",
        ),
        (replace(METRIC, columns=(*METRIC.columns, replace(EXTRA, nullable=False))), "not nullable"),
        (
            replace(METRIC, columns=(*METRIC.columns[:2], Column("value", ColumnType.FLOAT64), METRIC.columns[3])),
            "required",
        ),
    ],
)
def test_how_a_table_may_not_grow(new: Table, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        grown(METRIC, new)


_OPTIONAL = {
    ColumnType.INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    ColumnType.INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    ColumnType.FLOAT64: st.floats(allow_nan=False),
    ColumnType.BOOL: st.booleans(),
    ColumnType.TIMESTAMP_MS: st.integers(0, 1 << 40),
    ColumnType.BYTES: st.binary(max_size=8),
    ColumnType.MAP: st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    ColumnType.FLOAT64_LIST: st.lists(st.floats(allow_nan=False), max_size=3),
    ColumnType.INT64_LIST: st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=3),
}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"string": st.text(max_size=8)},
            optional={type_.name.lower(): values for type_, values in _OPTIONAL.items()},
        ),
        max_size=5,
    )
)
def test_rows_come_back_as_they_were(rows: list[dict[str, object]]) -> None:
    batch = batch_of(EVERYTHING, "p", 3, rows)
    assert (batch.first_number, batch.rows) == (3, len(rows))
    given_names = {name for row in rows for name in row}
    assert {column.name for column in batch.columns} == given_names
    if batch.columns:
        assert list(rows_of(batch.columns)) == [
            {
                name: row.get(name)
                for name in sorted(given_names, key=[column.name for column in EVERYTHING.columns].index)
            }
            for row in rows
        ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"nope": 1, "timestamp_ms": 1, "n": 1}, "no column 'nope'"),
        ({"timestamp_ms": 1}, "n is missing in row 0"),
        ({"timestamp_ms": 1, "n": "x"}, "row 0 has str for INT64"),
        ({"timestamp_ms": 1, "n": True}, "row 0 has bool for INT64"),
        ({"timestamp_ms": 1, "n": 1 << 63}, "outside INT64"),
    ],
)
def test_a_value_that_does_not_fit_is_named(row: dict[str, object], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        batch_of(OTHER, "p", 0, [row])
