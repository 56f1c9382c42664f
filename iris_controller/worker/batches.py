"""Lines as they go over the wire, put together by concatenation.

A serialised LogBatch is its header followed by its entries, in any number of pieces: so the spool keeps serialised entries and a
push is built without parsing a single one. Pure functions and one builder; no files, no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from iris_core.wire.gen.iris.v1 import logs_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

DISK_FULL = "the worker's disk was full"
SPOOL_FULL = "the worker's spool was full"
DAMAGED = "the worker's spool was damaged"
REFUSED = "the log store refused it"


class Line(NamedTuple):
    """One line or part of one; `raw` only where `data` is not exactly what was written; `level` is a LogLevel number.

    Parts of a line are counted in `part`, from 0; `seam` is the text around the place where a later one is joined on, and `back` how many
    numbers lie between it and part 0. `unended`: its stream ended there, without a line end.
    """

    source: str
    data: str
    raw: bytes = b""
    level: int = 0
    partial: bool = False
    part: int = 0
    seam: str = ""
    back: int = 0
    unended: bool = False


def header(producer: str, key: str, attempt_uid: str, incarnation: int) -> bytes:
    """Who writes, as a LogBatch without entries."""
    made = logs_pb2.LogBatch(producer=producer, key=key, attempt_uid=attempt_uid, incarnation=incarnation)
    return made.SerializeToString()


def entries(lines: Sequence[Line], first: int, now_ms: int) -> bytes:
    """The lines, numbered from `first`, as the entries of a LogBatch."""
    batch = logs_pb2.LogBatch()
    add = batch.entries.add
    for number, line in enumerate(lines, first):
        entry = add(number=number, epoch_ms=now_ms, source=line.source, data=line.data)
        if line.raw:
            entry.raw = line.raw
        if line.level:
            entry.level = line.level  # type: ignore[assignment]
        if line.partial:
            entry.partial = True
        if line.part:
            entry.part, entry.seam = line.part, line.seam
        if line.back > line.part:
            entry.back = line.back
        if line.unended:
            entry.unended = True
    return batch.SerializeToString()


def gap(first: int, count: int, reason: str, now_ms: int) -> bytes:
    """A gap record for `count` numbers, as the entries of a LogBatch."""
    batch = logs_pb2.LogBatch()
    batch.entries.add(number=first, gap=count, data=reason, source="iris", epoch_ms=now_ms)
    return batch.SerializeToString()


def halves(body: bytes) -> list[bytes]:
    """A serialised PushLogsRequest as two of half as many entries each, in order; as one of a single entry, which cannot be halved."""
    request = logs_pb2.PushLogsRequest.FromString(body)
    flat = [(batch, entry) for batch in request.batches for entry in batch.entries]
    middle = len(flat) // 2
    made = []
    for part in (flat[:middle], flat[middle:]):
        push = PushBuilder()
        for batch, entry in part:
            head = header(batch.producer, batch.key, batch.attempt_uid, batch.incarnation)
            push.add(head, logs_pb2.LogBatch(entries=[entry]).SerializeToString())
        if push:
            made.append(push.body())
    return made


def instead(body: bytes, reason: str) -> bytes | None:
    """A push with a gap record in the place of the only line of `body`; None if that is a gap record already."""
    request = logs_pb2.PushLogsRequest.FromString(body)
    batch, entry = next((batch, entry) for batch in request.batches for entry in batch.entries)
    if entry.gap:
        return None
    push = PushBuilder()
    head = header(batch.producer, batch.key, batch.attempt_uid, batch.incarnation)
    push.add(head, gap(entry.number, 1, reason, entry.epoch_ms))
    return push.body()


class PushBuilder:
    """Collects entries in order; neighbours of one producer share a batch. `size` is their bytes so far."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[tuple[bytes, list[bytes]]] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, head: bytes, payload: bytes) -> None:
        """Adds serialised entries of the producer that `head` names."""
        self.size += len(payload)
        if self._parts and self._parts[-1][0] == head:
            self._parts[-1][1].append(payload)
        else:
            self._parts.append((head, [payload]))

    def body(self) -> bytes:
        """The serialised PushLogsRequest."""
        out = bytearray()
        for head, payloads in self._parts:
            out += b"\x0a" + _varint(len(head) + sum(map(len, payloads))) + head
            out += b"".join(payloads)
        return bytes(out)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
