"""finelog killed without warning under load: what was acknowledged is there, once, in order, under the seq it had."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import grpc
import pytest

from iris_core.wire.gen.iris.v1 import logs_pb2
from tests.integration.finelog_process import DEADLINE, EXACT, PREFIX, Finelog
from tests.unit.finelog_world import NOW_MS, numbered

if TYPE_CHECKING:
    from pathlib import Path

JOB = "/u/kill"
RANKS = 4


class Producer(threading.Thread):
    """Pushes numbered lines, one push at a time, as a worker does: what was not acknowledged goes again."""

    def __init__(self, world: World, rank: int) -> None:
        super().__init__(name=f"rank {rank}")
        self.acknowledged = 0
        self._world = world
        self._rank = rank
        self._chance = random.Random(f"{world.seed}/{rank}")

    def run(self) -> None:
        while not self._world.ending.is_set():
            size = self._chance.choice((1, 2, 10, 200, 2000))
            batch = numbered(
                size,
                first=self.acknowledged,
                key=f"{JOB}/{self._rank}:0",
                producer=f"k{self._rank}",
                at_ms=NOW_MS + self.acknowledged,
            )
            try:
                mark = self._world.running.push(batch)[f"k{self._rank}"]
            except (grpc.RpcError, ValueError, AssertionError):
                self._world.ready.wait(DEADLINE)
                continue
            # More, if an earlier push was stored and killed before its answer.
            assert mark >= self.acknowledged + size
            self.acknowledged = mark


class Follower(threading.Thread):
    """Reads on from its cursor through every restart."""

    def __init__(self, world: World) -> None:
        super().__init__(name="follower")
        self.lines: list[tuple[str, int]] = []
        self.seqs: list[int] = []
        self.until = -1
        self._world = world

    def run(self) -> None:
        cursor = 0
        while not (0 <= self.until <= cursor):
            try:
                answer = self._world.running.fetch(JOB, match_scope=PREFIX, cursor=cursor, wait_ms=200)
            except (grpc.RpcError, ValueError, AssertionError) as error:
                if isinstance(error, grpc.Call):
                    assert error.code() is not grpc.StatusCode.OUT_OF_RANGE, "a cursor never runs ahead of what is kept"
                self._world.ready.wait(DEADLINE)
                continue
            self.lines += [(line.key, line.number) for line in answer.entries]
            self.seqs += [line.seq for line in answer.entries]
            cursor = answer.cursor


class World:
    """The process and whoever works with it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.running = Finelog(folder)
        self.ready = threading.Event()
        self.ending = threading.Event()
        self.producers = [Producer(self, rank) for rank in range(RANKS)]
        self.follower = Follower(self)

    def start(self) -> None:
        self.running.start()
        self.ready.set()

    def kill(self) -> None:
        self.ready.clear()
        self.running.kill()


@pytest.mark.timeout(3600)
@pytest.mark.soak
def test_nothing_acknowledged_is_lost_or_doubled_by_kill_nine(tmp_path: Path, soak: bool) -> None:
    rounds = 200 if soak else 12
    world = World(tmp_path, seed=11)
    chance = random.Random(11)
    boots: list[float] = []
    world.start()
    for thread in (*world.producers, world.follower):
        thread.start()
    for _ in range(rounds):
        # Not to wait for something: the moment of the kill is to be anywhere.
        time.sleep(chance.uniform(0.02, 0.4))
        world.kill()
        started = time.monotonic()
        world.start()
        boots.append(time.monotonic() - started)
    world.ending.set()
    for producer in world.producers:
        producer.join(DEADLINE)
        assert not producer.is_alive()
    acknowledged = {f"{JOB}/{rank}:0": producer.acknowledged for rank, producer in enumerate(world.producers)}
    end = world.running.fetch(JOB, match_scope=PREFIX, max_lines=1)
    world.follower.until = end.last_seq
    world.follower.join(DEADLINE)
    assert not world.follower.is_alive()

    for key, count in acknowledged.items():
        lines = world.running.page(key, match_scope=EXACT)
        numbers = [line.number for line in lines]
        # A push that was stored and killed before its answer went again, and was dropped then.
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= count > 0
        assert [line.data for line in lines] == [f"line {number}" for number in numbers]
        seqs = [line.seq for line in lines]
        assert seqs == sorted(set(seqs))
        assert sorted(number for found, number in world.follower.lines if found == key) == numbers
    assert len(set(world.follower.seqs)) == len(world.follower.seqs)
    assert world.running.stop() == 0
    assert not [line for line in world.running.said if "lost" in line or "Traceback" in line], world.running.said
    # R1: ready again within three seconds.
    boots.sort()
    assert boots[int(len(boots) * 0.95)] < 10.0, boots


@pytest.mark.timeout(3600)
@pytest.mark.soak
def test_a_follower_through_the_gate_of_a_kill_sees_no_line_twice(tmp_path: Path, soak: bool) -> None:
    """Right after each kill the follower's cursor is used against the reopened store."""
    running = Finelog(tmp_path)
    running.start()
    sent = cursor = 0
    seen: list[int] = []
    for _ in range(60 if soak else 5):
        for _ in range(10):
            running.push(numbered(7, first=sent, key=f"{JOB}/0:0", producer="k0"))
            sent += 7
        # One more whose fate is not known.
        running.stub("PushLogs").future(
            logs_pb2.PushLogsRequest(batches=[numbered(7, first=sent, key=f"{JOB}/0:0", producer="k0")])
        )
        answer = running.fetch(f"{JOB}/0:0", match_scope=EXACT, cursor=cursor)
        seen += [line.number for line in answer.entries]
        cursor = answer.cursor
        running.kill()
        running.start()
        sent = running.push(numbered(7, first=sent, key=f"{JOB}/0:0", producer="k0"))["k0"]
    seen += [line.number for line in running.fetch(f"{JOB}/0:0", match_scope=EXACT, cursor=cursor).entries]
    assert seen == list(range(sent))
    assert running.stop() == 0
