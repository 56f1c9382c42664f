"""The journal of a procedure: one file, one JSON object a line, every line on the disk before what it announces happens.

It is the only memory of a procedure. It is append-only; a torn last line (the machine went down while it was written) is dropped. Each
line ends with a digest of itself and of all before it, so that a line that was changed, moved or taken out is seen and nothing is done
from it; a journal of an older version has none. Room for the lines to come is allocated to the file beforehand, because a driver that
cannot write cannot finish what it began. One process drives at a time, held by a lock on the file; others may read along. The folder is
private (0700) unless it was given explicitly: then its owner decided who may read and drive.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

from iris_core.contracts import IrisError
from iris_core.procedures.files import allocate, sync_folder
from iris_core.procedures.record import PROGRAM

Record = dict[str, Any]
"""One line. `type` says what it is, `at_ms` when (epoch ms), `by` who."""

SUFFIX: Final = ".jsonl"
MAX_LINE: Final = 4 << 20
TRIES: Final = 5
TRY_S: Final = 0.02
ROOM: Final = 1 << 20
"""Bytes that are kept for the lines to come: a journal that cannot be written ends its procedure, maybe with a controller stopped."""
LEAST_ROOM: Final = 64 << 10
"""What a procedure that is gone on with needs at least: it may have to finish on a disk that is full."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_CHAIN: Final = re.compile(rb',"chain":"([0-9a-f]{16})"\}$')


class JournalHeld(IrisError):
    """Another process drives this procedure."""


class JournalBroken(IrisError):
    """A line cannot be read, or is not what was written: the file was changed by something else, or another version wrote it."""


CHANGED: Final = "it was changed from outside; a person must look"


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
        JournalBroken: a line is no record, or is not as it was written.
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
    for record, after, _ in _records(path, data, from_start=offset == 0):
        records.append(record)
        end = after
    return records, offset + end


def _records(path: Path, data: bytes, *, from_start: bool = True) -> Iterator[tuple[Record, int, str]]:
    """Each record, the offset of its end, and its digest; "" where there are none. Only from the start on are digests compared."""
    at = 0
    number = 0
    chain = ""
    while at < len(data):
        number += 1
        end = data.find(b"\n", at)
        if end < 0:
            return  # torn: the newline is written with the line
        line = data[at:end]
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("type"), str):
            if end == len(data) - 1:
                return
            raise JournalBroken(f"{path}, line {number}: not a record", hint=CHANGED)
        found = _CHAIN.search(line)
        if found is not None:
            del record["chain"]
        said = found[1].decode() if found is not None else ""
        if from_start:
            chained = bool(said) if number == 1 else bool(chain)
            chain = _digest(chain, line[: found.start()] + b"}" if found is not None else line) if chained else ""
            if said != chain:
                raise JournalBroken(f"{path}, line {number}: it is not what was written there", hint=CHANGED)
        at = end + 1
        yield record, at, chain


def _digest(before: str, line: bytes) -> str:
    """Of a line without its own, and of all before it."""
    return hashlib.sha256(before.encode() + line).hexdigest()[:16]


class Journal:
    """The driver's side: holds the lock until it is closed."""

    def __init__(self, path: Path, descriptor: int, records: list[Record], chain: str | None) -> None:
        self.path = path
        self.records = records
        self._fd = descriptor
        self._chain = chain
        """Of the last line; None = this journal has none."""

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new one. Raises IrisError: it exists, cannot be made, or there is too little room to see a procedure through."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o660)
        except FileExistsError:
            raise IrisError(f"{path.stem} exists", hint="resume it, or choose another id") from None
        except OSError as error:
            raise IrisError(f"{path}: {error.strerror}") from error
        _lock(path, descriptor)
        made = cls(path, descriptor, [], "")
        try:
            made.reserve()
            sync_folder(path.parent)
        except (IrisError, OSError) as error:
            path.unlink(missing_ok=True)
            made.close()
            if isinstance(error, IrisError):
                error.hint += "; nothing was changed"
                raise
            raise IrisError(f"{path}: {error.strerror}") from error
        return made

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
        opened = cls(path, descriptor, [], "")
        try:
            data = path.read_bytes()
            end = 0
            for record, after, chain in _records(path, data):
                opened.records.append(record)
                end, opened._chain = after, chain or None
            if end < len(data):
                os.ftruncate(descriptor, end)
                os.fsync(descriptor)
            opened.reserve(least=LEAST_ROOM)
        except OSError as error:
            opened._drop()
            raise IrisError(f"{path}: {error.strerror}") from error
        except BaseException:
            opened._drop()
            raise
        return opened

    def reserve(self, *, least: int = ROOM) -> None:
        """Sees to it that the lines to come have room, whatever else fills the disk. Raises IrisError: there are fewer than `least` bytes."""
        wanted = ROOM
        while True:
            try:
                allocate(self._fd, os.fstat(self._fd).st_size, wanted)
                return
            except OSError as error:
                wanted //= 4
                if wanted < least:
                    raise IrisError(
                        f"{self.path.parent} has too little room for a journal: {error.strerror}",
                        hint=f"make room for {ROOM >> 20} MiB, or name another folder with --journal-dir",
                    ) from error

    def append(self, record: Record) -> None:
        """Write a line and wait until it is on the disk. Raises IrisError: it is not, and then nothing may follow from it."""
        # A file's name or a commit's subject need not be UTF-8: what was not comes back as it was.
        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
        line = text.encode("utf-8", "surrogatepass")
        chain = self._chain
        if chain is not None:
            chain = _digest(chain, line)
            line = line[:-1] + f',"chain":"{chain}"}}'.encode()
        line += b"\n"
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
        self._chain = chain
        self.records.append(record)

    def close(self) -> None:
        """Give up the lock, and the room that was not used."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, os.fstat(self._fd).st_size)
        self._drop()

    def _drop(self) -> None:
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
    # Of a rollout alone is there a command that looks on; both know where this journal is.
    watch = f"watch it: {PROGRAM} rollout status --journal-dir={shlex.quote(str(path.parent))} {path.stem}"
    way = watch if path.stem.startswith("rollout-") else f"wait for it: its journal is {path}"
    raise JournalHeld(f"{path.stem} is driven by another process", hint=f"{way}; or end that process first") from None
