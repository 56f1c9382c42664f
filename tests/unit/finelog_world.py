"""What the tests of finelog share: lines in, answers out, and a disk that can be told to fail."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from iris_controller.finelog import batches, query
from iris_controller.finelog.reader import Scan
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_controller.finelog.store import Store

EXACT = common_pb2.MATCH_SCOPE_EXACT
PREFIX = common_pb2.MATCH_SCOPE_PREFIX

NOW_MS = 1_700_000_000_000
"""The arrival time of everything here; lines get times relative to it."""


def batch(
    texts: Iterable[str],
    *,
    key: str = "/u/j/0:0",
    producer: str = "p0",
    first: int = 0,
    at_ms: int = NOW_MS,
    level: common_pb2.LogLevel = common_pb2.LOG_LEVEL_INFO,
    attempt_uid: str = "",
    incarnation: int = 1,
) -> logs_pb2.LogBatch:
    """Lines of one producer with ascending numbers and times."""
    made = logs_pb2.LogBatch(producer=producer, key=key, attempt_uid=attempt_uid or producer, incarnation=incarnation)
    for place, text in enumerate(texts):
        made.entries.add(number=first + place, epoch_ms=at_ms + place, source="stdout", data=text, level=level)
    return made


def numbered(count: int, *, first: int = 0, **more: Any) -> logs_pb2.LogBatch:
    """`count` lines that say their numbers."""
    return batch([f"line {number}" for number in range(first, first + count)], first=first, **more)


def put(store: Store, *made: logs_pb2.LogBatch) -> set[str]:
    """Stores batches as one group."""
    return store.commit([batches.check(one, NOW_MS) for one in made], NOW_MS)


def fetch(
    store: Store, source: str, *, max_bytes: int = 8 << 20, max_seconds: float = 60.0, **fields: Any
) -> logs_pb2.FetchLogsResponse:
    """One answer."""
    fields.setdefault("match_scope", EXACT)
    scan = Scan(
        store,
        query.parse(logs_pb2.FetchLogsRequest(source=source, **fields)),
        max_bytes=max_bytes,
        max_seconds=max_seconds,
    )
    while not scan.step(1.0):
        pass
    return scan.answer()


def page(store: Store, source: str, *, cursor: int = 0, **fields: Any) -> list[logs_pb2.StoredLine]:
    """All lines, page by page, by the rule of the wire: there is more while cursor < last_seq."""
    found: list[logs_pb2.StoredLine] = []
    while True:
        answer = fetch(store, source, cursor=cursor, **fields)
        found += answer.entries
        assert answer.shown == len(
            {(one.key, one.attempt_uid, one.source, one.number - (one.back or one.part)) for one in answer.entries}
        )
        assert answer.cursor >= cursor
        if answer.cursor >= answer.last_seq:
            return found
        assert answer.cursor > cursor, "no progress"
        assert answer.capped and answer.capped_reason
        cursor = answer.cursor


def texts(lines: Iterable[logs_pb2.StoredLine]) -> list[str]:
    """What the lines say."""
    return [line.data for line in lines]


class Disk:
    """`sync` of a store, and what it does."""

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.before_fault: Callable[[], object] | None = None
        self.syncs = 0

    def __call__(self, descriptor: int) -> None:
        """Syncs, or raises `fault`."""
        self.syncs += 1
        if self.fault is not None:
            if self.before_fault is not None:
                self.before_fault()
            raise self.fault
        os.fdatasync(descriptor)
