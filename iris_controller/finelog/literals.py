"""Which texts every match of a pattern must hold: what an index may be asked before a line is looked at.

A parser of its own for the syntax of RE2, because Python's differs in what it accepts and means. It knows the common part of that
syntax and gives up on anything else, and giving up only costs speed: a literal that is not certain would hide a line that matches.

Literals are folded (`fold`), as the index folds what it indexes, so one index serves patterns with and without `(?i)`. Must never
decide whether a pattern is valid; that is `iris_core.model.regex`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from os.path import commonprefix
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

Clause = frozenset[str]
"""Folded texts of which a match holds at least one."""

MAX_CLAUSES = 32
_MAX_TEXTS = 16
_MAX_TEXT = 48
_MAX_CLASS = 4
_MAX_COPIES = 8
_MAX_DEPTH = 40

_FOLDS: Final = {
    **{upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)},
    0x212A: ord("k"),  # the Kelvin sign
    0x017F: ord("s"),  # the long s
}
"""All characters that RE2 takes for an ASCII letter under `(?i)`."""

_FLAGS = re.compile(r"\(\?([imsU]*)(-[imsU]+)?([:)])")
_NAME = re.compile(r"\(\?P?<\w+>")
_COUNT = re.compile(r"\{([0-9]{1,4})(,([0-9]{0,4}))?\}")
_HEX = re.compile(r"\\x(?:\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2}))")
_PROPERTY = re.compile(r"\\[pP](?:\{\^?\w+\}|[A-Z])")
_NAMED_CLASS = re.compile(r"\[:\^?[a-z]+:\]")
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def fold(text: str) -> str:
    """The text in which letters that `(?i)` takes for the same ASCII letter are the same."""
    return text.translate(_FOLDS)


def certain_literals(pattern: str) -> tuple[Clause, ...]:
    """What every match of a valid pattern holds, folded: one text of each clause. Empty: nothing is certain."""
    try:
        clauses = _Parser(pattern).parse().clauses()
    except _UnsureError:
        return ()
    return tuple(sorted(dict.fromkeys(clauses), key=_worth, reverse=True)[:MAX_CLAUSES])


@lru_cache(256)
def longest_literal(pattern: str) -> str:
    """The longest text that every match of a valid pattern holds letter by letter; "" if none is certain."""
    try:
        clauses = _Parser(pattern, is_exact=True).parse().clauses()
    except _UnsureError:
        return ""
    return max(map(_shared, clauses), key=len, default="")


class _UnsureError(Exception):
    """Something in the pattern is not known here."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What is known of a piece of a pattern: all texts it can match, if they are few, or else clauses."""

    exact: frozenset[str] | None
    needs: tuple[Clause, ...] = ()

    def clauses(self) -> tuple[Clause, ...]:
        """What a match of it holds."""
        if self.exact is None:
            return self.needs
        return () if "" in self.exact else (_reduced(self.exact),)


_ANYTHING: Final = _Part(None)
_NOTHING: Final = _Part(frozenset({""}))


class _Run:
    """Pieces that follow each other."""

    def __init__(self) -> None:
        self._needs: list[Clause] = []
        self._open = frozenset({""})
        self._is_whole = True

    def add(self, part: _Part) -> None:
        """The next piece."""
        if part.exact is None:
            self.cut()
            self._needs += part.needs
            return
        if len(self._open) * len(part.exact) <= _MAX_TEXTS:
            joined = frozenset(left + right for left in self._open for right in part.exact)
            if max(map(len, joined)) <= _MAX_TEXT:
                self._open = joined
                return
        self.cut()
        self._open = part.exact

    def cut(self) -> None:
        """What follows does not touch what was."""
        self._needs += _Part(self._open).clauses()
        self._open = frozenset({""})
        self._is_whole = False

    def done(self) -> _Part:
        """All of it as one piece."""
        if self._is_whole:
            return _Part(self._open)
        self.cut()
        return _Part(None, tuple(self._needs))


def _reduced(texts: frozenset[str]) -> Clause:
    """Without the texts that hold another one of them."""
    return frozenset(text for text in texts if not any(other != text and other in text for other in texts))


def _worth(clause: AbstractSet[str]) -> tuple[int, int, list[str]]:
    """Greater for a clause that fewer lines meet."""
    return min(len(text.encode()) for text in clause), -len(clause), sorted(clause)


def _shared(clause: Clause) -> str:
    """How all texts of a clause begin, or end."""
    texts = list(clause)
    # Names of no paths.
    head, tail = commonprefix(texts), commonprefix([text[::-1] for text in texts])[::-1]  # noqa: RUF071
    return max(head, tail, key=len)


