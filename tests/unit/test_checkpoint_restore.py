"""Every damage to a checkpoint is found before the database is touched, and the one before it is taken (targets R3, S8)."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from iris_controller.checkpoint import restore, served
from iris_controller.checkpoint.choose import NoState, Wish, prepare
from iris_controller.checkpoint.layout import COMPRESSED, DATABASE, MANIFEST, BadCheckpoint, folder_of
from iris_controller.store.database import StateDir, StateDirError
from providers.fake.objects import FakeStore
from tests.unit.checkpoint_world import T0, checkpoint, insert_jobs, job_count, make_state, table_hashes

NOW = T0 + 10_000_000


@pytest.fixture
def world(tmp_path: Path) -> tuple[FakeStore, StateDir, StateDir]:
    """A store with two checkpoints, of 10 and of 20 jobs; the state they are of; and an empty one."""
    from iris_controller.store.database import open_writer

    store = FakeStore()
    state = make_state(tmp_path / "state", jobs=10)
    checkpoint(state, store, T0 + 1000)
    with closing(open_writer(state.database)) as connection:
        insert_jobs(connection, 10, 10)
    checkpoint(state, store, T0 + 2000)
    other = StateDir(tmp_path / "other")
    other.acquire()
    return store, state, other


def name(epoch_ms: int, file: str = COMPRESSED) -> str:
    return f"{folder_of(epoch_ms)}/{file}"


def start(state: StateDir, store: FakeStore, **wish: object) -> str:
    return prepare(state, store, Wish(**wish), NOW)  # type: ignore[arg-type]


def leftovers(state: StateDir) -> list[str]:
    return sorted(p.name for p in state.path.iterdir() if p.name in (restore.STAGING, restore.READY))


def test_the_newest_is_restored_with_every_row(world: tuple[FakeStore, StateDir, StateDir]) -> None:
    store, state, other = world
    assert start(other, store) == f"checkpoint {store.url}/controller-state/{T0 + 2000}"
    assert table_hashes(other.database) == table_hashes(state.database)
    assert job_count(other.database) == 20
    assert [p.name for p in other.database.parent.iterdir()] == [DATABASE]
    assert stat.S_IMODE(other.database.stat().st_mode) == 0o600
    assert stat.S_IMODE(other.database.parent.stat().st_mode) == 0o700
    # Once it is here it is the local one.
    assert start(other, store) == "local"


def test_a_cut_at_any_place_is_found(
    world: tuple[FakeStore, StateDir, StateDir], caplog: pytest.LogCaptureFixture
) -> None:
    store, _, other = world
    whole = store.objects[name(T0 + 2000)]
    for n in range(20):
        store.objects[name(T0 + 2000)] = (whole[0][: len(whole[0]) * n // 20], "9")
        caplog.clear()
        assert start(other, store).endswith(str(T0 + 1000))
        assert job_count(other.database) == 10
        assert f"checkpoint {T0 + 2000}" in caplog.text, "what was skipped is named"
        other.database.unlink()
    assert not leftovers(other)


def test_a_changed_byte_at_any_place_is_found(world: tuple[FakeStore, StateDir, StateDir], tmp_path: Path) -> None:
    store, _, _ = world
    data, generation = store.objects[name(T0 + 2000)]
    dice = random.Random(7)
    candidate = next(restore.newest_first(store, []))
    for n in range(100):
        place = len(data) * n // 100 + dice.randrange(len(data) // 100)
        changed = bytearray(data)
        changed[place] ^= 1 << dice.randrange(8)
        store.objects[name(T0 + 2000)] = (bytes(changed), generation)
        with pytest.raises(BadCheckpoint):
            restore.unpack(candidate, tmp_path / f"t{n}")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda raw: b"", "damaged"),
        (lambda raw: raw[:-30], "damaged"),
        (lambda raw: b"[]", "damaged"),
        (lambda raw: b'{"format": 1}', "damaged"),
        (lambda raw: b"[" * 60_000, "damaged"),
        (lambda raw: b" " * 70_000 + raw, "too large"),
        (lambda raw: raw.replace(b'"format": 1', b'"format": 2'), "format 2"),
        (
            lambda raw: raw.replace(str(T0 + 2000).encode(), str(T0 + 1000).encode()),
            f"belongs to checkpoint {T0 + 1000}",
        ),
        (lambda raw: raw.replace(b'"jobs": 20', b'"jobs": -1'), "number"),
        (lambda raw: raw.replace(b'"jobs": 20', b'"jobs": true'), "number"),
        (lambda raw: raw.replace(b'"sha256": "', b'"sha256": "x'), "damaged"),
        (lambda raw: raw.replace(b'"database_bytes": ', b'"database_bytes": 1'), "bytes"),
        (lambda raw: raw.replace(b'"size_bytes": ', b'"size_bytes": 1'), "its manifest says"),
    ],
)
def test_a_damaged_or_foreign_manifest_is_never_believed(
    world: tuple[FakeStore, StateDir, StateDir], caplog: pytest.LogCaptureFixture, damage: object, says: str
) -> None:
    store, _, other = world
    raw, generation = store.objects[name(T0 + 2000, MANIFEST)]
    store.objects[name(T0 + 2000, MANIFEST)] = (damage(raw), generation)  # type: ignore[operator]
    assert start(other, store).endswith(str(T0 + 1000))
    assert says in caplog.text


def test_one_without_a_manifest_is_chosen_only_when_it_is_named(
    world: tuple[FakeStore, StateDir, StateDir], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, _, other = world
    del store.objects[name(T0 + 2000, MANIFEST)]
    assert start(other, store).endswith(str(T0 + 1000))
    assert "no manifest" in caplog.text
    folder = tmp_path / "kept" / str(T0 + 2000)
    folder.mkdir(parents=True)
    (folder / COMPRESSED).write_bytes(store.objects[name(T0 + 2000)][0])
    assert start(other, store, checkpoint=str(folder)) == f"checkpoint file://{folder}"
    assert f"file://{folder} has no manifest: it is taken as a checkpoint of an older release" in caplog.messages
    assert job_count(other.database) == 20
    kept = list(other.path.glob("db.aside.*"))
    assert len(kept) == 1 and job_count(kept[0] / DATABASE) == 10, "what was here is kept"


def test_a_plain_database_file_of_an_older_release_is_accepted(
    world: tuple[FakeStore, StateDir, StateDir], tmp_path: Path
) -> None:
    store, state, other = world
    (tmp_path / str(T0)).mkdir()
    (tmp_path / str(T0) / DATABASE).write_bytes(state.database.read_bytes())
    start(other, store, checkpoint=f"file://{tmp_path}/{T0}")
    assert job_count(other.database) == 20
    start(other, store, checkpoint=str(state.database))
    assert job_count(other.database) == 20


def test_what_cannot_be_used_is_one_line_and_touches_nothing(
    world: tuple[FakeStore, StateDir, StateDir], tmp_path: Path
) -> None:
    store, state, _ = world
    before = state.database.read_bytes()
    for named in ("/nowhere/1700000000000", str(tmp_path), f"{tmp_path}/x.zst", "gs://", "s3://b/1"):
        with pytest.raises(Exception, match=r"not found|not a place|only") as refused:
            start(state, store, checkpoint=named)
        assert "\n" not in str(refused.value)
    for data in (
        b"",
        b"nonsense" * 99,
        zstandard.compress(b"nonsense" * 99),
        zstandard.compress(b"SQLite format 3\0" + bytes(9000)),
    ):
        (tmp_path / "bad.zst").write_bytes(data)
        with pytest.raises(BadCheckpoint, match=r"checkpoint file://.*/bad\.zst cannot be used: "):
            start(state, store, checkpoint=f"{tmp_path}/bad.zst")
    assert state.database.read_bytes() == before
    assert not leftovers(state)


def bomb(size: int) -> bytes:
    """A frame of zeros of so many bytes, without saying how many."""
    compressor = zstandard.ZstdCompressor(level=1, write_content_size=False).compressobj()
    return b"".join([*(compressor.compress(bytes(1 << 20)) for _ in range(size >> 20)), compressor.flush()])


def test_bombs_stop_at_the_limit(world: tuple[FakeStore, StateDir, StateDir], tmp_path: Path) -> None:
    store, _, other = world
    head = zstandard.compress(b"SQLite format 3\0" + bytes(4080))
    raw, generation = store.objects[name(T0 + 2000, MANIFEST)]
    manifest = json.loads(raw)
    limit = manifest["files"][0]["database_bytes"]
    import hashlib

    for data in (head + bomb(300 << 20), head * 10_000, head + zstandard.compress(b"") * 10_000):
        manifest["files"][0].update(size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        store.objects[name(T0 + 2000)] = (data, generation)
        store.objects[name(T0 + 2000, MANIFEST)] = (json.dumps(manifest).encode(), generation)
        candidate = next(restore.newest_first(store, []))
        target = tmp_path / f"target{len(data)}"
        began = time.process_time()
        with pytest.raises(BadCheckpoint):
            restore.unpack(candidate, target)
        assert target.stat().st_size <= limit + restore.PIECE_BYTES
        assert time.process_time() - began < 20
    # One that says it is larger than the disk is not begun.
    manifest["files"][0]["database_bytes"] = 1 << 50
    store.objects[name(T0 + 2000, MANIFEST)] = (json.dumps(manifest).encode(), generation)
    with pytest.raises(BadCheckpoint, match="does not fit"):
        restore.unpack(next(restore.newest_first(store, [])), tmp_path / "large")
    assert not (tmp_path / "large").exists()
    assert start(other, store).endswith(str(T0 + 1000))


def test_a_window_that_would_take_the_memory_is_refused(tmp_path: Path) -> None:
    # Magic, a descriptor without content size, a window of 2 GiB, and one raw block.
    frame = (
        b"\x28\xb5\x2f\xfd"
        + bytes([0x00, (31 - 10) << 3])
        + (len(b"x" * 16) << 3 | 1).to_bytes(3, "little")
        + b"x" * 16
    )
    (tmp_path / "bomb.zst").write_bytes(frame)
    with pytest.raises(BadCheckpoint, match="damaged"):
        restore.unpack(restore.find(str(tmp_path / "bomb.zst")), tmp_path / "t")


def test_a_kill_between_the_renames_is_finished_at_the_next_start(
    world: tuple[FakeStore, StateDir, StateDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, state, other = world
    candidate = next(restore.newest_first(store, []))
    # Killed while it unpacked.
    (other.path / restore.STAGING).mkdir()
    (other.path / restore.STAGING / DATABASE).write_bytes(b"half")
    # Killed with the new one staged and the old one moved away.
    restore.stage(candidate, state.path)
    state.database.parent.rename(state.path / "db.aside.1")
    assert start(state, store) == "local"
    assert job_count(state.database) == 20
    # Killed with the new one staged and the old one still in its place.
    restore.stage(candidate, state.path)
    assert start(state, store) == "local"
    start(other, store)
    assert not leftovers(state) and not leftovers(other)
    # A rename that fails puts the old one back.
    restore.stage(candidate, state.path)
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name == restore.READY:
            raise OSError(5, "Input/output error")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError):
        restore.swap(state.path, "db.aside.2")
    assert job_count(state.database) == 20


def damage(state: StateDir) -> bytes:
    """Zeros over two pages; returns the damaged file."""
    raw = bytearray(state.database.read_bytes())
    raw[4096 * 3 : 4096 * 5] = bytes(8192)
    state.database.write_bytes(raw)
    return bytes(raw)


def test_a_damaged_database_is_moved_aside_and_the_newest_checkpoint_taken(
    world: tuple[FakeStore, StateDir, StateDir], caplog: pytest.LogCaptureFixture
) -> None:
    store, state, _ = world
    raw = damage(state)
    assert start(state, store).endswith(str(T0 + 2000))
    assert job_count(state.database) == 20
    (kept,) = state.path.glob("db.corrupt.*")
    assert (kept / DATABASE).read_bytes() == raw
    assert "is damaged" in caplog.text and "2023-11-14 22:13:22" in caplog.text and "is missing" in caplog.text


def test_a_schema_that_is_no_text_is_damage_like_any_other(
    world: tuple[FakeStore, StateDir, StateDir], tmp_path: Path
) -> None:
    store, state, other = world
    with closing(sqlite3.connect(state.database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw = state.database.read_bytes().replace(b"DEFAULT", b"D\xbaFAULT")
    words = r"is damaged: malformed database schema .*D\\xbaFAULT"
    # A file by itself: no manifest says what it should be.
    copy = tmp_path / "copy.sqlite3"
    copy.write_bytes(raw)
    with pytest.raises(BadCheckpoint, match=words):
        start(other, store, checkpoint=str(copy))
    state.database.write_bytes(raw)
    with pytest.raises(StateDirError, match=words):
        start(state, FakeStore())
    assert state.database.read_bytes() == raw
    assert start(state, store).endswith(str(T0 + 2000)) and job_count(state.database) == 20


def test_an_emptied_database_is_no_state_to_start_on(world: tuple[FakeStore, StateDir, StateDir]) -> None:
    store, state, _ = world
    log = state.database.with_name(f"{DATABASE}-wal")
    with closing(sqlite3.connect(state.database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    state.database.write_bytes(b"")
    assert not log.exists() and start(state, store).endswith(str(T0 + 2000)) and job_count(state.database) == 20
    # With what was acknowledged last still in the log, which SQLite would throw away.
    state.database.write_bytes(b"")
    log.write_bytes(b"frames")
    with pytest.raises(StateDirError, match="is damaged: it is empty, and its write-ahead log is not"):
        start(state, FakeStore())
    assert log.read_bytes() == b"frames"
    assert start(state, store).endswith(str(T0 + 2000)) and job_count(state.database) == 20
    (kept,) = state.path.glob("db.corrupt.*")
    assert (kept / log.name).read_bytes() == b"frames"


def test_a_damaged_database_without_a_checkpoint_stays_where_it_is(world: tuple[FakeStore, StateDir, StateDir]) -> None:
    store, state, _ = world
    raw = damage(state)
    for reachable in (True, False):
        if reachable:
            store.objects.clear()
        else:
            store.fail()
        with pytest.raises(StateDirError, match="is damaged"):
            start(state, store)
        assert state.database.read_bytes() == raw


def test_a_controller_never_starts_empty_where_there_may_be_state(world: tuple[FakeStore, StateDir, StateDir]) -> None:
    store, _, other = world
    for _ in range(2):
        assert start(other, FakeStore()) == "fresh", "nothing was ever there"
        # A start that ended before its first page was written.
        other.database.parent.mkdir(exist_ok=True)
        other.database.touch()
    store.fail(reason="no route to host")
    with pytest.raises(NoState, match="no route to host"):
        start(other, store)
    store.before = None
    for epoch in (T0 + 1000, T0 + 2000):
        store.put(name(epoch), b"torn")
    with pytest.raises(NoState, match=f"checkpoint {T0 + 2000}.*checkpoint {T0 + 1000}") as refused:
        start(other, store)
    assert "--fresh" in refused.value.hint
    assert start(other, store, fresh=True) == "fresh"


def test_a_checkpoint_is_put_in_place_by_hand(
    world: tuple[FakeStore, StateDir, StateDir], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from iris_controller.main import main

    _, state, other = world
    words = ["restore", "--state-dir", str(other.path), str(state.database)]
    assert main(words) == 1
    assert "is held by another controller" in capsys.readouterr().err
    other.release()
    assert main(words) == 0 and main(words) == 0
    assert "the previous database is kept in" in capsys.readouterr().out
    assert job_count(other.database) == 20 and len(list(other.path.glob("db.aside.*"))) == 1
    assert main([*words[:-1], "/nowhere/1"]) == 1
    assert capsys.readouterr().err.startswith("Error: Checkpoint not found")


def test_a_checkpoint_is_put_into_an_empty_folder_and_into_no_other(
    world: tuple[FakeStore, StateDir, StateDir], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from iris_controller.main import main
    from providers.objects import open_store

    _, state, _ = world
    checkpoint(state, open_store(f"file://{tmp_path}/r"), T0 + 3000)
    named = f"file://{tmp_path}/r/controller-state/{T0 + 3000}"
    folder = tmp_path / "made" / "db"
    assert main(["restore", named, "--to", str(folder)]) == 0
    assert table_hashes(folder / DATABASE) == table_hashes(state.database)
    assert [path.name for path in folder.iterdir()] == [DATABASE]
    assert main(["restore", named, "--to", str(folder)]) == 2
    assert "is there already" in capsys.readouterr().err and job_count(folder / DATABASE) == 20
    torn = tmp_path / "torn.sqlite3.zst"
    torn.write_bytes(zstandard.compress(state.database.read_bytes())[:-9])
    assert main(["restore", str(torn), "--to", str(tmp_path / "other-db")]) == 1
    assert list((tmp_path / "other-db").iterdir()) == [], "nothing is left of one that is damaged"
    with pytest.raises(SystemExit):
        main(["restore", named, "--to", str(folder), "--state-dir", str(tmp_path)])


def record(store: FakeStore, **values: object) -> None:
    store.put("rollout-record.json", json.dumps({"image": "a", "more": [1], "updated_at_ms": 1, **values}).encode())


def test_a_rollback_is_done_once(world: tuple[FakeStore, StateDir, StateDir], tmp_path: Path) -> None:
    from providers.objects import open_store

    _, state, other = world
    remote = open_store(f"file://{tmp_path}/remote")
    checkpoint(state, remote, T0 + 3000)
    assert isinstance(start(other, remote), str)  # type: ignore[arg-type]
    named = f"file://{tmp_path}/remote/controller-state/{T0 + 3000}"
    values = {
        "phase": "rollback_requested",
        "image": "a",
        "previous_image": None,
        "rollback_checkpoint": named,
        "more": [1],
    }
    remote.put("rollout-record.json", json.dumps(values).encode())
    # A dry run looks and leaves it alone.
    assert prepare(other, remote, Wish(dry_run=True), NOW) == "local"
    # It comes before the local database, and before a checkpoint that was named.
    assert prepare(other, remote, Wish(checkpoint="/nowhere/1"), NOW) == f"rollback, checkpoint {named}"
    after = json.loads(remote.get("rollout-record.json"))
    assert after["phase"] == "rolled_back" and after["rollback_checkpoint"] is None and after["more"] == [1]
    assert after["updated_at_ms"] == NOW
    assert len(list(other.path.glob("db.aside.*"))) == 1
    assert prepare(other, remote, Wish(), NOW) == "local"


def test_a_rollback_that_cannot_be_done_stands(world: tuple[FakeStore, StateDir, StateDir], tmp_path: Path) -> None:
    store, state, _ = world
    before = table_hashes(state.database)
    record(store, phase="rollback_requested", rollback_checkpoint=f"file://{tmp_path}/gone/1700000000000")
    with pytest.raises(NoState, match="rollback"):
        start(state, store)
    assert table_hashes(state.database) == before
    assert json.loads(store.get("rollout-record.json"))["phase"] == "rollback_requested"


def test_a_rollback_is_not_served_before_it_is_marked(
    world: tuple[FakeStore, StateDir, StateDir], tmp_path: Path
) -> None:
    from providers.objects import open_store

    store, state, _ = world
    checkpoint(state, open_store(f"file://{tmp_path}/r"), T0 + 3000)
    record(store, phase="rollback_requested", rollback_checkpoint=f"file://{tmp_path}/r/controller-state/{T0 + 3000}")
    store.fail("write")
    with pytest.raises(NoState, match="cannot be marked"):
        start(state, store)
    store.before = None
    assert start(state, store).startswith("rollback, ")


def test_a_rollback_that_was_done_and_not_marked_is_not_done_again(
    world: tuple[FakeStore, StateDir, StateDir], tmp_path: Path
) -> None:
    from providers.objects import open_store

    store, state, _ = world
    checkpoint(state, open_store(f"file://{tmp_path}/r"), T0 + 3000)
    named = f"file://{tmp_path}/r/controller-state/{T0 + 3000}"
    asked = {"phase": "rollback_requested", "image": "old", "rollback_checkpoint": named}
    record(store, **asked)
    store.fail("write")
    for _ in range(3):  # killed, or cut off from the store, before the record says it
        with pytest.raises(NoState, match="cannot be marked"):
            start(state, store, release="old")
        assert len(list(state.path.glob("db.aside.*"))) == 1, "restored once"
    store.before = None
    assert start(state, store, release="old") == f"rollback, checkpoint {named} was restored before"
    assert json.loads(store.get("rollout-record.json"))["phase"] == "rolled_back"
    assert start(state, store, release="old") == "local", "a later start rewinds nothing"
    # Another request to the same checkpoint is another rollback.
    record(store, **{**asked, "updated_at_ms": 2})
    assert start(state, store, release="old") == f"rollback, checkpoint {named}"
    assert len(list(state.path.glob("db.aside.*"))) == 2


def test_a_rollback_without_a_checkpoint_keeps_the_database_and_is_consumed(
    world: tuple[FakeStore, StateDir, StateDir],
) -> None:
    store, state, _ = world
    before = table_hashes(state.database)
    record(store, phase="rollback_requested", image="old", previous_image=None, rollback_checkpoint=None)
    assert start(state, store, release="old") == "local"
    after = json.loads(store.get("rollout-record.json"))
    assert (after["phase"], after["image"], after["more"]) == ("rolled_back", "old", [1])
    assert table_hashes(state.database) == before and not list(state.path.glob("db.aside.*"))


def test_a_rollback_to_another_release_is_left_to_that_one(world: tuple[FakeStore, StateDir, StateDir]) -> None:
    store, state, _ = world
    record(store, phase="rollback_requested", image="old", rollback_checkpoint=f"{store.url}/controller-state/{T0}")
    raw = store.get("rollout-record.json")
    assert start(state, store, release="new") == "local"
    assert store.get("rollout-record.json") == raw and not list(state.path.glob("db.aside.*"))


def test_a_release_that_may_have_to_roll_back_waits_until_the_record_can_be_read(
    world: tuple[FakeStore, StateDir, StateDir],
) -> None:
    store, state, _ = world
    served.note_served(state.path, "old")
    store.fail("read", reason="no route to host")
    assert start(state, store, release="old") == "local", "the one that served last goes on without the store"
    with pytest.raises(NoState, match=r"whether release new may serve is not known: .*no route to host"):
        start(state, store, release="new")
    store.before = None
    assert start(state, store, release="new") == "local"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"phase": "unheard_of"}',
        b'{"phase": "rollback_requested", "rollback_checkpoint": 7}',
        b'{"phase": "committed", "rollback_checkpoint": "file:///nowhere/1"}',
    ],
)
def test_other_records_change_nothing(world: tuple[FakeStore, StateDir, StateDir], raw: bytes) -> None:
    store, state, _ = world
    store.put("rollout-record.json", raw)
    assert start(state, store) == "local"
    assert store.get("rollout-record.json") == raw


def test_the_local_database_is_taken_although_the_store_does_not_answer(
    world: tuple[FakeStore, StateDir, StateDir],
) -> None:
    store, state, _ = world
    store.fail()
    assert start(state, store) == "local"


def test_a_link_in_place_of_a_checkpoint_is_not_followed(
    world: tuple[FakeStore, StateDir, StateDir], tmp_path: Path
) -> None:
    store, state, other = world
    folder = tmp_path / "l" / str(T0)
    folder.mkdir(parents=True)
    os.symlink(state.database, folder / DATABASE)
    with pytest.raises(BadCheckpoint, match="not found"):
        start(other, store, checkpoint=str(folder))
