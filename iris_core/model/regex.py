"""Content regular expressions: one dialect, RE2, for every surface.

A pattern typed into a console, a flag or a request is compiled here before
anything is searched, so a bad one is refused up front with the place of the
fault and can never pass for "no line matched". RE2 runs in time linear in the text, whatever
the pattern; length and memory are bounded as well.

RE2 names the offending fragment but not where it stands. The position is
derived: a fault that RE2 finds while reading is also the first fault of the
pattern cut off right behind it, so the fragment's occurrences are tried in order. Where that
stays ambiguous the error carries a span.

The engine is imported inside the functions: most commands never need it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from iris_core.model.errors import ModelError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PATTERN: Final = 4096
"""Longest pattern, in characters."""

MAX_MEMORY: Final = 8 << 20
"""What one compiled pattern may use for its program and its cached automaton, in bytes."""

_MAX_TRIES: Final = 64

_SCAN_RE = re.compile(
    r"\\Q.*?(?:\\E|\Z)"  # quoted run
    r"|\\."  # escape
    r"|\[\^?\]?(?:\[:\w*:\]|\\.|[^\]\\])*\]"  # character class; a leading ] is literal
    r"|[()]",
    re.DOTALL,
)
_SURROGATE_RE = re.compile("[\ud800-\udfff]")


class Compiled:
    """A checked pattern. Safe to use from several threads."""

    __slots__ = ("_regexp", "pattern")

    def __init__(self, pattern: str, regexp: Any) -> None:
        self.pattern = pattern
        """The pattern's source text."""
        self._regexp = regexp

    def search(self, text: bytes | str) -> bool:
        """Whether the pattern matches anywhere in ``text``; bytes are read as UTF-8."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return self._regexp.search(data) is not None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Character offsets ``(start, end)`` of all matches, left to right, empty ones left out."""
        plain = _SURROGATE_RE.sub("\ufffd", text)
        found = (match.span() for match in self._regexp.finditer(plain))
        return [(start, end) for start, end in found if end > start]

    def __repr__(self) -> str:
        return f"Compiled({self.pattern!r})"


def compile_content_regex(pattern: str, *, field: str = "regex") -> Compiled:
    """Compile ``pattern`` in the RE2 dialect.

    Raises:
        ModelError: the pattern is refused. The message names the fragment and,
            where it can be derived, ``position`` is its character offset and ``end`` the offset
            behind it: ``missing ]: '[' at position 0``.
    """
    if len(pattern) > MAX_PATTERN:
        raise ModelError(
            f"the pattern has {len(pattern)} characters, more than {MAX_PATTERN}",
            field=field,
            position=MAX_PATTERN,
        )
    surrogate = _SURROGATE_RE.search(pattern)
    if surrogate is not None:
        raise ModelError(
            f"the pattern is not valid text at position {surrogate.start()}", field=field, position=surrogate.start()
        )
    regexp, fault = _compile(pattern)
    if fault:
        raise _explain(pattern, fault, field)
    return Compiled(pattern, regexp)


def _compile(pattern: str) -> tuple[Any, str]:
    """Return the engine's object and ``""``, or ``None`` and the engine's complaint."""
    import re2

    options = re2.Options()
    options.log_errors = False
    # Whether and where a pattern matches is all that is asked: groups would take a slower engine.
    options.never_capture = True
    options.max_mem = MAX_MEMORY
    try:
        return re2.compile(pattern, options), ""
    except re2.error as error:
        raw = error.args[0] if error.args else b""
        text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
        return None, text or "the pattern is invalid"


def _explain(pattern: str, fault: str, field: str) -> ModelError:
    kind, _, fragment = fault.partition(": ")
    start, end = _locate(pattern, kind, fragment, fault)
    if start is None or end is None:
        return ModelError(f"bad pattern: {shown(fault, 200)}", field=field)
    is_certain = kind in ("missing ]", "missing )") or pattern[start:end] == fragment or end - start == 1
    piece = pattern[start:end] if is_certain else fragment
    if is_certain and not (kind == "missing )" and end - start > 1):
        where = f"at position {start}"
    else:
        where = f"between positions {start} and {end - 1}"
    return ModelError(f"{kind}: {shown(piece, 20)} {where}", field=field, position=start, end=end)


def _locate(pattern: str, kind: str, fragment: str, fault: str) -> tuple[int, int] | tuple[None, None]:
    if kind == "trailing \\":
        return len(pattern) - 1, len(pattern)
    if kind == "missing ]" and pattern.endswith(fragment):
        return len(pattern) - len(fragment), len(pattern)
    if kind in ("missing )", "unexpected )"):
        return _locate_parenthesis(pattern, kind)
    ends = list(_occurrences(pattern, fragment))
    if not ends:
        return None, None
    for end in ends[:_MAX_TRIES]:
        if _compile(pattern[:end])[1] == fault:
            return end - len(fragment), end
    return ends[0] - len(fragment), ends[-1]


def _occurrences(pattern: str, fragment: str) -> Iterator[int]:
    """Offsets behind each occurrence of ``fragment``, overlapping ones included."""
    start = pattern.find(fragment) if fragment else -1
    while start >= 0:
        yield start + len(fragment)
        start = pattern.find(fragment, start + 1)


def _locate_parenthesis(pattern: str, kind: str) -> tuple[int, int] | tuple[None, None]:
    opened: list[int] = []
    for match in _SCAN_RE.finditer(pattern):
        if match[0] == "(":
            opened.append(match.start())
        elif match[0] == ")":
            if not opened:
                return (match.start(), match.end()) if kind == "unexpected )" else (None, None)
            opened.pop()
    return (opened[0], opened[-1] + 1) if opened and kind == "missing )" else (None, None)
