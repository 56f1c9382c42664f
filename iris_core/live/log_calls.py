"""The log store's calls as a log view makes them: each answer is heard, none is kept.

A search that takes the store several answers is one call here, and so is an export over a connection that breaks. Raises what the
connection raises: ConnectFailed, RpcFailed (`view_gone`: the store has forgotten the view), Denied. Must never know what is shown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from iris_core.contracts import Denied, IrisError, RpcFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

    from iris_core.contracts import AsyncClient
    from iris_core.live.clock import Clock
    from iris_core.live.log_query import LogQuery, LogSource
    from iris_core.wire.gen.iris.v1 import logs_pb2, pipeline_pb2

CALL_S: Final = 30.0
MOST_PARTS: Final = 16
"""Parts of one line that are read for looking at all of it: 4 MiB."""
EXPORT_TRIES: Final = 6
TRY_AGAIN_S: Final = 0.5

T = TypeVar("T", bound="Message")


class Opened(NamedTuple):
    """A view, how far it is, and the lines that came with the answer: ascending, without a hole."""

    view_id: str
    state: logs_pb2.LogViewState
    lines: Sequence[logs_pb2.ViewLine]


def is_gone(error: IrisError) -> bool:
    """Whether the store has forgotten the view: open it again."""
    return isinstance(error, RpcFailed) and error.code == "view_gone"


class LogCalls:
    """`heard` is called with every answer."""

    def __init__(self, client: AsyncClient, clock: Clock, heard: Callable[[], None]) -> None:
        self._client = client
        self._clock = clock
        self._heard = heard

    async def open(
        self, query: LogQuery, sources: Sequence[LogSource], *, tail: int = 0, last_lines: int = 0
    ) -> Opened:
        """A view; with `last_lines` of its lines, if the store can give them at once."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = query.request(sources, tail=tail, last_lines=last_lines)
        answer = await self._call("OpenLogView", request, logs_pb2.OpenLogViewResponse)
        if answer.sources < len(sources) > 1:
            await self.close(answer.view_id)
            raise IrisError("the log store of this cluster is too old to merge several logs", hint="open one of them")
        return Opened(answer.view_id, answer.state, answer.lines)

    async def read(
        self, view_id: str, first: int, count: int, *, at_seq: int = 0, at_ms: int = 0
    ) -> logs_pb2.ReadLinesResponse:
        """Up to `count` lines from number `first` on, or the page of a seq or a time."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.ReadLinesRequest(view_id=view_id, first=first, count=count, at_seq=at_seq, at_ms=at_ms)
        return await self._call("ReadLines", request, logs_pb2.ReadLinesResponse)

    async def find(
        self, view_id: str, start: int, regex: str, min_level: int, *, backward: bool
    ) -> logs_pb2.FindNextResponse:
        """The next line that matches, `start` included, however long the store searches."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.FindNextRequest(
            view_id=view_id,
            regex=regex,
            min_level=min_level,  # type: ignore[arg-type]
            from_line=max(start, 0),
            backward=backward,
        )
        while True:
            answer = await self._call("FindNext", request, logs_pb2.FindNextResponse)
            # Backward, the nearest hit is only known when all before it was searched.
            if answer.complete or (answer.found and not backward):
                return answer
            await self._clock.sleep(0)

    async def entry(self, view_id: str, first: int) -> list[logs_pb2.ViewLine]:
        """The line with that number and the parts that go on it, MOST_PARTS at most."""
        found: list[logs_pb2.ViewLine] = []
        while len(found) < MOST_PARTS:
            answer = await self.read(view_id, max(first, 0) + len(found), 1)
            if not answer.lines or (found and not answer.lines[0].line.part):
                break
            found += answer.lines
            if not found[-1].line.partial:
                break
        return found

    def tail(self, view_id: str, first: int) -> AsyncIterator[logs_pb2.TailResponse]:
        """Lines from `first` on as they come."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.TailRequest(view_id=view_id, first=first)
        return self._client.stream("LogService/Tail", request, logs_pb2.TailResponse)

    async def export(
        self, query: LogQuery, sources: Sequence[LogSource], known: str = ""
    ) -> AsyncIterator[logs_pb2.ExportLogsResponse]:
        """The bytes of all lines; `known` is a view that has them. A connection that breaks is taken up again where it broke."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        view_id = known or (await self.open(query, sources)).view_id
        next_line, lines, lost, tries = 0, 0, 0, 0
        try:
            while True:
                request = logs_pb2.ExportLogsRequest(view_id=view_id, first=next_line)
                stream = self._client.stream("LogService/ExportLogs", request, logs_pb2.ExportLogsResponse)
                before = (lines, lost)
                try:
                    async for answer in stream:
                        next_line, tries = answer.next_line, 0
                        lines, lost = before[0] + answer.lines, before[1] + answer.lost_lines
                        answer.lines, answer.lost_lines = lines, lost
                        yield answer
                        if answer.done:
                            return
                except IrisError as error:
                    if is_gone(error) or isinstance(error, Denied) or tries >= EXPORT_TRIES:
                        raise
                finally:
                    await end(stream)
                tries += 1
                await self._clock.sleep(TRY_AGAIN_S * tries)
        finally:
            if view_id != known:
                await self.close(view_id)

    async def pipeline(self, target: str) -> pipeline_pb2.GetPipelineHealthResponse:
        """How the way of the lines is."""
        from iris_core.wire.gen.iris.v1 import pipeline_pb2

        request = pipeline_pb2.GetPipelineHealthRequest(target=target)
        return await self._client.call(
            "ControllerService/GetPipelineHealth", request, pipeline_pb2.GetPipelineHealthResponse, timeout_s=10.0
        )

    async def close(self, view_id: str) -> None:
        """The store need not keep it. Raises nothing: it would forget it by itself."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        try:
            request = logs_pb2.CloseLogViewRequest(view_id=view_id)
            await self._client.call("LogService/CloseLogView", request, logs_pb2.CloseLogViewResponse, timeout_s=5.0)
        except IrisError:
            pass

    async def _call(self, name: str, request: Message, response: type[T]) -> T:
        answer = await self._client.call(f"LogService/{name}", request, response, timeout_s=CALL_S)
        self._heard()
        return answer


async def end(stream: AsyncIterator[Any]) -> None:
    """Nobody wants more of a stream."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()
