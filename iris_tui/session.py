"""One cluster that the console is connected to: who we are there, how the connection stands, and the live jobs.

A session outlives the screens that show it, so that going to another cluster and back finds the old data, marked with its
age. Its connection is made on first use and again after it could not be made; nothing here waits for a dead side when the
console ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final

from iris_core.client.context import sending
from iris_core.contracts import ConnectFailed, Denied, IrisError, R
from iris_core.live.backoff import Backoff
from iris_core.live.jobtree import JobTree
from iris_core.live.waiting import first_of
from iris_core.live.watch import LinkState, Watch
from iris_tui.saved import Saved

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from iris_core.contracts import AsyncClient
    from iris_core.live.clock import Clock
    from iris_tui.screen import ConsoleScreen

ClientFactory = Callable[[], Awaitable["AsyncClient"]]
"""Makes a connection inside the running loop. Raises IrisError; it is asked again later."""

TOKEN_LOCK: Final = "the token of this console is read-only"
CLOSE_S: Final = 0.5
"""How long a connection gets to close."""


class LateClient:
    """An AsyncClient that is made with the first call, and made anew when that failed or the cluster has moved.

    `where` says at which URL the cluster listens now: a local cluster comes back at another port.
    """

    def __init__(self, factory: ClientFactory, where: Callable[[], Awaitable[str]] | None = None) -> None:
        self.url = ""
        self._factory = factory
        self._where = where
        self._made: asyncio.Task[AsyncClient] | None = None
        self.unknown = asyncio.Event()
        """Whoever we were is not known there any more: who we are is to be asked anew."""
        self.read_only = False
        """Whether every call asks the server to refuse changes."""
        self.offline: Callable[[], str] | None = None
        """What the header says of a checkpoint; None = a live cluster."""

    async def _client(self) -> AsyncClient:
        if self._made is None or (self._made.done() and (self._made.cancelled() or self._made.exception() is not None)):
            self._made = asyncio.create_task(self._make(), name="connect")
        # Shielded: many calls wait for the one connection, and one that is given up must not end it.
        client = await asyncio.shield(self._made)
        self.url = client.url
        return client

    async def _make(self) -> AsyncClient:
        return await self._factory()

    async def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        return await self.call_as(method, request, response, timeout_s=timeout_s, read_only=self.read_only)

    async def call_as(
        self, method: str, request: Message, response: type[R], *, read_only: bool, timeout_s: float = 30.0
    ) -> R:
        """As `call`, asking the server to refuse changes or not."""
        client = await self._client()
        try:
            with sending(read_only=read_only):
                return await client.call(method, request, response, timeout_s=timeout_s)
        except ConnectFailed:
            await self._leave_if_moved(client)
            raise
        except Denied as error:
            await self._leave_if_expired(client, error)
            raise

    async def stream(self, method: str, request: Message, response: type[R]) -> AsyncIterator[R]:
        client = await self._client()
        try:
            items = client.stream(method, request, response)
            # Only while it is opened: what is laid around a generator would leak into whoever reads from it.
            with sending(read_only=self.read_only):
                first = await anext(items, None)
            if first is not None:
                yield first
                async for item in items:
                    yield item
        except ConnectFailed:
            await self._leave_if_moved(client)
            raise
        except Denied as error:
            await self._leave_if_expired(client, error)
            raise

    async def _leave_if_expired(self, client: AsyncClient, error: Denied) -> None:
        """Whoever we are is not known there (any more): the next call connects anew, with the token as it is then."""
        if error.status == "UNAUTHENTICATED":
            self.unknown.set()
            await self._leave(client)

    async def _leave(self, client: AsyncClient) -> None:
        if self._made is not None and self._made.done() and self._made.result() is client:
            self._made = None
            await first_of(client.close(), asyncio.sleep(CLOSE_S))

    async def _leave_if_moved(self, client: AsyncClient) -> None:
        """Nobody answers there: if the cluster is elsewhere now, the next call goes there."""
        if self._where is None:
            return
        try:
            url = await self._where()
        except IrisError:
            return  # it is nowhere at present
        if url != client.url:
            await self._leave(client)

    async def close(self) -> None:
        """Close what was made, within CLOSE_S."""
        made = self._made
        if made is None:
            return
        if not made.done():
            made.cancel()
        elif not made.cancelled() and made.exception() is None:
            await first_of(made.result().close(), asyncio.sleep(CLOSE_S))


class Session:
    """A cluster by its name, and everything live that is known of it."""

    def __init__(
        self,
        name: str,
        factory: ClientFactory,
        clock: Clock,
        *,
        environment: str = "",
        read_only: bool = False,
        selector: str = "",
        where: Callable[[], Awaitable[str]] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.name = name
        self.environment = environment
        self.opened_read_only = read_only
        self.locked = ""
        """Why nothing can be changed whatever the operator says, "" = nothing is in the way."""
        self.selector = selector or f"--cluster={name}"
        """How a command line names this cluster."""
        self.clock = clock
        self.client = LateClient(factory, where)
        self._write_until: float | None = None
        self.set_read_only(read_only)
        self.way_out = ""
        """What to do where its controller does not answer, "" if no command is known to help."""
        self.saved = Saved()
        """What is remembered of this cluster from the last time."""
        self.tree = JobTree(self.client)
        self.watch = Watch(self.client, self.tree, clock, backoff=backoff)
        self.watch.select(self.tree.selectors())
        self.user = ""
        self.role = ""
        self.offline = False
        """Whether this is a checkpoint and no live cluster."""
        self.title = name
        """What the header calls it."""
        self.entrance: Callable[[], ConsoleScreen] | None = None
        """The screen to show until it can be entered, which enters it then."""

    @property
    def link(self) -> LinkState:
        """How the connection stands."""
        return self.watch.state

    @property
    def read_only(self) -> bool:
        """Whether nothing can be changed from here now."""
        return self.client.read_only or bool(self.locked)

    def set_read_only(self, on: bool, *, for_s: float | None = None) -> None:
        """Ask the server to refuse changes from now on, or no longer, the latter for a while only if `for_s` says so."""
        self.client.read_only = on
        self._write_until = None if on or for_s is None else self.clock.monotonic() + for_s

    @property
    def write_left_s(self) -> float | None:
        """Seconds until it is read-only again, None if no time is set."""
        return None if self._write_until is None else self._write_until - self.clock.monotonic()

    async def run(self) -> None:
        """Keep the subscription, for ever; learns who we are as soon as somebody answers. Cancel the task to end it."""
        await asyncio.gather(self.watch.run(), self._who())

    async def _who(self) -> None:
        """Learn who we are, and again whenever the login was refused meanwhile: the next token may be another principal's."""
        backoff = Backoff()
        while not self.offline:
            self.client.unknown.clear()
            from iris_core.wire.gen.iris.v1 import controller_pb2

            try:
                answer = await self.client.call_as(
                    "ControllerService/GetCurrentUser",
                    controller_pb2.GetCurrentUserRequest(),
                    controller_pb2.GetCurrentUserResponse,
                    read_only=False,  # else it would only say what it was asked
                )
            except IrisError:
                # The header says what is wrong with the connection; this is asked again in its own time.
                await self.clock.sleep(backoff.next_s())
                continue
            backoff.reset()
            self.user, self.role = answer.user_id, answer.role
            if self.locked in ("", TOKEN_LOCK):
                self.locked = TOKEN_LOCK if answer.read_only else ""
            await self.client.unknown.wait()
