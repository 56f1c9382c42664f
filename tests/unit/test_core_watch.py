"""Watch where streams break in the middle, names are used again, and time alone changes what a filter says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from iris_controller.watching import hub, selection, subscription
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from tests.unit.test_watch import TASKS, Viewer, jobs, rig

pytestmark = pytest.mark.asyncio


def tasks(*job_ids: str, **values: object) -> controller_pb2.WatchSelector:
    return controller_pb2.WatchSelector(id="t", kind=TASKS, job_ids=job_ids, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("read", [1, 2])
async def test_a_stream_that_breaks_between_two_parts_of_one_revision_loses_nothing(read: int) -> None:
    async with rig() as r:
        await r.launch("/u/a", tasks=selection.PAGE_ROWS + 500)
        viewer = Viewer(r, jobs(), tasks("/u/a"))
        while not (
            viewer.messages
            and viewer.messages[-1].snapshot.rows.selector_id == "t"
            and viewer.messages[-1].snapshot.last
        ):
            await viewer.read()
        await r.cancel("/u/a")
        for _ in range(read):
            assert await viewer.read() == "delta"
        await viewer.close()
        revision = common_pb2.Revision(boot_id=viewer.revision.boot_id, n=viewer.revision.n)
        again = Viewer(r, jobs(resume=revision), tasks("/u/a", resume=revision))
        again.rows, again.revision = viewer.rows, revision
        while again.revision.n < r.loop.n:
            await again.read()
        assert {row.state for row in again.rows.values()} == {common_pb2.TASK_STATE_KILLED}


async def test_tasks_of_a_job_that_was_replaced_are_gone() -> None:
    async with rig() as r:
        await r.launch("/u/a", tasks=5)
        viewer = Viewer(r, tasks("/u/a"))
        await viewer.read()
        await r.cancel("/u/a")
        await r.launch("/u/a", tasks=2)
        kinds = []
        while "snapshot" not in kinds:
            kinds.append(await viewer.read())
        assert "resync" in kinds
        last = viewer.messages[-1].snapshot
        assert last.last and [t.task_index for t in last.rows.tasks] == [0, 1]
        assert {t.state for t in last.rows.tasks} == {common_pb2.TASK_STATE_PENDING}


async def test_what_is_kept_for_resuming_is_bounded_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "KEPT_ROWS", 5_000)
    async with rig() as r:
        await r.launch("/u/small")
        early = r.hub.revision()
        for n in range(10):
            await r.launch(f"/u/a{n}", tasks=1_000)
            await r.cancel(f"/u/a{n}")
        assert sum(len(b.changes.tasks) for b in r.hub._kept) <= 6_000
        assert r.hub.since(early) is None
        assert r.hub.since(r.hub.revision()) == []


async def test_a_parent_is_told_of_its_first_child() -> None:
    async with rig() as r:
        await r.launch("/u/a")
        viewer = Viewer(r, jobs())
        await viewer.read()
        assert not viewer.rows["/u/a"].has_children
        await r.launch("/u/a/kid")
        await viewer.until(r.loop.n)
        assert viewer.rows["/u/a"].has_children


@dataclass
class Wall:
    now: int = 1_000

    def __call__(self) -> int:
        return self.now


@pytest.mark.parametrize("kind", ["jobs", "tasks"])
async def test_a_filter_on_age_is_looked_at_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "TIMED_S", 0.05)
    async with rig() as r:
        wall = Wall()
        r.loop._wall_ms = wall
        await r.launch("/u/a")
        select = jobs if kind == "jobs" else lambda **v: tasks("/u/a", **v)
        young, old = Viewer(r, select(filter="age<1m")), Viewer(r, select(filter="age>1m"))
        await young.read()
        await old.read()
        assert len(young.rows) == 1 and not old.rows
        wall.now += 120_000
        async with asyncio.timeout(60):
            while young.rows or not old.rows:
                await asyncio.gather(young.read(), old.read())
        before = len(old.messages)
        await old.read()
        assert old.messages[before].HasField("heartbeat"), "nothing is sent again that is known"
