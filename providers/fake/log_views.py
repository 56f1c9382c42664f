"""The log store of the cluster that exists only in memory: the lines of `FakeClient`, fetched, or numbered under one filter.

Lines stand in the order in which they were scripted. Nothing expires; `forget` takes a view away as a restarted store does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_core.contracts import RpcFailed
from iris_core.model.regex import compile_content_regex
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import logs_pb2 as logs

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True)
class _View:
    request: logs.OpenLogViewRequest
    lines: list[logs.ViewLine] = field(default_factory=list)
    searched: int = 0
    hits: int = 0


class FakeViews:
    """`lines` is everything that was written."""

    def __init__(self, lines: Sequence[logs.StoredLine]) -> None:
        self._lines = lines
        self.incarnations: dict[int, int] = {}
        """By seq, of which submission of its job's name a line is, where that was scripted."""
        self._views: dict[str, _View] = {}
        self._opened = 0

    def forget(self) -> None:
        """The store was restarted."""
        self._views.clear()

    def fetch(self, request: logs.FetchLogsRequest) -> logs.FetchLogsResponse:
        """`FetchLogs`, without waiting."""
        last = len(self._lines)
        found = [line for line in self._lines if self._matches(request, line)]
        most = request.max_lines or 1000
        shown = found[-most:] if request.tail else found[:most]
        capped = len(shown) < len(found)
        cursor = shown[-1].seq if capped and not request.tail else last
        return logs.FetchLogsResponse(
            entries=shown, cursor=cursor, shown=len(shown), matched=len(found), scanned=last, capped=capped,
            last_seq=last, from_seq=shown[0].seq if capped and request.tail else 0,
        )  # fmt: skip

    def open(self, request: logs.OpenLogViewRequest) -> logs.OpenLogViewResponse:
        """`OpenLogView`."""
        self._opened += 1
        view_id = f"view-{self._opened}"
        view = self._views[view_id] = _View(request)
        self._extend(view)
        most = request.query.max_lines
        if most and request.query.tail and view.hits > most and not request.HasField("context"):
            del view.lines[:-most]
            for number, line in enumerate(view.lines):
                line.number = number
        last = view.lines[-request.last_lines :] if request.last_lines else []
        return logs.OpenLogViewResponse(
            view_id=view_id, state=self._state(view), sources=1 + len(request.also), lines=last
        )

    def read(self, request: logs.ReadLinesRequest) -> logs.ReadLinesResponse:
        """`ReadLines`."""
        view = self._view(request.view_id)
        self._extend(view)
        count = request.count or 256
        first, at = request.first, -1
        if (request.at_seq or request.at_ms) and view.lines:
            found = (
                line.number
                for line in view.lines
                if line.line.seq >= request.at_seq and line.line.epoch_ms >= request.at_ms
            )
            at = next(found, len(view.lines) - 1)
            first = at // count * count
        return logs.ReadLinesResponse(lines=view.lines[first : first + count], state=self._state(view), at=at)

    def find(self, request: logs.FindNextRequest) -> logs.FindNextResponse:
        """`FindNext`."""
        view = self._view(request.view_id)
        regex = compile_content_regex(request.regex) if request.regex else None
        hits = [
            line.number
            for line in view.lines
            if request.substring in line.line.data
            and (regex is None or regex.search(line.line.data))
            and line.line.level >= request.min_level
        ]
        ahead = [
            number
            for number in hits
            if (number <= request.from_line if request.backward else number >= request.from_line)
        ]
        if not ahead:
            return logs.FindNextResponse(total=len(hits), complete=True, state=self._state(view))
        number = ahead[-1] if request.backward else ahead[0]
        return logs.FindNextResponse(
            found=True, number=number, ordinal=hits.index(number) + 1, total=len(hits), complete=True,
            state=self._state(view),
        )  # fmt: skip

    def export(self, request: logs.ExportLogsRequest) -> logs.ExportLogsResponse:
        """`ExportLogs`, all in one answer."""
        view = self._view(request.view_id)
        lines = [line.line for line in view.lines[request.first :]]
        data = b"".join((line.raw or line.data.encode()) + b"\n" for line in lines)
        return logs.ExportLogsResponse(
            data=data, next_line=len(view.lines), lines=len(lines), done=True, state=self._state(view)
        )

    def close(self, request: logs.CloseLogViewRequest) -> logs.CloseLogViewResponse:
        """`CloseLogView`."""
        self._views.pop(request.view_id, None)
        return logs.CloseLogViewResponse()

    def _view(self, view_id: str) -> _View:
        if view_id not in self._views:
            raise RpcFailed("NOT_FOUND", "there is no such log view", code="view_gone", hint="open it again")
        return self._views[view_id]

    def _extend(self, view: _View) -> None:
        """Takes up what was written since; with context all is looked at again."""
        query, context = view.request.query, view.request.context
        queries = [query]
        for one in view.request.also:
            queries.append(logs.FetchLogsRequest())
            queries[-1].CopyFrom(query)
            queries[-1].source, queries[-1].match_scope = one.source, one.match_scope
        start = 0 if context else view.searched
        hits = {
            place
            for place in range(start, len(self._lines))
            if any(self._matches(one, self._lines[place]) for one in queries)
        }
        shown = {
            place
            for hit in hits
            for place in range(hit - context, hit + context + 1)
            if 0 <= place < len(self._lines) and self._lines[place].key == self._lines[hit].key
        }
        known = {line.line.seq for line in view.lines} if context else set()
        for place in sorted(shown):
            line = self._lines[place]
            if line.seq not in known:
                breaks = bool(view.lines) and place - 1 not in shown and bool(context)
                view.lines.append(
                    logs.ViewLine(number=len(view.lines), line=line, is_context=place not in hits, breaks=breaks)
                )
        view.hits = len(hits) if context else view.hits + len(hits)
        view.searched = len(self._lines)

    def _state(self, view: _View) -> logs.LogViewState:
        return logs.LogViewState(
            lines=len(view.lines), hits=view.hits, scanned=view.searched, scanned_to=view.searched,
            last_seq=len(self._lines), complete=True,
        )  # fmt: skip

    def _matches(self, request: logs.FetchLogsRequest, line: logs.StoredLine) -> bool:
        of = self.incarnations.get(line.seq, request.min_incarnation)
        return of >= request.min_incarnation and _matches(request, line)


def _matches(request: logs.FetchLogsRequest, line: logs.StoredLine) -> bool:
    is_there = (
        line.key == request.source
        if request.match_scope == common.MATCH_SCOPE_EXACT
        else line.key.startswith(request.source)
    )
    return (
        is_there
        and line.seq > request.cursor
        and (not request.before or line.seq < request.before)
        and (not request.since_ms or line.epoch_ms > request.since_ms)
        and (not request.min_level or not line.level or line.level >= request.min_level)
        and request.substring in line.data
        and (not request.regex or compile_content_regex(request.regex).search(line.data))
        and not (request.without and compile_content_regex(request.without).search(line.data))
    )
