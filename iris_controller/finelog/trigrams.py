"""Which row groups of a segment may hold a text: a bit for every sequence of three bytes that occurs in a column of theirs.

The filter of a segment is a file beside it (`seg_….fidx`). It is derived and may be lost: where it is missing, damaged, or of another
segment, every row group may match, that is logged, and it is made anew in the background. A bit that is set too many only costs speed, one that is not set would
hide lines; so the bits of a text are made by the same rule here and there: fold, then hash every three bytes.

A row group of 16,384 lines of log has about 20,000 different sequences; 2^17 bits keep one bit in seven set, so that a text of eight
bytes passes by chance once in 100,000. Bits are set by Arrow's kernels and by no loop of ours: 0.2 s for 50 MB. Must never decide
about a single line.
"""

from __future__ import annotations

import logging
import struct
import time
import zlib
from array import array
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from iris_controller.finelog.disk import write_atomically
from iris_controller.finelog.literals import Clause, certain_literals, fold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from iris_controller.finelog.segment import Segment

log = logging.getLogger("iris.finelog")

MAGIC = b"FINETRI1"
SUFFIX = ".fidx"
MAX_KEPT_BYTES = 64 << 20
"""Memory for the filters that were asked last: those of about 8 GB of text."""
_MIN_BITS = 10
_MAX_BITS = 17
_MAX_HASHES = 64
"""Sequences of one text that are looked up; more would exclude hardly anything more."""

# Times 2^8, so that the fourth of four bytes falls out of 32 bits.
_FACTOR: Final = (0x9E3779B1 << 8) & 0xFFFFFFFF
_PADDING = bytes(4)
_PIECE_BYTES = 512 << 10
"""What is hashed at a time, so that it stays in the processor's cache."""

# magic, checksum of all that follows; row groups, rows, bytes of the segment, digest of its footer
_HEADER = struct.Struct("<8sI")
_IDENTITY = struct.Struct("<IQQ16s")


@dataclass(frozen=True, slots=True)
class Identity:
    """Which segment a filter is of."""

    groups: int
    rows: int
    size: int
    footer: bytes
    """Digest of the Parquet footer."""


class FilterDamagedError(Exception):
    """The file is missing, cut, changed, or not of this segment."""


# Making one -----------------------------------------------------------------------------------------------------------


