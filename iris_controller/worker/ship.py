"""Pushes what is in the spool to the log store: one push in flight, at once when there is something, for ever.

A push that was not acknowledged is repeated as it is, to the next address; the store drops what it has. Nothing is taken out of
the spool before its acknowledgement. While a push is on its way the spool gathers the next, so batching needs no timer.

A line that the store refuses would be refused for ever, and the lines of every task behind it would wait: it is found by halving the
push, and a gap record stands for it. If even that is refused, the line is not what is wrong, and nothing is given up.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

import grpc

from iris_controller.worker import batches
from iris_controller.worker.attach import credentials, dial
from iris_controller.worker.config import now_ms
from iris_core.wire.gen.iris.v1 import logs_pb2, pipeline_pb2
from iris_core.wire.services import method

if TYPE_CHECKING:
    from pathlib import Path

    from iris_controller.worker.spool import Push, Spool

_log = logging.getLogger("iris.worker.ship")

PUSH_BYTES = 1024 * 1024
_TIMEOUT_S = 30.0
_FIRST_BACKOFF_S = 0.05
_LAST_BACKOFF_S = 5.0
_BEST_AGAIN_S = 30.0
"""How long a fallback is used before the best address is tried again."""


class Shipper:
    """See the module. `addresses` are tried in order (host:port, TLS or not); set them anew with `reach`."""

    def __init__(self, spool: Spool, token_file: Path | None) -> None:
        self._spool = spool
        self._token_file = token_file
        self._addresses: list[tuple[str, bool]] = []
        self._at = 0
        self._best_again = 0.0
        self._dialled = ("", False)
        self._channel: grpc.aio.Channel | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._told = ""
        self._in_flight: Push | None = None
        self._last_ack_at_ms = 0

    def health(self) -> pipeline_pb2.ShipperHealth:
        """How the spool is, and why nothing is delivered if it is so."""
        spool, now = self._spool, now_ms()
        waiting = self._in_flight is not None or not spool.empty
        return pipeline_pb2.ShipperHealth(
            spool_bytes=spool.size,
            spool_cap_bytes=spool.cap,
            waiting_bytes=spool.waiting_bytes if waiting else 0,
            lag_ms=max(0, now - _first_time_ms(self._in_flight.body, now)) if self._in_flight is not None else 0,
            lines=spool.lines,
            lost_lines=spool.lost,
            last_line_at_ms=spool.last_line_at_ms,
            last_ack_at_ms=self._last_ack_at_ms,
            problem=self._told,
            address=self._dialled[0],
        )

    def wake(self) -> None:
        """There is something in the spool."""
        self._idle.clear()
        self._wake.set()

    def reach(self, addresses: list[tuple[str, bool]]) -> None:
        """Where the log store is from now on, best first."""
        if addresses != self._addresses:
            self._addresses = addresses
            self._best_again = 0.0
        self._wake.set()

    async def shipped(self) -> None:
        """Waits until everything in the spool is acknowledged."""
        await self._idle.wait()

    async def run(self) -> None:
        """Ships for ever."""
        try:
            await self._ship()
        finally:
            await self._close_channel()

    async def _ship(self) -> None:
        while True:
            self._wake.clear()
            push = self._spool.take(PUSH_BYTES) if self._addresses else None
            if push is None:
                if self._addresses and self._spool.empty:
                    self._idle.set()
                await self._wake.wait()
                continue
            self._in_flight = push
            await self._deliver(push.body)
            self._in_flight = None
            self._last_ack_at_ms = now_ms()
            self._spool.ack(push)

    async def _deliver(self, body: bytes) -> None:
        backoff = _FIRST_BACKOFF_S
        loop = asyncio.get_running_loop()
        while True:
            if loop.time() >= self._best_again:
                self._at, self._best_again = 0, loop.time() + _BEST_AGAIN_S
            address = self._addresses[self._at % len(self._addresses)]
            try:
                await self._push(body, address)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.INVALID_ARGUMENT and await self._without(
                    body, _words(error), address
                ):
                    return
                problem = f"{error.code().name}: {_words(error)}"
            except (OSError, grpc.aio.UsageError) as error:
                problem = str(error)
            else:
                if self._told:
                    _log.info("lines are delivered again, to %s", address[0])
                    self._told = ""
                return
            if not self._told:
                _log.warning("cannot deliver lines to %s: %s (they stay in the spool)", address[0], problem)
                self._told = problem
            self._at = (self._at + 1) % len(self._addresses)
            await self._close_channel()
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))
            backoff = min(backoff * 2, _LAST_BACKOFF_S)

    async def _without(self, body: bytes, why: str, address: tuple[str, bool]) -> bool:
        """Delivers what was refused without the lines that are at fault. Returns False if it is not the line that is."""
        parts = batches.halves(body)
        if len(parts) > 1:
            for part in parts:
                await self._deliver(part)
            return True
        gap = batches.instead(body, f"{batches.REFUSED}: {why}")
        if gap is None:
            return False
        try:
            await self._push(gap, address)
        except (grpc.aio.AioRpcError, OSError, grpc.aio.UsageError):
            return False
        self._spool.lost += 1
        _log.error("a line is lost, %s: %s", batches.REFUSED, why)
        return True

    async def _push(self, body: bytes, address: tuple[str, bool]) -> logs_pb2.PushLogsResponse:
        if self._channel is None or self._dialled != address:
            await self._close_channel()
            self._channel, self._dialled = dial(address[0], tls=address[1]), address
        call = self._channel.unary_unary(
            method("LogService/PushLogs").path,
            request_serializer=_as_is,
            response_deserializer=logs_pb2.PushLogsResponse.FromString,
        )
        response: logs_pb2.PushLogsResponse = await call(
            body, timeout=_TIMEOUT_S, metadata=credentials(self._token_file)
        )
        return response

    async def _close_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)


def _first_time_ms(body: bytes, otherwise: int) -> int:
    """When the first line of a push was written."""
    pushed = logs_pb2.PushLogsRequest.FromString(body).batches
    return next((batch.entries[0].epoch_ms for batch in pushed if batch.entries), otherwise)


def _words(error: grpc.aio.AioRpcError) -> str:
    """The first line of what a call that failed says."""
    return (error.details() or "").partition("\n")[0]


def _as_is(body: bytes) -> bytes:
    return body
