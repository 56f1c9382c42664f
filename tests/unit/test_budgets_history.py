"""Budgets that change in the middle of random histories: spend stays what a recount says, in memory and after a restart, and work of a user
over the limit is placed as BATCH and nothing else is."""

from __future__ import annotations

import random

from iris_controller.state.budgets import Budget
from iris_controller.state.overlay import Overlay
from iris_core.model.bands import PriorityBand
from tests.unit.test_kernel_simulation import Stored, long_history, persisted, replay

SEEDS = range(1_000, 1_100)
ENOUGH = 12
"""So many are run in any case, and more until one has taken the user over the limit."""
SET_BUDGET = 1_000
"""The kind of operation that the common simulation does not have."""
LIMITS = (0, 1, 4, 9, 1_000)


class Budgeted(Stored):
    """All jobs of the simulation are submitted by one user, whose limit changes; demotions are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.demoted = 0

    def _op(self, o: Overlay, op: int, a: int, b: int) -> dict[str, str] | None:
        if op == SET_BUDGET:
            o.put_budget(Budget("someone", LIMITS[a % len(LIMITS)], PriorityBand.SYSTEM, self.world.now_ms))
            return None
        return super()._op(o, op, a, b)

    def note(self, overlay: Overlay) -> None:
        super().note(overlay)
        model = self.world.model
        for (job_id, _), task in overlay.tasks.items():
            job = overlay.job(job_id) or model.jobs[job_id]
            asked = job.spec.band
            lowered = task.band is not asked
            if lowered:
                assert (asked, task.band) == (PriorityBand.INTERACTIVE, PriorityBand.BATCH)
            self.demoted += lowered


def history(seed: int) -> list[tuple[bool, list[tuple[int, int, int]]]]:
    """A long history of the simulation, with budgets set in between."""
    dice = random.Random(seed)
    batches = long_history(seed)
    return [
        (committed, [*ops, (SET_BUDGET, dice.randrange(99), 0)] if dice.random() < 0.3 else ops)
        for committed, ops in batches
    ]


def test_budgets_that_change_break_no_invariant_and_lower_work() -> None:
    demoted = 0
    for number, seed in enumerate(SEEDS):
        if number >= ENOUGH and demoted:
            break
        run = Budgeted()
        try:
            run.run([(True, [(14, i, 255) for i in range(3)]), *history(seed)])
            assert persisted(replay(run.batches)) == persisted(run.world.model)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            run.database.close()
        demoted += run.demoted
    assert demoted > 0, "no history took a user over the limit"
