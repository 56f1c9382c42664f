"""Field cases of the embedded cluster: a second start with the record gone; a worker that is told to stop."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.local_cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path)
    made.start()
    yield made
    made.close()


def test_a_second_start_that_is_refused_ends_nothing_of_the_first(local: LocalCluster) -> None:
    """With its record gone the first cluster is only known by its lock; its workers and log store must live on."""
    local.until("cluster", "status", has="2/2 healthy")
    record = local.state / "endpoint.json"
    kept = record.read_bytes()
    parts = [*local.state.glob("workers/*/supervisor.json"), local.state / "finelog" / "endpoint.json"]
    pids = [int(json.loads(path.read_text())["pid"]) for path in parts]
    assert len(pids) == 3
    record.unlink()
    second = local.run("cluster", "start", "--local")
    assert second.code == 1
    assert "is held by another controller" in second.err
    record.write_bytes(kept)
    for pid in pids:
        os.kill(pid, 0)
    assert [int(json.loads(path.read_text())["pid"]) for path in parts] == pids
    assert local.job("after", "true").code == 0


def test_a_worker_that_is_stopping_is_not_tried_again_and_again(local: LocalCluster) -> None:
    """Its task goes elsewhere, or waits for its next start: it is not given more than an attempt a second meanwhile."""
    local.until("cluster", "status", has="2/2 healthy")
    stubborn = ("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
    assert local.job("stubborn", *stubborn, options=("--replicas", "2", "--cpu", "1.5"), wait=False).code == 0
    assert local.job("moved", "sleep", "600", wait=False).code == 0
    for task in ("stubborn/0", "stubborn/1", "moved/0"):
        local.until("task", "describe", f"/t/{task}", has="State: running")
    workers = [int(json.loads(path.read_text())["pid"]) for path in local.state.glob("workers/*/worker.json")]

    def attempts() -> int:
        sql = "SELECT count(*) FROM task_attempts WHERE task_id = '/t/moved/0'"
        return int(local.cli("query", sql, "-f", "csv").out.split()[-1])

    began = time.monotonic()
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
    # The stubborn tasks hold both workers up, now that /t/moved has ended there.
    local.until("task", "describe", "/t/moved/0", has="the worker was stopped")
    told = local.until("cluster", "status", has="stopping: it was told to end and gets no new work")
    assert "0/2 healthy" in told.out
    assert attempts() <= 2, "the second may not have been told yet when the first gave it up"
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
    local.until("task", "describe", "/t/moved/0", has="State: running")
    shown = local.cli("task", "describe", "/t/moved/0").out
    assert 2 <= attempts() <= 4 + time.monotonic() - began, shown
    assert local.cli("job", "cancel", "/t/moved", "/t/stubborn").code == 0
