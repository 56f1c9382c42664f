"""The bytes of the spool: records with a checksum in append-only segment files.

A record is self-contained so that a torn tail costs only itself. LINES records hold lines exactly as they go over the wire
(the `entries` field of a LogBatch), so that shipping copies bytes and never parses them. This module knows the format and
nothing of producers, limits or order of shipping.
"""

from __future__ import annotations

import os
import struct
import zlib
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = struct.Struct("<IIBIQQ")
_CRC = struct.Struct("<I")
_CHUNK = 1024 * 1024
SUFFIX = ".spool"


class Kind(IntEnum):
    """What a record says. `first` and `count` in brackets."""

    OPEN = 1
    """In this segment `slot` stands for the producer in the payload (a LogBatch without entries); [its next number, -]."""
    LINES = 2
    """[number of the first line, how many numbers]; the payload is the wire form of the lines or of a gap record."""
    CLOSE = 3
    """The producer has written its last line."""
    ACK = 4
    """Everything before [segment, offset] is durable elsewhere."""
    LOST = 5
    """These lines went with a segment that was deleted; [first number, how many], the payload names the producer."""


class Record(NamedTuple):
    """One record and the offset right after it."""

    kind: int
    slot: int
    first: int
    span: int
    payload: bytes
    end: int


def encode(kind: Kind, slot: int, first: int, count: int, payload: bytes = b"") -> bytes:
    """The record's bytes."""
    head = _HEAD.pack(0, len(payload), kind, slot, first, count)[_CRC.size :]
    return _CRC.pack(zlib.crc32(payload, zlib.crc32(head))) + head + payload


def read(fd: int, offset: int, size: int) -> Iterator[Record]:
    """The records of a segment from `offset` on, up to `size`; ends at the first one that is torn or damaged."""
    while offset < size:
        chunk = os.pread(fd, min(_CHUNK, size - offset), offset)
        at = 0
        while at + _HEAD.size <= len(chunk):
            crc, length, kind, slot, first, count = _HEAD.unpack_from(chunk, at)
            whole = _HEAD.size + length
            if at + whole > len(chunk):
                if at or offset + at + whole > size:
                    break
                chunk = os.pread(fd, whole, offset)
                if len(chunk) < whole:
                    return
            if zlib.crc32(memoryview(chunk)[at + _CRC.size : at + whole]) != crc:
                return
            payload = chunk[at + _HEAD.size : at + whole]
            at += whole
            yield Record(kind, slot, first, count, payload, offset + at)
        if at == 0:
            return
        offset += at


def numbers(folder: str) -> list[int]:
    """The segments in a folder, oldest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def path(folder: str, number: int) -> str:
    """The file of a segment."""
    return f"{folder}/{number:012d}{SUFFIX}"
