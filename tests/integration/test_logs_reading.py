"""Reading real logs: long lines whole and byte for byte, tracebacks with what stands around them, and why there is nothing yet."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from iris_core.client.endpoint import parse_url
from iris_core.client.http_client import HttpClient
from iris_core.client.logs import Logs
from tests.integration.local_cluster import LocalCluster

pytestmark = pytest.mark.soak
SOAK = os.environ.get("IRIS_SOAK") == "1"
LONG = 50_000_000 if SOAK else 2_000_000
DEADLINE = 60.0

# Writes the same bytes to its output and to a file, the last line without a line end. A part of a long line ends after 262,144 bytes:
# the needle lies across.
SCRIPT = f"""
import os, sys
line = b"x" * (262_144 - 3) + b"needle" + b"y" * {LONG} + b"far"
odd = b"\\xff\\xfe bytes \\0 nul \\x1b]0;title\\x07\\x1b[2J end"
fault = b"Traceback (most recent call last):\\n  File \\"t.py\\", line 1, in f\\n    g()\\nValueError: bad thing"
written = b"\\n".join([b"first", line, odd, b"before", fault, b"after", b"last"])
open(sys.argv[1], "wb").write(written)
out = sys.stdout.buffer
out.write(written); out.flush()
"""


@pytest.fixture(scope="module")
def written(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the job /t/reading wrote."""
    path = tmp_path_factory.mktemp("written") / "bytes"
    done = cluster.run("job", "run", "--no-sync", "--job-name", "reading", "--", "python3", "-c", SCRIPT, str(path))
    assert done.code == 0, done.err
    return path.read_bytes()


def lines(out: str) -> list[str]:
    return [line.split("attempt=0 ", 1)[1] if "attempt=0 " in line else line for line in out.splitlines()]


def test_the_whole_log_is_saved_byte_for_byte_and_never_over_another_file(
    cluster: LocalCluster, written: bytes, tmp_path: Path
) -> None:
    target = tmp_path / "all.log"
    done = cluster.run("job", "logs", "/t/reading", "--save", str(target))
    assert (done.code, done.out) == (0, "")
    assert target.read_bytes() == written
    assert f"saved 10 lines ({len(written)} bytes)" in done.err
    refused = cluster.run("job", "logs", "/t/reading", "--save", str(target), "--max-lines", "1")
    assert (refused.code, target.read_bytes() == written) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["all.log"]
    full = cluster.run("job", "logs", "/t/reading", "--save", "/dev/full")
    assert (full.code, full.err.splitlines()) == (1, ["Error: cannot write /dev/full: no space left on device"])


def test_a_hit_in_a_long_line_gives_the_whole_line_once(cluster: LocalCluster, written: bytes, tmp_path: Path) -> None:
    long = written.split(b"\n")[1]
    for pattern in ("n[e]{2}dle", "^first|xneedley|far"):
        target = tmp_path / f"hit{len(pattern)}"
        done = cluster.run("task", "logs", "/t/reading/0", "--regex", pattern, "--save", str(target))
        assert done.code == 0, done.err
        found = target.read_bytes().split(b"\n")
        assert [piece for piece in found if piece and piece != b"first"] == [long]
    shown = cluster.run("job", "logs", "/t/reading", "--substring", "needle")
    assert [len(line) for line in lines(shown.out)] == [len(long) + len("| ")]
    said = cluster.run("attempt", "logs", "/t/reading/0:0", "--regex", "needle.*far", "--save", str(tmp_path / "none"))
    assert "it was looked for in each part alone" in said.err
    assert (tmp_path / "none").read_bytes() == b""


def test_a_traceback_is_shown_whole_and_nothing_drives_the_terminal(cluster: LocalCluster, written: bytes) -> None:
    fault = written.split(b"before\n")[1].decode().splitlines()[:4]
    alone = cluster.run("job", "logs", "/t/reading", "--regex", "^ValueError", "-C", "0")
    assert lines(alone.out) == [f"- {line}" for line in fault[:3]] + [f"| {fault[3]}"]
    around = cluster.run("job", "logs", "/t/reading", "--regex", "ValueError|^first$", "--context", "1", "-o", "jsonl")
    rows = [json.loads(line) for line in around.out.splitlines()]
    hits = [(row["text"][:20], row.get("context", False)) for row in rows]
    assert hits[0] == ("first", False) and hits[-1] == ("after", True)
    assert [text for text, is_context in hits if not is_context] == ["first", "ValueError: bad thin"]
    odd = cluster.run("job", "logs", "/t/reading", "--substring", "bytes")
    assert "\x1b" not in odd.out and "\0" not in odd.out and "end" in odd.out
    follow = cluster.run("job", "logs", "/t/reading", "--regex", "^ValueError", "-C", "0", "-f")
    assert follow.out == alone.out


def test_what_runs_and_has_printed_nothing_says_so_with_its_cause(cluster: LocalCluster) -> None:
    assert cluster.run("job", "run", "--no-sync", "--no-wait", "--job-name", "mute", "--", "sleep", "1000").code == 0
    until = time.monotonic() + DEADLINE
    while "running" not in cluster.run("job", "list", "--prefix", "/t/mute").out.lower():
        assert time.monotonic() < until
    quiet = cluster.run("attempt", "logs", "/t/mute/0:0", "--substring", "no such text")
    assert "/t/mute/0:0 is running; no line matches so far" in quiet.err
    told = cluster.run("rpc", "controller", "get-pipeline-health", "--target", "/t/mute")
    health = json.loads(told.out)
    assert health["store"]["state"] == "serving" and health["problems"] == []
    (worker,) = health["workers"]
    assert worker["attached"] and int(worker["shipper"]["spool_cap_bytes"]) > 0
    assert cluster.run("job", "cancel", "/t/mute").code == 0


def test_views_are_served_through_the_controller_s_port(cluster: LocalCluster, written: bytes) -> None:
    query = {"source": "/t/reading", "match_scope": "MATCH_SCOPE_PREFIX", "regex": "^(before|after|last)$"}
    opened = json.loads(cluster.run("rpc", "logs", "open-log-view", "--json", json.dumps({"query": query})).out)
    assert (opened["state"]["lines"], opened["state"]["complete"]) == ("3", True)
    page = json.loads(cluster.run("rpc", "logs", "read-lines", "--view-id", opened["view_id"], "--first", "1").out)
    assert [line["line"]["data"] for line in page["lines"]] == ["after", "last"]
    found = json.loads(
        cluster.run("rpc", "logs", "find-next", "--view-id", opened["view_id"], "--substring", "last").out
    )
    assert (found["found"], found["number"], found["ordinal"], found["total"]) == (True, "2", "1", "1")
    exported = cluster.run("rpc", "logs", "export-logs", "--view-id", opened["view_id"])
    last = [json.loads(line) for line in exported.out.splitlines()][-1]
    assert (last["done"], last["lines"]) == (True, "3")
    with HttpClient(parse_url(cluster.url)) as plain:
        answers = list(Logs(plain).export(opened["view_id"], 1))
    assert (answers[-1].done, b"".join(answer.data for answer in answers)) == (True, b"after\nlast")
    gone = cluster.run("rpc", "logs", "read-lines", "--view-id", "0" * 32)
    assert (gone.code, "there is no such log view" in gone.err) == (1, True)
