"""The manifest: one small object that says which segments the object store holds, and what must be known beside them to go on from there.

It moves by compare-and-set and names who writes it, so of two stores that came from one only the later goes on shipping. Sequence
numbers up to a ceiling far beyond the last are reserved to the writer: whoever restores goes on above it, and a cursor from before
neither hides nor repeats a row. Objects are named by what is in them and never change. Must never name an object that is not there.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from iris_controller.finelog.segment import Segment
from iris_core.contracts import GenerationMismatch, IrisError, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_core.contracts import ObjectStore

FORMAT: Final = 1
NAME: Final = "manifest.json.zst"
OBJECTS: Final = "objects/"
MAX_BYTES: Final = 1 << 30
"""Of a manifest that is unpacked: more is damage."""
HEADROOM: Final = 1 << 40
"""So many sequence numbers are reserved beyond the last one: a million million lines between two manifests."""


class ManifestDamaged(IrisError):
    """It is there, and is no manifest of this release's format."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """A segment and the object that holds it."""

    segment: Segment
    object: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Part:
    """What belongs to one sequence of numbers: the log, or the registered tables together."""

    shipped_seq: int = 0
    """Every row up to here is in a segment that is named, or was removed."""
    ceiling: int = 0
    """No number beyond it was given away."""
    marks: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    """Table → producer → (the number that follows its last shipped row, a seq not below that row's)."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What else the owner wants back, as JSON."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """See the module."""

    marker: str
    """Of the store, in hex: the same on every disk that it is restored to."""
    writer: str
    """Of the folder that ships: another one after a restore."""
    revision: int
    written_ms: int
    tables: Mapping[str, tuple[Shipped, ...]] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)

    @property
    def objects(self) -> set[str]:
        """The names of all objects that it needs."""
        return {one.object for found in self.tables.values() for one in found}


@dataclass(frozen=True, slots=True)
class Found:
    """A manifest and the generation that a write of the next one names; `manifest` is None where there is none."""

    manifest: Manifest | None
    generation: str


def object_name(table: str, segment: Segment, sha256: str) -> str:
    """Where a segment lies."""
    return f"{OBJECTS}{table}/{segment.name.removesuffix('.parquet')}-{sha256[:16]}.parquet"


def read(remote: ObjectStore) -> Found:
    """What is there now. Raises ManifestDamaged, IrisError."""
    while True:
        info = remote.stat(NAME)
        if info is None:
            return Found(None, "")
        try:
            packed = remote.get(NAME)
        except ObjectMissing:
            continue
        after = remote.stat(NAME)
        if after is not None and after.generation == info.generation:
            return Found(parse(packed), info.generation)


def write(remote: ObjectStore, manifest: Manifest, generation: str) -> Found:
    """Puts it in the place of the one of `generation`: what is there then. Raises GenerationMismatch, IrisError.

    A write of ours that got through without an answer looks like somebody else's. It is known by its writer, and this one follows it.
    """
    while True:
        try:
            return Found(manifest, remote.put(NAME, pack(manifest), if_generation=generation).generation)
        except GenerationMismatch:
            found = read(remote)
            there = found.manifest
            if there is None or there.writer != manifest.writer:
                raise
            generation, manifest = found.generation, replace(manifest, revision=there.revision + 1)


def pack(manifest: Manifest) -> bytes:
    """As it is stored."""
    import zstandard

    body = json.dumps(asdict(manifest), separators=(",", ":"))
    whole = f'{{"format":{FORMAT},"checksum":{zlib.crc32(body.encode())},"manifest":{body}}}'
    return zstandard.ZstdCompressor(level=3).compress(whole.encode())


def parse(packed: bytes) -> Manifest:
    """From what is stored. Raises ManifestDamaged."""
    import zstandard

    try:
        if not 0 < zstandard.frame_content_size(packed) <= MAX_BYTES:
            raise ValueError("its size is impossible")
        whole = json.loads(zstandard.ZstdDecompressor().decompress(packed))
        if whole["format"] > FORMAT:
            raise ManifestDamaged(
                f"the manifest of the shipped segments was written by a newer release (format {whole['format']})",
                hint="start the newer release again",
            )
        body = whole["manifest"]
        if whole["checksum"] != zlib.crc32(json.dumps(body, separators=(",", ":")).encode()):
            raise ValueError("its checksum does not fit")
        tables = {name: tuple(_shipped(one) for one in found) for name, found in body["tables"].items()}
        parts = {name: _part(part) for name, part in body["parts"].items()}
        return Manifest(**{**body, "tables": tables, "parts": parts})
    except (zstandard.ZstdError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestDamaged(f"the manifest of the shipped segments cannot be read: {error}") from error


def _shipped(one: Mapping[str, Any]) -> Shipped:
    return Shipped(Segment(**one["segment"]), str(one["object"]), str(one["sha256"]))


def _part(part: Mapping[str, Any]) -> Part:
    marks = {
        table: {producer: (int(number), int(seq)) for producer, (number, seq) in found.items()}
        for table, found in part["marks"].items()
    }
    return replace(Part(**part), marks=marks)
