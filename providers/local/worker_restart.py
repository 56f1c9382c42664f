"""Restarts workers of this machine onto the release of their controller: a new supervisor first, and only then the worker's end.

A worker is kept by a supervisor, and a supervisor stays on the release that it was started from. One that is gone while its worker lives
is replaced by the controller, from its own release, and the worker and its tasks go on (`vm.LocalVm.tend`); what that new one starts is of the
new release. So a machine is never without both, which would be a lost machine. The attempts of the worker end with it, as they cannot be
adopted. Must never end a worker that is not the one that was asked for, or that runs an attempt which nobody named. Needs nothing but the
standard library: it is carried to hosts.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from providers.local.processes import Known, read_record

TAKEN_OVER_S: Final = 30.0
"""A controller looks at its machines every second, and starts a supervisor at its second look."""
LOOK_S: Final = 0.05
NOTE: Final = "restarting.json"
"""In the folder of a worker: which supervisor is to be replaced, for which restart."""


@dataclass(frozen=True, slots=True)
class HostWorker:
    """A worker of this machine.

    Attributes:
        boot_id: Of this run of the worker, "" = it does not run now.
        attempts: Task and attempt (`/u/job/0:1`) by attempt uid, of those that have not ended.
    """

    worker_id: str
    boot_id: str
    attempts: dict[str, str]


def seen(root: Path) -> list[HostWorker]:
    """The workers below a state directory, by id."""
    found = []
    for folder in sorted(path for path in root.glob("workers/*") if path.is_dir()):
        record = read_record(folder / "worker.json")
        boot = str(record.get("worker_boot", "")) if _known(record) is not None else ""
        found.append(HostWorker(folder.name, boot, _attempts(folder) if boot else {}))
    return found


def restart(root: Path, wanted: Sequence[Mapping[str, Any]], within_s: float = TAKEN_OVER_S) -> dict[str, Any]:
    """Tells each wanted worker to end once another supervisor keeps it, and does not wait for its end.

    `wanted`: `worker_id`, the `boot_id` that it had, the uids of the `attempts` that may end with it, and a `mark`: repeated under that, no
    worker is told a second time, which would cut the grace of its tasks short, and no supervisor replaced again.

    Returns:
        `told`: ids of those that end now, or have begun anew since. `left`: why one was left as it is, by id. `failed`: why one could not
        be restarted, by id. `ended`: the attempts that end with those that were told.
    """
    answer: dict[str, Any] = {"told": [], "left": {}, "failed": {}, "ended": []}
    waiting: dict[str, tuple[Mapping[str, Any], Known | None]] = {}
    for item in wanted:
        name = str(item["worker_id"])
        folder = root / "workers" / name
        if os.sep in name or name in ("", ".", ".."):
            answer["failed"][name] = "it is no worker of this host"
        elif _settled(folder, item, answer) is None:
            continue
        elif (note := _noted(folder, item)).get("told"):
            answer["told"].append(name)
        elif note:
            waiting[name] = (item, _known(note))
        else:
            supervisor = _known(read_record(folder / "supervisor.json"))
            try:
                _note(folder, item, supervisor, told=False)
            except OSError as error:
                answer["failed"][name] = f"{folder}: {(error.strerror or str(error)).lower()}"
                continue
            waiting[name] = (item, supervisor)
            if supervisor is not None:
                # As a crash of it would have it: the worker and its tasks go on until the next one takes them over.
                supervisor.signal(signal.SIGKILL)
    deadline = time.monotonic() + within_s
    while waiting:
        for name, (item, before) in list(waiting.items()):
            folder = root / "workers" / name
            supervisor = _known(read_record(folder / "supervisor.json"))
            if supervisor is not None and supervisor != before:
                del waiting[name]
                _tell(folder, item, supervisor, answer)
        if waiting and time.monotonic() >= deadline:
            why = f"no supervisor of the controller took it over within {within_s:g} s; it goes on as it was"
            answer["failed"] |= dict.fromkeys(waiting, why)
            break
        time.sleep(LOOK_S if waiting else 0)
    answer["told"].sort()
    return answer


def _tell(folder: Path, item: Mapping[str, Any], supervisor: Known, answer: dict[str, Any]) -> None:
    worker = _settled(folder, item, answer)
    if worker is None:
        return
    answer["ended"] += sorted(_attempts(folder).values())
    answer["told"].append(folder.name)
    worker.ask_to_end()
    with contextlib.suppress(OSError):  # told twice, its tasks have less time
        _note(folder, item, supervisor, told=True)


def _note(folder: Path, item: Mapping[str, Any], supervisor: Known | None, *, told: bool) -> None:
    known = {"pid": supervisor.pid, "start_time": supervisor.started} if supervisor is not None else {}
    scratch = folder / f"{NOTE}.new"
    scratch.write_text(json.dumps({"mark": item["mark"], "boot_id": item["boot_id"], "told": told, **known}))
    scratch.replace(folder / NOTE)


def _noted(folder: Path, item: Mapping[str, Any]) -> dict[str, Any]:
    """What an earlier call under the same mark did to this worker, empty = nothing."""
    note = read_record(folder / NOTE)
    return note if (note.get("mark"), note.get("boot_id")) == (item["mark"], item["boot_id"]) else {}


def _settled(folder: Path, item: Mapping[str, Any], answer: dict[str, Any]) -> Known | None:
    """The worker, if it is the wanted one and runs nothing but what was named; else None, and the answer says so."""
    record = read_record(folder / "worker.json")
    worker = _known(record)
    if worker is None or record.get("worker_boot") != item["boot_id"]:
        if worker is None and not folder.is_dir():
            answer["left"][folder.name] = "it is gone"
        else:
            answer["told"].append(folder.name)
        return None
    more = _unnamed(folder, item["attempts"])
    if more:
        answer["left"][folder.name] = f"it runs {', '.join(more)}, which nobody named"
        return None
    return worker


def _unnamed(folder: Path, named: Collection[str]) -> list[str]:
    return sorted(key for uid, key in _attempts(folder).items() if uid not in named)


def _attempts(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.glob("attempts/*.json"):
        record = read_record(path)
        if not record.get("end"):
            # A torn record still names its attempt by the file's name.
            found[path.stem] = str(record.get("key") or path.stem)
    return found


def _known(record: Mapping[str, Any]) -> Known | None:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        known = Known(int(record["pid"]), int(record["start_time"]))
        return known if known.alive else None
    return None
