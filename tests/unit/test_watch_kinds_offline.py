"""Watch on a checkpoint: every kind that a state can tell of is shown once, and the running controller is no such kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iris_controller.offline_client import open_checkpoint
from iris_core.contracts import RpcFailed
from iris_core.live.watch_keys import KIND_FIELDS, each
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from providers.objects import open_store
from tests.unit.checkpoint_world import T0, checkpoint, make_state

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.asyncio


async def test_a_checkpoint_answers_every_kind_but_the_running_controller(tmp_path: Path) -> None:
    made = checkpoint(make_state(tmp_path / "state", jobs=5), open_store(f"file://{tmp_path}/remote"), T0 + 3_600_000)
    client = await open_checkpoint(str(tmp_path / "remote" / "controller-state" / str(made.epoch_ms)), lambda _: None)
    try:
        asked = pb.WatchRequest()
        for kind in sorted(set(KIND_FIELDS) - {pb.WATCH_KIND_CONTROLLER}):
            asked.selectors.add(id=KIND_FIELDS[kind], kind=kind, task_ids=["/u/none/0"])
        found: dict[str, list[Any]] = {}
        stream = client.stream("ControllerService/Watch", asked, pb.WatchResponse)
        while len(found) < len(asked.selectors):
            page = (await anext(stream)).snapshot
            assert page.last
            found[page.rows.selector_id] = [row for _, _, row in each(page.rows)]
        assert len(found["jobs"]) == 5 and not found["attempts"]
        assert [row.jobs_by_state for row in found["fleet"]] == [{"succeeded": 5}]
        refused = pb.WatchRequest(selectors=[pb.WatchSelector(id="c", kind=pb.WATCH_KIND_CONTROLLER)])
        with pytest.raises(RpcFailed, match="the controller cannot be watched here"):
            await anext(client.stream("ControllerService/Watch", refused, pb.WatchResponse))
    finally:
        await client.close()
