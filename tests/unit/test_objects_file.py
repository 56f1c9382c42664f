"""The object store in a folder: whole objects, compare-and-set, private files, and no way out of the root."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.contracts import GenerationMismatch, IrisError, ObjectMissing, UsageFailed
from providers.objects import open_store
from providers.objects.file import FileStore


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "root")


def test_what_was_put_is_got_and_listed(store: FileStore) -> None:
    for name in ("b/2", "a", "b/1", "b2"):
        store.put(name, name.encode())
    assert store.get("b/1") == b"b/1"
    assert [info.name for info in store.list("")] == ["a", "b/1", "b/2", "b2"]
    assert [info.name for info in store.list("b/")] == ["b/1", "b/2"]
    assert [info.name for info in store.list("b")] == ["b/1", "b/2", "b2"]
    assert [info.size_bytes for info in store.list("a")] == [1]
    assert list(store.list("missing/deep")) == []


def test_the_generation_changes_with_every_write(store: FileStore) -> None:
    seen = {store.put("x", b"same").generation for _ in range(20)}
    assert len(seen) == 20
    info = store.stat("x")
    assert info is not None
    assert info.generation in seen


def test_compare_and_set_lets_one_of_many_writers_through(store: FileStore) -> None:
    first = store.put("owner", b"0", if_generation="").generation
    with pytest.raises(GenerationMismatch):
        store.put("owner", b"1", if_generation="")
    wins: list[int] = []
    barrier = threading.Barrier(8)

    def write(n: int) -> None:
        barrier.wait()
        try:
            store.put("owner", b"%d" % n, if_generation=first)
        except GenerationMismatch:
            return
        wins.append(n)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    assert store.get("owner") == b"%d" % wins[0]


def test_what_is_absent_is_said(store: FileStore) -> None:
    store.put("a", b"")
    with pytest.raises(ObjectMissing):
        store.get("b")
    with pytest.raises(ObjectMissing):
        store.get("a/b")
    assert store.stat("b") is None
    store.delete("b")
    store.delete("a")
    assert store.stat("a") is None


def test_files_and_folders_are_the_owners_alone(store: FileStore, tmp_path: Path) -> None:
    store.put("a/b/c", b"x")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "root").rglob("*")}
    assert {modes[name] for name in ("a", "b")} == {0o700}
    assert {modes[name] for name in ("c", "lock")} == {0o600}
    assert stat.S_IMODE((tmp_path / "root").stat().st_mode) == 0o700


def test_links_are_not_followed(store: FileStore, tmp_path: Path) -> None:
    store.put("a", b"x")
    (tmp_path / "secret").write_text("s")
    os.symlink(tmp_path / "secret", tmp_path / "root" / "link")
    with pytest.raises(IrisError, match="it is a link"):
        store.get("link")
    assert [info.name for info in store.list("")] == ["a"]
    store.put("link", b"new")
    assert (tmp_path / "secret").read_text() == "s"


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", ".iris-objects/lock", "a\0b", "a\n", ".hidden"]
)
def test_no_name_leaves_the_root(store: FileStore, name: str) -> None:
    for act in (
        lambda: store.put(name, b""),
        lambda: store.get(name),
        lambda: store.stat(name),
        lambda: store.delete(name),
    ):
        with pytest.raises(UsageFailed):
            act()


@given(st.text(max_size=30))
def test_any_name_is_refused_or_lies_below_the_root(name: str) -> None:
    store = FileStore(Path("/nonexistent/root"))
    try:
        path = store._path(name)
    except UsageFailed:
        return
    assert str(path).startswith("/nonexistent/root/")
    assert ".." not in path.parts


def test_a_failed_write_leaves_the_old_object_and_no_scratch(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(IrisError, match=r"cannot write a in file://.*: no space left on device"):
        store.put("a", b"new")
    monkeypatch.undo()
    assert store.get("a") == b"old"
    assert sorted(os.listdir(tmp_path / "root" / ".iris-objects")) == ["lock"]


def test_what_a_killed_writer_left_is_removed_and_what_one_is_writing_is_not(store: FileStore, tmp_path: Path) -> None:
    store.put("a", b"")
    private = tmp_path / "root" / ".iris-objects"
    (private / "put-left").write_bytes(b"half")
    with open(private / "put-busy", "wb") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        store.put("a", b"")
        assert sorted(os.listdir(private)) == ["lock", "put-busy"]
    store.put("a", b"")
    assert sorted(os.listdir(private)) == ["lock"]


def test_stores_are_opened_by_url(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/a%20b").put("x", b"1")
    assert (tmp_path / "a b" / "x").read_bytes() == b"1"
    for url in ("s3://bucket/x", "file://host/x", "/plain", "", "file:relative"):
        with pytest.raises(UsageFailed):
            open_store(url)
