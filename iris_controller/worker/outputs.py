"""What a task left in `$IRIS_OUTPUT_DIR`, as one archive in the object store (cli-auth-logs §4.6).

Everything here happens after the command ended by itself and its processes are gone, and changes nothing about how it ended: whatever
goes wrong becomes a status. Links are stored as links and never followed, so that nothing outside of the folder gets in; devices,
sockets and FIFOs are counted and left out. The folder is measured before anything is read, packed into one file beside it, and sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import stat
import tarfile
import threading
from datetime import UTC, datetime
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final

from iris_controller.worker.config import now_ms, reason
from iris_core.contracts import IrisError, UsageFailed
from iris_core.model.quantities import format_size
from iris_core.wire.gen.iris.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from iris_core.wire.gen.iris.v1 import worker_pb2

_log = logging.getLogger("iris.worker.outputs")

ARCHIVE: Final = "outputs.tar.zst"
_LEVEL: Final = 3

UPLOADED: Final = common_pb2.TASK_OUTPUTS_STATUS_UPLOADED
EMPTY: Final = common_pb2.TASK_OUTPUTS_STATUS_EMPTY
FAILED: Final = common_pb2.TASK_OUTPUTS_STATUS_FAILED
UNAVAILABLE: Final = common_pb2.TASK_OUTPUTS_STATUS_UNAVAILABLE


class _Lost(Exception):
    """The outputs cannot be kept; the message says why."""


def object_name(uid: str, at_ms: int) -> str:
    """Where the archive of an attempt lies below the destination: by day, so that old ones are found without a list of them."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}/{uid}/{ARCHIVE}"


async def save(
    uid: str, folder: Path, policy: worker_pb2.TaskOutputsPolicy, stopping: asyncio.Future[None]
) -> common_pb2.TaskOutputs:
    """Packs and sends what is in `folder`. Ends early when `stopping` is done or the policy's time is over. Never raises."""
    loop = asyncio.get_running_loop()
    given_up = threading.Event()
    work: asyncio.Future[common_pb2.TaskOutputs] = loop.create_future()

    def tell(found: common_pb2.TaskOutputs) -> None:
        if not work.done():
            work.set_result(found)

    def run() -> None:
        found = _save(uid, folder, policy, given_up)
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, found)

    # A thread of its own: a store that does not answer may keep it for minutes, and staging waits in the common ones.
    threading.Thread(target=run, name=f"outputs-{uid[:8]}", daemon=True).start()
    limit_s = policy.finalization_timeout_ms / 1000
    either: set[asyncio.Future[Any]] = {work, stopping}
    done, _ = await asyncio.wait(either, timeout=limit_s or None, return_when=asyncio.FIRST_COMPLETED)
    if work in done:
        return work.result()
    given_up.set()
    why = "the task was stopped meanwhile" if stopping.done() else f"not done within {limit_s:g} s"
    return common_pb2.TaskOutputs(status=FAILED, error=f"the outputs could not be kept: {why}")


def _save(
    uid: str, folder: Path, policy: worker_pb2.TaskOutputsPolicy, given_up: threading.Event
) -> common_pb2.TaskOutputs:
    found = common_pb2.TaskOutputs()
    archive = folder.with_name(ARCHIVE)
    try:
        entries = _measure(folder, policy, found)
        if not entries:
            found.status = EMPTY
            return found
        if not policy.destination:
            found.status, found.error = (
                UNAVAILABLE,
                "this cluster has no place for outputs: set task_outputs.destination",
            )
            return found
        _pack(folder, entries, archive, given_up)
        found.archive_bytes = archive.stat().st_size
        _send(uid, archive, policy, found, given_up)
    except UsageFailed as error:
        found.status, found.error = UNAVAILABLE, error.message
    except (_Lost, IrisError) as error:
        found.status, found.error = FAILED, f"the outputs could not be kept: {getattr(error, 'message', error)}"
    except OSError as error:
        found.status, found.error = FAILED, f"the outputs could not be kept: {reason(error)}"
    except Exception as error:
        _log.exception("the outputs of attempt %s could not be kept", uid)
        found.status, found.error = FAILED, f"the outputs could not be kept: {type(error).__name__}: {error}"
    finally:
        archive.unlink(missing_ok=True)
    return found


def _measure(folder: Path, policy: worker_pb2.TaskOutputsPolicy, found: common_pb2.TaskOutputs) -> list[str]:
    """The paths to pack, relative, parents first; counts into `found`. Raises _Lost beyond a limit."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise _Lost("the task replaced the folder by something else")
    except FileNotFoundError:
        return []
    paths: list[str] = []
    seen: set[tuple[int, int]] = set()
    for path, info in _walk(folder, policy.max_entries):
        kind = stat.S_IFMT(info.st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            found.skipped += 1
            continue
        paths.append(path)
        if kind == stat.S_IFREG and (info.st_dev, info.st_ino) not in seen:
            found.total_bytes += info.st_size
            if info.st_nlink > 1:
                seen.add((info.st_dev, info.st_ino))
        if len(paths) > policy.max_entries > 0:
            raise _Lost(f"more than {policy.max_entries:,} files and folders")
        if found.total_bytes > policy.max_bytes > 0:
            raise _Lost(f"more than {format_size(policy.max_bytes, exact=True)}")
    found.entries = len(paths)
    return paths


def _walk(folder: Path, most: int) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below, sorted, no link followed; without a limit on depth but that of the file system's paths.

    Raises _Lost: one folder alone holds more than `most`, 0 = any number; no more of it is listed.
    """
    waiting = [""]
    while waiting:
        here = waiting.pop()
        with os.scandir(folder / here) as listing:
            children = list(islice(listing, most + 1 if most else None))
        if len(children) > most > 0:
            raise _Lost(f"more than {most:,} files and folders")
        children.sort(key=lambda child: child.name)
        below = []
        for child in children:
            path = f"{here}/{child.name}" if here else child.name
            yield path, child.stat(follow_symlinks=False)
            if child.is_dir(follow_symlinks=False):
                below.append(path)
        waiting.extend(reversed(below))


class _Checked(io.RawIOBase):
    """A file whose reading ends when nobody waits for it any more."""

    def __init__(self, file: IO[bytes], given_up: threading.Event) -> None:
        self._file = file
        self._given_up = given_up

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._given_up.is_set():
            raise _Lost("given up")
        return self._file.read(size)


def _pack(folder: Path, paths: list[str], archive: Path, given_up: threading.Event) -> None:
    import zstandard

    with (
        archive.open("xb") as file,
        zstandard.ZstdCompressor(level=_LEVEL).stream_writer(file, closefd=False) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in paths:
            if given_up.is_set():
                raise _Lost("given up")
            entry = tar.gettarinfo(folder / path, arcname=path)
            # Whose machine it was is nobody's business, and no other machine has these users.
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            if not entry.isreg():
                tar.addfile(entry)
                continue
            fd = os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as content:
                tar.addfile(entry, _Checked(content, given_up))


def _send(
    uid: str,
    archive: Path,
    policy: worker_pb2.TaskOutputsPolicy,
    found: common_pb2.TaskOutputs,
    given_up: threading.Event,
) -> None:
    from providers.objects import open_store

    at_ms = now_ms()
    name = object_name(uid, at_ms)
    store = open_store(policy.destination)
    if given_up.is_set():
        return
    store.put_file(name, archive)
    found.status = UPLOADED
    found.url = f"{store.url}/{name}"
    found.expires_at_ms = at_ms + policy.ttl_ms if policy.ttl_ms else 0
