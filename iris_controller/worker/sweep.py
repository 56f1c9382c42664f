"""Ends whatever of this cache directory's attempts is alive: after the worker died, before the next one starts.

A process attempt is never adopted by a later worker: its pipes died with the old one. What is ended is told apart by control
group, marker, descent and session, with the start time compared at the moment of the signal, so that a process which merely has a
recorded number lives on (field case C06).
"""

from __future__ import annotations

import logging
import signal
import time
from typing import TYPE_CHECKING

from iris_controller.worker import cgroups, procs
from iris_controller.worker.records import Records

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from iris_controller.worker.records import AttemptRecord

_log = logging.getLogger("iris.worker.sweep")


def sweep(records: Iterable[AttemptRecord], *, limit_s: float = 4.0) -> list[str]:
    """Kills the processes of the recorded attempts until none is left, and removes their groups.

    Returns the uids of attempts that still hold a process after `limit_s`, which only an uninterruptible one can.
    """
    todo = {record.uid: record for record in records}
    deadline = time.monotonic() + limit_s
    pause = 0.005
    while todo:
        left: dict[str, AttemptRecord] = {}
        marked = procs.members(procs.snapshot(), [_wanted(record) for record in todo.values()])
        for uid, record in todo.items():
            alive = [proc for proc in marked[uid] if procs.send((proc.pid, proc.start), signal.SIGKILL)]
            group = cgroups.recorded(record.cgroup, uid) if record.cgroup else None
            if group is not None:
                group.signal(signal.SIGKILL)
                if not group.remove():
                    left[uid] = record
            if alive:
                left[uid] = record
        todo = left
        if todo and time.monotonic() >= deadline:
            _log.error("processes of attempts %s do not end", ", ".join(sorted(todo)))
            break
        if todo:
            time.sleep(pause)
            pause = min(pause * 2, 0.1)
    return sorted(todo)


def sweep_folder(cache_dir: Path) -> list[str]:
    """Ends what is left of the attempts of a worker that is gone together with its supervisor. As `sweep`."""
    return sweep(record for record in Records(cache_dir).load() if not record.end)


def _wanted(record: AttemptRecord) -> procs.Wanted:
    if record.machine_boot != procs.machine_boot():
        return procs.Wanted(record.uid)
    return procs.Wanted(record.uid, record.pid, record.start)
