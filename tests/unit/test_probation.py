"""A release on probation: who ends it, when, and that whoever loses the compare-and-set obeys what stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from iris_controller.checkpoint.choose import NoState
from iris_controller.checkpoint.served import note_served
from iris_controller.probation import COMMIT_S, LOOK_S, Probation, on_probation
from iris_controller.rpc.errors import RpcError
from iris_core.procedures import record
from iris_core.procedures.record import Phase, RolloutRecord
from providers.fake.clock import FakeClock
from providers.fake.objects import FakeStore

NEW, OLD = "2" * 40, "1" * 40
PENDING = RolloutRecord(Phase.PENDING, NEW, OLD, "gs://fake/root/controller-state/5", 7, {"later": 1})


def store_with(standing: RolloutRecord | None) -> FakeStore:
    store = FakeStore()
    if standing is not None:
        store.put(record.RECORD, standing.to_json())
    return store


class Clock(FakeClock):
    """Tells when somebody sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.asleep.set()
        await super().sleep(seconds)


class Proving:
    """A probation that runs, on a clock that stands still."""

    def __init__(self, store: FakeStore) -> None:
        self.store, self.clock = store, Clock()
        self.probation = Probation(store, NEW, self.clock, lambda: 3)
        self.running = asyncio.create_task(self.probation.run())

    async def looked(self) -> None:
        """Until it has looked and waits, or is over."""
        asleep = asyncio.create_task(self.clock.asleep.wait())
        done, _ = await asyncio.wait({self.running, asleep}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert done, "it neither looks nor waits"
        asleep.cancel()

    async def pass_(self, seconds: float) -> None:
        """Time passes, look by look."""
        for _ in range(round(seconds / LOOK_S)):
            await self.looked()
            if self.running.done():
                return
            self.clock.asleep.clear()
            self.clock.advance(LOOK_S)
        await self.looked()

    @property
    def phase(self) -> Phase | None:
        found = record.read(self.store).record
        return found.phase if found is not None else None


@asynccontextmanager
async def proving(store: FakeStore) -> AsyncIterator[Proving]:
    made = Proving(store)
    try:
        yield made
    finally:
        made.running.cancel()
        await asyncio.wait([made.running])


@pytest.mark.parametrize(
    ("standing", "release", "wanted"),
    [
        (None, NEW, False),
        (PENDING, NEW, True),
        (PENDING, OLD, False),
        (PENDING, "", False),
        (RolloutRecord(Phase.COMMITTED, NEW, OLD), NEW, False),
        (RolloutRecord(Phase.COMMITTED, OLD), NEW, False),
        (RolloutRecord(Phase.ROLLED_BACK, OLD), OLD, False),
        (RolloutRecord(Phase.ROLLBACK_REQUESTED, OLD), NEW, True),
        (RolloutRecord(Phase.ROLLBACK_REQUESTED, OLD), OLD, False),
    ],
)
def test_only_the_release_that_is_pending_or_to_be_replaced_starts_on_probation(
    tmp_path: Path, standing: RolloutRecord | None, release: str, wanted: bool
) -> None:
    assert on_probation(store_with(standing), release, tmp_path) is wanted


def test_without_the_record_only_the_release_that_served_last_starts(tmp_path: Path) -> None:
    store = store_with(PENDING)
    store.fail(reason="no route to host")
    for _ in range(2):
        with pytest.raises(NoState, match="no route to host"):
            on_probation(store, NEW, tmp_path)
        note_served(tmp_path, OLD)
    assert on_probation(store, OLD, tmp_path) is False
    assert on_probation(store, "", tmp_path) is False, "what was never deployed is on no probation"


@pytest.mark.asyncio
async def test_the_driver_ends_it_and_until_then_everything_is_refused() -> None:
    store = store_with(PENDING)
    async with proving(store) as p:
        await p.pass_(5)
        with pytest.raises(RpcError) as refused:
            p.probation.refuse()
        assert (refused.value.status, refused.value.code) == ("UNAVAILABLE", "on_probation")
        assert refused.value.retry_after_ms > 0 and "on probation" in refused.value.message
        assert "on probation" in p.probation.problem() and "workers attached: 3" in p.probation.problem()
        standing = record.read(store)
        record.write(store, record.committed(standing, NEW, 9), standing)
        await p.pass_(LOOK_S)
        assert p.running.done() and not p.probation.problem()
        p.probation.refuse()


@pytest.mark.asyncio
async def test_without_a_driver_it_commits_itself_two_minutes_after_it_became_healthy() -> None:
    store = store_with(PENDING)
    async with proving(store) as p:
        await p.pass_(COMMIT_S - LOOK_S)
        assert not p.running.done() and p.phase is Phase.PENDING
        await p.pass_(2 * LOOK_S)
        assert p.running.done()
    found = record.read(store).record
    assert found is not None and found.phase is Phase.COMMITTED and found.others == {"later": 1}
    assert (found.image, found.previous_image, found.rollback_checkpoint) == (
        NEW,
        OLD,
        PENDING.rollback_checkpoint,
    )


def before_the_write(store: FakeStore, made: Callable[[record.Standing], RolloutRecord]) -> None:
    """The next write of the record finds that the driver was faster."""

    def driver(verb: str, name: str) -> None:
        if (verb, name) == ("write", record.RECORD):
            store.before = None
            standing = record.read(store)
            record.write(store, made(standing), standing)

    store.before = driver


@pytest.mark.asyncio
async def test_a_controller_that_loses_to_a_rollback_never_acts() -> None:
    store = store_with(PENDING)
    async with proving(store) as p:
        await p.pass_(COMMIT_S - LOOK_S)
        before_the_write(store, lambda standing: record.rollback_requested(standing, 11))
        await p.pass_(2 * COMMIT_S)
        assert not p.running.done() and p.phase is Phase.ROLLBACK_REQUESTED
        assert "rollback_requested of 1111" in p.probation.problem()
        with pytest.raises(RpcError):
            p.probation.refuse()


@pytest.mark.asyncio
async def test_a_controller_that_loses_to_a_commit_acts() -> None:
    store = store_with(PENDING)
    async with proving(store) as p:
        await p.pass_(COMMIT_S - LOOK_S)
        before_the_write(store, lambda standing: record.committed(standing, NEW, 11))
        await p.pass_(3 * LOOK_S)
        assert p.running.done()
        found = record.read(store).record
        assert found is not None and found.updated_at_ms == 11, "the driver's stands"


@pytest.mark.asyncio
async def test_a_store_that_is_away_keeps_it_on_probation_and_a_lost_answer_is_looked_for() -> None:
    store = store_with(PENDING)
    async with proving(store) as p:
        await p.pass_(2)
        store.fail(reason="no route to host")
        await p.pass_(2 * COMMIT_S)
        assert not p.running.done() and "no route to host" in p.probation.problem()

        def lost(verb: str, name: str) -> None:
            if verb == "write":
                store.before = None
                standing = record.read(store)
                record.write(store, record.committed(standing, NEW, 13), standing)
                store.fail("write", reason="the connection broke")
                store.before("write", name)  # type: ignore[misc]

        store.before = lost
        await p.pass_(3)
        assert p.running.done(), "its own write, whose answer was lost, is found"
