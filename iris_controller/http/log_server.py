"""`/proxy/system.log-server/health`: how the log store is, for those who only speak HTTP (DESIGN §5.19).

The store itself speaks gRPC, so the controller asks it. Must never pass on anything but its health.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER_S: Final = 3.0


class LogServerHealth:
    """`address` gives the store's `host:port`, "" while it does not serve."""

    def __init__(self, address: Callable[[], str]) -> None:
        self._address = address

    async def answer(self, path: bytes) -> tuple[int, bytes]:
        """Status and text of the page at `path`."""
        if path != b"/health":
            return 404, b"the log store is asked with: iris job logs, process logs\n"
        address = self._address()
        if not address:
            return 503, b"the log store is not serving\n"
        async with grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            try:
                answer = await health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(), timeout=ANSWER_S
                )
            except grpc.RpcError:
                return 503, b"the log store does not answer\n"
        serving = answer.status == health_pb2.HealthCheckResponse.SERVING
        return (200, b"ok\n") if serving else (503, b"the log store is not serving\n")
