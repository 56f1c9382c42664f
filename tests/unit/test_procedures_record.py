"""The rollout record and the fleet lock, against a folder, a real bucket server, and the strict fake."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_core.contracts import GenerationMismatch, ObjectStore
from iris_core.procedures import lock, record
from iris_core.procedures.record import NotAllowed, Phase, RecordUnreadable, RolloutRecord, Standing
from providers.fake.objects import FakeStore
from providers.objects import open_store
from tests.conftest import RequireService
from tests.unit.object_servers import binary, gcs_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if binary() is None:
        yield ""
        return
    with gcs_server(tmp_path_factory.mktemp("gcs"), "bucket") as url:
        yield url


@pytest.fixture(params=["file", "gs", "fake"])
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    server: str,
    monkeypatch: pytest.MonkeyPatch,
    require_service: RequireService,
) -> ObjectStore:
    if request.param == "fake":
        return FakeStore()
    if request.param == "file":
        return open_store(f"file://{tmp_path}/root")
    require_service(server, "fake-gcs-server is not installed")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server)
    return open_store(f"gs://bucket/{tmp_path.name}/root")


def test_a_deployment_is_pending_then_committed_and_can_be_rolled_back_once(store: ObjectStore) -> None:
    first = record.write(store, record.first_committed(record.read(store), "r1", 1), record.read(store))
    waiting = record.write(store, record.pending(first, "r2", "ck/2", 2), first)
    assert record.read(store) == waiting
    assert waiting.record == RolloutRecord(Phase.PENDING, "r2", "r1", "ck/2", 2)
    done = record.write(store, record.committed(waiting, "r2", 3), waiting)
    asked = record.write(store, record.rollback_requested(done, 4), done)
    assert asked.record == RolloutRecord(Phase.ROLLBACK_REQUESTED, "r1", "", "ck/2", 4, replaces="r2")
    back = record.write(store, record.rolled_back(asked, 5), asked)
    assert back.record == RolloutRecord(Phase.ROLLED_BACK, "r1", "", "", 5)
    with pytest.raises(NotAllowed, match="there is no deployment to roll back to"):
        record.rollback_requested(record.read(store), 6)


def test_of_driver_and_controller_who_both_end_the_probation_one_wins(store: ObjectStore) -> None:
    start = record.write(store, record.pending(Standing(None, ""), "r2", "", 1), Standing(None, ""))
    record.write(store, record.committed(start, "r2", 2), start)
    with pytest.raises(GenerationMismatch):
        record.write(store, RolloutRecord(Phase.ROLLBACK_REQUESTED, "r1"), start)
    standing = record.read(store).record
    assert standing is not None and standing.phase is Phase.COMMITTED


def test_what_cannot_be_understood_is_never_taken_for_absent(store: ObjectStore) -> None:
    for raw in (
        b"",
        b"[]",
        b'{"phase": "new", "image": "r"}',
        b'{"phase":"pending","image":3}',
        b'{"phase":"pending","image":"r1","updated_at_ms":1e999}',
        b"[" * 100_000,
    ):
        store.put(record.RECORD, raw)
        with pytest.raises(RecordUnreadable):
            record.read(store)


def test_keys_of_other_versions_stay(store: ObjectStore) -> None:
    store.put(record.RECORD, b'{"phase": "committed", "image": "r1", "note": {"a": [1]}, "updated_at_ms": 7}')
    standing = record.read(store)
    after = record.write(store, record.pending(standing, "r2", "", 8), standing)
    assert record.read(store).record == after.record
    assert after.record is not None and after.record.others == {"note": {"a": [1]}}


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.sampled_from(Phase), TEXT, TEXT, TEXT, st.integers(0, 2**53))
@settings(max_examples=80, deadline=None)
def test_a_record_comes_back_as_it_was_written(
    phase: Phase, image: str, previous: str, checkpoint: str, at: int
) -> None:
    written = RolloutRecord(phase, image, previous, checkpoint, at)
    assert record.parse(written.to_json()) == written


@given(
    st.lists(
        st.sampled_from(["pending", "committed", "rollback", "rolled_back", "withdrawn", "without_checkpoint"]),
        max_size=8,
    )
)
@settings(max_examples=150, deadline=None)
def test_no_history_skips_a_phase(steps: list[str]) -> None:
    allowed = {
        None: {Phase.PENDING},
        Phase.PENDING: {Phase.COMMITTED, Phase.ROLLBACK_REQUESTED},
        Phase.COMMITTED: {Phase.PENDING, Phase.ROLLBACK_REQUESTED},
        Phase.ROLLBACK_REQUESTED: {Phase.ROLLED_BACK, Phase.ROLLBACK_REQUESTED, Phase.COMMITTED},
        Phase.ROLLED_BACK: {Phase.PENDING},
    }
    standing = Standing(None, "")
    for number, step in enumerate(steps):
        before = standing.record
        try:
            after = {
                "pending": lambda n=number, s=standing: record.pending(s, f"r{n}", "c", n),
                "committed": lambda n=number, s=standing: record.committed(s, s.record.image if s.record else "", n),
                "rollback": lambda n=number, s=standing: record.rollback_requested(s, n),
                "rolled_back": lambda n=number, s=standing: record.rolled_back(s, n),
                "withdrawn": lambda n=number, s=standing: record.withdrawn(s, s.record.replaces if s.record else "", n),
                "without_checkpoint": lambda n=number, s=standing: record.without_checkpoint(s, n),
            }[step]()
        except NotAllowed:
            continue
        assert after.phase in allowed[before.phase if before else None]
        if step == "rollback":
            assert before is not None and after.image == before.previous_image != ""
            assert after.replaces == before.image
        elif step == "withdrawn":
            assert before is not None and before.phase is Phase.ROLLBACK_REQUESTED
            assert (after.image, after.previous_image) == (before.replaces, before.image)
        elif step == "without_checkpoint":
            assert before is not None and (after.image, after.rollback_checkpoint) == (before.image, "")
        assert bool(after.replaces) is (after.phase is Phase.ROLLBACK_REQUESTED)
        standing = Standing(after, "g")


def holder(name: str, at: int = 1_000) -> lock.Holder:
    return lock.Holder(name, "ada", "laptop", at)


def test_a_second_rollout_is_told_who_holds_the_lock(store: ObjectStore) -> None:
    lock.acquire(store, holder("p1"))
    with pytest.raises(lock.LockHeld, match=r"ada on laptop holds it for 5m.*procedure p1"):
        lock.acquire(store, lock.Holder("p2", "grace", "desk", 301_000))
    with pytest.raises(lock.LockHeld) as caught:
        lock.require_free(store, 1, "p2", "iris-core --cluster=lab")
    assert caught.value.hint.endswith(": iris-core --cluster=lab cluster controller break-lock")
    lock.acquire(store, lock.Holder("p1", "grace", "desk", 301_000))  # the same procedure, resumed elsewhere
    held = lock.read(store)
    assert held.holder == lock.Holder("p1", "grace", "desk", 301_000)
    lock.release(store, "p1")
    assert lock.read(store).holder is None
    assert store.stat(lock.LOCK) is not None, "it is given back by overwriting"
    lock.acquire(store, holder("p2"))


def test_whoever_lost_the_lock_gives_nothing_back(store: ObjectStore) -> None:
    lock.break_(store, lock.acquire(store, holder("p1")).generation)
    lock.acquire(store, holder("p2"))
    lock.release(store, "p1")
    held = lock.read(store).holder
    assert held is not None and held.procedure == "p2"


def test_breaking_frees_exactly_what_was_seen(store: ObjectStore) -> None:
    seen = lock.acquire(store, holder("p1"))
    lock.release(store, "p1")
    lock.acquire(store, holder("p2"))
    with pytest.raises(GenerationMismatch):
        lock.break_(store, seen.generation)


def test_a_lock_that_cannot_be_understood_is_not_free(store: ObjectStore) -> None:
    held = b'{"state": "held", "procedure": "p1", "account": "a", "host": "h", "taken_at_ms": %s}'
    for raw in (b'{"state": "maybe"}', b"", b"[]", b"[" * 100_000, held % b"1e999", held % b"NaN", held % b'"x"'):
        store.put(lock.LOCK, raw)
        with pytest.raises(lock.LockUnreadable, match="cannot be understood") as caught:
            lock.acquire(store, holder("p1"), "iris-core --cluster='the lab'")
        assert caught.value.hint.startswith("iris-core --cluster='the lab' cluster controller break-lock ")
        assert len(caught.value.shown) < 1_000
        changed = store.put(lock.LOCK, raw + b" ")
        with pytest.raises(GenerationMismatch):
            lock.break_(store, caught.value.generation)
        lock.break_(store, changed.generation)
        assert lock.read(store).holder is None


def test_of_many_at_once_exactly_one_gets_it(store: ObjectStore) -> None:
    won: list[str] = []
    start = threading.Barrier(6)

    def attempt(name: str) -> None:
        start.wait()
        try:
            lock.acquire(store, holder(name))
        except lock.LockHeld:
            return
        won.append(name)

    threads = [threading.Thread(target=attempt, args=(f"p{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    held = lock.read(store).holder
    assert held is not None and held.procedure == won[0]
