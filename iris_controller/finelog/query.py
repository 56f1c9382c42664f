"""What a reader asks for, checked: a scope of keys, bounds, and a test for one line.

Plain values: knows the wire's request and nothing of files. Must never let a pattern near a backtracking engine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from iris_controller.rpc.errors import RpcError, invalid
from iris_core.model.regex import Compiled, compile_content_regex
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEFAULT_LINES = 1000
MAX_LINES = 1_000_000
MAX_WAIT_MS = 30_000
MAX_SOURCE = 1024
MAX_SOURCES = 64
"""Logs in one view."""
MAX_SUBSTRING = 4096

_OWN_TASKS = re.compile(r"(?:(?:/[0-9]+)?:[^/]*)?")


@dataclass(frozen=True, slots=True)
class Scope:
    """Which keys are read: one, or a component and all below it.

    The prefix `/u/j` covers `/u/j` and `/u/j/…`, never `/u/j2`; that of a task, `/u/j/0`, also its attempts `/u/j/0:1`.
    With `own_tasks` only the tasks of that job itself are meant, not those of its child jobs. What `more` cover is read as well.
    """

    source: str
    prefix: bool = False
    own_tasks: bool = False
    more: tuple[Scope, ...] = ()

    @property
    def is_one(self) -> bool:
        """Whether it can only be one key."""
        return not self.prefix and not self.more

    @property
    def sources(self) -> tuple[str, ...]:
        """The names by which it covers keys."""
        return (self.source, *(scope.source for scope in self.more))

    def matches(self, key: str) -> bool:
        """Whether `key` is read."""
        return self._covers(key) or any(scope.matches(key) for scope in self.more)

    def _covers(self, key: str) -> bool:
        if not self.prefix:
            return key == self.source
        if not key.startswith(self.source):
            return False
        rest = key[len(self.source) :]
        if self.own_tasks:
            return _OWN_TASKS.fullmatch(rest) is not None
        return not rest or rest[0] in "/:"

    def ranges(self) -> tuple[tuple[str, str], ...]:
        """Half-open ranges, ascending, in which all matching keys of a sorted list lie."""
        key = self.source
        # "/" is followed by "0" and ":" by ";" in the order of characters.
        below = ((f"{key}/", f"{key}0"), (f"{key}:", f"{key};")) if self.prefix else ()
        found = ((key, f"{key}\0"), *below)
        if not self.more:
            return found
        apart: list[tuple[str, str]] = []
        for low, high in sorted((*found, *(one for scope in self.more for one in scope.ranges()))):
            if apart and low <= apart[-1][1]:
                apart[-1] = (apart[-1][0], max(apart[-1][1], high))
            else:
                apart.append((low, high))
        return tuple(apart)


@dataclass(frozen=True, slots=True)
class Query:
    """One read. `cursor`, `before` and the times are exclusive bounds; 0 is no bound."""

    scope: Scope
    cursor: int = 0
    before: int = 0
    since_ms: int = 0
    until_ms: int = 0
    max_lines: int = DEFAULT_LINES
    tail: bool = False
    min_level: int = 0
    states_level: bool = False
    """Whether a line of UNKNOWN level does not pass `min_level`."""
    min_incarnation: int = 0
    attempt_uid: str = ""
    substring: str = ""
    regex: Compiled | None = None
    without: Compiled | None = None
    """What it is found in is left out."""

    @property
    def filters_content(self) -> bool:
        """Whether a line's text decides."""
        return bool(self.substring) or self.regex is not None or self.without is not None

    @property
    def ignoring_content(self) -> Query:
        """The same whatever stands in the lines."""
        return replace(self, substring="", regex=None, without=None)

    def wants_times(self, earliest_ms: int, latest_ms: int) -> bool:
        """Whether a line between those two times, both included, can match."""
        return not (self.since_ms and latest_ms <= self.since_ms) and not (
            self.until_ms and earliest_ms >= self.until_ms
        )

    def holds_times(self, earliest_ms: int, latest_ms: int) -> bool:
        """Whether every time between those two is inside the bounds."""
        return not (self.since_ms and earliest_ms <= self.since_ms) and not (
            self.until_ms and latest_ms >= self.until_ms
        )

    def wants_batch(self, batch: logs_pb2.LogBatch) -> bool:
        """Whether lines of that batch can match."""
        return batch.incarnation >= self.min_incarnation and self.attempt_uid in ("", batch.attempt_uid)

    def line_test(self) -> Callable[[logs_pb2.LogEntry], bool] | None:
        """A test for one line of a wanted batch; None if every line passes."""
        return _all([test for test in (self.bounds_test(), self.content_test()) if test is not None])

    def bounds_test(self) -> Callable[[logs_pb2.LogEntry], bool] | None:
        """The part of `line_test` that looks at level and time; a line that passes it is searched."""
        tests: list[Callable[[logs_pb2.LogEntry], bool]] = []
        if (level := self.min_level) > common_pb2.LOG_LEVEL_UNKNOWN and self.states_level:
            tests.append(lambda line: line.level >= level)
        elif level > common_pb2.LOG_LEVEL_UNKNOWN:
            tests.append(lambda line: line.level == common_pb2.LOG_LEVEL_UNKNOWN or line.level >= level)
        if since := self.since_ms:
            tests.append(lambda line: line.epoch_ms > since)
        if until := self.until_ms:
            tests.append(lambda line: line.epoch_ms < until)
        return _all(tests)

    def content_test(self) -> Callable[[logs_pb2.LogEntry], bool] | None:
        """The part of `line_test` that looks at the text."""
        tests: list[Callable[[logs_pb2.LogEntry], bool]] = []
        if substring := self.substring:
            tests.append(lambda line: substring in line.data or (bool(line.part) and substring in line.seam))
        if (regex := self.regex) is not None:
            tests.append(lambda line: regex.search(line.data) or (bool(line.part) and regex.search(line.seam)))
        if (without := self.without) is not None:
            tests.append(
                lambda line: not (without.search(line.data) or (bool(line.part) and without.search(line.seam)))
            )
        return _all(tests)

    def payload_test(self) -> Callable[[bytes], bool] | None:
        """A quick test for a serialised batch that is true if a line in it matches; None if there is no such test.

        A text stands in the bytes as it is. A pattern that looks at nothing around its match finds it there, too; one with an
        anchor or a word boundary does not, because of the bytes between the lines.
        """
        tests: list[Callable[[bytes], bool]] = []
        if self.substring:
            needle = self.substring.encode()
            tests.append(lambda payload: needle in payload)
        if (regex := self.regex) is not None and not _looks_around(regex.pattern):
            tests.append(regex.search)
        return _all(tests)


