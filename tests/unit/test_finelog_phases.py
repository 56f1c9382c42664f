"""An answer is the same wherever its lines lie: in a file that grows, in a finished one, in a segment, in a merged one, after a restart."""

from __future__ import annotations

import importlib
import os
import random
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from iris_controller.finelog import query as queries
from iris_controller.finelog.catalog import LOG
from iris_controller.finelog.loglines import LAYOUT, Rows
from iris_controller.finelog.parts import NOTE, needs_more
from iris_controller.finelog.reader import LINE_OVERHEAD
from iris_controller.finelog.store import Store
from iris_controller.finelog.upkeep import Upkeep
from iris_core.wire.gen.iris.v1 import logs_pb2
from tests.unit.finelog_world import EXACT, NOW_MS, PREFIX, fetch, put

SOAK = os.environ.get("IRIS_SOAK") == "1"

OWNERS = (
    ("a", "/u/j/0:0", 1),
    ("b", "/u/j/0:0", 2),
    ("c", "/u/j/1:0", 1),
    ("d", "/u/j/child/0:0", 1),
    ("e", "/u/j2/0:0", 3),
)
"""Producer, key, incarnation: two share a key, as the attempts of a replaced job do."""

ENTRY = st.fixed_dictionaries(
    {
        "epoch_ms": st.integers(NOW_MS, NOW_MS + 20),
        "source": st.sampled_from(["stdout", "stderr"]),
        "data": st.text("abü\0 \n", max_size=12),
        "level": st.sampled_from([0, 1, 2, 3, 4, 5, 9]),
    },
    optional={
        "gap": st.integers(1, 5),
        "raw": st.binary(min_size=1, max_size=4),
        "partial": st.just(True),
        "part": st.integers(1, 2),
        "back": st.integers(2, 3),
        "unended": st.just(True),
        "seam": st.text("ab", min_size=1, max_size=4),
    },
)
GROUPS = st.lists(
    st.lists(st.tuples(st.sampled_from(OWNERS), st.lists(ENTRY, min_size=1, max_size=8)), min_size=1, max_size=3),
    min_size=3,
    max_size=12,
)
QUERY = st.fixed_dictionaries(
    {
        "scope": st.sampled_from(
            [("/u/j/0:0", EXACT), ("/u/j", PREFIX), ("/u/j/0", PREFIX), ("/u", PREFIX), ("/u/none/0:0", EXACT)]
        ),
        "max_lines": st.sampled_from([1, 2, 7, 1000]),
        "tail": st.booleans(),
    },
    optional={
        "cursor": st.integers(0, 60),
        "before": st.integers(1, 80),
        "since_ms": st.integers(NOW_MS - 1, NOW_MS + 20),
        "until_ms": st.integers(NOW_MS, NOW_MS + 21),
        "min_level": st.integers(1, 5),
        "min_incarnation": st.integers(1, 3),
        "attempt_uid": st.sampled_from(["a", "b", "e", "nobody"]),
        "substring": st.sampled_from(["a", "ab", "ü", "\0"]),
        "regex": st.sampled_from(["a", "^b", "b$", "a.*b", "[^a]", "(?i)Ü"]),
        "no_children": st.just(True),
        "max_bytes": st.integers(1, 900),
    },
)


@dataclass
class Row:
    """A stored line as a plain list has it."""

    seq: int
    key: str
    incarnation: int
    attempt_uid: str
    entry: logs_pb2.LogEntry