def bits_of(*columns: Any) -> bytes:
    """The filter of one row group, from pyarrow arrays of texts: 2^n bits, n as the amount of text asks for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = b"".join(map(_folded, columns))
    size = min(max(len(text).bit_length(), _MIN_BITS), _MAX_BITS)
    padded = text + _PADDING
    factor, shift = pa.scalar(_FACTOR, pa.uint32()), pa.scalar(32 - size, pa.uint32())
    hashes = []
    for start in range(0, len(padded), _PIECE_BYTES):
        for at in range(start, start + 4):
            # A copy, because Arrow wants its numbers aligned.
            piece = pa.py_buffer(padded[at : start + _PIECE_BYTES + 4])
            words = pa.Array.from_buffers(pa.uint32(), len(piece) // 4, [None, piece])
            hashes.append(pc.shift_right(pc.multiply(words, factor), shift).view(pa.int32()))
    # For each number a place where it stands, or null: the bitmap of what is not null is what is asked for.
    options = pc.InversePermutationOptions(max_index=(1 << size) - 1)
    places = pc.call_function("inverse_permutation", [pa.chunked_array(hashes)], options).combine_chunks()
    if not places.null_count:
        return b"\xff" * ((1 << size) // 8)
    return bytes(places.buffers()[0][: (1 << size) // 8])


def _folded(column: Any) -> bytes:
    """All texts in a row, as `fold` has them. Sequences across two of them are too many, and harmless."""
    import pyarrow.compute as pc

    lower = pc.ascii_lower(column.drop_null())
    if not len(lower):
        return b""
    _, ends, data = lower.buffers()
    places = memoryview(ends).cast("i")
    text = bytes(data[places[lower.offset] : places[lower.offset + len(lower)]]) if data is not None else b""
    return text if text.isascii() else text.replace("\u212a".encode(), b"k").replace("\u017f".encode(), b"s")


def _hashes(text: str) -> tuple[int, ...]:
    """The 32-bit hashes of every three bytes of a folded text; the upper n bits are the place in a filter of 2^n bits."""
    data = text.encode()
    words = dict.fromkeys(int.from_bytes(data[at : at + 3], "little") for at in range(len(data) - 2))
    return tuple(word * _FACTOR & 0xFFFFFFFF for word in words)[:_MAX_HASHES]


def index_path(segment: Path) -> Path:
    """Where the index of a segment is kept. Without one it is only searched more slowly."""
    return segment.with_suffix(SUFFIX)


def write(segment: Path, filters: list[bytes], rows: int) -> None:
    """Writes the filter file of a finished segment, one filter per row group in their order. A failure is only logged."""
    path = index_path(segment)
    try:
        size, footer = _footer_of(segment)
        body = _IDENTITY.pack(len(filters), rows, size, footer)
        body += array("I", map(len, filters)).tobytes() + b"".join(filters)
        write_atomically(path, _HEADER.pack(MAGIC, zlib.crc32(body)) + body)
    except OSError as error:
        log.warning("cannot write %s, so searching its segment takes longer: %s", path.name, error.strerror or error)


def rebuild(segment: Path, columns: Sequence[str], pause: Callable[[float], None]) -> None:
    """Makes the index of a segment anew; `pause` is told how long each piece of it took. Raises SegmentDamaged, OSError."""
    from iris_controller.finelog.segments import SegmentFile

    opened = SegmentFile.open(segment)
    try:
        filters = []
        began = time.monotonic()
        for batch in opened.batches(columns):
            filters.append(bits_of(*map(batch.column, columns)))
            pause(time.monotonic() - began)
            began = time.monotonic()
    finally:
        opened.close()
    write(segment, filters, opened.segment.rows)


def _footer_of(segment: Path) -> tuple[int, bytes]:
    """Bytes of the file, and the digest of its footer. Raises OSError."""
    with segment.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 8))
        footer = int.from_bytes(file.read(4), "little")
        file.seek(max(0, size - 8 - footer))
        return size, blake2b(file.read(), digest_size=16).digest()


# Asking one -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Needles:
    """What a row group must hold: of each clause one text, of a text every hash."""

    clauses: tuple[tuple[tuple[int, ...], ...], ...]

    @classmethod
    def of(cls, substring: str = "", pattern: str = "") -> Needles | None:
        """Those of a valid pattern, a substring, or both. None: no filter can exclude anything."""
        texts: list[Clause] = [frozenset({fold(substring)})] if substring else []
        if pattern:
            texts += certain_literals(pattern)
        clauses = [tuple(_hashes(text) for text in sorted(clause)) for clause in texts]
        usable = tuple(clause for clause in clauses if all(clause))
        return cls(usable) if usable else None

    def may_be_in(self, bits: memoryview) -> bool:
        """Whether a row group with this filter may hold a match."""
        shift = 33 - (len(bits) * 8).bit_length()
        for clause in self.clauses:
            for hashes in clause:
                for one in hashes:
                    place = one >> shift
                    if not bits[place >> 3] >> (place & 7) & 1:
                        break
                else:
                    break
            else:
                return False
        return True


class Filters:
    """The filters of one segment, checked. Read by many threads."""

    def __init__(self, identity: Identity, filters: list[memoryview]) -> None:
        self.identity = identity
        self.bytes = sum(map(len, filters))
        self._filters = filters

    def groups(self, needles: Needles) -> frozenset[int]:
        """The row groups that may hold a match."""
        return frozenset(place for place, bits in enumerate(self._filters) if needles.may_be_in(bits))


def read(index: Path, segment: Path) -> Filters:
    """The filters of a segment, from its index. Raises FilterDamagedError: there are none that can be trusted."""
    try:
        raw = index.read_bytes()
        size, footer = _footer_of(segment)
    except OSError as error:
        raise FilterDamagedError(error.strerror or str(error)) from error
    if len(raw) < _HEADER.size + _IDENTITY.size:
        raise FilterDamagedError(f"it has {len(raw)} bytes")
    magic, checksum = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise FilterDamagedError("it is of another format")
    body = memoryview(raw)[_HEADER.size :]
    if zlib.crc32(body) != checksum:
        raise FilterDamagedError("its checksum does not fit")
    identity = Identity(*_IDENTITY.unpack_from(body))
    if (identity.size, identity.footer) != (size, footer):
        raise FilterDamagedError("it is of another file")
    sizes = body[_IDENTITY.size :][: 4 * identity.groups].cast("I")
    at = _IDENTITY.size + 4 * identity.groups
    filters = []
    for length in sizes:
        filters.append(body[at : at + length])
        at += length
    return Filters(identity, filters)


class FilterFiles:
    """The filters in one folder, those asked last kept within `max_bytes` of memory. Any thread."""

    def __init__(self, folder: Path, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[Segment, Filters | None] = OrderedDict()
        self._missed: dict[Segment, None] = {}
        self._lock = Lock()

    def groups(self, segment: Segment, path: Path, needles: Needles | None) -> frozenset[int] | None:
        """The row groups of a segment, which lies at `path`, that may hold a match; None: any of them may."""
        if needles is None:
            return None
        filters = self._get(segment, path)
        return None if filters is None else filters.groups(needles)

    def next_missed(self) -> Segment | None:
        """A segment that was searched without its index since the last call; None: there is no other."""
        with self._lock:
            return self._missed.popitem()[0] if self._missed else None

    def forget(self, segment: Segment) -> None:
        """Its index was made anew."""
        with self._lock:
            if segment in self._kept:
                self._bytes -= _cost(self._kept.pop(segment))

    def _get(self, segment: Segment, path: Path) -> Filters | None:
        with self._lock:
            if segment in self._kept:
                self._kept.move_to_end(segment)
                return self._kept[segment]
        found: Filters | None = None
        index = index_path(self._folder / segment.name)
        try:
            found = read(index, path)
            if found.identity.rows != segment.rows:
                raise FilterDamagedError("it is of another segment")
        except FilterDamagedError as error:
            found = None
            log.warning("searching %s without its index %s: %s", segment.name, index.name, error)
        with self._lock:
            if segment not in self._kept:
                self._kept[segment] = found
                self._bytes += _cost(found)
                if found is None:
                    self._missed[segment] = None
            while self._bytes > self._max_bytes and len(self._kept) > 1:
                self._bytes -= _cost(self._kept.popitem(last=False)[1])
        return found


def _cost(filters: Filters | None) -> int:
    return 1024 + (filters.bytes if filters is not None else 0)
