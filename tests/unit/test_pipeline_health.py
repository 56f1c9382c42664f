"""How each stretch of a line's way says it is: the parts of long lines, the worker's spool and shipping, the controller's own lines."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.finelog.client import LogShipper
from iris_controller.rpc.pipeline import problems
from iris_controller.worker import lines as worker_lines
from iris_controller.worker.batches import Line, entries
from iris_controller.worker.lines import LineSplitter, Parts
from iris_controller.worker.ship import Shipper
from iris_controller.worker.spool import Spool
from iris_core.wire.gen.iris.v1 import logs_pb2, pipeline_pb2

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE = 30.0


@settings(max_examples=60, deadline=None)
@given(
    text=st.text("ab", min_size=1, max_size=80),
    cuts=st.lists(st.integers(1, 20), max_size=8),
    seam=st.integers(1, 9),
    data=st.data(),
)
def test_whatever_is_no_longer_than_a_seam_is_found_in_some_part(
    text: str, cuts: list[int], seam: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_lines, "SEAM_CHARACTERS", seam)
        splitter, parts = LineSplitter(), Parts("stdout")
        found: list[Line] = []
        at = 0
        for cut in cuts:
            found += parts.lines(splitter.feed(text[at : at + cut].encode()), len(found))
            found += parts.lines(splitter.flush(), len(found))
            at += cut
        found += parts.lines(splitter.feed(text[at:].encode() + b"\n"), len(found))
    assert "".join(line.data for line in found) == text
    assert [line.part for line in found] == list(range(len(found)))
    assert [line.partial for line in found] == [True] * (len(found) - 1) + [False]
    start = data.draw(st.integers(0, len(text) - 1))
    needle = text[start : start + seam]
    assert any(needle in line.data or needle in line.seam for line in found)


def test_parts_have_the_level_of_their_line_and_the_next_line_begins_anew() -> None:
    parts = Parts("stderr")
    pieces = [worker_lines.Piece(b"ERROR: it ", True), worker_lines.Piece(b"INFO broke", False)]
    first, second, third = parts.lines([*pieces, worker_lines.Piece(b"fine", False)], 0)
    assert (first.level, second.level, third.level) == (4, 4, 0)
    assert (second.part, second.seam, third.part, third.seam) == (1, "ERROR: it INFO broke", 0, "")
    stored = logs_pb2.LogBatch.FromString(entries([first, second, third], 0, 5)).entries
    assert [(entry.part, entry.seam, entry.partial) for entry in stored] == [
        (0, "", True),
        (1, "ERROR: it INFO broke", False),
        (0, "", False),
    ]


def test_a_spool_that_nobody_takes_from_says_how_much_waits_and_why(tmp_path: Path) -> None:
    async def body() -> None:
        spool = Spool(tmp_path / "spool", 1 << 20)
        spool.recover()
        shipper = Shipper(spool, None)
        spool.on_data = shipper.wake
        quiet = shipper.health()
        assert (quiet.waiting_bytes, quiet.lag_ms, quiet.lines, quiet.problem) == (0, 0, 0, "")
        producer = spool.open("p", "/u/j/0:0")
        spool.append(producer, [Line("stdout", "x" * 100)] * 3, 1_000)
        # Bound, and nobody listens: refused at once, and nobody else can have it.
        taken = socket.socket()
        taken.bind(("127.0.0.1", 0))
        shipper.reach([(f"127.0.0.1:{taken.getsockname()[1]}", False)])
        running = asyncio.create_task(shipper.run())
        async with asyncio.timeout(DEADLINE):
            while not shipper.health().problem:  # noqa: ASYNC110 (it tells nobody when that changes)
                await asyncio.sleep(0.01)
        late = shipper.health()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        taken.close()
        assert (late.lines, late.lost_lines, late.last_line_at_ms, late.last_ack_at_ms) == (3, 0, 1_000, 0)
        assert late.waiting_bytes > 300 and late.spool_bytes >= late.waiting_bytes and late.spool_cap_bytes == 1 << 20
        # Written in 1970: it has waited for decades.
        assert late.lag_ms > 10**12
        spool.shut()

    asyncio.run(body())


def test_lost_lines_are_counted_whatever_lost_them(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", 64 << 10)
    spool.recover()
    producer = spool.open("p", "/u/j/0:0")
    for _ in range(40):
        spool.append(producer, [Line("stdout", "x" * 1000)] * 10, 5)
    assert spool.lines == 400
    assert 0 < spool.lost < 400
    before = spool.lost
    spool.append_gap(producer, 7, "the worker was killed", 5)
    assert (spool.lost, spool.lines) == (before + 7, 407)
    spool.shut()


def test_the_controller_s_own_lines_say_how_they_are() -> None:
    shipper = LogShipper(lambda: "", "/system/controller", "boot", max_queue_bytes=2_000)
    assert not shipper.health().lag_ms
    shipper.ship("one", epoch_ms=1_000)
    found = shipper.health()
    assert (found.lines, found.lost_lines, found.last_line_at_ms) == (1, 0, 1_000)
    assert found.lag_ms > 10**12 and 0 < found.waiting_bytes <= found.spool_cap_bytes == 2_000
    for _ in range(50):
        shipper.ship("x" * 100, epoch_ms=2_000)
    assert shipper.health().lost_lines > 20


def worker(name: str, *, attached: bool = True, **fields: object) -> pipeline_pb2.WorkerPipeline:
    shipper = pipeline_pb2.ShipperHealth(**fields)  # type: ignore[arg-type]
    return pipeline_pb2.WorkerPipeline(worker_id=name, attached=attached, shipper=shipper)


def test_what_is_wrong_is_a_line_each_and_nothing_is_made_of_what_is_right() -> None:
    serving = pipeline_pb2.StoreHealth(state="serving")
    fine = pipeline_pb2.GetPipelineHealthResponse(
        store=serving,
        workers=[worker("w0", lag_ms=300), pipeline_pb2.WorkerPipeline(worker_id="old", attached=True)],
    )
    assert problems(fine) == []
    bad = pipeline_pb2.GetPipelineHealthResponse(
        store=pipeline_pb2.StoreHealth(state="refusing", problem="no space left on device"),
        workers=[
            worker("w0", attached=False),
            worker("w1", lag_ms=75_000, waiting_bytes=4096, spool_cap_bytes=8192, problem="UNAVAILABLE: refused"),
            worker("w2", problem="UNAVAILABLE: refused", lost_lines=1200),
            pipeline_pb2.WorkerPipeline(
                worker_id="w3", attached=True, age_ms=7_900, shipper=pipeline_pb2.ShipperHealth()
            ),
        ],
        controller=pipeline_pb2.ShipperHealth(lost_lines=3, lag_ms=12_000),
    )
    assert problems(bad) == [
        "the log store is refusing: no space left on device",
        "worker w0 is not reachable: what its tasks print is not seen until it is",
        "worker w1 is 1m15s behind with its log lines (4,096 of 8,192 bytes wait): UNAVAILABLE: refused",
        "worker w2 cannot deliver its log lines: UNAVAILABLE: refused",
        "worker w2 lost 1,200 log lines since it started",
        "worker w3 has said nothing for 7s",
        "3 lines of the controller's own log are lost",
        "the controller's own log is 12s behind",
    ]
    one = pipeline_pb2.GetPipelineHealthResponse(
        store=serving, workers=[worker("w0", lost_lines=1)], controller=pipeline_pb2.ShipperHealth(lost_lines=1)
    )
    assert problems(one) == [
        "worker w0 lost 1 log line since it started",
        "1 line of the controller's own log is lost",
    ]
    down = pipeline_pb2.GetPipelineHealthResponse(store=pipeline_pb2.StoreHealth(state="down", problem="restarting"))
    assert problems(down) == ["the log store does not answer (restarting); lines are kept by the workers meanwhile"]
