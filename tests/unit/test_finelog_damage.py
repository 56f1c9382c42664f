"""Damage on disk: what is readable on both sides is served, the lost range is said, and nothing starts empty in silence."""

from __future__ import annotations

import errno
import json
import logging
import os
from typing import TYPE_CHECKING

import pytest

from iris_controller.finelog.opening import FORMAT, StoreUnusable
from iris_controller.finelog.records import FILE_BYTES, Record, marker_of, walk
from iris_controller.finelog.store import Store
from tests.unit.finelog_world import PREFIX, Disk, batch, fetch, numbered, page, put, texts

if TYPE_CHECKING:
    from pathlib import Path

KEY = "/u/j/0:0"


def filled(folder: Path, *, groups: int = 30, file_limit: int = 3000) -> list[Path]:
    """A closed store of 10 lines per group in several files, and these files."""
    store = Store(folder, file_limit=file_limit)
    for group in range(groups):
        put(store, numbered(10, first=group * 10))
    store.close()
    return sorted(folder.glob("wal-*.log"))


def records_of(path: Path) -> list[Record]:
    """The records of a file."""
    raw = path.read_bytes()
    marker = marker_of(raw)
    assert marker is not None
    return [found for found in walk(raw, marker, FILE_BYTES, len(raw)) if isinstance(found, Record)]


def overwrite(path: Path, start: int, data: bytes) -> None:
    """Changes bytes in place."""
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


def without(lost: Record) -> list[str]:
    """The lines of `filled` but for those of one record; the first line has seq 1."""
    return [f"line {seq - 1}" for seq in range(1, 301) if not lost.first_seq <= seq <= lost.last_seq]


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("what", ["zeros", "one bit"])
def test_damage_in_an_older_file_costs_the_record_it_hit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str, has_index: bool
) -> None:
    path = filled(tmp_path)[1]
    lost = records_of(path)[2]
    if what == "zeros":
        overwrite(path, lost.start, b"\0" * (lost.end - lost.start))
    else:
        overwrite(path, lost.end - 1, bytes([path.read_bytes()[lost.end - 1] ^ 1]))
    if not has_index:
        path.with_suffix(".idx").unlink()
    said = f"lines with seq {lost.first_seq} to {lost.last_seq} are lost, the rest is served"
    for _ in range(2):
        store = Store(tmp_path, file_limit=3000)
        assert texts(page(store, KEY)) == without(lost)
        answer = fetch(store, KEY)
        assert answer.capped
        assert f"lines with seq {lost.first_seq} to {lost.last_seq} are lost to damage on disk" in answer.capped_reason
        assert not fetch(store, KEY, cursor=lost.last_seq).capped
        assert store.mark("p0") == 300
        store.close()
    assert caplog.text.count(said) == 1, "it is said once, and remembered"


def test_zeroed_blocks_anywhere_never_stop_the_store(tmp_path: Path) -> None:
    for place in range(0, 3000, 150):
        folder = tmp_path / str(place)
        path = filled(folder)[2]
        records = records_of(path)
        hit = [record for record in records if record.start < place + 512 and record.end > place]
        overwrite(path, place, b"\0" * 512)
        path.with_suffix(".idx").unlink()
        store = Store(folder, file_limit=3000)
        lost = {seq for record in hit for seq in range(record.first_seq, record.last_seq + 1)}
        assert {line.seq for line in page(store, KEY)} == set(range(1, 301)) - lost
        put(store, numbered(10, first=300))
        assert len(page(store, KEY)) == 310 - len(lost)
        store.close()


def test_damage_in_the_last_file_is_told_from_a_torn_tail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = filled(tmp_path, file_limit=1 << 20)[-1]
    records = records_of(path)
    lost = records[4]
    overwrite(path, lost.start + 20, b"\xff" * 8)
    # A write that was never acknowledged follows.
    with path.open("ab") as file:
        file.write(path.read_bytes()[records[-1].start : records[-1].end - 7])
    store = Store(tmp_path)
    assert texts(page(store, KEY)) == without(lost)
    assert f"lines with seq {lost.first_seq} to {lost.last_seq} are lost" in caplog.text
    put(store, numbered(10, first=300))
    assert [line.seq for line in page(store, KEY)][-10:] == list(range(301, 311))
    store.close()
    again = Store(tmp_path)
    assert len(page(again, KEY)) == 300
    again.close()


