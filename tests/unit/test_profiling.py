"""Profiles of real processes with the real py-spy and memray: what they say, and each way in which there is none."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_controller.worker import procs
from iris_controller.worker.profiling import failures, memory, options, site, targets
from iris_controller.worker.profiling.answering import PART_BYTES, pieces
from iris_controller.worker.profiling.failures import CannotProfile, explain
from iris_controller.worker.profiling.periodic import Periodic
from iris_controller.worker.profiling.taking import PERIODIC, Profiler, Taken, Target
from iris_core.analysis import dumps, speedscope
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import profiles_pb2, worker_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import RequireService

CPU, MEMORY, THREADS = options.CPU, options.MEMORY, options.THREADS
Options = profiles_pb2.ProfileOptions

HOT = """
import sys
print("ready", flush=True)
def very_hot_function():
    x = 0
    for i in range(100_000):
        x += i * i
while True:
    very_hot_function()
"""
WAITING = """
import subprocess, sys, threading
child = subprocess.Popen(["sleep", "600"])
def wait_for_ever():
    threading.Event().wait(600)
print("ready", flush=True)
wait_for_ever()
"""


def python(code: str, *, argv0: str = sys.executable) -> AbstractContextManager[int]:
    """A Python process that runs `code`."""
    return started([argv0, "-c", code])


@contextmanager
def started(argv: list[str]) -> Iterator[int]:
    """A process that has said ready, in a session of its own."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        process.stdout.close()


def session_of(pid: int) -> list[int]:
    return [proc.pid for proc in procs.snapshot() if proc.session == pid]


def target(pid: int, name: str = "/me/train/0:0") -> Target:
    async def pids() -> list[int]:
        return session_of(pid)

    return Target(f"uid-{pid}", name.rpartition(":")[0], name, "w1", pids, attempt_uid=f"uid-{pid}", attempt_id=0)


async def take(pid: int, wanted: Options, *, profiler: Profiler | None = None, periodic: bool = False) -> Taken:
    return await (profiler or Profiler()).take(target(pid), wanted, "me", periodic=periodic)


async def refused(pid: int, wanted: Options) -> CannotProfile:
    with pytest.raises(CannotProfile) as caught:
        await take(pid, wanted)
    assert "\n" not in caught.value.message + caught.value.hint
    return caught.value


# --- what they say -----------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_cpu_profile_names_the_hot_function_in_every_format() -> None:
    with python(HOT) as pid:
        for shape in (profiles_pb2.PROFILE_FORMAT_SPEEDSCOPE, profiles_pb2.PROFILE_FORMAT_FLAMEGRAPH):
            wanted = Options(type=CPU, duration_seconds=1, rate_hz=50, format=shape, native=False)
            taken = await take(pid, wanted)
            data = gzip.decompress(taken.data)
            assert b"very_hot_function" in data
            assert (taken.record.size_bytes, taken.record.rate_hz) == (len(data), 50)
            assert (taken.record.source, taken.record.attempt_uid) == ("/me/train/0", f"uid-{pid}")


PROGRAM = """
import subprocess, sys
x = 5
name = "a"; z = 3
child = subprocess.Popen([sys.executable, "-c", "w = 7\\ndef inner_function(): sum(range(1000))\\nwhile True: inner_function()"])
print("ready", flush=True)
def very_hot_function():
    sum(range(100_000))
while True:
    very_hot_function()
"""


@pytest.mark.asyncio
async def test_raw_stacks_have_a_line_each_though_the_commands_have_several() -> None:
    with python(PROGRAM) as pid:
        wanted = Options(type=CPU, duration_seconds=1, rate_hz=50, format=profiles_pb2.PROFILE_FORMAT_RAW, native=False)
        taken = gzip.decompress((await take(pid, wanted)).data).decode()
        (child,) = (one for one in session_of(pid) if one != pid)
    lines = taken.splitlines()
    assert all(
        re.fullmatch(rf'process {pid}:"[^;]+"(;process {child}:"[^;]+")?(;[^;]+)+ \d+', line) for line in lines
    ), taken
    for name in ("very_hot_function", "inner_function"):
        assert any(f";{name} (<string>:" in line for line in lines), taken


