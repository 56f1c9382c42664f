"""The archive of a workspace: the same tree always gives the same bytes, so its hash is its identity.

Times are fixed, names sorted, modes reduced to "executable or not": nothing but names, contents and that bit counts.
Must never follow a link: contents are read with O_NOFOLLOW, and a file that became one meanwhile is an error.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_core.contracts import IrisError, UsageFailed
from iris_core.model.resources import format_size
from iris_core.workspace.tree import MAX_BUNDLE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.workspace.tree import Entry, Workspace

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_FILE, _LINK = 0o100000, 0o120000


@dataclass(frozen=True, slots=True)
class Bundle:
    """An archive. `bundle_id` is its sha256 in hex; "" when there is nothing in it."""

    bundle_id: str
    data: bytes = field(repr=False)
    files: int


def pack(workspace: Workspace, progress: Callable[[int], None] | None = None) -> Bundle:
    """Zips the workspace; `progress` is told the bytes read so far.

    Raises IrisError: a file cannot be read, or grew meanwhile; UsageFailed: the archive is larger than a bundle may be.
    """
    if not workspace.entries:
        return Bundle("", b"", 0)
    buffer = io.BytesIO()
    done = 0
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for entry in workspace.entries:
            info = zipfile.ZipInfo(entry.name, _EPOCH)
            info.create_system = _UNIX
            info.compress_type = zipfile.ZIP_DEFLATED
            if entry.target:
                info.external_attr = (_LINK | 0o777) << 16
                data = entry.target.encode()
            else:
                info.external_attr = (_FILE | (0o755 if entry.executable else 0o644)) << 16
                data = _read(workspace, entry, MAX_BUNDLE_BYTES - done)
            archive.writestr(info, data)
            done += len(data)
            if progress is not None:
                progress(done)
    data = buffer.getvalue()
    if len(data) > MAX_BUNDLE_BYTES:
        raise UsageFailed(
            f"the archive of {workspace.root} has {format_size(len(data))}, a bundle at most {format_size(MAX_BUNDLE_BYTES)}"
        )
    return Bundle(hashlib.sha256(data).hexdigest(), data, len(workspace.entries))


def _read(workspace: Workspace, entry: Entry, room: int) -> bytes:
    path = workspace.root / entry.name
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            data = file.read(room + 1)
    except OSError as error:
        raise IrisError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    if len(data) > room:
        raise IrisError(f"{path} grew while it was read", hint="try again when nothing writes there")
    return data
