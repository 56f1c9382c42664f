"""How a line batch lies on disk: framed records behind one file header, each with its own checksum.

Every record begins with the store's marker, eight random bytes that are never told to anybody. After damage the next record is
found by searching for them, and output that a job crafted to look like a record cannot be taken for one.

A record also says up to which offset its file was known to be on disk when it was written (`synced`). That is what tells damage
to acknowledged lines (a readable record vouches for what lies before it) from the torn tail of a crash (nothing does).

Must never interpret a payload.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

MAGIC = b"FINELOG1"
MARKER_BYTES = 8
MAX_PAYLOAD = 16 << 20
"""Longest payload in bytes: a push is at most 4 MiB, and what is added to it is small."""

_FILE = struct.Struct("<8s8sQI")
# marker, payload bytes, lines, first seq, synced, checksum of all but the marker and itself
_RECORD = struct.Struct("<8sIIQII")
_SUMMED = struct.Struct("<IIQI")

FILE_BYTES = _FILE.size
RECORD_BYTES = _RECORD.size


class Record(NamedTuple):
    """A whole record with a good checksum: bytes `start` to `end`, lines `first_seq` to `first_seq + lines - 1`."""

    start: int
    end: int
    first_seq: int
    lines: int
    synced: int

    @property
    def last_seq(self) -> int:
        """The seq of its last line."""
        return self.first_seq + self.lines - 1

    @property
    def payload_start(self) -> int:
        """Where its payload begins."""
        return self.start + RECORD_BYTES


class Hole(NamedTuple):
    """Bytes `start` to `end` that hold no readable record."""

    start: int
    end: int


def file_header(marker: bytes, first_seq: int) -> bytes:
    """The first bytes of a file whose lines start at `first_seq`."""
    body = MAGIC + marker + struct.pack("<Q", first_seq)
    return body + struct.pack("<I", zlib.crc32(body))


def marker_of(header: bytes) -> bytes | None:
    """The store's marker as a file header tells it; None if the header is damaged."""
    if len(header) < FILE_BYTES:
        return None
    magic, marker, _, checksum = _FILE.unpack_from(header)
    if magic != MAGIC or zlib.crc32(header[: FILE_BYTES - 4]) != checksum:
        return None
    return bytes(marker)


def pack(marker: bytes, first_seq: int, lines: int, synced: int, payload: bytes) -> bytes:
    """The header of a record; the payload follows it."""
    checksum = zlib.crc32(payload, zlib.crc32(_SUMMED.pack(len(payload), lines, first_seq, synced)))
    return _RECORD.pack(marker, len(payload), lines, first_seq, synced, checksum)


def walk(data: bytes | mmap, marker: bytes, start: int, end: int) -> Iterator[Record | Hole]:
    """Everything between two offsets of `data`, in order and without a gap: records, and the holes between them."""
    hole: int | None = None
    at = start
    while at < end:
        record = _read(data, marker, at, end)
        if record is not None:
            if hole is not None:
                yield Hole(hole, at)
                hole = None
            yield record
            at = record.end
            continue
        if hole is None:
            hole = at
        at = data.find(marker, at + 1, end)
        if at < 0:
            break
    if hole is not None:
        yield Hole(hole, end)


def _read(data: bytes | mmap, marker: bytes, at: int, end: int) -> Record | None:
    if at + RECORD_BYTES > end:
        return None
    found, size, lines, first_seq, synced, checksum = _RECORD.unpack_from(data, at)
    payload = at + RECORD_BYTES
    if found != marker or size > MAX_PAYLOAD or payload + size > end:
        return None
    with memoryview(data) as view, view[payload : payload + size] as body:
        if zlib.crc32(body, zlib.crc32(_SUMMED.pack(size, lines, first_seq, synced))) != checksum:
            return None
    return Record(at, payload + size, first_seq, lines, synced)