@pytest.mark.asyncio
async def test_several_root_processes_make_one_profile() -> None:
    with python(HOT) as one, python(HOT) as two:

        async def pids() -> list[int]:
            return [one, two]

        both = Target("both", "/me/train/0", "/me/train/0:0", "w1", pids)
        wanted = Options(type=CPU, duration_seconds=1, rate_hz=20, native=False)
        found = gzip.decompress((await Profiler().take(both, wanted, "me", periodic=False)).data)
        processes = {stack[0].name for stack in speedscope.parse(found)}
        assert len({name for name in processes if str(one) in name or str(two) in name}) == 2


@pytest.mark.asyncio
async def test_a_thread_dump_shows_stacks_and_is_not_spoiled_by_a_child_that_is_no_python() -> None:
    with python(WAITING) as pid:
        assert len(session_of(pid)) == 2
        taken = await take(pid, Options(type=THREADS))
        (process,) = dumps.parse(gzip.decompress(taken.data).decode())
        assert process.pid == pid
        assert process.main is not None
        assert any("wait_for_ever" in frame for frame in process.main.frames)
        assert not taken.notes


@pytest.mark.asyncio
async def test_a_memory_profile_without_memray_in_the_target_is_answered_without_touching_it(tmp_path: Path) -> None:
    environment = empty_environment(tmp_path / "venv")
    with python(WAITING, argv0=str(environment / "bin" / "python")) as pid:
        error = await refused(pid, Options(type=MEMORY, duration_seconds=1))
        assert error.code in {"no_memray", "no_debugger"}
        if error.code == "no_memray":
            assert str(environment) in error.message
            assert "add memray" in error.hint


def test_the_environment_of_this_interpreter_is_found_to_have_memray() -> None:
    with python(WAITING) as pid:
        found = site.of(pid)
    assert found.has("memray")
    assert not found.has("no_such_package_anywhere")


# --- each way in which there is none -----------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_stopped_process_is_refused_by_name_and_stays_stopped() -> None:
    with python(WAITING) as pid:
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: state(pid) == "T")
        error = await refused(pid, Options(type=THREADS))
        assert f"process {pid} (" in error.message
        assert "is stopped (state T)" in error.message
        assert error.hint == f"let it go on first: kill -CONT {pid}"
        assert state(pid) == "T"


@pytest.mark.asyncio
async def test_what_is_not_python_is_said() -> None:
    with started(["sh", "-c", "echo ready; exec sleep 600"]) as pid:
        await until(lambda: targets.command(pid) == "sleep 600")
        error = await refused(pid, Options(type=CPU))
        assert error.message == f"/me/train/0:0 has no Python process, only process {pid} (sleep 600)"
        assert (await refused(pid, Options(type=CPU, pid=pid))).code == "not_python"


@pytest.mark.asyncio
async def test_a_process_that_ends_meanwhile_leaves_what_was_seen_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with python(HOT) as pid:
        profiling = asyncio.create_task(take(pid, Options(type=CPU, duration_seconds=30, rate_hz=50, native=False)))
        await until(lambda: any("Sampling" in said.read_text() for said in tmp_path.glob("iris-profile.*/*")))
        os.kill(pid, signal.SIGKILL)
        taken = await profiling
        assert "ended before the time was over" in taken.notes[0]
        assert not os.listdir(tmp_path)


# A process that ran had a number that somebody else may have by now; this one is given to nobody.
NO_PID = int(Path("/proc/sys/kernel/pid_max").read_text())


@pytest.mark.asyncio
async def test_a_target_that_is_gone_and_a_process_that_is_not_its_own() -> None:
    assert (await refused(NO_PID, Options(type=THREADS))).code == "target_exited"
    with python(WAITING) as pid:
        error = await refused(pid, Options(type=THREADS, pid=1))
        assert error.message == "process 1 is not one of /me/train/0:0"


@pytest.mark.asyncio
async def test_missing_tools_are_named_with_the_way_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with python(WAITING) as pid:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
        error = await refused(pid, Options(type=THREADS))
        assert error.message.startswith("py-spy is not installed on ")
        assert error.hint.endswith("-m pip install py-spy")
        assert (await refused(pid, Options(type=MEMORY))).code == "no_debugger"


