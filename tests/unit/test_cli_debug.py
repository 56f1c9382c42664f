"""`debug info`: everything that a report should hold, no secret, and no failure because something is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from iris_core.config.places import config_home, state_home

IRIS_CORE = Path(sys.executable).with_name("iris-core")
SECRET = "hf_aaaaaaaaaaaaaaaaaaaaaaaa"


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [IRIS_CORE, *words], capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **env}
    )


def test_it_says_what_is_there_and_what_is_not_and_no_secret() -> None:
    state_home().mkdir(parents=True)
    (state_home() / "console-crash-1.txt").write_text(
        f"# iris: 1\n\nTraceback\n  File x\nValueError: HF_TOKEN={SECRET}\n"
    )
    settings = config_home() / "iris" / "console.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text("theme: light\ncolour: red\n")
    done = run(
        "--controller-url=http://ada:hunter2@127.0.0.1:1", "debug", "info", "-o", "json", IRIS_TOKEN=SECRET, TERM="xterm-256color"
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert list(found) == ["versions", "terminal", "files", "settings", "cluster", "last_crash"]
    assert found["versions"]["textual"] == "8.2.8"
    assert found["terminal"]["token"] == "set" and found["terminal"]["TERM"] == "xterm-256color"
    assert found["settings"]["theme"] == "light" and "unknown key 'colour'" in found["settings"]["problem"]
    assert found["files"]["settings"] == str(settings) and "(not there)" in found["files"]["cache"]
    assert "problem" in found["cluster"], "nothing listens there"
    assert found["last_crash"]["report"].endswith("console-crash-1.txt")
    assert found["last_crash"]["ends with"].startswith("ValueError: HF_TOKEN=[redacted")
    assert SECRET not in done.stdout and "hunter2" not in done.stdout


def test_without_a_cluster_it_is_a_table_that_says_so() -> None:
    done = run("debug", "info")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == [
        "Versions", "Terminal", "Files", "Settings", "Cluster", "Last crash"
    ]  # fmt: skip
    assert any(line.split()[:2] == ["report", "none"] for line in lines)
    assert any("no cluster is named" in line for line in lines)
