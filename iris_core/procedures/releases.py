"""Releases on a host: our code by the hash of its tree, over environments by the hash of their lock.

`releases/<tree id>/` holds the unpacked wheel of exactly that tree in `lib/`, and `manifest.json`, which is written last: without it the
folder is no release. What is there is never changed again. It is built from an export of the frozen tree, so that an editor at work in
the repository changes nothing of it. A release in use is never removed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from iris_core import programs
from iris_core.contracts import IrisError
from iris_core.procedures.files import held, sync_folder, write_durably
from iris_core.procedures.source_tree import SourceTree, export

MANIFEST: Final = "manifest.json"
LIB: Final = "lib"
LOCK_FILE: Final = "requirements/deployed.txt"
BUILD_S: Final = 600.0
MAX_FILES: Final = 20_000
MAX_BYTES: Final = 512 << 20
LEAST_BYTES: Final = 1 << 20
"""A disk with less than this free is full."""

Say = Callable[[str], None]


class Environments(Protocol):
    """Where the interpreter comes from that has what a lock names."""

    def ensure(self, lock: Path, say: Say) -> tuple[str, str]:
        """The environment's key and its interpreter, made if need be. Raises IrisError."""
        ...


@dataclass(frozen=True, slots=True)
class Release:
    """One release that can be started: `id` is its tree's, `python` the interpreter of its environment."""

    id: str
    path: Path
    python: str
    manifest: dict[str, Any]

    @property
    def lib(self) -> Path:
        """What goes on PYTHONPATH."""
        return self.path / LIB


class Releases:
    """The releases below one folder, `releases/` and `envs/` in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folder = root / "releases"

    def get(self, release_id: str) -> Release | None:
        """The release of that tree, None if there is no whole one."""
        path = self._folder / release_id
        try:
            manifest = json.loads((path / MANIFEST).read_text())
            return Release(release_id, path, str(manifest["python"]), manifest)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def known(self) -> list[Release]:
        """Every whole release, the newest first."""
        names = [entry.name for entry in self._folder.iterdir()] if self._folder.is_dir() else []
        found = [release for name in names if (release := self.get(name)) is not None]
        return sorted(found, key=lambda release: int(release.manifest.get("built_at_ms", 0)), reverse=True)

    def build(self, tree: SourceTree, environments: Environments, now_ms: int, say: Say = lambda _: None) -> Release:
        """Build the release of a tree, or find it built. Two that build the same one at once build it once.

        Raises IrisError: the build fails (its last lines are in the text), or the disk is full.
        """
        found = self.get(tree.id)
        if found is not None:
            return found
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with held(self._folder / f".{tree.id}.lock"):
                return self.get(tree.id) or self._build(tree, environments, now_ms, say)
        except OSError as error:
            raise IrisError(f"{self._folder}: {error.strerror or error}", hint="make room, then try again") from error

    def _build(self, tree: SourceTree, environments: Environments, now_ms: int, say: Say) -> Release:
        path = self._folder / tree.id
        if path.exists():
            shutil.rmtree(path)  # no manifest: a build that did not end
        with tempfile.TemporaryDirectory(prefix=".build-", dir=self._folder) as scratch:
            work = Path(scratch)
            say(f"exporting tree {tree.id[:12]}")
            with _room(work):
                export(tree, work / "src")
            lock = work / "src" / LOCK_FILE
            if not lock.is_file():
                raise IrisError(f"tree {tree.id[:12]} has no {LOCK_FILE}", hint="it is no tree of this program")
            key, python = environments.ensure(lock, say)
            say("building the wheel")
            with _room(work):
                wheel = _wheel(work)
            target = work / "release"
            unpack(wheel, target / LIB)
            manifest = {
                "tree": tree.id,
                "base": tree.base,
                "branch": tree.branch,
                "dirty": list(tree.dirty),
                "wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
                "lock_key": key,
                "python": python,
                "python_version": ".".join(map(str, sys.version_info[:3])),
                "built_at_ms": now_ms,
            }
            write_durably(target / MANIFEST, json.dumps(manifest, indent=1).encode())
            target.rename(path)
            sync_folder(self._folder)
        return Release(tree.id, path, python, manifest)

    def prune(self, keep: Collection[str], *, newest: int = 2) -> list[str]:
        """Remove releases but the `newest`, those to keep, and those that a process of this machine runs from; returns their ids."""
        releases = self.known()
        kept = {*keep, *(release.id for release in releases[:newest])}
        removed = []
        for release in releases:
            if release.id in kept or in_use(release.lib):
                continue
            with contextlib.suppress(OSError):
                (release.path / MANIFEST).unlink()
                shutil.rmtree(release.path)
                removed.append(release.id)
        return removed


def in_use(lib: Path) -> bool:
    """Whether a process of this machine that we may look at has this folder on its path. One that hides from us counts as one that does not."""
    wanted = os.fsencode(lib)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for variable in (entry / "environ").read_bytes().split(b"\0"):
                name, _, value = variable.partition(b"=")
                if name == b"PYTHONPATH" and wanted in value.split(b":"):
                    return True
    return False


@contextlib.contextmanager
def _room(folder: Path) -> Iterator[None]:
    """Names a full disk as the cause of what another program failed at, in the place of its pages of complaints."""
    try:
        yield
    except IrisError as error:
        if shutil.disk_usage(folder).free < LEAST_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise


def _wheel(work: Path) -> Path:
    """The wheel of `work/src`, by the build backend if it is here, else by pip, which fetches it."""
    to = work / "wheel"
    if importlib.util.find_spec("hatchling") is not None:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(to)]
    else:
        command = [
            sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check",
            "--wheel-dir", str(to), str(work / "src"),
        ]  # fmt: skip
    done = _run(command, work / "src")
    wheels = sorted(to.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        said = os.fsdecode(done.stderr or done.stdout).strip().splitlines()[-15:]
        raise IrisError("the wheel cannot be built: " + " | ".join(line.strip() for line in said))
    return wheels[0]


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[bytes]:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        return programs.run(command, env=environment, timeout_s=BUILD_S, cwd=folder)
    except subprocess.TimeoutExpired:
        raise IrisError(f"{command[2]} has not ended within {BUILD_S:g} s") from None


def unpack(wheel: Path, to: Path) -> None:
    """Unpacks a wheel, or an archive of what was in one. Raises IrisError for an archive that leaves its folder or is larger than any release of ours."""
    with zipfile.ZipFile(wheel) as archive:
        members = archive.infolist()
        if len(members) > MAX_FILES or sum(member.file_size for member in members) > MAX_BYTES:
            raise IrisError(f"{wheel.name} is too large to be a release")
        for member in members:
            parts = Path(member.filename).parts
            if Path(member.filename).is_absolute() or ".." in parts:
                raise IrisError(f"{wheel.name} names a file outside: {member.filename!r}")
        archive.extractall(to)
