"""The two inner servers and the public port in front of them (DESIGN §4, "One public port").

The inner ones listen on loopback with ports of their own; only the public port is known to anybody. Must never know a job.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as aio_health  # type: ignore[attr-defined]
from grpc_reflection.v1alpha import reflection

from iris_controller.boot import BootFailed
from iris_controller.http.app import create_app
from iris_controller.http.port import Link, PublicPort
from iris_controller.http.server import HttpServer
from iris_controller.options import DEFAULT_PORT, ServeOptions
from iris_controller.rpc.grpc_rpc import SERVER_OPTIONS, GrpcHandlers
from iris_core.wire.gen.iris.v1 import controller_pb2, logs_pb2, worker_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_controller.http.metrics import Metrics
    from iris_controller.http.proxy_socket import Proxy
    from iris_controller.rpc.auth import Authenticator
    from iris_controller.rpc.dispatch import Router

STREAMS_S = 2.0


class Servers:
    """All that listens. `start`, then `stop_listening`, `end_streams` and `close` in that order."""

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self.port: PublicPort

    def peer_of(self, inner: str) -> str | None:
        """The real peer of a connection to an inner server; None = it did not come through the port."""
        return self.port.peer_of(inner)

    def link_of(self, inner: str) -> Link | None:
        return self.port.link_of(inner)

    async def start(
        self,
        router: Router,
        authenticator: Authenticator,
        problems: Callable[[], list[str]],
        metrics: Metrics,
        proxy: Proxy,
        probation: Callable[[], bool] = lambda: False,
    ) -> None:
        """Raises BootFailed: the address cannot be listened on."""
        options = self._options
        self._grpc = grpc.aio.server(options=SERVER_OPTIONS)
        self._grpc.add_generic_rpc_handlers((GrpcHandlers(router, self.peer_of),))
        self._health = aio_health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        names = [
            d.full_name
            for module in (controller_pb2, worker_pb2, logs_pb2)
            for d in module.DESCRIPTOR.services_by_name.values()
        ]
        reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], self._grpc)
        grpc_port = self._grpc.add_insecure_port("127.0.0.1:0")
        await self._grpc.start()
        app = create_app(
            router,
            authenticator,
            self.link_of,
            problems=problems,
            metrics=metrics,
            allowed_hosts=options.config.allowed_hosts,
            proxy=proxy,
            probation=probation,
        )
        self._proxy = proxy
        self._http = HttpServer(app)
        http_target = self._http.bind()
        port = options.port
        if port is None:
            port = options.config.controller_port or (0 if options.embedded else DEFAULT_PORT)
        self.port = PublicPort(options.host, port, f"127.0.0.1:{grpc_port}", http_target)
        try:
            await self._http.start()
            await self.port.start()
        except OSError as error:
            # Where the cluster file names the port, workers and clients look for the controller there: an option would hide it.
            named = options.port is None and options.config.controller_port
            choose = "choose another port in the cluster file" if named else "choose another with --port"
            raise BootFailed(
                f"cannot listen: {error.strerror or error}",
                hint=f"{choose}, or stop what holds it"
                if error.errno == errno.EADDRINUSE
                else "give --host an address of this machine",
            ) from error
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)

    async def say_not_serving(self) -> None:
        await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)

    def stop_listening(self) -> None:
        self.port.stop_listening()

    async def end_streams(self) -> None:
        """Ends what is under way; streams get a moment."""
        await self._grpc.stop(STREAMS_S)
        await self._http.stop()
        await self._proxy.close()
        await self.port.close(0.5)
