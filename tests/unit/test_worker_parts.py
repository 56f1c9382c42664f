"""The worker's small pure parts: options, environment, ports, outcomes, records, control groups of either version."""

from __future__ import annotations

import os
import secrets
import socket
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_controller.worker import cgroups, config, environment, outcome, ports, procs, records
from iris_controller.worker.attach import log_targets, target_of
from iris_controller.worker.process import CannotStart, Exit, resolve
from iris_core.model.resources import Device
from iris_core.wire.gen.iris.v1 import common_pb2, worker_pb2

PORTS, ONE_PORT = 20_990, 20_985
"""Below what the kernel gives to connections that go out, and to workers: nothing else of these tests takes one."""
WORDS = ["--controller", "http://127.0.0.1:10000", "--worker-id", "w1", "--cache-dir", "/tmp/x"]

# Options ----------------------------------------------------------------------------------------------------------


def test_options_have_sensible_defaults() -> None:
    got = config.parse(WORDS)
    assert got.cpu == (os.cpu_count() or 1) * 1000 and got.memory > 1 << 28 and got.disk > 0
    assert (got.spool_bytes, got.idle_exit_s, got.cgroups) == (256 << 20, 0.0, True)
    assert config.parse(["--", *WORDS], supervised=True).idle_exit_s == 600


def test_options_are_read() -> None:
    got = config.parse(
        [*WORDS, "--cpu", "500m", "--memory", "2GiB", "--disk", "1GB", "--gpu", "H100x8", "--attribute", "zone=a",
         "--attribute", "n=3", "--attribute", "f=1.5", "--slice-id", "s", "--scale-group", "g", "--spool-bytes", "1MB"]
    )  # fmt: skip
    assert (got.cpu, got.memory, got.disk, got.spool_bytes) == (500, 2 << 30, 10**9, 10**6)
    assert got.attributes == {"zone": "a", "n": 3, "f": 1.5}
    assert got.device is not None and (got.device.kind, got.device.count) == ("gpu", 8)
    assert config.parse([*WORDS, "--tpu", "v5litepod-16"]).device == Device("tpu", "v5litepod-16", 4)
    assert config.parse([*WORDS, "--tpu", "v5litepod-16", "--tpu-chips", "2"]).device == Device(
        "tpu", "v5litepod-16", 2
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--worker-id", "w", "--cache-dir", "/x"], "--controller"),
        ([*WORDS, "--controller", "127.0.0.1:1"], "no URL of a controller"),
        ([*WORDS, "--controller", "http://h"], "no URL of a controller"),
        ([*WORDS, "--controller", "http://h:99999999"], "no URL of a controller"),
        ([*WORDS, "--worker-id", "a b"], "worker id"),
        ([*WORDS, "--worker-id", "../x"], "worker id"),
        ([*WORDS, "--memory", "lots"], "lots"),
        ([*WORDS, "--attribute", "novalue"], "KEY=VALUE"),
        ([*WORDS, "--attribute", "preemptible=maybe"], "preemptible is true or false, not 'maybe'"),
        ([*WORDS, "--contro", "x"], "unrecognized"),
        ([*WORDS, "--tpu-chips", "4"], "--tpu-chips needs --tpu"),
        ([*WORDS, "--tpu", "v5litepod-16", "--tpu-chips", "0"], "from 1 to 4096, got 0"),
    ],
)
def test_wrong_options_are_one_line_and_exit_2(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        config.parse(words)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and why in said and said.startswith("Error: ") and said.count("\n") == 2


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://127.0.0.1:10000", ("127.0.0.1:10000", False)),
        ("http://[::1]:7", ("[::1]:7", False)),
        ("https://host.example:443", ("host.example:443", True)),
    ],
)
def test_urls_become_targets(url: str, target: tuple[str, bool]) -> None:
    assert target_of(url) == target