def test_after_a_clean_stop_all_of_the_last_group_is_known_to_be_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put(store, numbered(5))
    put(store, *(numbered(5, producer=f"q{place}", key=f"/u/j/{place}:1") for place in range(4)))
    store.close()
    path = next(tmp_path.glob("wal-*.log"))
    lost = records_of(path)[2]
    overwrite(path, lost.start, b"\0" * 40)
    store = Store(tmp_path)
    assert [store.mark(f"q{place}") for place in range(4)] == [5, 5, 5, 5]
    assert {line.seq for line in page(store, "/u", match_scope=PREFIX)} == {*range(1, 11), *range(16, 26)}
    assert "lines with seq 11 to 15 are lost" in fetch(store, KEY).capped_reason
    store.close()


def test_a_torn_tail_goes_in_silence_whatever_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    for tail in (b"\0", b"\0" * 5000, os.urandom(100)):
        folder = tmp_path / str(len(tail))
        path = filled(folder)[-1]
        size = path.stat().st_size
        with path.open("ab") as file:
            file.write(tail)
        store = Store(folder)
        assert path.stat().st_size == size
        answer = fetch(store, KEY)
        assert (answer.shown, answer.capped) == (300, False)
        store.close()
    assert not caplog.records


def test_a_last_file_that_lost_its_end_after_a_clean_stop_is_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = filled(tmp_path, file_limit=1 << 20)[-1]
    records = records_of(path)
    os.truncate(path, records[-2].start)
    store = Store(tmp_path)
    assert "lines with seq 281 to 300 are lost" in caplog.text
    assert store.last_seq == 300, "no seq is given twice"
    put(store, numbered(5, first=300))
    assert [line.seq for line in page(store, KEY)] == [*range(1, 281), *range(301, 306)]
    store.close()


def test_a_whole_file_that_is_gone_is_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = filled(tmp_path)
    paths[-1].unlink()
    store = Store(tmp_path)
    assert store.last_seq == 300
    assert "are lost" in caplog.text
    assert fetch(store, KEY).capped
    store.close()
    for path in paths[:-1]:
        path.unlink()
    store = Store(tmp_path)
    assert store.last_seq == 300
    assert "all files are gone" in caplog.text
    store.close()


def test_a_file_that_is_gone_from_the_middle_is_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = filled(tmp_path)
    gone = records_of(paths[3])
    paths[3].unlink()
    said = f"lines with seq {gone[0].first_seq} to {gone[-1].last_seq} are lost"
    store = Store(tmp_path)
    assert said in caplog.text
    answer = fetch(store, KEY)
    assert answer.shown == 300 - (gone[-1].last_seq - gone[0].first_seq + 1)
    assert said in answer.capped_reason
    store.close()


def test_an_identity_comes_from_any_header(tmp_path: Path) -> None:
    paths = filled(tmp_path)
    (tmp_path / "store.json").write_text("{}")
    overwrite(paths[0], 3, b"?")
    store = Store(tmp_path)
    assert len(page(store, KEY)) == 300
    store.close()
    assert json.loads((tmp_path / "store.json").read_text())["marker"]


def test_a_folder_that_cannot_be_told_is_refused(tmp_path: Path) -> None:
    paths = filled(tmp_path)
    (tmp_path / "store.json").write_bytes(b"\xff\0")
    for path in paths:
        overwrite(path, 0, b"\0" * FILE_BYTES)
    before = {path: path.read_bytes() for path in paths}
    with pytest.raises(StoreUnusable, match="cannot be told"):
        Store(tmp_path)
    assert {path: path.read_bytes() for path in paths} == before


