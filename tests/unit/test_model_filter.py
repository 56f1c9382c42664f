"""The filter grammar: against a naive reading of it, and against SQLite on hostile text."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.model.errors import ModelError
from iris_core.model.filter import (
    MAX_FILTER,
    MAX_TERMS,
    MAX_VALUES,
    NO_FILTER,
    Field,
    FieldType,
    parse_filter,
    quote_word,
)
from iris_core.model.filter_terms import SqlColumn

STATES = {"pending": 1, "running": 3, "failed": 5, "worker_failed": 7}
FIELDS: dict[str, FieldType | Field] = {
    "name": FieldType.TEXT,
    "error": FieldType.TEXT,
    "state": Field(FieldType.WORD, tuple(STATES)),
    "failures": FieldType.NUMBER,
    "memory": FieldType.SIZE,
    "age": FieldType.DURATION,
    "submitted": FieldType.TIME,
}
COLUMNS: dict[str, str | SqlColumn] = {
    "name": "name",
    "error": "error",
    "state": SqlColumn("state", STATES),
    "failures": "failures",
    "memory": "memory",
    "age": "age",
}

HOSTILE = "ab'\"%_\\;- \x00\n,*?[]!:=~éÉßK\u212a日"
TEXTS = st.text(alphabet=HOSTILE, max_size=8) | st.sampled_from(
    ["Train", "train", "TRAIN-2", "x' OR '1'='1", "100%", "a_b", 'say "hi"', "nul\x00nul", "É", "ß", "K"]
)
Row = dict[str, str | int | float | None]
ROWS: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {
        "name": TEXTS,
        "error": st.none() | TEXTS,
        "state": st.sampled_from(list(STATES)),
        "failures": st.none() | st.integers(-5, 5),
        "memory": st.none() | st.integers(0, 3_000_000_000),
        "age": st.none() | st.floats(0, 1e7),
    }
)


def lower_ascii(text: str) -> str:
    return "".join(character.lower() if character.isascii() else character for character in text)


def same_case(text: str, needle: str) -> tuple[str, str]:
    if needle.isascii():
        return lower_ascii(text), lower_ascii(needle)
    return text.casefold(), needle.casefold()


@dataclass(frozen=True)
class Asked:
    """A term as it is meant, beside its text."""

    text: str
    field: str
    kind: str
    values: tuple[str, ...]
    negated: bool

    def holds(self, row: Row) -> bool:
        return self._plain(row) is not self.negated

    def _plain(self, row: Row) -> bool:
        if self.kind == "word":
            shown = [row["name"], row["error"], row["state"]]
            pairs = [same_case(str(value), self.values[0]) for value in shown if value is not None]
            return any(needle in value for value, needle in pairs)
        value = row[self.field]
        if value is None:
            return False
        if isinstance(value, str):
            pairs = [same_case(value, wanted) for wanted in self.values]
            return any(needle in text if self.kind == ":" else needle == text for text, needle in pairs)
        wanted = [float(text) for text in self.values]
        comparisons = {
            ">": value > wanted[0],
            ">=": value >= wanted[0],
            "<": value < wanted[0],
            "<=": value <= wanted[0],
        }
        return comparisons.get(self.kind, value in wanted)


@st.composite
def asked_terms(draw: st.DrawFn) -> Asked:
    negated = draw(st.booleans())
    mark = "!" if negated else ""
    kind = draw(st.sampled_from(["word", "text", "state", "number"]))
    if kind == "word":
        needle = draw(TEXTS.filter(bool))
        return Asked(mark + quote_word(needle), "", "word", (needle,), negated)
    if kind == "state":
        words = tuple(draw(st.lists(st.sampled_from(list(STATES)), min_size=1, max_size=3)))
        sign = draw(st.sampled_from([":", "=", "!="]))
        listed = ",".join(draw(st.sampled_from([word, word.upper()])) for word in words)
        return Asked(f"{mark}state{sign}{listed}", "state", "=", words, negated is not (sign == "!="))
    if kind == "text":
        field = draw(st.sampled_from(["name", "error"]))
        sign = draw(st.sampled_from([":", "=", "!=", "=="]))
        texts = draw(st.lists(TEXTS if sign != ":" else TEXTS.filter(bool), min_size=1, max_size=3))
        listed = ",".join(quote_word(text) for text in texts)
        meant = ":" if sign == ":" else "="
        return Asked(f"{mark}{field}{sign}{listed}", field, meant, tuple(texts), negated is not (sign == "!="))
    sign = draw(st.sampled_from(["=", "!=", ">", ">=", "<", "<="]))
    number = draw(st.integers(-5, 5))
    return Asked(
        f"{mark}failures{sign}{number}", "failures", "=" if sign == "!=" else sign, (str(number),),
        negated is not (sign == "!="),
    )  # fmt: skip


@given(st.lists(asked_terms(), max_size=4), ROWS, st.sampled_from([" ", "  ", "\t", "\n "]))
def test_a_filter_means_what_its_terms_say(terms: list[Asked], row: Row, blank: str) -> None:
    text = blank.join(term.text for term in terms)
    parsed = parse_filter(f"{blank}{text}{blank}", FIELDS)
    expected = all(term.holds(row) for term in terms)
    assert parsed.matches(row) == expected
    assert parsed.matches(row.get) == expected, "a function does as well as a mapping"
    assert parsed.is_empty == (not terms)


@given(st.lists(asked_terms(), max_size=4), st.lists(ROWS, min_size=1, max_size=6))
def test_sql_selects_exactly_what_memory_does(terms: list[Asked], rows: list[Row]) -> None:
    parsed = parse_filter(" ".join(term.text for term in terms), FIELDS)
    sql = parsed.to_sql(COLUMNS)
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(
            "CREATE TABLE t (n INTEGER, name TEXT, error TEXT, state INTEGER, failures INTEGER, memory INTEGER, age REAL)"
        )
        for number, row in enumerate(rows):
            values = (row["name"], row["error"], STATES[str(row["state"])], row["failures"], row["memory"], row["age"])
            connection.execute("INSERT INTO t VALUES (?,?,?,?,?,?,?)", (number, *values))
        found = [n for (n,) in connection.execute(f"SELECT n FROM t WHERE {sql.where} ORDER BY n", sql.params)]
    finally:
        connection.close()
    selected = [n for n in found if sql.residual is None or sql.residual.matches(rows[n])]
    assert selected == [n for n, row in enumerate(rows) if parsed.matches(row)]
    is_sql_enough = all(value.isascii() for term in terms for value in term.values)
    assert (sql.residual is None) == is_sql_enough


def test_sql_says_what_it_leaves() -> None:
    parsed = parse_filter('state=running name~"^/u/" submitted>2020-01-01 x', FIELDS)
    sql = parsed.to_sql(COLUMNS)
    assert (sql.where, sql.params[0]) == (
        "(state IN (?)) AND (coalesce(instr(lower(name), ?), 0) OR coalesce(instr(lower(error), ?), 0))",
        3,
    )
    assert sql.residual is not None
    assert len(sql.residual.terms) == 2
    assert parsed.to_sql({}).where == "1"
    assert NO_FILTER.to_sql(COLUMNS).residual is None


@given(st.text(alphabet='ab "\\!:=~<>,[(.1\ud800é', max_size=25) | st.text(max_size=40))
def test_any_text_parses_or_is_refused_with_a_place(text: str) -> None:
    try:
        parsed = parse_filter(text, FIELDS)
    except ModelError as error:
        assert error.field == "filter"
        assert error.position is not None and 0 <= error.position <= len(text)
        assert error.end is None or error.position <= error.end <= len(text)
        assert str(error).isprintable()
        return
    assert parsed.is_empty == (not text.strip())
    parsed.matches({"name": "ab", "state": "running"})


@pytest.mark.parametrize("text", ["zz train", "train zz", "zz  yy", " zz", '" zz"', "zz\ttrain"])
def test_a_blank_never_opens_the_filter(text: str) -> None:
    assert not parse_filter(text, FIELDS).matches({"name": "/u/train", "state": "running"})


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("name:a stat:x", "did you mean 'state'", 7),
        ("http://x", "no field 'http'", 0),
        ("state:runing", "did you mean 'running'", 6),
        ("state=running,", "a value for state is missing", 14),
        ("state=failed,,x", "a value for state is missing", 13),
        ("name=", "a value for name is missing", 5),
        ("name= x", "a value for name is missing", 5),
        ('name:""', "every name contains an empty text", 5),
        ('""', "is empty", 0),
        ('x "open', "is not closed", 2),
        ('"a"b', "a blank is missing", 3),
        ('name="a"b', "a blank is missing", 8),
        ("!", "negates nothing", 0),
        ("! x", "negates nothing", 0),
        ("!!x", "negates nothing", 0),
        ("name~", "pattern for name is missing", 5),
        ('name~""', "pattern for name is missing", 5),
        ("a name~x[", "missing ]: '['", 8),
        (r'name~"a\"b[c"', "missing ]: '[c'", 10),
        ("name>x", "has no order", 4),
        ("failures~3", "cannot search", 8),
        ("failures>x", "'x' is not a number", 9),
        ("failures>1,2", "takes one value", 11),
        ("failures=" + "9" * 30, "is not a number", 9),
        ("memory>5Gx", "is not a size", 7),
        ("age>soon", "is not a duration", 4),
        ("submitted>soon", "is not a time", 10),
        ("x" * (MAX_FILTER + 1), "more than 8192", MAX_FILTER),
        ("x " * (MAX_TERMS + 1), "more than 64 terms", 2 * MAX_TERMS),
        ("name=" + "x," * MAX_VALUES + "x", "more than 200 values", 5 + 2 * MAX_VALUES),
    ],
)
def test_faults_have_a_place_and_a_suggestion(text: str, message: str, position: int) -> None:
    with pytest.raises(ModelError) as caught:
        parse_filter(text, FIELDS)
    assert message in str(caught.value)
    assert caught.value.position == position


def test_typed_values() -> None:
    row = {"memory": 2 * 10**9, "age": 90_000, "submitted": 1_600_000_000_000, "failures": 2.5, "state": "running"}
    for text in (
        "memory=2GB", "memory>=1.5GiB", "age>1m", "age=90", "age<=1m30s", "submitted>2020-01-01",
        "submitted<2021-01-01T00:00:00Z", "submitted=1600000000000", "failures:1,2.5", "failures>-1", "STATE=Running",
    ):  # fmt: skip
        assert parse_filter(text, FIELDS).matches(row), text
        assert not parse_filter(f"!{text}", FIELDS).matches(row), text


def test_missing_values_satisfy_nothing_but_a_negation() -> None:
    for text in ("error:x", "error=x", "error~.*", "failures>0", "failures=0", "memory<1GB"):
        assert not parse_filter(text, FIELDS).matches({}), text
        assert parse_filter(f"!{text}", FIELDS).matches({}), text
    assert parse_filter("error!=x error!~x failures!=1", FIELDS).matches({})


def test_patterns_mind_case_and_words_do_not() -> None:
    row = {"name": "/u/Train"}
    assert parse_filter("TRAIN", FIELDS).matches(row)
    assert not parse_filter("name~train", FIELDS).matches(row)
    assert parse_filter("name~(?i)train name!~x", FIELDS).matches(row)
    assert parse_filter(r'name~"\pL{5}$"', FIELDS).matches(row)


def test_ascii_needles_fold_ascii_letters_only_as_sqlite_does() -> None:
    kelvin = {"name": "\u212a", "error": "\u0130X"}
    for text in ("k", "name:k", "name=k", "i", "error:i"):
        assert not parse_filter(text, FIELDS).matches(kelvin), text
    assert parse_filter("x", FIELDS).matches(kelvin)


def test_a_missing_value_is_not_the_word_none() -> None:
    for text in ("none", "error:none", "error=none", "error~None", "state=running"):
        assert not parse_filter(text, FIELDS).matches({"error": None, "state": None}), text


def test_case_beyond_ascii_is_folded_in_memory() -> None:
    assert parse_filter("MÜLLER", FIELDS).matches({"name": "müller"})
    assert parse_filter("error=STRASSE,GRÖSSE", FIELDS).matches({"error": "größe"})


def test_bare_words_look_where_they_are_told() -> None:
    row = {"name": "x", "error": "boom", "state": "failed"}
    assert parse_filter("boom", FIELDS).matches(row)
    assert parse_filter("fail", FIELDS).matches(row)
    assert not parse_filter("boom", FIELDS, default=["name"]).matches(row)
    with pytest.raises(ModelError, match="no text to search"):
        parse_filter("boom", {"failures": FieldType.NUMBER})


def test_state_words_become_their_numbers() -> None:
    sql = parse_filter("fail", {"state": FIELDS["state"]}).to_sql(COLUMNS)
    assert (sql.where, sql.params) == ("(coalesce(state IN (?,?), 0))", (5, 7))
    assert parse_filter("zzz", {"state": FIELDS["state"]}).to_sql(COLUMNS).where == "(0)"


def test_the_largest_filter_is_within_sqlites_limits() -> None:
    text = " ".join(["!x"] * (MAX_TERMS - 1) + ["name:" + ",".join(["y"] * (MAX_VALUES - MAX_TERMS + 1))])
    sql = parse_filter(text, FIELDS).to_sql(COLUMNS)
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE TABLE t (name TEXT, error TEXT, state INTEGER)")
        connection.execute("INSERT INTO t VALUES ('y', NULL, 3)")
        assert connection.execute(f"SELECT count(*) FROM t WHERE {sql.where}", sql.params).fetchone() == (1,)
    finally:
        connection.close()


@given(st.text(min_size=1, max_size=20).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)))
def test_quoted_words_are_taken_literally(word: str) -> None:
    assert parse_filter(quote_word(word), FIELDS).matches({"name": f"<{word}>"})
    assert parse_filter(f"name={quote_word(word)}", FIELDS).matches({"name": word})
