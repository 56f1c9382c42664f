"""The command line's connection: small calls over HTTP/1.1, large messages and streams over gRPC.

A command that lists jobs ends before grpc would be imported (`docs/performance.md`); a bundle or a hundred thousand
log lines are cheaper as protobuf than as JSON, and a stream lives long enough to pay for the import. Where gRPC finds
no way through, its calls go over HTTP as well. Must never send one call both ways once the server may have seen it,
unless it carries a request id under which a repeat finds the first answer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from iris_core.client.calls import EXEC, Credentials, Timeout, fate_unknown
from iris_core.client.http_client import HttpClient
from iris_core.contracts import Client, ConnectFailed, R, RpcFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from google.protobuf.message import Message

    from iris_core.client.endpoint import Endpoint

LARGE_REQUEST_BYTES: Final = 128 * 1024
LARGE_LINES: Final = 2_000
"""Log lines from which on JSON costs more than importing grpc."""


class MixedClient:
    """A controller over whichever protocol is cheaper for the call (`contracts.Client`)."""

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: Credentials = Credentials(),  # noqa: B008 (frozen)
        *,
        note: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = endpoint.url
        self._endpoint = endpoint
        self._credentials = credentials
        self._note = note
        self._clock = clock
        self._sleep = sleep
        self._http = HttpClient(endpoint, credentials, note=note, clock=clock, sleep=sleep)
        self._grpc: Client | None = None
        self._grpc_blocked = False

    def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        """One answer. Raises ConnectFailed, RpcFailed, Denied."""
        # An exec goes where it is heard that its caller left, whatever stands in between.
        if self._grpc_blocked or not (_is_large(request) or method == EXEC):
            return self._http.call(method, request, response, timeout_s=timeout_s)
        try:
            return self._over_grpc().call(method, request, response, timeout_s=timeout_s)
        except (ConnectFailed, RpcFailed) as error:
            if fate_unknown(method, error) or not _no_way_through(error):
                raise
        answer = self._http.call(method, request, response, timeout_s=timeout_s)
        self._grpc_blocked = True
        return answer

    def stream(self, method: str, request: Message, response: type[R]) -> Iterator[R]:
        """Answers as they come; closing the iterator ends the call. Raises ConnectFailed, RpcFailed, Denied."""
        begun = False
        if not self._grpc_blocked:
            try:
                for answer in self._over_grpc().stream(method, request, response):
                    begun = True
                    yield answer
                return
            except (ConnectFailed, RpcFailed) as error:
                if begun or not _no_way_through(error):
                    raise
        for answer in self._http.stream(method, request, response):
            self._grpc_blocked = True
            yield answer

    def _over_grpc(self) -> Client:
        if self._grpc is None:
            from iris_core.client.grpc_client import GrpcClient

            self._grpc = GrpcClient(
                self._endpoint, self._credentials, note=self._note, clock=self._clock, sleep=self._sleep
            )
        return self._grpc

    def close(self) -> None:
        """Closes both. A second time is no error."""
        self._http.close()
        if self._grpc is not None:
            self._grpc.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_large(request: Message) -> bool:
    if request.DESCRIPTOR.name == "FetchLogsRequest":
        return bool(request.max_lines > LARGE_LINES)  # type: ignore[attr-defined]
    if request.DESCRIPTOR.name == "QueryRequest" and request.timeout_ms:  # type: ignore[attr-defined]
        # One that may take its time goes where it is heard that its caller left, too.
        return True
    return request.ByteSize() > LARGE_REQUEST_BYTES


def _no_way_through(error: ConnectFailed | RpcFailed) -> bool:
    """Whether it looks as if something between here and the controller does not let gRPC pass.

    A server of ours puts a code into each error; a proxy's refusal has none.
    """
    if isinstance(error, Timeout):
        return False
    if isinstance(error, ConnectFailed):
        return True
    return error.status in ("UNIMPLEMENTED", "INTERNAL", "UNKNOWN") and not error.code
