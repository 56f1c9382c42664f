"""The one filter grammar of console, command line, List and Watch.

A filter is terms separated by blanks; a row must satisfy all of them.

====================  =========================================================
``word``              some text field contains it (case does not matter)
``field:a,b``         the field contains ``a`` or ``b``; a word field (state, band) or a number is one of them
``field=a,b``         the field is ``a`` or ``b``
``field!=a,b``        it is none of them
``field~regex``       RE2 finds the pattern in it (case matters unless ``(?i)``); ``!~`` for not
``field>=n``          also ``>``, ``<=``, ``<``: numbers, sizes, durations, times
``!term``             the term does not hold
``"…"``               a word or value with blanks, commas or operators in it; ``\\"`` and ``\\\\`` inside
====================  =========================================================

A filter that cannot be understood is an error with its place, never a filter that lets
everything through: an unknown field, an empty value, an open quote, a bad
pattern. A missing value satisfies no term, so ``!=`` and ``!`` hold for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_core.model.errors import ModelError, did_you_mean, shown
from iris_core.model.filter_terms import (
    Compared,
    Contains,
    Matches,
    Not,
    NumberIn,
    SqlColumn,
    Term,
    TextEquals,
    WordEquals,
    fold,
)
from iris_core.model.quantities import MAX_INT64, parse_duration, parse_size
from iris_core.model.quoting import quote, read_quoted
from iris_core.model.regex import compile_content_regex

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from iris_core.model.regex import Compiled

MAX_FILTER: Final = 8192
"""Longest filter, in characters."""

MAX_TERMS: Final = 64
MAX_VALUES: Final = 200
"""Most values in all terms together (SQLite limits the depth of an expression)."""


class FieldType(Enum):
    """What a field's values are, and so what can be asked of it."""

    TEXT = "text"
    WORD = "word"
    """One of a few lower-case words, such as a state."""
    NUMBER = "number"
    SIZE = "size"
    """Bytes; written ``64GB``."""
    DURATION = "duration"
    """Milliseconds; written ``90`` (seconds) or ``1h30m``."""
    TIME = "time"
    """Milliseconds since the epoch; written as such or in ISO 8601 (UTC unless it says otherwise)."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field with more to say than its type.

    Attributes:
        type: What its values are.
        words: For a WORD field, all it can be; a value outside is an error. Empty: not checked.
    """

    type: FieldType
    words: tuple[str, ...] = ()


class SqlWhere(NamedTuple):
    """A filter as SQL.

    Attributes:
        where: A condition, ``"1"`` if SQL can do nothing.
        params: Its positional parameters.
        residual: What rows must still be tested with in memory, ``None`` if SQL says it all.
    """

    where: str
    params: tuple[object, ...]
    residual: Filter | None


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """A parsed filter. Make one with ``parse_filter``."""

    text: str
    terms: tuple[Term, ...]

    @property
    def is_empty(self) -> bool:
        """Whether it has no terms, and so every row satisfies it."""
        return not self.terms

    def matches(self, row: Mapping[str, object] | Callable[[str], object]) -> bool:
        """Whether the row satisfies all terms.

        ``row`` maps field names to values, or is a function that does. TEXT and WORD values are
        text, the others numbers; ``None`` or an absent key is a missing value.
        """
        get = row if callable(row) else row.get
        return all(term.test(get) for term in self.terms)

    def to_sql(self, columns: Mapping[str, str | SqlColumn]) -> SqlWhere:
        """Translate the terms that SQL evaluates exactly as ``matches`` does.

        ``columns`` has the SQL expression of each field that the table can give.
        """
        known = {name: SqlColumn(column) if isinstance(column, str) else column for name, column in columns.items()}
        conditions: list[str] = []
        params: list[object] = []
        rest: list[Term] = []
        for term in self.terms:
            translated = term.sql(known)
            if translated is None:
                rest.append(term)
            else:
                conditions.append(f"({translated[0]})")
                params.extend(translated[1])
        residual = Filter(self.text, tuple(rest)) if rest else None
        return SqlWhere(" AND ".join(conditions) or "1", tuple(params), residual)

    def __str__(self) -> str:
        return self.text


NO_FILTER: Final = Filter("", ())
"""Lets everything through."""


