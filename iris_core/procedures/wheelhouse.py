"""The wheels of a lock, fetched here for a host that may reach no package index, and kept for the next one.

They are fetched with the digests that the lock has, for the host's interpreter and platform, by pip, so that its configuration counts. What
is kept is whole: a folder without its list, which is written last, is fetched anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from iris_core import programs
from iris_core.contracts import IrisError
from iris_core.procedures.files import held, sync_folder, write_durably

LIST: Final = "wheels.json"
FETCH_S: Final = 1_800.0
OLDEST_GLIBC: Final = 5
"""The 2.5 of manylinux1."""


class PipWheelhouse:
    """Wheels below one folder, one folder for each lock and kind of host."""

    def __init__(self, root: Path, say: Callable[[str], None] = lambda _: None) -> None:
        self._root = root
        self._say = say

    def wheels(self, lock: str, host: Mapping[str, Any]) -> Sequence[Path]:
        """The wheels of a lock for a host of that interpreter, machine and C library. Raises IrisError: one cannot be had."""
        target = target_of(host)
        key = hashlib.sha256(json.dumps([lock, target]).encode()).hexdigest()[:16]
        path = self._root / key
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with held(self._root / f".{key}.lock"):
                if not (path / LIST).exists():
                    self._fetch(lock, target, path)
                return [path / name for name in json.loads((path / LIST).read_text())]
        except OSError as error:
            raise IrisError(f"{path}: {error.strerror or error}", hint="make room, then try again") from error

    def _fetch(self, lock: str, target: Sequence[str], path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)
        self._say("fetching the wheels of the lock")
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=self._root) as scratch:
            folder = Path(scratch) / "wheels"
            folder.mkdir()
            file = Path(scratch) / "lock.txt"
            file.write_text(lock)
            command = [
                sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                "--require-hashes", "--only-binary=:all:", "--dest", str(folder), *target, "-r", str(file),
            ]  # fmt: skip
            environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
            try:
                done = programs.run(command, env=environment, timeout_s=FETCH_S)
            except subprocess.TimeoutExpired:
                raise IrisError(f"the wheels were not fetched within {FETCH_S:g} s", hint="try again") from None
            if done.returncode != 0:
                said = os.fsdecode(done.stderr or done.stdout).strip().splitlines()[-10:]
                raise IrisError("the wheels cannot be fetched: " + " | ".join(line.strip() for line in said))
            names = sorted(wheel.name for wheel in folder.iterdir())
            write_durably(folder / LIST, json.dumps(names).encode())
            folder.rename(path)
            sync_folder(self._root)


def target_of(host: Mapping[str, Any]) -> list[str]:
    """The options of pip that choose wheels for a host; none where it is like this machine, whose tags pip knows better."""
    major, minor = int(host["python"][0]), int(host["python"][1])
    name, version = [*host["libc"], "", ""][:2]

    here = [sys.version_info[:2], platform.python_implementation(), platform.machine(), platform.libc_ver()]
    if here == [(major, minor), host["implementation"], host["machine"], (name, version)]:
        return []
    if host["implementation"] != "CPython" or name != "glibc":
        raise IrisError(
            f"no wheels for {host['implementation']} on {name or 'an unknown C library'}",
            hint="CPython and glibc are needed",
        )
    newest = int(version.split(".")[1])
    platforms = [f"manylinux_2_{number}_{host['machine']}" for number in range(newest, OLDEST_GLIBC - 1, -1)]
    old = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    platforms += [f"{alias}_{host['machine']}" for number, alias in old.items() if number <= newest]
    platforms.append(f"linux_{host['machine']}")
    words = [
        "--python-version",
        f"{major}.{minor}",
        "--implementation",
        "cp",
        "--abi",
        f"cp{major}{minor}",
        "--abi",
        "abi3",
        "--abi",
        "none",
    ]
    for tag in platforms:
        words += ["--platform", tag]
    return words
