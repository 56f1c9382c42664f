"""SQL on a running local cluster, through the controller's port, by both programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from iris_core.model.namespaces import NAMESPACES

if TYPE_CHECKING:
    from tests.integration.local_cluster import LocalCluster


def test_both_programs_ask_the_tables_of_a_cluster(cluster: LocalCluster) -> None:
    listed = cluster.cli("stats", "tables", "-o", "name")
    assert (listed.code, listed.err) == (0, "")
    assert {"log", *(table.name for table in NAMESPACES)} <= set(listed.out.split())
    done = cluster.cli(
        "stats", "query", "SELECT count(*) > 0 AS n FROM log WHERE key = '/system/controller'", "-f", "json"
    )
    assert (done.code, json.loads(done.out)) == (0, [{"n": True}]), done
    program = Path(sys.executable).with_name("finelog")
    asked = subprocess.run(
        [program, "query", "local", 'SELECT 1 AS one FROM "iris.task_event" WHERE false', "--format", "csv"],
        env=cluster.env, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "one\n", "")


def test_a_statement_that_is_refused_and_one_that_is_none(cluster: LocalCluster) -> None:
    refused = cluster.cli("stats", "query", 'DROP VIEW "iris.task_event"')
    assert (refused.code, refused.out) == (1, "")
    assert "the query was refused: it is not a SELECT" in refused.err
    wrong = cluster.cli("stats", "query", "SELECT FROM", "-f", "json")
    assert (wrong.code, wrong.out) == (2, "")
    assert json.loads(wrong.err)["error"]["position"] == 7


def test_an_interrupted_command_ends_its_query(cluster: LocalCluster) -> None:
    pid = json.loads((cluster.state / "finelog" / "endpoint.json").read_text())["pid"]

    def queries() -> set[str]:
        return {
            child
            for thread in Path(f"/proc/{pid}/task").iterdir()
            for child in (thread / "children").read_text().split()
        }

    pause = threading.Event()

    def until(wanted: bool) -> None:
        deadline = time.monotonic() + 60
        while bool(queries()) is not wanted:
            assert time.monotonic() < deadline
            pause.wait(0.02)

    until(False)
    endless = (
        "SELECT count(*) FROM range(50000) a, range(50000) b, range(50000) c WHERE a.range + b.range + c.range = 7"
    )
    asking = cluster.popen("--cluster=local", "stats", "query", "--timeout", "60", endless)
    until(True)
    asking.send_signal(signal.SIGINT)
    out, err = asking.communicate(timeout=60)
    assert (asking.returncode, out) == (130, b""), err
    until(False)
