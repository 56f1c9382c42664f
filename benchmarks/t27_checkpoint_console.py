"""T27: the console on a checkpoint with a million finished tasks: from the shell to the first rows, the first time and the second.

The yardstick of the first is `zstd -d` of the same file, which neither checks a digest nor reads what it wrote; what counts is the difference.
`IRIS_BENCH_TASKS` makes it smaller.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import tempfile
import termios
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks import checkpoint_world, clusters
from benchmarks.measure import Sample, Side, alternate, process

if TYPE_CHECKING:
    from benchmarks.measure import Report

TASKS = int(os.environ.get("IRIS_BENCH_TASKS", "1000000"))
ROUNDS = 5
CONFIG = """
INSERT INTO job_config (job_id, res_cpu_millicores, res_memory_bytes, res_disk_bytes, priority_band)
SELECT job_id, 100, 1000, 0, 3 FROM jobs WHERE job_id NOT IN (SELECT job_id FROM job_config)
"""


def build(database: Path) -> str:
    """A database of so many finished tasks, a hundred a job; returns the name of the newest job."""
    from iris_controller.store.database import migrate, open_writer
    from iris_core.wire.gen.iris.v1 import controller_pb2

    request = controller_pb2.LaunchJobRequest(name="train", replicas=100)
    request.entrypoint.run_command.argv.extend(
        ["python", "train.py", "--config", "gs://bucket/configs/experiment.yaml"]
    )
    request.resources.cpu_millicores, request.resources.memory_bytes = 100, 1000
    request.environment.env_vars.update({f"VARIABLE_{n}": "value " * 8 for n in range(6)})
    database.parent.mkdir(mode=0o700, parents=True)
    step = checkpoint_world.STEP
    with closing(open_writer(database)) as connection:
        migrate(connection, 1)
        connection.execute("PRAGMA synchronous=OFF")
        for first in range(0, TASKS, step):
            connection.execute("BEGIN")
            connection.execute(checkpoint_world.JOBS, {"first": first // 100, "count": step // 100})
            connection.execute(CONFIG)
            for statement in (checkpoint_world.TASKS, checkpoint_world.ATTEMPTS):
                connection.execute(statement, {"first": first, "count": step})
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("UPDATE jobs SET request_proto = ?", (request.SerializeToString(),))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        found: str = connection.execute("SELECT name FROM jobs ORDER BY submitted_at_ms DESC LIMIT 1").fetchone()[0]
    return found


def until(place: Path, cache: Path, texts: tuple[bytes, ...]) -> list[float]:
    """Seconds from the shell until each of the texts was on the screen, in this order."""
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        program = str(clusters.BIN / "iris")
        env = {**os.environ, "TERM": "xterm-256color", "XDG_CACHE_HOME": str(cache)}
        os.execve(program, [program, "--checkpoint", str(place)], env)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    shown, found = b"", []
    try:
        for text in texts:
            while text not in shown:
                if not select.select([terminal], [], [], 120)[0]:
                    raise RuntimeError(f"the console never showed {text!r}; it showed {shown[-500:]!r}")
                shown += os.read(terminal, 65536)
            found.append(time.perf_counter() - began)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.wait4(pid, 0)
        os.close(terminal)
    return found


def run(report: Report) -> None:
    zstd = shutil.which("zstd")
    if zstd is None:
        report.missing("T27", "the console on a checkpoint", "the program zstd is not installed")
        return
    folder = Path(tempfile.mkdtemp(prefix="iris-bench-console-"))
    try:
        _run(report, folder, zstd)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(report: Report, folder: Path, zstd: str) -> None:
    database, remote, cache = folder / "s" / "controller.sqlite3", folder / "remote", folder / "cache"
    name = build(database).encode()
    process([clusters.BIN / "python", "-m", "benchmarks.checkpoint_world", "write", database, remote])
    (packed,) = remote.glob("controller-state/*/controller.sqlite3.zst")
    frames: list[float] = []

    def first() -> Sample:
        shutil.rmtree(cache, ignore_errors=True)
        frame, rows = until(remote, cache, (b"Opening", name))
        frames.append(frame)
        return Sample(rows)

    def second() -> Sample:
        return Sample(until(remote, cache, (name,))[0])

    def theirs() -> Sample:
        (folder / "unpacked").unlink(missing_ok=True)
        return process([zstd, "-q", "-d", packed, "-o", folder / "unpacked"])

    ours, again, other = alternate(ROUNDS, first, second, theirs)
    what = f"the console on a checkpoint of {TASKS:,} finished tasks"
    report.compare("T27", f"{what}: first rows", Side("iris", ours), Side("zstd -d", other))
    late = median(mine.wall_s - yardstick.wall_s for mine, yardstick in zip(ours, other, strict=True))
    report.absolute("T27", "first rows − `zstd -d`", late, "s", 1.5)
    report.absolute("T27", f"{what}, the second time: first rows", Side("iris", again).wall_s, "s", 1.5)
    report.absolute("T27", "the frame with its progress", median(frames), "s")
