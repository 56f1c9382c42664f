"""Segments in an object store: what is there after every step and every fault, who may write, and what a lost disk gets back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from iris_controller.finelog import shipping, steps
from iris_controller.finelog.catalog import Catalog
from iris_controller.finelog.segment import Segment
from iris_controller.finelog.segment_writer import write_segment
from iris_controller.finelog.segments import Layout, SegmentFile
from iris_controller.finelog.shipping import manifest as manifests
from iris_controller.finelog.shipping.cold import ColdFiles
from iris_controller.finelog.shipping.owners import Standing
from iris_controller.finelog.shipping.restore import Restored, is_empty, mend, restore
from iris_controller.finelog.shipping.shipper import Shipper
from iris_controller.finelog.shipping.writer import WRITER_FILE
from iris_core.contracts import IrisError, ObjectStore
from providers.objects.file import FileStore

MARKER = b"\x01" * 16
SCHEMA = pa.schema([("seq", pa.int64()), ("key", pa.string()), ("at_ms", pa.int64())])
LAYOUT = Layout(table="log", schema=SCHEMA, key="key", time="at_ms")
STEPS = [
    name
    for path in sorted(Path(shipping.__file__).parent.glob("*.py"))
    for name in re.findall(r'reached\("((?:ship|restore): [^"]+)"\)', path.read_text())
]


class Killed(BaseException):
    """The process died here."""


@pytest.fixture(autouse=True)
def nobody_watches() -> Iterator[None]:
    yield
    steps.watch(None)


def die_at(step: str) -> None:
    def watcher(name: str) -> None:
        if name == step:
            steps.watch(None)
            raise Killed(name)

    steps.watch(watcher)


class Place:
    """An object store that can be told to fail, and whose answers can get lost."""

    def __init__(self, root: Path) -> None:
        self._store = FileStore(root)
        self.url = self._store.url
        self.fails: Callable[[str, str], bool] = lambda call, name: False
        self.loses: Callable[[str, str], bool] = lambda call, name: False

    def __getattr__(self, call: str) -> Any:
        made = getattr(self._store, call)

        def asked(name: str, *args: Any, **kwargs: Any) -> Any:
            if self.fails(call, name):
                raise IrisError("the store does not answer")
            found = made(name, *args, **kwargs)
            if self.loses(call, name):
                raise IrisError("the answer got lost")
            return found

        return asked


class Disk:
    """One folder: a catalog, an owner that numbers rows, and a shipper."""

    name = "log"

    def __init__(self, folder: Path, place: ObjectStore, *, next_seq: int = 1, **options: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.now = 1_790_000_000.0
        self.next_seq = next_seq
        self.loose_since_ms = 0
        self.rolled = 0
        self.catalog = Catalog(folder / "tables")
        self.shipper = Shipper(
            folder, MARKER, self.catalog, [self], place, **options, clock=lambda: self.now,
            now_ms=lambda: int(self.now * 1000),
        )  # fmt: skip

    def owns(self, table: str) -> bool:
        return True

    def standing(self) -> Standing:
        sealed = self.next_seq - 1
        return Standing(self.next_seq, sealed, 100 if self.loose_since_ms else 0, self.loose_since_ms)

    def roll(self) -> None:
        self.rolled += 1

    def notes(self) -> Mapping[str, Any]:
        return {"next": self.next_seq}

    def add(self, rows: int, producer: str = "p", level: int = 0, table: str = "log") -> Segment:
        seqs = list(range(self.next_seq, self.next_seq + rows))
        self.next_seq += rows
        return self._write(table, seqs, level, producer)

    def _write(self, table: str, seqs: list[int], level: int, producer: str) -> Segment:
        content = pa.table({"seq": seqs, "key": ["k"] * len(seqs), "at_ms": seqs}, schema=SCHEMA)
        segment = write_segment(
            self.catalog.make_folder(table), LAYOUT, content, covers=(seqs[0], seqs[-1]), level=level,
            marks={producer: seqs[-1]},
        )  # fmt: skip
        self.catalog.commit(table, [segment])
        return segment

    def merge(self, table: str = "log") -> None:
        old = self.catalog.segments(table)
        seqs = [seq for segment in old for seq in rows_of(self.catalog.folder_of(table) / segment.name)]
        content = pa.table({"seq": seqs, "key": ["k"] * len(seqs), "at_ms": seqs}, schema=SCHEMA)
        one = write_segment(
            self.catalog.folder_of(table), LAYOUT, content, covers=(old[0].first_seq, old[-1].last_seq), level=1,
            marks={"p": seqs[-1]},
        )  # fmt: skip
        self.catalog.commit(table, [one], old)

    def seqs(self, table: str = "log") -> list[int]:
        return seqs_in(self.catalog, table)


def rows_of(path: Path) -> list[int]:
    opened = SegmentFile.open(path)
    try:
        return [seq for batch in opened.batches(["seq"]) for seq in batch.column(0).to_pylist()]
    finally:
        opened.close()


def seqs_in(catalog: Catalog, table: str = "log") -> list[int]:
    return [seq for one in catalog.segments(table) for seq in rows_of(catalog.folder_of(table) / one.name)]


def restored(folder: Path, place: ObjectStore) -> tuple[Catalog, Restored]:
    done = restore(folder, place, lambda folder: Catalog(folder / "tables"), lambda _: None)
    assert done is not None
    return Catalog(folder / "tables"), done


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "remote")


def test_what_is_shipped_comes_back_and_numbers_go_on_above_all_that_were_given(tmp_path: Path, place: Place) -> None:
    disk = Disk(tmp_path / "a", place)
    for rows in (10, 5, 20):
        disk.add(rows, producer=f"p{rows}")
    disk.add(3, table="iris.task")
    assert disk.shipper.round()
    told = disk.shipper.current()
    assert (told.state, told.shipped_seq, told.unshipped_bytes, told.unshipped_since_ms) == (
        "shipping",
        {"log": 38},
        0,
        0,
    )
    catalog, done = restored(tmp_path / "b", place)
    assert seqs_in(catalog) == list(range(1, 36)) and seqs_in(catalog, "iris.task") == [36, 37, 38]
    part = done.part("log")
    assert done.marker == MARKER and part.notes == {"next": 39} and part.shipped_seq == 38
    assert part.marks["log"] == {"p10": (10, 10), "p5": (15, 15), "p20": (35, 35)}
    assert part.ceiling >= disk.next_seq + (1 << 39)
    assert not is_empty(tmp_path / "b") and not (tmp_path / "b" / "restoring.json").exists()


def test_nothing_there_is_nothing_restored(tmp_path: Path, place: Place) -> None:
    assert restore(tmp_path / "b", place, Catalog, lambda _: None) is None
    assert not (tmp_path / "b").exists() and is_empty(tmp_path / "b")


def test_a_restored_store_ships_on_and_the_old_disk_does_not(tmp_path: Path, place: Place) -> None:
    old = Disk(tmp_path / "a", place)
    old.add(10)
    assert old.shipper.round()
    _, done = restored(tmp_path / "b", place)
    new = Disk(tmp_path / "b", place, next_seq=done.part("log").ceiling + 1)
    new.add(4)
    assert new.shipper.round() and new.shipper.status.state == "shipping"
    old.add(7)
    assert not old.shipper.round()
    assert old.shipper.status.state == "stopped" and "another folder" in old.shipper.status.problem
    # Neither does it after a restart, and nothing of the new one is touched.
    again = Disk(tmp_path / "a", place, next_seq=old.next_seq)
    assert not again.shipper.round() and "--take-over" in again.shipper.status.problem
    catalog, _ = restored(tmp_path / "c", place)
    assert seqs_in(catalog) == new.seqs()


def test_the_place_of_another_store_is_left_alone(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Disk(tmp_path / "a", place)
    mine.add(10)
    assert mine.shipper.round()
    monkeypatch.setattr("tests.unit.test_finelog_shipping.MARKER", b"\x02" * 16)
    other = Disk(tmp_path / "other", place)
    other.add(3)
    assert not other.shipper.round()
    assert "another store" in other.shipper.status.problem
    assert seqs_in(restored(tmp_path / "b", place)[0]) == mine.seqs()


def test_replaced_segments_go_after_a_time_and_never_one_that_is_named(tmp_path: Path, place: Place) -> None:
    disk = Disk(tmp_path / "a", place)
    for _ in range(3):
        disk.add(10)
    disk.shipper.round()
    before = {info.name for info in place.list(manifests.OBJECTS)}
    disk.merge()
    disk.shipper.round()
    assert before < {info.name for info in place.list(manifests.OBJECTS)}
    disk.now += 3599
    disk.shipper.round()
    assert before < {info.name for info in place.list(manifests.OBJECTS)}
    disk.now += 2
    disk.shipper.round()
    left = {info.name for info in place.list(manifests.OBJECTS)}
    assert len(left) == 1 and not left & before
    assert seqs_in(restored(tmp_path / "b", place)[0]) == list(range(1, 31))


def test_a_place_that_does_not_answer_is_said_and_caught_up_with(tmp_path: Path, place: Place) -> None:
    disk = Disk(tmp_path / "a", place)
    first = disk.add(10)
    place.fails = lambda call, name: True
    assert disk.shipper.round()
    told = disk.shipper.current()
    assert (told.state, told.problem) == ("behind", "the store does not answer")
    assert (told.unshipped_bytes, told.unshipped_since_ms) == (first.bytes, first.created_ms)
    disk.add(10)
    disk.merge()
    place.fails = lambda call, name: False
    assert disk.shipper.round()
    assert (disk.shipper.status.state, disk.shipper.current().unshipped_bytes) == ("shipping", 0)
    assert seqs_in(restored(tmp_path / "b", place)[0]) == list(range(1, 21))


@pytest.mark.parametrize("call", ["put_file", "put"])
def test_a_write_whose_answer_got_lost_counts(tmp_path: Path, place: Place, call: str) -> None:
    disk = Disk(tmp_path / "a", place)
    disk.add(10)
    lost: list[str] = []

    def lose_once(made: str, name: str) -> bool:
        if made == call and not lost:
            lost.append(name)
            return True
        return False

    place.loses = lose_once
    assert disk.shipper.round() and disk.shipper.status.state == "behind"
    disk.add(10)
    assert disk.shipper.round() and disk.shipper.status.state == "shipping"
    assert seqs_in(restored(tmp_path / "b", place)[0]) == list(range(1, 21))


@pytest.mark.parametrize("step", [step for step in STEPS if step.startswith("ship")])
def test_a_death_between_any_two_steps_of_shipping_loses_nothing(tmp_path: Path, place: Place, step: str) -> None:
    disk = Disk(tmp_path / "a", place, keep_seconds=0, local_bytes=1)
    disk.add(10)
    disk.shipper.round()
    disk.add(10)
    disk.merge()
    disk.add(10, level=2)
    die_at(step)
    with pytest.raises(Killed):
        disk.shipper.round()
    # Whatever was shipped before is whole, and each row is there once.
    there = manifests.read(place).manifest
    assert there is not None and there.objects <= {info.name for info in place.list(manifests.OBJECTS)}
    again = Disk(tmp_path / "a", place, next_seq=disk.next_seq, keep_seconds=0, local_bytes=1)
    again.add(5)
    assert again.shipper.round()
    again.now += 1
    assert again.shipper.round()
    named = manifests.read(place).manifest
    assert named is not None and named.objects == {info.name for info in place.list(manifests.OBJECTS)}
    assert list(tmp_path.joinpath("a").glob("*.tmp")) == []
    assert seqs_in(restored(tmp_path / "b", place)[0]) == list(range(1, 36))


@pytest.mark.parametrize("step", [step for step in STEPS if step.startswith("restore")])
def test_a_restore_that_was_interrupted_begins_anew(tmp_path: Path, place: Place, step: str) -> None:
    old = Disk(tmp_path / "a", place)
    old.add(10)
    old.add(4, table="iris.task")
    old.shipper.round()
    die_at(step)
    with pytest.raises(Killed):
        restored(tmp_path / "b", place)
    assert is_empty(tmp_path / "b")
    catalog, done = restored(tmp_path / "b", place)
    assert seqs_in(catalog) == list(range(1, 11)) and not done.lost
    old.add(1)
    assert not old.shipper.round()


def test_every_step_is_stood_at() -> None:
    assert len(STEPS) == len(set(STEPS)) == 8


@pytest.mark.parametrize("fault", ["missing", "short", "flipped", "longer"])
def test_an_object_that_is_damaged_is_named_and_the_rest_is_restored(tmp_path: Path, place: Place, fault: str) -> None:
    disk = Disk(tmp_path / "a", place)
    for _ in range(3):
        disk.add(10)
    disk.shipper.round()
    damaged = tmp_path / "remote" / sorted(info.name for info in place.list(manifests.OBJECTS))[1]
    data = damaged.read_bytes()
    if fault == "missing":
        damaged.unlink()
    else:
        flipped = data[:100] + bytes([data[100] ^ 1]) + data[101:]
        damaged.write_bytes({"short": data[:-1], "flipped": flipped, "longer": data + b"x"}[fault])
    catalog, done = restored(tmp_path / "b", place)
    assert seqs_in(catalog) == [*range(1, 11), *range(21, 31)]
    assert [(table, segment.first_seq, segment.last_seq) for table, segment in done.lost] == [("log", 11, 20)]


@pytest.mark.parametrize("fault", ["torn", "flipped", "empty", "foreign", "newer"])
def test_a_manifest_that_is_damaged_is_never_taken_for_none(tmp_path: Path, place: Place, fault: str) -> None:
    disk = Disk(tmp_path / "a", place)
    disk.add(10)
    disk.shipper.round()
    path = tmp_path / "remote" / manifests.NAME
    data = path.read_bytes()
    newer = manifests.pack(manifests.Manifest("00", "w", 1, 1))
    path.write_bytes(
        {
            "torn": data[:-5],
            "flipped": data[:40] + bytes([data[40] ^ 8]) + data[41:],
            "empty": b"",
            "foreign": b"{}",
            "newer": newer,
        }[fault]
    )
    if fault == "newer":
        pytest.MonkeyPatch().setattr(manifests, "FORMAT", 0)
    try:
        with pytest.raises(IrisError, match="manifest of the shipped segments"):
            restored(tmp_path / "b", place)
        again = Disk(tmp_path / "a", place, next_seq=disk.next_seq)
        assert again.shipper.round() and again.shipper.status.state == "behind"
        assert "manifest" in again.shipper.status.problem
    finally:
        manifests.FORMAT = 1  # type: ignore[misc]


def test_rows_in_no_segment_are_made_one_before_they_are_too_old(tmp_path: Path, place: Place) -> None:
    disk = Disk(tmp_path / "a", place)
    disk.loose_since_ms = int(disk.now * 1000)
    disk.now += 59
    disk.shipper.round()
    assert disk.rolled == 0 and disk.shipper.current().unshipped_since_ms == disk.loose_since_ms
    disk.now += 1
    disk.shipper.round()
    assert disk.rolled == 1


@pytest.mark.parametrize("fault", ["gone", "footer"])
def test_a_segment_that_cannot_be_read_holds_up_no_other(tmp_path: Path, place: Place, fault: str) -> None:
    disk = Disk(tmp_path / "a", place)
    bad = disk.add(10)
    disk.add(10)
    path = disk.catalog.folder_of("log") / bad.name
    if fault == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-8] + b"\0" * 8)
    for _ in range(2):
        assert disk.shipper.round() and disk.shipper.status.state == "shipping"
    there = manifests.read(place).manifest
    assert there is not None and there.tables["log"][-1].segment.first_seq == 11
    # What is damaged is shipped as it is, so a restored store says of it what this one does; what is gone is told of here.
    assert len(there.tables["log"]) == (1 if fault == "gone" else 2)
    assert (bad.name in disk.shipper.status.problem) == (fault == "gone")
    assert there.parts["log"].marks["log"] == {"p": (20, 20)}


@pytest.mark.parametrize("fault", ["missing", "short"])
def test_what_somebody_took_away_is_shipped_again_and_never_evicted_before(
    tmp_path: Path, place: Place, fault: str
) -> None:
    disk = Disk(tmp_path / "a", place)
    disk.add(10, level=2)
    disk.shipper.round()
    (info,) = place.list(manifests.OBJECTS)
    damaged = tmp_path / "remote" / info.name

    def damage() -> None:
        data = damaged.read_bytes()
        damaged.unlink()
        if fault == "short":
            damaged.write_bytes(data[:-1])

    # Found out by the next start, and before the only other copy would go.
    damage()
    again = Disk(tmp_path / "a", place, next_seq=disk.next_seq, local_bytes=info.size_bytes)
    again.shipper.round()
    assert {one.name: one.size_bytes for one in place.list(manifests.OBJECTS)} == {info.name: info.size_bytes}
    damage()
    again.add(10, level=2)
    again.shipper.round()
    first, second = again.catalog.segments("log")
    assert (again.catalog.folder_of("log") / first.name).exists() and not first.object and second.object
    again.shipper.round()
    assert seqs_in(restored(tmp_path / "b", place)[0]) == list(range(1, 21))


@pytest.mark.parametrize("takes_all", [False, True])
def test_a_place_that_was_emptied_is_shipped_to_again(tmp_path: Path, place: Place, takes_all: bool) -> None:
    disk = Disk(tmp_path / "a", place, local_bytes=1)
    disk.catalog.cold = ColdFiles(tmp_path / "a" / "cold", cast("ObjectStore", place), 1)
    disk.add(10, level=2)
    disk.shipper.round()
    (away,) = disk.catalog.segments("log")
    assert away.object
    place.delete(manifests.NAME)
    if takes_all:
        place.delete(away.object)
    disk.add(10)
    assert disk.shipper.round() and disk.shipper.status.state == "behind" and "gone" in disk.shipper.status.problem
    for _ in range(2):
        assert disk.shipper.round() and disk.shipper.status.state == "shipping"
    # What lay there alone and went with it is named, and holds up nothing.
    assert (away.name in disk.shipper.status.problem) == takes_all
    assert seqs_in(restored(tmp_path / "b", place)[0]) == list(range(11 if takes_all else 1, 21))


def test_a_catalog_that_is_lost_is_not_mended_with_what_another_folder_ships(tmp_path: Path, place: Place) -> None:
    other = Disk(tmp_path / "other", place)
    other.add(10)
    other.shipper.round()

    def mended() -> tuple[Segment, ...]:
        mend(tmp_path / "a", place, lambda folder: Catalog(folder / "tables"))
        return Catalog(tmp_path / "a" / "tables").segments("log")

    # A young store without a segment, one that ships elsewhere, and the very one.
    (tmp_path / "a" / "tables").mkdir(parents=True)
    assert mended() == ()
    (tmp_path / "a" / WRITER_FILE).write_text('{"writer": "somebody"}')
    assert mended() == ()
    (tmp_path / "a" / WRITER_FILE).write_bytes((tmp_path / "other" / WRITER_FILE).read_bytes())
    assert len(mended()) == 1
