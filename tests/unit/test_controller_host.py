"""A controller deployment on this machine, with a controller of a few lines: what is recorded, started again, refused and ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from iris_core.contracts import ControllerHost, ControllerUnhealthy, IrisError, StagedRelease
from providers.local import controller_host
from providers.local.controller_host import LocalControllerHost
from providers.local.controller_keeper import RECORD, Keeper, begun
from providers.local.last_checkpoint import FILE, forget, note
from providers.local.processes import Known, kept_environment, read_record, start_time

HOME = Path(__file__).resolve().parents[2]
SERVER = '''
"""Serves /health; what it does besides stands in a file in its state directory."""
import fcntl, json, os, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

state = Path(sys.argv[sys.argv.index("--state-dir") + 1])
lock = os.open(state / "lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
how = (state / "how").read_text() if (state / "how").exists() else ""
with open(state / "starts", "a") as file:
    file.write(os.environ.get("PYTHONPATH", "") + "\\n")
if how == "die":
    sys.stderr.write("Error: port 1234 is in use\\n")
    raise SystemExit(1)
signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "hang" else lambda *_: sys.exit(0))

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if how == "ill" else 200)
        self.end_headers()
    def log_message(self, *_):
        pass

server = HTTPServer(("127.0.0.1", 0), Answer)
note = {"url": f"http://127.0.0.1:{server.server_port}", "pid": os.getpid(), "boot_id": str(os.getpid())}
ready = int(sys.argv[sys.argv.index("--ready-fd") + 1])
os.write(ready, json.dumps(note).encode() + b"\\n")
os.close(ready)
server.serve_forever()
'''


class Place:
    """A state directory with releases whose controller is the one above."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.state.mkdir()
        self.folder = folder
        self.host = LocalControllerHost(folder / "c.yaml", self.state, self.find)

    def release(self, name: str) -> Path:
        lib = self.folder / "releases" / name / "lib"
        (lib / "iris_controller").mkdir(parents=True)
        (lib / "iris_controller" / "__init__.py").touch()
        (lib / "iris_controller" / "serve.py").touch()
        (lib / "iris_controller" / "main.py").write_text(SERVER)
        for package in ("iris_core", "providers"):
            (lib / package).symlink_to(HOME / package)
        return lib

    def find(self, name: str) -> StagedRelease | None:
        lib = self.folder / "releases" / name / "lib"
        return StagedRelease(name, sys.executable, lib) if lib.is_dir() else None

    def starts(self) -> list[str]:
        path = self.state / "starts"
        return path.read_text().splitlines() if path.exists() else []

    def keeper(self) -> Known:
        record = read_record(self.state / "controller.json")
        return Known(int(record["pid"]), int(record["start_time"]))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.release("r1")
    yield made
    made.host.stop()
    assert not made.host.status().running


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.01)


def test_a_release_is_started_in_a_session_of_its_own_recorded_and_ended(place: Place) -> None:
    host: ControllerHost = place.host
    assert (host.status().running, host.status().detail) == (False, "it was never started here")
    host.start("r1")
    healthy = host.await_healthy()
    assert (healthy.release, healthy.boot_id) == ("r1", str(healthy.pid))
    assert place.starts() == [str(place.folder / "releases" / "r1" / "lib")], "children run from the release"
    assert os.getsid(healthy.pid) != os.getsid(0)
    with pytest.raises(IrisError, match="a controller runs already: it serves at"):
        host.start("r1")
    # What was recorded before the machine was booted is no process: its lock is seen, its pid is nobody's.
    path = place.state / "controller.json"
    record = path.read_text()
    path.write_text(record.replace(read_record(path)["machine_boot"], "another"))
    assert "started by hand" in host.status().detail
    with pytest.raises(IrisError, match="another controller holds"):
        host.stop()
    assert start_time(healthy.pid) is not None
    path.write_text(record)
    host.stop()
    stopped = host.status()
    assert (stopped.running, stopped.detail, stopped.release) == (False, "it was stopped", "r1")
    assert start_time(healthy.pid) is None
    host.stop()  # nothing to end is no error
    assert (stopped.ended_boot, stopped.last_checkpoint) == ("", "")
    note(place.state, healthy.boot_id, "gs://b/controller-state/7")
    stopped = host.status()
    assert (stopped.ended_boot, stopped.last_checkpoint) == (healthy.boot_id, "gs://b/controller-state/7")
    for torn in ("", "[]", '{"boot_id": 7, "checkpoint": "x"}', '{"boot_id": "7"}'):
        (place.state / FILE).write_text(torn)
        assert (host.status().ended_boot, host.status().last_checkpoint) == ("", ""), torn
    forget(place.state)
    forget(place.state)
    assert host.status() == replace(stopped, ended_boot="", last_checkpoint="")


