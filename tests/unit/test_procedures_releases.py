"""Releases: built once from what was approved, whole or not there, and never removed while something runs from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_core.contracts import IrisError
from iris_core.procedures import environments
from iris_core.procedures.environments import RunningOrBuilt, differing, key_of, pins
from iris_core.procedures.releases import Releases, in_use
from iris_core.procedures.source_tree import freeze
from tests.unit.test_procedures_source_tree import git

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "tiny"
version = "1"
[tool.hatch.build.targets.wheel]
only-include = ["tiny"]
"""


class Here:
    """The environment that runs the tests, counted."""

    def __init__(self) -> None:
        self.asked = 0

    def ensure(self, lock: Path, say: object) -> tuple[str, str]:
        self.asked += 1
        return key_of(lock.read_bytes()), sys.executable


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "tiny").mkdir(parents=True)
    (root / "requirements").mkdir()
    (root / "requirements" / "deployed.txt").write_text("")
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "tiny" / "__init__.py").write_text("VALUE = 1\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "First")
    return root


def value_of(lib: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "import tiny; print(tiny.VALUE)"], env={"PYTHONPATH": str(lib)}, capture_output=True, text=True, check=True
    )  # fmt: skip
    return done.stdout.strip()


def test_a_release_holds_what_was_approved_and_is_built_once_however_many_ask(repository: Path, tmp_path: Path) -> None:
    (repository / "tiny" / "__init__.py").write_text("VALUE = 2\n")
    tree = freeze(repository)
    (repository / "tiny" / "__init__.py").write_text("VALUE = 'edited during the build'\n")
    releases, here = Releases(tmp_path / "root"), Here()
    (tmp_path / "root" / "releases" / tree.id / "lib").mkdir(parents=True)  # what a killed build left
    built: list[str] = []
    threads = [
        threading.Thread(target=lambda: built.append(releases.build(tree, here, 7).id)) for _ in range(3)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == [tree.id] * 3
    assert here.asked == 1
    release = releases.get(tree.id)
    assert release is not None
    assert value_of(release.lib) == "2"
    assert release.manifest["dirty"] == ["tiny/__init__.py"]
    assert [known.id for known in releases.known()] == [tree.id]
    assert sorted(entry.name for entry in (tmp_path / "root" / "releases").iterdir()) == [f".{tree.id}.lock", tree.id]


def test_a_tree_that_does_not_build_leaves_no_release_and_says_why(repository: Path, tmp_path: Path) -> None:
    (repository / "pyproject.toml").write_text(PROJECT.replace('name = "tiny"', "name ="))
    tree = freeze(repository)
    releases = Releases(tmp_path / "root")
    with pytest.raises(IrisError, match="the wheel cannot be built"):
        releases.build(tree, Here(), 7)
    assert releases.get(tree.id) is None
    (repository / "requirements" / "deployed.txt").unlink()
    with pytest.raises(IrisError, match=r"has no requirements/deployed\.txt"):
        releases.build(freeze(repository), Here(), 7)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A process that runs from a library folder."""
    lib = tmp_path / "root" / "releases" / "r1" / "lib"
    lib.mkdir(parents=True)
    process = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); input()"],
        env={"PYTHONPATH": f"{lib}:/elsewhere"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    yield lib
    process.communicate(b"\n")


def test_what_is_in_use_or_to_be_kept_or_new_is_not_pruned(running: Path, tmp_path: Path) -> None:
    releases = Releases(tmp_path / "root")
    for number in range(1, 7):
        path = tmp_path / "root" / "releases" / f"r{number}"
        (path / "lib").mkdir(parents=True, exist_ok=True)
        (path / "manifest.json").write_text(json.dumps({"python": "p", "built_at_ms": number}))
    assert in_use(running)
    assert releases.prune(["r2"]) == ["r4", "r3"]
    assert [release.id for release in releases.known()] == ["r6", "r5", "r2", "r1"]


LOCK = """
click==8.5.1 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash=sha256:cc
Google_RE2==1.1 ; python_version >= '3.11'
"""


def test_a_locks_pins_are_those_that_apply_here() -> None:
    assert pins(LOCK) == {"click": "8.5.1", "google-re2": "1.1"}
    assert "google-re2" in differing(LOCK)
    assert key_of(b"a") != key_of(b"b")


def test_the_running_environment_serves_where_it_fits_and_another_is_built_where_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("")
    made = RunningOrBuilt(tmp_path / "root")
    said: list[str] = []
    key, python = made.ensure(lock, said.append)
    assert python == sys.executable
    lock.write_text("no-such-package==1\n")
    commands: list[list[str]] = []

    def failing(command: list[str]) -> None:
        commands.append(command)
        if "pip" in command:
            raise IrisError("the environment cannot be built: no index")

    monkeypatch.setattr(environments, "_must", failing)
    with pytest.raises(IrisError, match="no index"):
        made.ensure(lock, said.append)
    assert "--require-hashes" in commands[-1]

    def building(command: list[str]) -> None:
        commands.append(command)
        if "venv" in command:
            (Path(command[-1]) / "bin").mkdir()
            (Path(command[-1]) / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(environments, "_must", building)
    (tmp_path / "root" / "envs" / key_of(lock.read_bytes())).mkdir(exist_ok=True)  # torn: without its marker
    other, built = made.ensure(lock, said.append)
    assert other != key and built.endswith(f"envs/{other}/bin/python")
    before = len(commands)
    assert made.ensure(lock, said.append) == (other, built)
    assert len(commands) == before, "built once"
    Path(built).unlink()
    assert made.ensure(lock, said.append) == (other, built)
    assert len(commands) == 2 * before - 2, "built again once its interpreter is gone"
    assert os.listdir(tmp_path / "root" / "envs")
