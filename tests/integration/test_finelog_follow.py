"""Followers and searches of a running finelog under load: no gap, no repeat, bounded time and memory."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import pytest

from iris_core.wire.gen.iris.v1 import logs_pb2
from tests.integration.finelog_process import DEADLINE, EXACT, PREFIX, Finelog, finelog
from tests.unit.finelog_world import NOW_MS, batch, numbered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finelog]:
    """One process for the tests of this file, each under keys of its own."""
    with finelog(tmp_path_factory.mktemp("finelog")) as started:
        yield started


def follow(running: Finelog, source: str, scope: int, total: int, **fields: object) -> list[logs_pb2.StoredLine]:
    """Tail first, then on from the cursor, as a client does."""
    found: list[logs_pb2.StoredLine] = []
    answer = running.fetch(source, match_scope=scope, tail=True, max_lines=100_000, **fields)
    end = time.monotonic() + DEADLINE
    while True:
        found += answer.entries
        if len(found) >= total:
            return found
        assert time.monotonic() < end, f"{len(found)} of {total} lines"
        answer = running.fetch(source, match_scope=scope, cursor=answer.cursor, wait_ms=2000, max_lines=700, **fields)


@pytest.mark.parametrize("seed", range(2))
def test_followers_get_every_line_once_while_ranks_push(running: Finelog, seed: int) -> None:
    ranks, total = 6, 900
    job = f"/u/follow{seed}"

    def produce(rank: int) -> None:
        chance = random.Random(f"{seed}/{rank}")
        first = 0
        while first < total:
            size = min(chance.choice((1, 3, 20, 150)), total - first)
            running.push(
                numbered(size, first=first, key=f"{job}/{rank}:0", producer=f"f{seed}-{rank}", at_ms=NOW_MS + first)
            )
            if chance.random() < 0.2:
                # The answer was lost: the same lines once more, and a few old ones.
                again = max(0, first - 5)
                running.push(
                    numbered(size + first - again, first=again, key=f"{job}/{rank}:0", producer=f"f{seed}-{rank}")
                )
            first += size

    even = ranks * sum(1 for number in range(total) if number % 2 == 0)
    with ThreadPoolExecutor(ranks + 4) as pool:
        producers = [pool.submit(produce, rank) for rank in range(ranks)]
        whole = pool.submit(follow, running, job, PREFIX, ranks * total)
        one = pool.submit(follow, running, f"{job}/3:0", EXACT, total)
        some = pool.submit(follow, running, job, PREFIX, even, regex="[02468]$")
        for producer in producers:
            producer.result(DEADLINE)
        everything = {(f"{job}/{rank}:0", number) for rank in range(ranks) for number in range(total)}
        lines = whole.result(DEADLINE)
        assert len(lines) == len(everything) == len({line.seq for line in lines})
        assert {(line.key, line.number) for line in lines} == everything
        assert [line.number for line in one.result(DEADLINE)] == list(range(total))
        assert sorted(line.number for line in some.result(DEADLINE)) == sorted([*range(0, total, 2)] * ranks)


def test_a_follower_that_leaves_is_forgotten(running: Finelog) -> None:
    running.push(numbered(1, key="/u/leave/0:0", producer="leave"))
    cursor = running.fetch("/u/leave/0:0").cursor
    for _ in range(20):
        with pytest.raises(grpc.RpcError) as caught:
            running.call("FetchLogs", timeout=0.05)(
                logs_pb2.FetchLogsRequest(source="/u/leave/0:0", match_scope=EXACT, cursor=cursor, wait_ms=30_000)
            )
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    running.push(numbered(1, first=1, key="/u/leave/0:0", producer="leave"))
    assert running.fetch("/u/leave/0:0", cursor=cursor, wait_ms=5000).shown == 1


# What backtracking engines need exponential or quadratic time for.
EVIL = [
    "(a+)+$", "(a*)*$", "(a|a)+$", "(a|aa)+$", "(a|a?)+$", "(.*a){12}$", "(a+){10}x", "([a-zA-Z]+)*$", "(x+x+)+y", "^(a+)+b",
    "(a?){50}a{50}", "(.*)*b", "(.+)+b", "(a*a*)*b", "(?:a+)+[^a]", "(aa+)+$", "((a+)+)+$", "(a+b?)+$", "(\\w+\\s?)*$", "(\\d+)+$",
    "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*)(.*)(.*)(.*)[^a]", "a*a*a*a*a*a*b", "a*?a*?a*?a*?b", "(a|b|ab)*c", "(?i)(A+)+$", "(a{1,30}){1,30}$",
    "([^x]+)+x", "(.|a)+b", "(.|\\s)+b", "(\\s|\\S)*b", "^(a|.a)*$", "(a+|b+|c+)*d", "(.*?,){11}P", "(?:.*=.*)+;", "x*y*x*y*x*y*z",
    "(a.*a.*a.*a.*)+b", "[a-z]+[a-z]+[a-z]+[a-z]+[0-9]", ".*.*.*=.*", ".*(?:.*=.*)", "(?:(?:a|b)+)+c", "(aaaaa*)+b", "(a+)+(b+)+(c+)+$",
    "(?s)(.+)*\\z", "((ab)*)*c", "(a{0,40}){0,20}b", "(?:a?a?a?a?){10}b", "^(?:.?){40}b$", "(a|a|a|a|a)*b", "(?:[ab]+)*[cd]",
]  # fmt: skip


def test_no_pattern_makes_a_search_slow(running: Finelog) -> None:
    assert len(EVIL) == 50
    line = "a" * 200 + "!"
    for first in range(0, 2000, 500):
        running.push(batch([line] * 500, first=first, key="/u/evil/0:0", producer="evil"))

    def seconds(pattern: str) -> float:
        best = DEADLINE
        for _ in range(2):
            started = time.monotonic()
            answer = running.fetch("/u/evil/0:0", regex=pattern)
            best = min(best, time.monotonic() - started)
            assert answer.capped_reason == "" or "lines were asked for" in answer.capped_reason, pattern
        return best

    benign = max(seconds("b$"), seconds("[0-9]+x$"), 0.05)
    slow = {pattern: took for pattern in EVIL if (took := seconds(pattern)) > 5 * benign}
    assert not slow, f"benign: {benign}"


def test_a_pattern_that_is_too_large_is_refused(running: Finelog) -> None:
    for pattern in ("a" * 5000, "(((a{100}){100}){100})", "(?:a{500}){500}"):
        with pytest.raises(grpc.RpcError) as caught:
            running.fetch("/u/evil/0:0", regex=pattern)
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_slow_readers_cost_bounded_memory_and_hold_up_nobody(tmp_path: Path) -> None:
    with finelog(tmp_path) as running:
        for first in range(0, 40_000, 1000):
            running.push(batch(["x" * 1000] * 1000, first=first))

        def quick() -> float:
            started = time.monotonic()
            assert running.fetch("/u/j/0:0", tail=True, max_lines=100).shown == 100
            return time.monotonic() - started

        quick()
        before_bytes, calm = running.rss_bytes(), sorted(quick() for _ in range(20))[10]
        # Callers whose windows are full: each asked for as much as it can get, and takes nothing.
        sleeping = []
        for _ in range(60):
            stopped = StoppedReader(running.address)
            stopped.ask("/u/j/0:0")
            sleeping.append(stopped)
        for reader in sleeping:
            reader.wait_until_stuck()
        busy = sorted(quick() for _ in range(20))[10]
        grown = running.rss_bytes() - before_bytes
        for reader in sleeping:
            reader.close()
        assert grown < 200 << 20, f"{grown >> 20} MiB for 60 readers"
        assert busy < max(10 * calm, 0.5)


class StoppedReader:
    """A raw HTTP/2 client that sends one call and then reads no more than a few kilobytes of the answer."""

    PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

    def __init__(self, address: str) -> None:
        import socket

        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=DEADLINE)
        self._socket.sendall(self.PREFACE + self._frame(4, 0, 0, b""))

    @staticmethod
    def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload

    def ask(self, source: str) -> None:
        """Sends the request."""

        def literal(name: str, value: str) -> bytes:
            return b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()

        headers = b"".join(
            literal(*pair)
            for pair in (
                (":method", "POST"), (":scheme", "http"), (":path", "/iris.v1.LogService/FetchLogs"),
                (":authority", "test"), ("te", "trailers"), ("content-type", "application/grpc"),
            )
        )  # fmt: skip
        message = logs_pb2.FetchLogsRequest(source=source, match_scope=EXACT, max_lines=1_000_000).SerializeToString()
        body = b"\0" + len(message).to_bytes(4, "big") + message
        self._socket.sendall(self._frame(1, 4, 1, headers) + self._frame(0, 1, 1, body))

    def wait_until_stuck(self) -> None:
        """Reads the first 64 kB, all that the flow control lets through without a word from us."""
        taken = 0
        while taken < 60_000:
            data = self._socket.recv(65536)
            assert data, "the server hung up"
            taken += len(data)

    def close(self) -> None:
        self._socket.close()


def test_threads_end(running: Finelog) -> None:
    assert running.fetch("/u/none/0:0").shown == 0
    assert threading.active_count() < 50
