"""The base install, without the `controller` extra, still serves whoever talks to a controller elsewhere.

The packages of the extra are made unimportable in a fresh interpreter, which is how a base install looks from inside.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from providers.objects import open_store
from tests.unit.checkpoint_world import checkpoint, make_state

CONFIG = str(Path(__file__).resolve().parents[2] / "config" / "local.yaml")

EXTRA = ("uvloop", "starlette", "uvicorn", "prometheus_client", "psutil", "grpc_health",
         "grpc_reflection", "sqlite_utils")  # fmt: skip


def run(*arguments: str, without: tuple[str, ...] = EXTRA) -> subprocess.CompletedProcess[str]:
    hidden = f"import sys\nfor name in {without!r}:\n    sys.modules[name] = None"
    code = f"{hidden}\nsys.argv = ['iris-core', *{list(arguments)!r}]\nfrom iris_core.cli.main import main\nmain()"
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


def test_a_checkpoint_is_read_with_zstandard_alone(tmp_path: Path) -> None:
    made = checkpoint(make_state(tmp_path / "state", jobs=2), open_store(f"file://{tmp_path}/remote"))
    place = f"{tmp_path}/remote/controller-state/{made.epoch_ms}"
    done = run("--checkpoint", place, "job", "list", "-o", "name", without=(*EXTRA, "pyarrow", "duckdb"))
    assert (done.returncode, done.stdout.split()) == (0, ["/u/job1", "/u/job0"]), done.stderr
    done = run("--checkpoint", place, "job", "list", without=(*EXTRA, "pyarrow", "duckdb", "zstandard"))
    assert done.returncode == 1
    assert "zstandard" in done.stderr and "pip install 'iris-ops[controller]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
