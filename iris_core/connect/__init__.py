"""From what the operator typed to an open connection: selectors, the running local cluster, the choice of transport.

`target` decides which controller is meant, `local` knows the embedded cluster of this user, `open_client` and
`open_async_client` open the connection, through a tunnel where one is needed. Nothing is dialled before the first call. Must never start a cluster: only
`cluster start` does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from iris_core.connect.target import Target, TunnelOpener, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.client.context import ClientContext
    from iris_core.client.endpoint import Endpoint
    from iris_core.contracts import AsyncClient, Client

__all__ = ["Target", "Transport", "TunnelOpener", "open_async_client", "open_client", "resolve"]

Transport = Literal["auto", "grpc", "http"]


def open_client(
    target: Target,
    *,
    transport: Transport = "auto",
    note: Callable[[str], None] | None = None,
    context: Callable[[], ClientContext] | None = None,
) -> Client:
    """A connection for the command line; `note` is told when a call has to wait for the controller. `context` is what its changes say
    of how they came about.

    auto sends small calls over HTTP/1.1 and large ones and streams over gRPC: measured, a command that lists 50 jobs
    is done before gRPC would be imported (docs/performance.md). Raises ConnectFailed, UsageFailed for a URL or token
    that cannot be used.
    """
    from iris_core.client.calls import Credentials, token_from_environment
    from iris_core.client.endpoint import parse_url

    if target.through is not None:
        from iris_core.connect.tunnelled import TunnelledClient

        def inner(url: str) -> Client:
            return open_client(replace(target, url=url, through=None), transport=transport, note=note, context=context)

        return TunnelledClient(target.url, target.through, inner)
    endpoint = _of_this_machine(parse_url(target.url))
    credentials = Credentials(token_from_environment(), target.read_only, target.must_be, context)
    if transport == "grpc":
        from iris_core.client.grpc_client import GrpcClient

        return GrpcClient(endpoint, credentials, note=note)
    if transport == "http":
        from iris_core.client.http_client import HttpClient

        return HttpClient(endpoint, credentials, note=note)
    from iris_core.client.mixed import MixedClient

    return MixedClient(endpoint, credentials, note=note)


def open_async_client(target: Target, *, context: Callable[[], ClientContext] | None = None) -> AsyncClient:
    """A connection for the running event loop. Raises ConnectFailed, UsageFailed for a URL or token that cannot be
    used.
    """
    from iris_core.client.aio import GrpcAsyncClient
    from iris_core.client.calls import Credentials, token_from_environment
    from iris_core.client.endpoint import parse_url

    if target.through is not None:
        from iris_core.connect.tunnelled import TunnelledAsyncClient

        def inner(url: str) -> AsyncClient:
            return open_async_client(replace(target, url=url, through=None), context=context)

        return TunnelledAsyncClient(target.url, target.through, inner)
    return GrpcAsyncClient(
        _of_this_machine(parse_url(target.url)),
        Credentials(token_from_environment(), target.read_only, target.must_be, context),
    )


def _of_this_machine(endpoint: Endpoint) -> Endpoint:
    """`localhost` as the loopback address on which something listens: many machines know only 127.0.0.1 by that name.

    Connecting to a loopback address succeeds or is refused at once, so this may stand on an event loop.
    """
    if endpoint.host != "localhost" or endpoint.tls:
        return endpoint
    import socket

    for address in ("127.0.0.1", "::1"):
        try:
            socket.create_connection((address, endpoint.port), timeout=0.5).close()
        except OSError:
            continue
        return replace(endpoint, host=address)
    return endpoint
