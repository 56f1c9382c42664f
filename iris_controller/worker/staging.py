"""The folders of an attempt: `work/<uid>/{workdir,output,setup}` with the bundle and the job's files in place.

Blocking code for a thread. A fault of this machine (disk, permissions) comes out as OSError and is the machine's; a bundle or a
file name that may not be unpacked comes out as Refused and is the job's, because no other machine would take it either. Whose
fault it is that there is no room is `disk_room`'s to say.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from iris_controller.worker import disk_room
from iris_controller.worker.archive import Refused, check_name, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Folders:
    """Where an attempt's things are."""

    __slots__ = ("output", "root", "workdir")

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workdir = root / "workdir"
        self.output = root / "output"

    def script(self, step: int) -> Path:
        """The file of a setup step, counted from 1."""
        return self.root / f"setup-{step}.sh"


def stage(
    folders: Folders, bundle: Path | None, files: Mapping[str, bytes], scripts: Sequence[str], asked: int = 0
) -> None:
    """Makes the folders anew and fills them; `asked` is the disk that the job asked for, in bytes, 0 = none.

    Raises OSError, Refused, or NoRoom: it would not fit, and was not begun.
    """
    beside = sum(map(len, files.values())) + sum(map(len, scripts))
    try:
        os.mkdir(folders.root, 0o700)
    except FileExistsError:
        remove(folders.root)
        os.mkdir(folders.root, 0o700)
    except FileNotFoundError:
        os.makedirs(folders.root, 0o700)
    os.mkdir(folders.workdir)
    os.mkdir(folders.output)
    if bundle is None:
        disk_room.require(folders.root, beside, asked)
    else:
        try:
            unpack(bundle, folders.workdir, before=lambda size: disk_room.require(folders.root, size + beside, asked))
        except Refused as error:
            raise Refused(f"the bundle is refused: {error}") from None
    for name, data in files.items():
        _write_file(folders.workdir, name, data)
    for step, script in enumerate(scripts, 1):
        _write(folders.script(step), script.encode("utf-8", "surrogateescape"))


def _write_file(workdir: Path, name: str, data: bytes) -> None:
    try:
        parts = check_name(name)
    except Refused as error:
        raise Refused(f"a file of the job is refused: {error}") from None
    root = os.path.realpath(workdir)
    folder = os.path.realpath(os.path.join(root, *parts[:-1]))
    if folder != root and not folder.startswith(root + os.sep):
        raise Refused(f"a file of the job is refused: {name!a} leaves the work directory")
    path = os.path.join(folder, parts[-1])
    try:
        os.makedirs(folder, exist_ok=True)
        if os.path.lexists(path):
            os.unlink(path)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise Refused(f"a file of the job is refused: {name!a} clashes with what the bundle holds") from None
    _write(Path(path), data, 0o644)


def _write(path: Path, data: bytes, mode: int = 0o600) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def remove(folder: Path) -> None:
    """Removes an attempt's folder with everything in it, also what the task made unreadable. Raises OSError."""
    try:
        # Most tasks leave nothing, and to look for something costs more than to try.
        for name in ("workdir", "output", ""):
            os.rmdir(f"{folder}/{name}")
        return
    except OSError:
        pass  # there is something, or it was gone before: both are for those who look
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except PermissionError:
        os.chmod(folder, stat.S_IRWXU)
        for at, names, _ in os.walk(folder):
            for name in names:
                if not os.path.islink(os.path.join(at, name)):
                    os.chmod(os.path.join(at, name), stat.S_IRWXU)
        shutil.rmtree(folder)
