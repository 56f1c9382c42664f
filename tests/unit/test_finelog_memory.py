"""A text is found in memory exactly where Python finds it, with the C library's search and without it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_controller.finelog import memory


@given(
    data=st.text("ab\0é", max_size=60).map(str.encode),
    needle=st.text("ab\0é", min_size=1, max_size=4).map(str.encode),
    cut=st.integers(0, 130),
    has_library=st.booleans(),
)
def test_a_text_is_found_where_python_finds_it(data: bytes, needle: bytes, cut: int, has_library: bool) -> None:
    end = min(cut, len(data))
    with pytest.MonkeyPatch.context() as patch:
        if not has_library:
            patch.setattr(memory, "_memmem", None)
        find = memory.finder(pa.py_buffer(data), needle, end)
        assert [find(start) for start in range(len(data) + 2)] == [
            data.find(needle, start, end) for start in range(len(data) + 2)
        ]


def test_nothing_beyond_the_buffer_is_looked_at() -> None:
    with pytest.raises(ValueError, match="the buffer has 3 bytes, not 4"):
        memory.finder(pa.py_buffer(b"abc"), b"a", 4)
