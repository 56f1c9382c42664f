"""What operators run from the manual, as it is printed there: every statement on the controller's database, the commands that look at
the scheduler, users and backends, and the bridge from a query to an action."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from iris_core.wire.gen.iris.v1 import budgets_pb2, common_pb2, controller_pb2
from providers.fake.worker import FakeWorker, run_on
from tests.integration.controller_rig import Rig, launch_request, rig

pytestmark = pytest.mark.asyncio

SLICE = "v4-8-slice-1"
STATEMENTS = {
    "jobs by state": "SELECT state, count(*) FROM jobs GROUP BY state",
    "tasks by state": "SELECT state, count(*) FROM tasks GROUP BY state",
    "failed jobs with errors": (
        "SELECT job_id, error, exit_code FROM jobs WHERE state=5 ORDER BY submitted_at_ms DESC LIMIT 10;"
    ),
    "quota-blocked scale groups": """SELECT name, consecutive_failures, quota_reason FROM scaling_groups
WHERE consecutive_failures > 0 OR quota_reason != '';""",
    "quota": "SELECT name, consecutive_failures, quota_reason FROM scaling_groups WHERE quota_reason != ''",
    "active slices": "SELECT slice_id, lifecycle, scale_group, worker_ids FROM slices WHERE lifecycle='ready';",
    "attempt history": """SELECT task_id, attempt_id, state, exit_code, error FROM task_attempts
WHERE task_id LIKE '%<job_fragment>%' ORDER BY attempt_id;""",
    "tables": "SELECT name FROM sqlite_master WHERE type='table'",
    "drain": """SELECT t.task_id FROM tasks t JOIN workers w ON t.current_worker_id=w.worker_id
     WHERE w.slice_id='$SLICE' AND t.state IN (2,3,9) AND t.job_id NOT LIKE '/larry/%'""",
    "scale groups by size": """SELECT scale_group, device_variant, count(*) AS workers, count(DISTINCT slice_id) AS slices
FROM workers WHERE device_type='tpu' GROUP BY scale_group, device_variant;""",
    "occupants of a slice": """SELECT t.job_id, t.state, count(*) FROM tasks t
JOIN workers w ON t.current_worker_id=w.worker_id
WHERE w.slice_id='<slice_id>' AND t.state IN (2,3,9) GROUP BY t.job_id, t.state;""",
    "co-tenants": """SELECT t.job_id, t.task_id, w.md_tpu_worker_id FROM tasks t
