"""A jump to a time: where it lands, whatever the lines lie in, and how little is read for it."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import pytest

from iris_controller.finelog import query as queries
from iris_controller.finelog.catalog import LOG
from iris_controller.finelog.segments import SegmentFile
from iris_controller.finelog.store import Store
from iris_controller.finelog.upkeep import Upkeep
from iris_controller.finelog.views import View
from iris_core.wire.gen.iris.v1 import logs_pb2
from tests.unit.finelog_world import EXACT, NOW_MS, PREFIX, numbered, put

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

STEP_MS = 7


def done(work: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def opened(store: Store, source: str, **fields: Any) -> View:
    view = View(store, queries.parse(logs_pb2.FetchLogsRequest(source=source, **fields)))
    done(view.build())
    return view


def times(view: View) -> list[int]:
    return [found.line.epoch_ms for found in done(view.read(0, len(view.numbers), 64 << 20))]


def to_segments(store: Store) -> None:
    store.roll()
    store._keeper.submit(lambda: None).result()
    while Upkeep(store).convert():
        pass


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Three ranks side by side and another job between them; two segments, and lines behind them that are in none."""
    made = Store(tmp_path / "store")
    for start in range(0, 1500, 50):
        for rank in range(3):
            at_ms = NOW_MS + STEP_MS * start + rank
            put(made, numbered(50, first=start, key=f"/u/j/{rank}:0", producer=f"p{rank}", at_ms=at_ms))
        put(made, numbered(20, first=start, key="/u/j2/0:0", producer="other", at_ms=NOW_MS + STEP_MS * start))
        if start in (450, 950):
            to_segments(made)
    assert len(made.catalog.segments(LOG)) == 2
    yield made
    made.close()


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        ("/u/j/1:0", {"match_scope": EXACT}),
        ("/u/j/", {"match_scope": PREFIX}),
        ("/u/j/", {"match_scope": PREFIX, "regex": "[05]$"}),
    ],
)
def test_it_lands_on_the_first_line_at_or_after_the_time(store: Store, source: str, fields: dict[str, Any]) -> None:
    view = opened(store, source, **fields)
    known = times(view)
    assert known == sorted(known) and len(known) > 800
    for ms in range(NOW_MS - 20, known[-1] + 400, 397):
        assert done(view.at_time(ms)) == min(bisect_left(known, ms), len(known) - 1)


def test_it_reads_the_times_of_one_row_group_and_no_text(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    view = opened(store, "/u/j/1:0", match_scope=EXACT)
    read: list[Sequence[str] | None] = []

    def counted(file: SegmentFile, group: int, columns: Sequence[str] | None = None) -> Any:
        read.append(columns)
        return original(file, group, columns)

    original = SegmentFile.read
    monkeypatch.setattr(SegmentFile, "read", counted)
    monkeypatch.setattr(View, "read_store", None)
    assert done(view.at_time(NOW_MS + STEP_MS * 200 + 1)) == 200
    assert read == [["seq", "epoch_ms"]]
    # Behind the segments none is opened.
    assert done(view.at_time(NOW_MS + STEP_MS * 1200 + 1)) == 1200
    assert len(read) == 1


def test_lines_that_are_gone_lie_before_every_time(store: Store) -> None:
    view = opened(store, "/u/j/1:0", match_scope=EXACT)
    store.catalog.commit(LOG, remove=store.catalog.segments(LOG)[:1])
    gone = [found.gone for found in done(view.read(0, 1500, 64 << 20))]
    assert gone == [number < 500 for number in range(1500)]
    assert done(view.at_time(1)) == 500
