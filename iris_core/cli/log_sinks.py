"""Where lines of a log go: to standard output, as text or JSON lines, or byte for byte into a file. Must never fetch anything."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from iris_core.cli import output
from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_core.cli.log_lines import Line

PROGRESS_LINES = 5_000
_HANDED_OVER = ("/dev/std", "/dev/fd/", "/proc/")
"""Files that somebody opened for this process: they may be regular ones, and are not to be replaced by another."""


class Printer:
    """Lines to standard output; each batch goes out at once."""

    def __init__(self, how: str) -> None:
        from iris_core.cli.log_lines import line_object, task_line

        self._format: Callable[[Line], str] = (
            (lambda line: output.as_json_line(line_object(line)) + "\n") if how == "jsonl" else task_line
        )

    def emit(self, lines: Iterable[Line]) -> None:
        """Writes them. Raises PipeClosed, IrisError."""
        for line in lines:
            output.write(self._format(line))
        output.flush()

    def close(self) -> None:
        """Nothing to do."""


class Saver:
    """Lines to a file, byte for byte, which appears whole or not at all. What is lost is marked by a line in brackets.

    A line that ended without a line end gets one only if another line stands behind it.

    `progress` is told how far it is. Raises UsageFailed: there is such a file and `force` is not given; IrisError: it cannot be made.
    """

    def __init__(self, path: str, *, force: bool = False, progress: Callable[[str], None] = lambda _: None) -> None:
        self._path = path
        self._progress = progress
        is_there = os.path.lexists(path)
        if os.path.isdir(path):
            raise IrisError(f"cannot write {path}: it is a directory", hint="name a file in it")
        # A device, a pipe, or what /dev/stdout stands for, is written to as it is.
        is_as_it_is = os.path.abspath(path).startswith(_HANDED_OVER) or (is_there and not os.path.isfile(path))
        if is_there and not force and not is_as_it_is:
            raise UsageFailed(f"{path} exists", hint="--force replaces it")
        # Where a link leads to is replaced, never the link.
        self._target = path if is_as_it_is else os.path.realpath(path)
        self._scratch = path if is_as_it_is else f"{self._target}.part-{os.getpid()}"
        self.lines = 0
        self.bytes_written = 0
        self.lost_lines = 0
        self._done = False
        self._owed = b""
        try:
            # The user's own mask decides who may read it: it is their file.
            self._file = open(self._scratch, "wb" if self._scratch == path else "xb")  # noqa: SIM115
        except OSError as error:
            raise self._failed(error) from None

    def emit(self, lines: Iterable[Line]) -> None:
        """Writes them all, and the file is there. Raises IrisError."""
        try:
            for line in lines:
                self._write(line)
            self._file.flush()
            if self._scratch != self._path:
                os.fsync(self._file.fileno())
                os.replace(self._scratch, self._target)
            self._done = True
        except OSError as error:
            raise self._failed(error) from None
        finally:
            self._progress("")

    def _write(self, line: Line) -> None:
        if line.gap:
            self.lost_lines += line.gap
            data = f"[{line.gap} line{'s' * (line.gap != 1)} lost: {line.data}]".encode()
        else:
            data = line.bytes
        end = b"" if line.goes_on or line.unended else b"\n"
        written = self._owed + data + end
        self._owed = b"\n" if line.unended else b""
        self._file.write(written)
        self.bytes_written += len(written)
        self.lines += not line.goes_on
        if self.lines % PROGRESS_LINES == 0 or len(data) > 1 << 20:
            self._progress(f"{self._path}: {self.lines:,} lines, {self.bytes_written / 1e6:,.1f} MB")

    def _failed(self, error: OSError) -> IrisError:
        return IrisError(f"cannot write {self._path}: {(error.strerror or str(error)).lower()}")

    def close(self) -> None:
        """Closes the file; one that is not whole is removed."""
        try:
            self._file.close()
        except OSError:
            # What a full disk did not take: said when it was written.
            pass
        if not self._done and self._scratch != self._path:
            try:
                os.unlink(self._scratch)
            except OSError:
                pass
