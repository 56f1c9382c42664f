"""The index of a finished write-ahead file as a file beside it (`wal-….idx`), mapped into memory where it is read.

It holds what a `LiveIndex` holds, with the rows of each key side by side and the keys sorted, so that 20 GB of logs cost neither
memory nor a long start. It is derived: a missing, damaged or foreign one is made anew from the records. Must never be the only
place where something is known.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, overload

from iris_controller.finelog.disk import write_atomically
from iris_controller.finelog.index import Code, Columns, KeyRows, LiveIndex, keys_in

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from iris_controller.finelog.query import Scope

MAGIC = b"FINEIDX2"
_FIELDS = struct.Struct("<QQQQqqIIIIIQI")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = 96
"""A multiple of eight, so that the columns behind it are aligned."""


class SidecarDamaged(Exception):
    """The file is missing, cut, changed, or not of this log file."""


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of a finished file without its rows."""

    log_bytes: int
    first_seq: int
    last_seq: int
    lines: int
    earliest_ms: int
    latest_ms: int
    rows: int
    keys: int
    key_bytes: int
    producers: int
    producer_bytes: int
    body_bytes: int
    body_checksum: int

    def check(self, first_seq: int, log_bytes: int) -> None:
        """Raises SidecarDamaged unless it describes the file that starts there and has so many bytes.

        A file may have grown after its index was written: its successor never held a line, and was gone at the next start.
        """
        if (self.first_seq, self.log_bytes) != (first_seq, log_bytes):
            raise SidecarDamaged(
                f"it is of {self.log_bytes} bytes from seq {self.first_seq}, the file has {log_bytes} from {first_seq}"
            )


class SealedIndex:
    """A sidecar that was checked. Read by many threads; unmapped when the last reader lets go of it."""

    def __init__(self, header: Header, body: memoryview[int]) -> None:
        self.header = header
        at = 0

        def take(code: Code, count: int) -> memoryview[int]:
            nonlocal at
            size = array(code).itemsize * count
            piece = body[at : at + size].cast(code)
            at += size
            return piece

        # As `_sections` writes them.
        columns: list[array[int] | memoryview[int]] = [take(code, header.rows) for code in Columns.CODES if code == "q"]
        self._numbers = take("Q", header.producers)
        columns += [take(code, header.rows) for code in Columns.CODES if code == "I"]
        self._starts = take("I", header.keys + 1)
        key_ends = take("I", header.keys + 1)
        producer_ends = take("I", header.producers + 1)
        self._keys = Texts(key_ends, take("B", header.key_bytes))
        self._producers = Texts(producer_ends, take("B", header.producer_bytes))
        self._columns = Columns(header.first_seq, columns)

    @property
    def marks(self) -> dict[str, int]:
        """The number that follows the last line of each producer in this file."""
        return dict(zip(self._producers, self._numbers, strict=True))

    def key_rows(self, key: str) -> KeyRows | None:
        """The extents of `key`; None if it has none here."""
        place = self._keys.find(key)
        return None if place is None else KeyRows(self._columns, range(self._starts[place], self._starts[place + 1]))

    def keys(self, scope: Scope) -> list[str]:
        """The keys in `scope`, sorted."""
        return keys_in(self._keys, scope)

    def all_keys(self) -> list[str]:
        """Every key, sorted."""
        return list(self._keys)


class Texts(Sequence[str]):
    """A list of texts in one piece of memory; `ends[n]` is where text n begins, and text n-1 ends."""

    def __init__(self, ends: memoryview[int], data: memoryview[int]) -> None:
        self._ends = ends
        self._data = data

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        return str(self._data[self._ends[place] : self._ends[place + 1]], "utf-8")

    def find(self, text: str) -> int | None:
        """The place of `text` in the sorted list."""
        place = bisect_left(self, text)
        return place if place < len(self) and self[place] == text else None


def read_header(path: Path) -> Header:
    """The header alone. Raises SidecarDamaged."""
    try:
        with path.open("rb") as file:
            raw = file.read(HEADER_BYTES)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise SidecarDamaged(str(error)) from error
    end = len(MAGIC) + _FIELDS.size
    if len(raw) < HEADER_BYTES or raw[: len(MAGIC)] != MAGIC:
        raise SidecarDamaged(f"{path.name} is no index")
    if _CHECKSUM.unpack_from(raw, end)[0] != zlib.crc32(raw[:end]):
        raise SidecarDamaged(f"the header of {path.name} is damaged")
    header = Header(*_FIELDS.unpack_from(raw, len(MAGIC)))
    if size != HEADER_BYTES + header.body_bytes:
        raise SidecarDamaged(f"{path.name} has {size} bytes and should have {HEADER_BYTES + header.body_bytes}")
    return header


def read(path: Path) -> SealedIndex:
    """Maps the index. Raises SidecarDamaged."""
    header = read_header(path)
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise SidecarDamaged(str(error)) from error
    body = memoryview(mapped)[HEADER_BYTES:]
    if zlib.crc32(body) != header.body_checksum:
        raise SidecarDamaged(f"the checksum of {path.name} does not fit")
    return SealedIndex(header, body)


def write(path: Path, index: LiveIndex, log_bytes: int) -> Header:
    """Writes the sidecar of a file that ends at `log_bytes` and is not written to any more. Raises OSError."""
    keys = index.all_keys()
    producers = sorted(index.marks)
    key_text = [key.encode() for key in keys]
    producer_text = [producer.encode() for producer in producers]
    counts = [len(index.rows[key]) for key in keys]
    order = array("I")
    for key in keys:
        order.extend(index.rows[key])
    body = b"".join(_sections(index, order, counts, key_text, producers, producer_text))
    header = Header(
        log_bytes=log_bytes,
        first_seq=index.first_seq,
        last_seq=index.last_seq,
        lines=index.lines,
        earliest_ms=index.earliest_ms,
        latest_ms=index.latest_ms,
        rows=len(order),
        keys=len(keys),
        key_bytes=sum(map(len, key_text)),
        producers=len(producers),
        producer_bytes=sum(map(len, producer_text)),
        body_bytes=len(body),
        body_checksum=zlib.crc32(body),
    )
    raw = MAGIC + _FIELDS.pack(*astuple(header))
    raw += _CHECKSUM.pack(zlib.crc32(raw))
    write_atomically(path, raw.ljust(HEADER_BYTES, b"\0") + body)
    return header


def _sections(
    index: LiveIndex,
    order: array[int],
    counts: list[int],
    keys: list[bytes],
    producers: list[str],
    producer_text: list[bytes],
) -> Iterable[bytes]:
    def gather(code: str) -> Iterable[bytes]:
        for name, found in zip(Columns.NAMES, Columns.CODES, strict=True):
            if found == code:
                yield array(code, map(getattr(index.columns, name).__getitem__, order)).tobytes()

    yield from gather("q")
    yield array("Q", map(index.marks.__getitem__, producers)).tobytes()
    yield from gather("I")
    yield _ends(counts)
    yield _ends(map(len, keys))
    yield _ends(map(len, producer_text))
    yield from keys
    yield from producer_text


def _ends(sizes: Iterable[int]) -> bytes:
    return array("I", accumulate(sizes, initial=0)).tobytes()