def test_a_store_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    told = json.loads((tmp_path / "store.json").read_text())
    (tmp_path / "store.json").write_text(json.dumps({**told, "format": FORMAT + 1}))
    with pytest.raises(StoreUnusable, match="newer release"):
        Store(tmp_path)


def test_a_damaged_header_alone_loses_nothing(tmp_path: Path) -> None:
    for path in filled(tmp_path):
        overwrite(path, 0, b"\0" * FILE_BYTES)
    store = Store(tmp_path)
    assert len(page(store, KEY)) == 300
    put(store, numbered(5, first=300))
    store.close()
    store = Store(tmp_path)
    assert len(page(store, KEY)) == 305
    store.close()


def test_retention_goes_on_past_a_file_that_is_gone(tmp_path: Path) -> None:
    paths = filled(tmp_path)
    gone = records_of(paths[0])
    most = sum(path.stat().st_size for path in paths) + 1000
    store = Store(tmp_path, file_limit=3000, max_bytes=most)
    paths[0].unlink()
    for first in range(300, 500, 10):
        put(store, numbered(10, first=first))
    store.close()
    assert sum(path.stat().st_size for path in tmp_path.glob("wal-*.log")) <= most
    store = Store(tmp_path, file_limit=3000, max_bytes=most)
    answer = fetch(store, KEY)
    assert answer.entries[-1].number == 499
    assert f"lines with seq 1 to {gone[-1].last_seq} are lost" in answer.capped_reason
    store.close()


def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_served(tmp_path: Path) -> None:
    paths = filled(tmp_path)
    store = Store(tmp_path)
    paths[1].rename(tmp_path / "elsewhere")
    paths[1].mkdir()
    answer = fetch(store, KEY)
    assert 200 < answer.shown < 300
    assert answer.capped and f"{paths[1].name} cannot be read" in answer.capped_reason
    store.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failed_sync_is_a_refused_push_and_nothing_else(tmp_path: Path, number: int) -> None:
    disk = Disk()
    store = Store(tmp_path, sync=disk)
    put(store, numbered(10))
    for _ in range(3):
        disk.fault = OSError(number, os.strerror(number))
        with pytest.raises(OSError, match=os.strerror(number)):
            put(store, numbered(10, first=10), batch(["x"], producer="p1", key="/u/j/1:0"))
        assert (store.last_seq, store.mark("p0"), store.mark("p1")) == (10, 10, 0)
        assert len(page(store, "/u", match_scope=PREFIX)) == 10
    disk.fault = None
    put(store, numbered(10, first=10))
    assert [line.seq for line in page(store, KEY)] == list(range(1, 21))
    store.close()
    store = Store(tmp_path)
    assert [line.seq for line in page(store, KEY)] == list(range(1, 21))
    store.close()


def test_what_is_behind_a_failed_sync_is_never_served(tmp_path: Path) -> None:
    """The disk may hold all of a refused group: the file behind it, of the same seq, is the one that counts."""
    store = Store(tmp_path)
    put(store, numbered(3))
    store.close()
    path = next(tmp_path.glob("wal-*.log"))
    whole: list[bytes] = []

    def sync(descriptor: int) -> None:
        if not whole and os.fstat(descriptor).st_ino == path.stat().st_ino:
            whole.append(path.read_bytes())
            raise OSError(errno.EIO, "no")
        os.fdatasync(descriptor)

    store = Store(tmp_path, sync=sync)
    with pytest.raises(OSError, match="no"):
        put(store, batch(["refused 3", "refused 4"], first=3))
    put(store, batch(["kept 3"], first=3))
    store.close()
    # As if the disk had kept what was refused after all.
    path.write_bytes(whole[0])
    path.with_suffix(".idx").unlink(missing_ok=True)
    store = Store(tmp_path)
    assert texts(page(store, KEY)) == ["line 0", "line 1", "line 2", "kept 3"]
    store.close()
