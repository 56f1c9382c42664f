"""Whether a package is there for a running Python process, found by reading files alone: the process is not touched.

memray works inside its target and has to be importable there. Trying it would stop the target for seconds only to learn that it
is not, so the folders that the interpreter searches are worked out from its command line, environment and loaded libraries.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_controller.worker.profiling import targets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_VERSION: Final = re.compile(r"python(\d+\.\d+)")
_LIBRARY: Final = re.compile(r"(/\S*?)/lib(?:64)?/(?:python(\d+\.\d+)/|libpython(\d+\.\d+))")


@dataclass(frozen=True, slots=True)
class Site:
    """Where a process imports from. `prefix` is its environment or interpreter, "" where that is unknown."""

    prefix: str
    folders: tuple[Path, ...]

    def has(self, package: str) -> bool:
        """Whether the package can be imported from there."""
        return any((folder / package / "__init__.py").is_file() for folder in self.folders)


def of(pid: int) -> Site:
    """The folders that the interpreter of that process searches, as far as files tell; none when it is gone."""
    environ = _environ(pid)
    prefixes: list[Path] = []
    command = targets.words(pid)
    started = _executable(command[0], environ, pid) if command else None
    if started is not None:
        prefixes.append(started.parent.parent)
    if environ.get("VIRTUAL_ENV"):
        prefixes.append(Path(environ["VIRTUAL_ENV"]))
    loaded = list(_loaded(pid))
    try:
        real = Path(os.readlink(f"/proc/{pid}/exe"))
        prefixes.append(real.parent.parent)
    except OSError:
        real = Path()
    version = next((found for _, found in loaded), "") or _version(real.name)
    seen = list(dict.fromkeys(prefix for prefix in prefixes if prefix != Path("/")))
    environments = [prefix for prefix in seen if (prefix / "pyvenv.cfg").is_file()]
    chosen = environments[:1] or seen
    if environments and _sees_system(environments[0]):
        chosen = [*chosen, *(prefix for prefix in seen if prefix not in environments)]
    if not environments:
        chosen = list(dict.fromkeys([*chosen, *(Path(found) for found, _ in loaded)]))
    folders = [folder for prefix in chosen for folder in _packages(prefix, version)]
    folders += _paths(environ.get("PYTHONPATH", ""), pid)
    home = environ.get("HOME", "")
    if home and version and not (environments and not _sees_system(environments[0])):
        folders.append(Path(home) / ".local" / "lib" / f"python{version}" / "site-packages")
    return Site(str(chosen[0]) if chosen else "", tuple(dict.fromkeys(folders)))


def _packages(prefix: Path, version: str) -> Iterator[Path]:
    for library in ("lib", "lib64", "local/lib"):
        for name in (f"python{version}",) if version else _versions(prefix / library):
            yield prefix / library / name / "site-packages"
            yield prefix / library / name / "dist-packages"
    yield prefix / "lib" / "python3" / "dist-packages"


def _versions(library: Path) -> list[str]:
    try:
        return [name for name in os.listdir(library) if _VERSION.fullmatch(name)]
    except OSError:
        return []


def _paths(text: str, pid: int) -> list[Path]:
    """The entries of PYTHONPATH, relative ones from the process's own directory."""
    try:
        here = Path(os.readlink(f"/proc/{pid}/cwd"))
    except OSError:
        here = Path("/")
    return [here / entry for entry in text.split(":") if entry]


def _executable(word: str, environ: Mapping[str, str], pid: int) -> Path | None:
    """The file that the process was started as: of a virtual environment the link in it, not the interpreter behind."""
    if not _VERSION.match(os.path.basename(word)) and not os.path.basename(word).startswith(("python", "pypy")):
        return None
    if "/" in word:
        return next(iter(_paths(word, pid)), None)
    for folder in environ.get("PATH", os.defpath).split(":"):
        path = Path(folder) / word
        if folder and os.access(path, os.X_OK):
            return path
    return None


def _loaded(pid: int) -> Iterator[tuple[str, str]]:
    """Prefix and version of the Python libraries that are mapped into the process."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                found = _LIBRARY.search(line)
                if found is not None:
                    yield found[1], found[2] or found[3]
    except OSError:
        return


def _version(name: str) -> str:
    found = _VERSION.search(name)
    return found[1] if found else ""


def _environ(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.decode("utf-8", "surrogateescape").partition("=") for entry in raw.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def _sees_system(environment: Path) -> bool:
    try:
        text = (environment / "pyvenv.cfg").read_text()
    except OSError:
        return False
    return re.search(r"include-system-site-packages\s*=\s*true", text, re.IGNORECASE) is not None