def parse_filter(text: str, fields: Mapping[str, FieldType | Field], *, default: Sequence[str] | None = None) -> Filter:
    """Parse ``text`` against the fields a row has.

    Args:
        text: The filter; blank text has no terms.
        fields: The fields by (lower-case) name.
        default: The fields a bare word is looked for in; by default all TEXT and WORD fields.

    Raises:
        ModelError: with ``field`` ``"filter"``, the ``position`` of the fault and a suggestion.
    """
    if len(text) > MAX_FILTER:
        raise _fault(f"the filter has {len(text)} characters, more than {MAX_FILTER}", MAX_FILTER)
    known = {name: field if isinstance(field, Field) else Field(field) for name, field in fields.items()}
    if default is None:
        default = [name for name, field in known.items() if field.type in _TEXTUAL]
    return Filter(text, tuple(_Parser(text, known, tuple(default)).terms()))


def quote_word(word: str) -> str:
    """Return ``word`` as one that a filter takes literally, quoted if need be."""
    return word if _PLAIN_WORD_RE.fullmatch(word) else quote(word)


_TEXTUAL: Final = frozenset({FieldType.TEXT, FieldType.WORD})
_BLANKS_RE = re.compile(r"\s*")
_BARE_RE = re.compile(r"\S+")
_ITEM_RE = re.compile(r"[^\s,]+")
_FIELD_RE = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*?)(!=|!~|>=|<=|==|=~|:|=|~|>|<)")
_PLAIN_WORD_RE = re.compile(r"[A-Za-z0-9_./@+-]+")
_NUMBER_RE = re.compile(r"-?[0-9]{1,19}(?:\.[0-9]{1,19})?")
_SURROGATE_RE = re.compile("[\ud800-\udfff]")


class _Value(NamedTuple):
    text: str
    offsets: Sequence[int]
    """Place in the filter of each character, and of the end."""


