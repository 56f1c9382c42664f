"""Results that go into a file: whole, or not at all; `-` is standard output.

A file that a failed or interrupted command leaves half is worse than none, so the bytes are written beside it and renamed. What is
no plain file (a pipe, a device) is written to directly.
"""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from iris_core.cli import output
from iris_core.contracts import IrisError
from iris_core.model.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_core.cli.session import Session


def save(session: Session, path: str, data: bytes | Iterable[bytes], what: str) -> None:
    """Writes `data`, in pieces where it comes in pieces, and says so on standard error. Raises IrisError."""
    pieces = (data,) if isinstance(data, bytes) else data
    if path == "-":
        for piece in pieces:
            output.write_bytes(piece)
        output.flush()
        return
    try:
        if path.endswith("/"):
            # `Path` drops it, and a file would be made where somebody named a folder.
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        size = _write(Path(path), pieces)
    except OSError as error:
        raise IrisError(f"cannot write {shown(path)}: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        raise IrisError(f"{shown(path)} is no file name") from None
    session.diagnostics.note(f"wrote {what} to {path} ({size} bytes)")


def _write(path: Path, pieces: Iterable[bytes]) -> int:
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            return sum(map(file.write, pieces))
    real = path.resolve()
    scratch = real.with_name(f".{real.name[:100]}.{secrets.token_hex(4)}")
    try:
        with open(scratch, "xb") as file:
            size = sum(map(file.write, pieces))
        os.replace(scratch, real)
    finally:
        scratch.unlink(missing_ok=True)
    return size
