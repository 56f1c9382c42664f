"""Puts the pinned packages and this project into `.venv`, once.

It runs before anything is installed, so it needs nothing but the standard library, and speaks to whoever has just
cloned the repository: one line for each thing it does, one line for what is missing. It must never choose a version
(the lock does) and never touch anything outside the clone, with one exception that it names: as root on Debian it
installs `python3-venv`, without which no virtual environment can be made. Of two at once the second one waits: either
would remove what the other one is filling.

    python3 requirements/install.py controller     what `make demo` needs
    python3 requirements/install.py dev            that, and what the tests need
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
CONTAINS = {"controller": ("controller", "dev"), "dev": ("dev",)}
"""Which installed locks are enough for which wish: every lock is cut from one resolution, so the larger serves both."""


def fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(1)


def fingerprint(lock: str) -> str:
    """All that an installed `.venv` depends on; another value means it has to be looked at again."""
    digest = hashlib.sha256()
    for path in (ROOT / "requirements" / f"{lock}.txt", ROOT / "pyproject.toml"):
        digest.update(path.read_bytes())
    digest.update(json.dumps([sys.version_info[:3], str(VENV)]).encode())
    return digest.hexdigest()


def stamp(lock: str) -> Path:
    return VENV / f".installed-{lock}"


def ready(lock: str) -> bool:
    return any(
        stamp(name).exists() and stamp(name).read_text() == fingerprint(name) and PYTHON.exists()
        for name in CONTAINS[lock]
    )


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Keeps every other one of these out of this clone's `.venv` meanwhile; the system lets go of it for one that dies.

    What is locked is this very file, so that nothing is left behind. On a file system that knows no locks nobody waits.
    """
    with Path(__file__).open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another make is setting up .venv: waiting for it", flush=True)
            fcntl.flock(held, fcntl.LOCK_EX)
        except OSError:
            pass
        yield


def usable() -> bool:
    """Whether `.venv` is a working environment of this very Python, at this very place, with pip in it."""
    if not PYTHON.exists():
        return False
    probe = "import sys, pip; print(list(sys.version_info[:2]), sys.prefix)"
    answer = subprocess.run([PYTHON, "-I", "-c", probe], capture_output=True, text=True, check=False)
    scripts = VENV / "bin" / "pip"
    return (
        answer.returncode == 0
        and answer.stdout.strip() == f"{list(sys.version_info[:2])} {VENV}"
        and scripts.exists()
        and str(VENV) in scripts.read_text(errors="replace").splitlines()[0]
    )


def ensure_venv_module() -> None:
    """Debian ships Python without `ensurepip`; its own package brings it."""
    if importlib.util.find_spec("ensurepip") and importlib.util.find_spec("venv"):
        return
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    line = f"apt-get install -y {package}"
    if shutil.which("apt-get") is None:
        fail("this Python cannot make virtual environments (no ensurepip module): install the one that comes with it")
    if os.geteuid() != 0:
        fail(f"this Python cannot make virtual environments. Run: sudo {line}")
    print(f"This Python cannot make virtual environments yet: {line}", flush=True)
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    attempt = ("apt-get", "install", "-y", "-q", "--no-install-recommends", package)
    if subprocess.run(attempt, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode != 0:
        run("Asking for the current package list: apt-get update", "apt-get", "update", "-q")
        run(f"Installing {package}", *attempt)


def run(what: str, *command: str | Path) -> None:
    """Runs one step silently; what it said is shown only if it failed."""
    print(what, flush=True)
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        fail(f"that failed: {' '.join(map(str, command))}")


def install(lock: str) -> None:
    if not usable():
        ensure_venv_module()
        shutil.rmtree(VENV, ignore_errors=True)
        run(f"Making .venv with Python {sys.version.split()[0]}", sys.executable, "-m", "venv", VENV)
    pip = (PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet")
    requirements = f"requirements/{lock}.txt"
    count = sum("==" in line for line in (ROOT / requirements).read_text().splitlines())
    run(
        f"Installing {count} packages from {requirements} (a minute or two)",
        *pip, "--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement", requirements,
    )  # fmt: skip
    run("Installing this project", *pip, "--no-deps", "--no-build-isolation", "--no-index", "--editable", ".")
    run("Checking that they fit together", PYTHON, "-m", "pip", "check")
    stamp(lock).write_text(fingerprint(lock))


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] not in CONTAINS:
        print(f"usage: {sys.argv[0]} {'|'.join(CONTAINS)}", file=sys.stderr)
        raise SystemExit(2)
    if sys.version_info < (3, 11):  # noqa: UP036 - it runs under whatever python3 is there
        fail(
            f"Iris needs Python 3.11 or later; {sys.executable} is {sys.version.split()[0]}. Try: make PYTHON=python3.11 …"
        )
    if ready(sys.argv[1]):
        return
    try:
        with alone():
            if not ready(sys.argv[1]):
                install(sys.argv[1])
    except KeyboardInterrupt:
        print("interrupted; the next make goes on with it", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