NO_PERMISSION = "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'\n"


@pytest.mark.parametrize(
    ("scope", "hint"), [(0, "CAP_SYS_PTRACE"), (1, "sysctl kernel.yama.ptrace_scope=0"), (3, "is 3: tracing is off")]
)
@pytest.mark.asyncio
async def test_no_permission_to_trace_says_what_the_kernel_is_set_to(
    scope: int, hint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "scope").write_text(f"{scope}\n")
    monkeypatch.setattr(failures, "PTRACE_SCOPE", tmp_path / "scope")
    scripted_py_spy(monkeypatch, tmp_path, f"printf '%s' {json.dumps(NO_PERMISSION)} >&2; exit 1")
    with python(WAITING) as pid:
        error = await refused(pid, Options(type=THREADS))
    assert error.message.startswith(f"no permission to trace process {pid} (")
    assert hint in error.hint


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("Error: Failed to find python version from target process\n\nStack backtrace:\n   0: anyhow", "not_python"),
        ("Error: Failed to get process executable name. Check that the process is running.\n\nCaused by:\n"
         "    0: No such file or directory (os error 2)", "target_exited"),
        ("Failed to attach a debugger to the process.\nThe given process ID does not exist.\n", "target_exited"),
        ("Failed to attach a debugger to the process.\nYou most likely do not have permission to trace the process.\n",
         "no_permission"),
        ("Failed to parse allocation records in /x\nReason: The provided input file is incompatible with this version of memray.",
         "memray_version"),
        ("RuntimeError: No more than one Tracker instance can be active at the same time\n", "already_traced"),
        ("\n", "profiler_failed"),
        ("Error: Failed to write flamegraph: No stack counts found\n", "nothing_seen"),
        ("Error: something else\n\nStack backtrace:\n   0: x\n", "profiler_failed"),
    ],
)  # fmt: skip
def test_what_tools_say_becomes_one_line(said: str, code: str) -> None:
    error = explain("py-spy", "process 7 (python)", said)
    assert error.code == code
    assert "\n" not in error.message
    assert "backtrace" not in error.message


# --- watchdogs ---------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_profiler_that_hangs_is_killed_and_only_what_it_stopped_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("iris_controller.worker.profiling.threads.DEADLINE_S", 1.0)
    with python(WAITING) as pid:
        (child,) = (one for one in session_of(pid) if one != pid)
        os.kill(child, signal.SIGSTOP)
        await until(lambda: state(child) == "T")
        scripted_py_spy(monkeypatch, tmp_path, f"kill -STOP {pid}; exec sleep 599")
        error = await refused(pid, Options(type=THREADS))
        assert error.code == "profiler_timeout"
        assert "within 1 s and was killed" in error.message
        await until(lambda: state(pid) in "SR")
        assert state(child) == "T"
        assert not [one for one in children() if "sleep 599" in targets.command(one)]


@pytest.mark.asyncio
async def test_a_caller_that_leaves_ends_the_profiler() -> None:
    with python(HOT) as pid:
        profiling = asyncio.create_task(take(pid, Options(type=CPU, duration_seconds=60, native=False)))
        await until(lambda: any("py-spy" in targets.command(one) for one in children()))
        profiling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await profiling
        await until(lambda: not any("py-spy" in targets.command(one) for one in children()))


@pytest.mark.asyncio
async def test_of_two_who_ask_the_second_is_told_who_the_first_is() -> None:
    profiler = Profiler()
    with python(HOT) as pid:
        wanted = Options(type=CPU, duration_seconds=60, native=False)
        first = asyncio.create_task(profiler.take(target(pid), wanted, "ann", periodic=False))
        await until(lambda: any("py-spy" in targets.command(one) for one in children()))
        with pytest.raises(CannotProfile, match=r"is being profiled already \(cpu, by ann, for \d+ s\)"):
            await profiler.take(target(pid), Options(type=THREADS), "bob", periodic=False)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await profiler.take(target(pid), Options(type=THREADS), "bob", periodic=False)).data