_Tested = TypeVar("_Tested")


def _all(tests: list[Callable[[_Tested], bool]]) -> Callable[[_Tested], bool] | None:
    """One test for several; None for none."""
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda tested: all(test(tested) for test in tests)


def _looks_around(pattern: str) -> bool:
    """Whether a match may depend on what stands before or behind it. True when in doubt."""
    if re.search(r"\\[bBAzQC]", pattern):
        return True
    plain = re.sub(r"\\.", "", pattern, flags=re.DOTALL).replace("[^", "[")
    return "^" in plain or "$" in plain


def parse(request: logs_pb2.FetchLogsRequest) -> Query:
    """The query that a request describes. Raises RpcError INVALID_ARGUMENT naming the field, ModelError for a bad pattern."""
    return Query(
        scope=_scope(request.source, request.match_scope, own_tasks=request.no_children),
        cursor=request.cursor,
        before=request.before,
        since_ms=request.since_ms,
        until_ms=request.until_ms,
        max_lines=min(request.max_lines, MAX_LINES) if request.max_lines > 0 else DEFAULT_LINES,
        tail=request.tail,
        min_level=request.min_level,
        min_incarnation=request.min_incarnation,
        attempt_uid=request.attempt_uid,
        substring=_substring(request.substring),
        regex=compile_content_regex(request.regex) if request.regex else None,
        without=compile_content_regex(request.without, field="without") if request.without else None,
    )


def wait_ms(request: logs_pb2.FetchLogsRequest) -> int:
    """How long the reader waits for a first line."""
    return max(0, min(request.wait_ms, MAX_WAIT_MS))


def merged(query: Query, also: Sequence[logs_pb2.LogViewSource]) -> Query:
    """The query over more logs. Raises RpcError INVALID_ARGUMENT."""
    if len(also) >= MAX_SOURCES:
        raise invalid("also", f"a view has at most {MAX_SOURCES} logs, not {len(also) + 1}")
    more = tuple(_scope(one.source, one.match_scope, own_tasks=query.scope.own_tasks) for one in also)
    return replace(query, scope=replace(query.scope, more=more))


def _scope(key: str, match_scope: common_pb2.MatchScope, *, own_tasks: bool) -> Scope:
    if len(key) > MAX_SOURCE:
        raise invalid("source", f"the log key has {len(key)} characters, more than {MAX_SOURCE}")
    match match_scope:
        case common_pb2.MATCH_SCOPE_EXACT:
            if not key:
                raise invalid("source", "the log key is empty")
            return Scope(key)
        case common_pb2.MATCH_SCOPE_PREFIX:
            source = key.rstrip("/")
            if not source:
                raise invalid("source", "an empty prefix would read every log", hint="name a user, a job or a task")
            return Scope(source, prefix=True, own_tasks=own_tasks)
        case common_pb2.MATCH_SCOPE_UNSPECIFIED:
            raise invalid("match_scope", "the match scope is not given", hint="EXACT or PREFIX")
        case common_pb2.MATCH_SCOPE_REGEX:
            raise invalid("match_scope", "keys are matched by EXACT or PREFIX, not by a pattern", code="scope")
        case other:
            raise invalid("match_scope", f"unknown match scope {other}", hint="EXACT or PREFIX")


def _substring(text: str) -> str:
    if len(text) > MAX_SUBSTRING:
        raise RpcError(
            "INVALID_ARGUMENT",
            f"the substring has {len(text)} characters, more than {MAX_SUBSTRING}",
            code="invalid",
            field="substring",
        )
    return text
