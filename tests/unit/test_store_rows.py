"""A batch of submissions is few statements, whatever its size, and each row is in exactly one of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial

import pytest

from iris_controller.store.rows import CHUNKS, FEW, bound, insert

INSERT = partial(insert, "kept", ("a", "b"))


@pytest.mark.parametrize("count", [1, 2, 7, 15, 16])
def test_a_small_batch_is_one_statement(count: int) -> None:
    assert len(list(bound(INSERT, [(n, b"x") for n in range(count)]))) == 1


@pytest.mark.parametrize("count", [0, 1, 17, 49, 50, 51, 333])
def test_every_row_is_written_once(count: int) -> None:
    rows = [(n, bytes([n % 256])) for n in range(count)]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE kept (a INTEGER, b BLOB)")
        for sql, values in bound(INSERT, rows):
            connection.execute(sql, values)
        assert connection.execute("SELECT a, b FROM kept ORDER BY a").fetchall() == rows


def test_batches_of_every_size_need_few_different_statements() -> None:
    found = {sql for count in range(600) for sql, _ in bound(INSERT, [(n, b"") for n in range(count)])}
    assert len(found) == len(CHUNKS) + FEW, "they stay prepared"
