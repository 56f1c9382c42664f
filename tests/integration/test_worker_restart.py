"""Attaching again, being killed, and the supervisor: what survives, what must not, and that nothing runs or counts twice."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from iris_controller.worker import procs, records
from iris_controller.worker.sweep import sweep
from iris_core.wire.gen.iris.v1 import common_pb2, worker_pb2
from providers.fake.controller import TERMINAL, FakeController

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

aio = pytest.mark.asyncio

SUCCEEDED = common_pb2.TASK_STATE_SUCCEEDED
KILLED = common_pb2.TASK_STATE_KILLED
RUNNING = common_pb2.TASK_STATE_RUNNING
MISSING = common_pb2.TASK_STATE_MISSING


class Started:
    """A worker, or a supervisor with its worker."""

    def __init__(self, controller: FakeController, cache: Path, *options: str, supervise: bool = False) -> None:
        self.cache = cache
        words = ["--controller", controller.url, "--worker-id", "w1", "--cache-dir", str(cache), *options]
        module = [sys.executable, "-P", "-m", "iris_controller.worker.main"]
        self.argv = [*module, "supervise", "--", *words] if supervise else [*module, *words]
        self.processes: list[subprocess.Popen[bytes]] = []
        self.start()

    def start(self) -> None:
        self.cache.mkdir(exist_ok=True)
        with open(self.cache / "stderr", "ab") as log:
            self.processes.append(subprocess.Popen(self.argv, stdout=log, stderr=log, start_new_session=True))

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.processes[-1]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    async def exited(self, timeout_s: float = 90) -> int:
        return await asyncio.to_thread(self.process.wait, timeout_s)

    async def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            await self.exited()


@asynccontextmanager
async def running(
    tmp_path: Path, *options: str, supervise: bool = False
) -> AsyncIterator[tuple[FakeController, Started]]:
    async with FakeController() as controller:
        started = Started(controller, tmp_path / "cache", *options, supervise=supervise)
        try:
            await controller.attached()
            yield controller, started
        finally:
            await started.stop()
        left = records.recorded_process(started.cache / "worker.json")
        assert left is None, "the worker outlived its supervisor"
        uids = [record.attempt_uid for record in controller.observations]
        members = procs.members(procs.snapshot(), [procs.Wanted(uid) for uid in uids])
        assert not any(members.values()), "a process of an attempt outlived its worker"


def alive(pid: int) -> bool:
    found = procs.read(pid)
    return found is not None and not found.dead


async def until(true: Callable[[], Any], timeout_s: float = 90) -> None:
    """Waits for something outside of our processes, which nobody can signal us about."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.01)


def worker_pid(started: Started) -> int:
    found = records.recorded_process(started.cache / "worker.json")
    return found[0] if found else 0


def numbers(controller: FakeController, uid: str) -> list[int]:
    """Every number that arrived as a line or within a gap record."""
    return [n for e in controller.lines[uid].entries for n in range(e.number, e.number + max(1, e.gap))]


# Attaching again --------------------------------------------------------------------------------------------------


@aio
async def test_losing_the_controller_touches_no_task_and_nothing_is_told_twice(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, started):
        gate = tmp_path / "gate"
        longer = controller.run(["sh", "-c", f"echo up $$; while [ ! -e {gate} ]; do sleep .02; done; echo end"])
        await controller.until(lambda: controller.lines.get(longer))
        pid = int(controller.lines[longer].text[0].split()[1])
        controller.keep(longer)
        await controller.stop()
        shorter_end = [o for o in controller.of(longer) if o.state in TERMINAL]
        assert not shorter_end and alive(pid)
        await controller.start()
        hello = await controller.attached(2)
        assert hello.boot_id == controller.hellos[0].boot_id
        assert [(o.attempt_uid, o.state) for o in hello.holding] == [(longer, RUNNING)]
        assert alive(pid)
        await controller.stop()
        gate.touch()
        await until(lambda: not alive(pid))
        await controller.start()
        hello = await controller.attached(3)
        end = await controller.ended(longer)
        assert (end.state, end.log_lines) == (SUCCEEDED, 2)
        assert controller.lines[longer].text == [f"up {pid}", "end"]
        controller.drop()
        hello = await controller.attached(4)
        assert not hello.holding, "an acknowledged end is not held any more"
        assert started.process.poll() is None