class _Parser:
    def __init__(self, text: str, fields: Mapping[str, Field], default: tuple[str, ...]) -> None:
        self._text = text
        self._fields = fields
        self._default = default
        self._at = 0
        self._values = 0

    def terms(self) -> list[Term]:
        surrogate = _SURROGATE_RE.search(self._text)
        if surrogate is not None:
            raise _fault(f"the filter is not valid text at position {surrogate.start()}", surrogate.start())
        terms: list[Term] = []
        self._skip_blanks()
        while self._at < len(self._text):
            if len(terms) == MAX_TERMS:
                raise _fault(f"the filter has more than {MAX_TERMS} terms", self._at)
            terms.append(self._term())
            self._skip_blanks()
        return terms

    def _skip_blanks(self) -> None:
        blanks = _BLANKS_RE.match(self._text, self._at)
        self._at = blanks.end() if blanks else self._at

    def _term(self) -> Term:
        start = self._at
        if self._text[start] != "!":
            return self._positive()
        self._at += 1
        following = self._text[self._at : self._at + 1]
        if not following or following.isspace() or following == "!":
            raise _fault(f"'!' at position {start} negates nothing", start, 'quote it as "!" to search for it')
        return Not(self._positive())

    def _positive(self) -> Term:
        start = self._at
        field = _FIELD_RE.match(self._text, start)
        if field is None:
            word = self._quoted() if self._text[start] == '"' else self._run(_BARE_RE)
            self._expect_blank()
            self._count(1, start)
            if not word.text:
                raise _fault(f"the word at position {start} is empty", start)
            if not self._default:
                raise _fault("there is no text to search for a bare word", start, "write field=value")
            return Contains(self._default, (word.text,))
        name = field[1].lower()
        spec = self._fields.get(name)
        if spec is None:
            close = did_you_mean(name, self._fields) or f"fields are {', '.join(self._fields)}"
            raise _fault(
                f"no field {shown(field[1])} at position {start}",
                start,
                f"{close}; to search for the text, put it in double quotes",
                end=field.end(1),
            )
        self._at = field.end()
        return self._condition(name, spec, _SAME_SIGN.get(field[2], field[2]), field.start(2))

    def _condition(self, name: str, spec: Field, sign: str, sign_at: int) -> Term:
        is_text = spec.type in _TEXTUAL
        if sign in ("~", "!~"):
            if not is_text:
                raise _fault(f"{name!r} is a {spec.type.value}, which {sign} cannot search", sign_at, "use = > < >= <=")
            matches = Matches(name, self._regex(name))
            return Not(matches) if sign == "!~" else matches
        values = self._list(name)
        if sign in (":", "=", "!="):
            term = self._equality(name, spec, sign, values)
            return Not(term) if sign == "!=" else term
        if is_text:
            raise _fault(f"{name!r} is a {spec.type.value}, which has no order for {sign}", sign_at, "use = != : or ~")
        if len(values) > 1:
            raise _fault(f"{sign} takes one value", values[1].offsets[0])
        return Compared(name, sign, self._number(values[0], spec.type))

    def _equality(self, name: str, spec: Field, sign: str, values: list[_Value]) -> Term:
        if spec.type is FieldType.WORD:
            return WordEquals(name, tuple(self._word(value, name, spec) for value in values))
        if spec.type is not FieldType.TEXT:
            return NumberIn(name, tuple(self._number(value, spec.type) for value in values))
        texts = tuple(value.text for value in values)
        if sign != ":":
            return TextEquals(name, texts)
        for value in values:
            if not value.text:
                raise _fault(f"every {name} contains an empty text", value.offsets[0], 'write ="" for an empty one')
        return Contains((name,), texts)

    def _regex(self, name: str) -> Compiled:
        start = self._at
        if self._text[start : start + 1] == '"':
            value = self._quoted()
        elif start < len(self._text) and not self._text[start].isspace():
            value = self._run(_BARE_RE)
        else:
            value = _Value("", (start,))
        self._expect_blank()
        self._count(1, start)
        if not value.text:
            raise _fault(f"the pattern for {name} is missing", start, f"write {name}~pattern")
        try:
            return compile_content_regex(value.text, field="filter")
        except ModelError as error:
            position = value.offsets[min(error.position or 0, len(value.text))]
            end = None if error.end is None else value.offsets[min(error.end, len(value.text))]
            raise _fault(f"in the pattern for {name}: {error.message}", position, error.hint, end=end) from None

    def _list(self, name: str) -> list[_Value]:
        values: list[_Value] = []
        while True:
            following = self._text[self._at : self._at + 1]
            if not following or following.isspace() or following == ",":
                raise _fault(f"a value for {name} is missing at position {self._at}", self._at)
            self._count(1, self._at)
            values.append(self._quoted() if following == '"' else self._run(_ITEM_RE))
            if self._text[self._at : self._at + 1] != ",":
                self._expect_blank()
                return values
            self._at += 1

    def _word(self, value: _Value, name: str, spec: Field) -> str:
        word = fold(value.text)
        if spec.words and word not in spec.words:
            raise _fault(
                f"no {name} {shown(value.text)}",
                value.offsets[0],
                did_you_mean(word, spec.words) or f"one of {', '.join(spec.words)}",
                end=value.offsets[-1],
            )
        return word

    def _number(self, value: _Value, type_: FieldType) -> int | float:
        try:
            if type_ is FieldType.SIZE:
                return parse_size(value.text)
            if type_ is FieldType.DURATION:
                return parse_duration(value.text)
            if type_ is FieldType.TIME:
                return _parse_time(value.text)
            return _parse_number(value.text)
        except ModelError as error:
            raise _fault(error.message, value.offsets[0], error.hint, end=value.offsets[-1]) from None

    def _quoted(self) -> _Value:
        start = self._at
        word, offsets, self._at = read_quoted(self._text, start, "filter")
        return _Value(word, (*offsets, self._at - 1) if word else (start,))

    def _run(self, pattern: re.Pattern[str]) -> _Value:
        match = pattern.match(self._text, self._at)
        word = match[0] if match else ""
        start, self._at = self._at, self._at + len(word)
        return _Value(word, range(start, self._at + 1))

    def _expect_blank(self) -> None:
        following = self._text[self._at : self._at + 1]
        if following and not following.isspace():
            raise _fault(f"a blank is missing at position {self._at}", self._at)

    def _count(self, number: int, position: int) -> None:
        self._values += number
        if self._values > MAX_VALUES:
            raise _fault(f"the filter has more than {MAX_VALUES} values", position)


_SAME_SIGN: Final = {"==": "=", "=~": "~"}


def _parse_number(text: str) -> int | float:
    if not _NUMBER_RE.fullmatch(text) or abs(int(text.partition(".")[0])) > MAX_INT64:
        raise ModelError(f"{shown(text)} is not a number")
    return float(text) if "." in text else int(text)


def _parse_time(text: str) -> int:
    from datetime import UTC, datetime  # filters on times are rare

    if text.isascii() and text.isdigit() and 12 <= len(text) <= 15:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ModelError(f"{shown(text)} is not a time", hint="write it as 2030-01-31T12:00:00Z") from None


def _fault(message: str, position: int, hint: str = "", *, end: int | None = None) -> ModelError:
    return ModelError(message, field="filter", position=position, end=end, hint=hint)
