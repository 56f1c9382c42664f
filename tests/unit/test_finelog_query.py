"""Scopes and filters as plain values, and that the quick tests of a reader never skip a line that matches."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.finelog.index import Extent, LiveIndex, keys_in
from iris_controller.finelog.query import Query, Scope
from iris_core.model.errors import ModelError
from iris_core.model.regex import compile_content_regex
from tests.unit.finelog_world import NOW_MS, batch

COMPONENT = st.text("ab0:.-", min_size=1, max_size=3)
KEYS = st.lists(COMPONENT, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
SCOPES = st.builds(Scope, KEYS, st.booleans(), st.booleans())


@settings(deadline=None)
@given(st.lists(KEYS, unique=True, max_size=30), SCOPES)
def test_a_lookup_in_sorted_keys_finds_what_the_scope_matches(keys: list[str], scope: Scope) -> None:
    found = keys_in(sorted(keys), scope)
    assert sorted(found) == sorted(key for key in keys if scope.matches(key))


@settings(deadline=None)
@given(KEYS, KEYS)
def test_a_prefix_matches_by_components(source: str, key: str) -> None:
    expected = re.fullmatch(re.escape(source) + "([/:].*)?", key) is not None
    assert Scope(source, prefix=True).matches(key) is expected
    assert Scope(source).matches(key) is (key == source)


# Small pieces put together at random: anchors, boundaries, classes, alternatives, flags and text around non-ASCII letters.
PIECES = st.sampled_from(
    ["a", "b", "é", "日", "x", " ", ".", "^", "$", r"\b", r"\B", r"\A", r"\z", "[^a]", "[ab]", "[^", "]", "|", "(", ")", "(?i)", "(?m)", "(?s)",
     "(?:", "*", "+", "?", r"\d", r"\w", r"\W", r"\pL", r"\Qa^\E", r"\^", r"\$", r"\[^", "[[:alpha:]]", r"\x61", "{2}"]
)  # fmt: skip
LINE = st.text("abé日x 1^$[]", max_size=6)


@settings(max_examples=600, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=5).map("".join), st.lists(LINE, min_size=1, max_size=5))
def test_a_batch_in_which_a_line_matches_is_never_skipped(pattern: str, lines: list[str]) -> None:
    try:
        regex = compile_content_regex(pattern)
    except ModelError:
        return
    query = Query(Scope("/u/j/0:0"), regex=regex)
    quick, line_test = query.payload_test(), query.line_test()
    made = batch(lines)
    assert line_test is not None
    if quick is not None and any(line_test(entry) for entry in made.entries):
        assert quick(made.SerializeToString())


@settings(deadline=None)
@given(LINE, st.lists(LINE, min_size=1, max_size=5))
def test_a_batch_that_holds_the_text_is_never_skipped(text: str, lines: list[str]) -> None:
    query = Query(Scope("/u/j/0:0"), substring=text)
    quick, line_test = query.payload_test(), query.line_test()
    made = batch(lines)
    if not text:
        assert quick is None and line_test is None
        return
    assert quick is not None and line_test is not None
    assert not any(line_test(entry) for entry in made.entries) or quick(made.SerializeToString())
    assert [line_test(entry) for entry in made.entries] == [text in line for line in lines]


def test_an_index_lists_keys_that_arrive_while_it_is_asked() -> None:
    index = LiveIndex(1)
    seq = 1
    for round_ in range(20):
        for place in range(round_ * 10):
            key = f"/u/{(place * 7919 + round_) % 500}"
            index.add(key, Extent(100 * seq, 90, seq, 1, NOW_MS, NOW_MS, 4, 0, 0), "p", seq)
            seq += 1
        assert index.keys(Scope("/u", prefix=True)) == sorted(index.rows) == index.all_keys()
