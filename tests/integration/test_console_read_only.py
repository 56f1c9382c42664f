"""Read-only and back on a live connection of the console: the controller refuses what the console does not offer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from iris_controller.rpc.roles import ACCESS
from iris_core.contracts import Denied
from iris_core.live.clock import SystemClock
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.services import methods
from iris_tui.session import Session
from tests.integration.controller_rig import connect, launch_request, rig

if TYPE_CHECKING:
    from pathlib import Path

    from iris_core.contracts import AsyncClient

pytestmark = pytest.mark.asyncio


async def test_the_controller_refuses_every_change_of_a_read_only_session_until_it_is_lifted(tmp_path: Path) -> None:
    async with rig(tmp_path) as env:

        async def factory() -> AsyncClient:
            return connect(env.controller)

        session = Session("rig", factory, SystemClock(), read_only=True)
        asking = asyncio.create_task(session._who())
        try:
            async with asyncio.timeout(30):
                while not session.role:  # noqa: ASYNC110 (an answer changes it, and nothing else)
                    await asyncio.sleep(0.01)
            assert (session.role, session.locked, session.read_only) == ("admin", "", True), (
                "asked without asking for it"
            )
            for method in methods():
                if method.client_streaming or not ACCESS[method.full_name].mutates:
                    continue
                with pytest.raises(Denied, match="read-only"):
                    if method.server_streaming:
                        async for _ in session.client.stream(method.full_name, method.request(), method.response):
                            pass
                    else:
                        await session.client.call(method.full_name, method.request(), method.response)
            session.set_read_only(False)
            request = launch_request("/ada/one")
            await session.client.call("ControllerService/LaunchJob", request, pb.LaunchJobResponse)
            assert (await env.job("/ada/one")).job_id == "/ada/one"
            session.set_read_only(True)
            with pytest.raises(Denied, match="read-only"):
                await session.client.call(
                    "ControllerService/TerminateJob", pb.TerminateJobRequest(), pb.TerminateJobResponse
                )
        finally:
            asking.cancel()
            await session.client.close()
