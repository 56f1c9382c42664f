"""Programs that a procedure waits for: apart from the terminal's Ctrl-C, and ended with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from iris_core import programs

FOREVER = "echo $$ > pid; sleep 1000 & echo $! >> pid; mv pid begun; wait"


def ran(folder: Path, script: str, timeout_s: float = 60) -> subprocess.CompletedProcess[bytes]:
    return programs.run(["sh", "-c", script], env=dict(os.environ), cwd=folder, timeout_s=timeout_s)


def assert_ended(folder: Path) -> None:
    """Whoever takes in orphans may be slow; one that was told to die does so in its own time."""
    for pid in (folder / "begun").read_text().split():
        deadline = time.monotonic() + 30
        while not is_over(pid):
            assert time.monotonic() < deadline, pid


def is_over(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_it_says_what_was_printed_and_how_it_ended(tmp_path: Path) -> None:
    done = ran(tmp_path, "pwd; echo oh >&2; read line || exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{tmp_path}\n".encode(), b"oh\n")
    with pytest.raises(FileNotFoundError):
        programs.run(["/no/such/program"], env={}, timeout_s=60)


def test_it_has_a_session_of_its_own(tmp_path: Path) -> None:
    done = ran(tmp_path, "cut -d' ' -f6 /proc/$$/stat; echo $$")
    session, own = done.stdout.split()
    assert session == own and int(session) != os.getsid(0)


def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    for timeout_s in (1, 5, 50):  # a slow machine may not have begun it by then
        with pytest.raises(subprocess.TimeoutExpired):
            ran(tmp_path, FOREVER, timeout_s=timeout_s)
        if (tmp_path / "begun").exists():
            break
    assert_ended(tmp_path)


def test_whoever_leaves_at_once_ends_what_still_runs(tmp_path: Path) -> None:
    found: list[int] = []
    runs = threading.Thread(target=lambda: found.append(ran(tmp_path, FOREVER, timeout_s=300).returncode))
    runs.start()
    while not (tmp_path / "begun").exists():
        assert runs.is_alive()
    programs.end_all()
    runs.join(60)
    assert found == [-signal.SIGKILL]
    assert_ended(tmp_path)
    programs.end_all()