@aio
async def test_an_end_is_told_until_it_is_acknowledged(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, started):
        controller.acknowledge = False
        uid = controller.run(["true"])
        end = await controller.ended(uid)
        controller.drop()
        hello = await controller.attached(2)
        assert [(o.attempt_uid, o.state, o.seq) for o in hello.holding] == [(uid, SUCCEEDED, end.seq)]
        await controller.until(lambda: len([o for o in controller.of(uid) if o.state == SUCCEEDED]) == 2)
        assert (started.cache / "attempts" / f"{uid}.json").exists()
        controller.ack(end.seq)
        await until(lambda: not (started.cache / "attempts" / f"{uid}.json").exists())
        controller.drop()
        assert not (await controller.attached(3)).holding


@aio
async def test_unknown_and_ended_attempts_are_missing_and_never_run_again(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        marker = tmp_path / "ran"
        controller.keep("feedfacefeedface")
        assert (await controller.ended("feedfacefeedface")).state == MISSING
        controller.end("deadbeefdeadbeef")
        assert (await controller.ended("deadbeefdeadbeef")).state == MISSING
        uid = controller.run(["sh", "-c", f"echo x >>{marker}"])
        assert (await controller.ended(uid)).state == SUCCEEDED
        for _ in range(3):
            controller.send()
        controller.drop()
        await controller.attached(2)
        await controller.observed(uid, MISSING)
        controller.keep(uid)
        await controller.until(lambda: len([o for o in controller.of(uid) if o.state == MISSING]) >= 2)
        assert marker.read_text() == "x\n"
        assert {o.state for o in controller.of(uid)} <= {RUNNING, SUCCEEDED, MISSING}


@aio
async def test_a_repeated_order_starts_nothing_twice(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        marker = tmp_path / "ran"
        uid = controller.run(["sh", "-c", f"echo x >>{marker}; sleep 621"])
        for _ in range(5):
            controller.send()
        await until(marker.exists)
        controller.drop()
        await controller.attached(2)
        for _ in range(5):
            controller.send()
        await controller.until(lambda: controller.applied >= 5)
        controller.end(uid, grace_ms=100)
        await controller.ended(uid)
        assert marker.read_text() == "x\n"


@aio
async def test_a_zombie_is_ended_and_told_once_and_only_by_a_complete_set_of_this_stream(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        uid = controller.run(["sh", "-c", "trap '' TERM; echo $$; while :; do sleep .05; done"])
        await controller.until(lambda: controller.lines.get(uid))
        pid = int(controller.lines[uid].text[0])
        controller.forget(uid, send=False)
        controller.greet = False
        controller.drop()
        await controller.attached(2)
        beats = len(controller.heartbeats)
        await controller.until(lambda: len(controller.heartbeats) >= beats + 3)
        assert alive(pid), "without a desired set nothing is a zombie"
        controller.send()
        end = await controller.ended(uid)
        assert end.state == KILLED and "no longer wants" in end.error and not alive(pid)
        await controller.until(lambda: controller.applied == 1)
        order = [o.state for o in controller.of(uid)]
        assert order.count(KILLED) == 1


@aio
async def test_a_worker_that_froze_ends_what_was_given_away_meanwhile(tmp_path: Path) -> None:
    """Field case C02."""
    async with running(tmp_path) as (controller, started):
        uid = controller.run(["sh", "-c", "echo $$; exec sleep 636"])
        await controller.until(lambda: controller.lines.get(uid))
        started.process.send_signal(signal.SIGSTOP)
        await until(lambda: (found := procs.read(started.process.pid)) is not None and found.state == "T")
        controller.forget(uid)
        started.process.send_signal(signal.SIGCONT)
        assert (await controller.ended(uid)).state == KILLED
        assert not alive(int(controller.lines[uid].text[0]))


@aio
async def test_a_bundle_is_waited_for_while_the_controller_is_away(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):

        async def breaks(request: object, context: Any) -> AsyncIterator[worker_pb2.GetBundleResponse]:
            yield worker_pb2.GetBundleResponse(chunk=b"half of it")
            await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")

        whole = controller._get_bundle
        await controller.stop()
        controller._get_bundle = breaks  # type: ignore[method-assign]
        await controller.start()
        await controller.attached(2)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as target:
            target.writestr("file", "content")
        uid = controller.run(["cat", "file"], bundle=buffer.getvalue())
        await controller.observed(uid, common_pb2.TASK_STATE_BUILDING)
        await controller.stop()
        controller._get_bundle = whole  # type: ignore[method-assign]
        await controller.start()
        assert (await controller.ended(uid)).state == SUCCEEDED
        assert controller.lines[uid].text == ["content"]


@aio
async def test_a_rejection_is_obeyed(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, started):
        uid = controller.run(["sleep", "622"])
        await controller.observed(uid, RUNNING)
        controller.reject = worker_pb2.Rejected(code="busy", message="come back later")
        controller.drop()
        await controller.attached(4)
        assert started.process.poll() is None
        controller.reject = worker_pb2.Rejected(code="unknown", message="no such worker", permanent=True)
        assert await started.exited() == 3
        assert "no such worker" in (started.cache / "stderr").read_text()


# Lines ------------------------------------------------------------------------------------------------------------


@aio
async def test_lines_are_exact_across_an_outage_of_the_store(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        controller.refuse_lines = True
        uids = [controller.run(["seq", "-f", f"{task}-%g", "3000"], task_id=f"/u/j/{task}") for task in range(4)]
        for uid in uids:
            end = await controller.ended(uid)
            assert (end.state, end.log_lines) == (SUCCEEDED, 3000)
        assert not controller.lines
        controller.refuse_lines = False
        for task, uid in enumerate(uids):
            await controller.until(lambda uid=uid: controller.lines.get(uid) and controller.lines[uid].next == 3000)  # type: ignore[misc]
            assert controller.lines[uid].text == [f"{task}-{number}" for number in range(1, 3001)]


@aio
async def test_lines_fall_back_to_the_controllers_port_and_go_to_the_store_that_is_named(tmp_path: Path) -> None:
    async with FakeController() as store, FakeController() as controller:
        controller.log_addresses = [f"127.0.0.1:{store.port}"]
        started = Started(controller, tmp_path / "cache")
        try:
            await controller.attached()
            uid = controller.run(["echo", "one"])
            await controller.observed(uid, SUCCEEDED)
            await store.until(lambda: store.lines.get(uid) and store.lines[uid].text == ["one"])
            await store.stop()
            uid = controller.run(["echo", "two"])
            await controller.observed(uid, SUCCEEDED)
            await controller.until(lambda: controller.lines.get(uid) and controller.lines[uid].text == ["two"])
        finally:
            await started.stop()


# Being killed -----------------------------------------------------------------------------------------------------


@aio
async def test_the_next_worker_tells_what_ended_and_what_is_lost_and_numbers_on(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, started):
        controller.acknowledge = False
        done = controller.run(["sh", "-c", "echo done; exit 5"])
        await controller.ended(done)
        controller.refuse_lines = True
        cut = controller.run(["sh", "-c", "echo $$; sleep 623 & echo $!; sleep 624"])
        await controller.observed(cut, RUNNING)
        spool = started.cache / "spool"
        key = cut.encode()
        await until(lambda: sum(p.read_bytes().count(key) for p in spool.iterdir()) >= 1 and _lines(spool, key) >= 2)
        started.kill()
        controller.acknowledge = True
        controller.refuse_lines = False
        started.start()
        hello = await controller.attached(2)
        assert hello.boot_id != controller.hellos[0].boot_id
        held = {o.attempt_uid: o for o in hello.holding}
        assert held.keys() == {done, cut}
        assert (held[done].state, held[done].exit_code) == (common_pb2.TASK_STATE_FAILED, 5)
        assert held[cut].state == MISSING and "restarted" in held[cut].error
        await controller.until(lambda: controller.lines.get(cut) and controller.lines[cut].next >= 3)
        entries = controller.lines[cut].entries
        assert [entry.gap for entry in entries] == [0, 0, 1] and held[cut].log_lines == 3
        assert "killed" in entries[2].data
        assert not any(alive(int(entry.data)) for entry in entries[:2])
        await until(lambda: not os.listdir(started.cache / "attempts"))
        await until(lambda: not os.listdir(started.cache / "work"))


def _lines(spool: Path, uid: bytes) -> int:
    from iris_controller.worker import segments

    found = 0
    for path in spool.iterdir():
        slots = set()
        with path.open("rb") as file:
            for record in segments.read(file.fileno(), 0, path.stat().st_size):
                if record.kind == segments.Kind.OPEN and uid in record.payload:
                    slots.add(record.slot)
                elif record.kind == segments.Kind.LINES and record.slot in slots:
                    found += record.span
    return found


@aio
@pytest.mark.parametrize("options", [(), ("--no-cgroups",)])
async def test_nothing_of_an_attempt_survives_a_killed_worker_for_five_seconds(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    async with running(tmp_path, *options, supervise=True) as (controller, started):
        script = "trap '' TERM; setsid sleep 625 & echo $!; nohup sh -c 'sleep 626; :' & echo $!; echo $$; wait"
        uid = controller.run(["sh", "-c", script])
        await controller.until(lambda: controller.lines.get(uid) and controller.lines[uid].next >= 3)
        pids = [int(text) for text in controller.lines[uid].text if text.isdigit()]
        assert len(pids) == 3 and all(map(alive, pids))
        first = worker_pid(started)
        os.kill(first, signal.SIGKILL)
        await until(lambda: not any(map(alive, pids)))
        hello = await controller.attached(2)
        assert hello.pid != first and hello.pid == worker_pid(started)
        end = await controller.ended(uid)
        assert end.state == MISSING
        again = controller.run(["echo", "works"])
        assert (await controller.ended(again)).state == SUCCEEDED


@aio
async def test_kills_at_random_moments_lose_no_line_that_was_written_and_double_none(
    tmp_path: Path, soak: bool
) -> None:
    """Each task writes what it prints to a file first; what arrives is that, with a gap record where the worker died."""
    dice = random.Random(20300131)
    async with running(tmp_path, supervise=True) as (controller, started):
        for round_ in range(30 if soak else 4):
            files = [tmp_path / f"out-{round_}-{task}" for task in range(3)]
            script = "i=0; while [ $i -lt 400 ]; do echo $i >>$F; echo $i; i=$((i+1)); done"
            uids = [controller.run(["bash", "-c", script], env={"F": str(file)}) for file in files]
            await until(lambda files=files: all(file.exists() for file in files))  # type: ignore[misc]
            await asyncio.sleep(dice.uniform(0, 0.15))
            streams = len(controller.hellos)
            os.kill(worker_pid(started), signal.SIGKILL)
            await controller.attached(streams + 1, 30)
            for uid, file in zip(uids, files, strict=True):
                end = await controller.observed(uid, *TERMINAL, timeout_s=30)
                await controller.until(
                    lambda uid=uid, end=end: controller.lines.get(uid) and controller.lines[uid].next >= end.log_lines  # type: ignore[misc]
                )
                got = controller.lines[uid]
                assert numbers(controller, uid) == list(range(got.next))
                written = file.read_text().split()
                assert got.text == written[: len(got.text)]
                if end.state == SUCCEEDED:
                    assert got.text == [str(number) for number in range(400)]
                else:
                    assert end.state == MISSING
                    assert got.entries[-1].gap or len(got.text) == 400
            controller.forget(*uids)


# The supervisor ---------------------------------------------------------------------------------------------------


@aio
async def test_the_supervisor_records_itself_and_ends_everything_when_told(tmp_path: Path) -> None:
    async with running(tmp_path, supervise=True) as (controller, started):
        record = json.loads((started.cache / "supervisor.json").read_text())
        assert record["pid"] == started.process.pid == record["session"]
        assert record["start_time"] == procs.start_of(started.process.pid) and record["boot_id"] == procs.machine_boot()
        assert (started.cache / "supervisor.json").stat().st_mode & 0o777 == 0o600
        assert os.getsid(worker_pid(started)) != os.getsid(started.process.pid)
        uid = controller.run(["sh", "-c", "trap 'echo TERM; exit 0' TERM; echo up; while :; do sleep .05; done"])
        await controller.until(lambda: controller.lines.get(uid))
        second = await asyncio.to_thread(
            subprocess.run, started.argv, capture_output=True, text=True, timeout=30, check=False
        )
        assert second.returncode == 1 and f"process {record['pid']}" in second.stderr
        started.process.terminate()
        assert await started.exited() == 0
        assert (await controller.ended(uid)).error == "the worker was stopped"
        assert "TERM" in controller.lines[uid].text
        assert not (started.cache / "supervisor.json").exists()


@aio
async def test_a_new_supervisor_takes_a_living_worker_over_with_its_tasks(tmp_path: Path) -> None:
    async with running(tmp_path, supervise=True) as (controller, started):
        uid = controller.run(["sh", "-c", "echo $$; exec sleep 627"])
        await controller.until(lambda: controller.lines.get(uid))
        worker, task = worker_pid(started), int(controller.lines[uid].text[0])
        started.kill()
        started.start()
        await until(lambda: _supervised_by(started))
        assert worker_pid(started) == worker and alive(task)
        os.kill(worker, signal.SIGKILL)
        await controller.attached(2)
        assert not alive(task)


def _supervised_by(started: Started) -> bool:
    found = records.recorded_process(started.cache / "supervisor.json")
    return found is not None and found[0] == started.process.pid


@aio
async def test_a_worker_without_its_record_is_not_swept_away(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, started):
        uid = controller.run(["sh", "-c", "echo $$; exec sleep 635"])
        await controller.until(lambda: controller.lines.get(uid))
        (started.cache / "worker.json").unlink()
        supervisor = Started(controller, tmp_path / "cache", supervise=True)
        try:
            await until(lambda: _supervised_by(supervisor))
            beats = len(controller.heartbeats)
            await controller.until(lambda: len(controller.heartbeats) > beats + 5)
            assert alive(int(controller.lines[uid].text[0])) and len(controller.hellos) == 1
        finally:
            await supervisor.stop()


@aio
async def test_without_task_and_controller_it_ends_by_itself(tmp_path: Path) -> None:
    async with FakeController() as controller:
        started = Started(controller, tmp_path / "cache", "--idle-exit", "0.5", supervise=True)
        await controller.attached()
        uid = controller.run(["sh", "-c", "echo up; exec sleep 628"])
        await controller.until(lambda: controller.lines.get(uid))
        await controller.stop()
        await asyncio.sleep(1.5)
        assert started.process.poll() is None, "a task keeps it"
        await controller.start()
        await controller.attached(2)
        controller.end(uid)
        await controller.ended(uid)
        await controller.stop()
        assert await started.exited() == 0
        assert not (started.cache / "supervisor.json").exists() and worker_pid(started) == 0


# Who is ended (field case C06) ------------------------------------------------------------------------------------


def spawned(*argv: str, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, env={"PATH": os.environ["PATH"], **env}, start_new_session=True)


def record_of(uid: str, process: subprocess.Popen[bytes], start: int) -> records.AttemptRecord:
    return records.AttemptRecord(uid, "/u/j/0:0", 1, "b", procs.machine_boot(), "", process.pid, start, process.pid)


def test_a_process_that_got_a_recorded_number_lives_on() -> None:
    bystander = spawned("sleep", "629")
    other = spawned("sleep", "630", IRIS_ATTEMPT_UID="somebody-elses")
    try:
        start = procs.start_of(bystander.pid)
        assert sweep([record_of("gone", bystander, start - 100), record_of("gone2", other, 0)]) == []
        assert bystander.poll() is None and other.poll() is None
        elsewhere = record_of("gone", bystander, start)
        elsewhere.machine_boot = "another boot of this machine"
        assert sweep([elsewhere]) == []
        assert bystander.poll() is None
    finally:
        for process in (bystander, other):
            process.kill()
            process.wait()


def test_marked_descended_and_session_members_are_ended() -> None:
    script = "env -i sleep 631 & env -i setsid sleep 632 & exec env -i sleep 633"
    main = spawned("sh", "-c", script, IRIS_ATTEMPT_UID="feed")
    marked = spawned("sleep", "634", IRIS_ATTEMPT_UID="feed")
    try:
        deadline = time.monotonic() + 60
        while (
            len(
                tree := procs.members(procs.snapshot(), [procs.Wanted("feed", main.pid, procs.start_of(main.pid))])[
                    "feed"
                ]
            )
            < 4
        ):
            assert time.monotonic() < deadline
        assert sweep([record_of("feed", main, procs.start_of(main.pid))]) == []
        assert main.wait(30) == marked.wait(30) == -signal.SIGKILL
        assert not [proc for proc in tree if procs.same(proc.pid, proc.start)]
    finally:
        for process in (main, marked):
            process.kill()
            process.wait()
