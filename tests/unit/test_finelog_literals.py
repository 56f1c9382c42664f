"""Literals that every match of a pattern holds: which ones are found, and that no match is without them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from iris_controller.finelog.literals import MAX_CLAUSES, certain_literals, fold, longest_literal
from iris_core.model.errors import ModelError
from iris_core.model.regex import compile_content_regex


@pytest.mark.parametrize(
    ("pattern", "clauses"),
    [
        ("Train/Loss", [{"train/loss"}]),
        (r"rank[0-9]+.*loss", [{"rank"}, {"loss"}]),
        ("colou?r", [{"color", "colour"}]),
        ("error|warning", [{"error", "warning"}]),
        ("(?:out of|no) memory", [{"out of memory", "no memory"}]),
        ("disk (full|quota.*exceeded)", [{"disk "}, {"full", "exceeded"}]),
        ("a(bc)+d", [{"bc"}, {"a"}, {"d"}]),
        ("(ab){2}c", [{"ababc"}]),
        ("(ab){2,}c", [{"abab"}, {"c"}]),
        ("x{0,3}tail", [{"tail"}]),
        ("[Ee]rr[0o]r", [{"err0r", "error"}]),
        ("(?i)Task", [{"task"}]),
        ("(?i:ABC)é", [{"abcé"}]),
        ("(?i)caf\u00e9 au lait", [{" au lait"}, {"caf"}]),
        ("(?i)\u212aelvin|\u017fun", [{"kelvin", "sun"}]),
        ("日本.*語", [{"日本"}, {"語"}]),
        (r"^\Aloss=\b1\.5\z$", [{"loss=1.5"}]),
        (r"\Qa.b*c\E+d", [{"a.b*"}, {"c"}, {"d"}]),
        (r"\x41\x{e9}\t", [{"aé\t"}]),
        ("(?P<name>abc)(?<other>def)", [{"abcdef"}]),
        ("a{,3}b", [{"a{,3}b"}]),
        ("(?s)one(?-s).two(?U)x*?", [{"one"}, {"two"}]),
        ("a|ab|b.*", [{"a", "b"}]),
        ("foo(bar)?", [{"foo"}]),
        ("[]a]z", [{"az", "]z"}]),
    ],
)
def test_what_is_certain(pattern: str, clauses: list[set[str]]) -> None:
    compile_content_regex(pattern)
    assert set(certain_literals(pattern)) == {frozenset(clause) for clause in clauses}


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("Train/Loss", "Train/Loss"),
        ("Rank[0-9]+ timed OUT", " timed OUT"),
        ("(?i)Rank 1-22-333 x", " 1-22-333 "),
        ("(?i:Abc)Def", "Def"),
        ("error|warning", ""),
        ("(?i)task", ""),
        ("[Ee]rror", "rror"),
        ("(a|b)cd", "cd"),
        ("colou?r", "colo"),
        ("Kelvin.*café", "Kelvin"),
        (r"\Cabc", ""),
    ],
)
def test_the_longest_literal(pattern: str, literal: str) -> None:
    compile_content_regex(pattern)
    assert longest_literal(pattern) == literal


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        ".*",
        r"\d+\s*[a-z]{3}",
        "(abc)?",
        "(abc)*",
        "abc|",
        "abc|.*",
        "(abc){0}",
        "(?i)é",
        r"\pLx*",
        "[^a]",
        "[[:alpha:]]",
        r"[\d]",
        r"\Cabc",  # a byte of a character
        r"\141bc",  # octal
        r"\Q\Eabc",
        "abc(?i){0,2}def",
        "abc(?i)*",
        "(" * 60 + "abc" + ")" * 60,
    ],
)
def test_what_is_not(pattern: str) -> None:
    compile_content_regex(pattern)
    assert certain_literals(pattern) == ()


def test_what_is_no_pattern_is_no_error() -> None:
    for broken in ("(abc", "abc)", "[abc", "abc\\", "*abc", "(?i", r"\Q", "(?P<", "a{1001", "[[:", r"\x{", "(?"):
        certain_literals(broken)
        longest_literal(broken)


def test_a_large_pattern_stays_small() -> None:
    assert certain_literals("|".join(f"word{number}" for number in range(400))) == ()
    clauses = certain_literals(".*".join(f"word{number}" for number in range(400)))
    assert len(clauses) == MAX_CLAUSES
    assert all(len(text) <= 64 for clause in certain_literals("x" * 4096) for text in clause)


def test_fold_takes_for_one_what_the_engine_takes_for_one() -> None:
    everything = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    for letter in "abcdefghijklmnopqrstuvwxyz":
        found = compile_content_regex(f"(?i){letter}").spans(everything)
        assert {fold(everything[start:end]) for start, end in found} == {letter}


SIGNS = "aBkKsS\u212a\u017fé日-\n"
PIECES = st.recursive(
    st.text(SIGNS, min_size=1, max_size=4).map(lambda text: (text.replace("-", r"\-"), text))
    | st.sampled_from(
        [
            (".", "B"),
            (r"\w", "a"),
            ("[aB]", "B"),
            ("[^a]", "k"),
            ("[\u017fk-l]", "k"),
            (r"\QB-k\E", "B-k"),
            ("^", ""),
            (r"\b", ""),
            (r"\x{e9}", "é"),
            (r"\pL", "日"),
            ("[[:upper:]-]", "-"),
        ]
    ),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=4).map(
            lambda parts: ("".join(pattern for pattern, _ in parts), "".join(text for _, text in parts))
        )
        | st.tuples(inner, inner).map(lambda two: (f"(?:{two[0][0]}|{two[1][0]})", two[1][1]))
        | st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "+?", "{0,1}"])).map(
            lambda two: (f"({two[0][0]}){two[1]}", two[0][1] * 2 if two[1] == "{2}" else two[0][1])
        )
        | st.tuples(inner, st.sampled_from(["(?i:", "(?s:", "(?P<n>", "(?-i:", "(?im-s:"])).map(
            lambda two: (f"{two[1]}{two[0][0]})", two[0][1].swapcase() if "?i" in two[1] else two[0][1])
        )
    ),
    max_leaves=12,
)


def holds(pattern: str, text: str) -> bool:
    folded = fold(text)
    return longest_literal(pattern) in text and all(
        any(one in folded for one in clause) for clause in certain_literals(pattern)
    )


@given(PIECES, st.text(SIGNS, max_size=6), st.text(SIGNS, max_size=6), st.sampled_from(["", "(?i)", "(?U)"]))
def test_no_match_is_without_them(piece: tuple[str, str], before: str, behind: str, flags: str) -> None:
    pattern = flags + piece[0]
    try:
        regex = compile_content_regex(pattern)
    except ModelError:
        assume(False)
    for text in (piece[1], before + piece[1] + behind, piece[1].swapcase(), before):
        if regex.search(text):
            assert holds(pattern, text)


@given(
    st.text("abk(){}[]*+?|\\^$.-:iQEPx4,1é", max_size=14)
    | st.lists(
        st.sampled_from(
            [
                *"akKé()|*+?.^$-",
                "(?i)",
                "(?-i)",
                "(?:",
                "{0,1}",
                "{2}",
                "[ab]",
                "[^k]",
                r"\Q",
                r"\E",
                r"\b",
                r"\pL",
                r"\x41",
            ]
        ),
        max_size=9,
    ).map("".join),
    st.lists(st.text("abkKé41(){}[]*-.\\\u212a", max_size=12), max_size=20),
)
def test_no_match_of_any_valid_pattern_is_without_them(pattern: str, texts: list[str]) -> None:
    try:
        regex = compile_content_regex(pattern)
    except ModelError:
        certain_literals(pattern)
        return
    for text in [*texts, pattern, pattern.replace("\\", "")]:
        if regex.search(text):
            assert holds(pattern, text)
