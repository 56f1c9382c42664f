"""Writing checkpoints: a kill at any step leaves the one before it, what is too old goes, and nobody else's is touched (target R2)."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from iris_controller.checkpoint import restore, snapshot
from iris_controller.checkpoint.layout import COMPRESSED, KEEP_MS, MANIFEST, folder_of, objects_by_epoch
from iris_controller.checkpoint.owner import Fenced, Owner
from iris_controller.checkpoint.write import prune, write
from iris_controller.store.database import open_reader, open_writer
from iris_core.contracts import IrisError
from providers.fake.objects import FakeStore
from providers.objects import open_store
from tests.unit.checkpoint_world import T0, checkpoint, insert_jobs, job_count, make_state, table_hashes

DAY = 86_400_000


def newest(store: FakeStore, target: Path) -> int:
    """How many jobs the newest valid checkpoint holds."""
    restore.unpack(next(restore.newest_first(store, [])), target)
    return job_count(target)


def test_a_checkpoint_of_a_busy_database_is_one_moment_of_it(tmp_path: Path) -> None:
    state = make_state(tmp_path / "s", jobs=200)
    done = threading.Event()
    failures: list[BaseException] = []

    def load() -> None:
        try:
            with closing(open_writer(state.database)) as writer:
                n = 200
                while not done.is_set():
                    insert_jobs(writer, n, 5)
                    n += 5
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        words = [sys.executable, "-c", CHILD, str(tmp_path), ""]
        # In a process of its own, as the controller does it.
        for _ in range(3):
            subprocess.run(words, check=True, timeout=60)
    finally:
        done.set()
        thread.join()
    assert not failures
    remote = open_store(f"file://{tmp_path}/remote")
    for n, candidate in enumerate(restore.newest_first(remote, [])):
        target = tmp_path / f"t{n}"
        restore.unpack(candidate, target)
        assert candidate.manifest is not None
        with closing(sqlite3.connect(target)) as connection:
            jobs, tasks = [connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("jobs", "tasks")]
            assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
        assert jobs == tasks == candidate.manifest.jobs == candidate.manifest.tasks
        assert jobs % 5 == 0, "whole transactions only"
    assert not list((tmp_path / "s" / "scratch").iterdir())


CHILD = """
import os, signal, sys
from pathlib import Path
from iris_controller.checkpoint.write import prune, write
from providers.objects import open_store
folder, kill_at = Path(sys.argv[1]), sys.argv[2]
store = open_store(f"file://{folder}/remote")
scratch = folder / "s" / "scratch"
scratch.mkdir(exist_ok=True)
seen = []
def stage(name):
    seen.append(name)
    if f"{name}{seen.count(name)}" == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
if kill_at.startswith("piece"):
    from iris_controller.checkpoint import snapshot
    real = os.fdatasync
    snapshot.SYNC_BYTES = 1
    def sync(descriptor):
        real(descriptor)
        stage("piece")
    os.fdatasync = sync
if kill_at == "rename1":
    real_rename = os.rename
    def rename(old, new):
        if str(new).endswith("manifest.json"):
            stage("rename")
        real_rename(old, new)
    os.rename = rename
