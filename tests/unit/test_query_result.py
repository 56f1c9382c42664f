"""What a statement gave: columns, ids that actions can be about, the filter's fields, and the command line that does the same."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.live.query_columns import column_specs, filter_fields, filter_values, row_ids
from iris_core.live.query_result import Result, distinct, id_columns, kind_of, on_one_line, pipe_line
from iris_core.live.query_templates import TEMPLATES
from iris_core.model.filter import parse_filter


def result(names: tuple[str, ...], *rows: tuple[Any, ...], sql: str = "SELECT 1") -> Result:
    return Result(sql, "controller", names, rows)


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("/ada/train", "job"),
        ("/ada/train/0", "task"),
        ("/ada/train/0:2", "attempt"),
        ("ada", ""),
        ("/", ""),
        (3, ""),
        (None, ""),
    ],
)
def test_what_a_cell_is(cell: object, kind: str) -> None:
    assert kind_of(cell) == kind


def test_the_ids_are_in_the_column_with_the_name_else_in_the_first_with_a_slash() -> None:
    assert id_columns(result(("name", "task_id"), ("/x/y", "/a/b/0"))) == [1]
    assert id_columns(result(("n", "what", "also"), (1, "/a/b/0", "/a/b"))) == [1]
    assert id_columns(result(("job_id", "task_id"), ("/a/b", "/a/b/0"))) == [0, 1], "nobody guesses"
    assert id_columns(result(("task_id", "attempt_id"), ("/a/b/0", 3))) == [0], "a number is no id"
    assert id_columns(result(("task_id",), ("nothing",))) == [] == id_columns(result(("task_id",)))


def test_rows_are_known_by_their_id_and_by_number_where_it_repeats() -> None:
    found = result(("task_id",), ("/a/b/0",), ("/a/b/0",), (None,))
    assert row_ids(found, 0) == ["/a/b/0", "/a/b/0#2", "#3"]
    assert row_ids(found, None) == ["#1", "#2", "#3"]


def test_columns_are_as_wide_as_needed_and_numbers_stand_right() -> None:
    found = result(("name", "count(*)", "name"), ("x" * 100, 7, None), ("y", 12, "z"))
    first, count, again = column_specs(found)
    assert [column.id for column in (first, count, again)] == ["name", "count(*)", "name_2"]
    assert (first.align, count.align, first.flex) == ("left", "right", 1)
    assert again.text(found.rows[0], 0) == "NULL"
    assert count.sort is not None
    assert sorted(found.rows, key=lambda row: count.sort(row, 0))[0][1] == 7  # type: ignore[misc]
    assert again.sort is not None and again.sort(found.rows[0], 0) < again.sort(found.rows[1], 0)


@pytest.mark.parametrize(("text", "hits"), [("h100", 1), ("state=3", 2), ("state>3", 1), ("name:b", 1), ("!h100", 2)])
def test_a_filter_asks_every_cell_or_one_column(text: str, hits: int) -> None:
    found = result(("name", "state", "count(*)"), ("a-h100", 3, 1), ("b", 3, None), ("c", 5, 2))
    fields = filter_fields(found)
    wanted = parse_filter(text, fields, default=["any"])
    values = filter_values(found, fields)
    assert sum(wanted.matches(values(row)) for row in found.rows) == hits


def test_a_statement_on_one_line_says_the_same() -> None:
    assert on_one_line("SELECT 'a  -- b',\n  \"c  d\" -- why\nFROM t /* x\n y */ WHERE a;\n") == (
        "SELECT 'a  -- b', \"c  d\" FROM t WHERE a".replace(', "', ',  "')
        .replace(',  "', ', "')
        .replace('" FROM', '"   FROM')
        .replace("t WHERE", "t   WHERE")
    )


@given(st.text(alphabet="ab'\" \n;-", max_size=20))
def test_the_pipe_is_two_commands_for_a_shell(text: str) -> None:
    line = pipe_line(
        result(("n", "task_id"), (1, "/a/b/0"), sql=f"SELECT '{text}'"), 1, "task preempt", "--cluster=lab"
    )
    words = shlex.split(line)
    at = words.index("|")
    assert words[:2] == ["iris-core", "--cluster=lab"] and words[at + 1 :] == [
        "iris-core", "--cluster=lab", "task", "preempt", "--stdin",
    ]  # fmt: skip
    assert words[at - 1].startswith('SELECT "task_id" FROM (')


def test_names_never_repeat() -> None:
    assert distinct(["x", "x", "x_2", "x"]) == ["x", "x_3", "x_2", "x_4"]


def test_every_template_has_a_title_of_its_own_and_is_one_statement() -> None:
    assert len({template.title for template in TEMPLATES}) == len(TEMPLATES)
    for template in TEMPLATES:
        assert ";" not in template.sql and template.sql.startswith(("SELECT", "WITH"))
        if template.blank is not None:
            assert template.sql[slice(*template.blank)].startswith("<")
