"""`cluster controller start|stop|status|restart`: what is refused before anything is looked at, and what is shown of a deployment."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from iris_core.cli.controller_lifecycle import begin
from iris_core.cli.deployment import Deployment
from iris_core.cli.session import Session
from iris_core.client.calls import NotReached, Timeout
from iris_core.config.cluster import load_config
from iris_core.contracts import ConnectFailed, ControllerStatus, IrisError, RpcFailed
from iris_core.procedures import lock, record
from iris_core.procedures.journal import Journal, journal_dir
from iris_core.procedures.lock import Holder
from iris_core.procedures.record import Phase, RolloutRecord
from iris_core.procedures.releases import Releases
from iris_core.procedures.source_tree import SourceTree
from iris_core.wire.gen.iris.v1 import checkpoints_pb2, controller_pb2
from providers.fake.host import FakeHost
from providers.fake.objects import FakeStore
from providers.objects import open_store
from tests.unit.cli_world import Done, World
from tests.unit.test_procedures_source_tree import git

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
        self.file = folder / "the lab.yaml"
        self.write(FILE.format(folder))
        self.store = open_store(f"file://{folder}/remote")

    def write(self, text: str) -> None:
        self.file.write_text(text)

    @property
    def program(self) -> str:
        """How a command line on this cluster begins."""
        return f"iris-core --config={shlex.quote(str(self.file))}"

    def controller(self, *words: str, selector: str = "") -> Done:
        return self.cli("cluster", "controller", *words, selector=selector or f"--config={self.file}")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("IRIS_JOURNAL_DIR", str(tmp_path / "journals"))
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.txt").write_text("a")
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "First")
    monkeypatch.chdir(tree)
    return Lab(tmp_path)


@pytest.mark.parametrize(
    ("error", "how", "named"),
    [
        (NotReached("cannot connect: connection refused"), "", True),
        (Timeout("did not answer within 30 s"), "", True),
        (ConnectFailed("the connection broke"), "", True),
        (ConnectFailed("no tunnel", hint="is the host up?"), "", False),
        (RpcFailed("UNAVAILABLE", "it ends"), "", False),
        (NotReached("cannot connect: connection refused"), "url", False),
        (NotReached("cannot connect: connection refused"), "no deployment", False),
    ],
)
def test_a_deployment_whose_controller_does_not_answer_is_told_what_to_look_at(
    lab: Lab, error: IrisError, how: str, named: bool
) -> None:
    if how == "no deployment":
        lab.write(lab.file.read_text().replace(", remote_state_dir:", " } #"))
    selector = "--controller-url=http://127.0.0.1:10000" if how == "url" else f"--config={lab.file}"
    lab.client.answer("GetClusterStatus", error)
    done = lab.cli("cluster", "status", selector=selector)
    assert done.code == 1 and error.message in done.err and done.err.count("\n") == 1
    words = f"{lab.program} cluster controller"
    wanted = f"; {words} status says how it stands, {words} start starts one that is stopped"
    assert (wanted in done.err) == named and ("cluster controller" in done.err) == named


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--image-platform", "linux/amd64"), "--image-platform: lab, a local cluster, runs releases, and no images"),
        (("--cargo-profile", "release"), "--build-profile: lab, a local cluster, runs releases, and no images"),
        (("--prebuilt-tag", "v1"), "--prebuilt-tag is for Kubernetes clusters; lab, a local cluster, is none"),
    ],
)
def test_options_of_images_are_refused_where_there_are_none(lab: Lab, words: tuple[str, ...], said: str) -> None:
    done = lab.controller("restart", *words, "--confirm", "lab")
    assert done.code == 2 and said in done.err
    assert not (lab.folder / "state").exists() and not (lab.folder / "journals").exists()


def test_a_restart_is_confirmed_by_the_right_name_or_not_at_all(lab: Lab) -> None:
    done = lab.controller("restart")
    assert done.code == 2 and "--confirm lab" in done.err
    done = lab.controller("restart", "--confirm", "lap")
    assert done.code == 2 and "nothing was changed" in done.err
    done = lab.controller("restart", "--approve", "restart")
    assert done.code == 2 and "STEP=TOKEN" in done.err
    for command in ("restart", "break-lock"):
        done = lab.controller(command, "--approve", "restart=1", "--approve", "restart=2")
        assert done.code == 2 and "--approve names restart twice, with 1 and 2" in done.err
    assert "twice" not in lab.controller("restart", "--approve", "restart=1", "--approve", "restart=1").err
    done = lab.controller("restart", "--resume", "nothing", "--confirm", "lab")
    assert done.code == 1 and "no procedure nothing" in done.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"type":"started","at_ms":1,"by":"ada","procedure":"restart"}\n', "'arguments' of a line"),
        ('{"type":"started","at_ms":1,"by":"ada","procedure":"restart","arguments":{"cluster":"lab"}}\n', "cannot be gone on from"),
        ('{"type":"started","at_ms":1,"by":"ada","procedure":"restart","arguments":7}\n', "'arguments' of a line"),
        ('{"type":"leap","at_ms":1,"by":"ada"}\n{"type":"leap"}\n', "which this version does not know"),
        ('{"type":[]}\n{"type":{}}\n', "line 1: not a record"),
        ("\x1b[31mred\n{}\n", "line 1: not a record"),
        ("[" * 100_000 + "\n{}\n", "line 1: not a record"),
    ],
)  # fmt: skip
def test_a_journal_that_was_changed_by_hand_is_one_line_and_nothing_is_done(lab: Lab, text: str, words: str) -> None:
    path = lab.folder / "journals" / "restart-7.jsonl"
    path.parent.mkdir()
    path.write_text(text)
    done = lab.controller("restart", "--resume", "restart-7", "--confirm", "lab")
    assert done.code == 1 and words in done.err and "Traceback" not in done.err and "\x1b" not in done.err, done.err
    assert not (lab.folder / "remote").exists() and not (lab.folder / "state").exists()


def test_without_a_controller_a_restart_ends_and_says_how_to_start_one(lab: Lab) -> None:
    done = lab.controller("restart", "--confirm", "lab")
    assert done.code == 1 and "no controller of lab runs: it was never started here" in done.out
    assert done.err.endswith(f"next: start it: {lab.program} cluster controller start\n")
    assert lock.read(lab.store).holder is None and record.read(lab.store).record is None
    assert lab.controller("stop").code == 0, "nothing to stop needs no name"


def test_start_ships_nothing_while_a_deployment_is_under_way(lab: Lab) -> None:
    lock.acquire(lab.store, Holder("p1", "ada", "desk", 1))
    done = lab.controller("start")
    assert done.code == 1 and "ada on desk holds it" in done.err
    lock.release(lab.store, "p1")
    standing = record.read(lab.store)
    for phase, words in (
        (Phase.PENDING, "came to no end"),
        (Phase.ROLLBACK_REQUESTED, "a rollback to 0123456789ab is asked for"),
    ):
        standing = record.write(lab.store, RolloutRecord(phase, "0123456789abcdef"), standing)
        done = lab.controller("start")
        assert done.code == 1 and words in done.err, "what was under way is gone on with, and nothing else"
        assert "0123456789ab, which is deployed, is not on this machine" in done.err
    assert not (lab.folder / "state" / "controller.json").exists()


def test_a_rollback_says_that_there_is_nothing_to_go_back_to(lab: Lab) -> None:
    done = lab.controller("restart", "--rollback")
    assert done.code == 2 and "rolling back the controller of lab" in done.err and "--confirm lab" in done.err
    done = lab.controller("restart", "--rollback", "--skip-checkpoint", "--confirm", "lab")
    assert done.code == 2 and "leave --skip-checkpoint out" in done.err
    for made in (None, RolloutRecord(Phase.COMMITTED, "b" * 40), RolloutRecord(Phase.ROLLED_BACK, "a" * 40)):
        if made is not None:
            record.write(lab.store, made, record.read(lab.store))
        done = lab.controller("restart", "--rollback", "--confirm", "lab")
        assert done.code == 1 and "there is no deployment to roll back to" in done.out, done
        assert "next: deploy the release that is wanted" in done.err
        assert record.read(lab.store).record == made and lock.read(lab.store).holder is None


def test_a_missing_secret_is_named_and_never_shown_before_anything_is_written(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = lab.file.read_text()
    monkeypatch.setenv("IRIS_SOME_KEY", "")
    key = lab.folder / "key.pem"
    key.write_text("CANARY")
    key.chmod(0o644)
    lab.write(plain + f"auth: {{signing_key: [env:IRIS_SOME_KEY, 'file:{key}']}}\n")
    done = lab.controller("restart", "--confirm", "lab")
    assert done.code == 1 and "auth.signing_key: the environment has no IRIS_SOME_KEY" in done.out
    assert f"{key} can be read by others" in done.out and "CANARY" not in done.out + done.err
    assert not (lab.folder / "remote").exists() and not (lab.folder / "state").exists()
    key.chmod(0o600)
    done = lab.controller("restart", "--confirm", "lab")
    assert "no controller of lab runs" in done.out, "the first of the list that can be had counts"
    lab.write(plain + "auth: {signing_key: CANARY}\n")
    done = lab.controller("restart", "--confirm", "lab")
    assert done.code == 2 and "no reference to a secret" in done.err and "CANARY" not in done.out + done.err


def test_a_lock_is_broken_by_its_name_once_it_was_shown(lab: Lab) -> None:
    done = lab.controller("break-lock", "--confirm", "lab")
    assert done.code == 0 and "nobody holds the lock of lab" in done.out
    lock.acquire(lab.store, Holder("restart-7", "ada", "desk", 1))
    record.write(lab.store, RolloutRecord(Phase.PENDING, "b" * 40, "a" * 40), record.read(lab.store))
    done = lab.controller("break-lock")
    assert done.code == 2 and "--confirm lab" in done.err
    shown = lab.controller("break-lock", "--dry-run")
    assert shown.code == 0 and "ada on desk holds it for" in shown.err and "restart-7" in shown.err
    assert "the record says pending of bbbbbbbbbbbb" in shown.err
    token = shown.err.partition("--approve break-lock=")[2].split()[0]
    assert lab.controller("break-lock", "--confirm", "lap").code == 2
    assert lock.read(lab.store).holder is not None
    # It has changed hands since it was shown: the token is for another question.
    lock.release(lab.store, "restart-7")
    lock.acquire(lab.store, Holder("restart-8", "bob", "tower", 1))
    done = lab.controller("break-lock", "--approve", f"break-lock={token}")
    assert done.code == 1 and lock.read(lab.store).holder is not None
    done = lab.controller("break-lock", "--confirm", "lab")
    assert done.code == 0 and "the lock of lab is free; it was held by restart-8" in done.out
    assert lock.read(lab.store).holder is None and lock.read(lab.store).generation, "overwritten, never deleted"


def test_the_question_about_a_lock_says_whether_its_procedure_is_alive(lab: Lab) -> None:
    lock.acquire(lab.store, Holder("restart-7", "ada", "desk", 1))
    shown = lab.controller("break-lock", "--dry-run").err
    assert "see first that it is dead" in shown, "its journal is not here"
    with Journal.create(journal_dir(None) / "restart-7.jsonl"):
        shown = lab.controller("break-lock", "--dry-run").err
        assert "it is alive, a process on this machine drives it" in shown and "see first that it is dead" not in shown
        assert f": {lab.program} cluster controller restart --resume restart-7\n" in shown
    token = shown.partition("--approve break-lock=")[2].split()[0]
    assert "no process on this machine drives that procedure" in lab.controller("break-lock", "--dry-run").err
    done = lab.controller("break-lock", "--approve", f"break-lock={token}")
    assert done.code == 1 and lock.read(lab.store).holder is not None, "what was approved was another question"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b'{"state": "held", "proc', '\'{"state": "held", "proc\''),
        (b'{"state": "maybe", "owner": "x"}', "maybe"),
        (b"\x1b[31m\x00\xff\r\n", r"\x1b[31m\x00\xff\r\n"),
        (b"", "nothing, it is empty"),
        (b"A" * 1_000, "A' and 800 bytes more"),
        (b"A" * 5_000_000, "A' and 4,999,800 bytes more"),
        (b"[" * 10_000, "['"),
        (b"password=CANARY0123456789", "password="),
    ],
)
def test_a_lock_that_cannot_be_read_is_shown_as_it_is_and_overwritten_as_it_was_shown(
    lab: Lab, raw: bytes, shown: str
) -> None:
    lab.store.put(lock.LOCK, raw)
    for words in (("restart", "--confirm", "lab"), ("start",), ("stop", "--confirm", "lab")):
        done = lab.controller(*words)
        assert done.code == 1 and "cannot be understood" in done.out + done.err
        assert f"{lab.program} cluster controller break-lock" in done.err
    dry = lab.controller("break-lock", "--dry-run")
    assert dry.code == 0 and "nobody knows who holds it" in dry.err and shown in dry.err
    assert len(dry.err) < 2_000 and "\x1b" not in dry.err and "CANARY" not in dry.err
    token = dry.err.partition("--approve break-lock=")[2].split()[0]
    lab.store.put(lock.LOCK, raw + b" ")
    done = lab.controller("break-lock", "--approve", f"break-lock={token}")
    assert done.code == 1 and lab.store.get(lock.LOCK) == raw + b" ", "that is not what was shown"
    done = lab.controller("break-lock", "--confirm", "lab")
    assert done.code == 0 and "the lock of lab is free; what stood there was overwritten" in done.out
    assert lock.read(lab.store).holder is None and "no controller of lab runs" in lab.controller("stop").err


def test_cluster_start_starts_what_is_deployed(lab: Lab) -> None:
    done = lab.cli("cluster", "start", "--workers", "2", selector=f"--config={lab.file}")
    assert done.code == 2 and "for --local alone" in done.err
    lock.acquire(lab.store, Holder("p1", "ada", "desk", 1))
    done = lab.cli("cluster", "start", selector=f"--config={lab.file}")
    assert done.code == 1 and "ada on desk holds it" in done.err
    assert done.err.endswith(f": {lab.program} cluster controller break-lock\n")
    assert "cluster start --local" in lab.cli("cluster", "start").err


def test_a_last_checkpoint_is_confirmed_by_name(lab: Lab) -> None:
    running = controller_pb2.GetClusterStatusResponse(cluster="lab", tasks_by_state={"running": 3})
    lab.client.answer("GetClusterStatus", running)
    lab.client.answer("BeginCheckpoint", checkpoints_pb2.BeginCheckpointResponse(checkpoint_path="gs://b/7"))
    done = lab.cli("cluster", "controller", "checkpoint", "--stop")
    assert done.code == 2 and "3 running tasks go on" in done.err and not lab.client.called("BeginCheckpoint")
    done = lab.cli("cluster", "controller", "checkpoint", "--confirm", "lab")
    assert done.code == 2 and "belongs to --stop" in done.err
    done = lab.cli("cluster", "controller", "checkpoint", "--stop", "--confirm", "lab")
    assert done.code == 0 and "gs://b/7" in done.out and "cluster controller start starts it again" in done.err
    assert [asked.stop for asked in lab.client.called("BeginCheckpoint")] == [True]


def test_status_shows_record_and_lock_also_while_nothing_runs(lab: Lab) -> None:
    done = lab.controller("status")
    assert done.code == 1 and "Deployed:   nothing yet" in done.out and "Running:    no\n" in done.out
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


@pytest.mark.parametrize(
    ("tasks", "jobs", "words"),
    [(1, 1, "1 task of 1 running job ends, to be tried again"), (1200, 2, "1,200 tasks of 2 running jobs end, to be")],
)
def test_what_ends_with_a_cluster_is_counted_in_words(lab: Lab, tasks: int, jobs: int, words: str) -> None:
    lab.client.answer(
        "GetClusterStatus",
        controller_pb2.GetClusterStatusResponse(tasks_by_state={"running": tasks}, jobs_by_state={"running": jobs}),
    )
    assert words in lab.cli("cluster", "stop", selector=f"--config={lab.file}").err


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


class Started(Deployment):
    """A deployment on the shipped fake host, whose releases are built by their names alone."""

    def built(self, tree: SourceTree, now_ms: int, session: Session) -> str:
        return "r1"

    def has(self, release: str) -> bool:
        return True


@pytest.mark.parametrize("serves", [True, False])
def test_a_start_beside_a_controller_that_neither_serves_nor_ends_names_the_way_out(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, serves: bool
) -> None:
    host = FakeHost()
    detail = "it serves at http://fake:1" if serves else "it is ending, its keeper is gone"
    hung = ControllerStatus(True, "http://fake:1" if serves else "", 7, detail, "r1")
    monkeypatch.setattr(host, "status", lambda: hung)
    found = Started(load_config(lab.file), lab.file, host, Releases(lab.folder), lab.folder)
    monkeypatch.setattr("iris_core.cli.deployment.deployment", lambda session: found)
    done = lab.controller("start")
    assert done.code == 1 and f"a controller of lab runs already: {detail}" in done.err and not host.effects
    stop, runbook = f"{lab.program} cluster controller stop, which kills it", f": {lab.program} runbook db-rollback\n"
    ways = (stop in done.err, runbook in done.err)
    assert ways == (not serves, not serves)
    done = lab.controller("status")
    assert "Running:    yes\n" in done.out and json.loads(lab.controller("status", "-o", "json").out)["running"] is True


@pytest.mark.parametrize("words", [("stop",), ("checkpoint", "--stop")])
def test_a_controller_is_not_stopped_under_a_procedure_that_changes_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    host = FakeHost()
    found = Started(load_config(lab.file), lab.file, host, Releases(lab.folder), lab.folder)
    monkeypatch.setattr("iris_core.cli.deployment.deployment", lambda session: found)
    running = controller_pb2.GetClusterStatusResponse(cluster="lab", tasks_by_state={"running": 3})
    lab.client.answer("GetClusterStatus", running)
    lab.client.answer("BeginCheckpoint", checkpoints_pb2.BeginCheckpointResponse(checkpoint_path="gs://b/7"))
    lock.acquire(lab.store, Holder("restart-7", "ada", "desk", 1))
    done = lab.controller(*words, "--confirm", "lab")
    assert done.code == 1 and "ada on desk holds it for" in done.err and "(procedure restart-7)" in done.err
    assert "resume it, or break the lock" in done.err
    # Its own procedure takes the lock again and goes on; somebody who takes it while the question stands is seen, too.
    lock.acquire(lab.store, Holder("restart-7", "bob", "tower", 1))
    lock.release(lab.store, "restart-7")

    def confirmed(*said: object) -> None:
        lock.acquire(lab.store, Holder("restart-8", "bob", "tower", 1))

    with monkeypatch.context() as patched:
        patched.setattr("iris_core.cli.confirming.confirmed", confirmed)
        done = lab.controller(*words)
    assert done.code == 1 and "bob on tower holds it for" in done.err
    assert host.running and not host.effects and not lab.client.called("BeginCheckpoint")
    lock.release(lab.store, "restart-8")
    assert lab.controller(*words, "--confirm", "lab").code == 0
    assert host.effects == ["stop"] if words == ("stop",) else lab.client.called("BeginCheckpoint")


def test_a_store_that_does_not_answer_keeps_nobody_from_ending_a_controller(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = FakeHost()
    found = Started(load_config(lab.file), lab.file, host, Releases(lab.folder), lab.folder)
    monkeypatch.setattr("iris_core.cli.deployment.deployment", lambda session: found)
    store = FakeStore()

    def silent(verb: str, name: str) -> None:
        raise IrisError("the store does not answer")

    store.before = silent
    monkeypatch.setattr(Started, "store", lambda found: store)
    done = lab.controller("stop", "--confirm", "lab")
    assert done.code == 0 and "whether a procedure changes lab is not known" in done.err and host.effects == ["stop"]


def test_a_rollback_without_its_checkpoint_is_taken_back_by_its_own_command(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = FakeHost("r1")
    host.running = False
    found = Started(load_config(lab.file), lab.file, host, Releases(lab.folder), lab.folder)
    monkeypatch.setattr("iris_core.cli.deployment.deployment", lambda session: found)
    monkeypatch.setattr(Started, "known", lambda found: ["r1", "r21", "r22"])
    command = "withdraw-rollback"
    done = lab.controller(command, "--confirm", "lab")
    assert done.code == 1 and "no rollback of lab is asked for: there is no record" in done.out
    request = RolloutRecord(Phase.ROLLBACK_REQUESTED, "r1", "", f"file://{lab.folder}/remote/controller-state/7", 5)
    record.write(lab.store, request, record.read(lab.store))
    done = lab.controller(command, "--confirm", "lab")
    assert done.code == 1 and "which release was to be rolled back to r1 is not known" in done.out
    for word, said in (("r2", "several releases begin so"), ("r3", "no release begins so")):
        done = lab.controller(command, "--to", word, "--confirm", "lab")
        assert done.code == 2 and said in done.err and "there are: r1, r21, r22" in done.err
    assert lab.controller(command, "--to", "r21", "--keep-database").code == 2
    done = lab.controller(command, "--to", "r21")
    assert done.code == 2 and "taking the rollback of lab back" in done.err and "--confirm lab" in done.err
    dry = lab.controller(command, "--to", "r21", "--dry-run")
    assert dry.code == 0 and "what is lost is the way back to that checkpoint" in dry.err
    assert "procedure withdraw-" in dry.err and "journal in" not in dry.err, "that of a dry run is gone with it"
    assert "controller-state/7 cannot be used: it is not there" in dry.err and record.read(lab.store).record == request
    token = dry.err.partition("--approve withdraw=")[2].split()[0]
    done = lab.controller(command, "--to", "r21", "--approve", f"withdraw={token}")
    assert done.code == 0 and "lab runs r21 at http://fake:10000, and kept its database" in done.out
    assert "journal in " in done.err
    standing = record.read(lab.store).record
    assert standing is not None and (standing.phase, standing.image) == (Phase.COMMITTED, "r21")


def start_on(lab: Lab, host: FakeHost, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What `cluster controller start` comes to: the address or the error with its hint, and what was said besides."""
    host.running = False
    found = Started(load_config(lab.file), lab.file, host, Releases(lab.folder), lab.folder)
    session = Session()
    session.cluster = "lab"
    try:
        said = begin(session, found, 5.0)
    except IrisError as error:
        said = f"{error.message}; hint: {error.hint}"
    return said, capsys.readouterr().err


