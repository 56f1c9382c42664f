"""The console on a checkpoint of a real controller: the rows that the controller showed, with their reasons and explanations."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from iris_controller.offline_client import open_checkpoint
from iris_core.client.endpoint import parse_url
from iris_core.live.clock import SystemClock
from iris_core.wire.gen.iris.v1 import checkpoints_pb2, common_pb2, controller_pb2
from iris_tui.app import IrisApp
from iris_tui.offline import offline_session
from iris_tui.session import Session
from screens.jobs import JobsScreen
from tests.integration.controller_rig import launch_request, rig
from tests.unit import console_waits

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient


async def rows_of(session: Session, count: int) -> dict[str, tuple[str, str, str]]:
    """Name, tasks and reason of each job, and of each task of those that are opened, as the console shows them."""
    app = IrisApp(session)
    async with app.run_test(size=(160, 40)) as pilot:
        until = partial(console_waits.until, app, pilot)

        def screen() -> JobsScreen:
            assert isinstance(app.screen, JobsScreen)
            return app.screen

        await until(lambda: isinstance(app.screen, JobsScreen) and screen().store.order)
        screen().table.move_to("/u/many")
        await pilot.press("enter")
        await until(lambda: len(screen().store.order) == count)
        found = {}
        for name in screen().store.order:
            row: Any = screen().store.get(name)
            value = row.value
            found[name] = (row.kind, str(value.state), getattr(value, "pending_reason", ""))
        return found


@pytest.mark.asyncio
async def test_the_same_rows_as_live(tmp_path: Path) -> None:
    async with rig(tmp_path / "s") as r:
        async with r.worker("w1"):
            await r.launch("/u/done")
            request = launch_request("/u/many")
            request.replicas = 3
            await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
            await r.until_state("/u/done", common_pb2.JOB_STATE_SUCCEEDED)
            await r.until_state("/u/many", common_pb2.JOB_STATE_SUCCEEDED)
            await r.launch("/u/large", resources=common_pb2.Resources(cpu_millicores=10**6, memory_bytes=1))
            await r.until("/u/large", lambda job: bool(job.pending_reason))

            async def connect() -> AsyncClient:
                from iris_core.client.aio import GrpcAsyncClient

                return GrpcAsyncClient(parse_url(r.controller.port.url))

            live = await rows_of(Session("live", connect, SystemClock()), 6)
            made = await r.call(
                "BeginCheckpoint", checkpoints_pb2.BeginCheckpointRequest(), checkpoints_pb2.BeginCheckpointResponse
            )
            explained = await r.call(
                "ExplainJob", controller_pb2.ExplainJobRequest(job_id="/u/large"), controller_pb2.ExplainJobResponse
            )
    assert {kind for kind, _, _ in live.values()} == {"job", "task"} and "cores" in live["/u/large"][2]
    assert await rows_of(offline_session(made.checkpoint_path), 6) == live

    # Any reading RPC, Watch of workers and what-if among them.
    client = await open_checkpoint(made.checkpoint_path, lambda _: None)
    again = await client.call(
        "ControllerService/ExplainJob",
        controller_pb2.ExplainJobRequest(job_id="/u/large"),
        controller_pb2.ExplainJobResponse,
    )
    for field in ("verdict", "cause", "scheduler_reason"):
        assert getattr(again.explanation, field) == getattr(explained.explanation, field)
    watch = controller_pb2.WatchRequest()
    watch.selectors.add(id="w", kind=controller_pb2.WATCH_KIND_WORKERS)
    async for message in client.stream("ControllerService/Watch", watch, controller_pb2.WatchResponse):
        assert [worker.worker_id for worker in message.snapshot.rows.workers] == ["w1"]
        break
    answer = await client.call(
        "ControllerService/ExecuteRawQuery",
        controller_pb2.ExecuteRawQueryRequest(sql="SELECT count(*) FROM tasks"),
        controller_pb2.ExecuteRawQueryResponse,
    )
    assert "5" in answer.rows[0]
    await client.close()


def test_the_program_opens_one_and_is_left_with_its_keys(tmp_path: Path) -> None:
    from providers.objects import open_store
    from tests.unit.checkpoint_world import checkpoint, make_state

    checkpoint(make_state(tmp_path / "state", jobs=5), open_store(f"file://{tmp_path}/remote"), 1_700_000_000_000)
    program = str(Path(sys.executable).with_name("iris"))
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(program, [program, "--checkpoint", str(tmp_path / "remote")])
    shown = b""

    def until(text: bytes) -> None:
        nonlocal shown
        deadline = time.monotonic() + 60
        while text not in shown:
            assert time.monotonic() < deadline, shown[-2000:]
            if select.select([terminal], [], [], 1.0)[0]:
                shown += os.read(terminal, 65536)

    try:
        until(b"/u/job4")
        assert b"OFFLINE  checkpoint 2023-11-14 22:13 UTC" in shown
        os.write(terminal, b"q")
        until(b"Nothing ends with it")
        os.write(terminal, b"\x11")
        deadline = time.monotonic() + 60
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            assert time.monotonic() < deadline
            if select.select([terminal], [], [], 0.05)[0]:
                try:
                    os.read(terminal, 65536)
                except OSError:
                    continue
        pid = 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)
