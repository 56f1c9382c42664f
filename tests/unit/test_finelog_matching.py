"""Rows matched a batch at a time: the same that a test of each line finds, and in linear time whatever the pattern."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from iris_controller.finelog.loglines import Rows
from iris_controller.finelog.matching import matches, matching_lines, quoted
from iris_controller.finelog.query import MAX_SUBSTRING, Query, Scope, parse
from iris_controller.rpc.errors import RpcError
from iris_core.model.errors import ModelError
from iris_core.model.regex import MAX_PATTERN, compile_content_regex
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2

SCOPE = Scope("/u/j")
LINES = st.lists(
    st.builds(
        lambda data, level, time, seam: logs_pb2.LogEntry(
            data=data, level=level, epoch_ms=time, part=len(seam) % 3, seam=seam
        ),
        st.text("aBk\u212aé日\0\n\r 1.-", max_size=8),
        st.integers(0, 6),
        st.integers(1, 4),
        st.just("") | st.text("aBk\n", max_size=4),
    ),
    max_size=12,
)
PATTERNS = st.one_of(
    st.sampled_from(
        [
            "",
            "^$",
            "^a",
            "k$",
            r"\bB\b",
            "(?m)^a",
            "(?m)k$",
            "(?s)a.B",
            "a.B",
            "(?U)a+",
            "(?i)K",
            r"\x00",
            "\0",
            r"\n",
            "[^a]",
            r"\Aa|B\z",
            "é|日",
            r"\pL{2}",
            r"\C\Cé",
            "[[:space:]]",
            "(a|aB)+k?$",
            r"\Q.\E",
        ]
    ),
    st.text("aBké()[]|*+?.^$\\n{}1,i:-", max_size=8),
)


def batch_of(lines: list[logs_pb2.LogEntry]) -> pa.RecordBatch:
    rows = Rows()
    rows.add(logs_pb2.LogBatch(producer="p", key="/u/j/0:0", entries=lines).SerializeToString(), 1)
    return rows.take().combine_chunks().to_batches()[0]


def found(query: Query, lines: list[logs_pb2.LogEntry]) -> list[int]:
    places: list[int] = pc.indices_nonzero(matches(query, batch_of(lines))).to_pylist()
    assert [place for place, hit in enumerate(matching_lines(query, lines)) if hit] == places
    return places


def expected(query: Query, lines: list[logs_pb2.LogEntry]) -> list[int]:
    test = query.content_test()
    return [place for place, line in enumerate(lines) if test is None or test(line)]


@given(LINES.filter(bool), PATTERNS)
def test_a_pattern_finds_the_same_as_line_by_line(lines: list[logs_pb2.LogEntry], pattern: str) -> None:
    try:
        regex = compile_content_regex(pattern)
    except ModelError:
        assume(False)
    query = Query(SCOPE, regex=regex)
    for shortest in (1, 3):
        with patch("iris_controller.finelog.matching.SHORTEST", shortest):
            assert found(query, lines) == expected(query, lines)


@given(LINES.filter(bool), PATTERNS, st.sampled_from(["", "a", "(?i)B"]))
def test_what_is_left_out_is_the_same_as_line_by_line(
    lines: list[logs_pb2.LogEntry], without: str, pattern: str
) -> None:
    try:
        left_out = compile_content_regex(without)
    except ModelError:
        assume(False)
    regex = compile_content_regex(pattern) if pattern else None
    query = Query(SCOPE, regex=regex, without=left_out)
    for shortest in (1, 3):
        with patch("iris_controller.finelog.matching.SHORTEST", shortest):
            hits = found(query, lines)
            assert hits == expected(query, lines)
    assert not set(hits) & set(expected(Query(SCOPE, regex=left_out), lines))


@given(LINES.filter(bool), st.text("aBk\u212aé日\0\n .\\1-", max_size=4), st.sampled_from(["", "a", "(?i)B"]))
def test_a_text_finds_the_same_as_line_by_line(lines: list[logs_pb2.LogEntry], substring: str, pattern: str) -> None:
    query = Query(SCOPE, substring=substring, regex=compile_content_regex(pattern) if pattern else None)
    for shortest in (1, 3):
        with patch("iris_controller.finelog.matching.SHORTEST", shortest):
            assert found(query, lines) == expected(query, lines)


@pytest.mark.parametrize("often", [1, 3, 2000])
def test_a_literal_is_found_wherever_it_stands(often: int) -> None:
    texts = (
        ["", "ab", "abcabc", "c", "ab", "", "cab", "xabcx", "", "abc"]
        + ["nothing", ""] * 100
        + ["so ABC", "abc"] * often
    )
    lines = [logs_pb2.LogEntry(data=data) for data in texts]
    for query in (
        Query(SCOPE, substring="abc"),
        Query(SCOPE, regex=compile_content_regex("abc.*c|abc$")),
        Query(SCOPE, regex=compile_content_regex("^abc")),
        Query(SCOPE, regex=compile_content_regex("(?i)abc")),
    ):
        assert found(query, lines) == expected(query, lines)
        mask = matches(query, batch_of(lines).slice(3, 200))
        assert [place + 3 for place, hit in enumerate(mask.to_pylist()) if hit] == [
            place for place in expected(query, lines) if 3 <= place < 203
        ]


def test_a_slice_of_a_batch_is_matched_as_what_it_is() -> None:
    lines = [logs_pb2.LogEntry(data=f"line {number}", seam="9" if number == 7 else "") for number in range(100)]
    query = Query(SCOPE, substring="9", regex=compile_content_regex("[59]"))
    assert matches(query, batch_of(lines).slice(5, 16)).to_pylist() == [number in (9, 19) for number in range(5, 21)]


@given(st.text())
def test_a_quoted_text_matches_itself_alone(text: str) -> None:
    regex = compile_content_regex(f"^(?:{quoted(text)})$") if len(text) < 900 else None
    assume(regex is not None and not any(0xD800 <= ord(sign) < 0xE000 for sign in text))
    assert regex is not None
    assert regex.search(text)
    assert not regex.search(f"{text}x")
    assert not text or not regex.search(text[1:])


def test_what_one_engine_finds_too_large_is_still_matched() -> None:
    # Groups cost memory in the engine that matches batches, and none in the one that checks patterns.
    pattern = f"^(?:{'(a)' * 300}){{1000}}b$|^aab"
    with pytest.raises(pa.ArrowInvalid, match="too large"):
        pc.match_substring_regex(pa.array(["b"]), pattern)
    query = Query(SCOPE, regex=compile_content_regex(pattern))
    lines = [logs_pb2.LogEntry(data=data) for data in ("aab", "abc", "", f"{'a' * 300_000}b")]
    assert found(query, lines) == [0, 3]


def test_limits_of_length() -> None:
    def fetch(substring: str, regex: str) -> Query:
        return parse(
            logs_pb2.FetchLogsRequest(
                source="/u/j", match_scope=common_pb2.MATCH_SCOPE_EXACT, substring=substring, regex=regex
            )
        )

    lines = [
        logs_pb2.LogEntry(data="日" * MAX_SUBSTRING + "x" * MAX_PATTERN),
        logs_pb2.LogEntry(data="x" * MAX_PATTERN),
    ]
    assert found(fetch("日" * MAX_SUBSTRING, "x" * MAX_PATTERN), lines) == [0]
    with pytest.raises(ModelError, match="4097 characters, more than 4096") as caught:
        fetch("", "x" * (MAX_PATTERN + 1))
    assert caught.value.field == "regex"
    with pytest.raises(RpcError, match="4097 characters, more than 4096"):
        fetch("x" * (MAX_SUBSTRING + 1), "")


INVALID = [
    ("[", 0),
    ("rank[01", 4),
    ("[^]", 0),
    ("[[:alpha:]", 0),
    ("x[[:nope:]]", 2),
    ("[z-a]", 1),
    (r"[\d-a]x[9-0]", 8),
    ("(", 0),
    ("step (", 5),
    ("a(b", 1),
    ("(a)((b)", 3),
    ("(?:ab", 0),
    (")", 0),
    ("(a)b)c", 4),
    ("*", 0),
    ("+loss", 0),
    ("?", 0),
    ("a|*b", 2),
    ("(*a)", 1),
    ("a**", 1),
    ("loss+*", 4),
    ("x{1001}", 1),
    ("x{2,1}", 1),
    ("((a{100}){100})", 9),
    ("abc\\", 3),
    (r"\1", 0),
    (r"ab\y", 2),
    (r"\x{110000}", 0),
    (r"\pX", 0),
    (r"é\p{Nope}", 1),
    ("x(?=y)", 1),
    ("(?<!a)b", 0),
    ("(?z)a", 0),
    ("(?P<na me>a)", 0),
    ("(?P=name)", 0),
]


@pytest.mark.parametrize(("pattern", "position"), INVALID)
def test_an_invalid_pattern_is_refused_with_its_place(pattern: str, position: int) -> None:
    request = logs_pb2.FetchLogsRequest(source="/u/j", match_scope=common_pb2.MATCH_SCOPE_EXACT, regex=pattern)
    with pytest.raises(ModelError) as caught:
        parse(request)
    assert (caught.value.field, caught.value.position) == ("regex", position)
    assert f"position {position}" in str(caught.value) or f"positions {position} " in str(caught.value)


BAD = [
    "(a+)+$",
    "(a+)+b",
    "(a*)*b",
    "(a*)*$",
    "(a|a)*b",
    "(a|aa)+$",
    "(a|aa)*c",
    "(a|a?)+b",
    "(a?){50}a{50}b",
    "a?a?a?a?a?a?a?a?a?a?a?a?b",
    "(x+x+)+y",
    "(a+a+)+y",
    "(.*)*b",
    "(.+)+b",
    "(.*)(.*)(.*)(.*)(.*)b",
    ".*.*.*=.*b",
    ".*a.*a.*a.*a.*b",
    "^(a+)+$",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "^([a-zA-Z0-9])(([-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$",
    "([a-z]+)+9",
    "([a-zA-Z]+)*9",
    r"(\w+\s?)+!",
    r"(\w*)+!",
    r"(\w|\d)+!",
    r"^(\d+)*$",
    r"(\s*a\s*)+b",
    r"\s+$",
    r"a+\s+$",
    "(ab|a|b)+c",
    "(aa|aab?)*c",
    "((a+)+)+b",
    "(((a*)*)*)*b",
    "((a|b)*a)*c",
    "(a{1,20}){1,20}b",
    "(a{0,30}){0,30}b",
    "a*a*a*a*a*a*a*a*b",
    "a+a+a+a+a+a+a+b",
    "[a-z]*[a-z]*[a-z]*[a-z]*9",
    "(.|a)*b",
    "(a|.)+b",
    "(?i)(A+)+B",
    "(?s)(.*a){12}b",
    "(?m)^(a*)*$b",
    r"(\ba*)*b",
    r"(\pL+)+\d",
    r"([^b]+)+b",
    "(()*a*)*b",
    "(a*?)*?b",
    "(a+?)+?b",
    "(?:a+){10,}b",
]


def test_known_bad_patterns_are_searched_in_linear_time() -> None:
    assert len(BAD) >= 50
    # The kernel ends a process that used that much processor time; an engine that backtracks would need hours for any of them.
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from iris_controller.finelog.matching import matches
from iris_controller.finelog.query import Query, Scope
from iris_core.model.regex import compile_content_regex
import pyarrow as pa
batch = pa.record_batch({{
    "data": ["a" * 20_000, "x" * 20_000 + "a" * 20_000],
    "seam": pa.nulls(2, pa.string()),
    "part": pa.array([0, 0], pa.uint32()),
}})
for pattern in {BAD!r}:
    regex = compile_content_regex(pattern)
    found = matches(Query(Scope("/u/j"), regex=regex), batch)
    assert found.to_pylist() == [regex.search(text) for text in batch.column("data").to_pylist()], pattern
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or f"ended by signal {-done.returncode}"
