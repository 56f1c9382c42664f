"""The frozen tree: every byte counts, nothing of the operator's is touched, and what is exported is what was approved."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from iris_core.contracts import IrisError, UsageFailed
from iris_core.procedures.source_tree import SourceTree, as_tree, as_value, export, freeze

if TYPE_CHECKING:
    from pathlib import Path


def git(folder: Path, *words: str) -> str:
    env = {
        **os.environ,
        **{f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    done = subprocess.run(["git", *words], cwd=folder, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "a.py").write_text("one\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("a.py")
    (root / ".gitignore").write_text("*.log\n")
    (root / ".gitattributes").write_text("a.py export-ignore\nb.py export-subst\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "First")
    return root


def test_a_clean_tree_is_that_of_its_commit(repository: Path) -> None:
    tree = freeze(repository)
    assert tree.id == git(repository, "rev-parse", "HEAD^{tree}")
    assert (tree.branch, tree.subject, tree.dirty, tree.warnings()) == ("main", "First", (), [])


def test_changed_deleted_and_untracked_files_are_part_of_it_and_ignored_ones_are_not(repository: Path) -> None:
    clean = freeze(repository)
    (repository / "a.py").write_text("two\n")
    (repository / "run.sh").unlink()
    (repository / "nöw file.py").write_text("new\n")
    (repository / "x.log").write_text("ignored\n")
    before = git(repository, "status", "--porcelain=v1", "--untracked-files=all")
    index = (repository / ".git" / "index").read_bytes()
    tree = freeze(repository / ".")
    assert tree.id != clean.id
    assert tree.dirty == ("a.py", "nöw file.py", "run.sh")
    assert tree.warnings() == ["dirty: a.py, nöw file.py, run.sh"]
    assert git(repository, "status", "--porcelain=v1", "--untracked-files=all") == before
    assert (repository / ".git" / "index").read_bytes() == index, "the operator's index is not touched"
    (repository / "x.log").write_text("still ignored\n")
    assert freeze(repository).id == tree.id
    (repository / "nöw file.py").chmod(0o755)
    assert freeze(repository).id != tree.id, "a mode is part of it"


def test_what_is_exported_is_what_was_frozen_whatever_is_edited_meanwhile(repository: Path, tmp_path: Path) -> None:
    (repository / "b.py").write_text("$Format:%H$\n")
    tree = freeze(repository)
    (repository / "a.py").write_text("edited during the build\n")
    (repository / "late.py").write_text("late\n")
    to = tmp_path / "export"
    export(tree, to)
    assert (to / "a.py").read_text() == "one\n"
    assert (to / "b.py").read_text() == "$Format:%H$\n", "no attribute changes what is exported"
    assert not (to / "late.py").exists()
    assert os.access(to / "run.sh", os.X_OK)
    assert os.readlink(to / "link") == "a.py"
    git(to, "init", "-q")
    assert freeze(to).id == tree.id, "the export is the tree, byte for byte"
    with pytest.raises(IrisError, match="not empty"):
        export(tree, to)


def test_ahead_behind_and_unknown_are_each_said(repository: Path, tmp_path: Path) -> None:
    origin = tmp_path / "origin.git"
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(origin))
    git(repository, "remote", "add", "origin", str(origin))
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", str(origin), str(other))
    for number in range(2):
        (other / f"o{number}").write_text("o")
        git(other, "add", "-A")
        git(other, "commit", "-q", "-m", f"Other {number}")
    git(other, "push", "-q")
    (repository / "ours").write_text("x")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "Ours")
    tree = freeze(repository, upstream="origin/main", fetch=True)
    assert (tree.ahead, tree.behind) == (1, 2)
    assert tree.warnings() == [
        "behind origin/main by 2: stale code",
        "ahead of origin/main by 1: unmerged code",
    ]
    unknown = freeze(repository, upstream="origin/nowhere")
    assert unknown.warnings() == ["how it stands to origin/nowhere is not known"]
    with pytest.raises(IrisError, match="git fetch"):
        freeze(repository, upstream="origin/nowhere", fetch=True)


def test_repositories_inside_are_named_because_a_tree_cannot_hold_them(repository: Path) -> None:
    inner = repository / "vendored"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "f").write_text("x")
    git(inner, "add", "-A")
    git(inner, "commit", "-q", "-m", "Inner")
    tree = freeze(repository)
    assert tree.repositories == ("vendored",)
    assert any("vendored" in line for line in tree.warnings())


def test_without_a_commit_and_outside_of_a_repository(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageFailed, match="no git repository") as refused:
        freeze(empty)
    assert "in the clone that is to be shipped" in refused.value.hint
    git(empty, "init", "-q", "-b", "main")
    (empty / "f").write_text("x")
    tree = freeze(empty)
    assert (tree.base, tree.dirty, tree.branch) == ("", ("f",), "main")


def test_many_dirty_files_are_counted(tmp_path: Path) -> None:
    tree = SourceTree("id", tmp_path, "main", "c", "s", tuple(f"f{n}" for n in range(8)))
    assert tree.warnings() == ["dirty: f0, f1, f2, f3, f4 +3 more"]


def test_a_tree_comes_back_from_a_journal_with_all_that_has_to_be_said_of_it(tmp_path: Path) -> None:
    tree = SourceTree("id", tmp_path, "main", "c", "s", ("f",), "origin/main", 1, None, ("vendored",))
    value = json.loads(json.dumps(as_value(tree)))
    assert as_tree(value) == tree and value["warnings"] == tree.warnings()
    for later in ("upstream", "ahead", "behind", "repositories"):
        del value[later]
    assert as_tree(value) == SourceTree("id", tmp_path, "main", "c", "s", ("f",)), "as an earlier release wrote it"
