"""Views: every line has one number and keeps it, whatever arrives, is filtered, surrounds a hit, or is removed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris_controller.finelog import finding, view_service, views
from iris_controller.finelog import query as queries
from iris_controller.finelog.catalog import LOG
from iris_controller.finelog.context import around, entries_of
from iris_controller.finelog.export import Exporter
from iris_controller.finelog.finding import Find
from iris_controller.finelog.numbers import BREAKS, CONTEXT, Numbers
from iris_controller.finelog.store import Store
from iris_controller.finelog.upkeep import Upkeep
from iris_controller.finelog.views import View
from iris_core.model.errors import ModelError
from iris_core.model.regex import compile_content_regex
from iris_core.wire.gen.iris.v1 import logs_pb2
from tests.unit.finelog_world import EXACT, NOW_MS, PREFIX, batch, numbered, put

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

ROOM = 8 << 20


def run(work: Generator[None, None, Any]) -> Any:
    """The result of work that is done in slices."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def view_of(store: Store, source: str, *, context: int | None = None, **fields: Any) -> View:
    """A view, built."""
    fields.setdefault("match_scope", EXACT)
    limit = fields.get("max_lines", 0)
    query = queries.parse(logs_pb2.FetchLogsRequest(source=source, **fields))
    view = View(store, query, limit=limit, context=context)
    run(view.build())
    return view


def lines_of(view: View, first: int = 0, count: int = 10_000, room: int = ROOM) -> list[logs_pb2.ViewLine]:
    found: list[logs_pb2.ViewLine] = run(view.read(first, count, room))
    return found


def texts(view: View, first: int = 0, count: int = 10_000) -> list[str]:
    return [line.line.data for line in lines_of(view, first, count)]


def settle(store: Store) -> None:
    """Waits until the finished files have their indexes: only then they become segments."""
    store._keeper.submit(lambda: None).result()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "store")
    yield made
    made.close()


def test_pages_by_number_and_new_lines_behind_the_last(store: Store) -> None:
    put(store, numbered(2500), numbered(10, key="/u/other/0:0", producer="other"))
    view = view_of(store, "/u/j/0:0")
    assert (len(view.numbers), view.is_complete) == (2500, True)
    assert texts(view, 2490) == [f"line {number}" for number in range(2490, 2500)]
    assert texts(view, 1200, 3) == ["line 1200", "line 1201", "line 1202"]
    assert texts(view, 2500) == []
    put(store, numbered(5, first=2500))
    assert len(view.numbers) == 2500
    run(view.extend(1.0))
    assert texts(view, 2499) == [f"line {number}" for number in range(2499, 2505)]
    assert [line.number for line in lines_of(view, 2499)] == list(range(2499, 2505))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pushes=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5000), st.integers(1, 6)), min_size=1, max_size=14),
    cut=st.integers(0, 14),
    regex=st.sampled_from(["", "[02468]$"]),
)
def test_a_job_is_in_the_order_of_time_and_every_line_keeps_its_number(
    tmp_path_factory: pytest.TempPathFactory, pushes: list[tuple[int, int, int]], cut: int, regex: str
) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    nexts = [0, 0, 0]

    def push(rank: int, ms: int, count: int) -> None:
        put(store, numbered(count, first=nexts[rank], key=f"/u/j/{rank}:0", producer=f"p{rank}", at_ms=NOW_MS + ms))
        nexts[rank] += count

    for one in pushes[:cut]:
        push(*one)
    view = view_of(store, "/u/j", match_scope=PREFIX, regex=regex)
    before = lines_of(view)
    places: dict[str, int] = {}
    last = 0
    for found in before:
        place = max(found.line.epoch_ms, places.get(found.line.key, 0))
        places[found.line.key] = place
        assert place >= last, "by time, and a key's own lines in their order"
        last = place
    for one in pushes[cut:]:
        push(*one)
        run(view.extend(1.0))
        view.settle(0.5)
        run(view.extend(2.0))
    view.settle(9.0)
    after = lines_of(view)
    assert after[: len(before)] == before
    wanted = {(f"/u/j/{rank}:0", number) for rank in range(3) for number in range(nexts[rank])}
    wanted = {item for item in wanted if not regex or item[1] % 2 == 0}
    assert sorted((found.line.key, found.line.number) for found in after) == sorted(wanted)
    for rank in range(3):
        own = [found.line.number for found in after if found.line.key == f"/u/j/{rank}:0"]
        assert own == sorted(own)
    for found in after:
        assert view.numbers.number_of(found.line.seq) == found.number
    store.close()


