"""How the controller's own rows reach finelog: through the channel that follows it wherever it is started again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.passthrough import PassThrough
from iris_controller.stats.client import REFUSALS, CannotPush
from iris_core.wire.services import method

if TYPE_CHECKING:
    from collections.abc import Callable

PUSH_S = 10.0


class StorePush:
    """What a `StatsClient` pushes with. `address` gives `host:port` of finelog as it is now, "" while there is none."""

    def __init__(self, address: Callable[[], str]) -> None:
        self._finelog = PassThrough(address, "the log store")

    async def __call__(self, body: bytes) -> bytes:
        try:
            answer, _ = await self._finelog.unary(method("StatsService/WriteRows"), body, PUSH_S)
        except RpcError as error:
            raise CannotPush(
                error.message, refused=error.status in REFUSALS, retry_s=error.retry_after_ms / 1000
            ) from error
        return answer

    async def close(self) -> None:
        await self._finelog.close()
