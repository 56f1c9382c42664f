"""Which files travel (control-plane §4.3).

Inside git: what `git ls-files -co --exclude-standard` lists from the root of the repository, submodules included, so
that ignore rules mean what git says they mean.
Outside: everything below the current directory. In both, tool caches, virtual environments and the like stay behind
    (`EXCLUDED_*`). A symbolic link travels as a link when it stays within the tree, and is left out with a word
    otherwise: what lies behind it was never asked for. Sizes are read here, contents never.
"""

from __future__ import annotations

import os
import stat
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_core.contracts import IrisError, UsageFailed
from iris_core.model.errors import shown
from iris_core.model.resources import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BUNDLE_BYTES: Final = 25 * 1024 * 1024
"""Largest sum of file sizes, and largest archive."""

EXCLUDED_FOLDERS: Final = frozenset(
    {
        *(".git", ".hg", ".svn", ".jj"),
        *("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".cache", ".tox", ".nox"),
        *(".venv", "venv", "node_modules", ".ipynb_checkpoints", ".uv-cache", ".terraform"),
    }
)
EXCLUDED_SUFFIXES: Final = (".pyc", ".pyo", ".mov")
EXCLUDED_FOLDER_SUFFIXES: Final = (".egg-info",)

WALK_FOR_S: Final = 2.0
"""How long an oversized folder is looked at to name its largest files."""

MAX_FILES: Final = 50_000
NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or link. `name` is relative to the root, `/`-separated; `target` is a link's text, "" for a file."""

    name: str
    size_bytes: int
    executable: bool = False
    target: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that does not travel although it would belong there, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Workspace:
    """What travels. Entries are in the order of their names' bytes."""

    root: Path
    git: bool
    entries: tuple[Entry, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def size_bytes(self) -> int:
        """Sum of the files' sizes."""
        return sum(entry.size_bytes for entry in self.entries)

    def has(self, name: str) -> bool:
        """Whether a file of that name travels."""
        return any(entry.name == name for entry in self.entries)


def scan(folder: Path) -> Workspace:
    """The workspace around that folder. Reads no contents.

    Raises UsageFailed: it is larger than a bundle may be (the largest files are named), or it is the root of the file
    system or a home directory;
    IrisError: git or the file system refuses to list it.
    """
    root = git_root(folder)
    if root is not None:
        names = _from_git(root, root, 0)
        return _collect(root, names, git=True)
    folder = folder.resolve()
    home = Path.home().resolve()
    if folder == home or folder in home.parents:
        what = (
            "the root of the file system"
            if folder == Path(folder.anchor)
            else "a home directory"
            if folder == home
            else "above a home directory"
        )
        raise UsageFailed(
            f"{folder} is {what} and does not travel with a job{_largest_words(_sizes(folder))}",
            hint="start from a project's folder (a git repository ships what git tracks, any other folder all of it)",
        )
    return _collect(folder, _walk(folder, folder), git=False)


def git_root(folder: Path) -> Path | None:
    """The root of the git repository around that folder, None if there is none. Raises IrisError: git refuses to read
    it.
    """
    done = _git(folder, "rev-parse", "--show-toplevel")
    if done is None:
        return None
    if done.returncode == 0:
        return Path(os.fsdecode(done.stdout.removesuffix(b"\n")))
    said = " ".join(os.fsdecode(done.stderr).split())
    if "not a git repository" in said:
        return None
    raise IrisError(f"git cannot read the repository around {folder}: {said.removeprefix('fatal: ')[:300]}")


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes] | None:
    # A hook's GIT_DIR would name another repository; fsmonitor would run what a foreign repository's config says.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", *words]
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env={**environment, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        if not folder.is_dir():
            raise IrisError(f"{folder} does not exist") from None
        return None
    except OSError as error:
        raise IrisError(f"cannot run git: {(error.strerror or str(error)).lower()}") from None


def _from_git(root: Path, repository: Path, depth: int) -> Iterator[str]:
    done = _git(repository, "ls-files", "-co", "--exclude-standard", "-z")
    if done is None or done.returncode != 0:
        said = " ".join(os.fsdecode(done.stderr).split()) if done is not None else "git is gone"
        raise IrisError(f"git cannot list {repository}: {said[:300]}")
    prefix = "" if repository == root else f"{repository.relative_to(root).as_posix()}/"
    for raw in sorted(set(done.stdout.split(b"\0")) - {b""}):
        name = os.fsdecode(raw).rstrip("/")
        inner = repository / name
        # A submodule, or a repository inside this one: git lists the folder and stops there.
        if (inner / ".git").exists() and not inner.is_symlink():
            if depth < 8:
                yield from _from_git(root, inner, depth + 1)
        else:
            yield prefix + name


def _walk(root: Path, folder: Path) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise IrisError(f"cannot list {folder}: {(error.strerror or str(error)).lower()}") from None
    for entry in entries:
        name = (folder / entry.name).relative_to(root).as_posix()
        if entry.is_dir(follow_symlinks=False):
            if not _excluded_folder(entry.name) and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                yield from _walk(root, Path(entry.path))
        else:
            yield name


def _excluded_folder(name: str) -> bool:
    return name in EXCLUDED_FOLDERS or name.endswith(EXCLUDED_FOLDER_SUFFIXES)


def is_excluded(name: str) -> bool:
    """Whether the rules leave out a file of that name, relative to the root."""
    *folders, last = name.split("/")
    return last.endswith(EXCLUDED_SUFFIXES) or any(_excluded_folder(folder) for folder in folders)


def _collect(root: Path, names: Iterator[str], *, git: bool) -> Workspace:
    entries: list[Entry] = []
    left_out: list[LeftOut] = []
    total = 0
    stop_at = time.monotonic() + WALK_FOR_S
    real_root = os.path.realpath(root)
    for name in names:
        if is_excluded(name):
            if git and name.endswith(".mov"):
                left_out.append(LeftOut(name, "films do not travel"))
            continue
        found = _entry(root, real_root, name)
        if isinstance(found, LeftOut):
            left_out.append(found)
        elif found is not None:
            entries.append(found)
            total += found.size_bytes
        over = total > MAX_BUNDLE_BYTES or len(entries) > MAX_FILES
        if over and (not git or len(entries) > MAX_FILES) and time.monotonic() > stop_at:
            break
    if len(entries) > MAX_FILES:
        raise UsageFailed(f"{root} has more than {MAX_FILES} files, too many to travel with a job", hint=_hint(git))
    if total > MAX_BUNDLE_BYTES:
        raise UsageFailed(
            f"{root} has {format_size(total)} in {len(entries)} file{'s' * (len(entries) != 1)}, a bundle at most {format_size(MAX_BUNDLE_BYTES)}"
            f"{_largest_words([(entry.size_bytes, entry.name) for entry in entries])}",
            hint=_hint(git),
        )
    entries.sort(key=lambda entry: entry.name.encode())
    return Workspace(root, git, tuple(entries), tuple(left_out))


def _hint(git: bool) -> str:
    return (
        "name what should stay behind in .gitignore"
        if git
        else "start from a smaller folder, or make it a git repository with a .gitignore"
    )


def _largest_words(sizes: list[tuple[int, str]]) -> str:
    largest = sorted(sizes, reverse=True)[:NAMED]
    if not largest:
        return ""
    return "; largest: " + ", ".join(f"{_plain(name)} {format_size(size)}" for size, name in largest)


def _plain(name: str) -> str:
    return name if name.isprintable() and len(name) <= 120 else shown(name, 120)


def _sizes(folder: Path) -> list[tuple[int, str]]:
    """Sizes below a folder, as far as a short look goes."""
    sizes: list[tuple[int, str]] = []
    stop_at = time.monotonic() + WALK_FOR_S / 2
    pending = [folder]
    while pending and time.monotonic() < stop_at:
        current = pending.pop()
        try:
            for entry in os.scandir(current):
                if entry.is_dir(follow_symlinks=False):
                    if entry.path not in ("/proc", "/sys", "/dev"):
                        pending.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    sizes.append((entry.stat(follow_symlinks=False).st_size, os.path.relpath(entry.path, folder)))
        except OSError:
            continue
    return sizes


def _entry(root: Path, real_root: str, name: str) -> Entry | LeftOut | None:
    path = root / name
    try:
        name.encode()
    except UnicodeEncodeError:
        return LeftOut(name, "its name is not UTF-8")
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            return _link(real_root, name, path)
    except (FileNotFoundError, NotADirectoryError):
        return None  # in the index, but deleted
    except OSError as error:
        raise IrisError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    if stat.S_ISREG(found.st_mode):
        return Entry(name, found.st_size, executable=bool(found.st_mode & 0o111))
    if stat.S_ISDIR(found.st_mode):
        return None  # a submodule that was never checked out
    return LeftOut(name, "it is neither a file nor a link")


def _link(real_root: str, name: str, path: Path) -> Entry | LeftOut:
    target = os.readlink(path)
    try:
        target.encode()
    except UnicodeEncodeError:
        return LeftOut(name, "its target is not UTF-8")
    if target.startswith("/"):
        return LeftOut(name, f"a link to {target}, an absolute path")
    # Both as text and as the file system resolves it: either way out is a way out.
    lexical = os.path.normpath(os.path.join(os.path.dirname(name), target))
    real = os.path.realpath(os.path.join(os.path.dirname(path), target))
    if (
        lexical == ".."
        or lexical.startswith("../")
        or not (real == real_root or real.startswith(real_root.rstrip("/") + "/"))
    ):
        return LeftOut(name, f"a link to {target}, outside the tree")
    return Entry(name, len(target.encode()), target=target)
