"""The subscription: one Watch stream that is kept open for ever, whatever breaks.

It tells its sink what arrived and keeps, per selector, the revision that was applied, so that after a break only the
difference is sent and nothing on the screen blanks. It never touches a widget and never gives up: a refused login is a
state like a broken line, because a token can be renewed while the console is open. The age of the data is the age of the
last message; heartbeats keep it young on a quiet cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from iris_core.contracts import ConnectFailed, Denied, IrisError, RpcFailed
from iris_core.live.backoff import Backoff
from iris_core.live.faults import fault_text, is_refused
from iris_core.live.waiting import first_of
from iris_core.live.watch_keys import each

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from iris_core.live.clock import Clock
    from iris_core.wire.gen.iris.v1.common_pb2 import Revision
    from iris_core.wire.gen.iris.v1.controller_pb2 import WatchResponse, WatchRows

STALE_AFTER_S = 4.0
"""Without a message for this long (twice a heartbeat) what is shown counts as stale."""
SILENT_AFTER_S = 30.0
"""Without a message for this long the stream is given up and opened anew."""


class Link(StrEnum):
    """How the connection stands, in the words of the header."""

    CONNECTING = "CONNECTING"
    LIVE = "LIVE"
    STALE = "STALE"
    RECONNECTING = "RECONNECTING"
    DENIED = "DENIED"
    REFUSED = "REFUSED"
    """Somebody answers there, and does not give this: a controller of an earlier release may not know it."""
    OFFLINE = "OFFLINE"
    """A checkpoint, which never changes."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """`age_s` is the age of the last message in seconds, None before the first; `detail` says what went wrong last; `unknown`: DENIED
    because it is not known who asks, which a new token may change. One who is known and may not stays one who may not. `unreached`:
    RECONNECTING because nobody answers there, and nothing yet says what to do about it."""

    link: Link
    age_s: float | None = None
    detail: str = ""
    unknown: bool = False
    unreached: bool = False

    @property
    def fresh(self) -> bool:
        """Whether what is shown can be acted upon."""
        return self.link is Link.LIVE

    @property
    def current(self) -> bool:
        """Whether what is shown is all there is to know."""
        return self.link in (Link.LIVE, Link.OFFLINE)


@dataclass(frozen=True, slots=True)
class Selector:
    """What to watch. `id` is ours and comes back with every message."""

    id: str
    kind: int
    """`WatchKind`'s number."""
    filter: str = ""
    job_ids: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()
    """Of attempts: whose."""


def link_after(failure: IrisError) -> Link:
    """How the connection stands after a call failed."""
    if isinstance(failure, Denied):
        return Link.DENIED
    return Link.REFUSED if is_refused(failure) else Link.RECONNECTING


class WatchSink(Protocol):
    """Receives what the stream brings, on the event loop; must return quickly."""

    def apply(self, selector: str, rows: WatchRows) -> None:
        """Latest values and removed ids, in a snapshot or after one."""
        ...

    def complete(self, selector: str, present: set[str], total: int) -> None:
        """A snapshot is complete: of this selector's rows, those not in `present` are gone."""
        ...