def test_lines_go_to_the_store_first_and_to_the_dialled_port_last() -> None:
    own = ("127.0.0.1:1", False)
    assert log_targets(["a:1", "b:2"], "http://127.0.0.1:1") == [("a:1", False), ("b:2", False), own]
    assert log_targets(["127.0.0.1:1"], "http://127.0.0.1:1") == [own]


# Environment ------------------------------------------------------------------------------------------------------

names = st.text("ABCDEFG_", min_size=1, max_size=6)
variables = st.dictionaries(names | st.sampled_from(["PATH", "HOME", "PYTHONPATH", "IRIS_TASK_ID", "IRIS_PORT_X"]),
                            st.text("abc/", max_size=4), max_size=6)  # fmt: skip


@given(variables, variables, variables)
def test_the_environment_has_the_stated_precedence(
    host: dict[str, str], job: dict[str, str], ours: dict[str, str]
) -> None:
    env = environment.build(host, job, ours)
    for name, value in env.items():
        if name in ours and not (name.startswith("IRIS_PORT_") and name in job):
            assert value == ours[name]
        elif name in job:
            assert value == job[name]
        elif name in environment.DEFAULTS:
            assert value == environment.DEFAULTS[name]
        else:
            assert name in environment.HOST_NAMES and value == host.get(name, environment.DEFAULT_PATH)
    assert env.keys() >= job.keys() | ours.keys()


def test_a_shell_full_of_secrets_is_not_passed_on() -> None:
    env = environment.build({"AWS_SECRET_ACCESS_KEY": "x", "HOME": "/home/u", "IRIS_TOKEN": "theirs"}, {}, {})
    assert "AWS_SECRET_ACCESS_KEY" not in env and "IRIS_TOKEN" not in env and env["HOME"] == "/home/u"


def test_a_job_may_name_its_own_port_and_nothing_else_of_ours() -> None:
    job = {"IRIS_PORT_HTTP": "8080", "IRIS_TASK_ID": "forged"}
    env = environment.build({}, job, {"IRIS_PORT_HTTP": "30001", "IRIS_TASK_ID": "/u/j/0:2"})
    assert (env["IRIS_PORT_HTTP"], env["IRIS_TASK_ID"]) == ("8080", "/u/j/0:2")


def test_port_names_become_variables() -> None:
    assert environment.port_variable("http-2.x") == "IRIS_PORT_HTTP_2_X"


def test_a_virtual_environment_comes_first_on_the_path() -> None:
    env = environment.activate({"PATH": "/bin"}, "/w")
    assert (env["PATH"], env["VIRTUAL_ENV"]) == ("/w/.venv/bin:/bin", "/w/.venv")


# Ports ------------------------------------------------------------------------------------------------------------


def test_reserved_ports_are_distinct_and_come_back() -> None:
    first = ports.reserve(["a", "b"], first=PORTS, last=PORTS + 3)
    second = ports.reserve(["c", "d"], first=PORTS, last=PORTS + 3)
    numbers = [*first.numbers.values(), *second.numbers.values()]
    assert len(set(numbers)) == 4 and all(PORTS <= number <= PORTS + 3 for number in numbers)
    with pytest.raises(ports.NoPort, match="no free port"):
        ports.reserve(["e"], first=PORTS, last=PORTS + 3)
    first.release()
    first.release()
    third = ports.reserve(["e", "f"], first=PORTS, last=PORTS + 3)
    assert set(third.numbers.values()) == set(first.numbers.values())
    second.release()
    third.release()


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_somebody_listens_on_is_not_given(address: str) -> None:
    with socket.socket() as listener:
        listener.bind((address, ONE_PORT))
        listener.listen()
        with pytest.raises(ports.NoPort):
            ports.reserve(["a"], first=ONE_PORT, last=ONE_PORT)
    ports.reserve(["a"], first=ONE_PORT, last=ONE_PORT).release()


# Outcomes ---------------------------------------------------------------------------------------------------------


