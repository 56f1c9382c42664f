"""Composition roots of the tests: the shipped command line and console, with a watch that is over sixty times as fast, and nothing else.

`python -m tests.integration.rollout_root cli|console WORDS…`. The clock ticks only while every cluster whose file `$IRIS_TEST_CONFIGS` names has a
healthy worker again, so that a watch of five seconds does not judge what a busy machine has not got to yet.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING

from iris_core.cli.tunnels import open_tunnel
from iris_core.connect import open_client, resolve
from iris_core.contracts import IrisError
from iris_core.live.clock import SystemClock
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from iris_core.contracts import Client

FACTOR = 60.0
SETTLED_S = 90.0


class FastClock(SystemClock):
    """Sixty seconds in one."""

    def __init__(self, configs: list[str]) -> None:
        self._configs = configs
        self._clients: dict[str, Client] = {}

    def monotonic(self) -> float:
        return time.monotonic() * FACTOR

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / FACTOR)
        for config in self._configs:
            await asyncio.to_thread(self._settled, config)

    def _settled(self, config: str) -> None:
        """Waits until the controller of that file has a healthy worker, or for so long."""
        deadline = time.monotonic() + SETTLED_S
        request = pb.GetClusterStatusRequest()
        while time.monotonic() < deadline:
            try:
                if config not in self._clients:
                    self._clients[config] = open_client(resolve(config=config, tunnels=open_tunnel))
                found = self._clients[config].call(
                    "ControllerService/GetClusterStatus", request, pb.GetClusterStatusResponse, timeout_s=5
                )
                if found.workers_healthy:
                    return
            except IrisError:
                self._clients.pop(config, None)
            time.sleep(0.05)

    def close(self) -> None:
        """Ends its connections."""
        for client in self._clients.values():
            client.close()


def main() -> int:
    which, *words = sys.argv[1:]
    clock = FastClock(os.environ.get("IRIS_TEST_CONFIGS", "").split(os.pathsep))
    try:
        if which == "cli":
            from iris_core.cli.main import run as run_command

            return run_command(words, clock=clock)
        from iris_tui.main import run as run_console

        return run_console(words, clock=clock)
    finally:
        clock.close()


if __name__ == "__main__":
    sys.exit(main())
