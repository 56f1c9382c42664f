"""What going back to a checkpoint would drop, as a real controller says it to the command line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from iris_core.cli.restart_target import lost
from iris_core.client.endpoint import parse_url
from iris_core.client.http_client import HttpClient
from iris_core.procedures.target import Lost, Saved
from iris_core.wire.gen.iris.v1 import common_pb2
from tests.integration.controller_rig import rig

if TYPE_CHECKING:
    from iris_core.cli.session import Session

RECREATE = common_pb2.EXISTING_JOB_POLICY_RECREATE


class Asking:
    """All of a session that is used here."""

    def __init__(self, client: HttpClient) -> None:
        self.client = client


@pytest.mark.asyncio
async def test_a_name_that_was_taken_over_and_an_older_job_that_changed_show_in_what_is_lost(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.launch("/u/one")
        at = Saved("", (await r.launch("/u/other")).incarnation, "")
        with HttpClient(parse_url(r.controller.port.url)) as client:

            async def ask() -> Lost:
                return await asyncio.to_thread(lost, cast("Session", Asking(client)), at)

            assert await ask() == Lost(0, 0, (), 0, 0)
            first = (await r.launch("/u/a")).incarnation
            assert await ask() == Lost(1, 0, ("/u/a",), first, 0)
            later = (await r.launch("/u/a", existing_job_policy=RECREATE)).incarnation
            assert later > first and await ask() == Lost(1, 0, ("/u/a",), later, 0)
            await r.cancel("/u/one")
            one = await ask()
            assert (one.submitted, one.changed, one.jobs, one.newest) == (1, 1, ("/u/a", "/u/one"), later)
            await r.cancel("/u/other")
            both = await ask()
            assert (both.submitted, both.changed) == (1, 2) and 0 < one.which < both.which
