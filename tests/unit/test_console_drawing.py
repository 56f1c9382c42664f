"""Drawing: what is cut keeps the part that tells it apart, and numbers agree with their words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from iris_core.model.text import counted
from iris_tui.drawing import cut_middle, wrapped


def test_generated_names_differ_in_a_narrow_column() -> None:
    names = [f"/ada/iris-run-train-20260102-0304{second:02}" for second in range(60)]
    shown = {cut_middle(name, 20, "…") for name in names}
    assert len(shown) == len(names)
    assert min(shown) == "/ada/iris-run…030400"


def test_a_name_that_fits_is_whole() -> None:
    assert cut_middle("/ada/train", 10, "…") == "/ada/train"


@given(st.text(max_size=60), st.integers(1, 40), st.sampled_from(["…", "~"]))
def test_a_name_never_takes_more_than_its_room(name: str, width: int, ellipsis: str) -> None:
    assert cell_len(cut_middle(name, width, ellipsis)) <= width


@pytest.mark.parametrize(("number", "said"), [(0, "0 jobs"), (1, "1 job"), (2_000, "2,000 jobs")])
def test_a_number_agrees_with_its_word(number: int, said: str) -> None:
    assert counted(number, "job") == said


def test_a_text_is_broken_at_words() -> None:
    rows = wrapped("needs 4096 cores: the largest of 2 workers has 2", 20)
    assert [row.rstrip() for row in rows] == ["needs 4096 cores:", "the largest of 2", "workers has 2"]
    assert wrapped("", 20) == [""]


def test_a_word_is_broken_only_where_it_is_wider_than_a_row() -> None:
    rows = wrapped("see /ada/" + "x" * 30 + " for it", 16)
    assert [row.rstrip() for row in rows] == ["see", "/ada/" + "x" * 11, "x" * 16, "xxx for it"]
    assert [row.rstrip() for row in wrapped("  " + "y" * 20, 12, 2)] == ["  " + "y" * 10, "y" * 10]


def test_the_rows_after_the_first_leave_room_to_stand_in() -> None:
    rows = wrapped("    one two three four", 12, 4)
    assert [row.rstrip() for row in rows] == ["    one two", "three", "four"]


@given(st.text(alphabet="ab \t漢é\u200b", max_size=80), st.integers(8, 30), st.integers(0, 4))
def test_rows_are_the_text_and_none_is_wider_than_its_room(text: str, width: int, hang: int) -> None:
    rows = wrapped(text, width, hang)
    assert "".join(rows) == text
    assert all(cell_len(row.rstrip()) <= (width if not place else width - hang) for place, row in enumerate(rows))
