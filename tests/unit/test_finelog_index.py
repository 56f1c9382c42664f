"""The index of a write-ahead file: small in memory, and its sidecar says the same."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from iris_controller.finelog import sidecar
from iris_controller.finelog.index import Extent, LiveIndex
from iris_controller.finelog.query import Scope
from tests.unit.finelog_world import NOW_MS

if TYPE_CHECKING:
    from pathlib import Path


def memory(index: LiveIndex) -> int:
    """Bytes of its columns and rows, without what arrays keep to grow into."""
    columns = [getattr(index.columns, name) for name in index.columns.NAMES]
    sizes: list[int] = [len(column) * column.itemsize for column in (*columns, *index.rows.values())]
    return sum(sizes)


def fill(index: LiveIndex, pushes: int, keys: int) -> None:
    """One line per push, the keys in turn, each push right behind the one before."""
    for place in range(pushes):
        key = place % keys
        extent = Extent(100 + 180 * place, 180, index.last_seq + 1, 1, NOW_MS + place, NOW_MS + place, 4, 1, key)
        index.add(f"/u/j/{key}:0", extent, f"p{key}", place // keys + 1)


def test_tiny_pushes_of_many_cost_sixty_bytes_each_and_those_of_one_nearly_nothing() -> None:
    many, one = LiveIndex(1), LiveIndex(1)
    fill(many, 50_000, keys=500)
    fill(one, 50_000, keys=1)
    assert memory(many) / 50_000 <= 60
    assert memory(one) / 50_000 <= 1


def test_neighbours_become_one_extent_only_if_nothing_would_be_mixed() -> None:
    base = Extent(100, 50, 1, 2, 10, 20, 4, 1, 77)
    index = LiveIndex(1)
    index.add("/a", base, "p", 2)
    index.add("/a", base._replace(offset=150, first_seq=3, earliest_ms=5, levels=8), "p", 4)
    # Another attempt, another incarnation, other bytes in between, and too large in all.
    index.add("/a", base._replace(offset=200, first_seq=5, attempt=78), "q", 2)
    index.add("/a", base._replace(offset=250, first_seq=7, attempt=78, incarnation=2), "q", 4)
    index.add("/a", base._replace(offset=400, first_seq=9, attempt=78, incarnation=2), "q", 6)
    index.add("/a", base._replace(offset=450, first_seq=11, attempt=78, incarnation=2, length=1 << 20), "q", 8)
    rows = index.key_rows("/a")
    assert rows is not None
    found = list(rows.after(0))
    assert [(one.first_seq, one.lines, one.length) for one in found] == [
        (1, 4, 100), (5, 2, 50), (7, 2, 50), (9, 2, 50), (11, 2, 1 << 20),
    ]  # fmt: skip
    assert (found[0].earliest_ms, found[0].latest_ms, found[0].levels) == (5, 20, 12)
    assert list(rows.before(8)) == [found[2], found[1], found[0]]
    assert list(rows.after(6)) == found[2:]


def test_a_sidecar_says_what_the_index_said(tmp_path: Path) -> None:
    chance = random.Random(1)
    index = LiveIndex(1000)
    offset = 32
    for number in range(3000):
        key = f"/u/{chance.choice('abü')}/{chance.randrange(40)}:0"
        lines, length = chance.randrange(1, 9), chance.randrange(40, 4000)
        extent = Extent(
            offset,
            length,
            index.last_seq + 1,
            lines,
            -number,
            NOW_MS + number,
            chance.randrange(256),
            number % 3,
            chance.randrange(1 << 32),
        )
        index.add(key, extent, f"p{number % 100}", number + 1)
        offset += length
    path = tmp_path / "x.idx"
    header = sidecar.write(path, index, offset)
    sealed = sidecar.read(path)
    assert sealed.header == header == sidecar.read_header(path)
    assert (header.log_bytes, header.first_seq, header.last_seq, header.lines) == (
        offset,
        1000,
        index.last_seq,
        index.lines,
    )
    assert (header.earliest_ms, header.latest_ms) == (index.earliest_ms, index.latest_ms)
    assert sealed.marks == index.marks
    assert sealed.all_keys() == index.all_keys() == sorted(index.rows)
    for scope in (
        Scope("/u", prefix=True),
        Scope("/u/ü", prefix=True),
        Scope("/u/a/1:0"),
        Scope("/none"),
        Scope("/zzz", prefix=True),
    ):
        assert sealed.keys(scope) == index.keys(scope)
    for key in index.rows:
        for seq in (0, 1000, 2500, index.last_seq, index.last_seq + 5):
            mine, theirs = index.key_rows(key), sealed.key_rows(key)
            assert mine is not None and theirs is not None
            assert list(theirs.after(seq)) == list(mine.after(seq))
            assert list(theirs.before(seq)) == list(mine.before(seq))
    assert sealed.key_rows("/none") is None


def test_an_empty_index_has_a_sidecar_too(tmp_path: Path) -> None:
    sidecar.write(tmp_path / "x.idx", LiveIndex(5), 32)
    sealed = sidecar.read(tmp_path / "x.idx")
    assert (sealed.all_keys(), sealed.marks, sealed.header.last_seq) == ([], {}, 4)


def test_every_damage_to_a_sidecar_is_noticed(tmp_path: Path) -> None:
    index = LiveIndex(1)
    fill(index, 20, keys=3)
    path = tmp_path / "x.idx"
    sidecar.write(path, index, 4000)
    whole = path.read_bytes()
    used = 92
    for place in [*range(used), *range(sidecar.HEADER_BYTES, len(whole))]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(sidecar.SidecarDamaged):
            sidecar.read(path)
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(sidecar.SidecarDamaged):
            sidecar.read(path)
    path.unlink()
    with pytest.raises(sidecar.SidecarDamaged):
        sidecar.read(path)