@pytest.mark.asyncio
async def test_the_periodic_loop_takes_both_kinds_and_steps_aside() -> None:
    profiler = Profiler()
    kept: list[Taken] = []
    with python(HOT) as pid:
        loop = Periodic(profiler, lambda: [target(pid)], kept.append)
        rounds = asyncio.create_task(loop.round())
        await until(lambda: any("record" in targets.command(one) for one in children()), 20)
        (dump,) = kept
        assert (dump.record.type, dump.record.trigger) == (THREADS, profiles_pb2.PROFILE_TRIGGER_PERIODIC)
        assert (await profiler.take(target(pid), Options(type=THREADS), "me", periodic=False)).data
        await rounds
        assert len(kept) == 1
        with pytest.raises(CannotProfile, match=PERIODIC):
            await held(profiler, pid)


async def held(profiler: Profiler, pid: int) -> None:
    """Two of the loop's own at once."""
    wanted = Options(type=CPU, duration_seconds=60, native=False)
    first = asyncio.create_task(profiler.take(target(pid), wanted, PERIODIC, periodic=True))
    await asyncio.sleep(0)
    try:
        await profiler.take(target(pid), wanted, PERIODIC, periodic=True)
    finally:
        first.cancel()
        await asyncio.wait({first})


# --- words and pieces --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (Options(), "type"),
        (Options(type=CPU, format=profiles_pb2.PROFILE_FORMAT_HTML), "format"),
        (Options(type=CPU, duration_seconds=601), "duration_seconds"),
        (Options(type=CPU, rate_hz=-1), "rate_hz"),
        (Options(type=CPU, locals=True), "locals"),
        (Options(type=MEMORY, leaks=True, format=profiles_pb2.PROFILE_FORMAT_STATS), "leaks"),
        (Options(type=THREADS, pid=-4), "pid"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_field(asked: Options, field: str) -> None:
    with pytest.raises(ModelError) as caught:
        options.settled(asked)
    assert caught.value.field == field


def test_a_large_profile_travels_in_pieces_and_a_small_answer_does_not() -> None:
    part = profiles_pb2.ProfilePart(data=os.urandom(2 * PART_BYTES + 1), last=True, notes=["n"])
    cut = list(pieces(worker_pb2.WorkerReply(request_id=9, profile=part)))
    assert [piece.profile.last for piece in cut] == [False, False, True]
    assert b"".join(piece.profile.data for piece in cut) == part.data
    assert {piece.request_id for piece in cut} == {9}
    assert list(cut[-1].profile.notes) == ["n"]
    small = worker_pb2.WorkerReply(error="no")
    assert list(pieces(small)) == [small]


def test_roots_are_the_python_processes_that_no_other_started() -> None:
    def one(pid: int, ppid: int, python: bool) -> targets.Process:
        return targets.Process(pid, 1, ppid, "S", 0, python, "x")

    every = (one(1, 0, False), one(2, 1, True), one(3, 2, False), one(4, 3, True), one(5, 1, True), one(6, 6, True))
    assert [found.pid for found in targets.roots(every)] == [2, 5, 6]


def test_memory_needs_gdb(require_service: RequireService) -> None:
    require_service(shutil.which("gdb"), "gdb is not installed")
    memory._check_tools()


# --- helpers -----------------------------------------------------------------------------------------------------------


def scripted_py_spy(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Puts a py-spy in place that does what `script` says."""
    program = folder / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(folder))


def empty_environment(folder: Path) -> Path:
    """A virtual environment without packages."""
    interpreter = Path(sys.executable).resolve()
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\n")
    (folder / "bin" / "python").symlink_to(interpreter)
    return folder


def children() -> list[int]:
    """The processes that this one started, and what they started."""
    table = procs.snapshot()
    below = {os.getpid()}
    while more := {proc.pid for proc in table if proc.ppid in below} - below:
        below |= more
    return sorted(below - {os.getpid()})


def state(pid: int) -> str:
    found = procs.read(pid)
    return found.state if found is not None else ""


async def until(true: Callable[[], bool], timeout_s: float = 90) -> None:
    """Waits for something outside of our processes, which nobody can signal us about."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.01)
