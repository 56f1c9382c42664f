"""A last checkpoint: it holds all that was ever acknowledged, and a controller that cannot take one goes on as if nothing had been."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpcore
import pytest
from google.protobuf.json_format import MessageToDict

from iris_controller.checkpoint import restore
from iris_controller.options import ServeOptions
from iris_controller.serve import Controller
from iris_core.client.aio import GrpcAsyncClient
from iris_core.config.cluster import parse_config
from iris_core.contracts import ConnectFailed, RpcFailed
from iris_core.wire.gen.iris.v1 import checkpoints_pb2, common_pb2
from providers.fake.worker import run_on, succeed
from providers.local.last_checkpoint import noted
from tests.integration.controller_rig import Rig, connect, launch_request, rig
from tests.unit.checkpoint_world import table_hashes

CONFIG = """
name: kept
platform: {{local: }}
controller: {{checkpoint_interval_seconds: 3600, local: {{port: 0}}}}
storage: {{remote_state_dir: "file://{remote}"}}
worker_provider: {{}}
"""
LAST = checkpoints_pb2.BeginCheckpointRequest(stop=True)
Made = checkpoints_pb2.BeginCheckpointResponse


async def last_checkpoint(client: GrpcAsyncClient, timeout_s: float = 60.0) -> checkpoints_pb2.BeginCheckpointResponse:
    return await client.call("ControllerService/BeginCheckpoint", LAST, Made, timeout_s=timeout_s)


async def refused(r: Rig, prefix: str) -> tuple[int, Any]:
    """Submits jobs until one is refused, each once: a client of ours would try it again. Status and error."""
    for n in range(100_000):
        job = MessageToDict(launch_request(f"/u/{prefix}{n}"), preserving_proto_field_name=True)
        status, answer = await r.post("LaunchJob", job)
        if status != 200:
            return status, answer
    raise AssertionError("nothing was refused")


def answered(database: Path) -> Counter[str]:
    """How many requests of each method a database says were carried out."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        return Counter(str(row[0]) for row in connection.execute("SELECT method FROM request_ids"))


async def seen_by_the_next(options: ServeOptions) -> None:
    """Another controller on the same state has removed the note by the time it serves; one that only looks leaves it."""
    before = noted(options.state_dir)
    for looks in (True, False):
        controller = Controller(replace(options, dry_run=looks))
        await controller.start()
        try:
            assert noted(options.state_dir) == (before if looks else ("", ""))
        finally:
            await controller.stop()
            await controller.finelog.stop()


@pytest.mark.asyncio
async def test_a_controller_that_is_to_end_changes_nothing_after_its_last_checkpoint_and_goes_on_if_that_fails(
    tmp_path: Path,
) -> None:
    remote = tmp_path / "remote"
    options = ServeOptions(
        config=parse_config(CONFIG.format(remote=remote)), state_dir=tmp_path / "a", host="127.0.0.1", port=0
    )
    controller = Controller(options)
    await controller.start()
    client = connect(controller)
    r = Rig(controller, client)
    try:
        async with r.worker("w1", run_on) as worker:
            running = (await r.launch("/u/running")).job_id
            await r.until_state(running, common_pb2.JOB_STATE_RUNNING)
            (uid,) = worker.seen
            worker.script = succeed
            first = (await r.launch("/u/first")).job_id
            # It cannot be written: what waited meanwhile is done, and jobs run as before.
            remote.mkdir(exist_ok=True)
            (remote / "controller-state").write_text("in the way")
            with pytest.raises(RpcFailed, match="the checkpoint failed"):
                await last_checkpoint(client)
            await r.until_state(first, common_pb2.JOB_STATE_SUCCEEDED)
            (remote / "controller-state").unlink()
            # The caller gives up: nothing has ended.
            with pytest.raises((RpcFailed, ConnectFailed)):
                await last_checkpoint(client, timeout_s=1.0)
            assert noted(controller.state.path) == ("", ""), "it goes on: no checkpoint is its last"
            second = (await r.launch("/u/second")).job_id
            await r.until_state(second, common_pb2.JOB_STATE_SUCCEEDED)

            ending = asyncio.create_task(last_checkpoint(client))
            code, error = await refused(r, "during")
            assert code == 503 and error["code"] == "held", error
            assert int(error["retry_after_ms"]) > 0
            # A task ends meanwhile: its worker keeps that for the next controller.
            worker.report([worker.observation(uid, common_pb2.TASK_STATE_SUCCEEDED, exit_code=0, log_lines=0)])
            # Another caller of the same who gives up before its turn lets nothing in that is in no checkpoint.
            with pytest.raises((RpcFailed, ConnectFailed)):
                await last_checkpoint(client, timeout_s=1.0)
            still = MessageToDict(launch_request("/u/still"), preserving_proto_field_name=True)
            code, error = await r.post("LaunchJob", still)
            assert code == 503 and error["code"] == "held", error
            # Another caller of the same, whose turn comes after that: there is no second last one, and nothing is taken in again for it.
            late = asyncio.create_task(r.post("BeginCheckpoint", {"stop": True}))
            made = await ending
            with suppress(httpcore.NetworkError, httpcore.ProtocolError):  # or it has ended before it could say so
                status, said = await late
                assert (status, said["code"]) == (503, "ending"), said
            await asyncio.wait_for(controller.wait(), 30)
    finally:
        await client.close()
        await controller.stop()
        await controller.finelog.stop()
    restore.unpack(restore.find(made.checkpoint_path), tmp_path / "copy")
    same = table_hashes(tmp_path / "copy", but=("meta", "request_ids"))
    assert same == table_hashes(controller.state.database, but=("meta", "request_ids"))
    assert answered(controller.state.database) - answered(tmp_path / "copy") == Counter(BeginCheckpoint=1)
    assert not controller.failed and made.job_count >= 3
    # Whoever did not hear the answer finds what it ended with, until the next one takes the state over.
    assert noted(controller.state.path) == (controller.boot_id, made.checkpoint_path)
    await seen_by_the_next(options)
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)


@pytest.mark.asyncio
async def test_one_that_ends_with_whoever_started_it_is_not_ended_by_a_call(tmp_path: Path) -> None:
    async with rig(tmp_path / "a") as r:
        with pytest.raises(RpcFailed, match="ends with whoever started it"):
            await last_checkpoint(r.client)
        await r.launch("/u/after")
