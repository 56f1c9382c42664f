"""Breaking the lock of a cluster whose procedure is dead: a person's decision, about exactly the lock that was shown.

A dead procedure can be told from a slow one only where its journal is, so the gate says who holds the lock and for how long, what the
record says, and whether a process of this machine drives that procedure; the lock is freed by overwriting that very generation, never by
deleting it. What stands there may be no lock at all (torn, foreign, of another version): then the gate shows it as it is. Must never
free a lock that has changed hands since.
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
from iris_core.procedures.record import PROGRAM

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore

GATE: Final = "break-lock"
_RESUMES: Final = (
    ("rollout-", "rollout resume"),
    ("db-rollback-", "runbook db-rollback --resume"),
    ("worker-restart-", "cluster controller worker-restart --resume"),
    ("withdraw-", "cluster controller withdraw-rollback --resume"),
)
"""By how the id of a procedure begins; all others are those of `restart`."""


def _not_here(procedure: str) -> bool | None:
    return None


async def break_lock(
    name: str,
    store: ObjectStore,
    now_ms: Callable[[], int],
    command: str,
    program: str = PROGRAM,
    driven: Callable[[str], bool | None] = _not_here,
) -> Procedure:
    """The procedure, for the cluster of that name. A lock that nobody holds is no failure.

    `program` begins a command line on this cluster; `driven` says whether a process of this machine drives the procedure of that id now,
    None = its journal is not here.
    """

    async def look(report: Report) -> dict[str, Any]:
        try:
            state = await to_thread(lock.read, store)
        except lock.LockUnreadable as error:
            words = f"what stands there cannot be understood, so that nobody knows who holds it: {error.shown}"
            found = {"words": words, "procedure": "", "generation": error.generation}
        else:
            holder = state.holder
            words = holder.words(now_ms()) if holder is not None else ""
            procedure = holder.procedure if holder is not None else ""
            found = {"words": words, "procedure": procedure, "generation": state.generation}
        if not words:
            return {**found, "record": "", "driven": None}
        try:
            standing = (await to_thread(record.read, store)).record
            said = f"{standing.phase} of {standing.image[:12]}" if standing is not None else "nothing yet"
        except IrisError as error:
            said = error.message
        return {**found, "record": said, "driven": await to_thread(driven, str(found["procedure"]))}

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
            _beside(held["driven"]),
        ),
        undo=(_undo(held["procedure"], program),),
        command=command,
        evidence={"procedure": held["procedure"], "generation": held["generation"]},
    )
    if choice != APPROVE:
        yield Outcome(status=Status.STOPPED, state="nothing was changed")
        return

    async def do() -> None:
        try:
            if await to_thread(_generation, store) != held["generation"]:
                raise NotStarted("the lock has changed hands meanwhile", hint="look again")
            alive: bool | None = await to_thread(driven, str(held["procedure"]))
            if alive and not held["driven"]:
                raise NotStarted("a process on this machine drives that procedure again", hint="look again")
            await to_thread(lock.break_, store, held["generation"])
        except GenerationMismatch as error:
            raise NotStarted("the lock has changed hands meanwhile", hint="look again") from error

    async def seen() -> World:
        return World.NOT_DONE if await to_thread(_generation, store) == held["generation"] else World.DONE

    yield Mutation(id="break", title="break the lock", gate=GATE, grant=grant, do=do, look=seen)
    yield Outcome(
        status=Status.DONE,
        state=f"the lock of {name} is free; "
        + (f"it was held by {held['procedure']}" if held["procedure"] else "what stood there was overwritten"),
        next=f"{program} cluster controller status shows how that left it",
    )


def _generation(store: ObjectStore) -> str:
    info = store.stat(lock.LOCK)
    return info.generation if info is not None else ""


def _beside(driven: bool | None) -> str:
    """What comes of it, by what is known of the one that holds the lock."""
    then = "somebody else can change this cluster then"
    if driven:
        return f"{then} while that procedure goes on: it is alive, a process on this machine drives it; wait for that one, or end it first"
    if driven is None:
        return f"{then}, also while that procedure goes on: see first that it is dead"
    return f"{then}; no process on this machine drives that procedure: see first that none does elsewhere"


def _undo(procedure: str, program: str) -> str:
    if not procedure:
        return "what stands there is not kept: copy it first if anybody may need it"
    return f"that procedure takes it again when it is resumed, if it is free: {program} {_resume(procedure)}"


def _resume(procedure: str) -> str:
    """The words that go on with a procedure of that id."""
    for begins, words in _RESUMES:
        if procedure.startswith(begins):
            return f"{words} {procedure}"
    return f"cluster controller restart --resume {procedure}"
