"""Budgets in the model: what work costs, in which band it is served, whose budget it spends, and that a restart forgets nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_controller.state import kernel, submit
from iris_controller.state.budgets import Budget, budget_user, effective_band, task_value
from iris_controller.state.overlay import Overlay
from iris_controller.store import encode
from iris_controller.store.database import migrate
from iris_controller.store.load import load_model
from iris_core.model.bands import BANDS, PriorityBand
from iris_core.model.resources import Device, Resources
from iris_core.model.states import TaskState
from tests.unit.kernel_world import GB, JOB, World, check_invariants, job_spec

INTERACTIVE, BATCH, PRODUCTION = PriorityBand.INTERACTIVE, PriorityBand.BATCH, PriorityBand.PRODUCTION


@pytest.mark.parametrize(
    ("resources", "value"),
    [
        (Resources(100, GB, 5 * GB), 1),
        (Resources(999, GB - 1), 0),
        (Resources(3_900, 7 * GB + 1), 7 + 15),
        (Resources(1_000, 0, 0, Device("gpu", "h100", 8)), 8_005),
        (Resources(0, 2 * GB, 0, Device("tpu", "v5litepod-16", 4)), 4_002),
    ],
)
def test_a_task_costs_its_accelerators_memory_and_cores(resources: Resources, value: int) -> None:
    assert task_value(resources) == value


@given(st.sampled_from(PriorityBand), st.integers(0, 5_000), st.integers(0, 5_000))
def test_only_interactive_work_of_a_user_over_the_limit_is_taken_down(
    band: PriorityBand, limit: int, spent: int
) -> None:
    served = effective_band(band, limit, spent)
    if band in (INTERACTIVE, PriorityBand.INHERIT):
        assert served is (BATCH if limit and spent > limit else INTERACTIVE)
    else:
        assert served is band
    assert served in BANDS


@pytest.mark.parametrize(
    ("submitter", "owner"),
    [("ann@example.org", "ann@example.org"), ("", "u"), ("local_admin", "u")],
)
def test_a_job_spends_the_budget_of_who_submitted_it(submitter: str, owner: str) -> None:
    world = World()
    with world.batch() as o:
        submit.admit(o, submit.NewJob(JOB, submitter, 1, job_spec()), world.now_ms)
    assert budget_user(world.job()) == owner


def test_spend_follows_the_tasks_on_workers() -> None:
    world = World()
    world.add_worker(cpu=100)
    world.submit(tasks=3, cpu=2, max_retries_failure=1)
    assert world.model.spent == {}
    world.model.unplanned_users.clear()
    uid = world.assign(0)
    assert world.model.spent == {"someone": 10} and world.model.unplanned_users == {"someone"}
    world.running(1)
    assert world.model.spent == {"someone": 20}
    world.observe(uid, TaskState.FAILED, exit_code=1)
    assert world.model.spent == {"someone": 10}, "a task that waits for its retry costs nothing"
    with world.batch() as o:
        kernel.cancel(o, JOB, "someone", "", world.now_ms)
    assert world.model.spent == {} and world.model.tally.running == {}
    check_invariants(world.model)


def test_batch_work_is_free() -> None:
    world = World()
    world.add_worker()
    world.submit(cpu=2, band=BATCH)
    world.running()
    assert world.model.spent == {} and world.model.tally.running_total == 1


def test_a_job_replaced_while_it_runs_stops_to_cost() -> None:
    world = World()
    world.add_worker()
    world.submit(cpu=2)
    world.running()
    with world.batch() as o:
        kernel.cancel(o, JOB, "someone", "", world.now_ms)
        submit.admit(o, submit.NewJob(JOB, "someone", 1, job_spec()), world.now_ms, force=True)
    assert world.model.spent == {} and world.model.tally.running_total == 0
    check_invariants(world.model)


def test_who_has_no_row_has_the_defaults() -> None:
    world = World()
    assert world.model.budget_of("ann") == Budget("ann", 1_000, INTERACTIVE, 0)
    world.model.budget_defaults = Budget("", 7, BATCH)
    assert world.model.budget_of("ann") == Budget("ann", 7, BATCH, 0)


def test_every_version_of_a_budget_has_a_time_of_its_own() -> None:
    world = World()
    with world.batch() as o:
        first = o.put_budget(Budget("ann", 5, BATCH, world.now_ms))
        second = o.put_budget(replace(first, limit=6))
        assert o.budget_of("ann") == second
    with world.batch() as o:
        third = o.put_budget(Budget("ann", 6, BATCH, 1))
    assert first.updated_at_ms < second.updated_at_ms < third.updated_at_ms
    assert world.changes.budgets == {"ann"} and world.model.unplanned_users == {"ann"}


budgets = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2**62), st.sampled_from(BANDS)), max_size=8)


@given(st.lists(st.tuples(st.booleans(), budgets), max_size=4))
def test_a_restart_brings_the_budgets_back(batches: list[tuple[bool, list[tuple[str, int, PriorityBand]]]]) -> None:
    world = World()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        migrate(database, 0)
        for committed, rows in batches:
            o = Overlay(world.model)
            for user, limit, band in rows:
                o.put_budget(Budget(user, limit, band, world.now_ms))
            if committed and o.dirty:
                for sql, values in encode.statements(o, world.now_ms):
                    database.execute(sql, values)
                world.commit(o)
        assert load_model(database).budgets == world.model.budgets


def test_a_restart_brings_spend_and_stamped_bands_back() -> None:
    world = World()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        migrate(database, 0)

        def store(o: Overlay) -> None:
            for sql, values in encode.statements(o, world.now_ms):
                database.execute(sql, values)

        world.before_commit = store
        world.add_worker(cpu=100)
        world.submit(tasks=2, cpu=3)
        world.running(0)
        world.assign(1)
        with world.batch() as o:
            task = o.task(JOB, 1)
            assert task is not None
            o.set_task(task, band=BATCH)
        loaded = load_model(database)
    assert [t.band for t in loaded.tasks[JOB]] == [INTERACTIVE, BATCH]
    assert loaded.spent == world.model.spent == {"someone": 15}
    assert loaded.tally.running == {JOB: {(INTERACTIVE, "w"): 1}}
