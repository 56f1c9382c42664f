"""Breaking the lock of a cluster whose procedure is dead: a person's decision, about exactly the lock that was shown.

Nothing can tell a dead procedure from a slow one, so the gate says who holds the lock and for how long, and what the record says; the
lock is freed by overwriting that very generation, never by deleting it. Must never free a lock that has changed hands since.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import GenerationMismatch, IrisError
from iris_core.procedures import lock, record
from iris_core.procedures.events import (
    APPROVE,
    Evidence,
    Gate,
    Grant,
    Mutation,
    NotStarted,
    Outcome,
    Procedure,
    Report,
    Status,
    Step,
    World,
)

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore

GATE: Final = "break-lock"


async def break_lock(name: str, store: ObjectStore, now_ms: Callable[[], int], command: str) -> Procedure:
    """The procedure, for the cluster of that name. A lock that nobody holds is no failure."""

    async def look(report: Report) -> dict[str, Any]:
        state = await to_thread(lock.read, store)
        if state.holder is None:
            return {"words": "", "procedure": "", "generation": state.generation, "record": ""}
        try:
            found = (await to_thread(record.read, store)).record
            said = f"{found.phase} of {found.image[:12]}" if found is not None else "nothing yet"
        except IrisError as error:
            said = error.message
        return {
            "words": state.holder.words(now_ms()),
            "procedure": state.holder.procedure,
            "generation": state.generation,
            "record": said,
        }

    yield Step(id="look", title=f"Look at the lock of {name}")
    held = yield Evidence(id="lock", title="who holds the lock", gather=look)
    if not held["words"]:
        yield Outcome(status=Status.DONE, state=f"nobody holds the lock of {name}")
        return
    grant = Grant("break", "lock", name, held["generation"])
    choice = yield Gate(
        id=GATE,
        title=f"Break the lock of {name}",
        grants=(grant,),
        name=name,
        effects=(
            held["words"],
            f"the record says {held['record']}",
            "somebody else can change this cluster then, also while that procedure goes on: see first that it is dead",
        ),
        undo=(f"that procedure takes it again when it is resumed, if it is free: {_resume(held['procedure'])}",),
        command=command,
        evidence={"procedure": held["procedure"], "generation": held["generation"]},
    )
    if choice != APPROVE:
        yield Outcome(status=Status.STOPPED, state="nothing was changed")
        return

    async def do() -> None:
        state = await to_thread(lock.read, store)
        if state.generation != held["generation"]:
            raise NotStarted("the lock has changed hands meanwhile", hint="look again")
        try:
            await to_thread(lock.break_, store, state)
        except GenerationMismatch as error:
            raise NotStarted("the lock has changed hands meanwhile", hint="look again") from error

    async def seen() -> World:
        found = (await to_thread(lock.read, store)).holder
        return World.NOT_DONE if found is not None and found.procedure == held["procedure"] else World.DONE

    yield Mutation(id="break", title="break the lock", gate=GATE, grant=grant, do=do, look=seen)
    yield Outcome(
        status=Status.DONE,
        state=f"the lock of {name} is free; it was held by {held['procedure']}",
        next="cluster controller status shows how that left it",
    )


def _resume(procedure: str) -> str:
    """The words that go on with a procedure of that id."""
    return f"rollout resume {procedure}" if procedure.startswith("rollout-") else f"restart --resume {procedure}"
