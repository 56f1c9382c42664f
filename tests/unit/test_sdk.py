"""The Python client without a controller: what a JobSpec becomes, and what a watch makes of its messages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core import job as in_task
from iris_core.contracts import ConnectFailed, IrisError, RpcFailed, UsageFailed
from iris_core.sdk import EnvironmentSpec, Gone, IrisClient, JobInfo, JobSpec, Missing, ResourceSpec
from iris_core.sdk.submission import prepare
from iris_core.sdk.watching import JobWatch
from iris_core.wire.gen.iris.v1 import common_pb2, endpoints_pb2, logs_pb2, task_status_pb2
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from providers.fake.sync_client import FakeSyncClient

USER = {"IRIS_USER": "ada"}
IN_TASK = {"IRIS_USER": "ada", "IRIS_TASK_ID": "/ada/train/3:2"}


def request(spec: JobSpec, environ: dict[str, str] | None = None) -> pb.LaunchJobRequest:
    return prepare(spec, environ or USER)[0]


def test_every_part_of_a_spec_arrives() -> None:
    found = request(
        JobSpec(
            ["python", "t.py", "--x"],
            name="train",
            resources=ResourceSpec(cpu=1.5, memory="2GB", disk=10, gpu="H100x8"),
            environment=EnvironmentSpec(env_vars={"A": "1"}, setup_scripts=["make"]),
            replicas=4,
            group_by="pool",
            constraints=["region=us-central1", "tpu-name"],
            priority="batch",
            max_retries_failure=1,
            max_retries_preemption=0,
            max_task_failures=2,
            timeout_s=1.5,
            scheduling_timeout_s=60,
            ports=["http"],
            task_image="img",
            existing="keep",
            children="preserve-children",
        )
    )
    assert found.name == "/ada/train"
    assert list(found.entrypoint.run_command.argv) == ["python", "t.py", "--x"]
    assert found.resources == common_pb2.Resources(
        cpu_millicores=1500,
        memory_bytes=2 * 10**9,
        disk_bytes=10,
        device=common_pb2.Device(kind="gpu", variant="h100", count=8),
    )
    assert dict(found.environment.env_vars) == {"A": "1"}
    assert list(found.environment.setup_scripts) == ["make"]
    assert (found.replicas, found.coscheduling.group_by) == (4, "pool")
    assert [(c.key, c.op) for c in found.constraints] == [
        ("region", common_pb2.CONSTRAINT_OP_EQ),
        ("tpu-name", common_pb2.CONSTRAINT_OP_EXISTS),
    ]
    assert found.priority_band == common_pb2.PRIORITY_BAND_BATCH
    assert (found.max_retries_failure, found.max_retries_preemption, found.max_task_failures) == (1, 0, 2)
    assert (found.timeout_ms, found.scheduling_timeout_ms) == (1500, 60_000)
    assert (list(found.ports), found.task_image) == (["http"], "img")
    assert found.existing_job_policy == common_pb2.EXISTING_JOB_POLICY_KEEP
    assert found.preemption_policy == common_pb2.JOB_PREEMPTION_POLICY_PRESERVE_CHILDREN


def test_a_tpu_slice_is_a_gang_of_its_machines() -> None:
    found = request(JobSpec(["x"], name="t", resources=ResourceSpec(tpu="v5litepod-16")))
    assert found.replicas == 4
    assert found.coscheduling.group_by == "tpu-name"


def test_inside_a_task_a_job_is_a_child_and_takes_over_its_files() -> None:
    found = request(JobSpec(["x"], name="eval"), IN_TASK)
    assert found.name == "/ada/train/eval"
    assert found.inherit_workspace
    assert not request(
        JobSpec(["x"], name="eval", environment=EnvironmentSpec(setup_scripts=[])), IN_TASK
    ).inherit_workspace
    assert request(JobSpec(["x"], name="eval", user="bob"), IN_TASK).name == "/bob/eval"
    assert request(JobSpec(["x"], name="/ada/train/deep/er"), IN_TASK).name == "/ada/train/deep/er"


def test_a_made_up_name_never_takes_another_jobs_place() -> None:
    names = {request(JobSpec(["python", "a/train me.py"])).name for _ in range(20)}
    assert len(names) > 1
    assert all(name.startswith("/ada/iris-run-train_me-") for name in names)
    assert request(JobSpec(["x"])).existing_job_policy == common_pb2.EXISTING_JOB_POLICY_ERROR


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (JobSpec("ls -l"), "list of words"),
        (JobSpec([]), "list of words"),
        (JobSpec(["x"], name="a/b"), "name"),
        (JobSpec(["x"], resources=ResourceSpec(memory="lots")), "lots"),
        (JobSpec(["x"], resources=ResourceSpec(gpu="1", tpu="v5litepod-4")), "exclude"),
        (JobSpec(["x"], constraints=["region ~ x"]), "region"),
        (JobSpec(["x"], priority="urgent"), "urgent"),
        (JobSpec(["x"], existing="maybe"), "maybe"),  # type: ignore[arg-type]
        (JobSpec(["x"], children="eat"), "eat"),
        (JobSpec(["x"], environment=EnvironmentSpec(sync_packages=["a"])), "workspace"),
    ],
)
def test_a_wrong_spec_is_refused_before_anything_is_sent(spec: JobSpec, says: str) -> None:
    with pytest.raises(UsageFailed) as caught:
        prepare(spec, USER)
    assert says in str(caught.value)


def test_a_workspace_brings_its_files_and_its_sync_step(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print(1)")
    found, bundle = prepare(JobSpec(["x"], workspace=tmp_path), USER)
    assert bundle is not None and bundle.files == 1
    assert list(found.environment.setup_scripts) == []
    (tmp_path / "pyproject.toml").write_text("")
    steps = {
        (): "uv sync --all-packages --no-dev",
        ("a", "b"): "uv sync --package a --package b --no-dev",
    }
    for packages, step in steps.items():
        spec = JobSpec(["x"], workspace=tmp_path, environment=EnvironmentSpec(sync_packages=packages))
        assert list(prepare(spec, USER)[0].environment.setup_scripts) == [step]
    spec = JobSpec(["x"], workspace=str(tmp_path), environment=EnvironmentSpec(setup_scripts=[]))
    assert list(prepare(spec, USER)[0].environment.setup_scripts) == []
    spec = JobSpec(["x"], workspace=tmp_path, environment=EnvironmentSpec(setup_scripts=["a"], sync_packages=["b"]))
    with pytest.raises(UsageFailed):
        prepare(spec, USER)


# The calls --------------------------------------------------------------------------------------------------------------


def status(state: str, incarnation: int = 7, **values: Any) -> pb.GetJobStatusResponse:
    number = common_pb2.JobState.Value(f"JOB_STATE_{state}")
    return pb.GetJobStatusResponse(
        job=pb.JobStatus(
            job_id="/ada/x",
            state=number,  # type: ignore[arg-type]
            incarnation=incarnation,
            num_tasks=1,
            **values,
        )
    )


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeSyncClient:
    monkeypatch.setattr("iris_core.sdk.steps.time.sleep", lambda _: None)
    monkeypatch.setattr("iris_core.sdk.client.time.sleep", lambda _: None)
    monkeypatch.setenv("IRIS_USER", "ada")
    monkeypatch.delenv("IRIS_TASK_ID", raising=False)
    made = FakeSyncClient()
    made.answer("LaunchJob", pb.LaunchJobResponse(job_id="/ada/x", incarnation=7, warnings=["odd"]))
    made.answer("GetJobStatus", status("SUCCEEDED"))
    return made


def test_a_bundle_is_sent_once(client: FakeSyncClient, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    client.answer("StatBundle", pb.StatBundleResponse(exists=False), pb.StatBundleResponse(exists=True))
    client.answer("PutBundle", pb.PutBundleResponse())
    iris = IrisClient(client)
    for _ in range(2):
        job = iris.submit(JobSpec(["x"], name="x", workspace=tmp_path))
    assert len(client.called("PutBundle")) == 1
    assert (job.id, job.incarnation, job.warnings) == ("/ada/x", 7, ("odd",))
    ids = [sent.request_id for sent in client.called("LaunchJob")]
    assert all(ids) and len(set(ids)) == 2


def test_waiting_goes_on_over_broken_connections(client: FakeSyncClient) -> None:
    client.answer(
        "GetJobStatus",
        status("PENDING"),
        ConnectFailed("gone"),
        RpcFailed("UNAVAILABLE", "restarting"),
        status("RUNNING"),
        status("FAILED", error="exit code 3", exit_code=3),
    )
    found = IrisClient(client).submit(JobSpec(["x"], name="x")).wait()
    assert (found.state.name, found.exit_code, found.error, found.ended, found.succeeded) == (
        "FAILED", 3, "exit code 3", True, False,
    )  # fmt: skip


def test_waiting_has_a_limit(client: FakeSyncClient) -> None:
    client.answer("GetJobStatus", status("RUNNING"))
    with pytest.raises(TimeoutError, match="still running"):
        IrisClient(client).job("/ada/x").wait(timeout_s=0)


def test_another_job_of_the_name_is_not_this_one(client: FakeSyncClient) -> None:
    job = IrisClient(client).submit(JobSpec(["x"], name="x"))
    client.answer("GetJobStatus", status("RUNNING", incarnation=8))
    for question in (job.status, job.wait, job.cancel):
        with pytest.raises(Missing, match="replaced"):
            question()
    assert not client.called("TerminateJob"), "what took its place is not cancelled"
    client.answer("GetJobStatus", RpcFailed("NOT_FOUND", "there is no job"))
    with pytest.raises(Missing, match="no job"):
        job.status()


def test_a_refusal_is_raised_as_it_is(client: FakeSyncClient) -> None:
    client.answer("LaunchJob", RpcFailed("PERMISSION_DENIED", "no", code="band"))
    with pytest.raises(RpcFailed) as caught:
        IrisClient(client).submit(JobSpec(["x"], name="x"))
    assert caught.value.code == "band"


def test_following_reads_to_the_last_line_that_was_written(client: FakeSyncClient) -> None:
    def line(seq: int, text: str, **values: Any) -> logs_pb2.StoredLine:
        return logs_pb2.StoredLine(
            seq=seq, key="/ada/x/0:0", data=text, attempt_uid="u", number=seq, source="stdout", **values
        )

    client.answer("GetJobStatus", status("RUNNING"), status("SUCCEEDED"))
    client.answer(
        "ListTasks",
        pb.ListTasksResponse(tasks=[pb.TaskStatus(task_id="/ada/x/0", attempt_uid="u", log_lines=3)]),
    )
    behind = logs_pb2.ProducerMark(producer="u", next_number=2)
    there = logs_pb2.ProducerMark(producer="u", next_number=3)
    client.answer(
        "FetchLogs",
        logs_pb2.FetchLogsResponse(entries=[line(1, "a")], cursor=1, last_seq=1),
        RpcFailed("UNAVAILABLE", "the store restarts"),
        logs_pb2.FetchLogsResponse(cursor=1, last_seq=1),
        logs_pb2.FetchLogsResponse(entries=[line(2, "b", gap=4)], cursor=2, last_seq=2, marks=[behind]),
        logs_pb2.FetchLogsResponse(entries=[line(3, "c")], cursor=3, last_seq=3, marks=[there]),
    )
    found = list(IrisClient(client).job("/ada/x").logs(follow=True))
    assert [(each.text, each.gap, each.task_id) for each in found] == [
        ("a", 0, "/ada/x/0"), ("b", 4, "/ada/x/0"), ("c", 0, "/ada/x/0"),
    ]  # fmt: skip
    assert [sent.cursor for sent in client.called("FetchLogs")] == [0, 1, 1, 1, 2]


def test_listing_reads_pages_and_stops_at_the_limit(client: FakeSyncClient) -> None:
    def page(*names: str, token: str = "") -> pb.ListJobsResponse:
        return pb.ListJobsResponse(jobs=[pb.JobStatus(job_id=n, state=5) for n in names], next_page_token=token)  # type: ignore[arg-type]

    client.answer("ListJobs", page("/a/1", "/a/2", token="t"), page("/a/3"))
    assert [job.job_id for job in IrisClient(client).jobs("state:succeeded")] == ["/a/1", "/a/2", "/a/3"]
    client.answer("ListJobs", page("/a/1", "/a/2", token="t"))
    assert len(list(IrisClient(client).jobs(limit=1))) == 1


# Watching ---------------------------------------------------------------------------------------------------------------


def rows(*jobs: tuple[str, int], removed: tuple[str, ...] = ()) -> pb.WatchRows:
    return pb.WatchRows(
        selector_id="jobs",
        jobs=[pb.JobStatus(job_id=name, state=state) for name, state in jobs],  # type: ignore[arg-type]
        removed=removed,
    )


def revision(n: int) -> common_pb2.Revision:
    return common_pb2.Revision(boot_id="b", n=n)


def test_after_a_break_only_what_changed_is_told() -> None:
    watch = JobWatch("state:running", ())
    first = watch.request().selectors[0]
    assert first.filter == "state:running" and not first.HasField("resume")

    def told(message: pb.WatchResponse) -> list[str]:
        return [f"-{n.job_id}" if isinstance(n, Gone) else f"{n.job_id}:{int(n.state)}" for n in watch.take(message)]

    page = pb.WatchSnapshotPage(rows=rows(("/a", 1)), revision=revision(1))
    assert told(pb.WatchResponse(snapshot=page)) == ["/a:1"]
    assert not watch.request().selectors[0].HasField("resume"), "half a snapshot is none"
    page = pb.WatchSnapshotPage(rows=rows(("/a", 1), ("/b", 3)), revision=revision(1), last=True)
    assert told(pb.WatchResponse(snapshot=page)) == ["/b:3"]
    assert told(pb.WatchResponse(heartbeat=pb.WatchHeartbeat(revision=revision(4)))) == []
    assert watch.request().selectors[0].resume == revision(4)
    delta = pb.WatchDelta(rows=[rows(("/a", 5), removed=("/b",))], revision=revision(5))
    assert told(pb.WatchResponse(delta=delta)) == ["/a:5", "-/b"]
    assert told(pb.WatchResponse(resync=pb.WatchResync(reason="pruned"))) == []
    assert not watch.request().selectors[0].HasField("resume")
    page = pb.WatchSnapshotPage(rows=rows(("/c", 1)), revision=revision(9), last=True)
    assert told(pb.WatchResponse(snapshot=page)) == ["/c:1", "-/a"]


@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 8)), max_size=4), max_size=6))
def test_what_was_told_is_always_what_is(snapshots: list[list[tuple[str, int]]]) -> None:
    watch = JobWatch("", ())
    seen: dict[str, int] = {}
    for n, jobs in enumerate(snapshots):
        truth = dict(jobs)
        page = pb.WatchSnapshotPage(rows=rows(*truth.items()), revision=revision(n), last=True)
        watch.request()
        for news in watch.take(pb.WatchResponse(snapshot=page)):
            if isinstance(news, JobInfo):
                assert seen.get(news.job_id) != int(news.state), "told twice"
                seen[news.job_id] = int(news.state)
            else:
                del seen[news.job_id]
        assert seen == truth


# Inside a task -----------------------------------------------------------------------------------------------------------


def test_who_am_i() -> None:
    me = in_task.context(
        {
            "IRIS_TASK_ID": "/ada/train/eval/3:2",
            "IRIS_NUM_TASKS": "8",
            "IRIS_WORKER_ID": "w",
            "IRIS_CONTROLLER_URL": "http://127.0.0.1:1",
            "IRIS_PORT_HTTP_2": "30001",
            "IRIS_OUTPUT_DIR": "/out",
        }
    )
    assert (str(me.job), me.index, me.attempt, me.num_tasks) == ("/ada/train/eval", 3, 2, 8)
    assert (dict(me.ports), me.output_dir) == ({"http_2": 30001}, Path("/out"))


@pytest.mark.parametrize("environ", [{}, {"IRIS_TASK_ID": "nonsense"}, {"IRIS_TASK_ID": "/a/b/0"}])
def test_outside_a_task_that_is_said(environ: dict[str, str]) -> None:
    with pytest.raises(in_task.NotInTask):
        in_task.context(environ)


def test_siblings_are_waited_for_by_count(client: FakeSyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_core.job.task_context.time.sleep", lambda _: None)
    me = in_task.context({"IRIS_TASK_ID": "/ada/train/0:0", "IRIS_CONTROLLER_URL": "http://127.0.0.1:1"})
    me.__dict__["iris"] = IrisClient(client)

    def there(*indices: int) -> endpoints_pb2.ListEndpointsResponse:
        return endpoints_pb2.ListEndpointsResponse(
            endpoints=[endpoints_pb2.Endpoint(name="/ada/train/s", task_id=f"/ada/train/{i}") for i in indices]
        )

    client.answer("ListEndpoints", there(), there(11, 2))
    found = me.find("s", count=2, timeout_s=60)
    assert [endpoint.task_id for endpoint in found] == ["/ada/train/2", "/ada/train/11"], "by task, as numbers"
    assert client.called("ListEndpoints")[0].prefix == "/ada/train/s"
    client.answer("ListEndpoints", there(1))
    with pytest.raises(TimeoutError, match="1 of 2"):
        me.find("s", count=2)


def test_a_tasks_errors_are_one_kind() -> None:
    assert issubclass(in_task.NotInTask, IrisError) and issubclass(Missing, IrisError)


DOC = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_the_documented_programs_run(client: FakeSyncClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As they are printed, against a scripted controller."""
    blocks = re.findall(r"^```python\n(.*?)^```", DOC.read_text(), flags=re.M | re.S)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    client.answer("StatBundle", pb.StatBundleResponse(exists=True))
    client.answer("FetchLogs", logs_pb2.FetchLogsResponse())
    client.answer("ListTasks", pb.ListTasksResponse())
    client.answer("RegisterEndpoint", endpoints_pb2.RegisterEndpointResponse())
    client.answer("UpdateTaskStatus", task_status_pb2.UpdateTaskStatusResponse())
    client.answer("UnregisterEndpoint", endpoints_pb2.UnregisterEndpointResponse(removed=True))
    shard = endpoints_pb2.Endpoint(name="/ada/train/shard", task_id="/ada/train/0", address="127.0.0.1:1")
    client.answer("ListEndpoints", endpoints_pb2.ListEndpointsResponse(endpoints=[shard]))
    monkeypatch.setattr(IrisClient, "connect", classmethod(lambda cls, **_: cls(client)))
    exec(compile(blocks[0], str(DOC), "exec"), {})
    sent = client.called("LaunchJob")[-1]
    assert list(sent.environment.setup_scripts) == ["uv sync --all-packages --no-dev"]
    for name, value in {
        "IRIS_TASK_ID": "/ada/train/0:0",
        "IRIS_NUM_TASKS": "1",
        "IRIS_CONTROLLER_URL": "http://127.0.0.1:1",
        "IRIS_PORT_RPC": "30000",
    }.items():
        monkeypatch.setenv(name, value)
    scope: dict[str, Any] = {}
    exec(compile(blocks[1], str(DOC), "exec"), scope)
    assert scope["addresses"] == ["127.0.0.1:1"]
    assert client.called("UpdateTaskStatus")[-1].summary_md == "1 shards serve"
    assert client.called("LaunchJob")[-1].name == "/ada/train/eval"
