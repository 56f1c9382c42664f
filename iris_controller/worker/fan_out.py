"""Several copies of a task's command side by side, each with its share of the task's GPUs (`--processes-per-task`).

Runs as a script of its own (`python -I -S fan_out.py COPIES GPUS WORDS…`) as the main process of an attempt, and imports nothing of
the project. The first copy that fails ends the others, and its code is the attempt's. Must never outlive its copies, nor end
before them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def command(copies: int, gpus: int, words: list[str]) -> list[str]:
    """The command line that runs so many copies of `words`."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(copies), str(gpus), *words]


def shares(copies: int, gpus: int, visible: str) -> list[str]:
    """What `CUDA_VISIBLE_DEVICES` is for each copy; `visible` is the task's own, "" = all from 0."""
    names = visible.split(",") if visible else [str(number) for number in range(gpus)]
    each = len(names) // copies
    return [",".join(names[copy * each : (copy + 1) * each]) for copy in range(copies)]


def run(copies: int, gpus: int, words: list[str]) -> int:
    """Runs the copies to their end. Returns the exit code: that of the first that failed, 128+N for signal N."""
    # The worker signals every process of an attempt; this one ends when the copies have.
    signal.signal(signal.SIGTERM, lambda *_: None)
    running: dict[int, subprocess.Popen[bytes]] = {}
    result = 0
    for copy, devices in enumerate(shares(copies, gpus, os.environ.get("CUDA_VISIBLE_DEVICES", ""))):
        own = {"IRIS_PROCESS_INDEX": str(copy), "IRIS_NUM_PROCESSES": str(copies), "CUDA_VISIBLE_DEVICES": devices}
        try:
            child = subprocess.Popen(words, env={**os.environ, **own})
        except OSError as error:
            sys.stderr.write(f"{words[0]}: {error.strerror}\n")
            result = 127 if isinstance(error, FileNotFoundError) else 126
            break
        running[child.pid] = child
    if result:
        _end(running)
    while running:
        pid, status = os.wait()
        if running.pop(pid, None) is None:
            continue
        code = os.waitstatus_to_exitcode(status)
        if code and not result:
            result = code if code > 0 else 128 - code
            _end(running)
    return result


def _end(running: dict[int, subprocess.Popen[bytes]]) -> None:
    for pid in running:
        os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    code = run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    sys.stdout.flush()
    # Without the interpreter's own farewell: it would complain of children it did not wait for itself.
    os._exit(code)
