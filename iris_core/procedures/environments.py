"""Environments with exactly what a lock names: built once per lock, interpreter and platform, and shared by every release of that lock.

An environment is whole once its marker is there, which is written last; one without is made anew. Where the interpreter that runs this
has already everything that the lock pins, it is used as it is: a second copy of the same packages would only take time and disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_core import programs
from iris_core.contracts import IrisError
from iris_core.procedures.files import held, write_durably

if TYPE_CHECKING:
    from iris_core.procedures.releases import Say

MARKER: Final = "environment.json"
INSTALL_S: Final = 1_800.0
_PIN: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^ ;\\]+)\s*(?:;\s*([^\\]+?))?\s*\\?$")


def key_of(lock: bytes) -> str:
    """What an environment depends on, as sixteen digits: the lock, the interpreter's version, the platform."""
    parts = [
        hashlib.sha256(lock).hexdigest(),
        platform.python_implementation(),
        sys.version.split()[0],
        platform.platform(),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def pins(lock: str) -> dict[str, str]:
    """The packages of a lock that this interpreter needs, with their versions."""
    found: dict[str, str] = {}
    for line in lock.splitlines():
        match = _PIN.match(line)
        if match is not None and _applies(match[3]):
            found[_normal(match[1])] = match[2]
    return found


def _applies(marker: str | None) -> bool:
    if not marker:
        return True
    try:
        from packaging.markers import InvalidMarker, Marker
    except ImportError:
        return True  # then the environment is built, and pip decides
    try:
        return Marker(marker).evaluate()
    except InvalidMarker:
        return True


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def differing(lock: str) -> list[str]:
    """The packages of a lock that this interpreter has not, or has at another version."""
    from importlib import metadata  # late: it costs a carried command a quarter of its start

    installed = {_normal(found.metadata["Name"]): found.version for found in metadata.distributions()}
    return sorted(name for name, version in pins(lock).items() if installed.get(name) != version)


class RunningOrBuilt:
    """The interpreter that runs this if it fits the lock, else one that is built below `root/envs/`.

    With `wheels` it is built from the files in that folder, and nothing is fetched.
    """

    def __init__(self, root: Path, wheels: Path | None = None) -> None:
        self._folder = root / "envs"
        self._wheels = wheels

    def found(self, raw: bytes) -> tuple[str, str] | None:
        """As `ensure`, if nothing has to be built; None if something has to. Raises IrisError."""
        key = key_of(raw)
        marker = self._folder / key / MARKER
        try:
            values = json.loads(marker.read_text())
            python = str(values["python"])
            if os.access(python, os.X_OK) and (values["built"] or not differing(raw.decode())):
                return key, python
            shutil.rmtree(marker.parent)  # its interpreter is gone, or has other packages by now
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError):
            shutil.rmtree(marker.parent, ignore_errors=True)  # torn: the disk was full when it was written
        except OSError as error:
            raise IrisError(f"{marker} cannot be read: {error.strerror or error}") from error
        if differing(raw.decode()):
            return None
        try:
            marker.parent.mkdir(parents=True, exist_ok=True)
            return key, self._mark(marker, sys.executable, built=False)
        except OSError as error:
            raise IrisError(f"{marker}: {error.strerror or error}", hint="make room, then try again") from error

    def ensure(self, lock: Path, say: Say) -> tuple[str, str]:
        """See `releases.Environments`."""
        raw = lock.read_bytes()
        key = key_of(raw)
        path = self._folder / key
        marker = path / MARKER
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with held(self._folder / f".{key}.lock"):
                found = self.found(raw)
                if found is not None:
                    return found
                if path.exists():
                    shutil.rmtree(path)
                path.mkdir()
                say(f"building environment {key}")
                python = path / "bin" / "python"
                _must([sys.executable, "-m", "venv", str(path)])
                _must(
                    [
                        str(python),
                        "-m",
                        "pip",
                        "install",
                        "--quiet",
                        "--disable-pip-version-check",
                        "--require-hashes",
                        *(["--no-index", "--find-links", str(self._wheels)] if self._wheels is not None else []),
                        "-r",
                        str(lock),
                    ]
                )
                return key, self._mark(marker, str(python), built=True)
        except OSError as error:
            raise IrisError(f"{path}: {error.strerror or error}", hint="make room, then try again") from error

    @staticmethod
    def _mark(marker: Path, python: str, *, built: bool) -> str:
        write_durably(marker, json.dumps({"python": python, "built": built}).encode())
        return python


def _must(command: list[str]) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = programs.run(command, env=environment, timeout_s=INSTALL_S)
    except subprocess.TimeoutExpired:
        raise IrisError(f"the environment was not built within {INSTALL_S:g} s") from None
    if done.returncode != 0:
        said = os.fsdecode(done.stderr or done.stdout).strip().splitlines()[-10:]
        raise IrisError("the environment cannot be built: " + " | ".join(line.strip() for line in said))
