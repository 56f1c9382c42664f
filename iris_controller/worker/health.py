"""`GET /health` on loopback: the only thing that ever listens here."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT_S = 5.0


async def serve(port: int, state: Callable[[], dict[str, Any]]) -> tuple[asyncio.Server, int]:
    """Listens on 127.0.0.1 (`port` 0 = any). Returns the server and its port. Raises OSError."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_LIMIT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                found = head.split(b" ", 2)[:2] in ([b"GET", b"/health"], [b"HEAD", b"/health"])
                body = json.dumps(state() if found else {"error": "only /health is here"}).encode()
                status = b"200 OK" if found else b"404 Not Found"
                writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-type: application/json\r\nconnection: close\r\n")
                writer.write(b"content-length: %d\r\n\r\n" % len(body))
                if not head.startswith(b"HEAD"):
                    writer.write(body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked is gone, or does not speak HTTP
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port, limit=8192)
    return server, server.sockets[0].getsockname()[1]
