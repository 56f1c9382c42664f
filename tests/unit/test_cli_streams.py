"""The command line as a process: a reader that goes away, a full disk, closed streams, an interrupt, and how little
is loaded.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = """\
import sys
from iris_core.cli.main import run
from providers.fake.sync_client import FakeSyncClient
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
client = FakeSyncClient()
for n in range(int(sys.argv[1])):
    client.cluster.put(pb.JobStatus(job_id=f"/u/j{n}", state="JOB_STATE_RUNNING", submitted_at_ms=1, started_at_ms=1))
    client.cluster.log(f"/u/j{n}/0:0", "x" * 100)
print("ready", file=sys.stderr, flush=True)
sys.exit(run(["--controller-url=http://h:1", *sys.argv[2:]], opener=lambda *_: client))
"""


class Start(Protocol):
    """Starts the command line with `jobs` jobs in its world; what it still runs when the test ends is killed."""

    def __call__(
        self, *words: str, jobs: int = 500, stdout: int = subprocess.PIPE, unbuffered: bool = False
    ) -> subprocess.Popen[bytes]: ...


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def run(
        *words: str, jobs: int = 500, stdout: int = subprocess.PIPE, unbuffered: bool = False
    ) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1" if unbuffered else ""}
        command = [sys.executable, "-c", SCRIPT, str(jobs), *words]
        started.append(subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=environment))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def errors(process: subprocess.Popen[bytes]) -> bytes:
    """What it said on standard error, once it has ended."""
    assert process.stderr is not None
    text = process.stderr.read().removeprefix(b"ready\n")
    process.wait(30)
    return text


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize(
    "words", ["job list --limit 0 -o json", "job list --limit 0 -o csv", "job logs /u/j1 -f", "job list --watch"]
)
def test_a_reader_that_goes_away_ends_the_command_quietly(start: Start, words: str, unbuffered: bool) -> None:
    process = start(*words.split(), jobs=3000, unbuffered=unbuffered)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    if "-f" in words or "--watch" in words:
        process.send_signal(signal.SIGINT)
    assert errors(process).replace(b"/u/j1 goes on", b"")[:20] in (b"", b"; look again with: ir")
    # The last: Ctrl-C came when it had ended by itself, and its interpreter was on the way out.
    assert process.returncode in (0, 141, 130, -signal.SIGINT)


def test_a_full_disk_is_one_line(start: Start) -> None:
    with open("/dev/full", "wb") as full:
        process = start("job", "list", stdout=full.fileno())
        assert errors(process) == b"Error: cannot write to standard output: no space left on device\n"
    assert process.returncode == 1


def test_standard_output_that_is_closed_is_one_line() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", SCRIPT, "1", "job", "list"],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, b"ready\nError: standard output is closed\n")


def test_an_interrupt_ends_with_130_and_no_traceback(start: Start) -> None:
    process = start("-v", "job", "wait", "/u/j1", jobs=2)
    assert process.stderr is not None
    while not process.stderr.readline().startswith(b"debug: ControllerService/GetJobStatus"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert b"Traceback" not in errors(process)
    assert process.returncode == 130


def test_the_program_s_own_packages_are_loaded_and_no_namesakes(tmp_path: Path) -> None:
    """Job code runs with PYTHONPATH=., where a folder called `providers` may lie."""
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "__init__.py").write_text("")
    code = "from iris_core.cli.main import run; import sys; sys.exit(run(['demo']))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"Error: {tmp_path}/providers is in the way of the package 'providers' of this program"
    )
    assert done.stderr.count("\n") == 1


def test_help_of_the_whole_tree_loads_neither_wire_nor_network() -> None:
    code = (
        "import sys; from iris_core.cli.main import run; run(['--help']); run(['job', 'run', '--help']); "
        "print([m for m in ('google.protobuf', 'grpc', 'h11', 'yaml', 'ssl', 'asyncio', 'zipfile', 'subprocess') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_listing_jobs_loads_no_grpc() -> None:
    code = SCRIPT.replace("sys.exit(", "code = (") + "\nprint(code, 'grpc' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "1", "job", "list", "-o", "name"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "/u/j0\n0 False\n"
