"""Rows on their way to the store: every one once, in order, whatever breaks; and what had to go is counted."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.stats import client as client_module
from iris_controller.stats.client import CannotPush, StatsClient
from iris_controller.stats.spool import RowSpool, open_spool
from iris_core.model.namespaces import TASK_EVENT, WORKER
from iris_core.wire.gen.iris.v1 import stats_pb2
from iris_core.wire.rows import batch_of, rows_of
from providers.fake.stats import FakeStats, Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

EVENT = TASK_EVENT.name


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "GATHER_S", 0.0)
    monkeypatch.setattr(client_module, "RETRY_S", (0.001, 0.01))


def event(number: int, message: str = "") -> dict[str, Any]:
    return {
        "task_id": f"/u/j/{number}", "attempt_id": 0, "ts": number, "type": "Normal", "reason": "Assigned",
        "message": message, "source": "iris/controller", "count": 1,
    }  # fmt: skip


def reading(number: int) -> dict[str, Any]:
    return {"worker_id": "w1", "ts": number, "status": "IDLE", "cpu_pct": 1}


@asynccontextmanager
async def shipping(
    store: FakeStats, folder: Path | None = None, producer: str = "boot-1", close_s: float = 0.0, **values: Any
) -> AsyncIterator[StatsClient]:
    async def push(body: bytes) -> bytes:
        try:
            return await store.push(body)
        except Unavailable as error:
            raise CannotPush(str(error)) from error
        except Refused as error:
            raise CannotPush(str(error), refused=True) from error

    spool = RowSpool(folder, file_bytes=2_000) if folder is not None else None
    client = StatsClient(push, producer, spool=spool, kept=(TASK_EVENT,), **values)
    client.start()
    try:
        yield client
    finally:
        await client.close(close_s)


def test_every_row_arrives_once_and_in_order_though_answers_are_lost(tmp_path: Path) -> None:
    async def run() -> None:
        store = FakeStats()
        store.lose_answers = 3
        async with shipping(store, tmp_path) as client:
            for number in range(2_500):
                client.write(TASK_EVENT, event(number))
                client.write(WORKER, reading(number))
            events = await store.until_rows(EVENT, 2_500)
            readings = await store.until_rows(WORKER.name, 2_500)
        assert [row["ts"] for row in events] == list(range(2_500))
        assert [row["ts"] for row in readings] == list(range(2_500))
        assert not store.missing[EVENT] and not store.missing[WORKER.name] and client.lost_rows == 0

    asyncio.run(run())


def test_measurements_that_wait_too_long_go_and_the_store_is_told_how_many() -> None:
    async def run() -> None:
        store = FakeStats()
        store.down = True
        async with shipping(store, max_waiting_bytes=20_000) as client:
            for number in range(1_000):
                client.write(WORKER, reading(number))
            await store.until_pushes(2)
            waiting, lost = client.waiting_rows, client.lost_rows
            assert 0 < waiting < 200 and waiting + lost == 1_000
            store.down = False
            rows = await store.until_rows(WORKER.name, waiting)
        assert [row["ts"] for row in rows] == list(range(1_000 - waiting, 1_000)), "the newest are kept"
        assert store.missing[WORKER.name] == lost

    asyncio.run(run())


def test_events_outlive_the_process_that_could_not_deliver_them(tmp_path: Path) -> None:
    async def run() -> None:
        store = FakeStats()
        async with shipping(store, tmp_path) as client:
            client.write(TASK_EVENT, event(0))
            await store.until_rows(EVENT, 1)
            store.down = True
            for number in range(1, 300):
                client.write(TASK_EVENT, event(number))
            # Stored, and the answer is lost: the next process sends it again.
        store.down, store.lose_answers = False, 1
        async with shipping(store, tmp_path, producer="boot-2", close_s=30.0) as client:
            client.write(TASK_EVENT, event(300))
            rows = await store.until_rows(EVENT, 301)
        assert [row["ts"] for row in rows] == list(range(301)) and not store.missing[EVENT]

    asyncio.run(run())
    assert not list(tmp_path.iterdir()), "nothing waits any more"


def test_an_event_that_the_store_refuses_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async def run() -> None:
        store = FakeStats()
        async with shipping(store, tmp_path) as client:
            store.refuse.add(EVENT)
            client.write(TASK_EVENT, event(0))
            await until(lambda: client.lost_rows == 1)
            store.refuse.clear()
            client.write(TASK_EVENT, event(1))
            rows = await store.until_rows(EVENT, 1)
        assert [row["ts"] for row in rows] == [1] and store.missing[EVENT] == 1

    asyncio.run(run())


def test_a_row_that_does_not_fit_its_table_is_counted_and_nobody_fails() -> None:
    async def run() -> None:
        store = FakeStats()
        async with shipping(store) as client:
            client.write(WORKER, {"worker_id": 7})
            await until(lambda: client.lost_rows == 1)
            client.write(WORKER, reading(1))
            await store.until_rows(WORKER.name, 1)

    asyncio.run(run())


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


# The spool by itself -------------------------------------------------------------------------------------------------


def batch(first: int, rows: int, message: str = "") -> stats_pb2.RowBatch:
    return batch_of(TASK_EVENT, "p", first, [event(first + place, message) for place in range(rows)])


def taken(spool: RowSpool) -> list[int]:
    found = [stats_pb2.RowBatch.FromString(body) for body in spool.take(1 << 20)]
    return [row["ts"] for one in found for row in rows_of(one.columns)]


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(st.integers(1, 5), st.just("ack"), st.just("restart"), st.just("tear")), min_size=1, max_size=40
    ),
    st.integers(300, 2_000),
)
def test_the_spool_gives_back_what_was_not_acknowledged(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], file_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool = RowSpool(folder, file_bytes=file_bytes)
    number, acked = 0, 0
    for step in steps:
        if step == "ack":
            head = spool.take(1)
            if head:
                one = stats_pb2.RowBatch.FromString(head[0])
                acked = one.first_number + one.rows
                assert spool.ack({(EVENT, "p"): acked}) == 1
        elif step == "restart":
            spool.close()
            spool = RowSpool(folder, file_bytes=file_bytes)
        elif step == "tear":
            # Killed in the middle of a write: what was whole before it is kept.
            spool.close()
            for path in sorted(folder.iterdir())[-1:]:
                path.write_bytes(path.read_bytes() + b"\x07\x00\x00\x00\xff\x00\x00\x00half")
            spool = RowSpool(folder, file_bytes=file_bytes)
        else:
            spool.append(batch(number, step))
            number += step
        # A file goes with its last batch, so what was acknowledged before a restart may be given once more.
        given_now = taken(spool)
        assert given_now == list(range(number - len(given_now), number)) and number - len(given_now) <= acked
        acked = number - len(given_now)
    assert spool.lost_rows == 0


def test_over_its_cap_the_oldest_events_go_and_are_counted(tmp_path: Path) -> None:
    spool = RowSpool(tmp_path, max_bytes=20_000, file_bytes=2_000)
    for number in range(100):
        spool.append(batch(number, 1, "x" * 400))
    left = taken(spool)
    assert left == list(range(100 - len(left), 100)) and len(left) + spool.lost_rows == 100
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000


def test_on_a_full_disk_events_wait_in_memory_and_come_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    spool = RowSpool(tmp_path)
    spool.append(batch(0, 2))
    real, full = os.write, [True]
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:10]) if full[0] else real(fd, data))
    spool.append(batch(2, 3))
    full[0] = False
    spool.append(batch(5, 1))
    assert taken(spool) == [0, 1, 2, 3, 4, 5]
    assert spool.ack({(EVENT, "p"): 6}) == 3 and spool.empty and not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_is_no_reason_not_to_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert open_spool(tmp_path / "file" / "stats") is None
    assert open_spool(tmp_path / "stats") is not None
