"""A store against a plain list: pushes with repeats and holes, crashes at any byte, failing syncs, lost indexes, reopening."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from iris_controller.finelog.records import FILE_BYTES
from iris_controller.finelog.store import Store
from iris_controller.finelog.wal import file_name
from iris_core.wire.gen.iris.v1 import logs_pb2
from tests.unit.finelog_world import NOW_MS, PREFIX, Disk, batch, page, put

SOAK = os.environ.get("IRIS_SOAK") == "1"

PRODUCERS = {"p0": "/u/j/0:0", "p1": "/u/j/1:0", "p2": "/u/j/0:0"}
"""Producer → key: two share one, as attempts of a replaced job do."""

Group = list[tuple[str, int, list[str]]]
"""Batches: producer, where its numbers start relative to what is stored, texts."""

BATCH = st.tuples(
    st.sampled_from(sorted(PRODUCERS)),
    st.integers(-6, 4),
    st.lists(st.text("ab\0é", max_size=20), min_size=1, max_size=6),
)
GROUP = st.lists(BATCH, min_size=1, max_size=4)


class Oracle:
    """What must be stored: per producer the lines by number, with 0 for none and n for a gap of n."""

    def __init__(self) -> None:
        self.lines: dict[str, list[tuple[int, str, int]]] = {producer: [] for producer in PRODUCERS}
        self.next = dict.fromkeys(PRODUCERS, 0)

    def copy(self) -> Oracle:
        twin = Oracle()
        twin.lines = {producer: list(lines) for producer, lines in self.lines.items()}
        twin.next = dict(self.next)
        return twin

    def take(self, made: logs_pb2.LogBatch) -> None:
        producer = made.producer
        for entry in made.entries:
            expected = self.next[producer]
            if entry.number < expected:
                continue
            if entry.number > expected:
                self.lines[producer].append((expected, "", entry.number - expected))
            self.lines[producer].append((entry.number, entry.data, 0))
            self.next[producer] = entry.number + 1


class StoreMachine(RuleBasedStateMachine):
    """Drives a real store on disk."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="finelog"))
        self.generation = 0
        self.disk = Disk()
        self.oracle = Oracle()
        self.seqs: dict[tuple[str, int], int] = {}

    @property
    def folder(self) -> Path:
        return self.root / str(self.generation)

    def open(self) -> None:
        self.disk = Disk()
        self.store = Store(self.folder, file_limit=600, sync=self.disk)

    @initialize()
    def begin(self) -> None:
        self.open()

    def made(self, group: Group) -> list[logs_pb2.LogBatch]:
        return [
            batch(
                texts,
                key=PRODUCERS[producer],
                producer=producer,
                first=max(0, self.oracle.next[producer] + shift),
                at_ms=NOW_MS + self.oracle.next[producer] + shift,
            )
            for producer, shift, texts in group
        ]

    @rule(group=GROUP)
    def push(self, group: Group) -> None:
        made = self.made(group)
        before = dict(self.oracle.next)
        for one in made:
            self.oracle.take(one)
        keys = put(self.store, *made)
        assert keys == {PRODUCERS[name] for name in PRODUCERS if self.oracle.next[name] > before[name]}

    @rule(group=GROUP)
    def push_while_the_disk_fails(self, group: Group) -> None:
        self.disk.fault = OSError(errno.EIO, os.strerror(errno.EIO))
        changed = self.oracle.copy()
        made = self.made(group)
        for one in made:
            changed.take(one)
        try:
            put(self.store, *made)
            assert changed.next == self.oracle.next, "what is new cannot be stored without a sync"
        except OSError:
            assert changed.next != self.oracle.next
        self.disk.fault = None

    @rule(group=GROUP, cut=st.floats(0, 1), zero=st.booleans())
    def crash_in_a_sync(self, group: Group, cut: float, zero: bool) -> None:
        """Of what was not synced, a part is on disk: cut at any byte, or whole with a block of zeros at its start."""
        kept = {path.name: path.stat().st_size for path in self.folder.glob("wal-*.log")}
        made = self.made(group)
        crashed = self.root / str(self.generation + 1)
        self.disk.fault = OSError(errno.EIO, "as if the process were gone")
        self.disk.before_fault = lambda: copy(self.folder, crashed)
        try:
            put(self.store, *made)
        except OSError:
            pass
        else:
            copy(self.folder, crashed)
        self.store.close()
        shutil.rmtree(self.folder)
        self.generation += 1
        last = max(self.folder.glob("wal-*.log"))
        start, size = kept.get(last.name, 0), last.stat().st_size
        with (self.folder / last.name).open("r+b") as file:
            if zero and size > start:
                file.seek(start)
                file.write(b"\0" * min(16, size - start))
            else:
                file.truncate(start + round((size - start) * cut))
        self.open()
        self.settle(made)

    def settle(self, made: list[logs_pb2.LogBatch]) -> None:
        """After a crash a beginning of the group is stored; which one is told by the marks."""
        marks = {producer: self.store.mark(producer) for producer in PRODUCERS}
        oracle = self.oracle.copy()
        for one in made:
            if oracle.next == marks:
                break
            oracle.take(one)
        assert oracle.next == marks
        self.oracle = oracle

    @rule(lose=st.sampled_from(["nothing", "indexes", "damaged indexes", "ledger", "damaged ledger", "identity"]))
    def reopen(self, lose: str) -> None:
        self.store.close()
        if "indexes" in lose:
            for path in self.folder.glob("*.idx"):
                spoil(path, lose)
        if "ledger" in lose:
            spoil(self.folder / "ledger.json", lose)
        if lose == "identity" and self.oracle.next != dict.fromkeys(PRODUCERS, 0):
            (self.folder / "store.json").unlink()
        self.open()

    @invariant()
    def everything_acknowledged_is_there_once(self) -> None:
        if not hasattr(self, "store"):
            return
        assert {producer: self.store.mark(producer) for producer in PRODUCERS} == self.oracle.next
        everything = page(self.store, "/u", match_scope=PREFIX, max_lines=3)
        assert len({line.seq for line in everything}) == len(everything)
        everything.sort(key=lambda line: line.seq)
        for producer, expected in self.oracle.lines.items():
            mine = [line for line in everything if line.attempt_uid == producer]
            assert [(line.number, "" if line.gap else line.data, line.gap) for line in mine] == expected
            for line in mine:
                assert self.seqs.setdefault((producer, line.number), line.seq) == line.seq, "a line keeps its seq"
        for key in set(PRODUCERS.values()):
            assert page(self.store, key) == [line for line in everything if line.key == key]

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.root)


