"""One controller writes into a remote state dir: the one that claimed it last, and the other one knows (DESIGN §5.12)."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from iris_controller.checkpoint.claims import OwnClaims
from iris_controller.checkpoint.owner import OWNER, Fenced, Owner, read_claim, require
from iris_core.contracts import IrisError, ObjectStore
from providers.fake.objects import FakeStore
from providers.objects import open_store


@pytest.fixture(params=["file", "fake"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return FakeStore() if request.param == "fake" else open_store(f"file://{tmp_path}/remote")


def owner(store: ObjectStore, pid: int) -> Owner:
    return Owner(store, f"/state{pid}", pid, lambda: 1000 + pid)


def test_the_last_claim_stands_and_the_first_one_learns_who_it_was(store: ObjectStore) -> None:
    first, second = owner(store, 1), owner(store, 2)
    assert first.problem
    assert first.take() is None
    assert not first.problem
    first.check()
    assert not first.lost
    before = second.take()
    assert before is not None and before.pid == 1
    first.check()
    assert "pid 2, state /state2" in first.lost
    second.check()
    assert not second.lost and not second.problem
    with pytest.raises(Fenced):
        require(store, first.claim)
    require(store, second.claim)
    # It does not try to get it back.
    first.check()
    claim = read_claim(store)
    assert claim is not None and claim.pid == 2


def test_a_state_that_lost_its_claim_does_not_come_back_by_a_restart(store: ObjectStore, tmp_path: Path) -> None:
    def start(name: str) -> Owner:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return Owner(store, str(folder), 1, lambda: 1000, OwnClaims(folder))

    start("a").take()
    again = start("a")
    again.take()
    assert not again.problem, "its own claim it may renew"
    with pytest.raises(Fenced, match="took over"):
        start("b").take()
    OwnClaims(tmp_path / "b").forget()
    second = start("b")
    second.take()
    again.check()
    assert again.lost
    third = start("a")
    third.check()
    assert "what is here is older" in third.lost and not third.claimed
    found = read_claim(store)
    assert found is not None and found.claim == second.claim
    # Killed between writing its claim down and making it: what stands is still its own.
    OwnClaims(tmp_path / "b").add("f" * 32)
    start("b").take()
    OwnClaims(tmp_path / "a").forget()
    start("a").take()


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"claims": 3}', b"[" * 9999])
def test_damaged_claims_are_no_claims(store: ObjectStore, tmp_path: Path, damage: bytes) -> None:
    owner(store, 1).take()
    (tmp_path / "claims.json").write_bytes(damage)
    with pytest.raises(Fenced):
        Owner(store, str(tmp_path), 1, lambda: 1000, OwnClaims(tmp_path)).take()


def test_of_many_that_claim_at_once_exactly_one_is_left(store: ObjectStore) -> None:
    owners = [owner(store, n) for n in range(6)]
    barrier = threading.Barrier(6)

    def claim(one: Owner) -> None:
        barrier.wait()
        one.take()

    threads = [threading.Thread(target=claim, args=(one,)) for one in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in owners:
        one.check()
    assert sum(not one.lost for one in owners) == 1
    winner = next(one for one in owners if not one.lost)
    found = read_claim(store)
    assert found is not None and found.claim == winner.claim


def test_an_outage_takes_nothing_and_is_told(tmp_path: Path) -> None:
    store = FakeStore()
    one = owner(store, 1)
    store.fail()
    one.check()
    assert not one.lost
    assert "does not answer" in one.problem
    store.before = None
    one.check()
    assert not one.problem, "the first claim is made up for"
    store.fail()
    one.check()
    assert not one.lost
    assert "still ours" in one.problem
    with pytest.raises(IrisError):
        require(store, one.claim)
    store.before = None
    one.check()
    assert (one.problem, one.lost) == ("", "")


def test_a_claim_that_was_removed_or_damaged_is_made_anew(store: ObjectStore) -> None:
    one = owner(store, 1)
    one.take()
    for spoil in (lambda: store.delete(OWNER), lambda: store.put(OWNER, b"{"), lambda: store.put(OWNER, b"[" * 9999)):
        spoil()
        one.check()
        assert not one.lost and not one.problem
        found = read_claim(store)
        assert found is not None and found.claim == one.claim


def test_a_write_whose_answer_was_lost_is_known_as_ours() -> None:
    store = FakeStore()
    one = owner(store, 1)
    real = store.put

    def put(name: str, data: bytes, *, if_generation: str | None = None) -> object:
        real(name, data, if_generation=if_generation)
        store.put = real  # type: ignore[method-assign]
        raise IrisError("the answer was lost")

    store.put = put  # type: ignore[method-assign, assignment]
    with pytest.raises(IrisError):
        one.take()
    one.check()
    assert not one.lost and not one.problem


def test_what_others_wrote_into_a_claim_is_harmless(tmp_path: Path) -> None:
    store = FakeStore()
    one = owner(store, 1)
    one.take()
    forged = {"claim": "x", "host": "evil\x1b[31m\nhost", "pid": 3, "state_dir": "/x", "claimed_at_ms": 1}
    store.put(OWNER, json.dumps(forged).encode())
    one.check()
    assert one.lost and "\n" not in one.lost and "\x1b" not in one.lost
