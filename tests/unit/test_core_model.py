"""The model's edges: what is kept of finished work, what a restart must not forget, and timers that do not pile up."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from iris_controller.commits import Committed
from iris_controller.loop import ControllerLoop
from iris_controller.state import kernel, model, submit
from iris_controller.state.model import Model
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import ChildrenPolicy
from iris_controller.store import load
from iris_controller.timers import Timers
from iris_core.model.states import JobState, TaskState
from tests.unit.test_core_loop import SilentTicks, Store
from tests.unit.test_store_loop import NOW, job, rig, worker

KEEP = ChildrenPolicy.PRESERVE_CHILDREN


@pytest.fixture
def few_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "TERMINAL_KEPT", 3)
    monkeypatch.setattr(load, "TERMINAL_KEPT", 3)


@pytest.mark.asyncio
@pytest.mark.usefixtures("few_kept")
async def test_a_restart_keeps_the_ended_jobs_that_still_matter(tmp_path: Path) -> None:
    async with rig(tmp_path / "c.sqlite3") as r:
        await r.loop.submit("w", lambda o, now: o.workers.update({"w1": worker("w1")}))
        await r.loop.submit("held", lambda o, now: submit.admit(o, job("/u/held"), now))
        await r.until_quiet()
        await r.loop.submit("end", lambda o, now: kernel.cancel(o, "/u/held", "t", "r", now))
        assert r.model.held["/u/held"] == 1
        await r.loop.submit("p", lambda o, now: submit.admit(o, job("/u/p", children_policy=KEEP), now))
        await r.loop.submit("c", lambda o, now: submit.admit(o, job("/u/p/mid", children_policy=KEEP), now))
        await r.loop.submit("k", lambda o, now: submit.admit(o, job("/u/p/mid/kid"), now))
        await r.until_quiet()

        def end(o: Overlay, now: int, name: str) -> None:
            task = o.task(name, 0)
            assert task is not None
            kernel.observe(o, "w1", kernel.Observed(task.attempt_uid, TaskState.FAILED, exit_code=1), now)

        for name in ("/u/p/mid", "/u/p"):
            await r.loop.submit("end", lambda o, now, name=name: end(o, now, name))  # type: ignore[misc]
        assert r.model.jobs["/u/p"].state is JobState.FAILED
        assert r.model.jobs["/u/p/mid/kid"].state is JobState.RUNNING
        for n in range(10):
            await r.loop.submit("n", lambda o, now, n=n: submit.admit(o, job(f"/u/n{n}", 0), now))  # type: ignore[misc]
        loaded = r.loaded()
        assert {"/u/held", "/u/p", "/u/p/mid", "/u/p/mid/kid"} <= loaded.jobs.keys()
        assert loaded.held == r.model.held
        o = Overlay(loaded)
        assert kernel.cancel(o, "/u/p", "t", "r", NOW) == ["/u/p/mid/kid"], "what outlived its parent is still reached"
        with pytest.raises(submit.Refused, match="kid"):
            submit.admit(Overlay(loaded), job("/u/p"), NOW)
        assert isinstance(submit.admit(Overlay(loaded), job("/u/held"), NOW), submit.MustWait)


@pytest.mark.asyncio
async def test_capacity_in_the_database_is_given_back_with_a_job_that_is_replaced_by_force(tmp_path: Path) -> None:
    async with rig(tmp_path / "c.sqlite3") as r:
        await r.loop.submit("w", lambda o, now: o.workers.update({"w1": worker("w1")}))
        await r.loop.submit("a", lambda o, now: submit.admit(o, job("/u/a", 3), now))
        await r.until_quiet()
        await r.loop.submit("end", lambda o, now: kernel.cancel(o, "/u/a", "t", "r", now))
        await r.loop.submit(
            "again", lambda o, now: submit.admit(o, job("/u/a", 1, group_by="none-has-it"), now, force=True)
        )
        with closing(sqlite3.connect(r.path)) as connection:
            row = connection.execute("SELECT committed_cpu_millicores, committed_mem_bytes FROM workers").fetchone()
        assert row == (0, 0)
        assert not r.model.held and not r.model.attempts


@pytest.mark.asyncio
async def test_timers_of_ended_attempts_do_not_pile_up(tmp_path: Path) -> None:
    async with rig(tmp_path / "c.sqlite3") as r:
        timers = Timers(r.loop)
        await r.loop.submit("w", lambda o, now: o.workers.update({"w1": worker("w1")}))
        for n in range(60):
            new = job(f"/u/j{n}", 40, timeout_ms=86_400_000, scheduling_timeout_ms=86_400_000)
            await r.loop.submit("a", lambda o, now, new=new: submit.admit(o, new, now))  # type: ignore[misc]
            await r.until_quiet()

            def run(o: Overlay, now: int) -> None:
                for attempt in list(o.attempts_on("w1")):
                    for state in (TaskState.RUNNING, TaskState.SUCCEEDED):
                        kernel.observe(o, "w1", kernel.Observed(attempt.uid, state, exit_code=0), now)

            def begin(o: Overlay, now: int) -> None:
                for attempt in list(o.attempts_on("w1")):
                    kernel.observe(o, "w1", kernel.Observed(attempt.uid, TaskState.RUNNING), now)

            await r.loop.submit("run", begin)
            await r.loop.submit("end", run)
        assert r.model.jobs["/u/j59"].state is JobState.SUCCEEDED
        assert timers.waiting < 1_200, "2,400 tasks have ended"


@pytest.mark.asyncio
async def test_a_timer_still_fires_for_what_runs() -> None:
    clock = [0.0]
    loop = ControllerLoop(Model(), Store(), SilentTicks(), wall_ms=lambda: NOW)
    timers = Timers(loop, clock=lambda: clock[0])
    o = Overlay(loop.model)
    for n in range(3_000):
        submit.admit(o, job(f"/u/j{n}", scheduling_timeout_ms=5_000), NOW)
    timers._committed(Committed(1, loop.model.apply(o), NOW))
    o = Overlay(loop.model)
    for n in range(1, 3_000):
        kernel.cancel(o, f"/u/j{n}", "t", "r", NOW)
    timers._committed(Committed(2, loop.model.apply(o), NOW))
    assert timers.waiting < 2_000
    clock[0] = 4.9
    assert timers.fire() == 0
    clock[0] = 5.1
    assert timers.fire() == 1
    assert loop.depth == 1
