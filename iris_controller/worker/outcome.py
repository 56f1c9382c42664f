"""How an attempt ends, in the words that operators read and the states that the controller folds.

Every reason is stated as far as it is known and no further: out of memory only where the kernel counted a kill, a signal without
naming a sender, and an exit code of 137 as just that (field case C21).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_core.model.levels import signal_name
from iris_core.model.quantities import format_duration, format_size
from iris_core.wire.gen.iris.v1 import common_pb2, worker_pb2

if TYPE_CHECKING:
    from iris_controller.worker.process import Exit

SUCCEEDED = common_pb2.TASK_STATE_SUCCEEDED
FAILED = common_pb2.TASK_STATE_FAILED
KILLED = common_pb2.TASK_STATE_KILLED
WORKER_FAILED = common_pb2.TASK_STATE_WORKER_FAILED
MISSING = common_pb2.TASK_STATE_MISSING

ERROR_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an attempt: a TaskState and a FailureKind by number; `exit_code` None where no command ended."""

    state: int
    kind: int = worker_pb2.FAILURE_KIND_UNSPECIFIED
    error: str = ""
    exit_code: int | None = None


def machine_fault(text: str) -> Outcome:
    """This host could not run it (DESIGN §5.14): free for the task, counted against the worker."""
    return Outcome(WORKER_FAILED, worker_pb2.FAILURE_KIND_STAGING, text)


def refused(text: str) -> Outcome:
    """What was submitted may not be run, here or anywhere."""
    return Outcome(FAILED, worker_pb2.FAILURE_KIND_UNSPECIFIED, text)


def not_started(text: str, exit_code: int) -> Outcome:
    """The command is not there or not executable; `exit_code` as a shell gives it."""
    return Outcome(FAILED, worker_pb2.FAILURE_KIND_COMMAND, text, exit_code)


def ended(exit: Exit, *, oom_kills: int, limit: int, peak: int) -> Outcome:
    """The command ended by itself. Sizes in bytes, `limit` 0 = none."""
    if exit.code == 0:
        return Outcome(SUCCEEDED, exit_code=0)
    if oom_kills:
        told = f"limit {format_size(limit, exact=True)}, " if limit else ""
        killed = "1 process" if oom_kills == 1 else f"{oom_kills} processes"
        text = f"out of memory: {told}peak {format_size(peak)} (the kernel killed {killed})"
        return Outcome(FAILED, worker_pb2.FAILURE_KIND_OUT_OF_MEMORY, text, exit.code)
    return Outcome(FAILED, worker_pb2.FAILURE_KIND_COMMAND, how(exit), exit.code)


def how(exit: Exit) -> str:
    """`exit code 3`, or `killed by SIGKILL (sender unknown)`."""
    if exit.signalled:
        return f"killed by {signal_name(exit.code) or f'signal {exit.code - 128}'} (sender unknown)"
    return f"exit code {exit.code}"


def setup_failed(exit: Exit, step: int, steps: int, script: str, *, uv_missing: bool, worker_id: str) -> Outcome:
    """A setup step failed: FAILED, by the step's own exit code (DESIGN §5.14)."""
    text = f"setup step {step}/{steps} failed: {how(exit)}"
    if uv_missing and exit.code == 127 and re.search(r"(?m)(^|[\s;&|(])uv\s", script):
        # The words of DESIGN §5.13, which operators search for.
        text = f"uv not found on worker {worker_id}: install it or submit with --no-sync"
    return Outcome(FAILED, worker_pb2.FAILURE_KIND_COMMAND, text, exit.code)


def stopped(reason: int) -> Outcome:
    """The controller asked for the end; `reason` is a StopReason."""
    if reason == common_pb2.STOP_REASON_TASK_TIMEOUT:
        return Outcome(FAILED, worker_pb2.FAILURE_KIND_TIMEOUT, "timed out: the execution limit was reached")
    name = common_pb2.StopReason.Name(reason) if reason in common_pb2.StopReason.values() else f"reason {reason}"
    word = name.removeprefix("STOP_REASON_").lower().replace("_", " ")
    return Outcome(KILLED, worker_pb2.FAILURE_KIND_STOPPED, f"stopped: {word}" if reason else "stopped")


def unwanted() -> Outcome:
    """The controller's set did not have it (a zombie, control-plane §4.1)."""
    return Outcome(KILLED, worker_pb2.FAILURE_KIND_STOPPED, "stopped: the controller no longer wants this attempt")


def worker_stopping() -> Outcome:
    """The worker itself ends; nobody asked for the end of the task."""
    return Outcome(WORKER_FAILED, error="the worker was stopped")


def timed_out(limit_ms: int) -> Outcome:
    """The execution limit, watched here too in case the controller is out of reach."""
    told = f"timed out: the execution limit of {format_duration(limit_ms)} was reached"
    return Outcome(FAILED, worker_pb2.FAILURE_KIND_TIMEOUT, told)


def over_limit(limit: int, seen: int) -> Outcome:
    """Polling saw more than the limit. Not called out of memory: no counter of the kernel says so."""
    text = (
        f"ended by the worker: memory {format_size(seen)} was over the limit {format_size(limit, exact=True)} (polled)"
    )
    return Outcome(FAILED, worker_pb2.FAILURE_KIND_COMMAND, text)


def cut(text: str) -> str:
    """`text` within what an Observation may carry."""
    data = text.encode("utf-8", "replace")
    if len(data) <= ERROR_BYTES:
        return text
    return data[: ERROR_BYTES - 4].decode("utf-8", "ignore") + "…"
