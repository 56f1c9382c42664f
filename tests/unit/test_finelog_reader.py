"""Reading a finelog store: scopes, filters, tail, paging, order, and an account that never hides what was left out."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from iris_controller.finelog.store import Store
from iris_controller.rpc.errors import RpcError
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2
from tests.unit.finelog_world import EXACT, NOW_MS, PREFIX, batch, fetch, numbered, page, put, texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEVELS = (
    common_pb2.LOG_LEVEL_UNKNOWN,
    common_pb2.LOG_LEVEL_DEBUG,
    common_pb2.LOG_LEVEL_INFO,
    common_pb2.LOG_LEVEL_WARNING,
    common_pb2.LOG_LEVEL_ERROR,
    common_pb2.LOG_LEVEL_CRITICAL,
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that starts a new file every 20 kB, so that every read crosses files. A busy machine leaves nothing uncounted."""
    monkeypatch.setattr("iris_controller.finelog.reader.MORE_SECONDS", 60.0)
    opened = Store(tmp_path / "logs", file_limit=20_000)
    yield opened
    opened.close()


def test_a_line_comes_back_as_it_was_pushed(store: Store) -> None:
    made = logs_pb2.LogBatch(producer="abc", key="/u/j/3:7", attempt_uid="abc", incarnation=2)
    made.entries.add(
        number=0, epoch_ms=123, source="stderr", data="a\0b\x1b[2J\n\ufffd", raw=b"a\0b\x1b[2J\n\xff",
        level=common_pb2.LOG_LEVEL_ERROR, partial=True,
    )  # fmt: skip
    put(store, made)
    answer = fetch(store, "/u/j/3:7")
    assert answer == logs_pb2.FetchLogsResponse(
        entries=[
            logs_pb2.StoredLine(
                seq=1, key="/u/j/3:7", epoch_ms=123, source="stderr", data="a\0b\x1b[2J\n\ufffd",
                raw=b"a\0b\x1b[2J\n\xff", level=common_pb2.LOG_LEVEL_ERROR, attempt_uid="abc", attempt_id=7, partial=True,
            )
        ],
        cursor=1, shown=1, matched=1, scanned=1, last_seq=1,
    )  # fmt: skip


def test_what_was_never_logged_is_empty_at_once(store: Store) -> None:
    put(store, numbered(3))
    answer = fetch(store, "/u/j/0:1")
    assert (answer.shown, answer.capped, answer.cursor, answer.last_seq) == (0, False, 3, 3)


def test_exact_reads_one_key_and_takes_nothing_as_a_pattern(store: Store) -> None:
    put(store, batch(["mine"], key="/u/j.x/0:0", producer="a"), batch(["other"], key="/u/jax/0:0", producer="b"))
    assert texts(fetch(store, "/u/j.x/0:0").entries) == ["mine"]
    assert texts(fetch(store, "/u/j.x/0").entries) == []


def test_a_prefix_covers_whole_components_only(store: Store) -> None:
    keys = [
        "/u/j",
        "/u/j/0:0",
        "/u/j/1:0",
        "/u/j/child/0:0",
        "/u/j2/0:0",
        "/u/j/10:0",
        "/u/j/1:1",
        "/u/j-x/0:0",
        "/v/j/0:0",
    ]
    for place, key in enumerate(keys):
        put(store, batch([key], key=key, producer=f"p{place}"))
    found = {
        source: set(texts(fetch(store, source, match_scope=PREFIX).entries))
        for source in ("/u/j", "/u/j/", "/u/j/1", "/u")
    }
    assert found["/u/j"] == {"/u/j", "/u/j/0:0", "/u/j/1:0", "/u/j/1:1", "/u/j/10:0", "/u/j/child/0:0"}
    assert found["/u/j/"] == found["/u/j"]
    assert found["/u/j/1"] == {"/u/j/1:0", "/u/j/1:1"}
    assert found["/u"] == set(keys) - {"/v/j/0:0"}


