"""Makes one checkpoint: snapshot, upload, manifest; and removes what is too old.

Each step leaves what was there usable, whenever the process is killed: the manifest is the last thing written and the first thing
removed. Must never run inside the controller's process, which a hanging store would hold up.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from iris_controller.checkpoint import snapshot
from iris_controller.checkpoint.layout import (
    COMPRESSED,
    FOLDER,
    KEEP_MS,
    MANIFEST,
    Manifest,
    folder_of,
    objects_by_epoch,
    read_manifest,
)
from iris_controller.checkpoint.owner import Fenced, require
from iris_core.contracts import IrisError
from iris_core.procedures import record as rollout

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore

log = logging.getLogger("iris.checkpoint")


def write(
    database: Path,
    scratch: Path,
    store: ObjectStore,
    *,
    now_ms: int,
    after_ms: int,
    claim: str,
    cluster: str = "",
    stage: Callable[[str], None] = lambda _: None,
) -> Manifest:
    """Makes a checkpoint of the database in the remote state dir `store`, using the private folder `scratch`.

    Its epoch is `now_ms`, or just above `after_ms` and all that are there: the newest is the largest number, also after the clock was
    set back. `claim` is that of the controller, checked before the manifest is written. `stage` is told what begins.

    Raises:
        Fenced: another controller has taken the remote state dir over.
        SnapshotFailed, sqlite3.Error, OSError: the database cannot be copied.
        IrisError: the store does not answer. Nothing of this checkpoint will be chosen.
    """
    newest = max(objects_by_epoch(store), default=0)
    epoch_ms = max(now_ms, after_ms + 1, newest + 1)
    path = scratch / COMPRESSED
    taken = snapshot.take(database, path, stage=stage)
    manifest = Manifest(
        epoch_ms=epoch_ms,
        schema=taken.schema,
        size_bytes=taken.size_bytes,
        sha256=taken.sha256,
        database_bytes=taken.database_bytes,
        jobs=taken.jobs,
        tasks=taken.tasks,
        workers=taken.workers,
        cluster=cluster,
    )
    folder = folder_of(epoch_ms)
    stage("upload")
    try:
        require(store, claim)
        store.put_file(f"{folder}/{COMPRESSED}", path, if_generation="")
        stage("manifest")
        require(store, claim)
        store.put(f"{folder}/{MANIFEST}", manifest.to_json(), if_generation="")
    except Fenced:
        raise
    except IrisError:
        # Half a checkpoint does no harm, but it takes room.
        with contextlib.suppress(IrisError):
            if MANIFEST not in objects_by_epoch(store).get(epoch_ms, {}):
                store.delete(f"{folder}/{COMPRESSED}")
        raise
    stage("done")
    return manifest


def prune(
    store: ObjectStore,
    newest_ms: int,
    *,
    claim: str,
    keep_ms: int = KEEP_MS,
    stage: Callable[[str], None] = lambda _: None,
) -> list[int]:
    """Removes checkpoints that are more than `keep_ms` older than the valid one of `newest_ms`; returns their epochs.

    The one that a rollback would restore is kept, however old: while the record cannot be read, nothing is removed. The manifest goes first.
    Raises Fenced, IrisError.
    """
    stage("prune")
    require(store, claim)
    found = objects_by_epoch(store)
    read_manifest(store, newest_ms, found.get(newest_ms, {}))
    record = rollout.read(store).record
    kept = record.rollback_checkpoint.rstrip("/").rpartition("/")[2] if record is not None else ""
    removed = []
    for epoch, names in found.items():
        if epoch >= newest_ms - keep_ms or str(epoch) == kept:
            continue
        for name in sorted(names, key=lambda name: name != MANIFEST):
            store.delete(f"{FOLDER}/{epoch}/{name}")
            stage("prune")
        removed.append(epoch)
    return removed