def _either(parts: Sequence[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    exact: frozenset[str] = frozenset()
    for part in parts:
        if part.exact is None:
            break
        exact |= part.exact
    else:
        if len(exact) <= _MAX_TEXTS:
            return _Part(exact)
    texts: frozenset[str] = frozenset()
    for part in parts:
        clauses = part.clauses()
        if not clauses:
            return _ANYTHING
        texts |= max(clauses, key=_worth)
    return _Part(None, (_reduced(texts),)) if len(texts) <= _MAX_TEXTS else _ANYTHING


def _repeated(part: _Part, least: int, most: int | None) -> _Part:
    if least == 0:
        if part.exact is None or most != 1 or len(part.exact) >= _MAX_TEXTS:
            return _ANYTHING
        return _Part(part.exact | {""})
    if part.exact is None:
        return part
    run = _Run()
    for _ in range(min(least, _MAX_COPIES)):
        run.add(part)
    if most != least or least > _MAX_COPIES:
        run.cut()
    return run.done()


class _Parser:
    """One pass over a pattern."""

    def __init__(self, pattern: str, *, is_exact: bool = False) -> None:
        self._text = pattern
        self._is_exact = is_exact
        """Whether literals are not folded."""
        self._at = 0
        self._depth = 0
        self._folds = False
        """Whether `(?i)` is in force."""

    def parse(self) -> _Part:
        """The whole pattern. Raises _UnsureError."""
        part = self._alternatives()
        if self._at != len(self._text):
            raise _UnsureError
        return part

    def _peek(self, length: int = 1) -> str:
        return self._text[self._at : self._at + length]

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise _UnsureError
        self._at += 1
        return self._text[self._at - 1]

    def _take(self, form: re.Pattern[str]) -> re.Match[str] | None:
        match = form.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _alternatives(self) -> _Part:
        parts: list[_Part] = []
        run = _Run()
        while (sign := self._peek()) and sign != ")":
            if sign == "|":
                self._at += 1
                parts.append(run.done())
                run = _Run()
                continue
            atoms = self._atoms()
            for atom in atoms[:-1]:
                run.add(atom)
            if atoms:
                run.add(self._repeats(atoms[-1]))
            elif self._peek() in {"*", "+", "?", "{"}:
                # Behind a change of flags it repeats what stands before that.
                raise _UnsureError
        parts.append(run.done())
        return _either(parts)

    def _repeats(self, part: _Part) -> _Part:
        while sign := self._peek():
            if sign in "*+?":
                self._at += 1
                part = _repeated(part, sign == "+", 1 if sign == "?" else None)
            elif sign == "{" and (count := self._take(_COUNT)):
                least, most = count[1], count[3] if count[2] else count[1]
                if any(len(digits) > 1 and digits[0] == "0" for digits in (least, most)):
                    raise _UnsureError
                part = _repeated(part, int(least), int(most) if most else None)
            else:
                break
            if self._peek() == "?":
                self._at += 1
        return part

    def _atoms(self) -> list[_Part]:
        """The next pieces, of which only the last may be repeated. Empty for a change of flags."""
        sign = self._next()
        match sign:
            case "(":
                return self._group()
            case "[":
                return [self._class()]
            case ".":
                return [_ANYTHING]
            case "^" | "$":
                return [_NOTHING]
            case "*" | "+" | "?":
                raise _UnsureError
            case "\\":
                return self._escape()
            case _:
                return [self._literal(sign)]

    def _group(self) -> list[_Part]:
        outside = self._folds
        if self._peek() == "?":
            self._at -= 1
            if not self._take(_NAME):
                flags = self._take(_FLAGS)
                if flags is None or not (flags[1] or flags[2] or flags[3] == ":"):
                    raise _UnsureError
                self._folds = (outside or "i" in flags[1]) and "i" not in (flags[2] or "")
                if flags[3] == ")":
                    return []
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _UnsureError
        part = self._alternatives()
        if self._next() != ")":
            raise _UnsureError
        self._depth -= 1
        self._folds = outside
        return [part]

    def _escape(self) -> list[_Part]:
        self._at -= 1
        if self._take(_PROPERTY):
            return [_ANYTHING]
        sign = self._peek(2)[1:]
        if sign == "Q":
            end = self._text.find("\\E", self._at + 2)
            quoted = self._text[self._at + 2 : end if end >= 0 else None]
            if not quoted:
                raise _UnsureError
            self._at = end + 2 if end >= 0 else len(self._text)
            return [self._literal(one) for one in quoted]
        if sign and sign in "dDsSwW":
            self._at += 2
            return [_ANYTHING]
        if sign and sign in "AzbB":
            self._at += 2
            return [_NOTHING]
        return [self._literal(self._escaped())]

    def _escaped(self) -> str:
        """The character that an escape stands for."""
        if code := self._take(_HEX):
            value = int(code[1] or code[2], 16)
            if value > 0x10FFFF or 0xD800 <= value < 0xE000:
                raise _UnsureError
            return chr(value)
        self._next()
        sign = self._next()
        if sign in _CONTROL:
            return _CONTROL[sign]
        if not sign.isascii() or sign.isalnum() or sign == "_":
            raise _UnsureError
        return sign

    def _literal(self, sign: str) -> _Part:
        folded = fold(sign)
        # Under (?i) a character beyond ASCII may stand for others that are not folded here.
        if self._folds and (not folded.isascii() or (self._is_exact and folded.isalpha())):
            return _ANYTHING
        return _Part(frozenset({sign if self._is_exact else folded}))

    def _class(self) -> _Part:
        is_negated = self._peek() == "^"
        self._at += is_negated
        members: set[str] = set()
        is_few = not is_negated
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self._peek(2) == "[:":
                if not self._take(_NAMED_CLASS):
                    raise _UnsureError
                is_few = False
            elif self._take(_PROPERTY):
                is_few = False
            elif self._peek() == "\\" and self._peek(2)[1:] in tuple("dDsSwW"):
                self._at += 2
                is_few = False
            else:
                low = high = self._member()
                if self._peek() == "-" and self._peek(2)[1:] not in ("", "]"):
                    self._at += 1
                    high = self._member()
                if ord(high) - ord(low) > 2 * _MAX_CLASS:
                    is_few = False
                else:
                    members.update(map(chr, range(ord(low), ord(high) + 1)))
        self._at += 1
        return self._one_of(members) if is_few else _ANYTHING

    def _member(self) -> str:
        return self._escaped() if self._peek() == "\\" else self._next()

    def _one_of(self, members: Iterable[str]) -> _Part:
        exact: frozenset[str] = frozenset()
        for member in members:
            part = self._literal(member)
            if part.exact is None:
                return _ANYTHING
            exact |= part.exact
        return _Part(exact) if 0 < len(exact) <= _MAX_CLASS else _ANYTHING
