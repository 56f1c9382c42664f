"""Pushes: checks, marks, bounds, a disk that fails and comes back, and one sync for all that wait."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from iris_controller.finelog import groups
from iris_controller.finelog.batches import MAX_LINE_BYTES, MAX_PUSH_BYTES
from iris_controller.finelog.ingest import Ingest
from iris_controller.finelog.store import Store
from iris_controller.rpc.errors import RpcError
from iris_core.wire.gen.iris.v1 import logs_pb2
from tests.unit.finelog_world import Disk, batch, numbered, page, texts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@asynccontextmanager
async def taking_in(store: Store, stored: list[set[str]] | None = None) -> AsyncIterator[Ingest]:
    """An ingest, closed at the end together with its store."""
    ingest = Ingest(store, (stored if stored is not None else []).append)
    try:
        yield ingest
    finally:
        await ingest.close()
        store.close()


def request(*batches: logs_pb2.LogBatch) -> bytes:
    """A push as it comes over the wire."""
    return logs_pb2.PushLogsRequest(batches=batches).SerializeToString()


def marks(response: logs_pb2.PushLogsResponse) -> dict[str, int]:
    """What is told of each producer."""
    return {mark.producer: mark.next_number for mark in response.marks}


@pytest.mark.asyncio
async def test_a_push_is_answered_with_the_marks_of_its_producers(tmp_path: Path) -> None:
    stored: list[set[str]] = []
    async with taking_in(Store(tmp_path), stored) as ingest:
        answer = await ingest.push(
            request(numbered(5), numbered(3, producer="p1", key="/u/j/1:0"), numbered(2, first=5))
        )
        assert marks(answer) == {"p0": 7, "p1": 3}
        assert stored == [{"/u/j/0:0", "/u/j/1:0"}]
        assert marks(await ingest.push(request(numbered(5)))) == {"p0": 7}, "a repeat is harmless"
        assert marks(await ingest.push(request(numbered(4, first=5)))) == {"p0": 9}
        assert len(stored) == 2
        assert marks(await ingest.push(b"")) == {}
        assert marks(await ingest.push(request(logs_pb2.LogBatch(producer="p9", key="/u/j/0:0")))) == {}


@pytest.mark.asyncio
async def test_gap_records_move_the_mark_over_what_is_lost(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with taking_in(store) as ingest:
        made = batch(["a"])
        made.entries.add(number=1, gap=9, data="9 lines lost", source="iris", epoch_ms=5)
        made.entries.add(number=10, data="b", epoch_ms=6)
        assert marks(await ingest.push(request(made))) == {"p0": 11}
        # Known in part: what is known is cut off.
        more = batch([])
        more.producer, more.key = "p0", "/u/j/0:0"
        more.entries.add(number=5, gap=10, data="lost", source="iris", epoch_ms=7)
        assert marks(await ingest.push(request(more))) == {"p0": 15}
        assert marks(await ingest.push(request(numbered(1, first=20)))) == {"p0": 21}
        lines = page(store, "/u/j/0:0")
        assert [(line.number, line.gap) for line in lines] == [(0, 0), (1, 9), (10, 0), (11, 4), (15, 5), (20, 0)]
        assert "5 lines never arrived" in lines[4].data


@pytest.mark.asyncio
async def test_a_line_without_a_time_gets_that_of_its_arrival(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with taking_in(store) as ingest:
        await ingest.push(request(batch(["x"], at_ms=0)))
        assert page(store, "/u/j/0:0")[0].epoch_ms > 1_700_000_000_000


def many_holes() -> logs_pb2.LogBatch:
    made = batch([])
    for number in range(0, 3000, 2):
        made.entries.add(number=number, data="x", epoch_ms=1)
    return made


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (batch(["x"], producer=""), "batches[0].producer"),
        (batch(["x"], producer="a b"), "batches[0].producer"),
        (batch(["x"], producer="a" * 65), "batches[0].producer"),
        (batch(["x"], key=""), "batches[0].key"),
        (batch(["x"], key="u/j"), "batches[0].key"),
        (batch(["x"], key="/u//j"), "batches[0].key"),
        (batch(["x"], key="/u/j\n/0:0"), "batches[0].key"),
        (batch(["x"], key="/u/" + "j" * 2000), "batches[0].key"),
        (batch(["x"], attempt_uid="a\x1b"), "batches[0].attempt_uid"),
        (batch(["ok", "x" * (MAX_LINE_BYTES + 1)]), "batches[0].entries[1]"),
        (batch(["é" * (MAX_LINE_BYTES // 2 + 1)]), "batches[0].entries[0]"),
        (batch(["x"], first=2**63), "batches[0].entries"),
        (many_holes(), "batches[0].entries"),
    ],
)
@pytest.mark.asyncio
async def test_a_push_that_breaks_a_rule_names_the_field_and_stores_nothing(
    tmp_path: Path, made: logs_pb2.LogBatch, field: str
) -> None:
    store = Store(tmp_path)
    async with taking_in(store) as ingest:
        with pytest.raises(RpcError) as caught:
            await ingest.push(request(made))
        assert (caught.value.status, caught.value.field) == ("INVALID_ARGUMENT", field)
        with pytest.raises(RpcError) as caught:
            await ingest.push(request(numbered(1, producer="good"), made))
        assert caught.value.field == field.replace("[0]", "[1]", 1)
        assert store.last_seq == 0


@pytest.mark.asyncio
async def test_lines_out_of_order_are_refused(tmp_path: Path) -> None:
    made = numbered(3)
    made.entries[1].number = 7
    async with taking_in(Store(tmp_path)) as ingest:
        with pytest.raises(RpcError, match="line 2 comes after line 7") as caught:
            await ingest.push(request(made))
        assert caught.value.code == "order"


@pytest.mark.asyncio
async def test_what_is_no_push_and_what_is_too_large_is_refused(tmp_path: Path) -> None:
    async with taking_in(Store(tmp_path)) as ingest:
        for raw in (
            b"\xff\xff",
            b"\x0a\x05abc",
            request(batch(["x"])).replace(b"stdout", b"st\xffout"),
            os.urandom(100_000),
        ):
            with pytest.raises(RpcError) as caught:
                await ingest.push(raw)
            assert (caught.value.status, caught.value.code) == ("INVALID_ARGUMENT", "malformed")
        with pytest.raises(RpcError, match="more than 4194304") as caught:
            await ingest.push(b"\0" * (MAX_PUSH_BYTES + 1))
        assert caught.value.code == "push_too_large"


@pytest.mark.asyncio
async def test_the_largest_line_and_push_are_taken(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with taking_in(store) as ingest:
        made = batch(["x" * MAX_LINE_BYTES] * 15)
        made.entries[3].raw = b"\xff" * (MAX_LINE_BYTES // 2)
        assert marks(await ingest.push(request(made))) == {"p0": 15}
        assert [len(text) for text in texts(page(store, "/u/j/0:0"))] == [MAX_LINE_BYTES] * 15


@pytest.mark.asyncio
async def test_all_that_wait_for_a_sync_share_the_next(tmp_path: Path) -> None:
    disk = Disk()
    gate, reached = threading.Event(), threading.Event()

    def slow(descriptor: int) -> None:
        reached.set()
        assert gate.wait(30)
        disk(descriptor)

    store = Store(tmp_path)
    await asyncio.to_thread(store.close)
    store = Store(tmp_path, sync=slow)
    async with taking_in(store) as ingest:
        gate.set()
        await ingest.push(request(numbered(1)))
        gate.clear()
        reached.clear()
        first = asyncio.create_task(ingest.push(request(numbered(1, first=1))))
        assert await asyncio.to_thread(reached.wait, 30)
        before = disk.syncs
        rest = [asyncio.create_task(ingest.push(request(numbered(2, producer=f"q{place}")))) for place in range(40)]
        await asyncio.sleep(0)
        assert not first.done(), "nothing is acknowledged before its sync"
        gate.set()
        await asyncio.gather(first, *rest)
        assert disk.syncs - before == 2
        assert store.last_seq == 82


@pytest.mark.asyncio
async def test_a_full_disk_refuses_with_a_time_to_retry_and_recovers_by_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    store = Store(tmp_path, sync=disk)
    async with taking_in(store) as ingest:
        await ingest.push(request(numbered(3)))
        for number, status, code in (
            (errno.ENOSPC, "RESOURCE_EXHAUSTED", "disk_full"),
            (errno.EIO, "UNAVAILABLE", "disk_error"),
        ):
            disk.fault = OSError(number, os.strerror(number))
            for _ in range(3):
                with pytest.raises(RpcError) as caught:
                    await ingest.push(request(numbered(3, first=3)))
                assert (caught.value.status, caught.value.code) == (status, code)
                assert caught.value.retry_after_ms > 0
            assert marks(await ingest.push(request(numbered(2)))) == {"p0": 3}, "a repeat needs no disk"
            assert len(page(store, "/u/j/0:0")) == 3
        disk.fault = None
        assert marks(await ingest.push(request(numbered(3, first=3)))) == {"p0": 6}
        assert len(page(store, "/u/j/0:0")) == 6
    assert caplog.text.count("pushes are refused until it can") == 1, "a lasting fault is said now and then"
    assert "works again" in caplog.text


@pytest.mark.asyncio
async def test_a_fault_of_ours_fails_the_push_and_not_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    disk.fault = RuntimeError("a bug")
    async with taking_in(Store(tmp_path, sync=disk)) as ingest:
        with pytest.raises(RpcError) as caught:
            await ingest.push(request(numbered(1)))
        assert caught.value.status == "INTERNAL"
        assert "a bug" not in caught.value.message
        disk.fault = None
        assert marks(await ingest.push(request(numbered(1)))) == {"p0": 1}
    assert "a bug" in caplog.text


@pytest.mark.asyncio
async def test_what_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MAX_WAITING_BYTES", 300_000)
    gate = threading.Event()

    def stuck(descriptor: int) -> None:
        assert gate.wait(30)
        os.fdatasync(descriptor)

    store = Store(tmp_path, sync=stuck)
    async with taking_in(store) as ingest:
        tasks = [
            asyncio.create_task(ingest.push(request(batch(["x" * 50_000], producer=f"q{place}"))))
            for place in range(20)
        ]
        done, waiting = await asyncio.wait(tasks, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 15:
            more, waiting = await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        for task in done:
            error = task.exception()
            assert isinstance(error, RpcError)
            assert (error.status, error.code) == ("RESOURCE_EXHAUSTED", "busy")
            assert error.retry_after_ms > 0
        assert len(waiting) == 5
        gate.set()
        await asyncio.gather(*waiting)
        assert store.last_seq == 5
        await ingest.push(request(batch(["x" * 50_000], producer="later")))


@pytest.mark.asyncio
async def test_a_caller_that_left_blocks_nobody(tmp_path: Path) -> None:
    gate, reached = threading.Event(), threading.Event()

    def slow(descriptor: int) -> None:
        reached.set()
        assert gate.wait(30)
        os.fdatasync(descriptor)

    store = Store(tmp_path, sync=slow)
    async with taking_in(store) as ingest:
        leaving = asyncio.create_task(ingest.push(request(numbered(1))))
        assert await asyncio.to_thread(reached.wait, 30)
        leaving.cancel()
        staying = asyncio.create_task(ingest.push(request(numbered(1, producer="p1"))))
        gate.set()
        assert marks(await staying) == {"p1": 1}
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert store.mark("p0") == 1


@pytest.mark.asyncio
async def test_closing_stores_what_waits_and_refuses_the_rest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ingest = Ingest(store, lambda _: None)
    pushes = [asyncio.create_task(ingest.push(request(numbered(1, producer=f"q{place}")))) for place in range(10)]
    await asyncio.sleep(0)
    await ingest.close()
    await asyncio.gather(*pushes)
    assert store.last_seq == 10
    with pytest.raises(RpcError) as caught:
        await ingest.push(request(numbered(1)))
    assert (caught.value.status, caught.value.code) == ("UNAVAILABLE", "stopping")
    store.close()