def test_no_children_reads_the_own_tasks_of_a_job(store: Store) -> None:
    keys = ["/u/j/0:0", "/u/j/12:3", "/u/j/child/0:0", "/u/j/0x/0:0"]
    for place, key in enumerate(keys):
        put(store, batch([key], key=key, producer=f"p{place}"))
    assert texts(fetch(store, "/u/j", match_scope=PREFIX, no_children=True).entries) == ["/u/j/0:0", "/u/j/12:3"]
    assert texts(fetch(store, "/u/j/12", match_scope=PREFIX, no_children=True).entries) == ["/u/j/12:3"]


def test_levels_pass_from_the_asked_one_up_and_unknown_always(store: Store) -> None:
    for place, level in enumerate(LEVELS):
        put(store, batch([common_pb2.LogLevel.Name(level)], first=place, level=level))
    found = texts(fetch(store, "/u/j/0:0", min_level=common_pb2.LOG_LEVEL_WARNING).entries)
    assert found == ["LOG_LEVEL_UNKNOWN", "LOG_LEVEL_WARNING", "LOG_LEVEL_ERROR", "LOG_LEVEL_CRITICAL"]


def test_levels_are_known_of_whole_attempts_without_reading_them(store: Store) -> None:
    for level in LEVELS:
        name = common_pb2.LogLevel.Name(level)
        put(store, batch([name], key=f"/u/k/{level}:0", producer=name, level=level))
    made = batch(["a number of a later release"], key="/u/k/9:0", producer="later")
    made.entries[0].level = 9  # type: ignore[assignment]  # not one of ours
    put(store, made)
    answer = fetch(store, "/u/k", match_scope=PREFIX, min_level=common_pb2.LOG_LEVEL_ERROR)
    assert sorted(line.level for line in answer.entries) == [0, 4, 5, 9]
    assert answer.scanned == 4


def test_times_are_exclusive_on_both_sides(store: Store) -> None:
    put(store, numbered(10))
    found = fetch(store, "/u/j/0:0", since_ms=NOW_MS + 2, until_ms=NOW_MS + 6)
    assert texts(found.entries) == ["line 3", "line 4", "line 5"]
    assert not found.capped


def test_incarnation_and_attempt_keep_a_replaced_job_apart(store: Store) -> None:
    put(store, batch(["old"], producer="a", incarnation=1))
    put(store, batch(["new"], producer="b", incarnation=2))
    put(store, batch(["newest"], producer="c", incarnation=3))
    assert texts(fetch(store, "/u/j/0:0", min_incarnation=2).entries) == ["new", "newest"]
    assert texts(fetch(store, "/u/j/0:0", attempt_uid="a").entries) == ["old"]
    assert texts(fetch(store, "/u", match_scope=PREFIX, attempt_uid="b").entries) == ["new"]
    assert texts(fetch(store, "/u/j/0:0", attempt_uid="nobody").entries) == []