JOIN workers w ON t.current_worker_id=w.worker_id
WHERE w.worker_id IN (
  SELECT current_worker_id FROM tasks WHERE job_id LIKE '/larry/%' AND state IN (2,3,9)
) AND t.job_id NOT LIKE '/larry/%' AND t.state IN (2,3,9);""",
    "committed": (
        "SELECT worker_id, committed_cpu_millicores, committed_mem_bytes, metadata_proto FROM workers ORDER BY worker_id"
    ),
    "requests": "SELECT job_id, length(request_proto) > 0 FROM jobs ORDER BY job_id",
    "vanished": (
        "SELECT task_id, current_worker_id FROM tasks WHERE state=3 AND current_worker_id NOT IN (SELECT worker_id FROM workers)"
    ),
    "budgets": "SELECT user_id, budget_limit, max_band FROM user_budgets ORDER BY user_id",
}


async def query(r: Rig, name: str, **replaced: str) -> list[list[object]]:
    sql = STATEMENTS[name]
    for placeholder, value in replaced.items():
        sql = sql.replace({"slice": "<slice_id>", "job": "<job_fragment>", "shell": "$SLICE"}[placeholder], value)
    request = controller_pb2.ExecuteRawQueryRequest(sql=sql)
    answer = await r.call("ExecuteRawQuery", request, controller_pb2.ExecuteRawQueryResponse)
    return [json.loads(row) for row in answer.rows]


def tpu_worker(r: Rig, number: int) -> FakeWorker:
    return r.worker(
        f"{SLICE}-{number}",
        run_on,
        cpu_millicores=240_000,
        device=common_pb2.Device(kind="tpu", variant="v4-8", count=4),
        attributes={"tpu-name": SLICE, "tpu-worker-id": str(number)},
        slice_id=SLICE,
        scale_group="tpu_v4-8",
        address="10.0.0.7:10001",
    )


@asynccontextmanager
async def fleet(state_dir: Path) -> AsyncIterator[Rig]:
    """A slice of two TPU workers with larry's TPU job and ann's CPU job on both, a failed job, and a budget for each."""
    async with rig(state_dir) as r, tpu_worker(r, 0), tpu_worker(r, 1):
        for user, limit in (("ann", 5_000), ("larry", 0)):
            budget = budgets_pb2.SetUserBudgetRequest(user_id=user, budget_limit=limit)
            await r.call("SetUserBudget", budget, budgets_pb2.SetUserBudgetResponse)
        larry = launch_request("/larry/train")
        larry.replicas = 2
        larry.resources.device.CopyFrom(common_pb2.Device(kind="tpu", variant="v4-8", count=4))
        await r.call("LaunchJob", larry, controller_pb2.LaunchJobResponse)
        ann = launch_request("/ann/sweep")
        ann.replicas = 2
        ann.resources.cpu_millicores = 150_000
        await r.call("LaunchJob", ann, controller_pb2.LaunchJobResponse)
        for job in ("/larry/train", "/ann/sweep"):
            await r.until(
                job, lambda j: any(c.state == common_pb2.TASK_STATE_RUNNING and c.count == 2 for c in j.task_counts)
            )
        await r.launch("/ann/broken")
        await r.until_state("/ann/broken", common_pb2.JOB_STATE_RUNNING)
        kick = controller_pb2.KickTasksRequest(
            targets=["/ann/broken/0"], desired_state=common_pb2.TASK_STATE_FAILED, reason="bad output"
        )
        await r.call("KickTasks", kick, controller_pb2.KickTasksResponse)
        yield r


async def test_every_statement_of_the_manual_runs_as_printed_and_says_what_is_so(tmp_path: Path) -> None:
    async with fleet(tmp_path) as r:
        assert await query(r, "jobs by state") == [[3, 2], [5, 1]]
        assert await query(r, "tasks by state") == [[3, 4], [5, 1]]
        ((job, error, _),) = await query(r, "failed jobs with errors")
        assert job == "/ann/broken" and "bad output" in str(error)
        assert await query(r, "quota-blocked scale groups") == [] == await query(r, "quota")
        assert await query(r, "active slices") == []
        assert [row[:3] for row in await query(r, "attempt history", job="broken")] == [["/ann/broken/0", 0, 5]]
        assert {("jobs",), ("tasks",), ("task_attempts",), ("workers",), ("worker_attributes",), ("user_budgets",)} <= {
            tuple(row) for row in await query(r, "tables")
        }
        assert sorted(await query(r, "drain", shell=SLICE)) == [["/ann/sweep/0"], ["/ann/sweep/1"]]
        assert await query(r, "scale groups by size") == [["tpu_v4-8", "v4-8", 2, 1]]
        assert await query(r, "occupants of a slice", slice=SLICE) == [["/ann/sweep", 3, 2], ["/larry/train", 3, 2]]
        assert sorted(str(row[2]) for row in await query(r, "co-tenants")) == ["0", "1"]
        assert [row[1] for row in await query(r, "committed")] == [150_100, 150_100]
        assert [row[1] for row in await query(r, "requests")] == [1, 1, 1]
        assert await query(r, "vanished") == []
        assert await query(r, "budgets") == [["ann", 5_000, 3], ["larry", 0, 3]]
        (metadata,) = await columns(
            r,
            f"md_ip_address, md_tpu_name, md_gpu_count, md_gpu_name, md_device_json FROM workers WHERE worker_id='{SLICE}-1'",
        )
        assert metadata[:4] == ["10.0.0.7", SLICE, 0, ""]
        assert json.loads(str(metadata[4])) == {"kind": "tpu", "variant": "v4-8", "count": 4}


async def columns(r: Rig, rest: str) -> list[list[object]]:
    request = controller_pb2.ExecuteRawQueryRequest(sql=f"SELECT {rest}")
    answer = await r.call("ExecuteRawQuery", request, controller_pb2.ExecuteRawQueryResponse)
    return [json.loads(row) for row in answer.rows]


async def test_a_worker_that_vanished_stays_visible_in_its_tasks(tmp_path: Path) -> None:
    async with fleet(tmp_path) as r:
        with closing(sqlite3.connect(tmp_path / "db" / "controller.sqlite3")) as database:
            database.execute("PRAGMA foreign_keys=ON")
            database.execute("DELETE FROM workers WHERE worker_id=?", (f"{SLICE}-0",))
            database.commit()
        gone = await query(r, "vanished")
        assert {row[1] for row in gone} == {f"{SLICE}-0"} and len(gone) == 2


async def shell(r: Rig, script: str) -> tuple[int, str, str]:
    """Runs the manual's lines in bash, with `iris` on the path and this controller meant."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "IRIS_CONTROLLER_URL": r.controller.port.url, "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        f"set -o pipefail\n{script}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


