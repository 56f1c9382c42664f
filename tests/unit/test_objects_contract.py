"""What every object store promises, against each of them: a folder, a real server, and the strict fake."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iris_core.contracts import GenerationMismatch, IrisError, ObjectMissing, ObjectStore, UsageFailed
from providers.fake.objects import FakeStore
from providers.hosts.objects import HostStore
from providers.objects import open_store
from tests.conftest import RequireService
from tests.unit.hosts_world import World
from tests.unit.object_servers import binary, gcs_server

BIG = 20 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server, "" where its program is not installed."""
    if binary() is None:
        yield ""
        return
    with gcs_server(tmp_path_factory.mktemp("gcs"), "bucket") as url:
        yield url


@pytest.fixture(params=["file", "gs", "fake", "host"])
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    server: str,
    monkeypatch: pytest.MonkeyPatch,
    require_service: RequireService,
) -> Iterator[ObjectStore]:
    if request.param == "host":
        world = World(tmp_path, monkeypatch)
        yield HostStore(world.remote, f"file://{tmp_path}/root")
        world.remote.close()
    else:
        yield _store(request.param, tmp_path, server, monkeypatch, require_service)


def _store(
    kind: str, tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch, require_service: RequireService
) -> ObjectStore:
    if kind == "fake":
        return FakeStore()
    if kind == "file":
        return open_store(f"file://{tmp_path}/root")
    require_service(server, "fake-gcs-server is not installed")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server)
    return open_store(f"gs://bucket/{tmp_path.name}/root")


def test_what_was_put_is_got_and_listed(store: ObjectStore) -> None:
    for name in ("b/2", "a", "b/1", "b2"):
        store.put(name, name.encode())
    assert store.get("b/1") == b"b/1"
    assert [info.name for info in store.list("")] == ["a", "b/1", "b/2", "b2"]
    assert [info.name for info in store.list("b/")] == ["b/1", "b/2"]
    assert [info.name for info in store.list("b")] == ["b/1", "b/2", "b2"]
    assert [info.size_bytes for info in store.list("a")] == [1]
    assert list(store.list("missing/deep")) == []
    store.put("a", b"")
    assert store.get("a") == b"" and list(store.chunks("a")) == []


def test_a_write_names_the_generation_that_it_replaces(store: ObjectStore) -> None:
    first = store.put("owner", b"0", if_generation="")
    with pytest.raises(GenerationMismatch):
        store.put("owner", b"1", if_generation="")
    second = store.put("owner", b"1", if_generation=first.generation)
    assert second.generation != first.generation
    with pytest.raises(GenerationMismatch):
        store.put("owner", b"2", if_generation=first.generation)
    found = store.stat("owner")
    assert found is not None and found.generation == second.generation
    assert store.get("owner") == b"1"


def test_no_thread_is_left_to_a_store(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Those of a connection to a host feed and drain its pipes, and end with the call; the others start none."""
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    calls: list[Callable[[], object]] = [
        lambda: store.put("a", b"1"),
        lambda: store.get("a"),
        lambda: store.stat("b"),
        lambda: store.delete("a"),
    ]
    for call in calls:
        call()
        assert [thread for thread in started if thread.is_alive()] == []
    if not isinstance(store, HostStore):
        assert started == []


def test_one_of_many_writers_wins(store: ObjectStore) -> None:
    first = store.put("owner", b"0").generation
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


def test_what_is_absent_is_said(store: ObjectStore) -> None:
    store.put("a", b"x")
    for name in ("b", "a/b"):
        with pytest.raises(ObjectMissing):
            store.get(name)
        assert store.stat(name) is None
    with pytest.raises(ObjectMissing):
        list(store.chunks("b"))
    store.delete("b")
    store.delete("a")
    assert store.stat("a") is None


def test_a_large_file_goes_in_and_comes_out_in_pieces(store: ObjectStore, tmp_path: Path) -> None:
    path = tmp_path / "large"
    data = hashlib.shake_128(b"large").digest(BIG)
    path.write_bytes(data)
    info = store.put_file("deep/large", path)
    assert not path.exists(), "it was handed over"
    assert info.size_bytes == BIG
    pieces = list(store.chunks("deep/large"))
    assert b"".join(pieces) == data
    assert max(len(piece) for piece in pieces) <= 8 << 20
    path.write_bytes(b"small")
    with pytest.raises(GenerationMismatch):
        store.put_file("deep/large", path, if_generation="")
    assert path.exists()
    store.put_file("deep/large", path, if_generation=info.generation)
    assert store.get("deep/large") == b"small"


def test_no_name_leaves_the_root(store: ObjectStore) -> None:
    for name in ("", "/a", "a/", "a//b", "../a", "a/../b", ".", ".iris-objects/lock", "a\0b", "a\n", ".hidden"):
        with pytest.raises(UsageFailed):
            store.put(name, b"")
        with pytest.raises(UsageFailed):
            store.get(name)


def test_a_server_that_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, require_service: RequireService
) -> None:
    require_service(binary(), "fake-gcs-server is not installed")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    monkeypatch.setattr("providers.objects.gcs.RETRY_S", 0.2)
    store = open_store("gs://bucket/root")
    for act in (
        lambda: store.put("x", b"1"),
        lambda: store.get("x"),
        lambda: list(store.list("")),
        lambda: store.delete("x"),
    ):
        with pytest.raises(IrisError, match=r"cannot \w+ .* in gs://bucket/root: ") as refused:
            act()
        assert "\n" not in refused.value.message and not isinstance(refused.value, ObjectMissing)


def test_a_bucket_that_is_not_there_holds_nothing(
    server: str, monkeypatch: pytest.MonkeyPatch, require_service: RequireService
) -> None:
    require_service(server, "fake-gcs-server is not installed")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server)
    store = open_store("gs://nosuchbucket/x")
    assert store.stat("a") is None
    with pytest.raises(IrisError):
        store.put("a", b"1")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud.storage", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageFailed, match="google-cloud-storage") as refused:
        open_store("gs://bucket/x")
    assert "iris-ops[gcp]" in refused.value.hint


def test_a_file_of_another_file_system_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"file://{tmp_path}/root")
    source = tmp_path / "source"
    source.write_bytes(b"x" * (9 << 20))

    def link(old: Path, new: Path, **_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    store.put_file("a", source)
    assert not source.exists()
    assert (tmp_path / "root" / "a").read_bytes() == b"x" * (9 << 20)
    assert stat.S_IMODE((tmp_path / "root" / "a").stat().st_mode) == 0o600


def test_places_of_buckets(tmp_path: Path) -> None:
    for url in ("gs://", "gs:///x", "gs://UPPER/x", "gs://bucket/x?y", "s3://bucket/x"):
        with pytest.raises(UsageFailed):
            open_store(url)
