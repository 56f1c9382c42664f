"""Rollouts of changed trees to three deployed controllers with live work, one here and two on SSH hosts: by the command line, and by the
console in a real terminal. Both are the shipped programs, only that their watch is over sixty times as fast."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from iris_core.procedures import lock
from iris_core.procedures.record import Phase
from iris_core.wire.gen.iris.v1 import common_pb2
from providers.objects import open_store
from tests.conftest import REQUIRE_SERVICES, RequireProgram
from tests.integration.deployed import HOME, Deployed, deployed_cluster, mended_tree
from tests.integration.local_cluster import Place
from tests.integration.served import launch, lines, task, wait_jobs
from tests.integration.ssh_hosts import STATE, missing, ssh_hosts
from tests.integration.test_ssh_deployment import OnHost
from tests.integration.tmux_terminal import Terminal

SAID = re.compile(r"--approve (\S+)=([0-9a-f]{12})")
SOAK = os.environ.get("IRIS_SOAK") == "1"


class Named(OnHost):
    """One on a host, under the host's name."""

    def __init__(self, folder: Path, host: Any) -> None:
        super().__init__(folder, host)
        self.config.write_text(host.config(host.name))


class Riding:
    """A job that prints until it is told to stop, and what is to be said of it at the end."""

    def __init__(self, cluster: Deployed, name: str, stop: Path, seen_as: str) -> None:
        self.cluster, self.stop = cluster, stop
        script = f'i=0; while [ ! -e {seen_as} ]; do echo "line $i"; i=$((i+1)); sleep 0.05; done'
        with cluster.client() as client:
            self.job = launch(client, f"/u/{name}", ["sh", "-c", script]).job_id

    def end(self) -> None:
        self.stop.touch()
        with self.cluster.client() as client:
            assert wait_jobs(client, [self.job]) == {self.job: common_pb2.JOB_STATE_SUCCEEDED}
            assert len(task(client, f"{self.job}/0").attempts) == 1, "no attempt was started again"
            printed = [line.data.rstrip("\n") for line in lines(client, self.job)]
        self.stop.unlink()
        assert printed == [f"line {n}" for n in range(len(printed))], "no line is missing or there twice"


