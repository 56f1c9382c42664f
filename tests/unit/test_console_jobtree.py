"""The Jobs view as data: what is watched, what is fetched, and what is never taken away."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from iris_core.contracts import ConnectFailed
from iris_core.live import jobtree
from iris_core.live.filters import JOB_FIELDS
from iris_core.live.jobtree import HISTORY, LIVE, JobTree
from iris_core.live.watch import Watch
from iris_core.model.filter import parse_filter
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from providers.fake.client import FakeClient
from providers.fake.clock import FakeClock
from providers.fake.samples import attempt, job, sample, task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.asyncio
NOW = FakeClock().now_ms()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


class Rig:
    def __init__(self, client: FakeClient) -> None:
        self.client = client
        self.tree = JobTree(client)
        self.watch = Watch(client, self.tree, FakeClock())
        self.watch.select(self.tree.selectors())

    async def settle(self) -> None:
        """Fetch what is to be fetched, and watch what is to be watched."""
        self.watch.select(self.tree.selectors())
        for name in self.tree.take_needs():
            await self.tree.load(name)
        for _ in range(20):
            await asyncio.sleep(0)

    def shown(self) -> list[str]:
        self.tree.store.reorder(force=True)
        return list(self.tree.store.order)

    def value(self, name: str) -> Any:
        row = self.tree.store.get(name)
        assert row is not None
        return row.value


@asynccontextmanager
async def watching(client: FakeClient) -> AsyncIterator[Rig]:
    rig = Rig(client)
    run = asyncio.create_task(rig.watch.run())
    try:
        await until(lambda: rig.tree.loaded)
        yield rig
    finally:
        run.cancel()


async def test_the_roots_are_shown_newest_first_and_children_when_opened() -> None:
    async with watching(sample(FakeClock())) as rig:
        shown = rig.shown()
        assert shown[:3] == ["/bob/tokenize-web", "/bob/[red]brackets[/red]", "/ada/train-llama"]
        assert rig.tree.open("/ada/train-llama")
        await rig.settle()
        below = rig.shown()[3:]
        assert below[:2] == ["/ada/train-llama/eval-step-2000", "/ada/train-llama/eval-step-1000"]
        assert below[2:10] == [f"/ada/train-llama/{index}" for index in range(8)]
        assert "/ada/train-llama#note" not in rig.shown()


async def test_tasks_of_a_running_job_are_live() -> None:
    async with watching(sample(FakeClock())) as rig:
        rig.tree.open("/ada/train-llama")
        await rig.settle()
        rig.client.put(task("/ada/train-llama", 3, "FAILED", now_ms=NOW, exit_code=1))
        await until(lambda: rig.value("/ada/train-llama/3").exit_code == 1)
        assert rig.client.called("ListTasks") == []


async def test_tasks_of_a_finished_job_are_fetched() -> None:
    async with watching(sample(FakeClock())) as rig:
        rig.tree.open("/dan/oom")
        assert [row.text for row in (rig.value("/dan/oom#note"),)] == ["loading…"]
        await rig.settle()
        assert "/dan/oom/0" in rig.shown()
        assert "/dan/oom#note" not in rig.shown()
        assert [selector.id for selector in rig.tree.selectors()] == ["jobs"]


async def test_an_open_job_that_ends_keeps_its_tasks_and_reads_them_once_more() -> None:
    async with watching(sample(FakeClock())) as rig:
        rig.tree.open("/ada/train-llama")
        await rig.settle()
        rig.client.tasks["/ada/train-llama/0"] = task("/ada/train-llama", 0, "KILLED", now_ms=NOW)
        rig.client.put(job("/ada/train-llama", "KILLED", now_ms=NOW, age_min=42, has_children=True))
        await until(lambda: int(rig.value("/ada/train-llama").state) == common.JOB_STATE_KILLED)
        assert rig.tree.take_needs() == ["/ada/train-llama"]
        await rig.tree.load("/ada/train-llama")
        await rig.settle()
        assert int(rig.value("/ada/train-llama/0").state) == common.TASK_STATE_KILLED
        assert {f"/ada/train-llama/{index}" for index in range(8)} <= set(rig.shown())


async def test_a_fetch_that_fails_is_a_row_that_says_so_and_is_tried_again() -> None:
    async with watching(sample(FakeClock())) as rig:
        rig.client.fail("ListTasks", ConnectFailed("connection reset [x]"))
        rig.tree.open("/dan/oom")
        await rig.settle()
        assert "connection reset [x]" in rig.value("/dan/oom#note").text
        rig.tree.open("/dan/oom")
        await rig.settle()
        assert "/dan/oom/0" in rig.shown()


async def test_attempts_of_a_task_follow_its_current_one() -> None:
    async with watching(sample(FakeClock())) as rig:
        rig.tree.open("/ada/train-llama")
        await rig.settle()
        rig.tree.open("/ada/train-llama/7")
        await rig.settle()
        assert {"/ada/train-llama/7:0", "/ada/train-llama/7:1"} <= set(rig.shown())
        rig.client.put(attempt("/ada/train-llama/7", 1, "RUNNING", now_ms=NOW, current=True))
        rig.client.put(task("/ada/train-llama", 7, "RUNNING", now_ms=NOW, attempt=1))
        await until(lambda: rig.tree.take_needs() == ["/ada/train-llama/7"])
        await rig.tree.load("/ada/train-llama/7")
        assert int(rig.value("/ada/train-llama/7:1").state) == common.TASK_STATE_RUNNING


async def test_a_job_that_was_replaced_loses_the_tasks_of_the_old_one() -> None:
    async with watching(sample(FakeClock())) as rig:
        rig.tree.open("/ada/train-llama")
        await rig.settle()
        for index in range(8):
            del rig.client.tasks[f"/ada/train-llama/{index}"]
        rig.client.put(task("/ada/train-llama", 0, "PENDING", now_ms=NOW))
        rig.client.put(job("/ada/train-llama", "PENDING", now_ms=NOW, age_min=0, counts={"PENDING": 1}))
        await until(lambda: int(rig.value("/ada/train-llama").incarnation) == NOW)
        await rig.tree.load("/ada/train-llama")
        assert [
            name
            for name in rig.shown()
            if name.startswith("/ada/train-llama/") and name[-1].isdigit() and "eval" not in name
        ] == ["/ada/train-llama/0"]


async def test_a_resync_removes_what_is_gone_and_keeps_what_is_there() -> None:
    async with watching(sample(FakeClock())) as rig:
        before = rig.shown()
        del rig.client.jobs["/eve/stuck"]
        rig.client.restart()
        rig.watch.retry_now()
        await until(lambda: rig.client.watch.snapshots == 2)
        rig.watch.retry_now()
        await until(lambda: (row := rig.tree.store.get("/eve/stuck")) is None or row.gone)
        assert rig.shown() == [name for name in before if name != "/eve/stuck"]


async def test_older_jobs_come_as_pages_below_the_live_ones() -> None:
    async with watching(sample(FakeClock())) as rig:
        live = rig.shown()
        assert await rig.tree.load_history()
        assert rig.shown() == [*live, "/old/run-000", "/old/run-001", "/old/run-002"]
        assert rig.tree.history.exhausted
        assert not await rig.tree.load_history()
        request = rig.client.called("ListJobs")[0]
        assert request.roots_only
        assert common.JOB_STATE_RUNNING not in request.states


async def test_history_pages_that_hold_only_live_jobs_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobtree, "HISTORY_PAGE", 2)
    async with watching(sample(FakeClock())) as rig:
        assert await rig.tree.load_history()
        assert "/old/run-000" in rig.shown()


async def test_a_failed_page_of_history_is_said_and_can_be_asked_for_again() -> None:
    async with watching(sample(FakeClock())) as rig:
        rig.client.fail("ListJobs", ConnectFailed("gone"))
        assert not await rig.tree.load_history()
        assert rig.tree.history.error == "gone"
        assert await rig.tree.load_history()
        assert rig.tree.history.error == ""


async def test_another_filter_starts_the_history_anew() -> None:
    async with watching(sample(FakeClock())) as rig:
        await rig.tree.load_history()
        rig.tree.restart_history(parse_filter("job:run-001", JOB_FIELDS))
        assert not [name for name in rig.shown() if name.startswith("/old/")]
        await rig.tree.load_history()
        assert [name for name in rig.shown() if name.startswith("/old/")] == ["/old/run-001"]


async def test_a_finished_job_that_leaves_the_model_joins_the_shown_history() -> None:
    async with watching(sample(FakeClock())) as rig:
        await rig.tree.load_history()
        rig.client.drop("/dan/export")
        await until(lambda: rig.tree.store.rows["/dan/export"].section == HISTORY)
        assert "/dan/export" in rig.shown()
        rig.client.drop("/bob/tokenize-web")
        await until(lambda: rig.tree.store.rows["/bob/tokenize-web"].gone)
        assert rig.tree.store.rows["/ada/train-llama"].section == LIVE


async def test_many_open_jobs_share_few_selectors_and_closing_one_leaves_the_others_alone() -> None:
    client = FakeClient()
    for number in range(40):
        client.put(job(f"/a/j{number:02}", "RUNNING", now_ms=NOW, age_min=number))
        client.put(task(f"/a/j{number:02}", 0, "RUNNING", now_ms=NOW))
    async with watching(client) as rig:
        for number in range(40):
            rig.tree.open(f"/a/j{number:02}")
        selectors = rig.tree.selectors()
        assert len(selectors) <= 16
        assert sum(len(selector.job_ids) for selector in selectors) == 40
        await rig.settle()
        assert len([name for name in rig.shown() if name.endswith("/0")]) == 40
        rig.tree.close("/a/j00")
        changed = [one for one, other in zip(selectors, rig.tree.selectors(), strict=True) if one != other]
        assert len(changed) == 1


async def test_what_ending_a_job_ends() -> None:
    async with watching(sample(FakeClock())) as rig:
        subtree = rig.tree.subtree("/ada/train-llama")
        assert subtree.jobs == ("/ada/train-llama", "/ada/train-llama/eval-step-2000")
        assert (subtree.running, subtree.waiting) == (8, 1)


async def test_a_job_without_tasks_says_so_until_it_has_some() -> None:
    client = FakeClient()
    client.put(job("/a/young", "PENDING", now_ms=NOW))
    async with watching(client) as rig:
        rig.tree.open("/a/young")
        await rig.settle()
        assert rig.shown() == ["/a/young", "/a/young#note"]
        client.put(task("/a/young", 0, "PENDING", now_ms=NOW))
        await until(lambda: rig.tree.store.get("/a/young/0"))
        assert rig.shown() == ["/a/young", "/a/young/0"]
