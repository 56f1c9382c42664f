"""A lost disk, made anew from the object store: the segments of the newest manifest, and what is known of producers and losses.

It begins with a claim: the manifest moves on under a new writer, so that whoever still ships from the old disk stops. Then every
segment is fetched and compared with its checksum; one that is missing or damaged is left out and named, and the rest is served. What
had been acknowledged and not shipped is stated as a loss: numbers go on above the reserved ceiling. A restore that was interrupted
begins anew. Must never touch a folder that holds anything of a store.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from iris_controller.finelog.disk import create, sync_folder, write_atomically
from iris_controller.finelog.shipping import manifest as manifests
from iris_controller.finelog.shipping.manifest import Manifest, Part, Shipped
from iris_controller.finelog.shipping.shipper import save_writer
from iris_controller.finelog.steps import reached
from iris_controller.finelog.wal import list_files
from iris_core.contracts import GenerationMismatch, IrisError, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from iris_controller.finelog.catalog import Catalog, Segment
    from iris_core.contracts import ObjectStore

log = logging.getLogger("iris.finelog.shipping")

UNDER_WAY: Final = "restoring.json"
TRIES: Final = 8


class RestoreFailed(IrisError):
    """The folder stays as it was, or half restored; the next start begins the restore anew."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What the stores start from."""

    marker: bytes
    manifest: Manifest
    """As it is now, with what could not be fetched left out."""
    lost: tuple[tuple[str, Segment], ...]
    """Segments that could not be fetched, with their tables."""

    def part(self, name: str) -> Part:
        """What belongs to one sequence of numbers."""
        return self.manifest.parts.get(name, Part())


def is_empty(folder: Path) -> bool:
    """Whether nothing of a store is there: no folder, an empty one, or a restore that did not end."""
    if not folder.is_dir() or (folder / UNDER_WAY).exists():
        return True
    return not any((folder / name).exists() for name in ("store.json", "ledger.json", "tables")) and not list_files(
        folder
    )


def restore(
    folder: Path,
    remote: ObjectStore,
    open_catalog: Callable[[Path], Catalog],
    take_over: Callable[[Restored], None],
    *,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Restored | None:
    """Fills an empty folder; None where the object store holds nothing.

    `take_over` writes what the stores keep beside their segments, before the restore counts as done. Raises RestoreFailed,
    IrisError, OSError.
    """
    found = manifests.read(remote)
    if found.manifest is None:
        return None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(folder / UNDER_WAY, b"{}\n")
    _clear(folder)
    writer = secrets.token_hex(8)
    save_writer(folder, writer)
    claimed = _claim(remote, writer, now_ms)
    reached("restore: the manifest is ours")
    log.info("restoring %d segments from %s", len(claimed.objects), remote.url)
    catalog = open_catalog(folder)
    lost: list[tuple[str, Segment]] = []
    whole: dict[str, tuple[Shipped, ...]] = {}
    for table, shipped in claimed.tables.items():
        target = catalog.make_folder(table)
        there = []
        for one in shipped:
            try:
                _fetch(remote, one, target / one.segment.name)
                there.append(one)
            except _Damaged as error:
                log.error("%s of table %s is lost: %s", one.segment.name, table, error)
                lost.append((table, one.segment))
        reached("restore: the segments of a table are here")
        catalog.commit(table, [one.segment for one in there])
        whole[table] = tuple(there)
    restored = Restored(bytes.fromhex(claimed.marker), replace(claimed, tables=whole), tuple(lost))
    take_over(restored)
    reached("restore: what the stores keep is here")
    (folder / UNDER_WAY).unlink()
    sync_folder(folder)
    log.warning(
        "restored %d segments from %s; what was stored after %s and not shipped is lost",
        len(restored.manifest.objects), remote.url, time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(found.manifest.written_ms / 1000)),
    )  # fmt: skip
    return restored


class _Damaged(Exception):
    """The object is gone, or is not what the manifest says."""


def _clear(folder: Path) -> None:
    """What an interrupted restore left."""
    for path in folder.iterdir():
        if path.name in (UNDER_WAY, "endpoint.json", "lock"):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _claim(remote: ObjectStore, writer: str, now_ms: Callable[[], int]) -> Manifest:
    """The newest manifest, under the new writer. Numbers up to its ceilings stay the old writer's."""
    for _ in range(TRIES):
        found = manifests.read(remote)
        if found.manifest is None:
            raise RestoreFailed(f"the manifest in {remote.url} went away while it was being claimed")
        old = found.manifest
        parts = {name: replace(part, ceiling=part.ceiling + manifests.HEADROOM) for name, part in old.parts.items()}
        claimed = replace(old, writer=writer, revision=old.revision + 1, written_ms=now_ms(), parts=parts)
        try:
            manifests.write(remote, claimed, found.generation)
        except GenerationMismatch:
            continue
        # The stores go on right above what was the old writer's.
        return replace(claimed, parts=dict(old.parts))
    raise RestoreFailed(f"somebody keeps writing into {remote.url}: stop whatever ships there")


def _fetch(remote: ObjectStore, one: Shipped, path: Path) -> None:
    """Raises _Damaged, IrisError, OSError."""
    scratch = path.with_name(f"{path.name}.tmp")
    scratch.unlink(missing_ok=True)
    digest = hashlib.sha256()
    descriptor = create(scratch)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            size = 0
            for piece in remote.chunks(one.object):
                size += len(piece)
                if size > one.segment.bytes:
                    raise _Damaged(f"{one.object} is larger than it was")
                digest.update(piece)
                file.write(piece)
            os.fsync(file.fileno())
        if digest.hexdigest() != one.sha256:
            raise _Damaged(f"{one.object} does not fit its checksum")
        scratch.rename(path)
        sync_folder(path.parent)
    except ObjectMissing:
        raise _Damaged(f"{one.object} is not in {remote.url}") from None
    finally:
        scratch.unlink(missing_ok=True)
