"""Where the ranks of a job stand: dumps of all at once, the odd one first, and what stands in for those that do not answer."""

from __future__ import annotations

import pytest

from iris_core.contracts import RpcFailed
from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb
from iris_tui.pages import TextPage
from providers.fake.clock import FakeClock
from providers.fake.profile_samples import DUMP, FakeProfiles
from providers.fake.samples import sample
from tests.unit.test_console_app import Rig, console

JOB = "/ada/train-llama"
ELSEWHERE = DUMP.replace("all_reduce (dist.py:88)", "read (gzip.py:7)")


def scripted(clock: FakeClock) -> FakeProfiles:
    kept = FakeProfiles(sample(clock)).attach()
    kept.dumps[f"{JOB}/3"] = ELSEWHERE
    return kept


async def page(rig: Rig) -> str:
    rig.app.run_command(f"hang {JOB}")
    await rig.until(lambda: isinstance(rig.app.screen, TextPage) and "known to stand" in rig.screen_text())
    return rig.screen_text()


@pytest.mark.asyncio
async def test_ranks_are_grouped_and_the_odd_one_comes_first() -> None:
    kept = scripted(FakeClock())
    async with console(kept.client) as rig:
        await rig.row(JOB)
        await rig.keys("x", "h")
        await rig.until(lambda: "known to stand" in rig.screen_text())
        text = rig.screen_text()
        assert "6 of 6 running tasks are known to stand at 2 places" in text
        assert text.index(f"1 task, {JOB}/3") < text.index("read (gzip.py:7)") < text.index(f"5 tasks, {JOB}/0-2,4-5")
        assert f"iris-core --cluster=lab job hang {JOB}" in text
        assert {request.options.type for request in kept.client.called("ProfileTask")} == {pb.PROFILE_TYPE_THREADS}


@pytest.mark.asyncio
async def test_a_task_that_does_not_answer_is_stood_in_for_by_its_stored_dump() -> None:
    kept = scripted(FakeClock())
    kept.dumps[f"{JOB}/2"] = RpcFailed("DEADLINE_EXCEEDED", "py-spy [hangs]")
    kept.dumps[f"{JOB}/4"] = RpcFailed("UNAVAILABLE", "the worker is gone")
    async with console(kept.client) as rig:
        text = await page(rig)
        assert "5 of 6 running tasks are known" in text
        assert "(2: stored dump p-thr-1, 9m old, because py-spy [hangs])" in text
        assert "nothing is known of 4:" in text
        assert "the worker is gone" in text


@pytest.mark.asyncio
async def test_a_read_only_console_touches_no_task() -> None:
    kept = scripted(FakeClock())
    async with console(kept.client, read_only=True) as rig:
        text = await page(rig)
        assert "1 of 6 running tasks" in text
        assert "this console is read-only" in text
        assert not kept.client.called("ProfileTask")


@pytest.mark.asyncio
async def test_a_job_that_does_not_run_says_so() -> None:
    async with console() as rig:
        rig.app.run_command("hang /dan/oom")
        await rig.until(lambda: "no task of /dan/oom is running: the job is failed" in rig.screen_text())
