"""A real worker process under a scripted controller: how attempts start, run, print and end."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import urllib.request
import zipfile
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import pytest

from iris_controller.worker import procs
from iris_controller.worker.config import GRACE_S
from iris_core.wire.gen.iris.v1 import common_pb2, profiles_pb2, worker_pb2
from providers.fake.controller import FakeController

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.asyncio

SUCCEEDED = common_pb2.TASK_STATE_SUCCEEDED
FAILED = common_pb2.TASK_STATE_FAILED
KILLED = common_pb2.TASK_STATE_KILLED
WORKER_FAILED = common_pb2.TASK_STATE_WORKER_FAILED
RUNNING = common_pb2.TASK_STATE_RUNNING
BUILDING = common_pb2.TASK_STATE_BUILDING
MISSING = common_pb2.TASK_STATE_MISSING


class Worker:
    """One `iris-worker` process."""

    def __init__(self, controller: FakeController, cache: Path, *options: str) -> None:
        self.cache = cache
        self.argv = [
            sys.executable, "-P", "-m", "iris_controller.worker.main", "--controller", controller.url,
            "--worker-id", "w1", "--cache-dir", str(cache), *options,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.cache.mkdir(exist_ok=True)
        with open(self.cache / "stderr", "ab") as log:
            self.process = subprocess.Popen(self.argv, stdout=log, stderr=log)

    async def exited(self, timeout_s: float = 90) -> int:
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, timeout_s)

    async def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                await self.exited()
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise

    @property
    def log(self) -> str:
        return (self.cache / "stderr").read_text()


@asynccontextmanager
async def running(tmp_path: Path, *options: str) -> AsyncIterator[tuple[FakeController, Worker]]:
    async with FakeController() as controller:
        worker = Worker(controller, tmp_path / "cache", *options)
        worker.start()
        try:
            await controller.attached()
            yield controller, worker
        finally:
            await worker.stop()
        uids = [record.attempt_uid for record in controller.observations]
        left = procs.members(procs.snapshot(), [procs.Wanted(uid) for uid in uids])
        assert not any(left.values()), "a process of an attempt outlived its worker"


def alive(pid: int) -> bool:
    found = procs.read(pid)
    return found is not None and not found.dead


async def until(true: object, timeout_s: float = 90) -> None:
    """Waits for something outside of our processes, which nobody can signal us about."""
    assert callable(true)
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.01)


def zipped(**members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for name, text in members.items():
            target.writestr(name.replace("__", "/"), text)
    return buffer.getvalue()


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    """A file system of its own, to be filled."""
    if os.geteuid() != 0:
        pytest.skip("a small file system can be mounted by root only")
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


async def ran(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, timeout=30, check=False)


async def test_hello_says_what_the_worker_is_and_health_answers(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret-token\n")
    options = ("--cpu", "1.5", "--memory", "1GB", "--attribute", "zone=a", "--attribute", "rank=3", "--gpu", "H100x2",
               "--slice-id", "s1", "--scale-group", "g1", "--token-file", str(token))  # fmt: skip
    async with running(tmp_path, *options) as (controller, worker):
        hello = controller.hellos[0]
        assert worker.process is not None
        assert (hello.worker_id, hello.pid, hello.slice_id, hello.scale_group) == ("w1", worker.process.pid, "s1", "g1")
        assert re.fullmatch(r"[0-9a-f]{16}", hello.boot_id) and hello.version and hello.release
        assert (hello.total.cpu_millicores, hello.total.memory_bytes) == (1500, 10**9)
        assert (hello.total.device.kind, hello.total.device.count) == ("gpu", 2)
        assert (hello.attributes["zone"].text, hello.attributes["rank"].integer) == ("a", 3)
        assert controller.tokens == ["Bearer secret-token"]
        await controller.until(lambda: len(controller.heartbeats) >= 3)
        assert controller.heartbeats[0].healthy and controller.heartbeats[0].memory_used_bytes > 0

        def get(path: str) -> tuple[int, bytes]:
            try:
                with urllib.request.urlopen(f"http://{hello.address}{path}", timeout=5) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read()

        status, body = await asyncio.to_thread(get, "/health")
        assert status == 200 and json.loads(body)["attached"] is True
        assert (await asyncio.to_thread(get, "/other"))[0] == 404
        assert os.stat(worker.cache).st_mode & 0o777 == 0o700


async def test_output_exit_code_and_environment(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, worker):
        show = 'echo out; echo "ERROR: err" >&2; env | grep -E "^(IRIS_|MINE|PYTHON)" | sort; pwd; exit 3'
        uid = controller.run(
            ["sh", "-c", show], task_id="/u/j/4", attempt_id=2, env={"MINE": "1", "IRIS_JOB_ID": "forged"},
            ports=["http"], token="the-token", files={"sub/f": b"x"},
        )  # fmt: skip
        end = await controller.ended(uid)
        assert (end.state, end.exit_code, end.error) == (FAILED, 3, "exit code 3")
        assert end.failure_kind == worker_pb2.FAILURE_KIND_COMMAND
        assert end.pid > 0 and 0 < end.started_at_ms <= end.finished_at_ms
        # Without control groups nobody may have looked at it before it was over.
        assert end.memory_peak_bytes > 0 or "enforcement=cgroup" not in worker.log
        lines = controller.lines[uid]
        assert (lines.key, lines.attempt_uid, lines.incarnation) == ("/u/j/4:2", uid, 7)
        assert end.log_lines == len(lines.entries) == lines.next
        assert [entry.number for entry in lines.entries] == list(range(len(lines.entries)))
        error = next(entry for entry in lines.entries if entry.source == "stderr")
        assert (error.data, error.level) == ("ERROR: err", common_pb2.LOG_LEVEL_ERROR)
        env = dict(text.split("=", 1) for text in lines.text if "=" in text)
        workdir = f"{worker.cache}/work/{uid}/workdir"
        assert int(env.pop("IRIS_PORT_HTTP")) in range(30000, 40001)
        assert env == {
            "IRIS_TASK_ID": "/u/j/4:2", "IRIS_NUM_TASKS": "1", "IRIS_TASK_INDEX": "0", "IRIS_ATTEMPT_ID": "2",
            "IRIS_ATTEMPT_UID": uid, "IRIS_JOB_ID": "/u/j", "IRIS_WORKER_ID": "w1", "IRIS_WORKDIR": workdir,
            "IRIS_OUTPUT_DIR": f"{worker.cache}/work/{uid}/output", "IRIS_CONTROLLER_URL": controller.url,
            "IRIS_TOKEN": "the-token", "MINE": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": ".",
        }  # fmt: skip
        assert workdir in lines.text
        assert [o.state for o in controller.of(uid)] in ([RUNNING, FAILED], [FAILED])
        await until(lambda: not os.path.exists(f"{worker.cache}/work/{uid}"))
        await until(lambda: not os.path.exists(f"{worker.cache}/attempts/{uid}.json"))


async def test_commands_that_cannot_run_say_why(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        cases = {
            ("no-such-command",): (127, "command not found: 'no-such-command'"),
            ("./data",): (126, "permission denied"),
            ("./script",): (127, "interpreter"),
            (): (127, "the command is empty"),
        }
        for argv, (code, why) in cases.items():
            uid = controller.run(argv, files={"data": b"x", "script": b"#!/no/such/interpreter\n"})
            if argv == ("./script",):
                uid = controller.run(["sh", "-c", "chmod +x script; exec ./script"], files={"script": b"#!/no/such\n"})
                why = "exit code 127"
            end = await controller.ended(uid)
            assert (end.state, end.exit_code) == (FAILED, code), argv
            assert why in end.error and "\n" not in end.error


async def test_three_ways_to_die_have_three_reasons(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, worker):
        own = controller.run(["sh", "-c", "kill -9 $$"], memory=256_000_000)
        plain = controller.run(["sh", "-c", "exit 137"], memory=256_000_000)
        hungry = controller.run([sys.executable, "-c", "b=bytearray(1<<30); print(len(b))"], memory=100_000_000)
        end = await controller.ended(own)
        assert (end.exit_code, end.error) == (137, "killed by SIGKILL (sender unknown)")
        end = await controller.ended(plain)
        assert (end.exit_code, end.error) == (137, "exit code 137")
        end = await controller.ended(hungry)
        assert end.state == FAILED
        if "enforcement=cgroup" in worker.log:
            assert end.failure_kind == worker_pb2.FAILURE_KIND_OUT_OF_MEMORY
            assert re.match(r"out of memory: limit 100MB, peak [0-9.]+MB", end.error)
            assert 90_000_000 < end.memory_peak_bytes <= 101_000_000
        else:
            assert "over the limit" in end.error


async def test_without_control_groups_memory_is_polled(tmp_path: Path) -> None:
    async with running(tmp_path, "--no-cgroups") as (controller, _):
        hungry = controller.run(
            [sys.executable, "-c", "import time; b=bytearray(200<<20); b[:]=b'x'*len(b); time.sleep(600)"],
            memory=100_000_000,
        )
        end = await controller.ended(hungry)
        assert (end.state, end.failure_kind) == (FAILED, worker_pb2.FAILURE_KIND_COMMAND)
        assert "over the limit 100MB (polled)" in end.error and "out of memory" not in end.error
        assert end.memory_peak_bytes > 100_000_000
        status = await controller.ask(worker_pb2.WorkerRequest(process_status=True))
        assert status.process.details["enforcement"] == "polled"


@pytest.mark.parametrize("options", [(), ("--no-cgroups",)])
async def test_a_background_child_does_not_hold_the_end_and_dies_with_the_attempt(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    async with running(tmp_path, *options) as (controller, _):
        script = "sleep 611 & echo $!; (env -i sleep 612 & echo $!); echo started"
        uid = controller.run(["sh", "-c", script])
        end = await controller.ended(uid)
        assert (end.state, end.exit_code) == (SUCCEEDED, 0)
        *pids, last = controller.lines[uid].text
        assert last == "started" and not any(alive(int(pid)) for pid in pids)


async def test_a_child_that_ignores_term_is_killed(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        uid = controller.run(["sh", "-c", "(trap '' TERM; sleep 613; sleep 614) & echo $!; sleep .2"])
        end = await controller.ended(uid)
        assert end.state == SUCCEEDED and not alive(int(controller.lines[uid].text[0]))


@pytest.mark.parametrize("options", [(), ("--no-cgroups",)])
async def test_stop_gives_the_grace_and_then_kills(tmp_path: Path, options: tuple[str, ...]) -> None:
    async with running(tmp_path, *options) as (controller, _):
        clean = "trap 'echo got TERM; sleep .3; echo clean; exit 0' TERM; echo ready; while :; do sleep .05; done"
        stubborn = "trap '' TERM; echo ready; while :; do sleep .05; done"
        first, second = controller.run(["sh", "-c", clean]), controller.run(["sh", "-c", stubborn])
        await controller.until(lambda: all(controller.lines.get(uid) for uid in (first, second)))
        controller.end(first, common_pb2.STOP_REASON_PREEMPTED, grace_ms=8000)
        began = time.monotonic()
        controller.end(second, common_pb2.STOP_REASON_CANCELLED, grace_ms=400)
        end = await controller.ended(first)
        assert (end.state, end.exit_code, end.error) == (KILLED, 0, "stopped: preempted")
        assert end.failure_kind == worker_pb2.FAILURE_KIND_STOPPED
        assert [text for text in controller.lines[first].text if text != "Terminated"] == ["ready", "got TERM", "clean"]
        end = await controller.ended(second)
        assert (end.state, end.exit_code, end.error) == (KILLED, 137, "stopped: cancelled")
        assert time.monotonic() - began >= 0.4


async def test_the_execution_limit_is_held_here_too(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        uid = controller.run(["sleep", "615"], timeout_ms=300)
        end = await controller.ended(uid)
        assert (end.state, end.failure_kind) == (FAILED, worker_pb2.FAILURE_KIND_TIMEOUT)
        assert "timed out: the execution limit of 300ms" in end.error and end.exit_code == 143
        other = controller.run(["sleep", "616"])
        await controller.observed(other, RUNNING)
        controller.end(other, common_pb2.STOP_REASON_TASK_TIMEOUT)
        end = await controller.ended(other)
        assert (end.state, end.failure_kind) == (FAILED, worker_pb2.FAILURE_KIND_TIMEOUT)


async def test_setup_steps_run_each_in_a_fresh_shell_before_the_command(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        made = "mkdir -p .venv/bin; printf '#!/bin/sh\\necho from the venv' >.venv/bin/tool; chmod +x .venv/bin/tool"
        uid = controller.run(["tool"], setup=["X=1; echo one >&2; sleep 617 &", f"echo two $X; {made}"])
        end = await controller.ended(uid)
        assert (end.state, end.exit_code) == (SUCCEEDED, 0)
        lines = [(entry.source, entry.data) for entry in controller.lines[uid].entries]
        assert lines == [
            ("setup", "[iris setup] step 1/2"), ("setup", "one"), ("setup", "[iris setup] step 2/2"), ("setup", "two"),
            ("stdout", "from the venv"),
        ]  # fmt: skip
        assert BUILDING in [o.state for o in controller.of(uid)]


async def test_the_first_failing_setup_step_fails_the_task(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        uid = controller.run(["true"], setup=["exit 4", "echo never"])
        end = await controller.ended(uid)
        assert (end.state, end.exit_code, end.error) == (FAILED, 4, "setup step 1/2 failed: exit code 4")
        assert controller.lines[uid].text == ["[iris setup] step 1/2"]
        uid = controller.run(["true"], setup=["uv sync"], env={"PATH": "/usr/bin:/bin"})
        if not any(os.access(f"{folder}/uv", os.X_OK) for folder in ("/usr/bin", "/bin")):
            end = await controller.ended(uid)
            assert end.error == "uv not found on worker w1: install it or submit with --no-sync"


async def test_what_no_machine_could_set_up_is_never_the_machines_fault(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        own_path = controller.run(["true"], setup=["exit 3"], env={"PATH": "/nowhere"})
        end = await controller.ended(own_path)
        assert (end.state, end.exit_code, end.error) == (FAILED, 3, "setup step 1/1 failed: exit code 3")
        large = controller.run(["true"], setup=["true"], env={"LARGE": "x" * 200_000})
        end = await controller.ended(large)
        assert (end.state, end.failure_kind) == (FAILED, worker_pb2.FAILURE_KIND_COMMAND)
        assert end.error.endswith("argument list too long")
        own_end = controller.run(["true"], setup=['rm -r "$IRIS_WORKDIR"', "true"])
        end = await controller.ended(own_end)
        assert (end.state, end.exit_code) == (FAILED, 126) and end.error.endswith("its work directory is gone"), end
        bundle = io.BytesIO()
        with zipfile.ZipFile(bundle, "w") as target:
            link = zipfile.ZipInfo("loop")
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            target.writestr(link, "loop")
        loop = controller.run(["true"], bundle=bundle.getvalue(), files={"loop/a/b": b""})
        end = await controller.ended(loop)
        assert (end.state, end.failure_kind) == (FAILED, worker_pb2.FAILURE_KIND_UNSPECIFIED), end.error


async def test_a_bundle_is_fetched_once_and_unpacked_each_time(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, worker):
        bundle = zipped(main__hello="hi", top="t" * 300_000)
        uids = [controller.run(["cat", "main/hello", "extra"], bundle=bundle, files={"extra": b"!"}) for _ in range(3)]
        for uid in uids:
            end = await controller.ended(uid)
            assert end.state == SUCCEEDED and controller.lines[uid].text == ["hi!"]
        assert controller.bundle_calls == 1
        assert len(list((worker.cache / "bundles").iterdir())) == 1


async def test_large_files_are_fetched_as_bundles_are_and_lie_over_what_the_bundle_holds(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        blobs = {"main/hello": b"over", "new/large": b"y" * 20_000}
        uid = controller.run(
            ["sh", "-c", "cat main/hello; echo; wc -c < new/large"], bundle=zipped(main__hello="hi"), blobs=blobs
        )
        end = await controller.ended(uid)
        assert end.state == SUCCEEDED and controller.lines[uid].text == ["over", "20000"]
        lost = controller.run(["true"], blobs={"x": b"gone"}, send=False)
        controller.bundles.clear()
        controller.send()
        end = await controller.ended(lost)
        assert end.state == FAILED and end.error.startswith("cannot stage the work directory: NOT_FOUND")


async def test_several_processes_of_a_task_share_its_gpus_and_end_together(tmp_path: Path) -> None:
    told = 'echo "$IRIS_PROCESS_INDEX/$IRIS_NUM_PROCESSES has $CUDA_VISIBLE_DEVICES"'
    async with running(tmp_path) as (controller, _):
        uid = controller.run(["sh", "-c", told], processes=2, gpus=4)
        assert (await controller.ended(uid)).state == SUCCEEDED
        assert sorted(controller.lines[uid].text) == ["0/2 has 0,1", "1/2 has 2,3"]
        uid = controller.run(["sh", "-c", told], processes=2, gpus=2, env={"CUDA_VISIBLE_DEVICES": "6,7"})
        assert (await controller.ended(uid)).state == SUCCEEDED
        assert sorted(controller.lines[uid].text) == ["0/2 has 6", "1/2 has 7"]
        one_fails = '[ "$IRIS_PROCESS_INDEX" = 1 ] && exit 7; trap "echo ended; exit 0" TERM; sleep 600 & wait'
        uid = controller.run(["sh", "-c", one_fails], processes=3, gpus=3)
        end = await controller.ended(uid)
        assert (end.state, end.exit_code) == (common_pb2.TASK_STATE_FAILED, 7)
        killed = controller.run(["sh", "-c", "kill -9 $$"], processes=2, gpus=2)
        assert (await controller.ended(killed)).exit_code == 137
        absent = controller.run(["no-such-program"], processes=2, gpus=2)
        assert (await controller.ended(absent)).exit_code == 127
        stopped = controller.run(["sh", "-c", "echo up; exec sleep 600"], processes=2, gpus=2)
        await until(lambda: stopped in controller.lines and len(controller.lines[stopped].text) == 2)
        controller.end(stopped)
        assert (await controller.ended(stopped)).state == common_pb2.TASK_STATE_KILLED


async def test_a_bundle_that_cannot_be_had_or_trusted(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, worker):
        absent = controller.run(["true"], bundle_id="0" * 64)
        end = await controller.ended(absent)
        assert (end.state, end.failure_kind) == (FAILED, worker_pb2.FAILURE_KIND_UNSPECIFIED)
        assert "cannot stage the bundle: NOT_FOUND" in end.error and "submit the job again" in end.error
        controller.bundles["1" * 64] = b"not what the id says"
        damaged = controller.run(["true"], bundle_id="1" * 64)
        end = await controller.ended(damaged)
        assert end.state == FAILED and "damaged where the controller keeps it" in end.error
        evil = controller.run(["true"], bundle=zipped(**{"../../../../evil": "x"}))
        end = await controller.ended(evil)
        assert end.state == FAILED and "leaves the work directory" in end.error
        assert not list(worker.cache.parent.rglob("evil"))
        refused = controller.run(["true"], files={"../evil": b""})
        end = await controller.ended(refused)
        assert end.state == FAILED and "leaves the work directory" in end.error


async def test_stop_while_the_bundle_is_on_its_way(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        gate = asyncio.Event()

        async def slow(request: object, context: object) -> AsyncIterator[worker_pb2.GetBundleResponse]:
            await gate.wait()
            yield worker_pb2.GetBundleResponse()

        await controller.stop()
        controller._get_bundle = slow  # type: ignore[method-assign]
        await controller.start()
        await controller.attached(2)
        uid = controller.run(["true"], bundle_id="2" * 64)
        await controller.observed(uid, BUILDING)
        controller.end(uid)
        end = await controller.ended(uid)
        assert end.state == KILLED and not end.HasField("exit_code")
        gate.set()


async def test_lines_of_every_kind_arrive_exactly(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        script = (
            "import sys; w=sys.stdout.buffer.write; w(b'a'*1_000_000+b'\\n'); w(b'bad \\xff\\xfe\\n'); w(b'nul\\0nul\\n');"
            "w(b'\\x1b[31mred\\x1b[0m\\r\\n'); w('h\\u00e9'.encode()+b'\\n\\n'); w(b'no newline')"
        )
        uid = controller.run([sys.executable, "-c", script])
        end = await controller.ended(uid)
        entries = controller.lines[uid].entries
        assert end.log_lines == len(entries) == 10
        assert [entry.partial for entry in entries] == [True, True, True] + [False] * 7
        assert "".join(entry.data for entry in entries[:4]) == "a" * 1_000_000
        assert (entries[4].data, entries[4].raw) == ("bad ��", b"bad \xff\xfe")
        assert [entry.data for entry in entries[5:]] == ["nul\0nul", "\x1b[31mred\x1b[0m", "hé", "", "no newline"]
        assert entries[6].raw == b"\x1b[31mred\x1b[0m\r" and not entries[7].raw


async def test_an_unfinished_line_and_a_progress_bar_are_seen_while_they_grow(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, worker):
        prompt = controller.run(["sh", "-c", "printf 'Continue? '; sleep 600"])
        bar = (
            "import sys,time\n"
            "for i in range(10_000): sys.stderr.write(f'\\r{i:3d}%|##'); sys.stderr.flush(); time.sleep(.01)\n"
        )
        growing = controller.run([sys.executable, "-c", bar])
        huge = controller.run(
            [sys.executable, "-c", "import sys\nfor i in range(1_000_000): sys.stdout.write(f'\\r{i} '+'x'*80)"]
        )
        await controller.until(lambda: controller.lines.get(prompt) and controller.lines[prompt].entries, 10)
        entry = controller.lines[prompt].entries[0]
        assert (entry.data, entry.partial) == ("Continue? ", True)
        await controller.until(lambda: controller.lines.get(growing) and controller.lines[growing].next >= 2, 10)
        first, second = controller.lines[growing].entries[:2]
        assert re.fullmatch(r" *\d+%\|##", first.data) and first.data != second.data and not first.partial
        end = await controller.ended(huge, 60)
        assert end.state == SUCCEEDED
        assert controller.lines[huge].text[-1] == "999999 " + "x" * 80 and end.log_lines < 60
        assert worker.process is not None
        found = procs.read(worker.process.pid)
        assert found is not None and found.rss < 150 << 20
        for uid in (prompt, growing):
            controller.end(uid, grace_ms=100)
            await controller.ended(uid)
        assert [entry.partial for entry in controller.lines[prompt].entries] == [True, False]


async def test_a_flood_from_one_task_does_not_hold_up_another(tmp_path: Path) -> None:
    async with running(tmp_path, "--spool-bytes", "8MB") as (controller, _):
        flood = controller.run(["sh", "-c", "yes flood"])
        await controller.until(lambda: controller.lines.get(flood) and controller.lines[flood].next > 1000)
        quiet = controller.run(["echo", "heard"])
        end = await controller.ended(quiet, 30)
        assert end.state == SUCCEEDED and controller.lines[quiet].text == ["heard"]
        controller.end(flood, grace_ms=500)
        end = await controller.ended(flood, 60)
        assert numbers(controller, flood) == list(range(end.log_lines))


def numbers(controller: FakeController, uid: str) -> list[int]:
    """Every number that arrived as a line or within a gap record."""
    return [n for e in controller.lines[uid].entries for n in range(e.number, e.number + max(1, e.gap))]


async def test_exec_runs_beside_the_command(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        uid = controller.run(["sh", "-c", "echo up; exec sleep 618"], env={"MINE": "set"}, files={"f": b"data"})
        await controller.until(lambda: controller.lines.get(uid))

        async def execute(*command: str, timeout_ms: int = 0, attempt: str = uid) -> worker_pb2.WorkerReply:
            request = worker_pb2.ExecRequest(attempt_uid=attempt, command=command, timeout_ms=timeout_ms)
            return await controller.ask(worker_pb2.WorkerRequest(exec=request))

        done = (await execute("sh", "-c", "cat f; echo $MINE $IRIS_ATTEMPT_UID; echo e >&2; exit 7")).exec
        assert (done.exit_code, done.stdout, done.stderr, done.error) == (
            7,
            b"dataset " + uid.encode() + b"\n",
            b"e\n",
            "",
        )
        done = (await execute("sh", "-c", "kill -9 $$")).exec
        assert done.exit_code == 137
        done = (await execute("nope")).exec
        assert done.exit_code == 127 and "command not found" in done.error
        done = (await execute("sh", "-c", "yes | head -c 6000000; echo end >&2")).exec
        assert (len(done.stdout), done.truncated, done.stderr, done.exit_code) == (4 << 20, True, b"end\n", 0)
        done = (await execute("sh", "-c", "echo begun; sleep 619", timeout_ms=300)).exec
        assert done.stdout == b"begun\n" and "timeout of exec" in done.error and done.exit_code == 143
        done = (await execute("sh", "-c", "nohup sh -c 'while :; do echo tick; sleep .05; done' & echo $!")).exec
        assert done.exit_code == 0
        child = int(done.stdout.split()[0])
        status = (await controller.ask(worker_pb2.WorkerRequest(task_process_status=uid))).process
        assert status.details["processes"] >= "2" and status.memory_rss_bytes > 0 and status.pid > 0
        assert alive(child)
        assert "not running" in (await execute("true", attempt="unknown")).error
        controller.end(uid, grace_ms=300)
        await controller.ended(uid)
        assert not alive(child), "what exec left behind ends with the attempt"
        own = (await controller.ask(worker_pb2.WorkerRequest(process_status=True))).process
        assert own.pid == controller.hellos[0].pid and own.boot_id == controller.hellos[0].boot_id


async def test_an_exec_for_whose_answer_nobody_waits_is_ended_with_all_it_started(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        uid = controller.run(["sleep", "620"])
        await controller.observed(uid, RUNNING)

        def exec_of(script: str) -> worker_pb2.WorkerRequest:
            return worker_pb2.WorkerRequest(
                exec=worker_pb2.ExecRequest(attempt_uid=uid, command=["sh", "-c", script, "sh", str(ran)])
            )

        async def counted() -> str:
            asked = worker_pb2.WorkerRequest(task_process_status=uid)
            return (await controller.ask(asked)).process.details["execs"]

        def living(session: int) -> list[int]:
            return [proc.pid for proc in procs.snapshot() if proc.session == session and not proc.dead]

        for name, end in (("given up", controller.give_up), ("stream broke", lambda _: controller.drop())):
            ran = tmp_path / name
            # The shell ends with TERM at once, its child only with KILL.
            request = exec_of("(trap '' TERM; echo $$ >\"$1\"; sleep 621; sleep 622) & sleep 623")
            asking = asyncio.create_task(controller.ask(request))
            await until(lambda: ran.exists() and ran.read_text())  # noqa: B023
            session = int(ran.read_text())
            await until(lambda: len(living(session)) >= 3)  # noqa: B023
            assert await counted() == "1"
            streams = len(controller.hellos)
            end(request)
            await until(lambda: not living(session))  # noqa: B023
            asking.cancel()
            if name == "stream broke":
                await controller.attached(streams + 1)
            while await counted() != "0":
                pass
        assert not controller.of(uid)[-1].HasField("exit_code"), "the attempt goes on"


async def test_what_is_asked_of_an_attempt_that_is_building_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        uid = controller.run(["true"], setup=["sleep 624"])
        await controller.observed(uid, BUILDING)
        threads = profiles_pb2.ProfileOptions(type=profiles_pb2.PROFILE_TYPE_THREADS)
        for request in (
            worker_pb2.WorkerRequest(exec=worker_pb2.ExecRequest(attempt_uid=uid, command=["true"])),
            worker_pb2.WorkerRequest(profile=profiles_pb2.ProfileRequest(attempt_uid=uid, options=threads)),
        ):
            reply = await controller.ask(request)
            assert reply.error == "the attempt is building still: its command has not begun"
        controller.end(uid)
        await controller.ended(uid)


async def test_the_worker_ships_its_own_log(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        boot = controller.hellos[0].boot_id
        await controller.until(lambda: boot in controller.lines)
        lines = controller.lines[boot]
        assert lines.key == "/system/worker/w1" and lines.attempt_uid == ""
        await controller.until(lambda: any("event=worker_started entity=w1" in text for text in lines.text))


async def test_a_full_disk_fails_the_staging_and_not_the_task(tmp_path: Path) -> None:
    with small_disk(tmp_path / "cache", "128k"):
        async with running(tmp_path) as (controller, _):
            bundle = io.BytesIO()
            with zipfile.ZipFile(bundle, "w") as target:
                target.writestr("blob", os.urandom(300_000))
            uid = controller.run(["true"], bundle=bundle.getvalue())
            end = await controller.ended(uid)
            assert (end.state, end.failure_kind) == (WORKER_FAILED, worker_pb2.FAILURE_KIND_STAGING)
            assert end.error == "cannot stage the bundle: no space left on device"


async def test_what_brings_more_than_it_asked_for_fails_by_itself_and_what_keeps_its_word_by_the_machine(
    tmp_path: Path,
) -> None:
    """Else one such job would have one worker after the other excluded."""
    with small_disk(tmp_path / "cache", "4m") as tiny:
        async with running(tmp_path) as (controller, _):

            async def staged(size: int, disk: int) -> worker_pb2.Observation:
                bundle = zipped(zeros="0" * size, asked=str(disk))
                return await controller.ended(controller.run(["true"], bundle=bundle, disk=disk))

            end = await staged(9_000_000, 2_000_000)
            assert (end.state, end.failure_kind) == (FAILED, worker_pb2.FAILURE_KIND_UNSPECIFIED)
            assert "it takes 9MB, more than the 2MB of disk that the job asked for" in end.error
            assert "of 4.19MB are free" in end.error and "--disk" in end.error
            end = await staged(9_000_000, 10_000_000)
            assert (end.state, end.failure_kind) == (WORKER_FAILED, worker_pb2.FAILURE_KIND_STAGING)
            assert end.error.startswith("cannot stage the bundle: no space left on device: 9MB are needed, ")
            assert (await staged(1_000_000, 10)).state == SUCCEEDED, "what fits runs, whatever it asked for"

            (tiny / "ballast").write_bytes(bytes(2_500_000))
            end = await staged(3_000_000, 300_000)
            assert end.state == FAILED and "more than the 300KB of disk" in end.error
            end = await staged(3_000_000, 2_900_000)
            assert (end.state, end.failure_kind) == (WORKER_FAILED, worker_pb2.FAILURE_KIND_STAGING)


async def test_a_disk_that_fills_while_lines_are_written_costs_lines_and_says_so(tmp_path: Path) -> None:
    with small_disk(tmp_path / "cache", "1m") as tiny:
        async with running(tmp_path) as (controller, _):
            controller.refuse_lines = True
            script = "i=0; while [ $i -lt 3000 ]; do echo $i $(printf %01000d 0); i=$((i+1)); done; sleep 620"
            uid = controller.run(["bash", "-c", script])
            await controller.observed(uid, RUNNING)
            await until(lambda: os.statvfs(tiny).f_bavail == 0)
            controller.refuse_lines = False
            await controller.until(lambda: controller.lines.get(uid) and controller.lines[uid].next >= 3000, 60)
            lines = controller.lines[uid]
            assert numbers(controller, uid) == list(range(3000))
            assert any(entry.gap and "disk was full" in entry.data for entry in lines.entries)
            for entry in lines.entries:
                assert entry.gap or entry.data.startswith(f"{entry.number} ")
            controller.end(uid, grace_ms=200)
            assert (await controller.ended(uid)).state == KILLED


async def test_stopping_the_worker_ends_attempts_with_their_grace(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, worker):
        clean = "trap 'echo TERM; sleep .3; echo clean; exit 0' TERM; trap 'echo INT' INT; echo up; while :; do sleep .05; done"
        uid = controller.run(["sh", "-c", clean])
        await controller.until(lambda: controller.lines.get(uid))
        assert worker.process is not None
        worker.process.send_signal(signal.SIGINT)
        assert await worker.exited() == 0
        end = await controller.ended(uid)
        assert (end.state, end.error, end.exit_code) == (WORKER_FAILED, "the worker was stopped", 0)
        assert [text for text in controller.lines[uid].text if text != "Terminated"] == ["up", "TERM", "clean"]
        left = {str(path.relative_to(worker.cache)) for path in worker.cache.rglob("*") if path.is_file()}
        assert {name for name in left if not name.startswith("spool/")} == {"stderr", "worker.lock"}


async def test_a_second_signal_shortens_the_grace(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, worker):
        uid = controller.run(["sh", "-c", "trap '' TERM; echo up; while :; do sleep .05; done"])
        await controller.until(lambda: controller.lines.get(uid))
        assert worker.process is not None
        began = time.monotonic()
        worker.process.terminate()
        await until(lambda: "worker_stopping" in worker.log)
        worker.process.terminate()
        assert await worker.exited() == 0
        assert time.monotonic() - began < GRACE_S, "the grace that it had at first"
        assert (await controller.ended(uid)).exit_code == 137


async def test_two_workers_cannot_share_a_cache_directory(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, worker):
        second = await ran(worker.argv)
        assert worker.process is not None
        assert second.returncode == 1
        assert second.stderr.startswith("Error: another worker") and f"process {worker.process.pid}" in second.stderr


async def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, worker):
        port = controller.hellos[0].address.rpartition(":")[2]
        argv = [*worker.argv, "--cache-dir", str(tmp_path / "other"), "--health-port", port]
        second = await ran(argv)
        assert second.returncode == 1
        assert f"Error: cannot listen on 127.0.0.1:{port}: address already in use" in second.stderr
        assert "Traceback" not in second.stderr
