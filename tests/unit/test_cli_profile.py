"""The commands about profiles, against a scripted controller: what is asked, what is printed and written, each way to fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from iris_core.cli.profile_summary import job_of
from iris_core.contracts import RpcFailed, UsageFailed
from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb
from iris_core.wire.profiles import FORMATS
from tests.unit.cli_world import T0, World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DUMP = 'Process {pid}: python train.py\nPython v3.11.7 (/usr/bin/python3)\n\nThread {pid} (idle): "MainThread"\n    {where} (train.py:{line})\n'


def record(**values: object) -> pb.ProfileRecord:
    defaults: dict[str, object] = {
        "profile_id": "20260101-0123456789ab",
        "source": "/me/train/0",
        "attempt_id": 0,
        "vm_id": "w0",
        "captured_at_ms": T0,
        "type": pb.PROFILE_TYPE_CPU,
        "format": pb.PROFILE_FORMAT_SPEEDSCOPE,
        "trigger": pb.PROFILE_TRIGGER_PERIODIC,
        "size_bytes": 2048,
        "rate_hz": 20,
    }
    return pb.ProfileRecord(**{**defaults, **values})  # type: ignore[arg-type]


def speedscope(seconds: float = 1.0, name: str = "hot", path: str = "/app/train.py") -> bytes:
    frames = [{"name": 'process 7:"python"', "file": ""}, {"name": name, "file": path}]
    profile = {"type": "sampled", "name": "main", "samples": [[0, 1]], "weights": [seconds]}
    return json.dumps({"shared": {"frames": frames}, "profiles": [profile]}).encode()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    return World()


def taken(data: bytes, *notes: str, **values: object) -> pb.ProfileTaskResponse:
    return pb.ProfileTaskResponse(profile_data=data, record=record(**values), notes=notes)


def test_threads_go_to_standard_output(world: World) -> None:
    world.client.answer("ProfileTask", taken(b"Thread 1\n", "one is left out"))
    done = world.cli("task", "profile", "threads", "/me/train/0", "--locals", "--native")
    assert (done.code, done.out) == (0, "Thread 1\n")
    assert "Warning: one is left out" in done.err
    (asked,) = world.client.called("ProfileTask")
    assert asked.target == "/me/train/0"
    assert (asked.options.type, asked.options.locals, asked.options.native) == (pb.PROFILE_TYPE_THREADS, True, True)


@pytest.mark.parametrize(
    ("words", "target", "name"),
    [
        (("task", "profile", "cpu", "/me/Train/0"), "/me/Train/0", "profile-cpu-me-train-0.speedscope.json"),
        (("task", "profile", "/me/train/0", "cpu"), "/me/train/0", "profile-cpu-me-train-0.speedscope.json"),
        (("attempt", "profile", "cpu", "/me/train/0:2"), "/me/train/0:2", "profile-cpu-me-train-0:2.speedscope.json"),
        (("process", "profile", "cpu"), "/system/controller", "profile-cpu-system-controller.speedscope.json"),
        (
            ("process", "profile", "cpu", "-t", "/system/process"),
            "/system/controller",
            "profile-cpu-system-controller.speedscope.json",
        ),
        (
            ("process", "profile", "cpu", "-t", "/system/worker/w0"),
            "/system/worker/w0",
            "profile-cpu-system-worker-w0.speedscope.json",
        ),
        (("process", "profile", "cpu", "-t", "/me/train/0"), "/me/train/0", "profile-cpu-me-train-0.speedscope.json"),
    ],
)
def test_a_cpu_profile_becomes_a_file_named_after_its_target(
    world: World, tmp_path: Path, words: tuple[str, ...], target: str, name: str
) -> None:
    world.client.answer("ProfileTask", taken(speedscope()))
    done = world.cli(*words, "-d", "3")
    assert done.code == 0, done.err
    assert (tmp_path / name).read_bytes() == speedscope()
    assert "kept as 20260101-0123456789ab" in done.err
    (asked,) = world.client.called("ProfileTask")
    assert (asked.target, asked.options.duration_seconds, asked.options.rate_hz) == (target, 3, 20)
    assert not asked.options.HasField("native")


def test_a_memory_profile_has_its_formats(world: World, tmp_path: Path) -> None:
    world.client.answer(
        "ProfileTask",
        taken(b"<html>", type=pb.PROFILE_TYPE_MEMORY, format=pb.PROFILE_FORMAT_HTML),
        taken(b"{}", type=pb.PROFILE_TYPE_MEMORY, format=pb.PROFILE_FORMAT_STATS),
    )
    assert world.cli("task", "profile", "mem", "/me/train/0", "--leaks", "--pid", "7").code == 0
    assert world.cli("task", "profile", "mem", "/me/train/0", "--format", "stats", "-o", "out.json").code == 0
    assert (tmp_path / "profile-mem-me-train-0.html").read_bytes() == b"<html>"
    assert (tmp_path / "out.json").read_bytes() == b"{}"
    first, second = (asked.options for asked in world.client.called("ProfileTask"))
    assert (first.type, first.format, first.leaks, first.pid) == (
        pb.PROFILE_TYPE_MEMORY,
        pb.PROFILE_FORMAT_HTML,
        True,
        7,
    )
    assert second.format == pb.PROFILE_FORMAT_STATS


@pytest.mark.parametrize(
    ("kind", "words", "asked"),
    [
        ("cpu", "-o hot.svg", "flamegraph"),
        ("cpu", "-o ./HOT.SVG", "flamegraph"),
        ("cpu", "-o hot.speedscope.json", "speedscope"),
        ("cpu", "-o hot.json", "speedscope"),
        ("cpu", "-o hot.txt", "raw"),
        ("cpu", "-o hot.folded", "raw"),
        ("cpu", "-o hot.raw", "raw"),
        ("mem", "-o heap.raw", "raw"),
        ("cpu", "-o hot.svg.gz", "speedscope"),
        ("cpu", "-o hot --format raw", "raw"),
        ("cpu", "-o .svg", "speedscope"),
        ("cpu", "-o -", "speedscope"),
        ("cpu", "-o hot.svg --format flamegraph", "flamegraph"),
        ("mem", "-o big.html", "html"),
        ("mem", "-o big.txt", "table"),
        ("mem", "-o big.json", "stats"),
        ("mem", "-o big.bin", "raw"),
        ("mem", "-o big", "html"),
        ("threads", "-o where.txt", "text"),
        ("threads", "-o where", "text"),
    ],
)
def test_the_end_of_a_file_says_the_format(world: World, kind: str, words: str, asked: str) -> None:
    world.client.answer("ProfileTask", taken(b"it"))
    done = world.cli("task", "profile", kind, "/me/train/0", *words.split())
    assert done.code == 0, done.err
    (request,) = world.client.called("ProfileTask")
    assert FORMATS[request.options.format] == asked


@pytest.mark.parametrize(
    ("kind", "words", "says"),
    [
        (
            "cpu",
            "-o hot.svg --format raw",
            "--format raw and 'hot.svg' contradict each other; .svg stands for flamegraph, and raw ends in .txt",
        ),
        (
            "cpu",
            "-o hot.html",
            "a CPU profile is not written as .html: 'hot.html'; it ends in .speedscope.json (speedscope), .svg (flamegraph), .txt (raw)",
        ),
        ("mem", "-o big.txt --format stats", ".txt stands for table, and stats ends in .json"),
        ("mem", "-o big.svg", "a memory profile is not written as .svg"),
        ("threads", "-o where.json", "a thread dump is not written as .json: 'where.json'; it ends in .txt (text)"),
    ],
)
def test_a_file_that_stands_for_another_format_is_refused_before_anything_is_looked_at(
    world: World, tmp_path: Path, kind: str, words: str, says: str
) -> None:
    done = world.cli("task", "profile", kind, "/me/train/0", *words.split())
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert not world.client.called("ProfileTask")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("task", "profile", "cpu", "/me/train/0:1"), "attempt"),
        (("task", "profile", "cpu", "/me/train"), "/me/train"),
        (("attempt", "profile", "mem", "/me/train/0"), "attempt"),
        (("process", "profile", "cpu", "-t", "/me/train"), "name a task of it"),
        (("process", "profile", "cpu", "-t", "/system/nothing"), "there is no process"),
        (("process", "profile", "cpu", "-d", "0"), "--duration"),
        (("process", "profile", "threads", "--leaks"), "--leaks"),
    ],
)
def test_wrong_words_are_usage_errors(world: World, words: tuple[str, ...], says: str) -> None:
    done = world.cli(*words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert not world.client.called("ProfileTask")


def test_a_refusal_is_one_line_with_its_remedy(world: World) -> None:
    refusal = RpcFailed(
        "FAILED_PRECONDITION", "memray is not installed in the environment of process 7", hint="add memray"
    )
    world.client.answer("ProfileTask", refusal)
    done = world.cli("task", "profile", "mem", "/me/train/0")
    assert (done.code, done.err) == (1, f"Error: {refusal.message}; add memray\n")


@pytest.mark.parametrize(
    ("path", "why"),
    [("no/such/folder/x", "no such file or directory"), ("hot.svg/", "is a directory")],
)
def test_a_profile_that_cannot_be_written_is_said_with_where_it_is_kept(
    world: World, tmp_path: Path, path: str, why: str
) -> None:
    world.client.answer("ProfileTask", taken(speedscope()))
    done = world.cli("task", "profile", "cpu", "/me/train/0", "-o", path)
    assert done.code == 1
    assert f"cannot write '{path}': {why}" in done.err
    assert "kept as 20260101-0123456789ab" in done.err
    assert not list(tmp_path.iterdir())


# --- kept profiles -----------------------------------------------------------------------------------------------------


def test_kept_profiles_are_listed(world: World) -> None:
    world.job("/me/train")
    world.client.answer(
        "ListProfiles", pb.ListProfilesResponse(profiles=[record()], capped=True, notes=["one segment is damaged"])
    )
    done = world.cli("profile", "list", "-t", "/me/train", "--type", "cpu", "--trigger", "periodic", "--limit", "1")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split() == ["ID", "SOURCE", "TYPE", "FORMAT", "TRIGGER", "AGE", "SIZE"]
    assert done.out.splitlines()[1].split()[:5] == [
        "20260101-0123456789ab",
        "/me/train/0",
        "cpu",
        "speedscope",
        "periodic",
    ]
    assert "one segment is damaged" in done.err
    assert "the newest 1; --limit N shows more" in done.err
    (asked,) = world.client.called("ListProfiles")
    assert (asked.prefix, asked.source, asked.min_incarnation, asked.page_size) == ("/me/train", "", T0, 1)


def test_a_task_or_a_process_is_one_source(world: World) -> None:
    world.job("/me/train")
    world.client.answer("ListProfiles", pb.ListProfilesResponse())
    assert world.cli("profile", "list", "--task", "/me/train/0", "--all-incarnations").code == 0
    done = world.cli("profile", "list", "-t", "/system/worker/w0", "-o", "json")
    assert (done.code, json.loads(done.out)) == (0, [])
    task, worker = world.client.called("ListProfiles")
    assert (task.source, task.min_incarnation) == ("/me/train/0", 0)
    assert worker.source == "/system/worker/w0"


def test_a_kept_profile_is_written_to_a_file_and_a_dump_printed(world: World, tmp_path: Path) -> None:
    dump = record(type=pb.PROFILE_TYPE_THREADS, format=pb.PROFILE_FORMAT_TEXT)
    world.client.answer(
        "GetProfile",
        pb.GetProfileResponse(record=record(), profile_data=b"{}"),
        pb.GetProfileResponse(record=dump, profile_data=b"Thread 1\n"),
    )
    assert world.cli("profile", "get", "20260101-0123456789ab").code == 0
    assert (tmp_path / "profile-20260101-0123456789ab.speedscope.json").read_bytes() == b"{}"
    assert world.cli("profile", "get", "20260101-0123456789ab").out == "Thread 1\n"


def test_a_kept_profile_is_not_written_under_the_name_of_another_format(world: World, tmp_path: Path) -> None:
    world.client.answer("GetProfile", pb.GetProfileResponse(record=record(), profile_data=b"{}"))
    done = world.cli("profile", "get", "20260101-0123456789ab", "-o", "hot.svg")
    assert done.code == 2
    assert (
        "20260101-0123456789ab is kept as speedscope: 'hot.svg' does not stand for that; "
        "name a file that ends in .speedscope.json" in done.err
    )
    assert not list(tmp_path.iterdir())
    assert world.cli("profile", "get", "20260101-0123456789ab", "-o", "hot.json").code == 0
    assert (tmp_path / "hot.json").read_bytes() == b"{}"


# --- the whole job -----------------------------------------------------------------------------------------------------


def stored(*profiles: tuple[pb.ProfileRecord, bytes]) -> Callable[[pb.GetProfileRequest], pb.GetProfileResponse]:
    by_id = {kept.profile_id: data for kept, data in profiles}
    return lambda request: pb.GetProfileResponse(profile_data=by_id[request.profile_id])


def job_with_profiles(world: World) -> None:
    world.job("/me/train")
    kept = [
        (record(profile_id="20260101-000000000001"), speedscope(3.0)),
        (record(profile_id="20260101-000000000002", source="/me/train/1"), speedscope(2.0)),
        (
            record(profile_id="20260101-000000000003", source="/me/train/eval/0"),
            speedscope(5.0, "score", "/app/eval.py"),
        ),
        (record(profile_id="20260101-000000000004", source="/me/train/2"), b"damaged"),
    ]
    world.client.answer("ListProfiles", pb.ListProfilesResponse(profiles=[one for one, _ in kept]))
    world.client.answer("GetProfile", stored(*kept))


def test_a_summary_has_every_output(world: World, tmp_path: Path) -> None:
    job_with_profiles(world)
    done = world.cli(
        "job", "profile-summary", "/me/train", "--show-tasks", "--show-stacks", "-o", "all.folded", "--svg", "f.svg"
    )
    assert done.code == 0, done.err
    assert "3 captures of 3 tasks, 10.0 sample-seconds, 2 distinct stacks" in done.out
    lines = [line.split() for line in done.out.splitlines()]
    assert ["(root)", "2", "5.0", "50.0%", "hot", "(/app/train.py)"] in lines
    assert ["eval", "1", "5.0", "50.0%", "score", "(/app/eval.py)"] in lines
    assert ["/me/train/1", "1", "2.0", "20.0%", "hot", "(/app/train.py)"] in lines
    assert ["5.0", "50.0%", "train.py"] in lines
    assert (tmp_path / "all.folded").read_text() == "hot (/app/train.py) 5\nscore (/app/eval.py) 5\n"
    assert 'width="1400"' in (tmp_path / "f.svg").read_text()
    assert "1 of 4 profiles is left out: it is not JSON" in done.err


def test_a_summary_as_markdown_has_a_call_graph_per_sub_job(world: World) -> None:
    job_with_profiles(world)
    done = world.cli(
        "job", "profile-summary", "https://iris.example/#/job/marin/%2Fme%2Ftrain", "--markdown", "--per-subjob"
    )
    assert done.code == 0, done.err
    assert done.out.count("```mermaid\ngraph TD\n") == 3
    assert "| (root) | 2 | 5.0 | 50.0% | hot (/app/train.py) |" in done.out
    assert "## eval (50.0% of the job)" in done.out


def test_a_summary_of_one_sub_job_reads_no_other(world: World) -> None:
    job_with_profiles(world)
    done = world.cli("job", "profile-summary", "/me/train", "--subjob", "eval")
    assert "1 capture of 1 task, " in done.out
    assert [asked.profile_id for asked in world.client.called("GetProfile")] == ["20260101-000000000003"]
    assert world.cli("job", "profile-summary", "/me/train", "--subjob", "no").code == 2


def test_a_summary_of_nothing_exits_2(world: World) -> None:
    world.job("/me/train")
    world.client.answer("ListProfiles", pb.ListProfilesResponse())
    done = world.cli("job", "profile-summary", "/me/train")
    assert (done.code, done.out) == (2, "")
    assert "there is no CPU profile of /me/train" in done.err


def test_the_page_of_a_job_names_cluster_and_job() -> None:
    assert job_of("https://iris.oa.dev/#/job/marin/%2Fme%2Ftrain?tab=logs") == ("marin", "/me/train")
    assert job_of("https://iris.oa.dev/#/job/%2Fme%2Ftrain") == ("", "/me/train")
    assert job_of("/me/train") == ("", "/me/train")
    with pytest.raises(UsageFailed, match="not the page of a job"):
        job_of("https://iris.oa.dev/#/worker/w0")


# --- hang --------------------------------------------------------------------------------------------------------------


def test_the_task_that_waits_elsewhere_is_shown_first_and_old_dumps_say_so(world: World) -> None:
    world.job("/me/train")
    for index in range(5):
        world.task(f"/me/train/{index}")
    world.task("/me/train/5", "succeeded")

    def dump(request: pb.ProfileTaskRequest) -> pb.ProfileTaskResponse:
        index = int(request.target.rpartition("/")[2])
        if index >= 3:
            raise RpcFailed("FAILED_PRECONDITION", f"worker w{index} is not attached")
        where, line = ("elsewhere", 9) if index == 1 else ("barrier", 5)
        return taken(DUMP.format(pid=100 + index, where=where, line=line).encode())

    old = record(source="/me/train/3", type=pb.PROFILE_TYPE_THREADS, format=pb.PROFILE_FORMAT_TEXT)
    world.client.answer("ProfileTask", dump)
    world.client.answer("ListProfiles", pb.ListProfilesResponse(profiles=[old]))
    world.client.answer(
        "GetProfile", pb.GetProfileResponse(profile_data=DUMP.format(pid=7, where="barrier", line=5).encode())
    )
    done = world.cli("job", "hang", "/me/train")
    assert done.code == 0, done.err
    assert "4 of 5 running tasks are known to stand at 2 places." in done.out
    first, second = done.out.index("1 task, /me/train/1:"), done.out.index("3 tasks, /me/train/0,2-3:")
    assert first < done.out.index("elsewhere (train.py:9)") < second < done.out.index("barrier (train.py:5)")
    assert "(3: stored dump 20260101-0123456789ab, " in done.out
    assert "because worker w3 is not attached)" in done.out
    assert "nothing is known of 4:\n  4: worker w4 is not attached" in done.out
    listing = world.client.called("ListProfiles")[0]
    assert (listing.prefix, listing.latest_only, listing.min_incarnation) == ("/me/train", True, T0)
    groups = json.loads(world.cli("job", "hang", "/me/train", "-o", "json").out)["groups"]
    assert [rank["task_id"] for rank in groups[0]["ranks"]] == ["/me/train/1"]


def test_a_job_of_which_nothing_runs_or_is_known_fails(world: World) -> None:
    world.job("/me/train")
    world.task("/me/train/0", "pending")
    refused = world.cli("job", "hang", "/me/train").err
    assert refused.startswith("Error: no task of /me/train is running: 1 pending, its command has not begun; see: ")
    assert refused.endswith(" job explain /me/train\n")
    world.task("/me/train/1", "building")
    world.task("/me/train/2", "building")
    refused = world.cli("job", "hang", "/me/train").err
    assert "is running: 1 pending, 2 building, their commands have not begun; see: " in refused
    world.task("/me/train/0")
    assert "not looked at, since they do not run: 2 building\n" in world.cli("job", "hang", "/me/train").err
    world.client.answer("ProfileTask", RpcFailed("FAILED_PRECONDITION", "worker w0 is not attached"))
    world.client.answer("ListProfiles", RpcFailed("UNAVAILABLE", "the log store is not running"))
    done = world.cli("job", "hang", "/me/train")
    assert done.code == 1
    assert "Warning: the stored dumps cannot be read: the log store is not running" in done.err
    assert "worker w0 is not attached" in done.out