def test_a_controller_that_dies_is_started_again_and_one_that_ends_by_itself_is_not(place: Place) -> None:
    place.host.start("r1")
    first = place.host.await_healthy()
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: place.host.status().url != "" and place.host.status().pid != first.pid)
    second = place.host.await_healthy()
    assert second.failures == 1 and "ended by SIGKILL" in "\n".join(place.host.logs(30))
    keeper = place.keeper()
    os.kill(second.pid, signal.SIGTERM)  # it drains and ends with 0: it was told to
    until(lambda: not keeper.alive)
    assert place.host.status().detail == "it was stopped" and len(place.starts()) == 2
    # With its keeper killed the controller ends, and can be started anew.
    place.host.start("r1")
    third = place.host.await_healthy()
    place.keeper().signal(signal.SIGKILL)
    until(lambda: start_time(third.pid) is None)
    assert place.host.status().detail == "it does not run"
    place.host.start("r1")
    assert place.host.await_healthy().boot_id not in (first.boot_id, third.boot_id)


def test_a_controller_that_hangs_is_killed_when_it_has_to_end_soon_and_not_started_again(place: Place) -> None:
    (place.state / "how").write_text("hang")
    place.host.start("r1")
    hung = place.host.await_healthy()
    os.kill(hung.pid, signal.SIGSTOP)
    place.host.stop(kill_after_s=0.1)
    assert start_time(hung.pid) is None and place.host.status().detail == "it was stopped"
    assert len(place.starts()) == 1


@pytest.mark.parametrize("frozen", ["controller", "keeper"])
def test_what_hangs_and_has_nobody_to_kill_it_is_killed_by_a_stop_and_can_be_started_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, frozen: str
) -> None:
    monkeypatch.setattr(controller_host, "STOP_S", 0.1)
    monkeypatch.setattr(controller_host, "KEEPER_STOP_S", 0.1)
    place.host.start("r1")
    hung, keeper = place.host.await_healthy(), place.keeper()
    if frozen == "controller":
        os.kill(hung.pid, signal.SIGSTOP)
        keeper.signal(signal.SIGKILL)
        until(lambda: not keeper.alive)
        ending = place.host.status()
        assert (ending.running, ending.url, ending.detail) == (True, "", "it is ending, its keeper is gone")
        with pytest.raises(IrisError, match="it is ending, its keeper is gone"):
            place.host.start("r1")
    else:
        keeper.signal(signal.SIGSTOP)
    place.host.stop()
    assert start_time(hung.pid) is None and not keeper.alive and not place.host.status().running
    place.host.start("r1")
    assert place.host.await_healthy().pid != hung.pid


def test_the_program_of_a_release_runs_beside_a_stopped_controller_and_its_words_come_back(place: Place) -> None:
    main = place.folder / "releases" / "r1" / "lib" / "iris_controller" / "main.py"
    main.write_text(
        "import sys\nprint(sys.argv[1:])\nif sys.argv[1] == 'no': sys.exit('Error: it is held\\nHint: end it')\n"
    )
    assert place.host.offline("r1", ["restore", "a b"]) == "['restore', 'a b']\n"
    with pytest.raises(IrisError, match="it is held") as caught:
        place.host.offline("r1", ["no"])
    assert caught.value.hint == "end it"
    migrations = main.parent / "store" / "migrations"
    migrations.mkdir(parents=True)
    for name in ("0002_b.sql", "0001_a.sql", "README"):
        (migrations / name).touch()
    assert place.host.schema("r1") == ["0001_a", "0002_b"]


