"""`cluster controller worker-restart` as a command line: what is refused by name, what a dry run shows, and a run to its end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from iris_core.cli.deployment import Deployment
from iris_core.config.cluster import load_config
from iris_core.contracts import ConnectFailed
from iris_core.procedures.releases import Releases
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from providers.fake.host import FakeHost
from tests.unit.cli_world import Done
from tests.unit.test_cli_deployment import FILE, Lab
from tests.unit.worker_world import CODE, FakeWorker, Workers


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("IRIS_JOURNAL_DIR", str(tmp_path / "journals"))
    return Lab(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("platform: {local: }", "platform: {manual: {}}", "its controller starts no workers"),
        ("platform: {local: }", "platform: {gcp: }", "this is a gcp cluster"),
        (', remote_state_dir: "file://', " } #", "storage.remote_state_dir is not set"),
    ],
)
def test_a_kind_whose_workers_cannot_be_restarted_is_refused_by_name(lab: Lab, old: str, new: str, said: str) -> None:
    lab.write(FILE.format(lab.folder).replace(old, new))
    done = lab.controller("worker-restart", "--confirm", "lab")
    assert done.code == 2 and said in done.err and not (lab.folder / "journals").exists()


def test_what_cannot_be_meant_is_refused(lab: Lab) -> None:
    assert "ends with whoever started it" in lab.controller("worker-restart", selector="--cluster=local").err
    for words, said in (
        (("--min-batch", "8", "--max-batch", "4"), "--max-batch 4 is less than --min-batch 8"),
        (("--confirm", "lap"), "the name of the cluster is lab"),
        ((), "--confirm lab"),
        (("--max-failures", "-1"), "--max-failures"),
        (("--timeout", "nan"), "--timeout"),
    ):
        done = lab.controller("worker-restart", *words)
        assert done.code == 2 and said in done.err and not done.out, words


class Fleet(Deployment):
    """A deployment on the fake host, with the workers of `worlds[name]`."""

    worlds: dict[str, Workers] = {}  # noqa: RUF012

    def workers(self) -> list[dict[str, Any]]:
        return self.worlds[self.name].here()

    def restart_workers(self, wanted: Sequence[Mapping[str, Any]], within_s: float) -> dict[str, Any]:
        return self.worlds[self.name].restart(wanted, within_s)


@pytest.fixture
def world(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Workers:
    made = Workers(lab.folder, FakeWorker("w0", ["/u/a/0:0"]), FakeWorker("w1"), FakeWorker("w2"))
    made.away_s = 0.0
    monkeypatch.setitem(Fleet.worlds, "lab", made)
    found = Fleet(load_config(lab.file), lab.file, FakeHost(), Releases(lab.folder), lab.folder)
    monkeypatch.setattr("iris_core.cli.deployment.deployment", lambda session: found)

    def workers(request: controller_pb2.ListWorkersRequest) -> controller_pb2.ListWorkersResponse:
        """One a page."""
        rows = made.workers()
        at = int(request.page_token or 0)
        row = rows[at]
        status = controller_pb2.WorkerStatus(
            worker_id=row["worker_id"],
            boot_id=row["boot_id"],
            release=row["release"],
            attached=row["healthy"],
            health=common_pb2.WORKER_HEALTH_HEALTHY,
        )
        more = str(at + 1) if at + 1 < len(rows) else ""
        return controller_pb2.ListWorkersResponse(workers=[status], next_page_token=more)

    def query(request: controller_pb2.ExecuteRawQueryRequest) -> controller_pb2.ExecuteRawQueryResponse:
        assert "finished_at_ms IS NULL" in request.sql and request.max_rows == 100_000
        rows = [
            [name, uid, *key.rsplit(":", 1)] for name, placed in made.placed().items() for uid, key in placed.items()
        ]
        return controller_pb2.ExecuteRawQueryResponse(rows=[json.dumps(row) for row in rows])

    lab.client.answer("GetClusterStatus", controller_pb2.GetClusterStatusResponse(release=CODE))
    lab.client.answer("ListWorkers", workers)
    lab.client.answer("ExecuteRawQuery", query)
    return made


def run(lab: Lab, *words: str) -> Done:
    return lab.controller("worker-restart", "--observation-window", "0", *words)


def test_what_a_dry_run_showed_is_approved_by_its_token_and_nothing_else(lab: Lab, world: Workers) -> None:
    shown = run(lab, "--dry-run")
    assert shown.code == 0 and "w0 (release 0ld): ends /u/a/0:0" in shown.err and not world.told
    token = shown.err.partition("--approve worker-restart=")[2].split()[0]
    world.all["w2"].attempts.append("/u/b/0:0")
    refused = run(lab, "--approve", f"worker-restart={token}")
    assert refused.code == 1 and not world.told, "something else runs by now"
    world.all["w2"].attempts.clear()
    done = run(lab, "--approve", f"worker-restart={token}")
    assert done.code == 0 and done.out == f"3 workers of lab restarted onto release {CODE}\n"
    assert world.told == [["w1"], ["w2", "w0"]] and "attempts that ended with their worker: /u/a/0:0" in done.err


def test_the_options_reach_the_procedure_and_it_goes_on_under_its_id(lab: Lab, world: Workers) -> None:
    done = run(lab, "--confirm", "lab", "--idle-only", "--worker-id", "w2", "--worker-id", "w0")
    assert done.code == 0 and world.told == [["w2"]]
    assert run(lab, "--confirm", "lab", "--skip-current-hash", "--max-batch", "1").code == 0
    assert world.told[1:] == [["w1"], ["w0"]]
    world.all["w1"].release, world.faults = "0ld", type(world.faults)(["silent"])
    failed = run(lab, "--confirm", "lab", "--skip-current-hash")
    assert failed.code == 1 and "0 of 1 worker of lab restarted" in failed.out and "connection broke" in failed.out
    name = failed.err.partition("procedure ")[2].split(",")[0]
    again = run(lab, "--confirm", "lab", "--resume", name)
    assert (again.code, again.out) == (1, failed.out), "a journal that has an end gives that end"
    assert "is a worker-restart of lab" in lab.controller("restart", "--confirm", "lab", "--resume", name).err


def test_a_controller_that_does_not_answer_is_one_line(lab: Lab, world: Workers) -> None:
    lab.client.answer("ListWorkers", ConnectFailed("nobody answers at http://fake:10000"))
    done = run(lab, "--confirm", "lab")
    assert done.code == 1 and "nobody answers" in done.out and not world.told


def test_no_worker_is_ended_where_not_every_attempt_could_be_named(lab: Lab, world: Workers) -> None:
    lab.client.answer("ExecuteRawQuery", controller_pb2.ExecuteRawQueryResponse(truncated=True))
    done = run(lab, "--confirm", "lab")
    assert done.code == 1 and "none may end that is not named" in done.out and not world.told
