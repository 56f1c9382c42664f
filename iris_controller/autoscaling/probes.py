"""Asks workers for `/health`: those whose stream is closed, and only where the provider says that they can be reached."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

TIMEOUT_S: Final = 3.0
AT_ONCE: Final = 64


async def healthy(address: str) -> bool:
    """Whether a worker at host:port answers `/health` with success in time."""
    import httpcore

    try:
        async with asyncio.timeout(TIMEOUT_S), httpcore.AsyncConnectionPool() as pool:
            answer = await pool.request("GET", f"http://{address}/health")
            return 200 <= answer.status < 300
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol, TimeoutError, ValueError):
        return False


async def probe(addresses: Mapping[str, str], ask: Callable[[str], Awaitable[bool]] = healthy) -> dict[str, bool]:
    """Asks all of them, by worker id."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(address: str) -> bool:
        async with slots:
            return await ask(address)

    answers = await asyncio.gather(*(one(address) for address in addresses.values()))
    return dict(zip(addresses, answers, strict=True))
