"""A log on its way into a file, which appears whole or not at all, is readable by its owner alone, and never replaces another.

Every method does file work: call them in a thread. Must never know where the bytes come from.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from iris_core.model.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path


class LogFile:
    """Written beside its place and moved there when it is whole. Raises ModelError: it cannot be written, or something is there."""

    def __init__(self, path: Path) -> None:
        self.written = 0
        """Bytes so far."""
        self._path = path
        self._scratch = path.with_name(f".{path.name}.part-{os.getpid()}")
        if path.exists() or path.is_symlink():
            raise ModelError(f"{path} is there already", hint="name another file")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            self._file = open(os.open(self._scratch, flags, 0o600), "wb")  # noqa: SIM115
        except OSError as error:
            raise self._failed(error) from None

    def write(self, data: bytes) -> None:
        """The next bytes."""
        try:
            self._file.write(data)
        except OSError as error:
            raise self._failed(error) from None
        self.written += len(data)

    def finish(self) -> None:
        """It is whole: the file is there."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            # A link is made only where nothing is.
            os.link(self._scratch, self._path)
        except FileExistsError:
            raise ModelError(f"{self._path} is there already", hint="name another file") from None
        except OSError as error:
            raise self._failed(error) from None

    def abandon(self) -> None:
        """What is left beside its place goes away."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            os.unlink(self._scratch)

    def _failed(self, error: OSError) -> ModelError:
        return ModelError(
            f"cannot write {self._path}: {(error.strerror or str(error)).lower()}", hint="name another file"
        )
