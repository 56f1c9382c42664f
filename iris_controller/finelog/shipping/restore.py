"""A lost disk, made anew from the object store: the segments of the newest manifest, and what is known of producers and losses.

It begins with a claim: the manifest moves on under a new writer, so that whoever still ships from the old disk stops. Then every
segment is fetched and compared with its checksum; one that is missing or damaged is left out and named, and the rest is served. What
had been acknowledged and not shipped is stated as a loss: numbers go on above the reserved ceiling. A restore that was interrupted
begins anew. Must never touch a folder that holds anything of a store.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from iris_controller.finelog.disk import sync_folder, write_atomically
from iris_controller.finelog.shipping import manifest as manifests
from iris_controller.finelog.shipping.cold import Unfit, fetch
from iris_controller.finelog.shipping.manifest import Manifest, Part, Shipped
from iris_controller.finelog.shipping.shipper import TERMINAL
from iris_controller.finelog.shipping.writer import WRITER_FILE, own_writer, save_writer
from iris_controller.finelog.steps import reached
from iris_controller.finelog.wal import list_files
from iris_core.contracts import GenerationMismatch, IrisError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from iris_controller.finelog.catalog import Catalog
    from iris_controller.finelog.segment import Segment
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
    local_bytes: int = 0,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Restored | None:
    """Fills an empty folder; None where the object store holds nothing.

    `take_over` writes what the stores keep beside their segments, before the restore counts as done. Of finished merges only the newest
    that fit into `local_bytes` are fetched, 0 = all. Raises RestoreFailed, IrisError, OSError.
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
    cold = _cold(claimed, local_bytes) if local_bytes else frozenset()
    lost: list[tuple[str, Segment]] = []
    whole: dict[str, tuple[Shipped, ...]] = {}
    for table, shipped in claimed.tables.items():
        target = catalog.make_folder(table)
        there = []
        for one in shipped:
            try:
                if (table, one.segment.name) in cold:
                    there.append(replace(one, segment=replace(one.segment, object=one.object)))
                    continue
                fetch(remote, one.object, one.segment.bytes, one.sha256, target / one.segment.name)
                there.append(one)
            except Unfit as error:
                log.error("%s of table %s is lost: %s", one.segment.name, table, error)
                lost.append((table, one.segment))
        sync_folder(target)
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


def mend(folder: Path, remote: ObjectStore, open_catalog: Callable[[Path], Catalog]) -> None:
    """Names again what was in the object store alone, if the catalog was lost. Raises IrisError, OSError.

    What another folder ships is none of it: another store's, or rows with numbers that are not for this one.
    """
    catalog = open_catalog(folder)
    if not catalog.is_rebuilt or not (folder / WRITER_FILE).exists():
        return
    there = manifests.read(remote).manifest
    if there is None or there.writer != own_writer(folder):
        return
    for table, shipped in there.tables.items():
        here = catalog.segments(table)
        fresh = [
            replace(one.segment, object=one.object)
            for one in shipped
            if all(one.segment.last_seq < had.first_seq or one.segment.first_seq > had.last_seq for had in here)
        ]
        if fresh:
            catalog.commit(table, fresh)
            log.warning("%d segments of %s are in %s alone, and named again", len(fresh), table, remote.url)


def _cold(manifest: Manifest, local_bytes: int) -> frozenset[tuple[str, str]]:
    """Table and name of the segments that stay where they are."""
    every = [(one.segment, table) for table, shipped in manifest.tables.items() for one in shipped]
    every.sort(key=lambda item: -item[0].created_ms)
    found = set()
    for segment, table in every:
        local_bytes -= segment.bytes
        if local_bytes < 0 and segment.level >= TERMINAL:
            found.add((table, segment.name))
    return frozenset(found)


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
