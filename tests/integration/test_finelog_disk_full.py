"""finelog on a disk that is really full: pushes are refused whole, reads go on, and it recovers without a restart."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import grpc
import pytest

from iris_core.wire.gen.iris.v1 import common_pb2
from tests.integration.finelog_process import Finelog, finelog
from tests.unit.finelog_world import batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import RequireService

SIZE = 8 << 20
KEY = "/u/j/0:0"


@pytest.fixture
def small_disk(tmp_path: Path, require_service: RequireService) -> Iterator[Path]:
    """A file system of 8 MiB."""
    require_service(os.geteuid() == 0, "mounting a small file system needs root")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(place)], check=False)
    require_service(mounted.returncode == 0, "cannot mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def push_until_full(running: Finelog, first: int, size: int) -> tuple[int, grpc.RpcError]:
    """How many lines were acknowledged, and what ended it."""
    for _ in range(100_000):
        try:
            first = running.push(batch(["x" * size] * 10, first=first))["p0"]
        except grpc.RpcError as error:
            return first, error
    raise AssertionError("the disk never got full")


def test_a_full_disk_loses_nothing_and_needs_no_restart(small_disk: Path) -> None:
    with finelog(small_disk) as running:
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"\0" * (4 << 20))
        stored = 0
        # From large pushes to tiny ones: the last bytes get used up, too.
        for size in (20_000, 500, 1):
            stored, error = push_until_full(running, stored, size)
            assert isinstance(error, grpc.Call)
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            metadata = {item.key: item.value for item in error.trailing_metadata()}
            detail = common_pb2.ErrorDetail.FromString(metadata["iris-error-detail-bin"])
            assert (detail.code, detail.retry_after_ms > 0) == ("disk_full", True)
            assert running.fetch(KEY, tail=True, max_lines=1).entries[0].number == stored - 1
        assert stored > 100
        # A repeat of what is there needs no space.
        assert running.push(batch(["x" * 20_000] * 10)) == {"p0": stored}
        assert [line.number for line in running.page(KEY)] == list(range(stored))
        ballast.unlink()
        assert running.push(batch(["again"], first=stored)) == {"p0": stored + 1}
        assert [line.number for line in running.page(KEY)] == list(range(stored + 1))
        assert len([line for line in running.said if "pushes are refused" in line]) <= 2
        assert [line for line in running.said if "works again" in line]
        running.kill()
        running.start()
        assert [line.number for line in running.page(KEY)] == list(range(stored + 1))


def test_it_starts_and_serves_reads_on_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    with finelog(small_disk) as running:
        running.endpoint_file = tmp_path / "endpoint.json"
        stored, _ = push_until_full(running, 0, 20_000)
        stored, _ = push_until_full(running, stored, 1)
        running.kill()
        running.start()
        assert [line.number for line in running.page(KEY)] == list(range(stored))
        assert push_until_full(running, stored, 20_000)[0] == stored
        assert running.stop() == 0
        running.start()
        assert running.fetch(KEY, producers=["p0"]).marks[0].next_number == stored