def test_substring_is_literal_and_regex_is_re2(store: Store) -> None:
    put(store, batch(["loss=1.5", "lossX1x5", "rank0 loss", "rank2 loss", "Überlauf", "end$"]))
    assert texts(fetch(store, "/u/j/0:0", substring="loss=1.5").entries) == ["loss=1.5"]
    assert texts(fetch(store, "/u/j/0:0", substring="Üb").entries) == ["Überlauf"]
    assert texts(fetch(store, "/u/j/0:0", regex=r"rank[01].*loss").entries) == ["rank0 loss"]
    assert texts(fetch(store, "/u/j/0:0", regex=r"(?i)ü").entries) == ["Überlauf"]
    assert texts(fetch(store, "/u/j/0:0", regex=r"^rank.\b").entries) == ["rank0 loss", "rank2 loss"]
    assert texts(fetch(store, "/u/j/0:0", regex=r"loss$").entries) == ["rank0 loss", "rank2 loss"]
    assert texts(fetch(store, "/u/j/0:0", regex=r"\$").entries) == ["end$"]
    assert texts(fetch(store, "/u/j/0:0", regex="loss", substring="rank2").entries) == ["rank2 loss"]
    assert fetch(store, "/u/j/0:0", regex="").shown == 6


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"match_scope": 0}, "match_scope"),
        ({"match_scope": common_pb2.MATCH_SCOPE_REGEX}, "match_scope"),
        ({"match_scope": 77}, "match_scope"),
        ({"source": ""}, "source"),
        ({"source": "", "match_scope": PREFIX}, "source"),
        ({"source": "///", "match_scope": PREFIX}, "source"),
        ({"source": "/" + "x" * 5000}, "source"),
        ({"substring": "x" * 5000}, "substring"),
    ],
)
def test_a_request_that_cannot_be_meant_names_the_field(store: Store, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(RpcError) as caught:
        fetch(store, str(fields.pop("source", "/u/j/0:0")), **fields)
    assert (caught.value.status, caught.value.field) == ("INVALID_ARGUMENT", field)


def test_a_bad_pattern_names_its_place(store: Store) -> None:
    with pytest.raises(ModelError) as caught:
        fetch(store, "/u", match_scope=PREFIX, regex="loss[")
    assert (caught.value.field, caught.value.position) == ("regex", 4)


def test_tail_gives_the_last_lines_in_ascending_order_and_counts_the_rest(store: Store) -> None:
    for first in range(0, 5000, 100):
        put(store, numbered(100, first=first), numbered(100, first=first, key="/u/j/1:0", producer="p1"))
    assert len(store.files) > 5
    answer = fetch(store, "/u/j/0:0", tail=True, max_lines=150)
    assert texts(answer.entries) == [f"line {number}" for number in range(4850, 5000)]
    assert (answer.shown, answer.matched, answer.capped) == (150, 5000, True)
    assert "150 lines" in answer.capped_reason
    assert answer.scanned <= 300, "a tail reads what it needs"
    assert answer.cursor == answer.last_seq == 10_000
    young = fetch(store, "/u/j/0:0", tail=True, max_lines=150, cursor=9000)
    assert (young.shown, young.matched, young.capped) == (150, 500, True)
    whole = fetch(store, "/u/j/0:0", tail=True, max_lines=5000)
    assert (whole.shown, whole.matched, whole.capped, whole.from_seq) == (5000, 5000, False, 0)


def test_tail_with_a_filter_finds_the_last_matches(store: Store) -> None:
    put(store, numbered(3000))
    answer = fetch(store, "/u/j/0:0", tail=True, max_lines=2, regex="7$")
    assert texts(answer.entries) == ["line 2987", "line 2997"]
    assert answer.capped
    rare = fetch(store, "/u/j/0:0", tail=True, max_lines=2, substring="line 17")
    assert rare.capped and texts(rare.entries) == ["line 1798", "line 1799"]
    one = fetch(store, "/u/j/0:0", tail=True, max_lines=2, regex="line 1500$")
    assert (texts(one.entries), one.matched, one.capped) == (["line 1500"], 1, False)


@pytest.mark.parametrize("scope", [EXACT, PREFIX])
@pytest.mark.parametrize("size", [1, 7, 100, 1000, 10_000])
def test_reading_backwards_page_by_page_gives_every_line_once(store: Store, scope: int, size: int) -> None:
    for first in range(0, 1000, 50):
        put(store, *(numbered(50, first=first, key=f"/u/j/{rank}:0", producer=f"p{rank}") for rank in range(3)))
    source = "/u/j/1:0" if scope == EXACT else "/u/j"
    seqs: list[int] = []
    before = 0
    while True:
        answer = fetch(store, source, match_scope=scope, tail=True, max_lines=size, before=before, regex="[02468]$")
        seqs = [line.seq for line in answer.entries] + seqs
        before = answer.from_seq
        if not before:
            break
    forward = [line.seq for line in page(store, source, match_scope=scope, regex="[02468]$")]
    assert sorted(seqs) == sorted(forward)
    assert len(forward) == (500 if scope == EXACT else 1500)


@pytest.mark.parametrize("scope", [EXACT, PREFIX])
@pytest.mark.parametrize(
    ("max_lines", "max_bytes"), [(1, 8 << 20), (7, 8 << 20), (1000, 3000), (1000, 1), (0, 8 << 20)]
)
def test_pages_join_without_gap_or_repeat(store: Store, scope: int, max_lines: int, max_bytes: int) -> None:
    chance = random.Random(5)
    count = 600 if max_lines != 1 else 150
    nexts = [0, 0, 0]
    while sum(nexts) < count:
        rank = chance.randrange(3)
        size = chance.randrange(1, 30)
        put(
            store,
            numbered(
                size, first=nexts[rank], key=f"/u/j/{rank}:0", producer=f"p{rank}", at_ms=chance.randrange(1, 10**6)
            ),
        )
        nexts[rank] += size
    source = "/u/j/1:0" if scope == EXACT else "/u/j"
    found = page(store, source, match_scope=scope, max_lines=max_lines, max_bytes=max_bytes)
    per_key: dict[str, list[int]] = {}
    for line in sorted(found, key=lambda line: line.seq):
        per_key.setdefault(line.key, []).append(line.number)
    ranks = [1] if scope == EXACT else [0, 1, 2]
    assert per_key == {f"/u/j/{rank}:0": list(range(nexts[rank])) for rank in ranks}


def test_an_answer_holds_no_more_bytes_than_it_may_and_one_line_at_least(store: Store) -> None:
    put(store, batch(["x" * 1000] * 20))
    answer = fetch(store, "/u/j/0:0", max_bytes=5000)
    assert answer.capped and "bytes" in answer.capped_reason
    assert 1 <= answer.shown <= 5
    assert answer.ByteSize() <= 5500
    assert fetch(store, "/u/j/0:0", max_bytes=10).shown == 1
    tail = fetch(store, "/u/j/0:0", max_bytes=5000, tail=True)
    assert tail.capped and tail.entries[-1].number == 19


def test_an_answer_that_holds_exactly_all_is_not_capped(store: Store) -> None:
    put(store, numbered(1000))
    for tail in (False, True):
        answer = fetch(store, "/u/j/0:0", tail=tail)
        assert (answer.shown, answer.matched, answer.capped, answer.from_seq) == (1000, 1000, False, 0)
        answer = fetch(store, "/u/j/0:0", tail=tail, max_lines=999)
        assert (answer.shown, answer.matched, answer.capped) == (999, 1000, True)


def test_several_ranks_interleave_by_time_and_the_same_every_time(store: Store) -> None:
    ranks = 4
    # Each rank's lines arrive in one late push, as from a worker that could not send for a while.
    for rank in reversed(range(ranks)):
        made = logs_pb2.LogBatch(producer=f"p{rank}", key=f"/t/ord/{rank}:0", attempt_uid=f"p{rank}", incarnation=1)
        for number in range(20):
            when = NOW_MS + 400 * number + (100 * rank if number % 5 else 0)
            made.entries.add(number=number, epoch_ms=when, source="stdout", data=f"{number} {rank}")
        put(store, made)
    first = fetch(store, "/t/ord", match_scope=PREFIX)
    order = [(line.epoch_ms, line.key, line.number) for line in first.entries]
    assert len(order) == 80
    assert order == sorted(order)
    assert fetch(store, "/t/ord", match_scope=PREFIX) == first
    assert fetch(store, "/t/ord", match_scope=PREFIX, tail=True).entries == first.entries
    for more in ({"regex": "[0-9]"}, {"max_lines": 10, "tail": True}, {"max_lines": 10}):
        found = [
            (line.epoch_ms, line.key, line.number)
            for line in fetch(store, "/t/ord", match_scope=PREFIX, **more).entries
        ]
        assert found == sorted(found)


def test_a_search_that_ran_out_of_time_says_so_and_can_go_on(store: Store) -> None:
    for first in range(0, 2000, 10):
        put(store, numbered(10, key=f"/u/j/{first % 7}:0", producer=f"p{first}"))
    for tail in (False, True):
        answer = fetch(store, "/u", match_scope=PREFIX, regex="nothing^", max_seconds=0.0, tail=tail)
        assert answer.capped and "search stopped after 0 s" in answer.capped_reason
        assert answer.scanned < 2000
    assert answer.from_seq > 1 and answer.cursor == answer.last_seq
    # A page out of time makes progress all the same, so a patient client gets everything.
    assert len(page(store, "/u", match_scope=PREFIX, regex=".$", max_seconds=0.0)) == 2000
    seqs: set[int] = set()
    before = 0
    while True:
        answer = fetch(store, "/u", match_scope=PREFIX, regex=".$", max_seconds=0.0, tail=True, before=before)
        assert seqs.isdisjoint(line.seq for line in answer.entries)
        seqs.update(line.seq for line in answer.entries)
        before = answer.from_seq
        if not before:
            break
    assert seqs == set(range(1, 2001))


def test_a_search_that_saw_everything_was_not_stopped_however_late_it_is(store: Store) -> None:
    put(store, numbered(10))
    for tail in (False, True):
        answer = fetch(store, "/u", match_scope=PREFIX, regex=".$", max_seconds=0.0, tail=tail)
        assert (answer.shown, answer.capped_reason, answer.from_seq) == (10, "", 0)


def test_a_gap_that_a_search_cannot_see_into_is_said(store: Store) -> None:
    put(store, numbered(5))
    put(store, numbered(5, first=1005, at_ms=NOW_MS + 100))
    plain = fetch(store, "/u/j/0:0")
    assert [line.gap for line in plain.entries] == [0] * 5 + [1000] + [0] * 5
    assert "1,000 lines never arrived" in plain.entries[5].data
    assert not plain.capped
    searched = fetch(store, "/u/j/0:0", regex="line 7$")
    assert searched.capped and "1,000 lines in between were lost" in searched.capped_reason
    assert "1,000 lines" in fetch(store, "/u/j/0:0", substring="not there").capped_reason
    assert not fetch(store, "/u/j/0:0", regex="line 3$", until_ms=NOW_MS + 4, max_lines=5).capped_reason


def test_a_read_that_reaches_before_what_is_kept_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path, file_limit=10_000, max_bytes=40_000)
    for first in range(0, 3000, 50):
        put(store, numbered(50, first=first))
    put(store, batch(["young"], key="/u/k/0:0", producer="k", incarnation=2))
    store.close()
    store = Store(tmp_path, file_limit=10_000, max_bytes=40_000)
    assert sum(path.stat().st_size for path in tmp_path.glob("wal-*.log")) < 52_000
    answer = fetch(store, "/u/j/0:0", max_lines=5000)
    kept = len(answer.entries)
    assert answer.capped and f"{3000 - kept:,} older lines were removed by retention" in answer.capped_reason
    assert texts(answer.entries) == [f"line {number}" for number in range(3000 - kept, 3000)]
    assert not fetch(store, "/u/j/0:0", cursor=answer.cursor).capped, "going on from there misses nothing"
    assert not fetch(store, "/u/k/0:0").capped, "another log is whole"
    assert not fetch(store, "/u/j/0:0", tail=True, max_lines=2, since_ms=NOW_MS + 3000).capped
    assert "removed" in fetch(store, "/u", match_scope=PREFIX, tail=True, max_lines=5000).capped_reason
    assert "removed" not in fetch(store, "/u/j/0:0", tail=True, max_lines=5).capped_reason
    assert not fetch(store, "/u/j/0:0", min_incarnation=2).capped, "lines of an older job of that name do not count"
    assert store.mark("p0") == 3000, "what was removed is not stored again"
    put(store, numbered(3000))
    assert fetch(store, "/u/j/0:0", cursor=answer.cursor).shown == 0
    store.close()


def test_a_file_that_retention_was_about_to_remove_is_not_served_again(tmp_path: Path) -> None:
    store = Store(tmp_path, file_limit=10_000, max_bytes=40_000)
    put(store, numbered(200))
    first = next(tmp_path.glob("wal-*.log"))
    whole = first.read_bytes()
    for number in range(200, 3000, 50):
        put(store, numbered(50, first=number))
    store.close()
    # As if the machine had stopped between the ledger and the removal.
    first.write_bytes(whole)
    store = Store(tmp_path, file_limit=10_000, max_bytes=40_000)
    answer = fetch(store, "/u/j/0:0", max_lines=5000)
    assert answer.capped_reason == (
        f"{3000 - answer.shown:,} older lines were removed by retention, up to seq {3000 - answer.shown}"
    )
    assert not first.exists()
    store.close()
