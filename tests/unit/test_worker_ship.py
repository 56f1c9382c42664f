"""The worker's shipper against a store that refuses lines: nothing waits behind one for ever, and what is lost is said."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc

from iris_controller.finelog.service import LogService
from iris_controller.finelog.store import Store
from iris_controller.worker.batches import Line, halves, instead
from iris_controller.worker.lines import PART_BYTES
from iris_controller.worker.ship import Shipper
from iris_controller.worker.spool import Spool
from iris_core.wire.gen.iris.v1 import logs_pb2
from tests.unit.finelog_world import batch, page

if TYPE_CHECKING:
    from pathlib import Path


def test_lines_that_the_store_refuses_become_gaps_and_hold_up_no_other(tmp_path: Path) -> None:
    async def body() -> None:
        store = Store(tmp_path / "store")
        service = LogService(store)
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((service.handlers(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        spool = Spool(tmp_path / "spool", 16 << 20)
        spool.recover()
        shipper = Shipper(spool, None)
        spool.on_data = shipper.wake
        bad, other = spool.open("bad", "/u/j/0:0"), spool.open("other", "/u/j/1:0")
        too_long = Line("stdout", "x" * (PART_BYTES + 1))
        lines = [Line("stdout", f"line {number}") for number in range(7)]
        spool.append(bad, [*lines[:3], too_long, lines[3], too_long, too_long], 1_000)
        spool.append(other, lines, 1_000)
        spool.append(bad, lines[4:], 1_000)
        shipper.reach([(f"127.0.0.1:{port}", False)])
        running = asyncio.create_task(shipper.run())
        async with asyncio.timeout(60):
            await shipper.shipped()
        health = shipper.health()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.stop(None)

        stored = page(store, "/u/j/0:0")
        assert [line.number for line in stored] == list(range(10))
        assert [line.number for line in stored if line.gap] == [3, 5, 6]
        assert [line.data for line in stored if not line.gap] == [line.data for line in lines]
        assert all("refused" in line.data and "262145 bytes" in line.data for line in stored if line.gap)
        assert [line.data for line in page(store, "/u/j/1:0")] == [line.data for line in lines]
        assert (health.lost_lines, health.waiting_bytes, health.problem) == (3, 0, "")
        spool.shut()
        await service.close()
        store.close()

    asyncio.run(body())


def test_halves_keep_every_line_and_the_order_of_each_producer() -> None:
    request = logs_pb2.PushLogsRequest(
        batches=[batch("abc", producer="p0"), batch("de", producer="p1"), batch("f", producer="p0", first=3)]
    )
    bodies = halves(request.SerializeToString())
    assert len(bodies) == 2
    found = [
        (part.producer, part.attempt_uid, entry.number, entry.data)
        for body in bodies
        for part in logs_pb2.PushLogsRequest.FromString(body).batches
        for entry in part.entries
    ]
    assert found == [
        (part.producer, part.attempt_uid, entry.number, entry.data)
        for part in request.batches
        for entry in part.entries
    ]


def test_a_line_becomes_a_gap_and_a_gap_nothing() -> None:
    one = logs_pb2.PushLogsRequest(batches=[batch("a", first=5)]).SerializeToString()
    assert halves(one) == [one]
    gap = instead(one, "why")
    assert gap is not None
    (entry,) = logs_pb2.PushLogsRequest.FromString(gap).batches[0].entries
    assert (entry.number, entry.gap, entry.data) == (5, 1, "why")
    assert instead(gap, "again") is None