def test_reasons_are_stated_as_far_as_they_are_known() -> None:
    plain = outcome.ended(Exit(137, False, 0), oom_kills=0, limit=256_000_000, peak=0)
    assert (plain.error, plain.kind, plain.exit_code) == ("exit code 137", worker_pb2.FAILURE_KIND_COMMAND, 137)
    killed = outcome.ended(Exit(137, True, 0), oom_kills=0, limit=256_000_000, peak=0)
    assert killed.error == "killed by SIGKILL (sender unknown)"
    oom = outcome.ended(Exit(137, True, 0), oom_kills=1, limit=256_000_000, peak=255_000_000)
    assert oom.error == "out of memory: limit 256MB, peak 255MB (the kernel killed 1 process)"
    assert oom.kind == worker_pb2.FAILURE_KIND_OUT_OF_MEMORY
    assert outcome.ended(Exit(0, False, 0), oom_kills=1, limit=1, peak=1).state == outcome.SUCCEEDED
    assert "out of memory" not in outcome.over_limit(1000, 2000).error


def test_stops_are_told_by_their_reason() -> None:
    assert outcome.stopped(common_pb2.STOP_REASON_PREEMPTED).error == "stopped: preempted"
    assert outcome.stopped(common_pb2.STOP_REASON_TASK_TIMEOUT).state == outcome.FAILED
    assert outcome.stopped(99).error == "stopped: reason 99"


def test_a_missing_uv_is_named() -> None:
    told = outcome.setup_failed(Exit(127, False, 0), 1, 1, "uv sync --all-packages", uv_missing=True, worker_id="w7")
    assert told.error == "uv not found on worker w7: install it or submit with --no-sync"
    other = outcome.setup_failed(Exit(127, False, 0), 1, 2, "./luv sync", uv_missing=True, worker_id="w7")
    assert other.error == "setup step 1/2 failed: exit code 127"


@given(st.text(st.characters(codec="utf-8"), max_size=3000))
def test_a_long_error_is_cut_to_what_fits(text: str) -> None:
    cut = outcome.cut(text)
    assert len(cut.encode()) <= 4096 and (cut == text or cut.endswith("…"))


# Commands ---------------------------------------------------------------------------------------------------------


def test_commands_are_found_as_a_shell_finds_them(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "data").write_text("x")
    assert resolve(["./tool"], {}, tmp_path) == f"{tmp_path}/./tool"
    assert resolve(["tool"], {"PATH": ".:/bin"}, tmp_path) == f"{tmp_path}/./tool"
    assert resolve(["tool"], {"PATH": f"/nowhere:{tmp_path}"}, Path("/")) == f"{tmp_path}/tool"
    for name, code in (
        ("no-such", 127),
        ("./data", 126),
        ("./none", 127),
        (str(tmp_path), 126),
        ("", 127),
        ("a\0", 127),
    ):
        with pytest.raises(CannotStart) as error:
            resolve([name], {"PATH": "/bin"}, tmp_path)
        assert error.value.exit_code == code, name


# Records ----------------------------------------------------------------------------------------------------------


def test_records_come_back_and_a_torn_one_still_names_its_attempt(tmp_path: Path) -> None:
    kept = records.Records(tmp_path)
    kept.prepare()
    record = records.AttemptRecord("a1", "/u/j/0:0", 7, "boot", procs.machine_boot(), "/cg/a1", 5, 6, 5, b"\x01end")
    kept.write(record)
    record.end = b""
    kept.write(record)
    assert kept.load() == [record]
    path = tmp_path / "attempts" / "a1.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(path.read_bytes()[:20])
    assert [(left.uid, left.pid, left.cgroup) for left in kept.load()] == [("a1", 0, "")]
    kept.remove("a1")
    kept.remove("a1")
    assert kept.load() == []


