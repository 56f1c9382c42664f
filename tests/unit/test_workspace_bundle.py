"""The workspace: exactly what git lists, links only within, the same bytes for the same tree, and early refusals
(C44, C47, C48).
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris_core.contracts import IrisError, UsageFailed
from iris_core.workspace import tree
from iris_core.workspace.bundle import pack
from iris_core.workspace.tree import scan

pytestmark = pytest.mark.usefixtures("needs_git")


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q")
    return root


def write(root: Path, name: str, text: str = "x") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def names(root: Path) -> list[str]:
    return [entry.name for entry in scan(root).entries]


def members(data: bytes) -> dict[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {info.filename: info for info in archive.infolist()}


def test_ignore_rules_mean_what_git_says(repo: Path) -> None:
    for name in ("data/keep.json", "data/big.bin", "data/sub/k.txt", "tracked.log", "other.log", "nested/local.cfg",
                 "nested/no.cfg", ".hidden", "sp ace.txt", "secret.txt"):  # fmt: skip
        write(repo, name)
    write(repo, ".gitignore", "data/*\n!data/keep.json\n!data/sub\n*.log\n")
    write(repo, "nested/.gitignore", "*.cfg\n!local.cfg\n")
    (repo / ".git/info/exclude").write_text("secret.txt\n")
    git(repo, "add", "-f", "tracked.log")
    expected = [".gitignore", ".hidden", "data/keep.json", "data/sub/k.txt", "nested/.gitignore", "nested/local.cfg",
                "sp ace.txt", "tracked.log"]  # fmt: skip
    assert names(repo) == expected
    assert names(repo / "nested") == expected
    assert scan(repo / "nested").root == repo


pieces = st.sampled_from(["a", "b", "c.py", "d.log", "e e", "ü", "deep", "#x", "!y"])
paths = st.lists(pieces, min_size=1, max_size=3).map("/".join)
rules = st.sampled_from(["*.log", "!d.log", "a/*", "!a/b", "/deep", "deep/", "**/c.py", "\\#x", "e\\ e", "b", "!/b"])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(paths, max_size=10), st.lists(rules, max_size=4), st.sets(paths, max_size=3))
def test_the_bundle_is_what_git_lists(
    tmp_path_factory: pytest.TempPathFactory, files: set[str], ignored: list[str], tracked: set[str]
) -> None:
    root = tmp_path_factory.mktemp("repo")
    git(root, "init", "-q")
    for name in sorted(files | tracked):
        try:
            write(root, name)
        except OSError:
            continue  # one name is a file where another needs a folder
    for name in sorted(tracked):
        if (root / name).is_file():
            git(root, "add", "-f", "--", name)
    write(root, ".gitignore", "\n".join(ignored) + "\n")
    listed = git(root, "ls-files", "-co", "--exclude-standard", "-z").split("\0")
    expected = sorted({name for name in listed if name}, key=str.encode)
    bundle = pack(scan(root))
    assert [info for info in members(bundle.data)] == expected
    assert bundle.bundle_id == hashlib.sha256(bundle.data).hexdigest()


def test_the_same_tree_gives_the_same_bytes(tmp_path: Path) -> None:
    ids = []
    for n in range(2):
        root = tmp_path / f"copy{n}"
        root.mkdir()
        for name in ("b", "a/c") if n else ("a/c", "b"):
            write(root, name, name * 1000)
        (root / "b").chmod(0o755 if n else 0o775)
        os.symlink("b", root / "l")
        os.utime(root / "b", (n * 1000, n * 1000))
        ids.append(pack(scan(root)).bundle_id)
    assert ids[0] == ids[1]
    (tmp_path / "copy1" / "b").chmod(0o644)
    assert pack(scan(tmp_path / "copy1")).bundle_id != ids[0]


def test_members_are_deflated_and_keep_the_executable_bit(tmp_path: Path) -> None:
    write(tmp_path, "run.sh", "#!/bin/sh\n" * 1000)
    write(tmp_path, "plain")
    (tmp_path / "run.sh").chmod(0o700)
    found = members(pack(scan(tmp_path)).data)
    assert {name: info.external_attr >> 16 for name, info in found.items()} == {"plain": 0o100644, "run.sh": 0o100755}
    assert found["run.sh"].compress_type == zipfile.ZIP_DEFLATED
    assert found["run.sh"].compress_size < 200


def test_links_travel_as_links_when_they_stay_inside(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("TOPSECRET")
    write(repo, "data/v", "v")
    write(repo, "a/b/c/x", "x")
    for name, target in (
        ("latest", "data"), ("data/alias", "v"), ("loop", "."), ("up", "../"), ("dangling", "missing"),
        ("abs", str(tmp_path / "outside")), ("absin", str(repo / "data")), ("a/b/root", "../.."), ("a/b/c/far", "../../../.."),
        ("a/b/sneaky", "root/../outside"), ("through", "up/outside"),
    ):  # fmt: skip
        os.symlink(target, repo / name)
    git(repo, "add", "-A")
    workspace = scan(repo)
    kept = {entry.name: entry.target for entry in workspace.entries if entry.target}
    assert kept == {"latest": "data", "data/alias": "v", "loop": ".", "dangling": "missing", "a/b/root": "../.."}
    assert {left.name for left in workspace.left_out} == {"abs", "absin", "up", "a/b/c/far", "a/b/sneaky", "through"}
    assert all(left.reason.startswith("a link to ") for left in workspace.left_out)
    data = pack(workspace).data
    assert b"TOPSECRET" not in data
    found = members(data)
    assert found["latest"].external_attr >> 16 == 0o120777
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.read("latest") == b"data"


def test_what_is_deleted_stays_behind(repo: Path) -> None:
    write(repo, "gone")
    write(repo, "kept")
    git(repo, "add", "-A")
    (repo / "gone").unlink()
    assert names(repo) == ["kept"]


def test_what_is_no_file_stays_behind_with_a_word(tmp_path: Path) -> None:
    write(tmp_path, "kept")
    os.mkfifo(tmp_path / "pipe")
    workspace = scan(tmp_path)
    assert [entry.name for entry in workspace.entries] == ["kept"]
    assert [(left.name, left.reason) for left in workspace.left_out] == [("pipe", "it is neither a file nor a link")]


def test_submodules_and_inner_repositories_travel(repo: Path) -> None:
    inner = repo / "vendor" / "lib"
    inner.mkdir(parents=True)
    git(inner, "init", "-q")
    write(inner, "code.py")
    write(inner, "skip.log")
    write(inner, ".gitignore", "*.log\n")
    assert names(repo) == ["vendor/lib/.gitignore", "vendor/lib/code.py"]


def test_tools_leave_nothing_behind_that_travels(tmp_path: Path) -> None:
    for name in ("a.py", "__pycache__/a.pyc", "b.pyc", "x.egg-info/PKG", "node_modules/m/i.js", ".venv/bin/python", "clip.mov",
                 "env/pyvenv.cfg", "env/lib/x.py", ".git-notes/ok"):  # fmt: skip
        write(tmp_path, name)
    assert names(tmp_path) == [".git-notes/ok", "a.py"]


def test_an_empty_workspace_is_fine(repo: Path) -> None:
    write(repo, "a.txt")
    write(repo, ".gitignore", "*\n")
    bundle = pack(scan(repo))
    assert (bundle.bundle_id, bundle.files, bundle.data) == ("", 0, b"")


def test_a_folder_over_the_limit_is_refused_by_size_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(8):
        with (tmp_path / f"f{n}").open("wb") as file:
            file.truncate((n + 1) * 10**6)
    monkeypatch.setattr(tree, "MAX_BUNDLE_BYTES", 30 * 10**6)
    opened: list[object] = []
    monkeypatch.setattr("builtins.open", lambda *args, **_: opened.append(args))
    with pytest.raises(UsageFailed) as caught:
        scan(tmp_path)
    monkeypatch.undo()
    assert "36MB in 8 files, a bundle at most 30MB" in caught.value.message
    assert "largest: f7 8MB, f6 7MB, f5 6MB, f4 5MB, f3 4MB" in caught.value.message
    assert caught.value.exit_code == 2
    assert opened == []


def test_the_limit_counts_what_is_ignored_as_nothing(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_BUNDLE_BYTES", 1000)
    write(repo, "big.bin", "x" * 5000)
    with pytest.raises(UsageFailed, match=r"big\.bin 5KB"):
        scan(repo)
    write(repo, ".gitignore", "*.bin\n")
    assert names(repo) == [".gitignore"]


@pytest.mark.parametrize("place", ["home", "above", "root"])
def test_dangerous_places_are_refused(clean_environment: Path, place: str) -> None:
    write(clean_environment, "projects/big", "x" * 1000)
    folder = {"home": clean_environment, "above": clean_environment.parent, "root": Path("/")}[place]
    if place == "root":
        assert tree.git_root(folder) is None
    with pytest.raises(UsageFailed, match="does not travel with a job") as caught:
        scan(folder)
    if place == "home":
        assert "projects/big 1KB" in caught.value.message


def test_a_project_below_the_home_directory_is_fine(clean_environment: Path) -> None:
    write(clean_environment, "project/a")
    assert names(clean_environment / "project") == ["a"]


def test_variables_of_a_git_hook_do_not_point_elsewhere(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(repo, "mine")
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert names(repo) == ["mine"]


def test_a_repository_that_git_refuses_is_not_taken_for_a_plain_folder(repo: Path) -> None:
    (repo / ".git" / "config").write_text("[broken")
    with pytest.raises(IrisError, match="git cannot read the repository"):
        scan(repo)


def test_a_file_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    folder.mkdir()
    write(folder, "a")
    workspace = scan(folder)
    (tmp_path / "secret").write_text("s")
    (folder / "a").unlink()
    os.symlink(tmp_path / "secret", folder / "a")
    with pytest.raises(IrisError, match="cannot read"):
        pack(workspace)


def test_names_that_are_not_utf8_are_left_out_with_a_word(tmp_path: Path) -> None:
    with open(os.path.join(os.fsencode(tmp_path), b"\xff"), "w"):
        pass
    workspace = scan(tmp_path)
    assert (workspace.entries, workspace.left_out[0].reason) == ((), "its name is not UTF-8")
