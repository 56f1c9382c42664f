"""`rollout` on the command line: what is refused before anything is looked at, who answers a gate, and what an earlier run left."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from iris_core.cli import main as cli_main
from iris_core.cli import rollout_fleet, rollout_runs, rollout_site
from iris_core.cli.rollout_answers import LineApprover
from iris_core.cli.root import cli as tree_of_commands
from iris_core.cli.session import Session
from iris_core.contracts import IrisError
from iris_core.live.clock import SystemClock
from iris_core.procedures import journal as journals
from iris_core.procedures import rollout_report, rollout_watch
from iris_core.procedures.approvals import Unanswered
from iris_core.procedures.events import STOP, Gate, Grant
from iris_core.procedures.journal import Journal
from iris_core.wire.gen.iris.v1 import controller_pb2, pipeline_pb2
from tests.unit.cli_world import Done, World
from tests.unit.test_procedures_source_tree import git

if TYPE_CHECKING:
    from iris_core.cli.deployment import Deployment

HOME = Path(__file__).resolve().parents[2]
FILE = """
name: {name}
platform: {{local: }}
controller: {{local: {{port: 10000}}}}
storage: {{local_state_dir: "{folder}/{name}/state", remote_state_dir: "file://{folder}/{name}/remote"}}
worker_provider: {{}}
scale_groups:
  cpu: {{num_vms: 1, buffer_slices: 0, max_slices: {slices}, resources: {{cpu: 1, ram: 1GB, device_type: cpu, capacity_type: on-demand}}}}
"""


class Fleet(World):
    """Cluster files of its own, and a repository to work in."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.clusters = folder / "config" / "iris" / "clusters"
        self.clusters.mkdir(parents=True)
        self.journals = folder / "journals"
        self.repo = folder / "repo"
        self.repo.mkdir()
        (self.repo / "file").write_text("1\n")
        git(self.repo, "init", "-q", "-b", "main")
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-q", "-m", "First")

    def add(self, name: str, slices: int = 1, *, text: str = FILE) -> None:
        (self.clusters / f"{name}.yaml").write_text(text.format(name=name, folder=self.folder, slices=slices))

    def rollout(self, *words: str, selector: str = "--transport=auto") -> Done:
        return self.cli("rollout", *words, selector=selector)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet(tmp_path)
    monkeypatch.setenv("IRIS_JOURNAL_DIR", str(made.journals))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)
    monkeypatch.chdir(made.repo)
    monkeypatch.setattr("iris_core.config.places.shipped_clusters", lambda: tmp_path / "nowhere")
    return made


def test_the_order_is_the_lead_pair_and_then_the_smallest_and_names_given_are_taken_as_given(fleet: Fleet) -> None:
    for name, slices in (("marin", 9), ("marin-dev", 9), ("b", 3), ("a", 3), ("c", 1), ("ci-x", 1)):
        fleet.add(name, slices)
    assert fleet.rollout("plan", "-o", "name").out.split() == ["marin-dev", "marin", "c", "a", "b"]
    assert fleet.rollout("plan", "--clusters", "b, marin,ci-x", "-o", "name").out.split() == ["b", "marin", "ci-x"]
    assert fleet.rollout("plan", "-o", "name", selector="--cluster=a").out.split() == ["a"]
    done = fleet.rollout("plan", "--clusters", "a")
    assert "1. a (controller=local, capacity=3 slices)" in done.out and "First" in done.out
    found = json.loads(fleet.rollout("plan", "--clusters", "a", "-o", "json").out)
    assert re.fullmatch("[0-9a-f]{40}", found["tree"]) and found["clusters"][0]["capacity"] == 3


