"""What one term of a filter means: in memory, and in SQL where SQL means exactly the same.

Each term answers twice, ``test`` for a row in memory and ``sql`` for a row in a table, and
the two must agree on every value, or a list would change between a live view
and a page of history. Where SQLite cannot agree (regular expressions, case of
letters beyond ASCII) ``sql`` returns ``None`` and the caller tests the rows itself.

Case is therefore ignored like this: a needle of ASCII letters ignores the case of ASCII letters, as
SQLite's ``lower`` does; any other needle is compared by Unicode case folding, in memory only.

A missing value (``None``, NULL) satisfies no term, and so every negated one.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iris_core.model.regex import Compiled


_UPPER_TO_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_COMPARISONS: Final[dict[str, Callable[[int | float, int | float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """Where a field lives in a table.

    Attributes:
        expression: SQL that gives the field's value or NULL. Written by us, never taken from input.
        codes: For a word field stored as numbers, the number of each word that can be stored.
    """

    expression: str
    codes: Mapping[str, int] | None = None


class Term(Protocol):
    """One condition on a row."""

    def test(self, get: Callable[[str], object]) -> bool:
        """Whether the row holds."""

    def sql(self, columns: Mapping[str, SqlColumn]) -> tuple[str, tuple[object, ...]] | None:
        """The same as an SQL condition (true, false or NULL for false) and its parameters."""


def fold(text: str) -> str:
    """Lower ASCII letters and nothing else, exactly as SQLite's ``lower`` does."""
    return text.lower() if text.isascii() else text.translate(_UPPER_TO_LOWER)


@dataclass(frozen=True, slots=True)
class Contains:
    """Any of the fields contains any of the needles, without regard to case."""

    fields: tuple[str, ...]
    needles: tuple[str, ...]

    def test(self, get: Callable[[str], object]) -> bool:
        for field in self.fields:
            value = get(field)
            if value is not None and any(_contains(str(value), needle) for needle in self.needles):
                return True
        return False

    def sql(self, columns: Mapping[str, SqlColumn]) -> tuple[str, tuple[object, ...]] | None:
        if not all(needle.isascii() for needle in self.needles):
            return None
        parts: list[str] = []
        params: list[object] = []
        for field in self.fields:
            column = columns.get(field)
            if column is None:
                return None
            for needle in self.needles:
                if column.codes is None:
                    parts.append(f"coalesce(instr(lower({column.expression}), ?), 0)")
                    params.append(fold(needle))
                    continue
                codes = tuple(code for word, code in column.codes.items() if _contains(word, needle))
                if codes:
                    parts.append(f"coalesce({column.expression} IN ({_marks(codes)}), 0)")
                    params.extend(codes)
        return " OR ".join(parts) or "0", tuple(params)


@dataclass(frozen=True, slots=True)
class TextEquals:
    """The text is one of the values, without regard to case."""

    field: str
    values: tuple[str, ...]

    def test(self, get: Callable[[str], object]) -> bool:
        value = get(self.field)
        return value is not None and any(_equals(str(value), wanted) for wanted in self.values)

    def sql(self, columns: Mapping[str, SqlColumn]) -> tuple[str, tuple[object, ...]] | None:
        found = _plain_columns((self.field,), columns)
        if found is None or not all(value.isascii() for value in self.values):
            return None
        return f"lower({found[0]}) IN ({_marks(self.values)})", tuple(fold(value) for value in self.values)


@dataclass(frozen=True, slots=True)
class WordEquals:
    """The word (a state, a band) is one of the values."""

    field: str
    values: tuple[str, ...]

    def test(self, get: Callable[[str], object]) -> bool:
        value = get(self.field)
        return value is not None and fold(str(value)) in self.values

    def sql(self, columns: Mapping[str, SqlColumn]) -> tuple[str, tuple[object, ...]] | None:
        column = columns.get(self.field)
        if column is None:
            return None
        if column.codes is None:
            return TextEquals(self.field, self.values).sql(columns)
        if not all(value in column.codes for value in self.values):
            return None
        codes = tuple(column.codes[value] for value in self.values)
        return f"{column.expression} IN ({_marks(codes)})", codes


@dataclass(frozen=True, slots=True)
class NumberIn:
    """The number is one of the values."""

    field: str
    values: tuple[int | float, ...]

    def test(self, get: Callable[[str], object]) -> bool:
        value = get(self.field)
        return isinstance(value, int | float) and value in self.values

    def sql(self, columns: Mapping[str, SqlColumn]) -> tuple[str, tuple[object, ...]] | None:
        found = _plain_columns((self.field,), columns)
        return None if found is None else (f"{found[0]} IN ({_marks(self.values)})", self.values)


@dataclass(frozen=True, slots=True)
class Compared:
    """The number stands in this order to the bound."""

    field: str
    sign: str
    bound: int | float

    def test(self, get: Callable[[str], object]) -> bool:
        value = get(self.field)
        return isinstance(value, int | float) and _COMPARISONS[self.sign](value, self.bound)

    def sql(self, columns: Mapping[str, SqlColumn]) -> tuple[str, tuple[object, ...]] | None:
        found = _plain_columns((self.field,), columns)
        return None if found is None else (f"{found[0]} {self.sign} ?", (self.bound,))


@dataclass(frozen=True, slots=True)
class Matches:
    """The pattern is found in the text. Memory only."""

    field: str
    regex: Compiled

    def test(self, get: Callable[[str], object]) -> bool:
        value = get(self.field)
        return value is not None and self.regex.search(str(value))

    def sql(self, columns: Mapping[str, SqlColumn]) -> tuple[str, tuple[object, ...]] | None:
        return None


@dataclass(frozen=True, slots=True)
class Not:
    """The other term does not hold."""

    term: Term

    def test(self, get: Callable[[str], object]) -> bool:
        return not self.term.test(get)

    def sql(self, columns: Mapping[str, SqlColumn]) -> tuple[str, tuple[object, ...]] | None:
        inner = self.term.sql(columns)
        return None if inner is None else (f"NOT coalesce(({inner[0]}), 0)", inner[1])


def _contains(text: str, needle: str) -> bool:
    if needle.isascii():
        return fold(needle) in fold(text)
    return needle.casefold() in text.casefold()


def _equals(text: str, wanted: str) -> bool:
    if wanted.isascii():
        return fold(wanted) == fold(text)
    return wanted.casefold() == text.casefold()


def _plain_columns(fields: tuple[str, ...], columns: Mapping[str, SqlColumn]) -> list[str] | None:
    """The SQL of all fields, unless one is missing or stored as a code."""
    found = [columns.get(field) for field in fields]
    plain = [column.expression for column in found if column is not None and column.codes is None]
    return plain if len(plain) == len(fields) else None


def _marks(values: tuple[object, ...]) -> str:
    return ",".join("?" * len(values))
