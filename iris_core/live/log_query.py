"""Which lines of which logs a log view shows: the sources, and the filter as it is typed after `&`.

The filter is one line: options first, then the pattern. `-C N` lines around each hit, `-l LEVEL` that level and worse, `-v PATTERN` no line in
which that is found, `-F` the rest is literal text; `--` ends the options. What is typed is checked here, with the place of the fault, before a server sees it. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from iris_core.model.errors import ModelError
from iris_core.model.levels import LogLevel, parse_level_name
from iris_core.model.regex import compile_content_regex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.wire.gen.iris.v1 import logs_pb2

MAX_CONTEXT: Final = 1000
MAX_SOURCES: Final = 64
"""Logs in one view (`OpenLogViewRequest.also`)."""
EXACT, PREFIX = 1, 2
"""`MatchScope`'s numbers."""
_WORD = re.compile(r"\s*(\S+)")
_QUOTED = re.compile(r'\s*"((?:[^"\\]|\\.)*)"(?!\S)')
"""What stands behind an option in quotes, since it has blanks; one that begins with a quote itself has a backslash before it."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """Whose lines: the store's key and how it is matched.

    Attributes:
        key: `/user/job/0:1` exactly, or a prefix of keys.
        scope: `MatchScope`'s number.
        title: What a person calls it.
        min_incarnation: Older runs of a job of the same name are left out.
        command: The command line that shows the same.
    """

    key: str
    scope: int
    title: str
    min_incarnation: int = 0
    command: str = ""

    @property
    def is_process(self) -> bool:
        """Whether a controller or worker writes it, and no task."""
        return self.key.startswith("/system/")


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What of the sources is shown. `since_ms` 0 = from the first line on; `context` None = the hits alone; lines in which one of `without` is
    found are left out."""

    regex: str = ""
    substring: str = ""
    without: tuple[str, ...] = ()
    min_level: int = 0
    context: int | None = None
    since_ms: int = 0

    @property
    def filters(self) -> bool:
        """Whether lines in between are left out."""
        return bool(self.regex or self.substring or self.without or self.min_level)

    @property
    def unfiltered(self) -> LogQuery:
        """The same without a filter: the bound of time stays."""
        return LogQuery(since_ms=self.since_ms)

    @property
    def _left_out(self) -> str:
        """The patterns of `without` as one; "" = there are none."""
        return "|".join(self.without if len(self.without) < 2 else (f"(?:{one})" for one in self.without))

    def words(self) -> str:
        """The filter as it is typed."""
        words = [f"-C {self.context}"] if self.context is not None else []
        if self.min_level:
            words.append(f"-l {LogLevel(self.min_level).label}")
        for pattern in self.without:
            words += ["-v", f'"{pattern}"' if re.search(r"\s", pattern) else pattern]
        if self.substring:
            words += ["-F", self.substring]
        elif self.regex:
            words += ["--", self.regex] if self.regex.startswith("-") else [self.regex]
        return " ".join(words)

    def request(
        self, sources: Sequence[LogSource], *, tail: int = 0, last_lines: int = 0
    ) -> logs_pb2.OpenLogViewRequest:
        """The request for a view of it; `tail` > 0: of the last so many lines and what comes after them.

        The last `last_lines` come with the answer.
        """
        from iris_core.wire.gen.iris.v1 import logs_pb2

        first = sources[0]
        query = logs_pb2.FetchLogsRequest(
            source=first.key,
            match_scope=first.scope,  # type: ignore[arg-type]
            regex=self.regex,
            substring=self.substring,
            without=self._left_out,
            min_level=self.min_level,  # type: ignore[arg-type]
            since_ms=self.since_ms,
            # Of several jobs the oldest run decides: nothing of the others may be missing.
            min_incarnation=min(source.min_incarnation for source in sources),
            max_lines=tail,
            tail=tail > 0,
        )
        also = [
            logs_pb2.LogViewSource(source=one.key, match_scope=one.scope)  # type: ignore[arg-type]
            for one in sources[1:]
        ]
        context = self.context if self.filters else None
        return logs_pb2.OpenLogViewRequest(query=query, context=context, also=also, last_lines=last_lines)


def parse_log_query(text: str, base: LogQuery) -> LogQuery:
    """The filter that was typed, with the bounds of `base`; an empty one shows all lines.

    Raises:
        ModelError: an option or the pattern is wrong, with its position in `text`.
    """
    query = base.unfiltered
    at = 0
    while (word := _WORD.match(text, at)) is not None and word[1].startswith("-") and word[1] != "-":
        option = word[1]
        if option == "--":
            at = word.end()
            break
        if option == "-F":
            rest = text[word.end() :].removeprefix(" ")
            if not rest:
                raise ModelError("-F needs a text after it", position=word.start(1))
            return replace(query, substring=rest)
        value = (_QUOTED.match(text, word.end()) if option == "-v" else None) or _WORD.match(text, word.end())
        if option not in ("-C", "-l", "-v"):
            raise ModelError(
                f"there is no option {option}",
                position=word.start(1),
                hint="-C N, -l LEVEL, -v PATTERN, -F TEXT; -- before a pattern",
            )
        if value is None:
            raise ModelError(f"{option} needs a value after it", position=word.start(1))
        if option == "-v":
            query = _leaving_out(query, value[1], value.start(1), is_quoted=value.re is _QUOTED)
        else:
            query = _with(query, option, value[1], value.start(1))
        at = value.end()
    pattern = text[at:].removeprefix(" ") if at else text
    if not pattern.strip():
        if query.context is not None and not query.min_level and not query.without:
            raise ModelError("-C needs a pattern or a level to stand around", position=0)
        return query
    _check(pattern, len(text) - len(pattern))
    return replace(query, regex=pattern)


def _check(pattern: str, at: int) -> None:
    """A pattern that begins `at` so many characters of what was typed. Raises ModelError with the position there."""
    try:
        compile_content_regex(pattern)
    except ModelError as error:
        if error.position is None or not at:
            raise
        moved = error.position + at
        message = error.message.replace(f"position {error.position}", f"position {moved}")
        raise ModelError(message, field=error.field, position=moved, hint=error.hint) from None


def _leaving_out(query: LogQuery, pattern: str, at: int, *, is_quoted: bool) -> LogQuery:
    if not pattern:
        raise ModelError("-v needs a pattern: an empty one is found in every line", position=at)
    if pattern.startswith('"') and not is_quoted:
        raise ModelError(
            "the quote that begins here has no end before a blank",
            position=at,
            hint='-v "PATTERN WITH BLANKS"; \\" is a quote of the pattern',
        )
    _check(pattern, at)
    found = replace(query, without=(*query.without, pattern))
    if query.without:
        try:
            compile_content_regex(found._left_out)
        except ModelError as error:
            # Each is right by itself: they are too long together, or one swallows what stands behind it.
            message = f"it cannot be put together with the other -v: {error.message}"
            raise ModelError(message, position=at, hint="shorten one, or end its \\Q with \\E") from None
    return found


def _with(query: LogQuery, option: str, value: str, at: int) -> LogQuery:
    if option == "-C":
        if not (value.isascii() and value.isdigit() and int(value) <= MAX_CONTEXT):
            raise ModelError(f"-C takes 0 to {MAX_CONTEXT:,} lines, not {value}", position=at)
        return replace(query, context=int(value))
    try:
        return replace(query, min_level=int(parse_level_name(value)))
    except ModelError as error:
        error.position = at
        raise
