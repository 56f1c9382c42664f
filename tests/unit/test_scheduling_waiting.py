"""The queue as a reader sees it: positions are those of users who take turns task by task, counted out one by one."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from iris_controller.scheduling.waiting import queue, reasons
from iris_controller.state import submit
from iris_controller.state.budgets import Budget
from iris_core.model.bands import BANDS, PriorityBand
from tests.unit.kernel_world import World, job_spec

INTERACTIVE, BATCH = PriorityBand.INTERACTIVE, PriorityBand.BATCH

jobs = st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from(BANDS), st.integers(1, 6)), max_size=14)
spenders = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 4), max_size=5)


def world_of(waiting: list[tuple[str, PriorityBand, int]], spending: dict[str, int]) -> World:
    """Users a–e; those who spend have a task of so many cores on a worker, and are over a limit of 12 from three on."""
    world = World()
    world.add_worker(cpu=100)
    with world.batch() as o:
        for user in "abcde":
            o.put_budget(Budget(user, 12, PriorityBand.SYSTEM))
    for user, cores in spending.items():
        name = f"/{user}/spends"
        with world.batch() as o:
            submit.admit(o, submit.NewJob(name, user, 1, job_spec(cpu=cores)), world.now_ms)
        world.assign(0, name)
    for n, (user, band, tasks) in enumerate(waiting):
        with world.batch() as o:
            submit.admit(o, submit.NewJob(f"/{user}/j{n}", user, tasks, job_spec(band=band)), world.now_ms)
    return world


@given(jobs, spenders)
def test_positions_are_those_of_taking_turns(
    waiting: list[tuple[str, PriorityBand, int]], spending: dict[str, int]
) -> None:
    world = world_of(waiting, spending)
    found = queue(world.model)
    assert sorted(w.job.job_id for w in found) == sorted(world.model.pending)
    assert [w.count for w in found] == [len(world.model.pending[w.job.job_id]) for w in found]
    assert [w.position for w in found] == sorted({w.position for w in found}), (
        "two buckets at one place, or out of order"
    )
    for w in found:
        over = world.model.spent.get(w.user_id, 0) > 12
        asked = w.job.spec.band
        assert w.band is (BATCH if over and asked is INTERACTIVE else asked)
    served = 0
    for band in BANDS:
        lines: dict[str, deque[str]] = {}
        for w in (w for w in found if w.band is band):
            lines.setdefault(w.user_id, deque()).extend([w.job.job_id] * w.count)
        assert [world.model.spent.get(user, 0) for user in lines] == sorted(
            world.model.spent.get(user, 0) for user in lines
        ), "whoever spends least comes first"
        first: dict[str, int] = {}
        turns = deque(lines.values())
        while turns:
            line = turns.popleft()
            served += 1
            first.setdefault(line.popleft(), served)
            if line:
                turns.append(line)
        assert first == {w.job.job_id: w.position for w in found if w.band is band}


def test_the_reasons_are_counted_and_what_has_none_yet_is_left_out() -> None:
    world = world_of([("a", INTERACTIVE, 2), ("b", INTERACTIVE, 1), ("c", BATCH, 1)], {})
    world.take_reasons({"/a/j0": "no room", "/b/j1": "no room"})
    found = {
        reason: [w.job.job_id for w in buckets] for reason, buckets in reasons(world.model, queue(world.model)).items()
    }
    assert found == {"no room": ["/a/j0", "/b/j1"]}
