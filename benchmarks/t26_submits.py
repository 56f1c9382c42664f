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


async def measure() -> tuple[list[float], list[float], float, float]:
    """Seconds of each round, seconds of each submission, and for all of them the controller's processor time and the clients'."""
    async with controller(workers=0) as running:
        clients = [running.another_client() for _ in range(CLIENTS)]
        try:
            rounds: list[float] = []
            spent: list[float] = []
            cpu = clients_cpu = 0.0
            for round_ in range(ROUNDS + 1):
                spent_now: list[float] = []
                before, before_here, began = running.cpu_s(), time.process_time(), time.perf_counter()
                await asyncio.gather(
                    *(one_client(running, c, f"user{n}-{round_}", spent_now) for n, c in enumerate(clients))
                )
                if round_:
                    rounds.append(time.perf_counter() - began)
                    cpu += running.cpu_s() - before
                    clients_cpu += time.process_time() - before_here
                    spent += spent_now
            return rounds, spent, cpu, clients_cpu
        finally:
            for client in clients:
                await client.close()


def run(report: Report) -> None:
    rounds, spent, cpu, clients_cpu = asyncio.run(measure())
    count = CLIENTS * EACH
    rate = count / statistics.median(rounds)
    report.least("T26", f"acknowledged submissions from {CLIENTS} clients, durable", rate, "a second", 1_000)
    report.absolute("T26", "the same per second of the controller's processor time", count * ROUNDS / cpu, "a second")
    # Whoever submits takes his share of the same cores: a rate that does not hold may be theirs.
    report.absolute("T26", "processor time of one, the controller", cpu / (count * ROUNDS) * 1e6, "us")
    report.absolute("T26", "processor time of one, its client", clients_cpu / (count * ROUNDS) * 1e6, "us")
    ordered = sorted(spent)
    report.absolute("T26", "one submission, p50", ordered[len(ordered) // 2] * 1000, "ms")
    report.absolute("T26", "one submission, p99", ordered[len(ordered) * 99 // 100] * 1000, "ms")
