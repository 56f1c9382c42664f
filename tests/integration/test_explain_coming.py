"""What an explanation and the pending reason say while a slice boots for the job, through a real controller."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from iris_core.wire.gen.iris.v1 import controller_pb2
from providers.fake.machines import Outcome
from tests.integration.test_autoscaler_rpc import cluster, job

pytestmark = pytest.mark.asyncio


async def test_a_booting_slice_shows_in_the_reason_the_cause_and_its_groups_line(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        c.machines.script("cpu", [Outcome(ready_s=600)])
        await c.rig.call("LaunchJob", job("/u/a"), controller_pb2.LaunchJobResponse)
        made = "a slice of cpu is being made for it (booting since "
        waiting = await c.rig.until("/u/a", lambda status: made in status.pending_reason)
        assert waiting.pending_reason.endswith("; no workers attached")
        request = controller_pb2.ExplainJobRequest(job_id="/u/a")
        async with asyncio.timeout(60):
            found = (await c.rig.call("ExplainJob", request, controller_pb2.ExplainJobResponse)).explanation
        assert found.cause.startswith("no worker is known; ") and made in found.cause
        (group,) = found.scale_groups
        assert group.reason.startswith("1 slice is being made (booting since ")
        assert group.reason.endswith("; it may make 1 more")