def test_a_recorded_process_is_believed_only_when_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "me.json"
    identity = records.process_identity()
    records.write_private(path, identity)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert records.recorded_process(path) == (os.getpid(), identity["start_time"])
    for change in ({"start_time": identity["start_time"] + 1}, {"boot_id": "other"}, {"pid": 2**22 + 1}):
        records.write_private(path, identity | change)
        assert records.recorded_process(path) is None
    path.write_text("{")
    assert records.recorded_process(path) is None


# Control groups ---------------------------------------------------------------------------------------------------


def write(path: Path, **files: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)


def fake_proc(tmp_path: Path, own: str, mount: Path, kind: str) -> Path:
    proc = tmp_path / "proc"
    options = "rw,memory" if kind == "cgroup" else "rw"
    write(proc, cgroup=own, mountinfo=f"30 1 0:27 / {mount} rw - {kind} {kind} {options}\n")
    return proc


def test_version_2_is_used_where_memory_is_delegated(tmp_path: Path) -> None:
    mount = tmp_path / "cg"
    write(mount / "svc", cgroup__controllers="cpu memory", cgroup__subtree_control="memory", cgroup__procs="")
    root = mount / "svc" / cgroups.parent_name(tmp_path)
    write(root, cgroup__procs="")
    found = cgroups.detect(tmp_path, proc=fake_proc(tmp_path, "0::/svc\n", mount, "cgroup2"))
    assert found is not None and (found.version, found.root) == (2, str(root))
    assert (root / "cgroup.subtree_control").read_text() == "+memory"
    group = found.create("uid1", 1000)
    assert Path(group.path, "memory.max").read_text() == "1000"
    write(
        Path(group.path), cgroup__procs="1\n2\n", memory__peak="77\n", memory__current="55\n",
        memory__events="low 0\noom 3\noom_kill 2\n",
    )  # fmt: skip
    assert (group.pids(), group.memory_peak(), group.memory_now(), group.oom_kills()) == ([1, 2], 77, 55, 2)


def test_version_2_without_memory_is_not_used(tmp_path: Path) -> None:
    mount = tmp_path / "cg"
    write(mount / "svc", cgroup__controllers="hugetlb", cgroup__subtree_control="", cgroup__procs="")
    assert cgroups.detect(tmp_path, proc=fake_proc(tmp_path, "0::/svc\n", mount, "cgroup2")) is None


def test_version_1_counters_are_read(tmp_path: Path) -> None:
    mount = tmp_path / "cg"
    root = mount / "own" / cgroups.parent_name(tmp_path)
    write(root, cgroup__procs="")
    proc = fake_proc(tmp_path, "0::/\n4:memory:/own\n", mount, "cgroup")
    found = cgroups.detect(tmp_path, proc=proc)
    assert found is not None and (found.version, found.root) == (1, str(root))
    group = found.create("uid1", 1000)
    write(
        Path(group.path), cgroup__procs="", memory__max_usage_in_bytes="99\n", memory__usage_in_bytes="9\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
    )  # fmt: skip
    assert (group.memory_peak(), group.memory_now(), group.oom_kills()) == (99, 9, 4)
    assert Path(group.path, "memory.limit_in_bytes").read_text() == "1000"


def test_a_group_that_is_gone_reads_as_nothing(tmp_path: Path) -> None:
    group = cgroups.Cgroup(str(tmp_path / "gone"), 1)
    assert (group.pids(), group.memory_peak(), group.oom_kills(), group.remove()) == ([], 0, 0, True)
    assert cgroups.recorded(str(tmp_path), "other-uid") is None


def test_a_real_group_holds_a_limit_and_goes_away(tmp_path: Path) -> None:
    found = cgroups.detect(tmp_path)
    if found is None:
        pytest.skip("no control group with memory can be made here")
    uid = secrets.token_hex(8)
    group = found.create(uid, 64 << 20)
    again = cgroups.recorded(group.path, uid)
    assert again == group and group.pids() == [] and group.remove()
    found.close()
    assert not os.path.exists(found.root)