DRAIN = """\
SLICE=v4-8-slice-1
SEL="SELECT t.task_id FROM tasks t JOIN workers w ON t.current_worker_id=w.worker_id
     WHERE w.slice_id='$SLICE' AND t.state IN (2,3,9) AND t.job_id NOT LIKE '/larry/%'"

iris query -f csv "$SEL" | iris task preempt --stdin --dry-run          # preview
"""


async def test_a_slice_is_drained_with_the_lines_of_the_manual(tmp_path: Path) -> None:
    async with fleet(tmp_path) as r:
        code, out, err = await shell(r, DRAIN)
        assert code == 0, err
        assert sorted(out.split()) == ["/ann/sweep/0", "/ann/sweep/1"] and "nothing was changed" in err
        code, out, err = await shell(
            r,
            DRAIN + 'iris query -f csv "$SEL" | iris task preempt --stdin --reason "drain slice for /larry"\n',
        )
        assert code == 0, err
        attempts = await query(r, "attempt history", job="/ann/sweep")
        assert [row[2] for row in attempts[:2]] == [10, 10]
        assert "drain slice for /larry" in str(attempts[0][4])
        states = {str(row[0]) for row in await columns(r, "state FROM tasks WHERE job_id='/larry/train'")}
        assert states == {"3"}, "the protected job was touched"


async def test_the_commands_about_scheduler_users_and_backends(tmp_path: Path) -> None:
    async with fleet(tmp_path) as r:
        code, out, err = await shell(
            r,
            """\
iris rpc controller get-scheduler-state        # pending queue, resource constraints, priority bands
echo ,
iris rpc controller get-provider-status         # scheduling events, cluster capacity
echo ,
iris rpc controller list-users        # active users with task/job counts
echo ,
iris rpc controller list-backends
echo ,
iris rpc controller list-workers
echo ,
iris user budget list -o json                 # per-user budget limits
""",
        )
        assert code == 0, err
        state, provider, users, backends, workers, budgets = json.loads(f"[{out}]")
        assert state["total_running"] == "4" and state["user_budgets"][0]["user_id"] == "ann"
        assert {b["worker_id"] for b in state["running_buckets"]} == {f"{SLICE}-0", f"{SLICE}-1"}
        (capacity,) = provider["capacity"]
        assert (capacity["scale_group"], capacity["slices"], capacity["workers_healthy"]) == ("tpu_v4-8", 1, 2)
        assert capacity["devices"][0] == {
            "kind": "tpu", "variant": "v4-8", "total": "8", "free": "0", "held_by_band": {"interactive": "8"},
        }  # fmt: skip
        assert [(u["user_id"], u["active_jobs"], u["running_tasks"]) for u in users["users"]] == [
            ("ann", 1, "2"), ("larry", 1, "2"),
        ]  # fmt: skip
        assert backends["backends"][0]["scale_groups"] == ["tpu_v4-8"]
        assert len(workers["workers"]) == 2
        assert (budgets[0]["user"], budgets[0]["limit"]) == ("ann", 5_000)
        code, out, err = await shell(r, 'iris query "SELECT state, count(*) FROM tasks GROUP BY state" -f csv\n')
        assert (code, out.splitlines()) == (0, ["state,count(*)", "3,4", "5,1"]), err