@given(st.lists(st.integers(0, 1 << 40), unique=True, max_size=300), st.integers(1, 3000))
def test_a_seq_finds_its_number_in_any_order(seqs: list[int], step: int) -> None:
    numbers = Numbers()
    padded = [*seqs, *range(1 << 41, (1 << 41) + 5 * step, step)]
    for seq in padded:
        numbers.append(seq)
    assert [numbers.number_of(seq) for seq in padded] == list(range(len(padded)))
    assert numbers.number_of(1 << 50) is None
    assert [seq for seq, _ in numbers.page(1, 3)] == padded[1:4]


def test_numbers_cross_blocks() -> None:
    numbers = Numbers()
    order = [seq ^ 1 for seq in range(5000)]
    for seq in order:
        numbers.append(seq * 3)
    assert all(numbers.number_of(seq * 3) == place for place, seq in enumerate(order))
    assert numbers.number_of(7) is None


def grep(lines: Sequence[str], needle: str, context: int) -> list[tuple[int, bool]]:
    """What `grep -C` shows: places, and whether each is a hit."""
    hits = [place for place, line in enumerate(lines) if needle in line]
    shown = sorted(
        {other for hit in hits for other in range(hit - context, hit + context + 1) if 0 <= other < len(lines)}
    )
    return [(place, place in hits) for place in shown]


@settings(max_examples=40, deadline=None)
@given(
    marks=st.lists(st.booleans(), min_size=1, max_size=60),
    context=st.integers(0, 4),
    page=st.integers(1, 7),
    pieces=st.integers(1, 4),
)
def test_context_is_that_of_grep_whatever_the_pages_and_whenever_the_lines_come(
    tmp_path_factory: pytest.TempPathFactory, marks: list[bool], context: int, page: int, pieces: int
) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    lines = [f"hit {place}" if mark else f"line {place}" for place, mark in enumerate(marks)]
    size = -(-len(lines) // pieces)
    view: View | None = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "PAGE_LINES", page)
        for at in range(0, len(lines), size):
            put(store, batch(lines[at : at + size], first=at), numbered(3, first=at * 3, key="/u/x/0:0", producer="x"))
            if view is None:
                view = view_of(store, "/u/j/0:0", substring="hit", context=context)
            else:
                run(view.extend(1.0))
    assert view is not None
    found = lines_of(view)
    wanted = grep(lines, "hit", context)
    assert [(found_line.line.number, not found_line.is_context) for found_line in found] == wanted
    for before, line in itertools.pairwise(found):
        assert line.breaks == (line.line.number > before.line.number + 1)
    assert not found or not found[0].breaks
    store.close()


FAULT = [
    "starting",
    "Traceback (most recent call last):",
    '  File "a.py", line 1, in f',
    "    return 1 / 0",
    "ZeroDivisionError: division by zero",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    '  File "a.py", line 9, in <module>',
    "    f()",
    "ValueError: bad",
    "going on",
    "  indented, of nobody",
]


def test_a_traceback_is_one_entry_with_what_it_was_chained_to(store: Store) -> None:
    put(store, batch(FAULT))
    assert entries_of(lines := [line.line for line in lines_of(view_of(store, "/u/j/0:0"))]) == [
        -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, -1,
    ]  # fmt: skip
    assert around(lines, entries_of(lines), 3, 0) == set(range(1, 12))
    assert texts(view_of(store, "/u/j/0:0", regex="^ValueError", context=0)) == FAULT[1:12]
    assert texts(view_of(store, "/u/j/0:0", regex="^ValueError", context=1)) == FAULT[1:13]
    assert texts(view_of(store, "/u/j/0:0", regex="^ValueError")) == ["ValueError: bad"]
    assert texts(view_of(store, "/u/j/0:0", substring="of nobody", context=0)) == [FAULT[13]]


