"""SQL on a running local cluster, through the controller's port, by both programs."""

from __future__ import annotations

import json
import subprocess
import sys
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