class Plain:
    """The oracle: a list, and what FetchLogs means said in the simplest way."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.next: dict[str, int] = {}

    def made(self, group: list[Any]) -> list[logs_pb2.LogBatch]:
        """The batches of a group, which are remembered."""
        found = []
        for (producer, key, incarnation), entries in group:
            batch = logs_pb2.LogBatch(producer=producer, key=key, attempt_uid=producer, incarnation=incarnation)
            for fields in entries:
                number = self.next.get(producer, 0)
                entry = batch.entries.add(number=number, **fields)
                self.next[producer] = number + (entry.gap or 1)
                self.rows.append(Row(len(self.rows) + 1, key, incarnation, producer, entry))
            found.append(batch)
        return found

    def answer(self, source: str, max_bytes: int, **fields: Any) -> logs_pb2.FetchLogsResponse:
        """What must be answered."""
        query = queries.parse(logs_pb2.FetchLogsRequest(source=source, **fields))
        bounds, content = query.bounds_test(), query.content_test()
        last = len(self.rows)
        high = min(last + 1, query.before or last + 1)
        rows = [
            row
            for row in self.rows
            if query.cursor < row.seq < high
            and query.scope.matches(row.key)
            and row.incarnation >= query.min_incarnation
            and query.attempt_uid in ("", row.attempt_uid)
        ]
        told = logs_pb2.FetchLogsResponse(last_seq=last)
        lost = used = 0
        heads: dict[tuple[str, str, str], int] = {}
        reason = ""
        edge = query.cursor + 1 if query.tail else max(query.cursor, high - 1)
        taken: list[Row] = []
        for place, row in enumerate(reversed(rows) if query.tail else rows):
            entry = row.entry
            if bounds is None or bounds(entry):
                told.scanned += 1
                if entry.partial and query.regex is not None and needs_more(query.regex.pattern):
                    told.notes[:] = [NOTE]
                if content is None or content(entry):
                    stream, head = (row.key, row.attempt_uid, entry.source), entry.number - (entry.back or entry.part)
                    is_plain = not (entry.part or entry.partial)
                    told.matched += is_plain or heads.get(stream) != head
                    if not is_plain:
                        heads[stream] = head
                    size = len(entry.data.encode()) + len(entry.raw) + len(row.key) + LINE_OVERHEAD
                    if len(taken) == query.max_lines:
                        reason = f"{query.max_lines:,} lines were asked for"
                    elif taken and used + size > max_bytes:
                        reason = f"one answer holds at most {max_bytes:,} bytes"
                    if reason:
                        edge = row.seq + 1 if query.tail else row.seq - 1
                        if query.tail and bounds is None and content is None:
                            told.matched += sum(not one.entry.partial for one in rows[: len(rows) - place - 1])
                        break
                    taken.append(row)
                    told.shown = told.matched
                    used += size
                    continue
            if entry.gap and query.holds_times(entry.epoch_ms, entry.epoch_ms):
                lost += entry.gap
        order = (lambda row: (row.entry.epoch_ms, row.key, row.seq)) if query.scope.prefix else (lambda row: row.seq)
        for row in sorted(taken, key=order):
            one = row.entry
            told.entries.add(
                seq=row.seq, key=row.key, epoch_ms=one.epoch_ms, source=one.source, data=one.data, raw=one.raw,
                level=one.level, attempt_uid=row.attempt_uid, number=one.number, partial=one.partial, gap=one.gap,
                part=one.part, back=one.back, unended=one.unended,
            )  # fmt: skip
        reasons = [reason] if reason else []
        if lost and query.filters_content:
            reasons.append(f"{lost:,} lines in between were lost before they were stored")
        told.capped = bool(reasons)
        told.capped_reason = "; ".join(reasons)
        told.cursor = max(query.cursor, high - 1) if query.tail else edge
        told.from_seq = edge if query.tail and reason else 0
        return told


@settings(
    max_examples=400 if SOAK else 4,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(groups=GROUPS, asked=st.lists(QUERY, min_size=3, max_size=6), split=st.integers(0, 5))
@pytest.mark.soak
def test_an_answer_is_the_same_in_every_phase(groups: list[Any], asked: list[dict[str, Any]], split: int) -> None:
    live_through(groups, asked, split)


@pytest.mark.parametrize("seed", range(20 if SOAK else 1))
@pytest.mark.soak
def test_many_answers_over_many_lines_are_the_same_in_every_phase(seed: int) -> None:
    chance = random.Random(seed)
    groups = [
        [(chance.choice(OWNERS), [some_entry(chance) for _ in range(chance.randint(1, 8))]) for _ in range(3)]
        for _ in range(10)
    ]
    live_through(groups, [some_query(chance) for _ in range(40)], 2, file_limit=900)


def some_entry(chance: random.Random) -> dict[str, Any]:
    """A line; most are plain."""
    fields: dict[str, Any] = {
        "epoch_ms": NOW_MS + chance.randint(0, 20),
        "source": "stdout",
        "data": "".join(chance.choices("abü\0 ", k=chance.randint(0, 6))),
        "level": chance.choice([0, 1, 2, 3, 4, 5, 9]),
    }
    for name, value in (
        ("gap", 3),
        ("raw", b"\xff"),
        ("partial", True),
        ("part", 1),
        ("seam", "ab"),
        ("unended", True),
        ("back", 2),
    ):
        if chance.random() < 0.08:
            fields[name] = value
    return fields


def some_query(chance: random.Random) -> dict[str, Any]:
    """A read; most have two or three bounds or filters."""
    asked: dict[str, Any] = {
        "scope": chance.choice([("/u/j/0:0", EXACT), ("/u/j", PREFIX), ("/u/j/0", PREFIX), ("/u", PREFIX)]),
        "max_lines": chance.choice([1, 3, 10, 1000]),
        "tail": chance.random() < 0.5,
    }
    more = {
        "cursor": chance.randint(0, 150),
        "before": chance.randint(1, 200),
        "since_ms": NOW_MS + chance.randint(-1, 15),
        "until_ms": NOW_MS + chance.randint(5, 21),
        "min_level": chance.randint(1, 5),
        "min_incarnation": chance.randint(1, 3),
        "attempt_uid": chance.choice("abe"),
        "substring": chance.choice(["a", "ab", "ü"]),
        "regex": chance.choice(["a", "^b", "b$", "a.*b", "[^a]", "(?i)Ü"]),
        "no_children": True,
        "max_bytes": chance.randint(1, 900),
    }
    for name in chance.sample(sorted(more), k=chance.randint(0, 3)):
        asked[name] = more[name]
    return asked


def live_through(groups: list[Any], asked: list[dict[str, Any]], split: int, *, file_limit: int = 150) -> None:
    """Stores the groups and compares every answer with that of a plain list, phase after phase."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="finelog")))
        # Small row groups, so that a key lies in several; and no haste, so that time decides nothing.
        stack.enter_context(patch("iris_controller.finelog.segment_writer.GROUP_ROWS", 5))
        stack.enter_context(patch("iris_controller.finelog.reader.MORE_SECONDS", 60.0))
        plain = Plain()
        store = Store(folder, file_limit=file_limit)
        for group in groups:
            put(store, *plain.made(group))
        expected = []
        for query in asked:
            fields = dict(query)
            source, fields["match_scope"] = fields.pop("scope")
            fields["cursor"] = min(fields.get("cursor", 0), len(plain.rows))
            fields.setdefault("max_bytes", 8 << 20)
            expected.append((source, fields, plain.answer(source, **fields)))

        def check(phase: str) -> None:
            assert {name: store.mark(name) for name in plain.next} == plain.next
            for source, fields, answer in expected:
                found = fetch(store, source, **fields)
                assert found == answer, (phase, fields)

        check("written")
        settle(store)
        files = len(store.files)
        check("sealed")
        upkeep = Upkeep(store, targets=(6000, 15_000))
        for _ in range(split):
            upkeep.convert()
        check("partly converted")
        held = store.view()
        while upkeep.convert():
            pass
        assert len(store.files) == 1 and len(store.catalog.segments(LOG)) == files - 1
        check("converted")
        store.close()
        store = Store(folder, file_limit=file_limit)
        check("opened again")
        upkeep = Upkeep(store, targets=(6000, 15_000))
        while upkeep.compact():
            pass
        check("merged")
        held.release()
        store.close()
        store = Store(folder, file_limit=file_limit)
        check("opened once more")
        store.close()