def test_a_first_deployment_that_fails_says_that_there_is_nothing_to_return_to(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    host = FakeHost()
    host.unhealthy.add("r1")
    said, _ = start_on(lab, host, capsys)
    assert (
        "r1 is not healthy; it was stopped. This is the first deployment of lab: there is nothing to return to" in said
    )
    assert "mend it, then: iris-core --cluster=lab cluster controller start" in said
    assert not host.running and record.read(lab.store).record is None
    host.unhealthy.clear()
    assert start_on(lab, host, capsys)[0] == "http://fake:10000"
    assert record.read(lab.store).record == replace(RolloutRecord(Phase.COMMITTED, "r1"), updated_at_ms=written(lab))


def written(lab: Lab) -> int:
    found = record.read(lab.store).record
    assert found is not None
    return found.updated_at_ms


def test_a_start_goes_on_with_what_came_to_no_end(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    record.write(lab.store, RolloutRecord(Phase.PENDING, "r2", "r1", "gs://b/7"), record.read(lab.store))
    host = FakeHost()
    host.unhealthy.add("r2")
    said, _ = start_on(lab, host, capsys)
    assert "r2 is not healthy; it was stopped" in said
    assert ": iris-core --cluster=lab cluster controller restart --rollback" in said
    found = record.read(lab.store).record
    assert found is not None and found.phase is Phase.PENDING and not host.running
    host.unhealthy.clear()
    said, told = start_on(lab, host, capsys)
    found = record.read(lab.store).record
    assert found is not None and (found.phase, found.image, found.previous_image) == (Phase.COMMITTED, "r2", "r1")
    assert host.release == "r2" and "came to no end" in told and "is committed" in told

    record.write(lab.store, RolloutRecord(Phase.ROLLBACK_REQUESTED, "r1", "", "gs://b/7"), record.read(lab.store))
    said, told = start_on(lab, host, capsys)
    assert "the rollback to it is not marked as done" in said and "a rollback to r1 is asked for" in told
    host.unhealthy.add("r1")
    said, told = start_on(lab, host, capsys)
    assert "r1 is not healthy; it was stopped" in said
    assert ": iris-core --cluster=lab cluster controller withdraw-rollback" in said
    host.unhealthy.clear()

    def boot(release: str) -> None:
        standing = record.read(lab.store)
        record.write(lab.store, record.rolled_back(standing, 1), standing)

    host.on_start = boot
    assert start_on(lab, host, capsys)[0] == "http://fake:10000" and host.release == "r1"