import time
made = write(folder / "s" / "db" / "controller.sqlite3", scratch, store, now_ms=time.time_ns() // 10**6, after_ms=0, claim="", stage=stage)
prune(store, made.epoch_ms, claim="", stage=stage)
"""


@pytest.mark.parametrize(
    ("kill_at", "jobs"),
    [
        ("backup1", 10),
        ("compress1", 10),
        ("piece1", 10),
        ("upload1", 10),
        ("manifest1", 10),
        ("rename1", 10),
        ("done1", 20),
        ("prune1", 20),
        ("prune2", 20),
        ("prune3", 20),
    ],
)
def test_a_kill_at_any_step_leaves_a_good_checkpoint(tmp_path: Path, kill_at: str, jobs: int) -> None:
    state = make_state(tmp_path / "s", jobs=10)
    remote = open_store(f"file://{tmp_path}/remote")
    old = checkpoint(state, remote, T0)
    with closing(open_writer(state.database)) as connection:
        insert_jobs(connection, 10, 10)
    ended = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), kill_at], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    found = next(restore.newest_first(remote, []))
    restore.unpack(found, tmp_path / "t")
    assert job_count(tmp_path / "t") == jobs
    assert (found.epoch_ms == old.epoch_ms) == (jobs == 10)
    # What a killed one left is no checkpoint, and the next one is not disturbed by it.
    for leftover in (tmp_path / "s" / "scratch").iterdir():
        leftover.unlink()
    assert checkpoint(state, remote, T0 + 9 * DAY).jobs == 20


def test_the_newest_is_the_largest_number_whatever_the_clock_does(tmp_path: Path) -> None:
    state = make_state(tmp_path / "s")
    store = FakeStore()
    first = checkpoint(state, store, T0 + 3_600_000)
    second = checkpoint(state, store, T0)
    third = checkpoint(state, store, T0, after_ms=first.epoch_ms + 100)
    assert first.epoch_ms < second.epoch_ms < third.epoch_ms
    assert third.epoch_ms == first.epoch_ms + 101
    assert next(restore.newest_first(store, [])).epoch_ms == third.epoch_ms
    # A clock that jumps ahead makes nothing old before its time: age is counted between checkpoints.
    assert prune(store, third.epoch_ms, claim="") == []


def test_old_ones_are_pruned_and_never_the_newest_nor_a_rollbacks(tmp_path: Path) -> None:
    state = make_state(tmp_path / "s")
    store = FakeStore()
    epochs = [checkpoint(state, store, T0 + n * DAY).epoch_ms for n in range(7)]
    store.put(f"{folder_of(5)}/{COMPRESSED}", b"half of a very old one")
    store.put("controller-state/notes/x", b"not ours")
    store.put("bundles/x.zip", b"")
    store.put(
        "rollout-record.json",
        json.dumps({"phase": "committed", "rollback_checkpoint": f"{store.url}/{folder_of(epochs[1])}"}).encode(),
    )
    assert prune(store, epochs[-1], claim="") == [epochs[2], epochs[0], 5]
    assert list(objects_by_epoch(store)) == [*reversed(epochs[3:]), epochs[1]]
    assert {"controller-state/notes/x", "bundles/x.zip"} <= store.objects.keys()
    removed = [name for verb, name in store.calls if verb == "delete"]
    assert removed[0].endswith(MANIFEST)
    assert prune(store, epochs[-1], claim="", keep_ms=DAY) == [epochs[4], epochs[3]]
    # If the newest were damaged meanwhile, an older one may be needed.
    store.put(f"{folder_of(epochs[-1])}/{MANIFEST}", b"{")
    with pytest.raises(IrisError):
        prune(store, epochs[-1] + 9 * KEEP_MS, claim="")


def test_a_store_that_fails_anywhere_leaves_the_one_before(tmp_path: Path) -> None:
    state = make_state(tmp_path / "s", jobs=10)
    store = FakeStore()
    checkpoint(state, store, T0)
    with closing(open_writer(state.database)) as connection:
        insert_jobs(connection, 10, 10)
    for nth in range(1, 5):
        calls = 0

        def fail(verb: str, name: str, nth: int = nth) -> None:
            nonlocal calls
            calls += 1
            if calls >= nth:
                raise IrisError(f"cannot {verb} {name}: gone")

        store.before = fail
        for leftover in (state.path / "scratch").iterdir():
            leftover.unlink()
        if nth < 4:
            with pytest.raises(IrisError, match="gone"):
                checkpoint(state, store, T0 + nth)
        else:
            assert checkpoint(state, store, T0 + nth).jobs == 20
        store.before = None
        assert newest(store, tmp_path / f"t{nth}") == (10 if nth < 4 else 20)

    def no_manifest(verb: str, name: str) -> None:
        if verb == "write" and name.endswith(MANIFEST):
            raise IrisError("gone")

    store.before = no_manifest
    (state.path / "scratch" / COMPRESSED).unlink(missing_ok=True)
    with pytest.raises(IrisError, match="gone"):
        checkpoint(state, store, T0 + 9)
    assert T0 + 9 not in objects_by_epoch(store), "half a checkpoint takes room, and is removed if that can be"


def test_whoever_lost_the_remote_state_dir_neither_writes_nor_deletes(tmp_path: Path) -> None:
    state = make_state(tmp_path / "s")
    store = FakeStore()
    old = checkpoint(state, store, T0)
    mine = Owner(store, "/mine", 1, lambda: T0)
    mine.take()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    other = Owner(store, "/other", 2, lambda: T0)

    def lose(name: str) -> None:
        if name == "manifest":
            other.take()

    with pytest.raises(Fenced, match="pid 2, state /other"):
        write(state.database, scratch, store, now_ms=T0 + 9 * DAY, after_ms=0, claim=mine.claim, stage=lose)
    with pytest.raises(Fenced):
        prune(store, old.epoch_ms, claim=mine.claim)
    assert "delete" not in {verb for verb, _ in store.calls}
    assert next(restore.newest_first(store, [])).epoch_ms == old.epoch_ms


def test_with_readers_in_the_way_a_copy_is_made_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PIN_FOR_S", 0.3)
    state = make_state(tmp_path / "s", jobs=20)
    with closing(open_writer(state.database)) as writer, closing(open_reader(state.database)) as reader:
        insert_jobs(writer, 20, 5)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs").fetchone()
        insert_jobs(writer, 25, 5)
        before = table_hashes(state.database)
        target = tmp_path / "out"
        target.mkdir()
        taken = snapshot.take(state.database, target / COMPRESSED)
        assert taken.jobs == 30
        assert [p.name for p in target.iterdir()] == [COMPRESSED]
        restore.unpack(restore.find(str(target / COMPRESSED)), tmp_path / "t")
        assert table_hashes(tmp_path / "t") == before


def test_a_checkpoint_is_its_owners_alone_and_holds_no_key(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        state = make_state(tmp_path / "s")
        for key in ("signing.key", "env.key"):
            (state.path / key).write_text("secret")
        made = checkpoint(state, open_store(f"file://{tmp_path}/remote"), T0)
    finally:
        os.umask(before)
    paths = list((tmp_path / "remote").rglob("*"))
    assert {stat.S_IMODE(p.stat().st_mode) for p in paths if p.is_file()} == {0o600}
    assert {stat.S_IMODE(p.stat().st_mode) for p in paths if p.is_dir()} == {0o700}
    folder = tmp_path / "remote" / folder_of(made.epoch_ms)
    assert sorted(p.name for p in folder.iterdir()) == [COMPRESSED, MANIFEST]
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["files"][0]["size_bytes"] == (folder / COMPRESSED).stat().st_size
    assert manifest["jobs"] == manifest["tasks"] == 50 and manifest["schema"].startswith("0")
