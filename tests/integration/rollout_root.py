"""Composition roots of the tests: the shipped command line and console, with a watch that is over sixty times as fast, and nothing else.

`python -m tests.integration.rollout_root cli|console WORDS…`. The clock ticks only while every cluster of `$IRIS_TEST_URLS` has a healthy worker
again, so that a watch of five seconds does not judge what a busy machine has not got to yet.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from iris_core.client.endpoint import parse_url
from iris_core.client.grpc_client import GrpcClient
from iris_core.contracts import IrisError
from iris_core.live.clock import SystemClock
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

FACTOR = 60.0
SETTLED_S = 90.0


class FastClock(SystemClock):
    """Sixty seconds in one."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls

    def monotonic(self) -> float:
        return time.monotonic() * FACTOR

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / FACTOR)
        for url in self._urls:
            await asyncio.to_thread(settled, url)


def settled(url: str) -> None:
    """Waits until the controller there has a healthy worker, or for so long."""
    deadline = time.monotonic() + SETTLED_S
    with GrpcClient(parse_url(url)) as client:
        while time.monotonic() < deadline:
            try:
                found = client.call(
                    "ControllerService/GetClusterStatus", pb.GetClusterStatusRequest(), pb.GetClusterStatusResponse, timeout_s=5
                )  # fmt: skip
            except IrisError:
                continue
            if found.workers_healthy:
                return
            time.sleep(0.05)


def main() -> int:
    which, *words = sys.argv[1:]
    clock = FastClock(os.environ.get("IRIS_TEST_URLS", "").split())
    if which == "cli":
        from iris_core.cli.main import run

        return run(words, clock=clock)
    raise SystemExit(f"{which} is no program of the tests")


if __name__ == "__main__":
    sys.exit(main())
