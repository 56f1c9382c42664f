"""T23: from the shell to the first useful row: `iris` in a pseudo-terminal until the name of a running job is on the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from typing import TYPE_CHECKING

from benchmarks import clusters
from benchmarks.measure import Sample, Side, alternate, process

if TYPE_CHECKING:
    from benchmarks.clusters import Cluster
    from benchmarks.measure import Report

JOB = "first-useful-row"


def until_row(cluster: Cluster) -> Sample:
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        program = str(clusters.BIN / "iris")
        os.execve(program, [program, "--cluster=local"], {**cluster.env, "TERM": "xterm-256color"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    shown = b""
    try:
        while JOB.encode() not in shown:
            if not select.select([terminal], [], [], 20)[0]:
                raise RuntimeError(f"the console never showed the job; it showed {shown[-500:]!r}")
            shown += os.read(terminal, 65536)
        wall = time.perf_counter() - began
    finally:
        os.kill(pid, signal.SIGKILL)
        _, _, usage = os.wait4(pid, 0)
        os.close(terminal)
    return Sample(wall, usage.ru_utime + usage.ru_stime)


def run(report: Report) -> None:
    bare = [sys.executable, "-c", "import textual.app"]
    with clusters.ours() as cluster:
        job = cluster.submit(JOB, ["sleep", "600"])
        ours, theirs = alternate(9, lambda: until_row(cluster), lambda: process(bare, cluster.env))
        cluster.call("TerminateJob", {"jobId": job})
    yardstick = Side("python -c 'import textual.app'", theirs)
    report.compare("T23", "console start to first useful row", Side("iris", ours), yardstick, at_most=2.5)
