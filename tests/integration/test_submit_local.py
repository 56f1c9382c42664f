"""Options of `job run` that reach the process, and the drain of a slice as operators do it, on a real local cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.integration.local_cluster import LocalCluster

DRAIN = """
SLICE={slice_id}
SEL="SELECT t.task_id FROM tasks t JOIN workers w ON t.current_worker_id=w.worker_id
     WHERE w.slice_id='$SLICE' AND t.state IN (2,3,9) AND t.job_id NOT LIKE '/larry/%'"

iris query -f csv "$SEL" | iris task preempt --stdin {rest}
"""
"""OPS.md, "Bulk actions: query → act", verbatim but for the slice's name."""


def drain(cluster: LocalCluster, slice_id: str, rest: str) -> subprocess.CompletedProcess[str]:
    script = DRAIN.format(slice_id=slice_id, rest=rest)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=cluster.empty,
        env=cluster.env,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_a_slice_is_drained_by_a_query_and_one_user_s_work_is_spared(cluster: LocalCluster) -> None:
    for job, user in (("drained", "t"), ("drained-too", "t"), ("spared", "larry")):
        options = ("--user", user, "--cpu", "0.1")
        assert cluster.job(job, "sleep", "600", options=options, wait=False).code == 0
        cluster.until("task", "describe", f"/{user}/{job}/0", has="State: running")

    def where(task: str) -> str:
        sql = (
            f"SELECT w.slice_id FROM tasks t JOIN workers w ON t.current_worker_id=w.worker_id WHERE t.task_id='{task}'"
        )
        return cluster.cli("query", sql, "-f", "csv").out.split()[-1]

    slice_id = where("/t/drained/0")
    mine = [task for task in ("/t/drained/0", "/t/drained-too/0") if where(task) == slice_id]
    preview = drain(cluster, slice_id, "--dry-run          # preview")
    assert preview.returncode == 0 and set(mine) <= set(preview.stdout.split())
    assert not any(name.startswith("/larry/") for name in preview.stdout.split())
    assert "nothing was changed" in preview.stderr
    assert "preemptions 0" in cluster.cli("task", "describe", mine[0]).out
    acted = drain(cluster, slice_id, '--reason "drain slice for /larry"')
    assert acted.returncode == 0
    assert set(acted.stdout.splitlines()) == {f"preempted {name}" for name in preview.stdout.split()}
    for task in mine:
        shown = cluster.until("task", "describe", task, has="preemptions 1").out
        assert "drain slice for /larry" in shown
    assert "preemptions 0" in cluster.cli("task", "describe", "/larry/spared/0").out
    assert cluster.cli("job", "cancel", "/t/drained", "/t/drained-too", "/larry/spared").code == 0


def test_what_the_options_say_reaches_the_process(cluster: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / ".marin.yaml").write_text('env:\n  FROM_FILE: "yes"\n')
    script = 'echo "$FROM_FILE $TYPED ${IRIS_PORT_HTTP:+port}"; [ "$IRIS_PORT_HTTP" -gt 1024 ]'
    options = (
        "--job-name",
        "options",
        "--port",
        "http",
        "-e",
        "TYPED",
        "too",
        "--no-preemptible",
        "--priority",
        "batch",
    )
    limits = ("--scheduling-timeout", "600", "--timeout", "600", "--max-retries", "1", "--task-image", "unused:1")
    done = cluster.cli("job", "run", *options, *limits, "--", "sh", "-c", script, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out.splitlines()[1].endswith("| yes too port")
    assert "environment from .marin.yaml: FROM_FILE" in done.err
    shown = cluster.cli("job", "describe", "/t/options").out
    assert "Band: batch\n" in shown and "Constraints: preemptible!=true\n" in shown and "Image: unused:1\n" in shown


def test_a_child_job_has_its_parent_s_environment_and_does_not_outlive_it(cluster: LocalCluster) -> None:
    child = "iris-core job run --job-name child --no-sync -- sh -c 'echo child has $SHARED'"
    done = cluster.job("parent", "sh", "-c", child, options=("-e", "SHARED", "the same"))
    assert done.code == 0, done.err
    assert "| child has the same\n" in done.out
    assert "Job: /t/parent/child\n" in cluster.cli("job", "describe", "/t/parent/child").out


def test_work_that_nobody_can_take_in_time_is_unschedulable_with_its_reason(cluster: LocalCluster) -> None:
    options = ("--scheduling-timeout", "1", "--constraint", "rack=nowhere")
    done = cluster.job("too-late", "true", options=options)
    assert done.code == 1
    assert "Warning: no worker has an attribute rack" in done.err
    assert "/t/too-late unschedulable" in done.err and "not scheduled within 1s" in done.err
