"""The connection to a workload's websocket, which cannot keep the controller's loop busy.

The library takes all frames out of a read at once, and a read may hold a hundred thousand of two bytes each, which it also answers if they
are pings. Here a read is taken apart piece by piece, with a turn for everybody else in between. Must never drop or reorder a byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from websockets.asyncio.client import ClientConnection

if TYPE_CHECKING:
    import asyncio

PIECE: Final = 4096
MAX_UNREAD: Final = 1 << 20
"""Answers to pings and the like that a workload may leave unread."""


class Workload(ClientConnection):
    """See the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rest = b""
        self._feeding: asyncio.Handle | None = None
        self._ended = False

    def data_received(self, data: bytes) -> None:
        self._rest += data
        if self._feeding is None:
            self._feed()
        else:
            self._pause()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        if self._feeding is None:
            super().eof_received()
            return None
        self._ended = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._feeding is not None:
            self._feeding.cancel()
            self._feeding = None
        super().connection_lost(exc)

    def _feed(self) -> None:
        self._feeding = None
        piece, self._rest = self._rest[:PIECE], self._rest[PIECE:]
        super().data_received(piece)
        if self.transport.get_write_buffer_size() > self.write_limit_high + MAX_UNREAD:
            self.transport.abort()
        elif self._rest:
            self._pause()
            self._feeding = self.loop.call_soon(self._feed)
        elif self._ended:
            super().eof_received()
            self.transport.close()
        elif not self.recv_messages.paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _pause(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()
