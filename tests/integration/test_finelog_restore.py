"""A finelog whose disk is gone: started on an empty folder it has every row that was shipped, once, and says what it has not."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_controller.finelog.shipping import manifest as manifests
from iris_controller.finelog.shipping import reclaim
from iris_controller.finelog_process import FinelogProcess
from iris_core.wire.gen.iris.v1 import logs_pb2, pipeline_pb2, stats_pb2
from tests.conftest import RequireService
from tests.integration.finelog_process import DEADLINE, PREFIX, Finelog, finelog
from tests.unit.finelog_world import numbered
from tests.unit.object_servers import binary, gcs_server
from tests.unit.tables_world import METRIC, metrics

KEY = "/u/shipped/{}:0"


@pytest.fixture(params=["file", "gs"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require_service: RequireService
) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/remote"
        return
    require_service(binary(), "fake-gcs-server is not installed")
    with gcs_server(tmp_path / "gcs", "bucket") as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        yield "gs://bucket/finelog"


def health(running: Finelog) -> pipeline_pb2.StoreHealth:
    answer: logs_pb2.GetStoreHealthResponse = running.call("GetStoreHealth")(logs_pb2.GetStoreHealthRequest())
    return answer.store


def until_shipped(running: Finelog, rows: int) -> pipeline_pb2.ShippingHealth:
    """Waits until the lines up to the last one, and so many rows of tables, are in the object store."""
    deadline = time.monotonic() + DEADLINE
    while True:
        found = health(running)
        shipped = found.shipping.shipped_seq
        if shipped.get("log", 0) >= found.last_seq and shipped.get("tables", 0) >= rows:
            return found.shipping
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def until_state(running: Finelog, state: str) -> pipeline_pb2.ShippingHealth:
    """Waits until that is how shipping is."""
    deadline = time.monotonic() + DEADLINE
    while (found := health(running).shipping).state != state:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def write(running: Finelog, batch: stats_pb2.RowBatch) -> stats_pb2.WriteRowsResponse:
    answer: stats_pb2.WriteRowsResponse = running.call("StatsService/WriteRows")(
        stats_pb2.WriteRowsRequest(batches=[batch])
    )
    return answer


def status(running: Finelog) -> stats_pb2.TableStatus:
    answer: stats_pb2.GetTableStatusResponse = running.call("StatsService/GetTableStatus")(
        stats_pb2.GetTableStatusRequest(table=METRIC.name)
    )
    return answer.status


def test_a_lost_disk_comes_back_from_the_object_store(tmp_path: Path, place: str) -> None:
    from iris_core.wire.rows import table_to_wire

    with finelog(tmp_path, "--remote", place, "--ship-seconds", "1") as running:
        running.call("StatsService/RegisterTable")(stats_pb2.RegisterTableRequest(schema=table_to_wire(METRIC)))
        for rank in range(3):
            running.push(numbered(100, producer=f"p{rank}", key=KEY.format(rank)))
        write(running, metrics(0, 50))
        until_shipped(running, 50)
        before = running.page("/u/shipped/", match_scope=PREFIX)
        cursor = running.fetch(KEY.format(0)).cursor
    # What comes now is acknowledged, and does not get away any more.
    with finelog(tmp_path, "--remote", place, "--ship-seconds", "3600") as running:
        running.push(numbered(10, first=100, producer="p0", key=KEY.format(0)))
        write(running, metrics(50, 5))
        told = health(running).shipping
        assert told.unshipped_bytes > 0 and told.place == place
        assert running.fetch(KEY.format(0)).unshipped_since_ms > 0
        running.kill()
    shutil.rmtree(tmp_path / "logs")
    with finelog(tmp_path, "--remote", place, "--ship-seconds", "1") as running:
        assert running.page("/u/shipped/", match_scope=PREFIX) == before
        # Producers go on where they were: what is missing between is a gap of theirs, and an old cursor goes on, too.
        running.push(numbered(10, first=110, producer="p0", key=KEY.format(0)))
        running.push(numbered(100, producer="p1", key=KEY.format(1)))
        answer = running.fetch(KEY.format(0), cursor=cursor)
        assert [(line.number, line.gap) for line in answer.entries if line.gap] == [(100, 10)]
        assert [line.number for line in answer.entries if not line.gap] == list(range(110, 120))
        assert "not yet in the object store when the disk was lost" in running.fetch(KEY.format(0)).capped_reason
        assert len(running.page(KEY.format(1))) == 100
        assert (status(running).rows, status(running).missing_rows) == (50, 0)
        assert write(running, metrics(60, 5)).missing == 10
        assert (status(running).rows, status(running).missing_rows) == (55, 10)
        until_shipped(running, 1)
        running.kill()
    # And once more, after a merge of nothing and a restart: still each row once.
    shutil.rmtree(tmp_path / "logs")
    with finelog(tmp_path, "--remote", place, "--ship-seconds", "1") as running:
        lines = [line.number for line in running.page(KEY.format(0)) if not line.gap]
        assert lines == [*range(100), *range(110, 120)]


def test_an_empty_disk_is_no_new_store_where_the_old_one_cannot_be_told(tmp_path: Path) -> None:
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / manifests.NAME).write_bytes(b"torn")
    refused = subprocess.run(
        Finelog(tmp_path, "--remote", f"file://{tmp_path}/remote").command(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert "finelog: the manifest of the shipped segments cannot be read" in refused.stderr
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["lock"]


def test_who_is_told_to_take_over_ships_again_and_the_other_does_not(tmp_path: Path) -> None:
    remote = ("--remote", f"file://{tmp_path}/remote", "--ship-seconds", "1")
    with finelog(tmp_path / "a", *remote) as first:
        first.push(numbered(10, producer="p", key=KEY.format(0)))
        until_shipped(first, 0)
    with finelog(tmp_path / "b", *remote) as second:
        second.push(numbered(10, first=10, producer="p", key=KEY.format(0)))
        newest = until_shipped(second, 0).shipped_seq["log"]
        with finelog(tmp_path / "a", *remote) as first:
            until_state(first, "stopped")
            first.push(numbered(5, first=10, producer="p", key=KEY.format(0)))
        reclaim.ask(tmp_path / "a" / "logs")
        with finelog(tmp_path / "a", *remote) as first:
            assert not reclaim.is_asked(tmp_path / "a" / "logs")
            first.push(numbered(5, first=15, producer="p", key=KEY.format(0)))
            lines = first.page(KEY.format(0))
            assert [line.number for line in lines if not line.gap] == list(range(20))
            assert all(line.seq > newest for line in lines if line.number >= 15)
            until_shipped(first, 0)
            assert "this one took over" in first.fetch(KEY.format(0)).capped_reason
            second.push(numbered(5, first=20, producer="p", key=KEY.format(0)))
            assert "--take-over" in until_state(second, "stopped").problem


@pytest.mark.asyncio
async def test_a_log_store_that_runs_is_started_again_to_take_over(tmp_path: Path) -> None:
    options = (f"--remote=file://{tmp_path}/remote",)
    first, second = FinelogProcess(tmp_path, options), FinelogProcess(tmp_path, options)
    await first.start()
    known = first._known
    assert known is not None
    second.take_over()
    await second.start()
    try:
        assert second.address and second._known != known and not known.alive
        assert not reclaim.is_asked(tmp_path / "data")
    finally:
        if first._child is not None:
            first._child.wait(DEADLINE)
        assert await second.stop()