def test_a_line_in_parts_counts_once_in_every_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine lines: one of five parts between which another stream writes, and one of three; the oracle counts what was written."""
    # No haste, so that time decides nothing.
    monkeypatch.setattr("iris_controller.finelog.reader.MORE_SECONDS", 60.0)
    store = Store(tmp_path, file_limit=400)
    made = logs_pb2.LogBatch(producer="a", key="/u/j/0:0", attempt_uid="a", incarnation=1)
    written = [
        ("x", 0),
        *[("a long needle", part) for part in range(5)],
        ("y", 0),
        *[("other needle", p) for p in range(3)],
    ]
    last = {"a long needle": 4, "other needle": 2}
    for text, part in written:
        number = len(made.entries)
        made.entries.add(
            number=number, epoch_ms=NOW_MS, source="stdout", data=text, part=part, partial=part < last.get(text, 0)
        )
        if text == "a long needle":
            made.entries[-1].back = number - 1
            made.entries.add(number=number + 1, epoch_ms=NOW_MS, source="stderr", data="a needle beside")
    whole, total = len(made.entries), 9
    for entry in made.entries:
        one = logs_pb2.LogBatch(producer="a", key="/u/j/0:0", attempt_uid="a", incarnation=1)
        one.entries.append(entry)
        put(store, one)

    def check() -> None:
        for tail in (True, False):
            every = fetch(store, "/u/j/0:0", tail=tail)
            assert (len(every.entries), every.shown, every.matched, every.capped) == (whole, total, total, False)
            found = fetch(store, "/u/j/0:0", tail=tail, substring="needle")
            assert (len(found.entries), found.shown, found.matched) == (whole - 2, total - 2, total - 2)
        for count in range(1, whole):
            cut = fetch(store, "/u/j/0:0", tail=True, max_lines=count)
            assert (cut.matched, cut.capped) == (total, True), count

    check()
    settle(store)
    upkeep = Upkeep(store)
    upkeep.convert()
    check()
    while upkeep.convert():
        pass
    assert store.catalog.segments(LOG)
    check()
    store.close()
    store = Store(tmp_path, file_limit=400)
    check()
    store.close()


def test_a_segment_of_an_earlier_release_is_read_and_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lacks the columns `back` and `unended`."""
    store = Store(tmp_path / "store", file_limit=2000)
    put(store, *[batch_of(number) for number in range(20)])
    with monkeypatch.context() as patch:
        for name in ("convert", "upkeep"):
            module = importlib.import_module(f"iris_controller.finelog.{name}")
            if hasattr(module, "LAYOUT"):
                old = pa.schema([field for field in LAYOUT.schema if field.name not in ("back", "unended")])
                patch.setattr(module, "LAYOUT", replace(LAYOUT, schema=old))
        patch.setattr(Rows, "take", lambda self, take=Rows.take: take(self).drop_columns(["back", "unended"]))
        store.roll()
        put(store, batch_of(20))
        settle(store)
        upkeep = Upkeep(store, targets=(10**9, 10**9))
        while upkeep.convert():
            pass
    segments = store.catalog.segments(LOG)
    assert segments and "back" not in store.footers.get(segments[0]).schema.names
    expected = [f"line {number}" for number in range(21)]
    found = fetch(store, "/u/j/0:0", regex="line")
    assert [line.data for line in found.entries] == expected and not any(line.unended for line in found.entries)
    put(store, batch_of(21, unended=True))
    store.roll()
    put(store, batch_of(22))
    settle(store)
    upkeep = Upkeep(store, targets=(1, 10**9))
    while upkeep.convert() or upkeep.compact():
        pass
    assert any("back" in store.footers.get(one).schema.names for one in store.catalog.segments(LOG))
    found = fetch(store, "/u/j/0:0", regex="line")
    assert [line.number for line in found.entries if line.unended] == [21] and found.shown == 23
    store.close()


def batch_of(number: int, **fields: Any) -> logs_pb2.LogBatch:
    """One line."""
    made = logs_pb2.LogBatch(producer="a", key="/u/j/0:0", attempt_uid="a", incarnation=1)
    made.entries.add(number=number, epoch_ms=NOW_MS, source="stdout", data=f"line {number}", **fields)
    return made


def settle(store: Store) -> None:
    """Waits until the finished files have their indexes."""
    store._keeper.submit(lambda: None).result()
