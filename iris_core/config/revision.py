"""The date of the code that runs: a controller takes no submissions from a client that is much older (control-plane §1.8).

A wheel carries it in a file, a clone asks git for its last commit. Must never fail: a date that cannot be had is unknown, and
an unknown one passes.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
STAMP = _PACKAGE / "_shipped" / "revision"
"""Written when a wheel is built."""


@cache
def revision_date() -> str:
    """As YYYY-MM-DD, "" = unknown."""
    return stamped(STAMP) or committed(_PACKAGE.parent)


def stamped(path: Path) -> str:
    """What the file of a wheel says."""
    try:
        return path.read_text().strip()[:10]
    except (OSError, UnicodeDecodeError):
        return ""


def committed(clone: Path) -> str:
    """The date of the last commit of a clone."""
    if not (clone / ".git").exists():
        return ""
    command = ["git", "-C", str(clone), "log", "-1", "--format=%cs"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
