"""The Python client against a real cluster, from outside and from inside its tasks."""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from iris_core.model.states import JobState
from iris_core.sdk import AsyncIrisClient, EnvironmentSpec, Gone, IrisClient, JobSpec, Missing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.local_cluster import LocalCluster

BARE = EnvironmentSpec(setup_scripts=[])
PARENT = """
import http.server, threading
from iris_core import job
from iris_core.sdk import JobSpec

me = job.context()
if me.index == 0:
    child = me.submit(JobSpec(["sh", "-c", "cat note; echo child of $IRIS_TASK_ID; exit 4"], name="child"))
    print("child", child.id, child.wait(60).exit_code, [c.job_id for c in me.children()], flush=True)

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"task {me.index} at {self.path}".encode()
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)
        if self.path == "/stop": threading.Thread(target=server.shutdown).start()
    def log_message(self, *args): pass

server = http.server.HTTPServer(("127.0.0.1", me.ports["web"]), Page)
with me.serve(f"page/{me.index}", me.ports["web"], lease_s=3), me.serve("rank", me.ports["web"]):
    peers = me.find("rank", count=me.num_tasks, timeout_s=60)
    print("peers", [(p.task_id, p.metadata["index"]) for p in peers], len(me.siblings()), flush=True)
    server.serve_forever()
print("over", flush=True)
"""


@pytest.fixture
def iris(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[IrisClient]:
    monkeypatch.setenv("IRIS_USER", "sdk")
    with IrisClient.connect(controller_url=cluster.url) as client:
        yield client


def test_from_submit_to_the_last_line(iris: IrisClient, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("from the workspace")
    spec = JobSpec(
        ["sh", "-c", "cat note; echo; for i in 1 2 3; do echo line $i; done; exit 3"],
        name="whole", workspace=tmp_path, environment=BARE,
    )  # fmt: skip
    job = iris.submit(spec)
    assert job.id == "/sdk/whole"
    assert [line.text for line in job.logs(follow=True)] == ["from the workspace", "line 1", "line 2", "line 3"]
    found = job.wait(30)
    assert (found.state, found.exit_code, found.succeeded) == (JobState.FAILED, 3, False)
    assert [line.text for line in job.logs(regex="line [12]$")] == ["line 1", "line 2"]
    assert [(task.index, task.exit_code) for task in job.tasks()] == [(0, 3)]
    assert "/sdk/whole" in [listed.job_id for listed in iris.jobs(prefix="/sdk/whole")]
    again = iris.submit(JobSpec(["true"], name="whole"))
    assert again.wait(30).succeeded
    with pytest.raises(Missing):
        job.status()
    assert again.status().incarnation != job.incarnation


def test_a_watch_tells_a_jobs_life(iris: IrisClient) -> None:
    job = iris.submit(JobSpec(["sleep", "600"], name="watched"))
    states: list[str] = []
    for news in iris.watch(job_ids=(job.id,)):
        assert not isinstance(news, Gone)
        states.append(news.state.name)
        if news.state is JobState.RUNNING and "cancelled" not in states:
            assert job.cancel("enough") == [job.id]
            states.append("cancelled")
        if news.ended:
            break
    assert states[-1] == "KILLED" and "RUNNING" in states
    with pytest.raises(TimeoutError):
        iris.submit(JobSpec(["sleep", "600"], name="watched")).wait(0.2)
    iris.cancel("/sdk/watched")


@pytest.mark.asyncio
async def test_the_same_on_an_event_loop(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_USER", "sdk")
    async with AsyncIrisClient.connect(controller_url=cluster.url) as iris:
        jobs = await asyncio.gather(*(iris.submit(JobSpec(["echo", str(i)], name=f"aio{i}")) for i in range(3)))
        ended = await asyncio.gather(*(job.wait(60) for job in jobs))
        assert all(found.succeeded for found in ended)
        for number, job in enumerate(jobs):
            assert [line.text async for line in job.logs(follow=True)] == [str(number)]
        async for news in iris.watch(job_ids=(jobs[0].id,)):
            assert not isinstance(news, Gone) and news.succeeded
            break
        listed = [found.job_id async for found in iris.jobs(prefix="/sdk/aio1")]
        assert listed == ["/sdk/aio1"]


def test_inside_tasks_siblings_find_each_other_and_the_proxy_finds_them(iris: IrisClient, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("inherited ")
    (tmp_path / "parent.py").write_text(PARENT)
    job = iris.submit(
        JobSpec(
            [sys.executable, "parent.py"],
            name="tree",
            replicas=2,
            ports=["web"],
            workspace=tmp_path,
            environment=BARE,
        )
    )
    lines: list[str] = []
    asked = 0
    for line in job.logs(follow=True):
        lines.append(line.text)
        if not line.text.startswith("peers"):
            continue
        asked += 1
        if asked == 2:
            for index in (0, 1):
                url = f"{iris.url}/proxy/sdk.tree.page.{index}"
                with urllib.request.urlopen(f"{url}/deep?x=1", timeout=20) as answer:
                    assert answer.read().decode() == f"task {index} at /deep?x=1"
                urllib.request.urlopen(f"{url}/stop", timeout=20).close()
    assert job.wait(60).succeeded, lines
    assert "child /sdk/tree/child 4 ['/sdk/tree/child']" in lines
    peers = "peers [('/sdk/tree/0', '0'), ('/sdk/tree/1', '1')] 2"
    assert lines.count(peers) == 2
    assert "inherited child of /sdk/tree/child/0:0" in lines
    assert lines.count("over") == 2
    assert iris.endpoints("/sdk/tree") == []
