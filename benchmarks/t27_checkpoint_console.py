"""T27: the console on a checkpoint with a million finished tasks: from the shell to the first rows, the first time and the second.

The yardstick of the first is `zstd -d` of the same file, which neither checks a digest nor reads what it wrote; what counts is the difference.
`IRIS_BENCH_TASKS` makes it smaller.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks import checkpoint_world, clusters
from benchmarks.measure import Sample, Side, alternate, process
from benchmarks.terminal import Terminal

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


def until(place: Path, cache: Path, texts: tuple[str, ...]) -> list[Sample]:
    """From the shell until each of the texts was on the screen, in this order; with the processor time of both its processes."""
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    with Terminal([clusters.BIN / "iris", "--checkpoint", place], env) as terminal:

        def at(text: str) -> Sample:
            # A small one is unpacked between two looks.
            seen = terminal.until(lambda t: text in t.text() or texts[-1] in t.text(), text)
            return Sample(seen - terminal.began, terminal.cpu_s())

        return [at(text) for text in texts]


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
    name = build(database)
    process([clusters.BIN / "python", "-m", "benchmarks.checkpoint_world", "write", database, remote])
    (packed,) = remote.glob("controller-state/*/controller.sqlite3.zst")
    frames: list[float] = []
    progress: list[float] = []

    def first() -> Sample:
        shutil.rmtree(cache, ignore_errors=True)
        frame, unpacking, rows = until(remote, cache, ("Opening", "unpacking", name))
        frames.append(frame.wall_s)
        progress.append(unpacking.wall_s)
        return rows

    def second() -> Sample:
        return until(remote, cache, (name,))[0]

    def theirs() -> Sample:
        (folder / "unpacked").unlink(missing_ok=True)
        return process([zstd, "-q", "-d", packed, "-o", folder / "unpacked"])

    ours, again, other = alternate(ROUNDS, first, second, theirs)
    what = f"the console on a checkpoint of {TASKS:,} finished tasks"
    report.compare("T27", f"{what}: first rows", Side("iris", ours), Side("zstd -d", other))
    late = median(mine.wall_s - yardstick.wall_s for mine, yardstick in zip(ours, other, strict=True))
    report.absolute("T27", "first rows − `zstd -d`", late, "s", 1.5)
    twice = Side("iris", again)
    report.absolute("T27", f"{what}, the second time: first rows", twice.wall_s, "s", 1.5)
    report.absolute("T27", "the same in processor time of both processes", twice.cpu_s or 0.0, "s")
    report.absolute("T27", "the frame", median(frames), "s")
    report.absolute("T27", "the progress of unpacking", median(progress), "s")