class Watch:
    """Runs one subscription. `run()` ends only when its task is cancelled."""

    def __init__(self, client: AsyncClient, sink: WatchSink, clock: Clock, *, backoff: Backoff | None = None) -> None:
        self._client = client
        self._sink = sink
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._selectors: dict[str, Selector] = {}
        self._applied: dict[str, Revision] = {}
        self._partial: dict[str, set[str]] = {}
        self._changed = asyncio.Event()
        self._resting = False
        self._last_message: float | None = None
        self._broken: Link | None = None
        self._detail = ""
        self._unknown = False
        self._unreached = False

    # --- what the surface asks ---------------------------------------------------------------------------------------

    @property
    def state(self) -> LinkState:
        """How the connection stands now."""
        age = None if self._last_message is None else self._clock.monotonic() - self._last_message
        if self._broken is not None:
            return LinkState(self._broken, age, self._detail, self._unknown, self._unreached)
        if age is None:
            return LinkState(Link.CONNECTING)
        offline: Callable[[], str] | None = getattr(self._client, "offline", None)
        if offline is not None:
            return LinkState(Link.OFFLINE, age, offline())
        if age > STALE_AFTER_S:
            return LinkState(Link.STALE, age, "the controller is silent")
        return LinkState(Link.LIVE, age)

    def select(self, selectors: Iterable[Selector]) -> None:
        """Choose what to watch. The stream is opened anew; selectors that stay go on where they were."""
        wanted = {selector.id: selector for selector in selectors}
        if wanted == self._selectors:
            return
        for name in [name for name in self._applied if wanted.get(name) != self._selectors.get(name)]:
            del self._applied[name]
        self._selectors = wanted
        self._changed.set()

    def rest(self, *, on: bool = True) -> None:
        """Close the stream until it is wanted again; then it goes on from the revision that was applied."""
        if on is not self._resting:
            self._resting = on
            self._changed.set()

    def retry_now(self) -> None:
        """Do not wait for the next try."""
        self._changed.set()

    # --- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the subscription. Returns never; cancel the task to end it."""
        while True:
            while self._resting or not self._selectors:
                await self._changed.wait()
                self._changed.clear()
            self._changed.clear()
            failure = await self._one_stream()
            if failure is None:
                continue
            self._detail = fault_text(failure)
            self._broken = link_after(failure)
            self._unknown = isinstance(failure, Denied) and failure.status == "UNAUTHENTICATED"
            self._unreached = isinstance(failure, ConnectFailed) and not (failure.hint or failure.on_the_way)
            asked = failure.retry_after_ms / 1000 if isinstance(failure, RpcFailed) else 0.0
            await first_of(self._clock.sleep(self._backoff.next_s(at_least_s=asked)), self._changed.wait())

    async def _one_stream(self) -> IrisError | None:
        """Read one stream until it breaks (returns why) or is to be opened anew (returns None)."""
        self._partial.clear()
        pump = asyncio.ensure_future(self._pump())
        await first_of(pump, self._changed.wait(), self._silence())
        if pump.done() and not pump.cancelled():
            return pump.result()
        if self._changed.is_set():
            return None
        return IrisError(f"no message for {SILENT_AFTER_S:.0f} s")

    async def _pump(self) -> IrisError:
        from iris_core.wire.gen.iris.v1 import controller_pb2

        request = controller_pb2.WatchRequest()
        for selector in self._selectors.values():
            request.selectors.add(
                id=selector.id,
                kind=selector.kind,
                filter=selector.filter,
                job_ids=selector.job_ids,
                task_ids=selector.task_ids,
                resume=self._applied.get(selector.id),
            )
        try:
            async for message in self._client.stream("ControllerService/Watch", request, controller_pb2.WatchResponse):
                self._last_message = self._clock.monotonic()
                self._broken = None
                self._backoff.reset()
                self._take(message)
        except IrisError as error:
            return error
        return IrisError("the controller ended the stream")

    async def _silence(self) -> None:
        """Returns once nothing has come for too long since this stream was opened."""
        opened = self._clock.monotonic()
        while True:
            last = max(opened, self._last_message or 0.0)
            left = last + SILENT_AFTER_S - self._clock.monotonic()
            if left <= 0:
                return
            await self._clock.sleep(left)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _take(self, message: WatchResponse) -> None:
        event = message.WhichOneof("event")
        if event == "snapshot":
            page = message.snapshot
            name = page.rows.selector_id
            if name not in self._selectors:
                return
            self._applied.pop(name, None)
            self._partial.setdefault(name, set())
            self._rows(page.rows)
            if page.last:
                self._sink.complete(name, self._partial.pop(name), page.total_count)
                self._applied[name] = page.revision
        elif event == "delta":
            for rows in message.delta.rows:
                self._rows(rows)
            self._advance(message.delta.revision)
        elif event == "heartbeat":
            self._advance(message.heartbeat.revision)
        elif event == "resync":
            for name in [message.resync.selector_id] if message.resync.selector_id else list(self._selectors):
                self._applied.pop(name, None)
                self._partial.pop(name, None)

    def _rows(self, rows: WatchRows) -> None:
        name = rows.selector_id
        if name not in self._selectors:
            return
        present = self._partial.get(name)
        if present is not None:
            present.update(row_id for _, row_id, _ in each(rows))
            present.difference_update(rows.removed)
        self._sink.apply(name, rows)

    def _advance(self, revision: Revision) -> None:
        """Selectors whose snapshot is complete have now seen everything up to this revision."""
        for name in self._applied:
            self._applied[name] = revision
