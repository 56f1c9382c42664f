"""From no slice to one and back, on a real local cluster, and what the operator is shown of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from iris_core.wire.gen.iris.v1 import common_pb2
from tests.integration.served import launch, status, task, wait_jobs
from tests.integration.slices_world import Slices, autoscaler, launch_gang, query, running, slice_of, until

if TYPE_CHECKING:
    from pathlib import Path


def test_slices_come_from_nothing_when_a_gang_asks_and_go_when_nobody_does(tmp_path: Path) -> None:
    slices = Slices(tmp_path, buffer=0, most=1, scale_down_ms=1500)
    slices.start()
    try:
        with slices.client() as client:
            assert slices.kept() == []
            launch_gang(client, "/t/first", tmp_path / "go")
            made = slice_of(running(client, "/t/first")[0])
            assert slices.kept() == [made]
            shown = slices.cli("cluster", "vm", "status", "-o", "json")
            assert shown.code == 0, shown.err
            assert made in shown.out
            for index in range(4):
                logs = slices.cli("cluster", "vm", "logs", f"{made}-w-{index}")
                assert logs.code == 0 and "worker_started" in logs.out, logs
            assert slices.cli("cluster", "vm", "logs", "tpu-nothing-w-0").code == 1
            # A second gang finds the group full, and waits for the first.
            launch_gang(client, "/t/second", tmp_path / "go")
            until(lambda: status(client, "/t/second").pending_reason, "no reason was given")
            (tmp_path / "go").touch()
            assert set(wait_jobs(client, ["/t/first", "/t/second"]).values()) == {common_pb2.JOB_STATE_SUCCEEDED}
            assert slice_of(task(client, "/t/second/0").task.worker_id) == made
            until(lambda: not slices.kept(), "the idle slice was never given up")
            until(lambda: not query(client, "SELECT worker_id FROM workers"), "the workers were not forgotten")
            assert not list((slices.state / "workers").iterdir())
            done = [(action.action, action.entity) for action in autoscaler(client).recent_actions]
            for action in ("scale_up", "slice_ready", "scale_down"):
                assert (action, made) in done, done
            launch(client, "/t/cpu", ["true"])
            again = slice_of(until(lambda: task(client, "/t/cpu/0").task.worker_id, "nothing was made for a CPU task"))
            assert again != made
            wait_jobs(client, ["/t/cpu"])
    finally:
        slices.end()


def test_a_restarted_controller_knows_its_slices(tmp_path: Path) -> None:
    slices = Slices(tmp_path, buffer=1, most=1)
    slices.start()
    try:
        with slices.client() as client:
            launch_gang(client, "/t/kept", tmp_path / "go")
            workers = running(client, "/t/kept")
            uids = [task(client, f"/t/kept/{index}").task.attempt_uid for index in range(4)]
        slices.kill()
        slices.start()
        with slices.client() as client:
            running(client, "/t/kept")
            assert [task(client, f"/t/kept/{index}").task.attempt_uid for index in range(4)] == uids
            found = until(
                lambda: [s for g in autoscaler(client).groups for s in g.slices if s.lifecycle == "ready"],
                "the slice was not adopted",
            )
            assert [s.slice_id for s in found] == [slice_of(workers[0])]
            (tmp_path / "go").touch()
            assert wait_jobs(client, ["/t/kept"])["/t/kept"] == common_pb2.JOB_STATE_SUCCEEDED
            assert slices.kept() == [slice_of(workers[0])]
            record = json.loads((slices.state / "slices" / f"{slices.kept()[0]}.json").read_text())
            assert record["was_ready"] and not record["deleting"]
    finally:
        slices.end()


def test_an_operator_s_slice_stays_until_it_is_deleted_with_its_work(tmp_path: Path) -> None:
    slices = Slices(tmp_path, buffer=0, most=1, scale_down_ms=0)
    slices.start()
    try:
        with slices.client() as client:
            made = slices.cli("cluster", "create-slice", "--scale-group", "tpu")
            assert made.code == 0, made.err
            (slice_id,) = slices.kept()
            assert slice_id in made.out
            lifecycle = f"SELECT lifecycle FROM slices WHERE slice_id = '{slice_id}'"
            until(lambda: query(client, lifecycle) == [["ready"]], "it never became ready")
            launch_gang(client, "/t/there", tmp_path / "go")
            assert slice_of(running(client, "/t/there")[0]) == slice_id
            shown = slices.cli("cluster", "delete-slice", slice_id, "--dry-run")
            assert shown.code == 0 and "/t/there/0" in shown.out, shown
            assert slices.cli("cluster", "delete-slice", slice_id).code == 2, "its cluster has to be named"
            assert slices.kept() == [slice_id]
            done = slices.cli("cluster", "delete-slice", slice_id, "--confirm", "slices", "--reason", "enough of it")
            assert done.code == 0, done.err
            until(lambda: slice_id not in slices.kept(), "it was not deleted")
            # The gang asks for another one, which is the autoscaler's, and goes when the gang has.
            running(client, "/t/there", attempt=1)
            assert status(client, "/t/there").preemption_count == 1, (
                "its members were stopped together: one of them pays"
            )
            (tmp_path / "go").touch()
            assert wait_jobs(client, ["/t/there"])["/t/there"] == common_pb2.JOB_STATE_SUCCEEDED
            until(lambda: not slices.kept(), "the idle slice was never given up")
    finally:
        slices.end()