@pytest.mark.parametrize("command", ["plan", "preflight", "run"])
@pytest.mark.parametrize(
    ("clusters", "words"),
    [
        ("a,a", "names 'a' twice"),
        ("a,", "names an empty cluster"),
        (
            "ab",
            "no cluster named 'ab'; did you mean 'a'? `cluster list` shows them; put its file into ~/.config/iris/clusters",
        ),
        ("local", "ends with whoever started it"),
        ("clouds", "clouds: this release does not roll out to gcp clusters"),
        ("kube", "kube: this release does not roll out to coreweave clusters"),
        ("forgetful", "forgetful: "),
        ("torn", "torn: "),
        ("torn,a", "or leave it out: --clusters A,B names those that are taken"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_its_name_before_anything_else(
    fleet: Fleet, command: str, clusters: str, words: str
) -> None:
    fleet.add("a")
    fleet.add(
        "clouds",
        text=FILE.replace("{{local: }}", "{{gcp: {{}}}}").replace("controller: {{local: {{port: 10000}}}}\n", ""),
    )
    fleet.add(
        "kube",
        text=FILE.replace("{{local: }}", "{{coreweave: {{}}}}").replace("controller: {{local: {{port: 10000}}}}\n", ""),
    )
    fleet.add("forgetful", text=re.sub(', remote_state_dir: "[^"]*"', "", FILE))
    fleet.add("torn", text="name: torn\nplatform: {{lokal: }}\n")
    done = fleet.rollout(command, "--clusters", clusters)
    assert done.code == 2 and words in done.err and not done.out
    assert not fleet.journals.exists() and not (fleet.folder / "a").exists()


def test_a_cluster_that_cannot_be_taken_refuses_the_whole_rollout_that_names_none(fleet: Fleet) -> None:
    fleet.add("a")
    fleet.add(
        "clouds",
        text=FILE.replace("{{local: }}", "{{gcp: {{}}}}").replace("controller: {{local: {{port: 10000}}}}\n", ""),
    )
    done = fleet.rollout("plan")
    assert done.code == 2 and "clouds: this release does not roll out to gcp clusters" in done.err


def test_a_preflight_says_all_that_is_missing_and_why_it_is_needed(fleet: Fleet) -> None:
    fleet.add("a")
    done = fleet.rollout("preflight", "--clusters", "a")
    assert done.code == 1
    assert "FAIL a: the controller runs: the controller does not serve: it was never started here" in done.out
    assert "needed because one that does not is started, not replaced" in done.out
    assert "PASS a: the lock is free" in done.out and "PASS a: git runs" in done.out
    assert "WARN how it stands to origin/main is not known" in done.out
    (fleet.repo / "new").write_text("2\n")
    found = json.loads(fleet.rollout("preflight", "--clusters", "a", "-o", "json").out)
    assert "dirty: new" in found["tree"]["warnings"]
    assert any(not check["ok"] for check in found["clusters"][0]["checks"])
    assert not fleet.journals.exists()


def test_a_run_whose_preflight_fails_ends_and_has_changed_nothing(fleet: Fleet) -> None:
    fleet.add("a")
    done = fleet.rollout("run", "--clusters", "a")
    assert done.code == 1 and done.out.startswith("nothing was changed: a: the controller runs")
    assert "report: iris-core rollout report rollout-" in done.err
    (known,) = json.loads(fleet.rollout("status", "-o", "json").out)
    assert known["state"] == "failed" and known["clusters"] == {"a": "not reached"}
    assert "| a | **FAIL** | the controller runs" in fleet.rollout("report").out
    assert fleet.rollout("abort", known["id"]).code == 1
    again = fleet.rollout("resume", known["id"])
    assert again.code == 1 and again.out == done.out, "what has ended is not run again"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--approve", "all=test"), "nothing approves everything at once"),
        (("--approve", "tree"), "GATE=TOKEN"),
        (("--approve", "tree=1", "--approve", "tree=2"), "names tree twice, with 1 and 2"),
        (("--upstream", "main"), "REMOTE/BRANCH"),
        (("--checks-command", "curl -H 'Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijklmnop' x"), "secret"),
    ],
)  # fmt: skip
def test_words_that_mean_nothing_are_refused(fleet: Fleet, words: tuple[str, ...], said: str) -> None:
    fleet.add("a")
    done = fleet.rollout("run", "--clusters", "a", *words)
    assert done.code == 2 and said in done.err and not list(fleet.journals.glob("*"))


def test_without_rollouts_there_is_nothing_to_go_on_with(fleet: Fleet) -> None:
    for command in ("resume", "abort", "report"):
        done = fleet.rollout(command)
        assert done.code == 1 and "there is no rollout" in done.err
        done = fleet.rollout(command, "nothing")
        assert done.code == 1 and "no procedure nothing" in done.err
    assert fleet.rollout("status").code == 0


# --- what an earlier run left ------------------------------------------------------------------------------------------


def left(folder: Path, name: str, *types: str, clusters: tuple[str, ...] = ("a",)) -> None:
    with Journal.create(folder / f"{name}.jsonl") as journal:
        started = {
            "type": "started",
            "at_ms": 1,
            "by": "ada",
            "procedure": "rollout",
            "arguments": {"clusters": list(clusters)},
        }
        for record in (started, *({"type": kind, "at_ms": 2, "by": "ada", "event": "a/lock", "title": "t", "grant": "take lock a",
                                   "status": "done", "state": "", "next": "", "details": []} for kind in types)):  # fmt: skip
            journal.append(record)


def test_a_new_run_says_how_to_go_on_with_or_end_the_one_that_was_left(tmp_path: Path) -> None:
    left(tmp_path, "rollout-1", "intent")
    with pytest.raises(IrisError) as caught:
        rollout_runs.require_none_open(tmp_path, ["b", "a"], 61_001)
    assert caught.value.message == "a is in rollout rollout-1, which ada began 1m1s ago and which was left"
    assert caught.value.hint == "go on with it: rollout resume rollout-1; or end it: rollout abort rollout-1"
    rollout_runs.require_none_open(tmp_path, ["b"], 5)
    with Journal.open(tmp_path / "rollout-1.jsonl"), pytest.raises(IrisError, match="driven by another process"):
        rollout_runs.require_none_open(tmp_path, ["a"], 5)


def test_one_that_ended_or_changed_nothing_is_in_nobodys_way(tmp_path: Path) -> None:
    left(tmp_path, "rollout-1", "intent", "ended")
    left(tmp_path, "rollout-2")
    rollout_runs.require_none_open(tmp_path, ["a"], 5)
    assert rollout_runs.chosen(tmp_path, None).id == "rollout-2"
    left(tmp_path, "rollout-3", "intent")
    assert rollout_runs.chosen(tmp_path, None).id == "rollout-3", "the one that matters"
    left(tmp_path, "rollout-4", "intent")
    with pytest.raises(IrisError, match="2 rollouts have not ended"):
        rollout_runs.chosen(tmp_path, None)


def test_what_is_no_rollout_is_not_taken_for_one(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "rollout-x.jsonl") as journal:
        journal.append({"type": "started", "at_ms": 1, "by": "ada", "procedure": "restart", "arguments": {}})
    (tmp_path / "rollout-y.jsonl").write_text("nothing\nof the kind\n")
    assert rollout_runs.listing(tmp_path).known == []
    with pytest.raises(IrisError, match="is no rollout"):
        rollout_runs.find(tmp_path, "rollout-x")
    with pytest.raises(IrisError, match=r"rollout-y\.jsonl, line 1: not a record"):
        rollout_runs.chosen(tmp_path, None)


def test_journals_that_cannot_be_read_are_listed_with_their_paths(fleet: Fleet) -> None:
    fleet.journals.mkdir()
    torn, unreadable = fleet.journals / "rollout-torn.jsonl", fleet.journals / "rollout-folder.jsonl"
    torn.write_text("nothing\nof the kind\n")
    unreadable.mkdir()
    left(fleet.journals, "rollout-1", "intent", "ended")
    (fleet.journals / "rollout-empty.jsonl").touch()
    done = fleet.rollout("status")
    assert done.code == 0 and "rollout-1 " in done.out and "rollout-empty" not in done.out
    assert "rollout-torn    unreadable" in done.out and "rollout-folder  unreadable" in done.out
    assert f"{torn}, line 1: not a record" in done.err and f"{unreadable}: " in done.err
    found = {one["id"]: one for one in json.loads(fleet.rollout("status", "-o", "json").out)}
    assert found["rollout-torn"]["path"] == str(torn) and "not a record" in found["rollout-torn"]["problem"]
    assert found["rollout-1"]["state"] == "done" and set(found) == {"rollout-1", "rollout-torn", "rollout-folder"}
    fleet.add("a")
    assert str(torn) in fleet.rollout("run", "--clusters", "a").err, "whoever begins another one is told"


@pytest.mark.parametrize(
    "line",
    [
        {"type": "step", "at_ms": 2, "by": "ada"},
        {"type": "step", "by": "ada", "event": "begin", "title": "t"},
        {"type": "gathered", "at_ms": 2, "by": "ada", "event": "a/verdict", "value": []},
        {"type": "started", "at_ms": "x", "by": "ada", "procedure": "rollout", "arguments": {}},
        {"type": "gathered", "at_ms": 1e400, "by": "ada", "event": "a/health", "value": 1},
    ],
)
def test_a_journal_that_was_changed_by_hand_is_named_and_is_in_nobodys_way(
    tmp_path: Path, line: dict[str, object]
) -> None:
    left(tmp_path, "rollout-1")
    with Journal.open(tmp_path / "rollout-1.jsonl") as journal:
        journal.append(line)
    left(tmp_path, "rollout-2")
    assert [one.id for one in rollout_runs.listing(tmp_path).known] == ["rollout-2"]
    with pytest.raises(IrisError, match=r"rollout-1\.jsonl"):
        rollout_runs.find(tmp_path, "rollout-1")


def test_what_a_cluster_runs_is_what_was_last_seen_there_also_before_its_record_was_read_again() -> None:
    lines: list[journals.Record] = []

    def runs_then(type_: str, event: str, value: object) -> str:
        lines.append({"type": type_, "at_ms": 1, "by": "ada", "event": event, "value": value})
        return rollout_report.runs(lines, "a")

    assert runs_then("gathered", "tree-state", {"id": "new"}) == ""
    assert runs_then("gathered", "a/snapshot", {"tree": "old"}) == "old"
    assert runs_then("done", "a/stop", "checkpoint") == "old"
    assert runs_then("done", "a/commit", None) == "new"
    assert runs_then("gathered", "a/record", {"image": "new"}) == "new"
    lines.append({"type": "gathering", "at_ms": 1, "by": "ada", "event": "a/watch", "title": "watch"})
    assert runs_then("progress", "a/watch", {"reachable": True, "tree": "other"}) == "other"


# --- who answers -------------------------------------------------------------------------------------------------------

GATE = Gate(
    id="h1/restart",
    title="Restart h1",
    name="h1",
    grants=(Grant("stop", "controller", "h1"),),
    choices=("approve", STOP, "skip"),
)
PLAIN = Gate(id="h1/next", title="Go on", tier=1)
FAILED = Gate(id="h1/failed", title="It failed", tier=1, choices=("roll back", STOP), approving=("roll back",))


class Typist:
    """Types line after line; then the input ends."""

    def __init__(self, *texts: str) -> None:
        self.lines = [f"{text}\n" for text in texts]

    def __call__(self, question: str) -> asyncio.Future[str]:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.set_result(self.lines.pop(0) if self.lines else "")
        return future


def approver(
    tokens: dict[str, str] | None = None, names: tuple[str, ...] = (), typist: Typist | None = None
) -> LineApprover:
    return LineApprover(tokens or {}, names, "iris-core rollout resume r1", lambda text: None, typist)


def answer(made: LineApprover, gate: Gate) -> str:
    return asyncio.run(made.ask(gate)).choice


def test_nobody_there_is_no_answer_and_the_line_that_answers_is_said() -> None:
    with pytest.raises(Unanswered) as caught:
        answer(approver(), GATE)
    assert caught.value.hint == f"approve exactly this: iris-core rollout resume r1 --approve h1/restart={GATE.token()}"


def test_a_token_answers_its_own_question_once_and_a_wrong_one_neither_approves_nor_ends() -> None:
    made = approver({"h1/restart": GATE.token(), "h1/failed": FAILED.token()})
    assert answer(made, GATE) == "approve" and answer(made, FAILED) == "roll back"
    for gate, tokens in (
        (GATE, made),
        (GATE, approver({"h1/restart": "0" * 12})),
        (PLAIN, approver({"h1/restart": GATE.token()})),
    ):
        with pytest.raises(Unanswered):
            answer(tokens, gate)


def test_a_name_answers_one_gate_that_asks_for_it_and_none_of_another_kind() -> None:
    made = approver(names=("h1",))
    with pytest.raises(Unanswered):
        answer(made, PLAIN)
    assert answer(made, GATE) == "approve"
    with pytest.raises(Unanswered):
        answer(made, GATE)


@pytest.mark.parametrize(
    ("gate", "typed", "choice"),
    [
        (GATE, ["yes", "H1", "h1"], "approve"),
        (GATE, ["", "stop"], STOP),
        (GATE, ["skip"], "skip"),
        (PLAIN, ["approve", "yes"], "approve"),
        (PLAIN, ["stop"], STOP),
        (FAILED, ["yes", "roll back"], "roll back"),
    ],
)
def test_a_slip_of_the_fingers_neither_approves_nor_stops(gate: Gate, typed: list[str], choice: str) -> None:
    assert answer(approver(typist=Typist(*typed)), gate) == choice


def test_the_end_of_the_input_leaves_it_where_it_is() -> None:
    with pytest.raises(Unanswered, match="waits for an answer"):
        answer(approver(typist=Typist("nonsense")), GATE)


# --- the watch is never shortened --------------------------------------------------------------------------------------


def test_no_entry_point_option_variable_or_setting_changes_the_watch(fleet: Fleet) -> None:
    assert (rollout_watch.DURATION_S, rollout_watch.INTERVAL_S) == (300.0, 15.0)
    source = inspect.getsource(rollout_watch)
    assert "environ" not in source and "iris_core.config" not in source
    context = __import__("click").Context(tree_of_commands)
    group = tree_of_commands.get_command(context, "rollout")
    for name in group.list_commands(context):  # type: ignore[union-attr]
        command = group.get_command(context, name)  # type: ignore[union-attr]
        words = {word for param in command.params for word in param.opts}
        assert not [word for word in words if re.search("watch|duration|interval|clock|fast|speed|skip", word)], name
    # Only who calls `run` can hand a clock in, and no program of ours does.
    for path in (*HOME.glob("iris_core/**/*.py"), *HOME.glob("iris_tui/**/*.py"), *HOME.glob("screens/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in (
                "run",
                "Session",
            ):
                given = [keyword for keyword in node.keywords if keyword.arg == "clock"]
                passed_on = path.name == "main.py" and path.parent.name == "cli"
                assert (
                    not given or passed_on or (isinstance(given[0].value, ast.Name) and path.parent.name == "iris_tui")
                ), path
    assert inspect.signature(cli_main.run).parameters["clock"].default is None


def test_what_the_shipped_command_builds_watches_by_the_clock_of_the_machine(fleet: Fleet) -> None:
    fleet.add("a")
    session = Session()
    assert session.clock is None
    scope = rollout_fleet.scope(session, "a")
    fleet.journals.mkdir()
    begun = rollout_runs.begin(session, fleet.journals, scope, rollout_fleet.Shipping(), fleet.repo)
    with begun.journal:
        assert type(begun.watch_clock()) is SystemClock


def test_a_worker_on_which_jobs_cannot_be_staged_does_not_bring_a_release_down() -> None:
    answers = {
        "ControllerService/GetClusterStatus": controller_pb2.GetClusterStatusResponse(
            workers_total=8, workers_healthy=5, workers_excluded=2, workers_leaving=1
        ),
        "ControllerService/GetPipelineHealth": pipeline_pb2.GetPipelineHealthResponse(),
    }
    session = SimpleNamespace(client=SimpleNamespace(call=lambda method, *_, **__: answers[method]))
    sample = rollout_site.Reached(cast("Session", session), cast("Deployment", None), "p", "ada", "ada").sample()
    assert (sample["workers_healthy"], sample["workers_total"]) == (7, 7)


def test_a_folder_with_a_blank_in_its_name_is_one_word_of_every_line_that_names_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.add("a")
    folder = fleet.folder / "my journals"
    done = fleet.rollout("run", "--clusters", "a", "--journal-dir", str(folder))
    (line,) = (line for line in done.err.splitlines() if line.startswith("report: "))
    assert shlex.split(line)[-2:] == ["--journal-dir", str(folder)]
    again = fleet.rollout(*shlex.split(line)[3:])
    assert again.code == 0 and again.out.startswith("# Rollout rollout-"), "it is a command when it is pasted"
