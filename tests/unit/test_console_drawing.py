"""Drawing: what is cut keeps the part that tells it apart, and numbers agree with their words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from iris_tui.drawing import counted, cut_middle


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
