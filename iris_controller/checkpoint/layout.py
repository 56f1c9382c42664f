"""What a checkpoint is: a folder `controller-state/<epoch_ms>/` with the compressed database and a manifest (DESIGN §5.11).

The manifest is written last and says what belongs to it, with sizes and digests: a folder without a valid one is half a checkpoint and
is never chosen. Must never open a database.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore

FOLDER: Final = "controller-state"
DATABASE: Final = "controller.sqlite3"
COMPRESSED: Final = f"{DATABASE}.zst"
MANIFEST: Final = "manifest.json"
SCRATCH: Final = "checkpoint"
"""Folder of the local state dir in which one is made."""
FORMAT: Final = 1
MAX_MANIFEST_BYTES: Final = 64 << 10
KEEP_MS: Final = 3 * 86_400_000
"""Older ones are pruned (control-plane §6.3), the newest valid one excepted."""

LOCAL_KEEP_MS: Final = 6 * 3_600_000
"""The same where they take the room of the state dir itself."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_EPOCH = re.compile(r"[0-9]{1,15}")


class BadCheckpoint(IrisError):
    """This is no checkpoint that can be used; the text names it and says why."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint holds.

    epoch_ms       when its snapshot was taken, and the folder's name
    schema         the last migration of the database
    size_bytes     of the compressed database, with its `sha256`
    database_bytes of the database itself
    jobs, tasks, workers   how many rows it has
    cluster        whose it is; "" in those of earlier releases
    """

    epoch_ms: int
    schema: str
    size_bytes: int
    sha256: str
    database_bytes: int
    jobs: int
    tasks: int
    workers: int
    cluster: str = ""

    def to_json(self) -> bytes:
        values = asdict(self)
        file = {"name": COMPRESSED, **{key: values.pop(key) for key in ("size_bytes", "sha256", "database_bytes")}}
        return json.dumps({"format": FORMAT, **values, "files": [file]}, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, raw: bytes, epoch_ms: int) -> Manifest:
        """Raises BadCheckpoint: torn, foreign, or of another checkpoint."""
        try:
            value = json.loads(raw)
            if value["format"] != FORMAT:
                raise BadCheckpoint(f"its manifest has format {value['format']!r}, this release reads {FORMAT}")
            (file,) = [entry for entry in value["files"] if entry["name"] == COMPRESSED]
            numbers = [value["epoch_ms"], file["size_bytes"], file["database_bytes"]]
            counts = [value["jobs"], value["tasks"], value["workers"]]
            schema, digest, cluster = value["schema"], file["sha256"], value.get("cluster", "")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadCheckpoint("its manifest is damaged, or is none of ours") from None
        if not all(type(number) is int and number >= 0 for number in [*numbers, *counts]):
            raise BadCheckpoint("its manifest has a number that cannot be")
        if not all(isinstance(text, str) for text in (schema, digest, cluster)) or not _SHA256.fullmatch(digest):
            raise BadCheckpoint("its manifest is damaged, or is none of ours")
        if numbers[0] != epoch_ms:
            raise BadCheckpoint(f"its manifest belongs to checkpoint {numbers[0]}")
        return cls(epoch_ms, schema, numbers[1], digest, numbers[2], counts[0], counts[1], counts[2], cluster)


def folder_of(epoch_ms: int) -> str:
    """Name of a checkpoint's folder below the remote state dir."""
    return f"{FOLDER}/{epoch_ms}"


def epoch_of(name: str) -> int | None:
    """The epoch of an object below `controller-state/`; None if its folder's name is not all digits (§6.3: ignored)."""
    parts = name.split("/")
    return int(parts[1]) if len(parts) > 2 and parts[0] == FOLDER and _EPOCH.fullmatch(parts[1]) else None


def objects_by_epoch(store: ObjectStore) -> dict[int, dict[str, int]]:
    """Every checkpoint folder, newest first: the names in it with their sizes. Raises IrisError."""
    found: dict[int, dict[str, int]] = {}
    for info in store.list(f"{FOLDER}/"):
        epoch = epoch_of(info.name)
        if epoch is not None:
            found.setdefault(epoch, {})[info.name.split("/", 2)[2]] = info.size_bytes
    return dict(sorted(found.items(), reverse=True))


def read_manifest(store: ObjectStore, epoch_ms: int, sizes: dict[str, int]) -> Manifest:
    """The manifest of a checkpoint whose objects have these sizes, found to agree with them.

    Raises:
        BadCheckpoint: it is missing, damaged, or does not fit the objects.
        IrisError: the store does not answer.
    """
    if MANIFEST not in sizes:
        raise BadCheckpoint("it has no manifest: its upload was never finished")
    if sizes[MANIFEST] > MAX_MANIFEST_BYTES:
        raise BadCheckpoint("its manifest is none of ours: it is too large")
    manifest = Manifest.from_json(store.get(f"{folder_of(epoch_ms)}/{MANIFEST}"), epoch_ms)
    size = sizes.get(COMPRESSED)
    if size is None:
        raise BadCheckpoint(f"{COMPRESSED} is missing")
    if size != manifest.size_bytes:
        raise BadCheckpoint(f"{COMPRESSED} has {size} bytes, its manifest says {manifest.size_bytes}")
    return manifest
