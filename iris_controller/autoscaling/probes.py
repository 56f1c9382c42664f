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
    import httpx

    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
            return (await client.get(f"http://{address}/health")).is_success
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


async def probe(addresses: Mapping[str, str], ask: Callable[[str], Awaitable[bool]] = healthy) -> dict[str, bool]:
    """Asks all of them, by worker id."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(address: str) -> bool:
        async with slots:
            return await ask(address)

    answers = await asyncio.gather(*(one(address) for address in addresses.values()))
    return dict(zip(addresses, answers, strict=True))
