"""Breaking a lock: its question says whether the procedure that holds it is alive, as far as this machine can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from iris_core.procedures import lock
from iris_core.procedures.approvals import Answer
from iris_core.procedures.break_lock import break_lock
from iris_core.procedures.engine import Engine
from iris_core.procedures.events import APPROVE, Gate, Outcome, Status
from iris_core.procedures.journal import Journal
from iris_core.procedures.lock import Holder
from providers.fake.clock import FakeClock
from providers.fake.objects import FakeStore
from tests.unit.restart_world import require_pasteable

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.asyncio
PROGRAM = "iris-core --cluster=lab"


class Breaking:
    """A lock that `procedure` holds, and a person who breaks it; `alive` is what this machine knows of that procedure."""

    def __init__(self, folder: Path, procedure: str, *, alive: bool | None) -> None:
        self.folder, self.alive = folder, alive
        self.store = FakeStore()
        self.gate: Gate | None = None
        self.on_ask: Callable[[], None] = lambda: None
        lock.acquire(self.store, Holder(procedure, "bob", "tower", 1))

    async def ask(self, gate: Gate) -> Answer:
        self.gate = gate
        self.on_ask()
        return Answer(APPROVE, typed="lab")

    async def run(self) -> Outcome:
        made = break_lock("lab", self.store, lambda: 300_000, "the words", PROGRAM, lambda procedure: self.alive)
        with Journal.create(self.folder / "break.jsonl") as journal:
            outcome = await Engine(journal, self, FakeClock(), account="ada").run("break-lock", {}, made)
        require_pasteable(outcome, PROGRAM)
        return outcome


@pytest.mark.parametrize(
    ("alive", "words"),
    [
        (True, "while that procedure goes on: it is alive, a process on this machine drives it; wait for that one"),
        (False, "; no process on this machine drives that procedure: see first that none does elsewhere"),
        (None, ", also while that procedure goes on: see first that it is dead"),
    ],
)
async def test_the_question_says_what_this_machine_knows_of_the_procedure(
    tmp_path: Path, alive: bool | None, words: str
) -> None:
    breaking = Breaking(tmp_path, "restart-7", alive=alive)
    outcome = await breaking.run()
    assert breaking.gate is not None and words in breaking.gate.effects[-1]
    assert outcome.status is Status.DONE and lock.read(breaking.store).holder is None, "the person decides"


@pytest.mark.parametrize(
    ("procedure", "command"),
    [
        ("rollout-1", "rollout resume rollout-1"),
        ("db-rollback-1", "runbook db-rollback --resume db-rollback-1"),
        ("worker-restart-1", "cluster controller worker-restart --resume worker-restart-1"),
        ("withdraw-1", "cluster controller withdraw-rollback --resume withdraw-1"),
        ("rollback-1", "cluster controller restart --resume rollback-1"),
    ],
)
async def test_it_names_the_command_that_goes_on_with_the_procedure(
    tmp_path: Path, procedure: str, command: str
) -> None:
    breaking = Breaking(tmp_path, procedure, alive=False)
    await breaking.run()
    assert breaking.gate is not None and breaking.gate.undo[0].endswith(f": {PROGRAM} {command}")


async def test_a_procedure_that_goes_on_again_while_the_question_stands_keeps_its_lock(tmp_path: Path) -> None:
    breaking = Breaking(tmp_path, "restart-7", alive=False)

    def resume() -> None:
        breaking.alive = True

    breaking.on_ask = resume
    outcome = await breaking.run()
    assert outcome.status is Status.FAILED and "a process on this machine drives that procedure again" in outcome.state
    holder = lock.read(breaking.store).holder
    assert holder is not None and holder.procedure == "restart-7"
