"""The wheel carries everything the programs read at run time, and puts nothing of ours under a name that is not ours."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from tests.conftest import RequireProgram, RequireService

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"iris_core", "iris_controller", "providers", "iris_tui", "screens"}
DATA = {".sql", ".tcss", ".proto", ".typed"}
"""Files beside the code that the code reads, by their ending."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a freshly built wheel."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(built).namelist())


class Tracked(Protocol):
    """The tracked files below some folders."""

    def __call__(self, *folders: str) -> set[str]: ...


@pytest.fixture
def tracked(require_program: RequireProgram, require_service: RequireService) -> Tracked:
    git = require_program("git")
    require_service((ROOT / ".git").exists(), "this is no git clone")

    def names(*folders: str) -> set[str]:
        words = [git, "-c", "safe.directory=*", "ls-files", "-z", *folders]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        return {name for name in done.stdout.split("\0") if name}

    return names


def test_code_and_what_it_reads_are_in_it(wheel: set[str], tracked: Tracked) -> None:
    wanted = {name for name in tracked(*PACKAGES) if Path(name).suffix in {".py", ".pyi", *DATA}}
    assert wanted
    assert wanted - wheel == set()


def test_nothing_else_is_at_the_top(wheel: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {name for name in tops if not name.endswith(".dist-info")} == PACKAGES


def test_cluster_files_are_shipped_inside_the_package(wheel: set[str], tracked: Tracked) -> None:
    wanted = {name.replace("config/", "iris_core/_shipped/clusters/", 1) for name in tracked("config")}
    assert "iris_core/_shipped/clusters/local.yaml" in wanted
    assert wanted - wheel == set()
