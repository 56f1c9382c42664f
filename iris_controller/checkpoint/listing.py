"""The checkpoints of a state dir, with what is wrong with those that will never be chosen.

What is valid is decided as at a controller's start: by the manifest and the sizes of the objects, so that nothing large is read. Must
never write.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_controller.checkpoint.cache import Cache
from iris_controller.checkpoint.layout import (
    COMPRESSED,
    FOLDER,
    BadCheckpoint,
    folder_of,
    objects_by_epoch,
    read_manifest,
)
from iris_controller.checkpoint.opening import key_of
from iris_core.live.checkpoint_columns import CheckpointRow
from providers.objects import open_store

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore

READERS: Final = 8
"""Manifests that are read at a time: a distant store answers each in its own time."""
_INSIDE = re.compile(rf"/{FOLDER}(/[0-9]{{1,15}}(/[^/]*)?)?$")


def root_of(place: str) -> str:
    """URL of the state dir that a path or URL means: of itself, of its `controller-state`, or of a checkpoint in there."""
    url = (place if "://" in place else Path(place).expanduser().absolute().as_uri()).rstrip("/")
    return _INSIDE.sub("", url)


def listed(place: str) -> list[CheckpointRow]:
    """Every checkpoint of a state dir, newest first. Raises UsageFailed: this is no place; IrisError: the store does not answer."""
    store = open_store(root_of(place))
    found = objects_by_epoch(store)
    if not found:
        return []
    cache = Cache()
    with ThreadPoolExecutor(min(READERS, len(found)), thread_name_prefix="manifests") as pool:
        return list(pool.map(lambda epoch: _row(store, epoch, found[epoch], cache), found))


def _row(store: ObjectStore, epoch_ms: int, sizes: dict[str, int], cache: Cache) -> CheckpointRow:
    url, size = f"{store.url}/{folder_of(epoch_ms)}", sizes.get(COMPRESSED, 0)
    try:
        manifest = read_manifest(store, epoch_ms, sizes)
    except BadCheckpoint as bad:
        return CheckpointRow(url, epoch_ms, size, bad.message)
    return CheckpointRow(
        url,
        epoch_ms,
        size,
        database_bytes=manifest.database_bytes,
        jobs=manifest.jobs,
        tasks=manifest.tasks,
        workers=manifest.workers,
        unpacked=cache.has(key_of(manifest.sha256)),
        schema=manifest.schema,
    )
