"""The base install, without the `controller` extra, still serves whoever talks to a controller elsewhere.

The packages of the extra are made unimportable in a fresh interpreter, which is how a base install looks from inside.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = str(Path(__file__).resolve().parents[2] / "config" / "local.yaml")

EXTRA = ("uvloop", "starlette", "uvicorn", "prometheus_client", "psutil", "grpc_health",
         "grpc_reflection", "sqlite_utils")  # fmt: skip

WITHOUT = f"""
import sys
for name in {EXTRA!r}:
    sys.modules[name] = None
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"{WITHOUT}\nsys.argv = ['iris-core', *{list(arguments)!r}]\nfrom iris_core.cli.main import main\nmain()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def test_help_needs_no_extra() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_remote_controller_can_be_asked() -> None:
    """Nobody listens there, and that is all there is to say."""
    done = run("--controller-url", "http://127.0.0.1:9", "job", "list")
    assert done.returncode == 1
    assert "127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command", [("cluster", "start", "--local"), ("cluster", "controller", "serve", "--config", CONFIG)]
)
def test_what_needs_the_extra_names_it(command: tuple[str, ...]) -> None:
    done = run(*command)
    assert done.returncode == 1
    assert "pip install 'iris-ops[controller]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
