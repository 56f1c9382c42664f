"""The shipper of a process's own log: order, bounds, gaps, and finelog coming and going."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from iris_controller.finelog import client as clients
from iris_controller.finelog.client import LogShipper, ShippingHandler
from iris_controller.finelog.service import LogService
from iris_controller.finelog.store import Store
from iris_controller.rpc.passthrough import PassThrough
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2
from tests.unit.finelog_world import EXACT, page, texts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KEY = "/system/controller"


class Site:
    """A store whose server comes and goes; `address` is what the shipper asks for."""

    def __init__(self, folder: Path) -> None:
        self.address = ""
        self.store = Store(folder)
        self._server: Any = None
        self._service = LogService(self.store)

    async def up(self) -> None:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((self._service.handlers(),))
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        self._server = server

    async def until(self, number: int) -> None:
        """Waits until all lines below `number` are stored."""
        cursor = 0
        async with asyncio.timeout(30):
            while self.store.mark("boot") < number:
                request = logs_pb2.FetchLogsRequest(source=KEY, match_scope=EXACT, cursor=cursor, wait_ms=30_000)
                raw = await self._service.fetch_logs(request.SerializeToString())
                cursor = logs_pb2.FetchLogsResponse.FromString(raw).cursor

    async def down(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
        self.address = ""

    async def close(self) -> None:
        await self.down()
        await self._service.close()
        self.store.close()


@asynccontextmanager
async def shipping(folder: Path, **options: int) -> AsyncIterator[tuple[Site, LogShipper]]:
    """A site that is down, and a shipper that has started."""
    site = Site(folder)
    shipper = LogShipper(lambda: site.address, KEY, "boot", **options)
    shipper.start()
    try:
        yield site, shipper
    finally:
        await shipper.close(0)
        await site.close()


@pytest.mark.asyncio
async def test_lines_arrive_in_order_through_an_outage(tmp_path: Path) -> None:
    async with shipping(tmp_path) as (site, shipper):
        shipper.ship("before it is up", level=common_pb2.LOG_LEVEL_WARNING, epoch_ms=5)
        await site.up()
        await asyncio.to_thread(shipper.ship, "from a thread")
        assert await shipper.close() == 0
        lines = page(site.store, KEY)
        assert texts(lines) == ["before it is up", "from a thread"]
        assert (lines[0].level, lines[0].epoch_ms, lines[0].source) == (common_pb2.LOG_LEVEL_WARNING, 5, "iris")
        assert lines[1].epoch_ms > 1_700_000_000_000
        assert site.store.mark("boot") == 2


@pytest.mark.asyncio
async def test_it_follows_a_server_that_moves(tmp_path: Path) -> None:
    async with shipping(tmp_path) as (site, shipper):
        for round_ in range(3):
            await site.up()
            shipper.ship(f"round {round_}")
            await site.until(round_ + 1)
            await site.down()
        assert texts(page(site.store, KEY)) == ["round 0", "round 1", "round 2"]


@pytest.mark.asyncio
async def test_what_does_not_fit_is_counted_and_said(tmp_path: Path) -> None:
    async with shipping(tmp_path, max_queue_bytes=20_000) as (site, shipper):
        for number in range(1000):
            shipper.ship(f"{number:0100}")
        assert 800 < shipper.lost_lines < 1000
        await site.up()
        assert await shipper.close() == 0
        lines = page(site.store, KEY)
        assert lines[0].gap == shipper.lost_lines
        assert f"{shipper.lost_lines} lines were dropped" in lines[0].data
        assert [int(line.data) for line in lines[1:]] == list(range(shipper.lost_lines, 1000))


@pytest.mark.asyncio
async def test_lines_that_go_while_they_are_on_their_way_are_not_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shipping(tmp_path, max_queue_bytes=20_000) as (site, shipper):
        original = PassThrough.unary
        under_way, go_on = asyncio.Event(), asyncio.Event()

        async def slow(self: PassThrough, *arguments: Any) -> Any:
            answer = await original(self, *arguments)
            under_way.set()
            await go_on.wait()
            return answer

        monkeypatch.setattr(PassThrough, "unary", slow)
        await site.up()
        for number in range(50):
            shipper.ship(f"{number:0100}")
        async with asyncio.timeout(30):
            await under_way.wait()
        for number in range(50, 150):
            shipper.ship(f"{number:0100}")
        assert shipper.lost_lines > 0
        go_on.set()
        assert await shipper.close() == 0
        lines = page(site.store, KEY)
        assert sum(line.gap for line in lines) == shipper.lost_lines
        assert sum(1 for line in lines if not line.gap) + shipper.lost_lines == 150


@pytest.mark.asyncio
async def test_a_long_line_goes_in_parts_and_odd_text_does_not_stop_it(tmp_path: Path) -> None:
    async with shipping(tmp_path) as (site, shipper):
        await site.up()
        shipper.ship("é" * 300_000)
        shipper.ship("lone \ud800 surrogate\n\0")
        assert await shipper.close() == 0
        lines = page(site.store, KEY)
        assert [line.partial for line in lines] == [True, True, False, False]
        assert "".join(texts(lines[:3])) == "é" * 300_000
        assert lines[3].data == "lone ? surrogate\n\0"


@pytest.mark.asyncio
async def test_a_refusal_does_not_hold_up_what_follows(tmp_path: Path) -> None:
    async with shipping(tmp_path) as (site, shipper):
        with pytest.MonkeyPatch.context() as patch:
            # As another version might: a line that this server does not take.
            patch.setattr(clients, "MAX_LINE_BYTES", 1 << 20)
            for number in range(7):
                shipper.ship("x" * 300_000 if number == 4 else str(number))
        await site.up()
        assert await shipper.close() == 0
        lines = page(site.store, KEY)
        assert [(line.number, line.gap) for line in lines] == [(number, int(number == 4)) for number in range(7)]
        assert [line.data for line in lines if not line.gap] == ["0", "1", "2", "3", "5", "6"]
        assert shipper.lost_lines == 1


@pytest.mark.asyncio
async def test_closing_without_a_server_ends_in_time_and_says_what_is_left(tmp_path: Path) -> None:
    async with shipping(tmp_path) as (_, shipper):
        for number in range(5):
            shipper.ship(str(number))
        async with asyncio.timeout(60):
            assert await shipper.close(0.2) == 5


@pytest.mark.asyncio
async def test_a_logger_can_be_shipped(tmp_path: Path) -> None:
    async with shipping(tmp_path) as (site, shipper):
        await site.up()
        logger = logging.getLogger("test.shipping")
        logger.propagate = False
        handler = ShippingHandler(shipper)
        logger.addHandler(handler)
        try:
            logger.warning("event=%s entity=%s", "worker_failed", "w1")
            logger.critical("end")
        finally:
            logger.removeHandler(handler)
        assert await shipper.close() == 0
        lines = page(site.store, KEY)
        assert texts(lines) == ["event=worker_failed entity=w1", "end"]
        assert [line.level for line in lines] == [common_pb2.LOG_LEVEL_WARNING, common_pb2.LOG_LEVEL_CRITICAL]


def test_shipping_before_the_start_and_after_the_end_is_harmless() -> None:
    async def run() -> LogShipper:
        shipper = LogShipper(lambda: "", KEY, "boot")
        shipper.ship("early")
        shipper.start()
        await shipper.close(0)
        return shipper

    shipper = asyncio.run(run())
    shipper.ship("late")
    assert shipper.lost_lines == 0


def test_the_queue_is_bounded_without_a_loop() -> None:
    shipper = LogShipper(lambda: "", KEY, "boot", max_queue_bytes=10_000)
    for _ in range(10_000):
        shipper.ship("x")
    assert shipper.lost_lines > 9_000
