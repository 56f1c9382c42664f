"""The date of the code: from a wheel's file, from a clone, or unknown."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from iris_core.config.revision import committed, stamped

if TYPE_CHECKING:
    from pathlib import Path


def test_a_wheel_says_it_in_a_file(tmp_path: Path) -> None:
    stamp = tmp_path / "revision"
    assert stamped(stamp) == ""
    stamp.write_text("2026-03-20\n")
    assert stamped(stamp) == "2026-03-20"
    stamp.write_bytes(b"\xff\xfe")
    assert stamped(stamp) == ""


@pytest.mark.usefixtures("needs_git")
def test_a_clone_says_when_it_was_last_committed(tmp_path: Path) -> None:
    assert committed(tmp_path) == ""
    when = {"GIT_COMMITTER_DATE": "2026-03-20T12:00:00+00:00"}
    words = ["git", "-c", "user.name=t", "-c", "user.email=t@t.invalid"]
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert committed(tmp_path) == "", "there is no commit yet"
    subprocess.run(
        [*words, "commit", "-q", "--allow-empty", "-m", "x"], cwd=tmp_path, check=True, env={**os.environ, **when}
    )
    assert committed(tmp_path) == "2026-03-20"
