"""A rollout of a changed tree to deployed controllers with live work, by the shipped commands: only the watch is faster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris_core.procedures import lock
from iris_core.procedures.record import Phase
from iris_core.wire.gen.iris.v1 import common_pb2
from providers.objects import open_store
from tests.integration.served import launch, lines, task, wait_jobs
from tests.integration.test_controller_restart import HOME, Deployed

SAID = re.compile(r"--approve (\S+)=([0-9a-f]{12})")


class Fleet:
    """A deployed local cluster, and the rollouts of its tree; other clusters may be beside it."""

    def __init__(self, folder: Path, local: Deployed) -> None:
        self.local = local
        self.journals = folder / "journals"
        self.clusters = folder / "config" / "iris" / "clusters"
        self.clusters.mkdir(parents=True)
        self.add("served", local.config)
        self.urls = [local.url]

    def add(self, name: str, config: Path) -> None:
        (self.clusters / f"{name}.yaml").write_text(config.read_text())

    def words(self, *command: str) -> list[str]:
        return [sys.executable, "-m", "tests.integration.rollout_root", "cli", "rollout", *command]

    def environment(self) -> dict[str, str]:
        return {
            **self.local.environment(),
            "PYTHONPATH": str(HOME),
            "XDG_CONFIG_HOME": str(self.clusters.parents[1]),
            "IRIS_TEST_URLS": " ".join(self.urls),
        }

    def rollout(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*command), cwd=self.local.repo, env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=110, check=False,
        )  # fmt: skip

    def approved(self, *command: str) -> tuple[list[str], subprocess.CompletedProcess[str]]:
        """Begins, and approves gate after gate by the token that is printed at each; the gates, and the last run."""
        gates: list[str] = []
        done = self.rollout("run", *command)
        while done.returncode == 2:
            asked = SAID.findall(done.stderr)[-1]
            assert asked[0] not in gates, done.stderr
            gates.append(asked[0])
            done = self.rollout("resume", "--approve", "=".join(asked))
        return gates, done

    def status(self) -> Any:
        return json.loads(self.rollout("status", "-o", "json").stdout)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    local = Deployed(tmp_path)
    started = local.command("start")
    assert started.returncode == 0, started.stderr
    try:
        yield Fleet(tmp_path, local)
    finally:
        stopped = local.command("stop", "--confirm", "served", group=("cluster",))
    assert stopped.returncode == 0, stopped.stderr
    assert local.ours() == [], "everything of it has ended"


def test_live_work_rides_through_a_rollout_that_is_approved_gate_by_gate(fleet: Fleet) -> None:
    local = fleet.local
    first = local.standing
    until = local.folder / "enough"
    script = f'i=0; while [ ! -e {until} ]; do echo "line $i"; i=$((i+1)); sleep 0.02; done'
    with local.client() as client:
        job = launch(client, "/u/rides", ["sh", "-c", script]).job_id
    changed = local.repo / "iris_controller" / "audit.py"
    changed.write_text(changed.read_text() + "# what was approved\n")
    plan = fleet.rollout("plan", "--clusters", "served")
    assert plan.returncode == 0 and "1. served (controller=local, capacity=1 slices)" in plan.stdout
    tree = plan.stdout.split()[1]

    gates, done = fleet.approved(
        "--clusters", "served", "--checks-command", "tail -1 iris_controller/audit.py | grep approved"
    )
    assert done.returncode == 0, done.stderr
    assert gates == ["tree", "served/restart"]
    assert done.stdout.strip() == f"served runs {tree[:12]}"
    assert (local.standing.phase, local.standing.image, local.standing.previous_image) == (
        Phase.COMMITTED,
        tree,
        first.image,
    )
    assert lock.read(open_store(local.remote)).holder is None

    until.touch()
    with local.client() as client:
        assert wait_jobs(client, [job]) == {job: common_pb2.JOB_STATE_SUCCEEDED}
        assert len(task(client, f"{job}/0").attempts) == 1, "no attempt was started again"
        printed = [line.data.rstrip("\n") for line in lines(client, job)]
    assert printed == [f"line {n}" for n in range(len(printed))], "no line is missing or there twice"

    report = fleet.rollout("report").stdout
    assert f"- Hash `{tree}`" in report and f"- Tree before `{first.image}`, after `{tree}`" in report
    assert re.search(r"- Downtime: [\d.]+ s without an answer", report), report
    assert "## served: passed" in report and "hello world" in report and "grep approved` ended with 0" in report
    assert len(re.findall(r"^\| \d+ s \| yes", report, re.M)) >= 2
    (known,) = fleet.status()
    assert (known["state"], known["clusters"], known["waits_for"]) == ("done", {"served": "passed"}, None)
    assert os.listdir(fleet.journals) == [f"{known['id']}.jsonl"]