def test_a_loop_of_restarts_ends_the_wait_early_with_the_reason_and_the_last_lines(place: Place) -> None:
    (place.state / "how").write_text("die")
    place.host.start("r1")
    with pytest.raises(ControllerUnhealthy, match="times in a row: port 1234 is in use") as caught:
        place.host.await_healthy(600.0)
    assert "Error: port 1234 is in use" in caught.value.lines and len(caught.value.lines) <= 30
    assert place.host.status().running, "its keeper goes on until it is told to stop"


def test_one_that_answers_unwell_is_not_healthy_when_the_time_is_over(place: Place) -> None:
    (place.state / "how").write_text("ill")
    place.host.start("r1")
    until(lambda: place.host.status().url != "")
    with pytest.raises(ControllerUnhealthy, match=r"not healthy after 0 s: it serves at .*, /health answers 503"):
        place.host.await_healthy(0.0)


def test_a_release_is_staged_when_its_interpreter_loads_it(place: Place) -> None:
    place.host.stage("r1")
    with pytest.raises(IrisError, match="no whole release r2"):
        place.host.stage("r2")
    lib = place.release("broken")
    (lib / "iris_controller" / "serve.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(IrisError, match="release broken cannot be loaded: ModuleNotFoundError"):
        place.host.stage("broken")


def test_bytecode_that_a_full_disk_cut_short_keeps_no_release_from_loading_and_what_runs_writes_none(
    place: Place,
) -> None:
    place.host.stage("r1")
    lib = place.folder / "releases" / "r1" / "lib"
    (cached,) = lib.glob("iris_controller/__pycache__/serve.*.pyc")
    cached.write_bytes(cached.read_bytes()[:20])
    place.host.stage("r1")
    assert not cached.exists() or len(cached.read_bytes()) > 20
    fresh = place.release("fresh")
    place.host.start("fresh")
    place.host.await_healthy()
    assert list(fresh.rglob("*.pyc")) == []


def test_a_record_for_which_there_was_no_room_is_written_once_there_is(place: Place) -> None:
    place.host.start("r1")
    first = place.host.await_healthy()
    record, aside = place.state / RECORD, place.state / "aside"
    keeper = place.keeper()
    record.rename(aside)
    record.mkdir()  # nothing can be written there
    os.kill(first.pid, signal.SIGKILL)
    try:
        # That it waits, that it starts the next one, and that this one serves.
        until(lambda: (place.state / "controller.log").read_text().count(f"{RECORD}: ") == 3)
    finally:
        record.rmdir()
    until(lambda: place.host.status().url != "")
    again = place.host.await_healthy()
    assert again.pid != first.pid and again.failures == 1 and keeper.alive
    assert (place.state / "controller.log").read_text().count(f"{RECORD}: ") == 3, "said once each, not with every try"


def test_children_of_a_process_that_runs_from_a_release_run_from_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert "PYTHONPATH" not in kept_environment()
    monkeypatch.setenv("PYTHONPATH", f"/elsewhere:{HOME}")
    assert kept_environment()["PYTHONPATH"] == str(HOME), "no other folder"
    monkeypatch.setenv("PYTHONPATH", ".")
    assert "PYTHONPATH" not in kept_environment()
    assert kept_environment(Path("/r/lib"))["PYTHONPATH"] == "/r/lib"


def test_of_two_starts_at_once_the_later_is_told_and_touches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = Keeper(tmp_path, "r1", []), Keeper(tmp_path, "r2", [])
    assert begun(first)
    standing = read_record(tmp_path / RECORD)
    assert not begun(second)
    assert "another start has taken it" in capsys.readouterr().err
    assert read_record(tmp_path / RECORD) == standing and standing["release"] == "r1"
