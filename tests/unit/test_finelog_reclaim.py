"""The place in the object store taken back by the folder that lost it: who ships then, with which numbers, and what a crash leaves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from iris_controller.finelog import steps
from iris_controller.finelog.shipping import manifest as manifests
from iris_controller.finelog.shipping import reclaim as module
from iris_controller.finelog.shipping.reclaim import ask, is_asked, reclaim, settle
from iris_controller.finelog.shipping.stores import LogOwner, TablesOwner
from iris_controller.finelog.store import Store
from iris_controller.finelog.upkeep import Upkeep
from iris_core.contracts import IrisError
from providers.objects.file import FileStore
from tests.unit.finelog_world import numbered, page, put
from tests.unit.tables_world import checked, metrics, opened, stored
from tests.unit.test_finelog_shipping import MARKER, Disk, Killed, Place, die_at, restored, seqs_in

STEPS = re.findall(r'reached\("(reclaim: [^"]+)"\)', Path(module.__file__).read_text())
KEY = "/u/j:0"


class Back(Disk):
    """A folder that can be told to take its place back."""

    def go_on_above(self, seq: int, why: str) -> None:
        self.next_seq = max(self.next_seq, seq + 1)

    def marks(self) -> Mapping[str, Mapping[str, tuple[int, int]]]:
        return {"log": {"p": (10, 10)}}

    def reclaim(self, place: Any) -> bool:
        return reclaim(self.folder, MARKER, [self], place)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path / "remote")
    steps.watch(None)


def fenced(tmp_path: Path, place: Place) -> tuple[Back, Disk]:
    """The folder that shipped first and is older now, and the one that was restored from it and ships."""
    old = Back(tmp_path / "a", place)
    old.add(10)
    assert old.shipper.round()
    _, done = restored(tmp_path / "b", place)
    new = Disk(tmp_path / "b", place, next_seq=done.part("log").ceiling + 1, keep_seconds=60.0)
    new.add(4, producer="other")
    assert new.shipper.round()
    old.add(7)
    assert not old.shipper.round()
    return old, new


@pytest.mark.parametrize("step", ["", *STEPS])
def test_who_takes_over_ships_above_all_numbers_and_the_loser_stays_out(
    tmp_path: Path, place: Place, step: str
) -> None:
    old, new = fenced(tmp_path, place)
    before = manifests.read(place).manifest
    assert before is not None
    again = Back(tmp_path / "a", place, next_seq=old.next_seq)
    if step:
        die_at(step)
        with pytest.raises(Killed):
            again.reclaim(place)
        again = Back(tmp_path / "a", place, next_seq=old.next_seq)
    assert again.reclaim(place) and not again.reclaim(place)
    assert again.next_seq > before.parts["log"].ceiling > new.next_seq
    again.add(3)
    assert again.shipper.round() and again.shipper.status.state == "shipping"
    new.add(1)
    assert not new.shipper.round() and "--take-over" in new.shipper.status.problem
    there = manifests.read(place).manifest
    assert there is not None and "other" not in there.parts["log"].marks["log"]
    assert there.parts["log"].ceiling > again.next_seq
    catalog, _ = restored(tmp_path / "c", place)
    assert seqs_in(catalog) == again.seqs() and len(again.seqs()) == 20


def test_the_loser_removes_nothing_that_the_winner_may_name_again(tmp_path: Path, place: Place) -> None:
    old, new = fenced(tmp_path, place)
    merged = [one.name for one in place.list(manifests.OBJECTS)]
    new.merge()
    assert new.shipper.round()
    again = Back(tmp_path / "a", place, next_seq=old.next_seq)
    assert again.reclaim(place) and again.shipper.round()
    new.now += 3_600
    assert not new.shipper.round()
    named = manifests.read(place).manifest
    assert named is not None and named.objects <= {one.name for one in place.list(manifests.OBJECTS)}
    assert named.objects & set(merged)


def test_a_place_of_another_store_or_one_that_nobody_took_is_left_alone(tmp_path: Path, place: Place) -> None:
    disk = Back(tmp_path / "a", place)
    assert not disk.reclaim(place)
    disk.add(3)
    assert disk.shipper.round() and not disk.reclaim(place)
    before = place.stat(manifests.NAME)
    other = Back(tmp_path / "other", place)
    assert not reclaim(other.folder, b"\x02" * 16, [other], place)
    assert place.stat(manifests.NAME) == before and other.next_seq == 1


def test_a_place_that_does_not_answer_leaves_all_as_it_is(tmp_path: Path, place: Place) -> None:
    old, _ = fenced(tmp_path, place)
    ask(old.folder)
    place.fails = lambda call, name: True
    with pytest.raises(IrisError, match="does not answer"):
        old.reclaim(place)
    assert is_asked(old.folder) and old.next_seq == 18
    settle(old.folder)
    assert not is_asked(old.folder)
    ask(tmp_path / "nothing here")
    assert not (tmp_path / "nothing here").exists()


@pytest.mark.parametrize("empty", [False, True])
def test_stores_that_go_on_above_keep_every_row_once_and_say_what_is_missing(tmp_path: Path, empty: bool) -> None:
    ceiling = manifests.HEADROOM
    store, tables = Store(tmp_path), opened(tmp_path)
    if not empty:
        put(store, numbered(5, producer="p", key=KEY))
        tables.commit(checked(metrics(0, 5)), 1)
    for _ in range(2):
        for owner in (LogOwner(store), TablesOwner(tables, lambda: None)):
            owner.go_on_above(ceiling, "of a test")
    for _ in range(2):
        put(store, numbered(5, first=5, producer="p", key=KEY))
        tables.commit(checked(metrics(5, 5)), 1)
        first = 5 if empty else 0
        lines = [line for line in page(store, KEY) if not line.gap]
        assert [line.number for line in lines] == list(range(first, 10)), lines
        assert all(line.seq > ceiling for line in lines if line.number >= 5)
        assert [row["value"] for row in stored(tables)] == [float(number) for number in range(first, 10)]
        assert [loss.why for loss in store.ledger.losses] == ["of a test"]
        assert tables.lost_notes() == ["rows are missing: of a test"]
        # And what was stored is what is opened again, whatever it was closed in the middle of.
        store.close()
        tables.close()
        store, tables = Store(tmp_path), opened(tmp_path)
        Upkeep(store).tend()
    store.close()
    tables.close()


def test_the_real_stores_tell_their_marks(tmp_path: Path) -> None:
    store, tables = Store(tmp_path), opened(tmp_path)
    put(store, numbered(5, producer="p", key=KEY))
    tables.commit(checked(metrics(0, 5)), 1)
    assert LogOwner(store).marks() == {"log": {"p": (5, 5)}}
    assert TablesOwner(tables, lambda: None).marks() == {"test.metric": {"p0": (5, 5)}}
    assert not reclaim(tmp_path, store.marker, (LogOwner(store),), FileStore(tmp_path / "remote"))
    store.close()
    tables.close()
