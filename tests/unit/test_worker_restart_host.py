"""Workers restarted where they live: another supervisor first, no worker but the one that was meant, and nothing twice. On processes that sleep."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from providers.local.processes import Known, start_time
from providers.local.worker_restart import NOTE, restart, seen


class Host:
    """A state directory with workers that are nothing but sleeping processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.processes: list[subprocess.Popen[bytes]] = []

    def process(self) -> Known:
        made = subprocess.Popen(["sleep", "600"])
        self.processes.append(made)
        return Known(made.pid, start_time(made.pid) or 0)

    def record(self, worker_id: str, name: str, **fields: Any) -> Known:
        made = self.process()
        folder = self.root / "workers" / worker_id
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder / f".{name}"
        scratch.write_text(json.dumps({"pid": made.pid, "start_time": made.started, **fields}))
        scratch.replace(folder / name)
        return made

    def worker(self, worker_id: str, *attempts: str, boot: str = "b1") -> tuple[Known, Known]:
        """Its supervisor, and itself."""
        for key in attempts:
            self.attempt(worker_id, key)
        return self.record(worker_id, "supervisor.json"), self.record(worker_id, "worker.json", worker_boot=boot)

    def attempt(self, worker_id: str, key: str, **fields: str) -> None:
        folder = self.root / "workers" / worker_id / "attempts"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"uid-{key}.json").write_text(json.dumps({"key": f"/u/{key}", **fields}))

    def tended(self, worker_id: str, supervisor: Known, before: Callable[[], None] = lambda: None) -> threading.Thread:
        """What a controller does when a supervisor is gone."""

        def tend() -> None:
            supervisor.wait_gone(30)
            before()
            self.record(worker_id, "supervisor.json")

        made = threading.Thread(target=tend)
        made.start()
        return made

    def ended(self, known: Known) -> int:
        """The signal that ended it."""
        (process,) = [process for process in self.processes if process.pid == known.pid]
        return -process.wait(30)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


def wanted(worker_id: str, *attempts: str, boot: str = "b1", mark: str = "p") -> dict[str, Any]:
    return {"worker_id": worker_id, "boot_id": boot, "attempts": [f"uid-{key}" for key in attempts], "mark": mark}


def nothing(**more: Any) -> dict[str, Any]:
    return {"told": [], "left": {}, "failed": {}, "ended": [], **more}


def test_what_is_there_is_seen_with_what_it_runs(host: Host) -> None:
    host.worker("w1", "a:0")
    host.attempt("w1", "over:0", end="bytes")
    (host.root / "workers" / "w1" / "attempts" / "torn.json").write_text("{")
    host.worker("w0")
    _, gone = host.worker("w2")
    gone.signal(signal.SIGKILL)
    host.ended(gone)
    assert [(w.worker_id, w.boot_id, w.attempts) for w in seen(host.root)] == [
        ("w0", "b1", {}),
        ("w1", "b1", {"uid-a:0": "/u/a:0", "torn": "torn"}),
        ("w2", "", {}),
    ]
    assert seen(host.root / "nowhere") == []


def test_a_worker_is_told_to_end_once_another_supervisor_keeps_it(host: Host) -> None:
    supervisor, worker = host.worker("w0", "a:0")
    alive: list[bool] = []
    tending = host.tended("w0", supervisor, lambda: alive.append(worker.alive))
    said = restart(host.root, [wanted("w0", "a:0")])
    tending.join()
    assert said == nothing(told=["w0"], ended=["/u/a:0"])
    assert (host.ended(supervisor), host.ended(worker), alive) == (signal.SIGKILL, signal.SIGTERM, [True])


def test_repeated_under_its_mark_it_signals_nobody_again(host: Host) -> None:
    supervisor, _ = host.worker("w0")
    tending = host.tended("w0", supervisor)
    # A worker that gives its tasks their grace: a second TERM would cut that short.
    script = "trap 'echo told' TERM; trap 'echo asked' WINCH; echo ready; while :; do sleep 0.02; done"
    worker = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    host.processes.append(worker)  # type: ignore[arg-type]
    assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
    path = host.root / "workers" / "w0" / "worker.json"
    path.write_text(json.dumps({"pid": worker.pid, "start_time": start_time(worker.pid), "worker_boot": "b1"}))
    assert restart(host.root, [wanted("w0")])["told"] == ["w0"]
    tending.join()
    assert worker.stdout.readline() == "told\n"
    keeper = json.loads((host.root / "workers" / "w0" / "supervisor.json").read_text())["pid"]
    assert restart(host.root, [wanted("w0")]) == nothing(told=["w0"])
    assert Known(keeper, start_time(keeper) or 0).alive
    worker.send_signal(signal.SIGWINCH)  # a shell takes a TERM before this
    assert worker.stdout.readline() == "asked\n", "it was told once"
    worker.kill()
    worker.stdout.close()
    host.record("w0", "worker.json", worker_boot="b2")
    assert restart(host.root, [wanted("w0")]) == nothing(told=["w0"]), "it has begun anew"


def test_a_worker_that_was_stopped_hears_of_it(host: Host) -> None:
    supervisor, worker = host.worker("w0")
    worker.signal(signal.SIGSTOP)
    tending = host.tended("w0", supervisor)
    assert restart(host.root, [wanted("w0")])["told"] == ["w0"]
    tending.join()
    assert host.ended(worker) == signal.SIGTERM


def test_a_run_that_was_cut_off_replaces_no_supervisor_twice(host: Host) -> None:
    supervisor, worker = host.worker("w0")
    first = restart(host.root, [wanted("w0")], within_s=0.1)
    assert first == nothing(
        failed={"w0": "no supervisor of the controller took it over within 0.1 s; it goes on as it was"}
    )
    assert worker.alive and not supervisor.alive
    keeper = host.record("w0", "supervisor.json")
    assert restart(host.root, [wanted("w0")])["told"] == ["w0"]
    assert keeper.alive and host.ended(worker) == signal.SIGTERM


@pytest.mark.parametrize("late", [False, True])
def test_a_worker_with_an_attempt_that_nobody_named_is_left(host: Host, late: bool) -> None:
    supervisor, worker = host.worker("w0", "a:0", *(() if late else ("b:1",)))
    tending = host.tended("w0", supervisor, lambda: host.attempt("w0", "b:1")) if late else None
    said = restart(host.root, [wanted("w0", "a:0")])
    assert said == nothing(left={"w0": "it runs /u/b:1, which nobody named"})
    assert worker.alive and supervisor.alive is not late
    if tending is not None:
        tending.join()


def test_no_name_leads_out_of_the_folder_of_workers_and_one_that_is_gone_is_left(host: Host) -> None:
    host.worker("w0")
    said = restart(host.root, [wanted("../workers/w0"), wanted(".."), wanted("w9"), wanted("w0", boot="other")])
    assert said["failed"] == {name: "it is no worker of this host" for name in ("../workers/w0", "..")}
    assert said["left"] == {"w9": "it is gone"} and said["told"] == ["w0"], (
        "another boot is no longer the one that was meant"
    )
    assert all(process.poll() is None for process in host.processes)


def test_a_full_disk_ends_nobody(host: Host) -> None:
    supervisor, worker = host.worker("w0")
    (host.root / "workers" / "w0" / f"{NOTE}.new").mkdir()
    said = restart(host.root, [wanted("w0")])
    assert set(said["failed"]) == {"w0"} and supervisor.alive and worker.alive
