"""Rows on their way in: wrong names, types, lengths and sizes, and repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.finelog.tables import admission
from iris_controller.finelog.tables.admission import Rows, admit, parse
from iris_controller.rpc.errors import RpcError
from iris_core.wire.gen.iris.v1 import stats_pb2 as pb
from iris_core.wire.rows import rows_of
from tests.unit.tables_world import METRIC, NOW_MS, OTHER, metrics

if TYPE_CHECKING:
    from collections.abc import Callable

TABLES = {METRIC.name: METRIC, OTHER.name: OTHER}


def column(batch: pb.RowBatch, name: str) -> pb.ColumnValues:
    return next(one for one in batch.columns if one.name == name)


def changed(change: Callable[[pb.RowBatch], object]) -> pb.RowBatch:
    batch = metrics(0, 2)
    change(batch)
    return batch


def _retype(batch: pb.RowBatch) -> None:
    column(batch, "value").type = pb.COLUMN_TYPE_INT64


def _unknown_type(batch: pb.RowBatch) -> None:
    column(batch, "value").type = 99  # type: ignore[assignment]


def _no_name(batch: pb.RowBatch) -> None:
    batch.columns.remove(column(batch, "name"))


@pytest.mark.parametrize(
    ("batch", "code", "words"),
    [
        (changed(lambda b: setattr(b, "table", "test.metrik")), "unknown_table", "no table 'test.metrik'"),
        (changed(lambda b: setattr(b, "producer", "a b")), "invalid", "producer"),
        (changed(lambda b: setattr(b, "producer", "")), "invalid", "producer"),
        (changed(lambda b: setattr(b, "rows", -1)), "invalid", "-1 rows"),
        (changed(lambda b: setattr(b, "rows", 50_001)), "invalid", "50001 rows"),
        (changed(lambda b: setattr(b, "first_number", (1 << 63) - 1)), "invalid", "out of range"),
        (changed(lambda b: setattr(column(b, "value"), "name", "valeu")), "unknown_column", "no column 'valeu'"),
        (changed(lambda b: setattr(column(b, "value"), "name", "ts")), "invalid", "given twice"),
        (changed(_retype), "wrong_type", "is FLOAT64, not INT64"),
        (changed(_unknown_type), "wrong_type", "is FLOAT64, not 99"),
        (changed(lambda b: column(b, "value").doubles.pop()), "wrong_length", "1 doubles for 2 rows"),
        (changed(lambda b: column(b, "value").strings.append("x")), "wrong_type", "there are strings too"),
        (changed(lambda b: column(b, "name").nulls.append(1)), "null", r"may not be NULL \(row 1\)"),
        (changed(lambda b: column(b, "value").nulls.append(2)), "invalid", "do not ascend"),
        (changed(lambda b: column(b, "value").nulls.extend([1, 1])), "invalid", "do not ascend"),
        (changed(_no_name), "missing_column", "name is required"),
        (changed(lambda b: column(b, "ts").integers.__setitem__(1, 1 << 62)), "out_of_range", "between the years"),
        (changed(lambda b: column(b, "ts").integers.__setitem__(0, -(1 << 62))), "out_of_range", "between the years"),
        (changed(lambda b: column(b, "name").strings.__setitem__(1, "x" * 1025)), "value_too_long", "row 1 has 1025"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(batch: pb.RowBatch, code: str, words: str) -> None:
    request = pb.WriteRowsRequest(batches=[metrics(0, 1), batch]).SerializeToString()
    with pytest.raises(RpcError, match=words) as refused:
        parse(request, TABLES)
    assert refused.value.code == code
    assert refused.value.field.startswith("batches[1]")


def test_pushes_that_are_none_or_too_large() -> None:
    with pytest.raises(RpcError, match="no WriteRowsRequest"):
        parse(b"\xff\xff", TABLES)
    with pytest.raises(RpcError, match="more than"):
        parse(bytes(admission.MAX_PUSH_BYTES + 1), TABLES)
    assert parse(b"", TABLES) == []
    assert parse(pb.WriteRowsRequest(batches=[metrics(0, 0)]).SerializeToString(), TABLES) == []


def test_a_column_that_may_be_null_may_be_left_out() -> None:
    batch = pb.RowBatch(table="test.metric", producer="p", rows=1)
    batch.columns.add(name="name", type=pb.COLUMN_TYPE_STRING, strings=["a"])
    batch.columns.add(name="ts", type=pb.COLUMN_TYPE_TIMESTAMP_MS, integers=[NOW_MS])
    (rows,) = parse(pb.WriteRowsRequest(batches=[batch]).SerializeToString(), TABLES)
    assert rows.end == 1


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 6), st.integers(1, 6), st.integers(0, 14))
def test_only_what_is_new_is_admitted(first: int, count: int, mark: int) -> None:
    batch = metrics(first, count)
    column(batch, "value").nulls.append(count - 1)
    rows = Rows(batch, batch.SerializeToString())
    fresh = admit(rows, mark)
    numbers = [number for number in range(first, first + count) if number >= mark]
    assert rows.stored == len(numbers)
    assert rows.missing == (max(0, first - mark) if numbers else 0)
    if fresh is None:
        assert not numbers
        return
    assert (fresh.message.first_number, fresh.message.rows) == (numbers[0], len(numbers))
    assert pb.RowBatch.FromString(fresh.payload) == fresh.message
    kept = list(rows_of(fresh.message.columns))
    assert [row["ts"] - NOW_MS for row in kept] == numbers
    assert [row["value"] for row in kept] == [*map(float, numbers[:-1]), None]
