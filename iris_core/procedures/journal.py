"""The journal of a procedure: one file, one JSON object a line, every line on the disk before what it announces happens.

It is the only memory of a procedure. It is append-only; a torn last line (the machine went down while it was written) is dropped.
One process drives at a time, held by a lock on the file; others may read along. The folder is private (0700) unless it was
given explicitly: then its owner decided who may read and drive.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

from iris_core.contracts import IrisError
from iris_core.procedures.files import sync_folder

Record = dict[str, Any]
"""One line. `type` says what it is, `at_ms` when (epoch ms), `by` who."""

SUFFIX: Final = ".jsonl"
MAX_LINE: Final = 4 << 20
TRIES: Final = 5
TRY_S: Final = 0.02
LEAST_FREE: Final = 1 << 20
"""Bytes that must be free where a journal is begun: one that cannot be written ends its procedure, maybe with a controller stopped."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class JournalHeld(IrisError):
    """Another process drives this procedure."""


class JournalBroken(IrisError):
    """A line in the middle cannot be read: the file was changed by something else."""


def journal_dir(explicit: str | None, environ: dict[str, str] | None = None) -> Path:
    """Where journals are: what was given, else $IRIS_JOURNAL_DIR, else the state folder of this account. It is made if absent.

    Raises IrisError: it cannot be made or written.
    """
    env = os.environ if environ is None else environ
    given = explicit or env.get("IRIS_JOURNAL_DIR", "")
    if given:
        path = Path(given)
        mode = 0o777  # what the umask leaves: a folder that was named is its owner's business
    else:
        home = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".local" / "state")
        path = Path(home) / "iris" / "procedures"
        mode = 0o700
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise IrisError(f"{path}: {error.strerror}", hint="name another folder with --journal-dir") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise IrisError(f"{path} cannot be written", hint="name another folder with --journal-dir")
    return path


def path_of(folder: Path, procedure_id: str) -> Path:
    """The file of a procedure. Raises IrisError for an id that is no file name."""
    if not _ID.fullmatch(procedure_id):
        raise IrisError(f"{procedure_id!r} is no procedure id", hint="letters, digits, . _ - and at most 128 of them")
    return folder / f"{procedure_id}{SUFFIX}"


def is_driven(path: Path) -> bool:
    """Whether a process drives this procedure now. Raises IrisError: the file cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise IrisError(f"{path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def read(path: Path) -> list[Record]:
    """Every whole line, in order; a torn last one is left out.

    Raises:
        IrisError: there is no such journal, or it cannot be read.
        JournalBroken: a line that is not the last is no record.
    """
    return read_from(path, 0)[0]


def read_from(path: Path, offset: int) -> tuple[list[Record], int]:
    """The whole lines from an offset on, and where to read on. Raises as `read`."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        raise IrisError(f"no procedure {path.stem}", hint=f"journals are in {path.parent}") from None
    except OSError as error:
        raise IrisError(f"{path}: {error.strerror}") from error
    records, end = [], 0
    for record, after in _records(path, data):
        records.append(record)
        end = after
    return records, offset + end


def _records(path: Path, data: bytes) -> Iterator[tuple[Record, int]]:
    """Each record and the offset of its end."""
    at = 0
    number = 0
    while at < len(data):
        number += 1
        end = data.find(b"\n", at)
        if end < 0:
            return  # torn: the newline is written with the line
        try:
            record = json.loads(data[at:end])
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or "type" not in record:
            if end == len(data) - 1:
                return
            raise JournalBroken(
                f"{path}, line {number}: not a record", hint="it was changed from outside; a person must look"
            )
        at = end + 1
        yield record, at


class Journal:
    """The driver's side: holds the lock until it is closed."""

    def __init__(self, path: Path, descriptor: int, records: list[Record]) -> None:
        self.path = path
        self.records = records
        self._fd = descriptor

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new one. Raises IrisError: it exists, cannot be made, or there is too little room to see a procedure through."""
        try:
            if shutil.disk_usage(path.parent).free < LEAST_FREE:
                raise IrisError(
                    f"{path.parent} has less than {LEAST_FREE >> 20} MiB free, too little for a journal",
                    hint="make room, or name another folder with --journal-dir; nothing was changed",
                )
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o660)
        except FileExistsError:
            raise IrisError(f"{path.stem} exists", hint="resume it, or choose another id") from None
        except OSError as error:
            raise IrisError(f"{path}: {error.strerror}") from error
        _lock(path, descriptor)
        sync_folder(path.parent)
        return cls(path, descriptor, [])

    @classmethod
    def open(cls, path: Path) -> Self:
        """One that exists, to go on with it. Raises JournalHeld, JournalBroken, IrisError."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            raise IrisError(f"no procedure {path.stem}", hint=f"journals are in {path.parent}") from None
        except OSError as error:
            raise IrisError(f"{path}: {error.strerror}") from error
        _lock(path, descriptor)
        try:
            data = path.read_bytes()
            records, end = [], 0
            for record, after in _records(path, data):
                records.append(record)
                end = after
            if end < len(data):
                os.ftruncate(descriptor, end)
                os.fsync(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, records)

    def append(self, record: Record) -> None:
        """Write a line and wait until it is on the disk. Raises IrisError: it is not, and then nothing may follow from it."""
        # A file's name or a commit's subject need not be UTF-8: what was not comes back as it was.
        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
        line = text.encode("utf-8", "surrogatepass") + b"\n"
        if len(line) > MAX_LINE:
            raise IrisError(f"{self.path}: a record of {len(line):,} bytes is too large")
        try:
            start = os.fstat(self._fd).st_size
            written = 0
            try:
                while written < len(line):
                    written += os.write(self._fd, line[written:])
                os.fsync(self._fd)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, start)
                raise
        except OSError as error:
            raise IrisError(f"{self.path}: {error.strerror}", hint="make room; then resume the procedure") from error
        self.records.append(record)

    def close(self) -> None:
        """Give up the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock(path: Path, descriptor: int) -> None:
    for attempt in range(TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if attempt + 1 < TRIES:
                time.sleep(TRY_S)  # whoever only asks whether it is driven holds it for a moment
    os.close(descriptor)
    raise JournalHeld(
        f"{path.stem} is driven by another process", hint="watch it with `status`, or end that process first"
    ) from None