def test_a_traceback_that_another_stream_interrupts_is_whole(store: Store) -> None:
    made = batch(FAULT[:5])
    for place, entry in enumerate(made.entries):
        entry.source = "stderr" if place else "stdout"
    noise = made.entries.add(number=5, epoch_ms=NOW_MS, source="stdout", data="step 7")
    moved = [made.entries[0], made.entries[1], made.entries[2], noise, made.entries[3], made.entries[4]]
    again = logs_pb2.LogBatch(producer="p0", key="/u/j/0:0", attempt_uid="p0", incarnation=1)
    for number, entry in enumerate(moved):
        again.entries.add().CopyFrom(entry)
        again.entries[-1].number = number
    put(store, again)
    found = texts(view_of(store, "/u/j/0:0", substring="ZeroDivisionError", context=0))
    assert found == FAULT[1:5]


def test_a_traceback_that_is_cut_by_the_end_goes_on_when_more_comes(store: Store) -> None:
    put(store, batch(FAULT[:3]))
    view = view_of(store, "/u/j/0:0", substring="in f", context=0)
    assert texts(view) == FAULT[1:3]
    put(store, batch(FAULT[3:], first=3))
    run(view.extend(1.0))
    assert texts(view) == FAULT[1:12]
    assert [line.is_context for line in lines_of(view)][:2] == [True, False]


def test_the_last_ones_and_the_first_ones_say_that_there_is_more(store: Store) -> None:
    put(store, numbered(300))
    last = view_of(store, "/u/j/0:0", max_lines=7, tail=True)
    assert texts(last) == [f"line {number}" for number in range(293, 300)]
    assert "7 lines were asked for" in last.state().capped_reason
    put(store, numbered(2, first=300))
    run(last.extend(1.0))
    assert texts(last)[-2:] == ["line 300", "line 301"]
    first = view_of(store, "/u/j/0:0", max_lines=7)
    assert texts(first) == [f"line {number}" for number in range(7)]
    assert first.is_full and "7 lines were asked for" in first.state().capped_reason
    whole = view_of(store, "/u/j/0:0", max_lines=302)
    assert not whole.state().capped and whole.state().hits == 302


