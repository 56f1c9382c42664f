"""Two connections joined so that each hears what the other says.

Bytes pass as they come, in both directions at once; when one side cannot take more, the other is not read; when one side has said all,
the other is told so and may go on talking. Must never look at a byte, and never hold more than one read beyond a side's write buffer.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_LINGER_S = 10.0
LOOK_S = 15.0
"""How often it is seen to whether a side that has said all is still there."""
_TCP_CLOSE = 7
_NO_LINGER = struct.pack("ii", 1, 0)


class End(asyncio.Protocol):
    """One side. `lost` is called once, when its connection is gone."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self.transport: asyncio.Transport
        self.other: End
        self.ended = False
        self.gone = False
        self._lost = lost

    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)

    def eof_received(self) -> bool:
        self.ended = True
        if self.other.ended:
            self.transport.close()
            self.other.transport.close()
        else:
            if not self.other.transport.is_closing():
                self.other.transport.write_eof()
            self._look()
        # The connection stays open for what the other side still says.
        return True

    def _look(self) -> None:
        # Nothing is read from it any more, so nobody else hears that the kernel gave it up.
        if self.gone or self.transport.is_closing():
            return
        if given_up(self.transport):
            self.transport.abort()
            self.other.break_off()
        else:
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def pause_writing(self) -> None:
        if not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        self._lost()
        if self.other.gone:
            return
        if exc is None and self.ended:
            # What it said is on its way; the other side may still read it.
            self.other.transport.close()
        else:
            self.other.break_off()

    def break_off(self) -> None:
        """Ends the connection so that its peer learns at once that this was no orderly end."""
        if not self.transport.is_closing():
            reset(self.transport.get_extra_info("socket"))
        self.transport.abort()


def given_up(transport: asyncio.Transport) -> bool:
    """Whether the kernel has ended a connection of which nothing is read any more."""
    sock: socket.socket = transport.get_extra_info("socket")
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE


def reset(sock: socket.socket) -> None:
    """Makes the close of a connection a reset. An end alone would leave its peer free to go on talking."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


class InnerEnd(End):
    """The side of our own server, made before it is connected, joined with the public side the moment it is.

    `head` is what the public side, whose reading is paused, has said so far. `outer_lost` and `inner_lost` are called when the
    respective connection is gone.
    """

    def __init__(
        self,
        public: asyncio.Transport,
        head: bytes,
        *,
        outer_lost: Callable[[], None],
        inner_lost: Callable[[], None],
    ) -> None:
        super().__init__(inner_lost)
        self.other = End(outer_lost)
        self.other.other = self
        self.other.transport = public
        self._head = head

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not a check: uvloop's transports are no subclass of asyncio's.
        self.transport = transport = cast("asyncio.Transport", transport)
        public = self.other.transport
        if public.is_closing():
            # It left while we dialled; its own protocol keeps the books.
            self.other.gone = True
            transport.abort()
            return
        public.set_protocol(self.other)
        transport.write(self._head)
        self._head = b""
        public.resume_reading()

    def eof_received(self) -> bool:
        # Our servers close whole connections: what is left is to deliver, and then to wait a little for the caller to close too.
        asyncio.get_running_loop().call_later(_LINGER_S, self._linger)
        return super().eof_received()

    def _linger(self) -> None:
        if self.other.gone:
            return
        if self.other.transport.get_write_buffer_size() > 0:
            asyncio.get_running_loop().call_later(_LINGER_S, self._linger)
        else:
            self.other.transport.abort()
