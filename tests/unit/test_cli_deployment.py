"""`cluster controller start|stop|status|restart`: what is refused before anything is looked at, and what is shown of a deployment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iris_core.procedures import lock, record
from iris_core.procedures.lock import Holder
from iris_core.procedures.record import Phase, RolloutRecord
from providers.objects import open_store
from tests.unit.cli_world import Done, World

FILE = """
name: lab
platform: {{local: }}
controller: {{local: {{port: 10000}}}}
storage: {{local_state_dir: "{0}/state", remote_state_dir: "file://{0}/remote"}}
worker_provider: {{}}
"""


class Lab(World):
    """A cluster file of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.file = folder / "lab.yaml"
        self.write(FILE.format(folder))
        self.store = open_store(f"file://{folder}/remote")

    def write(self, text: str) -> None:
        self.file.write_text(text)

    def controller(self, *words: str, selector: str = "") -> Done:
        return self.cli("cluster", "controller", *words, selector=selector or f"--config={self.file}")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("IRIS_JOURNAL_DIR", str(tmp_path / "journals"))
    return Lab(tmp_path)


@pytest.mark.parametrize("command", ["start", "restart"])
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (', remote_state_dir: "file://', ' } #', "storage.remote_state_dir is not set"),
        ("local_state_dir", "#", ""),
        ("local: {port: 10000}", "local: {}", "controller.local.port is not set"),
        ("platform: {local: }", "platform: {gcp: }", "this is a gcp cluster"),
        ("controller: {local: {port: 10000}}", "controller: {manual: {}}", "controller.manual.host is not set"),
    ],
)  # fmt: skip
def test_a_cluster_that_cannot_be_deployed_is_refused_before_anything_else(
    lab: Lab, command: str, old: str, new: str, words: str
) -> None:
    text = lab.file.read_text()
    if old == "local_state_dir":
        text = text.replace(f'local_state_dir: "{lab.folder}/state", ', "")
        words = "storage.local_state_dir is not set"
    else:
        text = text.replace(old, new)
    lab.write(text)
    done = lab.controller(command, *(("--confirm", "lab") if command == "restart" else ()))
    assert done.code == 2 and words in done.err and not done.out
    assert not (lab.folder / "state").exists() and not (lab.folder / "journals").exists()


def test_the_embedded_cluster_has_no_deployment(lab: Lab) -> None:
    for command in ("start", "stop", "status", "restart"):
        done = lab.controller(command, selector="--cluster=local")
        assert done.code == 2 and "ends with whoever started it" in done.err


def test_a_restart_is_confirmed_by_the_right_name_or_not_at_all(lab: Lab) -> None:
    done = lab.controller("restart")
    assert done.code == 2 and "--confirm lab" in done.err
    done = lab.controller("restart", "--confirm", "lap")
    assert done.code == 2 and "nothing was changed" in done.err
    done = lab.controller("restart", "--approve", "restart")
    assert done.code == 2 and "STEP=TOKEN" in done.err
    done = lab.controller("restart", "--resume", "nothing", "--confirm", "lab")
    assert done.code == 1 and "no procedure nothing" in done.err


def test_without_a_controller_a_restart_ends_and_says_how_to_start_one(lab: Lab) -> None:
    done = lab.controller("restart", "--confirm", "lab")
    assert done.code == 1 and "no controller of lab runs: it was never started here" in done.out
    assert "next: cluster controller start" in done.err
    assert lock.read(lab.store).holder is None and record.read(lab.store).record is None
    assert lab.controller("stop").code == 0, "nothing to stop needs no name"


def test_start_ships_nothing_while_a_deployment_is_under_way(lab: Lab) -> None:
    lock.acquire(lab.store, Holder("p1", "ada", "desk", 1))
    done = lab.controller("start")
    assert done.code == 1 and "ada on desk holds it" in done.err
    lock.release(lab.store, "p1")
    standing = record.read(lab.store)
    standing = record.write(lab.store, RolloutRecord(Phase.PENDING, "0123456789abcdef"), standing)
    done = lab.controller("start")
    assert done.code == 1 and "the deployment of 0123456789ab is pending" in done.err
    assert not (lab.folder / "state").exists()


def test_status_shows_record_and_lock_also_while_nothing_runs(lab: Lab) -> None:
    done = lab.controller("status")
    assert done.code == 1 and "Deployed:   nothing yet" in done.out and "Running:    False" in done.out
    made = RolloutRecord(Phase.COMMITTED, "0123456789abcdef", "fedcba9876543210", "gs://b/controller-state/7", 5)
    record.write(lab.store, made, record.read(lab.store))
    lock.acquire(lab.store, Holder("p1", "ada", "desk", 1))
    done = lab.controller("status")
    assert "Deployed:   0123456789ab, committed" in done.out and "Before it:  fedcba987654" in done.out
    assert "Lock:       ada on desk holds it" in done.out and "gs://b/controller-state/7" in done.out
    found = json.loads(lab.controller("status", "-o", "json").out)
    assert found["running"] is False and found["url"] is None and found["releases"] == []
    assert found["record"]["phase"] == "committed" and found["record"]["previous_image"] == "fedcba9876543210"
    (lab.folder / "remote" / "rollout-record.json").write_text("[]")
    assert "Problem:    rollout-record.json cannot be understood" in lab.controller("status").out


@pytest.mark.parametrize("command", ["stop", "restart"])
def test_a_whole_cluster_is_ended_by_its_name_alone_and_not_while_it_is_changed(lab: Lab, command: str) -> None:
    selector = f"--config={lab.file}"
    done = lab.cli("cluster", command, selector=selector)
    assert done.code == 2 and "lab: " in done.err and "tried again after the next start" in done.err
    done = lab.cli("cluster", command, "--confirm", "lap", selector=selector)
    assert done.code == 2 and "nothing was changed" in done.err
    lock.acquire(lab.store, Holder("p1", "ada", "desk", 1))
    done = lab.cli("cluster", command, "--confirm", "lab", selector=selector)
    assert done.code == 1 and "ada on desk holds it" in done.err