def test_what_retention_took_is_said_to_be_gone_and_the_rest_keeps_its_numbers(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", file_limit=4_000)
    for first in range(0, 600, 20):
        put(store, numbered(20, first=first))
    view = view_of(store, "/u/j/0:0")
    assert len(view.numbers) == 600
    store.close()
    store = Store(tmp_path / "store", file_limit=4_000, max_bytes=12_000)
    put(store, numbered(20, first=600))
    store.close()
    store = Store(tmp_path / "store", file_limit=4_000, max_bytes=12_000)
    assert store.ledger.removed_seq > 0
    again = View(store, view.query)
    again.numbers = view.numbers
    found = lines_of(again)
    gone = store.ledger.removed_seq
    assert [line.number for line in found] == list(range(600))
    assert [line.gone for line in found] == [number < gone for number in range(600)]
    assert found[-1].line.data == "line 599"
    fresh = view_of(store, "/u/j/0:0")
    assert "removed by retention" in fresh.state().capped_reason
    store.close()


def test_a_search_that_is_stopped_again_and_again_gets_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers are made in less time than it is given, or it would begin with the same one for ever."""
    assert finding.ANSWER_S <= view_service.FIND_S / 4
    monkeypatch.setattr(views, "STEP_S", 0.0)
    monkeypatch.setattr(finding, "ANSWER_S", 0.0)
    for first in range(0, 400, 10):
        put(store, numbered(10, first=first))
    find = Find(view_of(store, "/u/j/0:0"), None, "17")
    for _ in range(100):
        work = find.advance()
        for _ in range(3):
            next(work, None)
        work.close()
    assert (find.is_complete, find.total) == (True, 14)


def test_a_view_is_the_same_while_its_lines_become_segments_and_those_are_merged(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", file_limit=3_000)
    for first in range(0, 300, 20):
        put(
            store,
            numbered(20, first=first, at_ms=NOW_MS + first),
            numbered(20, first=first, key="/u/j/1:0", producer="p1", at_ms=NOW_MS + first),
        )
    view = view_of(store, "/u/j", match_scope=PREFIX, regex="[37]$", context=1)
    before = lines_of(view)
    assert len(before) > 300
    find = Find(view, None, "17")
    run(find.advance())
    hits = find.total
    settle(store)
    upkeep = Upkeep(store, targets=(6_000, 15_000))
    while upkeep.convert():
        assert lines_of(view, 50, 20) == before[50:70]
    assert store.catalog.segments(LOG)
    while upkeep.compact():
        assert lines_of(view, 70, 20) == before[70:90]
    assert lines_of(view) == before
    again = Find(view, None, "17")
    run(again.advance())
    assert again.total == hits > 0
    put(store, numbered(7, first=300, at_ms=NOW_MS + 300))
    run(view.extend(1.0))
    view.settle(2.0)
    assert lines_of(view)[: len(before)] == before
    assert [line.line.number for line in lines_of(view)[len(before) :] if not line.is_context] == [303]
    assert lines_of(view_of(store, "/u/j", match_scope=PREFIX, regex="[37]$", context=1))[: len(before)] == before
    store.close()


def test_large_lines_make_a_page_shorter_and_never_empty(store: Store) -> None:
    put(store, batch(["x" * 50_000] * 10))
    view = view_of(store, "/u/j/0:0")
    sizes = []
    at = 0
    while page := lines_of(view, at, 10, 120_000):
        sizes.append(len(page))
        at += len(page)
    assert at == 10 and len(sizes) > 2 and min(sizes) >= 1


@settings(max_examples=25, deadline=None)
@given(
    words=st.lists(st.sampled_from(["apple", "pear", "a pear", "fig"]), max_size=50),
    start=st.integers(0, 60),
    backward=st.booleans(),
    filtered=st.sampled_from(["", "a"]),
)
def test_find_gives_the_hits_of_the_view_with_their_ordinals(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], start: int, backward: bool, filtered: str
) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    for at in range(0, len(words), 7):
        put(store, batch(words[at : at + 7], first=at, key=f"/u/j/{at % 2}:0", producer=f"p{at % 2}"))
    view = view_of(store, "/u/j", match_scope=PREFIX, substring=filtered)
    shown = texts(view)
    find = Find(view, compile_content_regex("p.ar"), "")
    assert not find.is_complete or not words
    run(find.advance())
    hits = [number for number, text in enumerate(shown) if "pear" in text]
    assert (find.total, find.is_complete) == (len(hits), True)
    eligible = [number for number in hits if (number <= start if backward else number >= start)]
    wanted = (eligible[-1] if backward else eligible[0]) if eligible else None
    hit = find.next(start, backward=backward)
    assert (hit and hit[0]) == wanted
    assert hit is None or hit[1] == hits.index(hit[0]) + 1
    put(store, batch(["pear at the end"], first=len(words) + 7, key="/u/j/0:0", producer="p0", at_ms=NOW_MS + 10**6))
    run(view.extend(1.0))
    run(find.advance())
    assert find.total == len(hits), "a line without its number is not found yet"
    view.settle(2.0)
    run(find.advance())
    found = find.next(10**6, backward=True)
    assert find.total >= len(hits) + ("a" in filtered or not filtered) and found is not None
    store.close()


def parts(*pieces: bytes, first: int = 0, source: str = "stdout", last: bool = True) -> logs_pb2.LogBatch:
    made = logs_pb2.LogBatch(producer="p0", key="/u/j/0:0", attempt_uid="p0", incarnation=1)
    tail = ""
    for place, piece in enumerate(pieces):
        text = piece.decode(errors="replace")
        made.entries.add(
            number=first + place, epoch_ms=NOW_MS + first + place, source=source, data=text,
            raw=piece if text.encode() != piece else b"", partial=place < len(pieces) - 1 or not last, part=place,
            seam=tail + text[:4096] if place else "",
        )  # fmt: skip
        tail = (tail + text)[-4096:]
    return made


@pytest.mark.parametrize("settled", [False, True], ids=["being written", "in segments"])
def test_lines_can_be_left_out_with_and_without_a_pattern_and_with_context(store: Store, settled: bool) -> None:
    put(store, numbered(40))
    if settled:
        store.roll()
        put(store, numbered(1, key="/u/j/2:0", producer="p2"))
        settle(store)
        while Upkeep(store).convert():
            pass
        assert store.catalog.segments(LOG)
    wanted = [f"line {number}" for number in range(40)]
    assert texts(view_of(store, "/u/j/0:0", without="1")) == [text for text in wanted if "1" not in text]
    assert texts(view_of(store, "/u/j/0:0", without="1|[2-9]$", regex="3")) == ["line 3", "line 30"][1:]
    around = view_of(store, "/u/j/0:0", without="line [1-9]", context=1)
    assert texts(around) == ["line 0", "line 1"], "what is left out may stand around a hit"
    with pytest.raises(ModelError) as wrong:
        view_of(store, "/u/j/0:0", without="a(")
    assert (wrong.value.field, wrong.value.position) == ("without", 1)


def test_context_stands_around_the_whole_of_a_long_line(store: Store) -> None:
    put(store, batch([f"before {place}" for place in range(3)]))
    put(store, parts(*[b"x"] * 4, b"needle", *[b"y"] * 3, first=3))
    put(store, batch([f"after {place}" for place in range(3)], first=11))
    found = lines_of(view_of(store, "/u/j/0:0", substring="needle", context=1))
    assert [line.line.data for line in found] == ["before 2", *"xxxx", "needle", *"yyy", "after 0"]
    # All of its parts are the hit.
    assert [line.is_context for line in found] == [True, *[False] * 8, True]


@settings(max_examples=30, deadline=None)
@given(
    lines=st.lists(st.tuples(st.booleans(), st.integers(1, 5)), min_size=1, max_size=25),
    context=st.integers(0, 4),
    at_once=st.integers(1, 40),
    stream=st.sampled_from(["stdout", "stderr"]),
)
def test_context_counts_lines_however_many_parts_the_neighbours_have(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[bool, int]], context: int, at_once: int, stream: str
) -> None:
    """Lines in parts, some of them hits; they come at once or so many entries at a time, which may end within a line."""
    store = Store(tmp_path_factory.mktemp("store"))
    made = logs_pb2.LogBatch(producer="p0", key="/u/j/0:0", attempt_uid="p0", incarnation=1)
    line_of: list[int] = []
    for place, (is_hit, count) in enumerate(lines):
        for part in range(count):
            made.entries.add(
                number=len(line_of), epoch_ms=NOW_MS, source=stream, data="hit" if is_hit and not part else "line",
                partial=part < count - 1, part=part,
            )  # fmt: skip
            line_of.append(place)
    view: View | None = None
    with pytest.MonkeyPatch.context() as patch:
        # A window is short, so that it ends between the parts of a line.
        patch.setattr("iris_controller.finelog.surroundings.NEAR_LINES", 1)
        patch.setattr("iris_controller.finelog.surroundings.NEAR_WINDOW", 3)
        for at in range(0, len(line_of), at_once):
            some = logs_pb2.LogBatch(producer="p0", key="/u/j/0:0", attempt_uid="p0", incarnation=1)
            some.entries.extend(made.entries[at : at + at_once])
            put(store, some)
            if view is None:
                view = view_of(store, "/u/j/0:0", substring="hit", context=context)
            else:
                run(view.extend(1.0))
    assert view is not None
    wanted = dict(grep(["hit" if is_hit else "line" for is_hit, _ in lines], "hit", context))
    found = [line.line.number for line in lines_of(view)]
    assert found == [number for number, place in enumerate(line_of) if place in wanted]
    assert view.hits == sum(is_hit for is_hit, _ in lines)
    store.close()


def test_neighbours_with_many_parts_are_not_read_part_by_part(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in (0, 200, 401, 601):
        put(store, parts(*[b"x"] * 200, first=first))
        if first == 200:
            put(store, batch(["needle"], first=400))
    reads: list[queries.Query] = []
    read = View.read_store

    def counted(view: View, query: queries.Query, *rest: Any) -> Generator[None, None, Any]:
        reads.append(query)
        return read(view, query, *rest)

    monkeypatch.setattr(View, "read_store", counted)
    view = view_of(store, "/u/j/0:0", substring="needle", context=2)
    assert len(reads) <= 8, "one for the hit, and a few for either side"
    assert [line.line.number for line in lines_of(view)] == list(range(801))


def test_a_match_across_two_parts_is_found_and_a_pattern_that_needs_more_is_said(store: Store) -> None:
    put(store, parts(b"x" * 9000 + b"nee", b"dle" + b"y" * 9000))
    assert len(view_of(store, "/u/j/0:0", substring="needle").numbers) == 1
    found = view_of(store, "/u/j/0:0", regex="x{3}needley{3}")
    assert len(found.numbers) == 1 and not found.state().notes
    said = view_of(store, "/u/j/0:0", regex="x.*y").state()
    assert "each part alone" in said.notes[0]
    put(store, numbered(1, key="/u/j/1:0", producer="p1"))
    assert not view_of(store, "/u/j/1:0", regex="l.*0").state().notes
    store.roll()
    put(store, numbered(1, key="/u/j/2:0", producer="p2"))
    settle(store)
    upkeep = Upkeep(store)
    while upkeep.convert():
        pass
    assert store.catalog.segments(LOG)
    for pattern in ("needle", "x{3}needley{3}"):
        assert len(view_of(store, "/u/j/0:0", regex=pattern).numbers) == 1
    assert "each part alone" in view_of(store, "/u/j/0:0", regex="x.*y").state().notes[0]


@given(st.lists(st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b"?")), max_size=9), st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_an_export_is_what_was_written_and_can_be_taken_up_again(
    tmp_path_factory: pytest.TempPathFactory, written: list[bytes], page: int
) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    at = 0
    for line in written:
        cut = max(1, len(line) // 3)
        pieces = [line[start : start + cut] for start in range(0, len(line), cut)] or [b""]
        put(store, parts(*pieces, first=at))
        at += len(pieces)
    view = view_of(store, "/u/j/0:0")
    data, next_line, lines = b"", 0, 0
    while next_line < len(view.numbers):
        exporter = Exporter(next_line)
        answer = exporter.take(lines_of(view, next_line, page))
        data += answer.data
        lines += answer.lines
        next_line = answer.next_line
    assert data == b"".join(line + b"\n" for line in written)
    assert lines == len(written)
    store.close()


@pytest.mark.parametrize("page", [1, 2, 50])
def test_an_export_gives_a_line_without_a_line_end_one_only_before_another_line(store: Store, page: int) -> None:
    made = parts(b"one", b" and a half", first=0)
    made.entries[1].unended = True
    end = parts(b"two", first=2, source="stderr")
    end.entries[0].unended = True
    put(store, made, end)
    view = view_of(store, "/u/j/0:0")
    data = b""
    for first in range(0, 3, page):
        exporter = Exporter(first, lines_of(view, first - 1, 1)[0] if first else None)
        data += exporter.take(lines_of(view, first, page)).data
    assert data == b"one and a half\ntwo"


def test_an_export_says_what_is_lost(store: Store) -> None:
    made = batch(["one"])
    made.entries.add(number=1, gap=5, epoch_ms=NOW_MS, source="iris", data="the spool was full")
    made.entries.add(number=6, gap=1, epoch_ms=NOW_MS, source="iris", data="a crash")
    put(store, made)
    exporter = Exporter(0)
    answer = exporter.take(lines_of(view_of(store, "/u/j/0:0")))
    assert answer.data == b"one\n[5 lines lost: the spool was full]\n[1 line lost: a crash]\n"
    assert (answer.lines, answer.lost_lines, exporter.last().done) == (1, 6, True)


def test_lines_lost_in_between_are_added_up_over_the_pages_of_a_view(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "PAGE_LINES", 5)
    for first in range(0, 120, 12):
        made = numbered(10, first=first)
        made.entries.add(number=first + 10, gap=2, epoch_ms=NOW_MS, source="iris", data="the spool was full")
        put(store, made)
    view = view_of(store, "/u/j/0:0", substring="line")
    assert (view.hits, view.state().capped_reason) == (
        100,
        "20 lines in between were lost before they were stored",
    )


def test_flags_are_bits() -> None:
    numbers = Numbers()
    numbers.append(5, CONTEXT | BREAKS)
    assert numbers.page(0, 9) == [(5, CONTEXT | BREAKS)]


def test_numbers_of_close_lines_take_two_bytes_and_of_following_ones_next_to_none() -> None:
    close, following, far = Numbers(), Numbers(), Numbers()
    for start in range(0, 102_400, 1024):
        close.extend([(seq * 5, 0) for seq in range(start, start + 1024)])
        far.extend([(seq << 20, 0) for seq in range(start, start + 1024)])
    following.extend_seqs(range(7, 10_240_007))
    assert len(following) == 10_240_000 and following.memory_bytes < 1 << 20
    assert close.memory_bytes < 102_400 * 2.5 < 102_400 * 8 < far.memory_bytes
    assert following.page(10_239_999, 5) == [(10_240_006, 0)]
    assert [following.number_of(seq) for seq in (7, 5_000_000, 10_240_006, 6)] == [0, 4_999_993, 10_239_999, None]
    assert [close.at_or_after(seq) for seq in (0, 1, 6, 511_995, 1 << 40)] == [0, 1, 2, 102_399, 102_399]


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.tuples(st.booleans(), st.integers(1, 2500), st.integers(0, 3)), max_size=8))
def test_numbers_are_the_same_however_the_lines_come(steps: list[tuple[bool, int, int]]) -> None:
    numbers, plain, seq = Numbers(), [], 1
    for is_range, count, hole in steps:
        seqs = range(seq, seq + count)
        if is_range:
            numbers.extend_seqs(seqs)
        else:
            numbers.extend([(one, CONTEXT if one % 900 == 0 else 0) for one in seqs])
        plain += [(one, CONTEXT if not is_range and one % 900 == 0 else 0) for one in seqs]
        seq += count + hole
    assert len(numbers) == len(plain)
    assert numbers.page(0, len(plain) + 5) == plain
    assert numbers.page(1000, 1100) == plain[1000:2100]
    assert all(numbers.number_of(one) == place for place, (one, _) in enumerate(plain))
    assert numbers.lowest_seq() == (plain[0][0] if plain else 0)


def test_a_log_by_itself_is_numbered_without_reading_a_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for start in range(0, 3000, 500):
        put(store, numbered(500, first=start))
        put(store, numbered(3, first=start // 500 * 3, key="/u/j/1:0", producer="p1"))
        if start in (500, 1500):
            store.roll()
            settle(store)
            while Upkeep(store).convert():
                pass
    assert store.catalog.segments(LOG)
    slow = view_of(store, "/u/j/0:0", max_lines=2999)
    expected = lines_of(slow)
    monkeypatch.setattr(View, "read_store", None)
    fast = view_of(store, "/u/j/0:0")
    monkeypatch.undo()
    assert (len(fast.numbers), fast.hits, fast.is_complete, fast.state().capped) == (3000, 3000, True, False)
    assert lines_of(fast)[:2999] == expected
    put(store, numbered(2, first=3000))
    run(fast.extend(1.0))
    assert texts(fast, 2999) == ["line 2999", "line 3000", "line 3001"]
    whole = view_of(store, "/u/j", match_scope=PREFIX)
    assert len(whole.numbers) == 3002 + 18


def test_a_view_of_several_logs_has_their_lines_by_time_and_wakes_for_each(store: Store) -> None:
    for rank in range(4):
        put(
            store,
            *(
                numbered(1, first=n, key=f"/u/j/{rank}:0", producer=f"p{rank}", at_ms=NOW_MS + 10 * n + rank)
                for n in range(20)
            ),
        )
    request = logs_pb2.FetchLogsRequest(source="/u/j/0:0", match_scope=EXACT, regex="[05]$")
    also = [
        logs_pb2.LogViewSource(source="/u/j/2", match_scope=PREFIX),
        logs_pb2.LogViewSource(source="/u/j/2:0", match_scope=EXACT),
    ]
    view = View(store, queries.merged(queries.parse(request), also))
    run(view.build())
    assert [(found.line.key, found.line.data) for found in lines_of(view)] == [
        (f"/u/j/{rank}:0", f"line {number}") for number in (0, 5, 10, 15) for rank in (0, 2)
    ]  # fmt: skip


def test_errors_are_found_by_the_level_that_lines_state(store: Store) -> None:
    for level in (0, 2, 4, 0, 5, 3):
        put(store, batch([f"level {level}"], producer=f"p{level}{store.last_seq}", level=level))  # type: ignore[arg-type]
    view = view_of(store, "/u/j/0:0")
    find = Find(view, None, "", 4)
    run(find.advance())
    assert find.total == 2
    assert [find.next(start, backward=False) for start in (0, 3)] == [(2, 1), (4, 2)]


def test_a_line_is_found_by_its_seq_and_by_its_time(store: Store) -> None:
    put(
        store,
        numbered(100),
        numbered(5, key="/u/other/0:0", producer="other"),
        numbered(100, first=100, at_ms=NOW_MS + 1000),
    )
    view = view_of(store, "/u/j/0:0")
    assert [run(view.at_seq(seq)) for seq in (1, 100, 103, 106, 5000)] == [0, 99, 100, 100, 199]
    assert [run(view.at_time(NOW_MS + ms)) for ms in (-5, 7, 500, 1003, 9999)] == [0, 7, 100, 103, 199]
    assert run(view_of(store, "/u/none/0:0").at_time(5)) is None


def test_several_logs_are_numbered_without_reading_a_text_in_the_same_order(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(0, 900, 50):
        for rank in range(3):
            made = numbered(50, first=start, key=f"/u/j/{rank}:0", producer=f"p{rank}", at_ms=NOW_MS + start * 7 + rank)
            if start % 200 == 0:
                made.entries[10].partial = True
                made.entries[11].part = 1
            put(store, made, numbered(2, first=start, key="/u/j2/0:0", producer="other"))
        put(store, numbered(5, first=start, key="/u/j/0:0", producer="older", at_ms=NOW_MS + start * 7, incarnation=0))
        if start in (300, 600):
            store.roll()
            settle(store)
            while Upkeep(store).convert():
                pass
    assert store.catalog.segments(LOG)
    fields: dict[str, Any] = {"match_scope": PREFIX, "min_incarnation": 1}
    expected = lines_of(view_of(store, "/u/j", max_lines=views.MAX_LINES - 1, **fields))
    assert len(expected) == 2700
    monkeypatch.setattr(View, "read_store", None)
    fast = view_of(store, "/u/j", **fields)
    monkeypatch.undo()
    assert lines_of(fast) == expected
    # Of each long line two parts have a number, and it is one line.
    assert (fast.hits, fast.state().capped, fast.is_complete) == (2700 - 15, False, True)
