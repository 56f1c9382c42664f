"""The spool against a model: whatever is killed, cut off or full, no line is doubled and every missing number is a gap record."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from iris_controller.worker import segments
from iris_controller.worker.batches import Line
from iris_controller.worker.spool import Producer, Push, Spool
from iris_core.wire.gen.iris.v1 import logs_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator


class Store:
    """A log store by the rule: per producer, what is below the mark is dropped, of a gap record too."""

    def __init__(self) -> None:
        self.lines: dict[str, dict[int, str]] = {}
        self.gaps: dict[str, set[int]] = {}
        self.next: dict[str, int] = {}
        self.keys: dict[str, str] = {}

    def push(self, body: bytes) -> None:
        for batch in logs_pb2.PushLogsRequest.FromString(body).batches:
            name = batch.producer
            self.keys[name] = batch.key
            for entry in batch.entries:
                mark = self.next.setdefault(name, 0)
                end = entry.number + max(1, entry.gap)
                if end <= mark:
                    continue
                assert entry.number <= mark, "a jump without a gap record"
                if entry.gap:
                    self.gaps.setdefault(name, set()).update(range(mark, end))
                else:
                    self.lines.setdefault(name, {})[entry.number] = entry.data
                self.next[name] = end


def ship(spool: Spool, store: Store, limit: int = 1 << 20) -> None:
    while (push := spool.take(limit)) is not None:
        store.push(push.body)
        spool.ack(push)


def lines(*texts: str) -> list[Line]:
    return [Line("stdout", text) for text in texts]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def spools(folder: Path) -> Iterator[list[Spool]]:
    made: list[Spool] = []
    yield made
    for spool in made:
        spool.shut()


def opened(folder: Path, spools: list[Spool], cap: int = 1 << 20) -> tuple[Spool, list[Producer]]:
    spool = Spool(folder, cap)
    spools.append(spool)
    return spool, spool.recover()


def test_lines_go_out_as_they_came(folder: Path, spools: list[Spool]) -> None:
    spool, left = opened(folder, spools)
    assert left == [] and spool.take(100) is None
    one, two = spool.open("p1", "/u/j/0:0", "p1", 7), spool.open("p2", "/system/worker/w")
    spool.append(one, [Line("stderr", "a\0�", b"a\0\xff", 4, True)], 1234)
    spool.append(two, lines("x"), 1)
    spool.append(one, lines("b", "c"), 1235)
    assert not spool.empty
    push = spool.take(1 << 20)
    assert push is not None and spool.empty
    request = logs_pb2.PushLogsRequest.FromString(push.body)
    assert [(batch.producer, [entry.data for entry in batch.entries]) for batch in request.batches] == [
        ("p1", ["a\0�"]), ("p2", ["x"]), ("p1", ["b", "c"]),
    ]  # fmt: skip
    first = request.batches[0]
    assert (first.key, first.attempt_uid, first.incarnation) == ("/u/j/0:0", "p1", 7)
    entry = first.entries[0]
    assert (entry.number, entry.epoch_ms, entry.source) == (0, 1234, "stderr")
    assert (entry.raw, entry.level, entry.partial) == (b"a\0\xff", 4, True)
    spool.ack(push)
    assert spool.take(1 << 20) is None and one.next == 3


def test_a_restart_goes_on_with_the_numbers_and_ships_what_was_not_acknowledged(
    folder: Path, spools: list[Spool]
) -> None:
    spool, _ = opened(folder, spools)
    store = Store()
    alive, ended, silent = (spool.open(name, f"/{name}") for name in ("alive", "ended", "silent"))
    spool.append(alive, lines("0", "1"), 1)
    ship(spool, store)
    spool.append(alive, lines("2"), 1)
    spool.append(ended, lines("last"), 1)
    spool.close(ended)
    again, left = opened(folder, spools)
    assert {(p.identity.producer, p.next) for p in left} == {("alive", 3), ("silent", 0)}
    for producer in left:
        again.append_gap(producer, 1, "killed", 5)
        again.close(producer)
    ship(again, store)
    assert store.lines == {"alive": {0: "0", 1: "1", 2: "2"}, "ended": {0: "last"}}
    assert store.gaps == {"alive": {3}, "silent": {0}}
    third, left = opened(folder, spools)
    assert left == []
    assert third.take(1 << 20) is None, "an acknowledged line is not sent again"
    assert silent.next == 0


def test_acknowledged_segments_are_deleted(folder: Path, spools: list[Spool]) -> None:
    spool, _ = opened(folder, spools, cap=1 << 20)
    store = Store()
    producer = spool.open("p", "/p")
    for _ in range(40):
        spool.append(producer, lines("x" * 30_000), 1)
        ship(spool, store)
    assert spool.size < 400_000
    assert sum(path.stat().st_size for path in folder.iterdir()) == spool.size
    assert len(store.lines["p"]) == 40


def test_a_full_spool_loses_the_oldest_and_says_how_many(folder: Path, spools: list[Spool]) -> None:
    spool, _ = opened(folder, spools, cap=64 * 1024)
    store = Store()
    producer, quiet = spool.open("p", "/p"), spool.open("q", "/q")
    spool.append(quiet, lines("early"), 1)
    for number in range(100):
        spool.append(producer, lines(f"{number} " + "x" * 2000), 1)
    assert spool.size <= 64 * 1024
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 64 * 1024
    ship(spool, store)
    kept = store.lines["p"]
    assert max(kept) == 99 and 15 < len(kept) < 40
    assert store.gaps["p"] == set(range(100)) - set(kept)
    assert store.gaps["q"] == {0} and "q" not in store.lines


def test_the_gap_of_a_full_spool_survives_a_kill(folder: Path, spools: list[Spool]) -> None:
    spool, _ = opened(folder, spools, cap=64 * 1024)
    producer = spool.open("p", "/p")
    other = spool.open("gone", "/gone")
    spool.append(other, lines("a"), 1)
    spool.close(other)
    for number in range(60):
        spool.append(producer, lines(f"{number} " + "x" * 2000), 1)
    again, left = opened(folder, spools, cap=64 * 1024)
    assert [(p.identity.producer, p.next) for p in left] == [("p", 60)]
    bodies = []
    while (push := again.take(1 << 20)) is not None:
        bodies.append(logs_pb2.PushLogsRequest.FromString(push.body))
        again.ack(push)
    seen: dict[str, set[int]] = {}
    for body in bodies:
        for batch in body.batches:
            for entry in batch.entries:
                numbers = range(entry.number, entry.number + max(1, entry.gap))
                seen.setdefault(batch.producer, set()).update(numbers)
    assert seen["p"] == set(range(60)) and seen["gone"] == {0}


@pytest.mark.parametrize("arrived", [False, True])
def test_a_push_on_its_way_when_its_segment_goes_is_told_by_the_next_worker(
    folder: Path, spools: list[Spool], arrived: bool
) -> None:
    spool, _ = opened(folder, spools, cap=64 * 1024)
    producer = spool.open("p", "/p")
    spool.append(producer, lines("0", "1"), 1)
    spool.append(producer, lines("2"), 1)
    flying = spool.take(1)
    assert flying is not None
    for number in range(3, 60):
        spool.append(producer, lines(f"{number} " + "x" * 2000), 1)
    store = Store()
    if arrived:
        store.push(flying.body)
    again, _ = opened(folder, spools, cap=64 * 1024)
    ship(again, store)
    assert set(store.lines["p"]) | store.gaps["p"] == set(range(60))
    assert ({0, 1} <= set(store.lines["p"])) == arrived
    assert 2 in store.gaps["p"] and store.next["p"] == 60


def test_a_full_disk_loses_the_newest_and_says_how_many(
    folder: Path, spools: list[Spool], monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, _ = opened(folder, spools)
    store = Store()
    producer, late = spool.open("p", "/p"), spool.open("late", "/late")
    spool.append(producer, lines("0"), 1)
    real = os.write
    monkeypatch.setattr(os, "write", _no_space)
    spool.append(producer, lines("1", "2"), 1)
    spool.append(late, lines("x"), 1)
    spool.close(late)
    spool.append(producer, lines("3"), 1)
    ship(spool, store)
    assert store.lines == {"p": {0: "0"}}
    assert store.gaps == {"p": {1, 2, 3}, "late": {0}}
    spool.append(producer, lines("4"), 1)
    monkeypatch.setattr(os, "write", real)
    spool.append(producer, lines("5"), 1)
    ship(spool, store)
    assert store.lines["p"] == {0: "0", 5: "5"} and store.gaps["p"] == {1, 2, 3, 4}
    assert producer.next == 6


def test_a_write_cut_short_by_a_full_disk_leaves_no_torn_record(
    folder: Path, spools: list[Spool], monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, _ = opened(folder, spools)
    store = Store()
    producer = spool.open("p", "/p")
    spool.append(producer, lines("0"), 1)
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:10]))
    spool.append(producer, lines("1"), 1)
    monkeypatch.setattr(os, "write", real)
    spool.append(producer, lines("2"), 1)
    ship(spool, store)
    assert store.lines["p"] == {0: "0", 2: "2"} and store.gaps["p"] == {1}


def test_a_spool_that_cannot_be_made_yet_starts_when_it_can(tmp_path: Path, spools: list[Spool]) -> None:
    blocker = tmp_path / "spool"
    blocker.write_text("a file where the folder should be")
    spool = Spool(blocker, 1 << 20)
    spools.append(spool)
    store = Store()
    producer = spool.open("p", "/p")
    spool.append(producer, lines("0"), 1)
    blocker.unlink()
    spool.append(producer, lines("1"), 1)
    ship(spool, store)
    assert store.lines["p"] == {1: "1"} and store.gaps["p"] == {0}


def test_damage_in_the_middle_becomes_a_gap(folder: Path, spools: list[Spool]) -> None:
    spool, _ = opened(folder, spools, cap=64 * 1024)
    producer = spool.open("p", "/p")
    for number in range(12):
        spool.append(producer, lines(f"{number} " + "x" * 2000), 1)
    numbers = segments.numbers(str(folder))
    assert len(numbers) > 2
    victim = Path(segments.path(str(folder), numbers[1]))
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0xFF
    victim.write_bytes(data)
    again, left = opened(folder, spools, cap=64 * 1024)
    assert left[0].next == 12
    store = Store()
    ship(again, store)
    assert set(store.lines["p"]) | store.gaps["p"] == set(range(12))
    assert 0 < len(store.gaps["p"]) < 12


def _no_space(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_all_but_full_is_said_now_and_then_and_not_with_every_line(
    folder: Path, spools: list[Spool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool, _ = opened(folder, spools)
    producer = spool.open("p", "/p")
    write = os.write
    for number in range(50):
        monkeypatch.setattr("iris_controller.worker.spool.os.write", _no_space if number % 2 else write)
        spool.append(producer, lines(f"{number}"), 1)
    monkeypatch.undo()
    said = [record.getMessage() for record in caplog.records if "spool" in record.name]
    assert any(line.startswith("output is being lost") for line in said)
    assert len(said) == 2, "the first trouble and the first recovery"


class SpoolMachine(RuleBasedStateMachine):
    """Appends, pushes, lost answers, kills with a torn tail, and a full disk, in any order."""

    producers: Bundle[str] = Bundle("producers")

    @initialize()
    def start(self) -> None:
        import tempfile

        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name) / "spool"
        self.store = Store()
        self.written: dict[str, list[str]] = {}
        self.handles: dict[str, Producer] = {}
        self.lossy: set[str] = set()
        self.push: Push | None = None
        self.count = 0
        self.spool = Spool(self.folder, 32 * 1024)
        self.spool.recover()

    @rule(target=producers)
    def open(self) -> str:
        self.count += 1
        name = f"p{self.count}"
        self.handles[name] = self.spool.open(name, f"/{name}")
        self.written[name] = []
        return name

    @rule(name=producers, count=st.integers(1, 5), size=st.sampled_from([1, 100, 3000]))
    def append(self, name: str, count: int, size: int) -> None:
        if name in self.handles:
            texts = [f"{name} {len(self.written[name]) + step} " + "x" * size for step in range(count)]
            self.spool.append(self.handles[name], lines(*texts), 1)
            self.written[name] += texts

    @rule(name=consumes(producers))
    def close(self, name: str) -> None:
        if name in self.handles:
            self.spool.close(self.handles.pop(name))

    @rule(limit=st.sampled_from([1, 2000, 1 << 20]))
    def take(self, limit: int) -> None:
        if self.push is None:
            self.push = self.spool.take(limit)

    @rule()
    def delivered(self) -> None:
        if self.push is not None:
            self.store.push(self.push.body)
            self.spool.ack(self.push)
            self.push = None

    @rule()
    def delivered_but_the_answer_is_lost(self) -> None:
        if self.push is not None:
            self.store.push(self.push.body)

    @rule(torn=st.integers(0, 200))
    def kill(self, torn: int) -> None:
        """What was appended is there after a kill; only the very last write may be torn."""
        self.spool.shut()
        self.push = None
        last = Path(segments.path(str(self.folder), segments.numbers(str(self.folder))[-1]))
        if torn > 150:
            with last.open("ab") as file:
                file.write(os.urandom(torn))
        self.spool = Spool(self.folder, 32 * 1024)
        for producer in self.spool.recover():
            name = producer.identity.producer
            assert producer.next == len(self.written[name])
            self.spool.append_gap(producer, 1, "killed", 1)
            self.spool.close(producer)
            self.written[name].append("")
            self.lossy.add(name)
            del self.handles[name]
        assert not self.handles

    @invariant()
    def within_the_cap(self) -> None:
        assert self.spool.size <= 32 * 1024 + 20_000

    def teardown(self) -> None:
        if not hasattr(self, "spool"):
            return
        if self.push is not None:
            self.store.push(self.push.body)
            self.spool.ack(self.push)
        ship(self.spool, self.store)
        self.spool.shut()
        self.temporary.cleanup()
        for name, texts in self.written.items():
            got = self.store.lines.get(name, {})
            lost = self.store.gaps.get(name, set())
            assert set(got) | lost == set(range(len(texts))), f"{name}: a number is neither a line nor a gap"
            assert not set(got) & lost
            assert all(text == texts[number] for number, text in got.items())


SpoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSpoolMachine = SpoolMachine.TestCase


def test_lines_of_a_closed_producer_are_counted_over_a_restart(folder: Path, spools: list[Spool]) -> None:
    """A kill between an attempt's last line and the record of its end: the next worker knows how many lines there are."""
    spool, _ = opened(folder, spools)
    producer = spool.open("a" * 16, "/u/j/0:0", "a" * 16, 7)
    spool.append(producer, lines("0", "1", "2"), 1)
    spool.close(producer)
    again, orphans = opened(folder, spools)
    assert orphans == []
    assert again.closed == {"a" * 16: 3}
