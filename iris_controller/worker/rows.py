"""How this worker's rows reach finelog: a connection for each push, since there is one now and then.

The store's own addresses come first, then the controller's port, which passes rows on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from iris_controller.stats.client import REFUSALS, CannotPush
from iris_controller.worker.attach import credentials, dial
from iris_core.wire.services import method

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_S = 10.0


class RowPush:
    """What a `StatsClient` pushes with. `addresses` are tried in order (host:port, TLS or not)."""

    def __init__(self, token_file: Path | None) -> None:
        self.addresses: list[tuple[str, bool]] = []
        self._token_file = token_file

    async def __call__(self, body: bytes) -> bytes:
        problem = "the controller has not said yet where it is"
        for target, tls in self.addresses:
            async with dial(target, tls=tls) as channel:
                call = channel.unary_unary(method("StatsService/WriteRows").path, bytes, bytes)
                try:
                    answer: bytes = await call(body, timeout=_TIMEOUT_S, metadata=credentials(self._token_file))
                    return answer
                except grpc.aio.AioRpcError as error:
                    problem = f"{error.code().name}: {(error.details() or '').partition(chr(10))[0]}"
                    if error.code().name in REFUSALS:
                        raise CannotPush(problem, refused=True) from None
        raise CannotPush(problem)
