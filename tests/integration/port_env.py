"""The public port with everything behind it but the handlers, for tests: real sockets, stub answers.

Every RPC answers an empty message unless a test gives a handler of its own. Run as a program it serves until its standard input ends,
and prints one JSON line first: for tests that call from another process or network namespace.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import uvloop

from iris_controller.http.app import create_app
from iris_controller.http.metrics import Metrics
from iris_controller.http.port import Link, PublicPort
from iris_controller.http.server import HttpServer
from iris_controller.rpc.auth import Authenticator
from iris_controller.rpc.dispatch import Router
from iris_controller.rpc.grpc_rpc import SERVER_OPTIONS, GrpcHandlers
from iris_core.auth.keys import new_key
from iris_core.auth.tokens import KeySet, TokenSigner
from iris_core.wire.services import methods

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from iris_core.wire.services import Method

ADMIN = "root@example.org"


@dataclass
class Env:
    """A running port. `pretend` replaces the callers' real address; `current` holds the attempts that count as current."""

    port: PublicPort
    router: Router
    signer: TokenSigner
    pretend: list[str] = field(default_factory=list)
    current: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    served: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.port.url.removeprefix("http://")

    def link_of(self, inner: str) -> Link | None:
        link = self.port.link_of(inner)
        return link._replace(peer=self.pretend[0]) if link and self.pretend else link

    @asynccontextmanager
    async def channel(self, **options: int) -> AsyncIterator[Any]:
        """A gRPC connection of its own, of raw bytes unless a call says otherwise."""
        chosen = {"grpc.use_local_subchannel_pool": 1, "grpc.max_receive_message_length": -1} | options
        async with grpc.aio.insecure_channel(self.address, options=tuple(chosen.items())) as channel:
            yield channel


def stub(env: Env, method: Method) -> Callable[..., Any]:
    """A handler that answers nothing in particular."""

    async def one(request: Any, call: Any) -> Any:
        env.served.append(method.full_name)
        return method.response()

    async def many(request: Any, call: Any) -> AsyncIterator[Any]:
        env.served.append(method.full_name)
        yield method.response()

    return many if method.server_streaming else one


@asynccontextmanager
async def serving(
    handlers: dict[str, Callable[..., Any]] | None = None,
    *,
    host: str = "127.0.0.1",
    raw: dict[str, Callable[[], str]] | None = None,
    trusted: tuple[str, ...] = (),
    allowed_hosts: tuple[str, ...] = (),
    cluster: str = "",
    **options: Any,
) -> AsyncIterator[Env]:
    """Serves on a free port of `host`, as the controller of `cluster`; `raw` names services to pass through."""
    key = new_key()
    metrics = Metrics()
    env: Env

    def link_of(inner: str) -> Link | None:
        return env.link_of(inner)

    def peer_of(inner: str) -> str | None:
        link = env.link_of(inner)
        return None if link is None else link.peer

    authenticator = Authenticator(KeySet(key.public), trusted, [ADMIN], lambda uid: uid in env.current)
    router = Router(authenticator, metrics.observe, cluster)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((GrpcHandlers(router, peer_of),))
    inner_grpc = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    web = HttpServer()
    port = PublicPort(host, 0, inner_grpc, web.bind(), **options)
    env = Env(port, router, TokenSigner(key))
    web.app = create_app(
        router,
        authenticator,
        link_of,
        problems=lambda: env.problems,
        metrics=metrics,
        allowed_hosts=allowed_hosts,
    )
    for service, target in (raw or {}).items():
        router.add_raw(service, target)
    for name, handler in (handlers or {}).items():
        router.add(name, handler)
    for full_name in router.unserved():
        found = next(method for method in methods() if method.full_name == full_name)
        router.add(full_name, stub(env, found))
    await server.start()
    await web.start()
    await port.start()
    try:
        yield env
    finally:
        await port.close()
        await web.stop()
        await router.close()
        await server.stop(None)


def run(main: Coroutine[Any, Any, None], seconds: float = 100) -> None:
    """Runs a test on uvloop, as the controller does; nothing may be left over."""

    async def checked() -> None:
        async with asyncio.timeout(seconds):
            await main
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, left

    uvloop.run(checked())


async def _main(host: str) -> None:
    async with serving(host=host) as env:
        line = {"port": env.port.port, "token": env.signer.user_token("alice")}
        print(json.dumps(line), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1]))
