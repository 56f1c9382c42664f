"""The log store's reading calls with their types, over any connection: FetchLogs, and the views of console §2.3b.

`Logs` is for the command line and scripts, `AsyncLogs` for an event loop. Nothing is decided here. Raises what the connection raises:
ConnectFailed, RpcFailed (`view_gone`: the store no longer has that view, open it again), Denied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from iris_core.contracts import AsyncClient, Client
    from iris_core.wire.gen.iris.v1 import logs_pb2, pipeline_pb2

TIMEOUT_S: Final = 60.0
CLOSE_S: Final = 5.0


class Logs:
    """Over a synchronous connection."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def fetch(self, request: logs_pb2.FetchLogsRequest) -> logs_pb2.FetchLogsResponse:
        """One page of a log by seq."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        timeout_s = TIMEOUT_S + request.wait_ms / 1000
        return self._client.call("LogService/FetchLogs", request, logs_pb2.FetchLogsResponse, timeout_s=timeout_s)

    def open_view(
        self, query: logs_pb2.FetchLogsRequest, *, context: int | None = None
    ) -> logs_pb2.OpenLogViewResponse:
        """A view of what `query` describes; `context` lines around each hit, None = the hits alone."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        return self._client.call(
            "LogService/OpenLogView", view_request(query, context), logs_pb2.OpenLogViewResponse, timeout_s=TIMEOUT_S
        )

    def read_lines(self, view_id: str, first: int, count: int = 0) -> logs_pb2.ReadLinesResponse:
        """Up to `count` lines from number `first` on; at the end of the view new ones are looked for."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.ReadLinesRequest(view_id=view_id, first=first, count=count)
        return self._client.call("LogService/ReadLines", request, logs_pb2.ReadLinesResponse, timeout_s=TIMEOUT_S)

    def find_next(
        self, view_id: str, from_line: int, *, regex: str = "", substring: str = "", backward: bool = False
    ) -> logs_pb2.FindNextResponse:
        """The next line that matches, `from_line` included."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.FindNextRequest(
            view_id=view_id, from_line=from_line, regex=regex, substring=substring, backward=backward
        )
        return self._client.call("LogService/FindNext", request, logs_pb2.FindNextResponse, timeout_s=TIMEOUT_S)

    def tail(self, view_id: str, first: int = -1) -> Iterator[logs_pb2.TailResponse]:
        """Lines from `first` on as they come, -1 = only new ones."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.TailRequest(view_id=view_id, first=first)
        return self._client.stream("LogService/Tail", request, logs_pb2.TailResponse)

    def export(self, view_id: str, first: int = 0) -> Iterator[logs_pb2.ExportLogsResponse]:
        """The bytes of the view from line `first` on."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.ExportLogsRequest(view_id=view_id, first=first)
        return self._client.stream("LogService/ExportLogs", request, logs_pb2.ExportLogsResponse)

    def close_view(self, view_id: str) -> None:
        """The view is not needed any more. Raises nothing: it would be forgotten anyway."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.CloseLogViewRequest(view_id=view_id)
        try:
            self._client.call("LogService/CloseLogView", request, logs_pb2.CloseLogViewResponse, timeout_s=CLOSE_S)
        except IrisError:
            pass

    def health(self, target: str = "") -> pipeline_pb2.GetPipelineHealthResponse:
        """How the way of the lines is; with a job, task or attempt only of the workers it is on."""
        from iris_core.wire.gen.iris.v1 import pipeline_pb2

        request = pipeline_pb2.GetPipelineHealthRequest(target=target)
        return self._client.call(
            "ControllerService/GetPipelineHealth", request, pipeline_pb2.GetPipelineHealthResponse, timeout_s=10.0
        )


class AsyncLogs:
    """Over a connection of an event loop."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def fetch(self, request: logs_pb2.FetchLogsRequest) -> logs_pb2.FetchLogsResponse:
        """One page of a log by seq."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        timeout_s = TIMEOUT_S + request.wait_ms / 1000
        return await self._client.call("LogService/FetchLogs", request, logs_pb2.FetchLogsResponse, timeout_s=timeout_s)

    async def open_view(
        self, query: logs_pb2.FetchLogsRequest, *, context: int | None = None
    ) -> logs_pb2.OpenLogViewResponse:
        """A view of what `query` describes; `context` lines around each hit, None = the hits alone."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        return await self._client.call(
            "LogService/OpenLogView", view_request(query, context), logs_pb2.OpenLogViewResponse, timeout_s=TIMEOUT_S
        )

    async def read_lines(self, view_id: str, first: int, count: int = 0) -> logs_pb2.ReadLinesResponse:
        """Up to `count` lines from number `first` on; at the end of the view new ones are looked for."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.ReadLinesRequest(view_id=view_id, first=first, count=count)
        return await self._client.call("LogService/ReadLines", request, logs_pb2.ReadLinesResponse, timeout_s=TIMEOUT_S)

    async def find_next(
        self, view_id: str, from_line: int, *, regex: str = "", substring: str = "", backward: bool = False
    ) -> logs_pb2.FindNextResponse:
        """The next line that matches, `from_line` included."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.FindNextRequest(
            view_id=view_id, from_line=from_line, regex=regex, substring=substring, backward=backward
        )
        return await self._client.call("LogService/FindNext", request, logs_pb2.FindNextResponse, timeout_s=TIMEOUT_S)

    def tail(self, view_id: str, first: int = -1) -> AsyncIterator[logs_pb2.TailResponse]:
        """Lines from `first` on as they come, -1 = only new ones."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.TailRequest(view_id=view_id, first=first)
        return self._client.stream("LogService/Tail", request, logs_pb2.TailResponse)

    def export(self, view_id: str, first: int = 0) -> AsyncIterator[logs_pb2.ExportLogsResponse]:
        """The bytes of the view from line `first` on."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.ExportLogsRequest(view_id=view_id, first=first)
        return self._client.stream("LogService/ExportLogs", request, logs_pb2.ExportLogsResponse)

    async def close_view(self, view_id: str) -> None:
        """The view is not needed any more. Raises nothing: it would be forgotten anyway."""
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.CloseLogViewRequest(view_id=view_id)
        try:
            await self._client.call(
                "LogService/CloseLogView", request, logs_pb2.CloseLogViewResponse, timeout_s=CLOSE_S
            )
        except IrisError:
            pass

    async def health(self, target: str = "") -> pipeline_pb2.GetPipelineHealthResponse:
        """How the way of the lines is; with a job, task or attempt only of the workers it is on."""
        from iris_core.wire.gen.iris.v1 import pipeline_pb2

        request = pipeline_pb2.GetPipelineHealthRequest(target=target)
        return await self._client.call(
            "ControllerService/GetPipelineHealth", request, pipeline_pb2.GetPipelineHealthResponse, timeout_s=10.0
        )


def view_request(query: logs_pb2.FetchLogsRequest, context: int | None) -> logs_pb2.OpenLogViewRequest:
    """The request for a view."""
    from iris_core.wire.gen.iris.v1 import logs_pb2

    return logs_pb2.OpenLogViewRequest(query=query, context=context)
