"""Programs that a procedure runs and waits for, each in a session of its own: Ctrl-C at the terminal reaches only whoever drives the
procedure, who sees what was begun to its end, and never ends a program in the middle as if that one had failed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_RUNNING: Final = set[subprocess.Popen[bytes]]()
_BEGINNING: Final = threading.Lock()
"""Held until a program that was begun is among those that run."""


def run(
    command: Sequence[str], *, env: Mapping[str, str], timeout_s: float, cwd: Path | str | None = None
) -> subprocess.CompletedProcess[bytes]:
    """What it printed, and its exit code; it reads nothing. Given up, it is ended with all that it started.

    Raises:
        subprocess.TimeoutExpired: it has not ended in time.
        OSError: it cannot be started.
    """
    with _BEGINNING:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        _RUNNING.add(child)
    with child:
        try:
            out, err = child.communicate(timeout=timeout_s)
        except BaseException:
            _end(child)
            raise
        finally:
            _RUNNING.discard(child)
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def end_all() -> None:
    """Ends those that still run, for a process that is about to leave without waiting."""
    with _BEGINNING:
        running = list(_RUNNING)
    for child in running:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    # Not waited for yet: so its number is still its own.
    if child.returncode is None:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
