"""`cluster controller worker-restart`: the workers of a deployed controller onto the release that it runs, batch after batch.

A restart of the controller leaves its workers on the release that they were started from. This one ends each worker and has the next one begin
from the controller's release. The attempts of a worker end with it, because processes cannot be adopted: the gate names every worker
by the boot that it has, and every attempt that ends. What is not named is left alone: a worker that has got other work since, or has begun
anew by itself, is not ended for it. The batches grow while all is well, and end when more failed than was allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from iris_core.model.text import counted
from iris_core.procedures import lock
from iris_core.procedures.events import (
    APPROVE,
    Cancelled,
    Evidence,
    Gate,
    Outcome,
    Procedure,
    Status,
    Step,
    StepFailed,
)
from iris_core.procedures.record_moves import RecordMoves
from iris_core.procedures.seen_through import seen_through
from iris_core.procedures.worker_moves import Fleet, Wishes, Work, batches

if TYPE_CHECKING:
    from iris_core.live.clock import Clock
    from iris_core.procedures.target import Target

GATE: Final = "worker-restart"
TURNS: Final = 5
"""How often workers that were left, because they had got other work, are asked about."""
AGAIN: Final = "worker-restart --skip-current-hash"
"""What is done for the workers that are left."""


def worker_restart(target: Target, fleet: Fleet, wishes: Wishes, clock: Clock) -> Procedure:
    """The procedure. Told to end, it gives the lock back all the same."""
    return seen_through(_worker_restart(target, fleet, wishes, clock), ("unlock",))


async def _worker_restart(target: Target, fleet: Fleet, wishes: Wishes, clock: Clock) -> Procedure:
    """What ended on one worker may have begun on the next: those that were left for it are asked about anew."""
    work = Work(target, fleet, wishes, clock)
    so, release, turn = _SoFar(), "", 0
    moves: RecordMoves | None = None
    failure: StepFailed | Cancelled | None = None
    try:
        while True:
            turn += 1
            of_turn = "" if turn == 1 else f"-{turn}"
            yield Step(id=f"look{of_turn}", title=f"Look at the workers of {target.name}")
            before = yield Evidence(
                id=f"preflight{of_turn}",
                title="the controller and its workers",
                gather=work.preflight(tuple(sorted(so.left)) if so.left else wishes.worker_ids, again=turn > 1),
            )
            chosen = before["chosen"]
            if not chosen and moves is None:
                why = f"; left out: {'; '.join(before['left_out'])}" if before["left_out"] else ""
                yield Outcome(status=Status.DONE, state=f"there is no worker of {target.name} to restart{why}")
                return
            if not chosen or (release and before["release"] != release):
                break
            release, parts = before["release"], batches(chosen, wishes.min_batch, wishes.max_batch)
            gate = f"{GATE}{of_turn}"
            first = moves or RecordMoves(
                target, gate, old=before["tree"], new=before["tree"], boot="", before=before["record"]
            )
            choice = yield Gate(
                id=gate,
                title=f"Restart {counted(len(chosen), 'worker')} of {target.name}",
                grants=(*(first.locking if moves is None else ()), *(work.grant(part) for part in parts)),
                name=target.name,
                effects=_effects(before, parts, wishes),
                undo=(
                    "a worker that was restarted stays on the new release; tasks that ended are tried again, also elsewhere",
                    "told to end, this ends after the batch that was begun: the others stay as they are",
                ),
                command=target.command,
                evidence={"release": release, "workers": chosen},
            )
            if choice != APPROVE and moves is None:
                yield Outcome(status=Status.STOPPED, state="nothing was changed")
                return
            if choice != APPROVE:
                break
            so.chosen(row["worker_id"] for row in chosen)
            if moves is None:
                yield first.lock()
                moves = first
            for number, part in enumerate(parts, 1):
                so.begins(row["worker_id"] for row in part)
                said = yield work.batch(gate, f"{turn}.{number}", part)
                so.begun(said)
                seen = yield work.back(f"{turn}.{number}", said["told"], part, release)
                so.seen(seen)
                if len(so.failed) > wishes.max_failures:
                    break
            if not so.left or len(so.failed) > wishes.max_failures or wishes.idle_only or turn == TURNS:
                break
    except (StepFailed, Cancelled) as error:
        if moves is None:
            raise
        failure = error
    assert moves is not None
    details = [f"{name}: {why}" for name, why in sorted({**so.left, **so.failed}.items())]
    if so.ended:
        details.append(f"attempts that ended with their worker: {', '.join(so.ended)}")
    try:
        yield moves.unlock()
    except StepFailed as error:
        details.append(lock.kept(error.message, target.program))
    yield so.outcome(target, release, failure, tuple(details))


class _SoFar:
    """What has become of the workers."""

    def __init__(self) -> None:
        self._wanted: set[str] = set()
        self._open: set[str] = set()
        self.done: set[str] = set()
        self.left: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.ended: list[str] = []

    def chosen(self, names: Iterable[str]) -> None:
        """These are to be restarted, some of them perhaps after they were left."""
        for name in names:
            self._wanted.add(name)
            self.left.pop(name, None)

    def begins(self, names: Iterable[str]) -> None:
        """A batch is about to be told to end; until it was seen, nobody knows what became of it."""
        self._open = set(names)

    def begun(self, said: dict[str, Any]) -> None:
        """A batch was told to end."""
        self._open &= set(said["told"])
        self.left |= said["left"]
        self.failed |= said["failed"]
        self.ended += said["ended"]

    def seen(self, found: dict[str, str]) -> None:
        """A batch was watched: "" of a worker that is well."""
        self._open = set()
        for name, why in found.items():
            if why:
                self.failed[name] = why
            else:
                self.done.add(name)

    def outcome(
        self, target: Target, release: str, failure: StepFailed | Cancelled | None, details: tuple[str, ...]
    ) -> Outcome:
        """How it ended."""
        name, again = target.name, f"what is left: {target.controller(AGAIN)}"
        wanted = counted(len(self._wanted), "worker")
        so_far = f"{len(self.done)} of {wanted} of {name} restarted onto release {release}"
        if failure is None and len(self.done) == len(self._wanted):
            return Outcome(
                status=Status.DONE,
                state=f"{wanted} of {name} restarted onto release {release}",
                details=details,
            )
        untold = isinstance(failure, StepFailed) and failure.untouched
        if self._open and not untold:
            details = (*details, f"told to end, and not seen to be well again: {', '.join(sorted(self._open))}")
        if failure is None:
            untouched = len(self._wanted) - len(self.done) - len(self.failed) - len(self.left)
            rest = f"; {untouched} were not begun, because {len(self.failed)} failed" if untouched else ""
            return Outcome(status=Status.FAILED, state=f"{so_far}{rest}", next=again, details=details)
        state = f"{so_far}: {failure.message}"
        cancelled = isinstance(failure, Cancelled)
        unknown = isinstance(failure, StepFailed) and failure.unknown
        status = Status.CANCELLED if cancelled else Status.UNKNOWN if unknown else Status.FAILED
        return Outcome(status=status, state=state, next=failure.hint or again, details=details)


def _effects(before: dict[str, Any], parts: Sequence[Sequence[dict[str, Any]]], wishes: Wishes) -> tuple[str, ...]:
    sizes = ", ".join(str(len(part)) for part in parts)
    lines = [
        f"its workers are restarted onto release {before['release']}, which its controller runs, in batches of {sizes}",
        f"the next batch begins when the one before was healthy for {wishes.window_s:g} s;"
        f" when more than {wishes.max_failures} failed, no further one begins",
    ]
    ending = 0
    for row in (row for part in parts for row in part):
        keys = sorted(row["attempts"].values())
        ending += len(keys)
        lines.append(
            f"{row['worker_id']} (release {row['release'] or 'unknown'}):"
            f" {'ends ' + ', '.join(keys) if keys else 'nothing runs there'}"
        )
    if ending:
        lines.append(
            f"{counted(ending, 'attempt')} of tasks end with their worker, told to end first, and are tried again;"
            " a gang of which one ends is tried again whole"
        )
    lines.append("a worker that runs anything else when its turn comes is left as it is")
    lines += [f"left out: {line}" for line in before["left_out"]]
    return tuple(lines)
