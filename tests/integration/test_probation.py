"""A new release on probation, whole: it reads and takes workers in, writes nothing, and goes on with what waited once it is committed."""

from __future__ import annotations

from pathlib import Path

import httpcore
import pytest

from iris_controller import release
from iris_controller.checkpoint.served import served_last
from iris_controller.options import ServeOptions
from iris_controller.serve import Controller
from iris_core.config.cluster import parse_config
from iris_core.contracts import IrisError
from iris_core.procedures import record
from iris_core.procedures.record import Phase, RolloutRecord
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, worker_pb2
from providers.fake.worker import FakeWorker, run_on
from providers.objects import open_store
from tests.integration.controller_rig import Rig, connect
from tests.integration.test_checkpoint_stop import last_checkpoint
from tests.unit.checkpoint_world import table_hashes

pytestmark = pytest.mark.asyncio
OLD, NEW = "1" * 40, "2" * 40
CONFIG = """
name: kept
platform: {{local: }}
controller: {{local: {{port: 0}}}}
storage: {{remote_state_dir: "file://{remote}"}}
worker_provider: {{}}
user_budgets: [{{user_ids: [ada], budget_limit: 7}}]
"""


class Quiet(FakeWorker):
    """Enters once it is welcome: on probation it is told nothing more."""

    async def until(self, condition: object, timeout_s: float = 90) -> None:
        """See FakeWorker; the entry waits for the welcome alone."""
        await super().until(lambda w: bool(w.welcome.controller_boot_id), timeout_s)


async def started(folder: Path, tree: str, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(release, "tree", lambda: tree)
    config = parse_config(CONFIG.format(remote=folder / "remote"))
    controller = Controller(ServeOptions(config=config, state_dir=folder / "state", host="127.0.0.1", port=0))
    await controller.start()
    return Rig(controller, connect(controller))


async def ended(r: Rig) -> None:
    await r.client.close()
    await r.controller.stop()
    await r.controller.finelog.stop()


async def health(r: Rig) -> bytes:
    async with httpcore.AsyncConnectionPool() as http:
        return (await http.request("GET", f"{r.controller.port.url}/health")).content


def write(folder: Path, made: RolloutRecord) -> None:
    store = open_store(f"file://{folder}/remote")
    record.write(store, made, record.read(store))


async def test_what_waits_on_probation_is_done_once_it_is_over_and_nothing_is_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, RolloutRecord(Phase.COMMITTED, OLD))
    r = await started(tmp_path, OLD, monkeypatch)
    try:
        async with r.worker("w1", run_on) as worker:
            for name in ("/u/done", "/u/on"):
                await r.launch(name)
                await r.until_state(name, common_pb2.JOB_STATE_RUNNING)
            made = await last_checkpoint(r.client)
            await r.controller.wait()
    finally:
        await ended(r)
    assert served_last(tmp_path / "state") == OLD
    done, on = worker.seen
    write(tmp_path, RolloutRecord(Phase.PENDING, NEW, OLD, made.checkpoint_path))

    r = await started(tmp_path, NEW, monkeypatch)
    database = r.controller.state.database
    before = table_hashes(database, but=())
    try:
        assert await health(r) == b"ok, on probation\n"
        holding = [worker_pb2.Observation(attempt_uid=uid, state=common_pb2.TASK_STATE_RUNNING) for uid in (done, on)]
        quiet = Quiet(r.target, "w1", run_on, boot_id=worker.boot_id, holding=holding)
        quiet.seen = worker.seen
        async with quiet:
            ending = quiet.observation(done, common_pb2.TASK_STATE_SUCCEEDED, exit_code=0, log_lines=0)
            quiet.report([ending])
            status, error = await r.post("LaunchJob", {"name": "/u/refused", "replicas": 1})
            assert (status, error["code"]) == (503, "on_probation") and int(error["retry_after_ms"]) > 0
            with pytest.raises(IrisError, match="on probation"):
                await last_checkpoint(r.client)
            said = await r.call(
                "GetClusterStatus", controller_pb2.GetClusterStatusRequest(), controller_pb2.GetClusterStatusResponse
            )
            assert not said.ready and any("on probation" in p and "workers attached: 1" in p for p in said.problems)
            assert (await r.job("/u/done")).state == common_pb2.JOB_STATE_RUNNING, "reads go on"
            assert not quiet.acked and not quiet.desired.generation
            assert table_hashes(database, but=()) == before, "the database is as the migrations left it"
            assert served_last(tmp_path / "state") == OLD

            store = open_store(f"file://{tmp_path}/remote")
            standing = record.read(store)
            record.write(store, record.committed(standing, NEW, 9), standing)
            await r.until_state("/u/done", common_pb2.JOB_STATE_SUCCEEDED)
            await super(Quiet, quiet).until(lambda w: w.acked >= ending.seq and w.desired.generation > 0)
            assert [a.attempt_uid for a in quiet.desired.attempts if not a.HasField("stop")] == [on]
            await r.until_workers(lambda workers: [w.placeable for w in workers] == [True])
            await r.launch("/u/after")
            await r.until_state("/u/after", common_pb2.JOB_STATE_RUNNING)
            task = await r.task("/u/on/0")
            assert (len(task.attempts), task.task.state) == (1, common_pb2.TASK_STATE_RUNNING), "it ran on"
        assert await health(r) == b"ok\n" and not r.controller.problems()
        assert served_last(tmp_path / "state") == NEW
    finally:
        await ended(r)


async def test_one_that_is_to_be_replaced_ends_without_having_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, RolloutRecord(Phase.PENDING, NEW, OLD))
    r = await started(tmp_path, NEW, monkeypatch)
    database = r.controller.state.database
    before = table_hashes(database, but=())
    try:
        store = open_store(f"file://{tmp_path}/remote")
        standing = record.read(store)
        record.write(store, record.rollback_requested(standing, 9), standing)
        status, error = await r.post("LaunchJob", {"name": "/u/no", "replicas": 1})
        assert (status, error["code"]) == (503, "on_probation")
    finally:
        await ended(r)
    assert table_hashes(database, but=()) == before
