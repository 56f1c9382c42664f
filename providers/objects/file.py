"""An object store in a folder (`contracts.ObjectStore`): for one machine, or for several over a shared file system.

Objects appear whole or not at all: each is written aside, synced, and renamed. Compare-and-set holds the folder's
lock from comparing to renaming, so it is as strong as the file system's locks. Objects and folders are their owner's
alone. Must never follow a link, and never touch anything outside its root.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_core.contracts import GenerationMismatch, IrisError, ObjectInfo, ObjectMissing
from providers.objects.names import PRIVATE, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_PIECE_BYTES: Final = 1 << 20
_SYNC_BYTES: Final = 4 << 20
"""So much of a large copy is written back at a time: a flood of dirty pages would hold up every fsync of this machine."""


class FileStore:
    """Objects as files under `root`, which is made with the first put. Safe for several threads and processes."""

    def __init__(self, root: Path) -> None:
        self._root = self.folder = root.absolute()
        self.url = f"file://{self._root}"

    def put(self, name: str, data: bytes, *, if_generation: str | None = None) -> ObjectInfo:
        """Durable when it returns. `if_generation=""` = only if absent. Raises GenerationMismatch, IrisError."""

        def begin(scratch: Path) -> int:
            return os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)

        return self._put(name, begin, lambda descriptor: _write(descriptor, [data]), if_generation)

    def put_file(self, name: str, path: Path, *, if_generation: str | None = None) -> ObjectInfo:
        """As `put`, with a file that is handed over: moved rather than copied if it lies on the same file system. Raises
        GenerationMismatch, IrisError; the file is still there then."""

        linked = False

        def begin(scratch: Path) -> int:
            nonlocal linked
            try:
                os.link(path, scratch, follow_symlinks=False)
                linked = True
            except OSError:
                # Another file system, or one without hard links.
                return os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            return os.open(scratch, os.O_WRONLY | os.O_NOFOLLOW)

        def fill(descriptor: int) -> None:
            if linked:
                os.fchmod(descriptor, 0o600)
                os.fsync(descriptor)
            else:
                with open(path, "rb", buffering=0) as file:
                    _write(descriptor, iter(lambda: file.read(_SYNC_BYTES), b""))

        info = self._put(name, begin, fill, if_generation)
        path.unlink()
        return info

    def _put(
        self,
        name: str,
        begin: Callable[[Path], int],
        fill: Callable[[int], None],
        if_generation: str | None,
    ) -> ObjectInfo:
        path = self._path(name)
        try:
            private = self._root / PRIVATE
            self._folder(private)
            scratch = private / f"put-{secrets.token_hex(8)}"
            descriptor = -1
            try:
                with self._locked(private):
                    descriptor = begin(scratch)
                    # Held as long as its writer lives: what nobody holds is left over.
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                fill(descriptor)
                with self._locked(private):
                    self._compare(name, path, if_generation)
                    self._folder(path.parent)
                    os.rename(scratch, path)
                    info = _info(name, path.lstat())
                _sync(path.parent)
                return info
            finally:
                with contextlib.suppress(OSError):
                    scratch.unlink()
                if descriptor >= 0:
                    os.close(descriptor)
        except OSError as error:
            raise self._failed("write", name, error) from error

    def get(self, name: str) -> bytes:
        """The object. Raises ObjectMissing, IrisError."""
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """The object in pieces. Raises ObjectMissing, IrisError."""
        path = self._path(name)
        try:
            # A new version is a new file: what is open here stays the version it was.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            with open(descriptor, "rb", buffering=0) as file:
                while piece := file.read(_PIECE_BYTES):
                    yield piece
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ObjectMissing(f"there is no {name} in {self.url}") from None
        except OSError as error:
            raise self._failed("read", name, error) from error

    def stat(self, name: str) -> ObjectInfo | None:
        """What is known of the object, None if there is none. Raises IrisError."""
        try:
            found = self._path(name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failed("read", name, error) from error
        return _info(name, found) if stat.S_ISREG(found.st_mode) else None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose name starts with `prefix`, by name. Raises IrisError."""
        folder = prefix.rpartition("/")[0]
        start = self._path(folder) if folder else self._root
        yield from self._walk(start, f"{folder}/" if folder else "", prefix)

    def _walk(self, folder: Path, path: str, prefix: str) -> Iterator[ObjectInfo]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name + ("/" if entry.is_dir() else ""))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._failed("list", path or "/", error) from error
        for entry in entries:
            name = path + entry.name
            if entry.name == PRIVATE or not (name.startswith(prefix) or prefix.startswith(name + "/")):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(folder / entry.name, name + "/", prefix)
            elif entry.is_file(follow_symlinks=False) and name.startswith(prefix):
                # It may be gone since the folder was read.
                with contextlib.suppress(FileNotFoundError):
                    yield _info(name, entry.stat(follow_symlinks=False))

    def delete(self, name: str) -> None:
        """Deleting what is absent is no error. Raises IrisError."""
        path = self._path(name)
        try:
            path.unlink()
            _sync(path.parent)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._failed("delete", name, error) from error

    def _path(self, name: str) -> Path:
        return self._root.joinpath(*parts_of(name))

    def _folder(self, path: Path) -> None:
        if not path.is_dir():
            self._folder(path.parent)
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
                _sync(path.parent)

    @contextlib.contextmanager
    def _locked(self, private: Path) -> Iterator[None]:
        descriptor = os.open(private / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _drop_abandoned(private)
            yield
        finally:
            os.close(descriptor)

    def _compare(self, name: str, path: Path, expected: str | None) -> None:
        if expected is None:
            return
        try:
            actual = _info(name, path.lstat()).generation
        except (FileNotFoundError, NotADirectoryError):
            actual = ""
        if actual != expected:
            raise GenerationMismatch(f"{name} in {self.url} was written by somebody else")

    def _failed(self, verb: str, name: str, error: OSError) -> IrisError:
        reason = "it is a link" if error.errno == errno.ELOOP else (error.strerror or str(error)).lower()
        return IrisError(f"cannot {verb} {name} in {self.url}: {reason}")


def _info(name: str, found: os.stat_result) -> ObjectInfo:
    # Each write is a new file, so inode and time of change together never repeat.
    return ObjectInfo(name, found.st_size, f"{found.st_mtime_ns:x}-{found.st_ino:x}")


def _write(descriptor: int, pieces: Iterable[bytes]) -> None:
    """Durable when it returns."""
    for piece in pieces:
        view = memoryview(piece)
        while view:
            view = view[os.write(descriptor, view) :]
        if len(piece) == _SYNC_BYTES:
            os.fdatasync(descriptor)
    os.fsync(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _drop_abandoned(private: Path) -> None:
    """Removes what writers that died left behind: theirs is the scratch that nobody has locked."""
    for entry in os.scandir(private):
        if not entry.name.startswith("put-"):
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(entry.path)
            finally:
                os.close(descriptor)
