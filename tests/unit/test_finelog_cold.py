"""Segments that left the disk for the object store: read as before, fetched once, bounded, and an error only of the read that needs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_controller.finelog.catalog import FILE_NAME, LOG, Catalog
from iris_controller.finelog.segment import Segment
from iris_controller.finelog.shipping.cold import ColdFiles
from iris_controller.finelog.shipping.restore import mend, restore
from iris_controller.finelog.shipping.shipper import Shipper
from iris_controller.finelog.shipping.stores import LogOwner, take_over
from iris_controller.finelog.store import Store
from iris_controller.finelog.tables.log_table import LogTable
from iris_controller.finelog.upkeep import Upkeep
from tests.unit.finelog_world import PREFIX, fetch, numbered, page, put, texts
from tests.unit.test_finelog_shipping import Place

KEY = "/u/cold/0:0"
JOB = "/u/cold/"


class World:
    """A store whose finished merges are small, its place, and its shipper."""

    def __init__(self, root: Path, place: Place, *, local_bytes: int = 1, cold_bytes: int = 1 << 30) -> None:
        self.folder = root
        self.place = place
        self.store = Store(root, file_limit=1_000)
        self.cold = ColdFiles(root / "cold", place, cold_bytes)
        self.store.catalog.cold = self.cold
        self.shipper = Shipper(
            root, self.store.marker, self.store.catalog, [LogOwner(self.store)], place, local_bytes=local_bytes
        )

    def fill(self, count: int) -> None:
        first = self.store.mark("p0")
        for start in range(first, first + count, 50):
            put(self.store, numbered(50, first=start, key=KEY, producer="p0"))
        self.store.roll()
        self.settle()

    def settle(self) -> None:
        """Everything that is finished becomes a segment, and what can be merged is."""
        self.store._keeper.submit(lambda: None).result()
        Upkeep(self.store, targets=(1, 1)).tend()

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.store.catalog.segments(LOG)

    def here(self) -> list[str]:
        return sorted(path.name for path in self.store.catalog.folder_of(LOG).glob("*.parquet"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "remote")


@pytest.fixture
def world(tmp_path: Path, place: Place) -> World:
    made = World(tmp_path / "a", place)
    made.fill(600)
    return made


def test_reads_are_the_same_and_each_segment_is_fetched_once(world: World, place: Place) -> None:
    before = page(world.store, KEY)
    found = fetch(world.store, JOB, match_scope=PREFIX, regex="line 5[0-9]5$", tail=True)
    assert world.shipper.round()
    cold = [segment for segment in world.segments if segment.object]
    assert cold and all(segment.level == 2 for segment in cold)
    assert not {segment.name for segment in cold} & set(world.here())
    asked: list[str] = []

    def note(call: str, name: str) -> bool:
        if call == "chunks":
            asked.append(name)
        return False

    place.loses = note
    assert page(world.store, KEY) == before
    assert fetch(world.store, JOB, match_scope=PREFIX, regex="line 5[0-9]5$", tail=True).entries == found.entries
    assert sorted(asked) == sorted(segment.object for segment in cold)
    # SQL reads the same files.
    table = LogTable(world.store)
    with table.open(world.folder / "scratch", []) as files:
        assert all(Path(file).exists() for file in files)
    assert world.store.local_bytes < world.store.total_bytes


def test_a_restart_knows_what_is_where(world: World, place: Place) -> None:
    before = page(world.store, KEY)
    world.shipper.round()
    world.store.close()
    again = World(world.folder, place)
    assert page(again.store, KEY) == before and not again.store.ledger.losses
    again.fill(100)
    assert again.shipper.round()
    assert texts(page(again.store, KEY)) == [f"line {number}" for number in range(700)]


def test_a_place_that_does_not_answer_fails_only_what_needs_it(world: World, place: Place) -> None:
    world.shipper.round()
    put(world.store, numbered(5, first=600, key=KEY, producer="p0"))
    place.fails = lambda call, name: True
    answer = fetch(world.store, KEY)
    assert answer.capped and "cannot be read" in answer.capped_reason and "does not answer" in answer.capped_reason
    assert texts(answer.entries)[-5:] == [f"line {number}" for number in range(600, 605)]
    assert not world.store.ledger.losses
    place.fails = lambda call, name: False
    assert len(page(world.store, KEY)) == 605


def test_what_was_fetched_stays_within_its_bound_but_for_what_is_read_now(world: World, place: Place) -> None:
    world.shipper.round()
    cold = [segment for segment in world.segments if segment.object]
    assert len(cold) > 2
    files = ColdFiles(world.folder / "bounded", place, max_bytes=cold[0].bytes)
    held = [files.hold(segment) for segment in cold]
    assert all(path.exists() for path in held)
    files.let_go(cold[-1])
    assert not held[-1].exists() and held[0].exists()
    for segment in cold[:-1]:
        files.let_go(segment)
    assert files.bytes <= cold[0].bytes
    # What is there counts after a restart as well.
    assert ColdFiles(world.folder / "bounded", place, max_bytes=1 << 30).bytes == files.bytes


@pytest.mark.parametrize("fault", ["missing", "flipped", "longer"])
def test_a_damaged_object_is_never_a_wrong_row(world: World, place: Place, tmp_path: Path, fault: str) -> None:
    world.shipper.round()
    first = next(segment for segment in world.segments if segment.object)
    path = tmp_path / "remote" / first.object
    data = path.read_bytes()
    if fault == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:] if fault == "flipped" else data + b"x")
    answer = fetch(world.store, KEY)
    assert answer.capped and first.name in answer.capped_reason
    assert texts(answer.entries)[-1] == "line 599"
    assert list((world.folder / "cold").glob("*.tmp")) == []


def test_a_catalog_that_is_lost_names_again_what_is_in_the_object_store(world: World, place: Place) -> None:
    before = page(world.store, KEY)
    world.shipper.round()
    world.store.close()
    (world.folder / "tables" / FILE_NAME).unlink()
    mend(world.folder, place, lambda folder: Catalog(folder / "tables"))
    again = World(world.folder, place)
    assert page(again.store, KEY) == before and not again.store.ledger.losses


def test_a_restore_fetches_only_the_newest(world: World, place: Place, tmp_path: Path) -> None:
    before = page(world.store, KEY)
    world.shipper.round()
    newest = max(world.segments, key=lambda segment: segment.created_ms)
    folder = tmp_path / "b"
    done = restore(
        folder,
        place,
        lambda folder: Catalog(folder / "tables"),
        lambda restored: take_over(folder, restored),
        local_bytes=newest.bytes,
    )
    assert done is not None
    again = World(folder, place)
    assert any(segment.object for segment in again.segments) and len(again.here()) >= 1
    assert [line.number for line in page(again.store, KEY)] == [line.number for line in before]