def copy(folder: Path, target: Path) -> None:
    """The folder as it is; the store's own thread may be writing an index just now."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.tmp"))


def spoil(path: Path, how: str) -> None:
    """Removes a file, or changes a byte in its middle."""
    if not path.exists():
        return
    if "damaged" not in how:
        path.unlink()
        return
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x20
    path.write_bytes(data)


TestStoreMachine = pytest.mark.soak(StoreMachine.TestCase)
TestStoreMachine.settings = settings(
    max_examples=600 if SOAK else 25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_one_sync_covers_a_group(tmp_path: Path) -> None:
    disk = Disk()
    store = Store(tmp_path / "logs", sync=disk)
    put(store, batch(["first"]))
    before = disk.syncs
    put(store, *(batch(["x"], producer=f"q{place}", key=f"/u/j/{place}:0") for place in range(50)))
    assert disk.syncs == before + 1
    put(store, batch(["first"]))
    assert disk.syncs == before + 1, "a mere repeat costs none"
    store.close()


def test_nothing_is_readable_before_it_is_on_disk(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    opened: list[Store] = []

    def sync(descriptor: int) -> None:
        store = opened[0]
        seen.append((len(page(store, "/u/j/0:0")), store.mark("p0")))
        os.fdatasync(descriptor)

    store = Store(tmp_path / "logs", sync=sync)
    opened.append(store)
    put(store, batch(["a", "b"]))
    put(store, batch(["c"], first=2))
    assert seen[-2:] == [(0, 0), (2, 2)]
    assert len(page(store, "/u/j/0:0")) == 3
    store.close()


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "logs", file_limit=FILE_BYTES)
    for number in range(3):
        put(store, batch(["x"], first=number))
    store.close()
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700
    names = {path.name.partition(".")[2] for path in (tmp_path / "logs").iterdir()}
    assert names == {"log", "idx", "json"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (tmp_path / "logs").iterdir())


def test_an_index_of_a_file_that_grew_again_loses_no_line(tmp_path: Path) -> None:
    """A file is indexed as finished; its successor never holds a line and is gone; it grows, and the process dies."""
    folder = tmp_path / "logs"
    store = Store(folder)
    put(store, batch(["first"]))
    store.close()
    (folder / file_name(2)).touch()
    disk = Disk()
    store = Store(folder, sync=disk)
    store._keeper.submit(lambda: None).result()
    index = next(folder.glob("*.idx"))
    stale = index.read_bytes()
    disk.fault = OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(OSError):
        put(store, batch(["second"], first=1))
    store.close()
    assert not (folder / file_name(2)).exists()
    store = Store(folder)
    put(store, batch(["second", "third"], first=1))
    crashed = tmp_path / "crashed"
    copy(folder, crashed)
    store.close()
    (crashed / file_name(4)).touch()
    # Its removal may not have reached the disk.
    (crashed / index.name).write_bytes(stale)
    again = Store(crashed)
    assert [line.data for line in page(again, "/u", match_scope=PREFIX)] == ["first", "second", "third"]
    assert again.mark("p0") == 3
    put(again, batch(["fourth"], first=3))
    again.close()
