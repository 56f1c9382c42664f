"""Content patterns: the dialect, faults with their place, spans."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.model.errors import ModelError
from iris_core.model.regex import MAX_PATTERN, compile_content_regex


def test_search_takes_text_and_bytes() -> None:
    regex = compile_content_regex(r"rank[01].*train/loss")
    assert regex.search("rank0 step 3 train/loss=2")
    assert regex.search(b"rank1 train/loss")
    assert not regex.search("rank2 train/loss")
    assert compile_content_regex("é").search("caf\u00e9".encode())
    assert not compile_content_regex("a").search(b"\xff\xfe")
    assert not compile_content_regex("a").search("\ud800")
    assert compile_content_regex("b\x00").search("ab\x00c")


def test_spans_count_characters_and_skip_empty_matches() -> None:
    assert compile_content_regex("lo+").spans("é日lo looo") == [(2, 4), (5, 9)]
    assert compile_content_regex("x*").spans("axxb") == [(1, 3)]
    assert compile_content_regex("b").spans("\ud800b") == [(1, 2)]


@pytest.mark.parametrize(
    ("pattern", "message", "start", "end"),
    [
        ("[", "missing ]: '[' at position 0", 0, 1),
        ("rank[01", "missing ]: '[01' at position 4", 4, 7),
        ("é日[", "missing ]: '[' at position 2", 2, 3),
        ("a(b", "missing ): '(' at position 1", 1, 2),
        ("(a)((b)", "missing ): '(' at position 3", 3, 4),
        (r"\(\)[(](", "missing ): '(' at position 7", 7, 8),
        (r"\Q(\E(", "missing ): '(' at position 5", 5, 6),
        ("[[:alpha:](](", "missing ): '(' at position 12", 12, 13),
        ("(a)(b))c", "unexpected ): ')' at position 6", 6, 7),
        ("*", "no argument for repetition operator: '*' at position 0", 0, 1),
        ("a*|*", "no argument for repetition operator: '*' at position 3", 3, 4),
        ("a**", "bad repetition operator: '**' at position 1", 1, 3),
        ("x{2000}", "invalid repetition size: '{2000}' at position 1", 1, 7),
        ("((a{100}){100})", "invalid repetition size: '{100}' at position 9", 9, 14),
        ("abc\\", "trailing \\: '\\\\' at position 3", 3, 4),
        (r"\d\q", r"invalid escape sequence: '\\q' at position 2", 2, 4),
        ("[b-a]", "invalid character class range: 'b-a' at position 1", 1, 4),
        ("x(?=y)", "invalid perl operator: '(?=' at position 1", 1, 4),
        ("((", "missing ): '((' between positions 0 and 1", 0, 2),
        ("\ud800", "not valid text at position 0", 0, None),
    ],
)
def test_faults_name_the_fragment_and_its_place(pattern: str, message: str, start: int, end: int | None) -> None:
    with pytest.raises(ModelError, match=re.escape(message)) as caught:
        compile_content_regex(pattern)
    assert (caught.value.position, caught.value.end) == (start, end)
    assert caught.value.field == "regex"


def test_length_is_limited() -> None:
    assert compile_content_regex("x" * MAX_PATTERN).search("x" * MAX_PATTERN)
    with pytest.raises(ModelError, match="more than 4096"):
        compile_content_regex("x" * (MAX_PATTERN + 1))


def test_memory_is_limited() -> None:
    with pytest.raises(ModelError, match="too large"):
        compile_content_regex(r"(\pL{1,900}){1,1}" * 8 + r"\pL{1000}" * 60)


@given(st.text(alphabet="ab[](){}*+?|\\^$.-:PQEq12,é\x00\n", max_size=25) | st.text(max_size=25))
def test_any_pattern_compiles_or_is_refused_with_a_place_in_it(pattern: str) -> None:
    try:
        regex = compile_content_regex(pattern)
    except ModelError as error:
        assert str(error).isprintable()
        if error.position is not None:
            assert 0 <= error.position < max(len(pattern), 1)
            assert error.end is None or error.position < error.end <= len(pattern)
        return
    text = "ab[1]é b-a(2)\x00"
    spans = regex.spans(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert regex.search(text) == regex.search(text.encode())
    assert regex.search(text) or not spans


@given(st.text(alphabet="ab(){", max_size=12), st.sampled_from(["[", "\\q", "(?=", "x{2000}", "y**", "[z-a]"]))
def test_cutting_before_the_fault_removes_it(prefix: str, bad: str) -> None:
    try:
        compile_content_regex(prefix + bad)
    except ModelError as error:
        if error.position is None or "between" in error.message:
            return
        try:
            compile_content_regex(prefix[: error.position])
        except ModelError as shorter:
            # What is left may lack the parenthesis that would have closed later; the named fault is gone.
            assert shorter.message != error.message or "missing )" in shorter.message


@pytest.mark.parametrize("pattern", [r"(x+x+)+y", r"(a*)*c", r"(a|aa)+$", r"([a-z]+)+9", r"(.*)(.*)(.*)(.*)z"])
def test_known_bad_patterns_end(pattern: str) -> None:
    assert not compile_content_regex(pattern).search("a" * 200_000 + "x" * 200_000)
