"""T26: acknowledged submissions per second from sixteen clients, each one waiting for its answer; every one is on the disk by then."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.controller_process import Running, controller, request

if TYPE_CHECKING:
    from benchmarks.measure import Report
    from iris_core.client.aio import GrpcAsyncClient

CLIENTS = 16
EACH = 60
ROUNDS = 5


async def one_client(running: Running, client: GrpcAsyncClient, label: str, spent: list[float]) -> None:
    for number in range(EACH):
        began = time.perf_counter()
        await running.launch(request(f"/{label.partition('-')[0]}/{label}-{number}"), client)
        spent.append(time.perf_counter() - began)


async def measure() -> tuple[list[float], list[float], float]:
    """Seconds of each round, seconds of each submission, and the controller's processor time for all."""
    async with controller(workers=0) as running:
        clients = [running.another_client() for _ in range(CLIENTS)]
        try:
            rounds: list[float] = []
            spent: list[float] = []
            cpu = 0.0
            for round_ in range(ROUNDS + 1):
                spent_now: list[float] = []
                before, began = running.cpu_s(), time.perf_counter()
                await asyncio.gather(
                    *(one_client(running, c, f"user{n}-{round_}", spent_now) for n, c in enumerate(clients))
                )
                if round_:
                    rounds.append(time.perf_counter() - began)
                    cpu += running.cpu_s() - before
                    spent += spent_now
            return rounds, spent, cpu
        finally:
            for client in clients:
                await client.close()


def run(report: Report) -> None:
    rounds, spent, cpu = asyncio.run(measure())
    count = CLIENTS * EACH
    rate = count / statistics.median(rounds)
    report.least("T26", f"acknowledged submissions from {CLIENTS} clients, durable", rate, "a second", 1_000)
    report.absolute("T26", "the same per second of the controller's processor time", count * ROUNDS / cpu, "a second")
    ordered = sorted(spent)
    report.absolute("T26", "one submission, p50", ordered[len(ordered) // 2] * 1000, "ms")
    report.absolute("T26", "one submission, p99", ordered[len(ordered) * 99 // 100] * 1000, "ms")