class Fleet:
    """Deployed clusters by name, and the rollouts of the local one's tree to them."""

    def __init__(self, folder: Path, clusters: dict[str, Deployed]) -> None:
        self.clusters = clusters
        self.local = clusters["served"]
        self.journals = folder / "journals"
        self.home = folder / "home"
        named = self.home / "config" / "iris" / "clusters"
        named.mkdir(parents=True)
        for name, cluster in clusters.items():
            (named / f"{name}.yaml").write_text(cluster.config.read_text())

    @property
    def names(self) -> str:
        return ",".join(self.clusters)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "IRIS_JOURNAL_DIR": str(self.journals),
            "PYTHONPATH": str(HOME),
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "IRIS_TEST_CONFIGS": os.pathsep.join(str(cluster.config) for cluster in self.clusters.values()),
        }

    def words(self, which: str, *command: str) -> list[str]:
        return [sys.executable, "-P", "-m", "tests.integration.rollout_root", which, *command]

    def rollout(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words("cli", "rollout", *command), cwd=self.local.repo, env=self.environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    def cut_off(self, number: int, said: str, *command: str) -> tuple[int, str]:
        """Runs until it says something, and sends the signal then; its exit code and what it said in all."""
        driver = subprocess.Popen(
            self.words("cli", "rollout", *command), cwd=self.local.repo, env=self.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert driver.stderr is not None
        lines: list[str] = []
        with driver.stderr:
            for line in driver.stderr:
                if said in line and not any(said in one for one in lines):
                    driver.send_signal(number)
                lines.append(line)
        return driver.wait(), "".join(lines)

    def approved(
        self, done: subprocess.CompletedProcess[str], *, killed_in: str = ""
    ) -> tuple[list[str], subprocess.CompletedProcess[str]]:
        """Approves gate after gate by the token that is printed at each; the gates, and the last run. The driver of the watch of
        `killed_in` is killed in it, and another one goes on."""
        gates: list[str] = []
        while done.returncode == 2:
            asked = SAID.findall(done.stderr)[-1]
            assert asked[0] not in gates, done.stderr
            gates.append(asked[0])
            command: tuple[str, ...] = ("resume", "--approve", "=".join(asked))
            if killed_in and asked[0] == f"{killed_in}/restart":
                code, said = self.cut_off(signal.SIGKILL, f"watch {killed_in} for 300 s", *command)
                assert code == -signal.SIGKILL, said
                command = ("resume",)
            done = self.rollout(*command)
        return gates, done

    def ride(self, job: str) -> list[Riding]:
        """A job of that name on every cluster."""
        found = []
        for name, cluster in self.clusters.items():
            stop = f"{cluster.state if name == 'served' else STATE}/enough"
            place = Path(stop) if not isinstance(cluster, OnHost) else cluster.host.path(stop)
            found.append(Riding(cluster, job, place, stop))
        return found

    def change(self, words: str) -> str:
        """Another tree; its hash."""
        changed = self.local.repo / "iris_controller" / "audit.py"
        changed.write_text(changed.read_text() + f"# {words}\n")
        plan = self.rollout("plan", "--clusters", self.names, "-o", "json")
        assert plan.returncode == 0, plan.stderr
        tree: str = json.loads(plan.stdout)["tree"]
        return tree

    def assert_all_run(self, tree: str, before: dict[str, str], names: Sequence[str] = ()) -> None:
        for name in names or self.clusters:
            cluster = self.clusters[name]
            standing = cluster.standing
            assert (standing.phase, standing.image, standing.previous_image) == (Phase.COMMITTED, tree, before[name]), (
                name
            )
            store = cluster.store if isinstance(cluster, OnHost) else open_store(cluster.remote)
            assert lock.read(store).holder is None, name

    def images(self) -> dict[str, str]:
        return {name: cluster.standing.image for name, cluster in self.clusters.items()}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    lacking = missing()
    if lacking and not REQUIRE_SERVICES:
        pytest.skip(lacking)
    assert not lacking, lacking
    with ExitStack() as stack:
        hosts = stack.enter_context(ssh_hosts(tmp_path_factory.mktemp("hosts"), "h1", "h2"))
        clusters: dict[str, Deployed] = {
            "served": stack.enter_context(deployed_cluster(tmp_path_factory.mktemp("served")))
        }
        cache = folder / "home" / "cache"
        for host in hosts:
            made = Named(tmp_path_factory.mktemp("deployed") / host.name, host)
            stack.callback(made.there.close)
            cache.mkdir(parents=True, exist_ok=True)
            (made.folder / "cache").symlink_to(cache)  # what is built and fetched for one is there for the others
            started = made.command("start")
            assert started.returncode == 0, started.stderr
            stack.callback(made.command, "stop", "--confirm", host.name, group=("cluster",))
            clusters[host.name] = made
        yield Fleet(folder, clusters)


@pytest.mark.timeout(900)
def test_live_work_rides_through_a_rollout_that_is_approved_gate_by_gate(fleet: Fleet) -> None:
    before, riding = fleet.images(), fleet.ride("rides")
    mended_tree(fleet.local)
    tree = fleet.change("what was approved")
    go = fleet.journals.parent / "go"
    checks = f"while [ ! -e {go} ]; do sleep 0.05; done; tail -1 iris_controller/audit.py | grep approved"
    begin = ("run", "--clusters", fleet.names, "--checks-command", checks)
    code, said = fleet.cut_off(signal.SIGINT, "the checks on", *begin)
    assert code == 130 and "leaving at the next point" in said, said
    assert "served: not reached" in said and re.search(r"next: iris-core rollout resume rollout-\S+\n$", said), said
    go.touch()
    gates, done = fleet.approved(fleet.rollout("resume"), killed_in="h1")
    assert done.returncode == 0, done.stderr
    assert gates == ["tree", "served/restart", "served/next", "h1/restart", "h1/next", "h2/restart"]
    assert done.stdout.strip() == f"served, h1, h2 run {tree[:12]}"
    fleet.assert_all_run(tree, before)
    for job in riding:
        job.end()

    report = fleet.rollout("report").stdout
    assert f"- Hash `{tree}`" in report and "ended with 0 after" in report
    for name in fleet.clusters:
        part = report.split(f"## {name}: passed")[1].split("\n## ")[0]
        assert f"- Tree before `{before[name]}`, after `{tree}`" in part
        assert re.search(r"- Downtime: (at most )?[\d.]+ s", part), part
        assert "hello world" in part and "- Lock: given back" in part
        assert len(re.findall(r"^\| \d+ s \| yes", part, re.M)) >= 2
    (known,) = json.loads(fleet.rollout("status", "-o", "json").stdout)
    assert (known["state"], known["clusters"], known["waits_for"]) == (
        "done",
        dict.fromkeys(fleet.clusters, "passed"),
        None,
    )


@pytest.mark.timeout(900)
def test_the_same_through_the_console_in_a_terminal(
    fleet: Fleet, require_program: RequireProgram, tmp_path: Path, soak: bool
) -> None:
    names = list(fleet.clusters) if soak else ["served"]
    before, riding = fleet.images(), fleet.ride("rides-on")
    tree = fleet.change("what the console approved")
    terminal = Terminal(require_program("tmux"), Place(tmp_path), 120, 40)
    try:
        words = fleet.words("console", "--cluster=served")
        settled = {name: fleet.environment()[name] for name in ("IRIS_JOURNAL_DIR", "PYTHONPATH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
                                                               "XDG_STATE_HOME", "HOME", "IRIS_TEST_CONFIGS")}  # fmt: skip
        given = " ".join(f"{name}={shlex.quote(value)}" for name, value in settled.items())
        terminal.run(f"cd {shlex.quote(str(fleet.local.repo))} && env {given} {shlex.join(words)}")
        terminal.until(lambda s: "/u/rides" in s and "LIVE" in s, "the jobs")
        terminal.type(":rollout")
        terminal.until(lambda s: "Rollouts, the newest first" in s, "the rollouts")
        terminal.type(f":rollout-begin {','.join(names)}")
        terminal.until(lambda s: f"Ship tree {tree[:12]} to {', '.join(names)}?" in s, "the tree's question")
        _approve(terminal, tree[:12])
        for number, name in enumerate(names):
            terminal.until(lambda s, name=name: f"Restart the controller of {name}?" in s, f"the question of {name}")  # type: ignore[misc]
            _approve(terminal, name)
            terminal.until(lambda s, name=name: f"the watch of {name}" in s and "healthy workers" in s, "the watch")  # type: ignore[misc]
            if number + 1 < len(names):
                following = names[number + 1]
                terminal.until(lambda s, following=following: f"go on to {following}?" in s, "the next question")  # type: ignore[misc]
                terminal.keys("Enter")
                terminal.keys("Left")
                terminal.keys("Enter")
        terminal.until(lambda s: f"done: {', '.join(names)} run" in s, "the end")
        terminal.keys("C-q")
        terminal.until(lambda s: "Quit the console?" in s, "the question")
        terminal.keys("y")
        assert terminal.end() == 0
    finally:
        terminal.close()
    fleet.assert_all_run(tree, before, names)
    for job in riding:
        job.end()


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="five minutes of watching; make soak runs them")
@pytest.mark.timeout(1800)
def test_the_shipped_command_watches_for_the_whole_five_minutes(fleet: Fleet) -> None:
    before = fleet.images()
    tree = fleet.change("what the shipped command approved")
    main = [sys.executable, "-P", "-m", "iris_core.cli.main", "rollout"]

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*main, *command], cwd=fleet.local.repo, env=fleet.environment(), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=1500, check=False,
        )  # fmt: skip

    began = time.monotonic()
    done = run("run", "--clusters", "served", "--confirm", "served", "--confirm", tree[:12])
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began >= 300
    fleet.assert_all_run(tree, before, ["served"])
    assert len(re.findall(r"^\| \d+ s \| yes", run("report").stdout, re.M)) >= 20


def _approve(terminal: Terminal, name: str) -> None:
    terminal.keys("Enter")
    terminal.keys("-l", name)
    terminal.until(lambda s: f"to approve: {name}" in s, "the name typed")
    terminal.keys("Enter")
    terminal.keys("Enter")
