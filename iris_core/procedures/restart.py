"""The restart of a controller into another release, forward: everything that can fail is tried before the old one is touched.

preflight → tree → gate → lock → build and stage → a first checkpoint → record PENDING → checkpoint and stop → start → health →
COMMITTED (rollout §2.2). A failure before the stop restores the record that stood, so that no later boot acts on it (the hazard of
§2.7). After the stop the release that ran before is started again, if the new one's database is the same; otherwise everything is left
stopped, and the end says where the checkpoint is. A controller that cannot be reached is never taken for one that is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from iris_core.contracts import ConnectFailed, ControllerHost, ControllerUnhealthy, IrisError
from iris_core.procedures import lock, record
from iris_core.procedures.events import (
    APPROVE,
    Cancelled,
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
    StepFailed,
    World,
)
from iris_core.procedures.record import Phase, RolloutRecord
from iris_core.procedures.source_tree import SourceTree

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore
    from iris_core.procedures.lock import Holder

T = TypeVar("T")
GATE: Final = "restart"
HEALTH_S: Final = 120.0
STAGE_S: Final = 2_700.0
ENDING_S: Final = 90.0
"""What a controller may take to end once its last checkpoint is answered."""
LOST_ANSWER_S: Final = 10.0
LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Target:
    """What is restarted, and by what means. Each call may block and may raise IrisError.

    Attributes:
        name: The cluster's, which has to be typed.
        holder: Who takes the lock; its procedure is this one.
        freeze: The tree that is to be shipped.
        build: Builds the release of a tree, or finds it built; its id is the tree's.
        schema: The migrations that a release knows, in order.
        running: Tasks of the running controller by state, asked of itself.
        checkpoint: Has it save its state, and end if told so, within so many seconds; says where.
        restore_hint: How a checkpoint is put back by hand, of its path.
        command: The command line that does the same.
    """

    name: str
    host: ControllerHost
    store: ObjectStore
    holder: Holder
    now_ms: Callable[[], int]
    freeze: Callable[[], SourceTree]
    build: Callable[[SourceTree], str]
    schema: Callable[[str], Sequence[str]]
    running: Callable[[], dict[str, int]]
    checkpoint: Callable[[bool, float], str]
    restore_hint: Callable[[str], str]
    command: str


async def _off(call: Callable[..., T], *words: Any) -> T:
    return await asyncio.to_thread(call, *words)


def _as_value(tree: SourceTree) -> dict[str, Any]:
    return {
        "id": tree.id,
        "root": str(tree.root),
        "branch": tree.branch,
        "base": tree.base,
        "subject": tree.subject,
        "dirty": list(tree.dirty),
        "warnings": tree.warnings(),
    }


def _as_tree(value: dict[str, Any]) -> SourceTree:
    return SourceTree(
        value["id"], Path(value["root"]), value["branch"], value["base"], value["subject"], tuple(value["dirty"])
    )


async def restart(target: Target, *, skip_checkpoint: bool = False, checkpoint_timeout_s: float = 300.0) -> Procedure:
    """The procedure. `skip_checkpoint` leaves out both checkpoints: then there is none to go back to."""
    work = _Work(target, checkpoint_timeout_s)
    yield Step(id="look", title=f"Look at {target.name}")
    before = yield Evidence(id="preflight", title="the controller, its record and its lock", gather=work.preflight)
    tree = yield Evidence(id="tree", title="the tree", gather=work.tree, timeout_s=300.0)
    new, old, boot = tree["id"], before["release"], before["boot_id"]
    work.begin(tree, before)
    take, give = Grant("take", "lock", target.name), Grant("give back", "lock", target.name)
    stage, save = Grant("stage", "release", new), Grant("save", "checkpoint", target.name)
    pend, commit = Grant("write pending", "record", new), Grant("write committed", "record", new)
    name_last, restore = Grant("name the last checkpoint in", "record", new), Grant("restore", "record", old)
    stop, start = Grant("stop", "controller", target.name, boot), Grant("start", "release", new)
    back, halt = Grant("start again", "release", old), Grant("halt", "release", new)
    choice = yield Gate(
        id=GATE,
        title=f"Restart the controller of {target.name}",
        grants=(take, stage, save, pend, stop, name_last, start, commit, back, halt, restore, give),
        name=target.name,
        effects=_effects(target, before, tree, skip_checkpoint),
        undo=(
            f"a release that does not become healthy is replaced by {old[:12]} if it did not change the database",
            "a checkpoint is put back by hand, and drops what came after it" if not skip_checkpoint else "there is no checkpoint to go back to",
        ),
        command=target.command,
        evidence={"tree": new, "boot_id": boot},
    )  # fmt: skip
    if choice != APPROVE:
        yield Outcome(status=Status.STOPPED, state="nothing was changed")
        return

    def mutation(id_: str, title: str, grant: Grant, do: Any, look: Any, **more: Any) -> Mutation:
        return Mutation(id=id_, title=title, gate=GATE, grant=grant, do=do, look=look, **more)

    checkpoint, failure, reached = "", None, "nothing"
    try:
        yield mutation("lock", f"take the lock of {target.name}", take, work.lock, work.locked)
        reached = "locked"
        yield mutation("stage", f"build and stage {new[:12]}", stage, work.stage, work.not_done, timeout_s=STAGE_S)
        if not skip_checkpoint:
            checkpoint = yield mutation(
                "checkpoint", "take a checkpoint", save, work.save, work.not_done, timeout_s=checkpoint_timeout_s + 60
            )
        reached = "pending"
        pending = work.pending(checkpoint)
        yield mutation("pending", "write the record: pending", pend, pending, work.is_pending)
        reached = "stopping"
        last = yield mutation(
            "stop", "stop the controller", stop, work.stop_plainly if skip_checkpoint else work.stop, work.stopped,
            result=work.nothing_said, generation=work.boot, timeout_s=checkpoint_timeout_s + ENDING_S + 60,
        )  # fmt: skip
        reached = "stopped"
        if last:
            checkpoint = last
            yield mutation("last", "name the last checkpoint", name_last, work.name_last(last), work.names(last))
        yield mutation("start", f"start {new[:12]}", start, work.start, work.started)
        reached = "started"
        healthy = yield Evidence(id="health", title="health", gather=work.health(new), timeout_s=HEALTH_S + 60)
        reached = "healthy"
        yield mutation("commit", "write the record: committed", commit, work.commit, work.is_committed)
    except (StepFailed, Cancelled) as error:
        failure = error

    details: list[str] = []
    if failure is None:
        try:
            yield mutation("unlock", "give the lock back", give, work.unlock, work.unlocked)
        except StepFailed as error:
            details.append(f"the lock was not given back: {error.message}")
        yield Outcome(
            status=Status.DONE,
            state=f"{target.name} runs release {new[:12]} at {healthy['url']}",
            details=(f"before it {old[:12]}", f"checkpoint {checkpoint or 'none'}", *details),
        )
        return
    unknown = isinstance(failure, StepFailed) and failure.unknown
    if reached == "stopping" and unknown:
        yield Outcome(
            status=Status.UNKNOWN,
            state=f"{failure.message}; the record is pending and the lock is kept",
            next="look at it: cluster controller status",
        )
        return
    if reached == "healthy":
        yield mutation("unlock", "give the lock back", give, work.unlock, work.unlocked)
        yield Outcome(
            status=Status.FAILED,
            state=f"release {new[:12]} runs and is healthy, and the record is still pending: {failure.message}",
            next="the next restart puts the record right",
        )
        return
    status, state, then = Status.FAILED, f"nothing was changed: {failure.message}", failure.hint
    if isinstance(failure, Cancelled) and reached in ("nothing", "locked", "pending", "stopping"):
        status = Status.CANCELLED
    if reached in ("stopped", "started"):
        same = yield Evidence(id="schema", title="the database of both releases", gather=work.same_schema(reached))
        if same:
            try:
                yield mutation("back", f"start {old[:12]} again", back, work.back, work.is_back, timeout_s=300.0)
                yield Evidence(
                    id="back-health",
                    title="health of the release before",
                    gather=work.health(old),
                    timeout_s=HEALTH_S + 60,
                )
                status, then = Status.ROLLED_BACK, "mend it and restart again"
                state = f"{target.name} runs {old[:12]} again, nothing was lost: {failure.message}"
            except StepFailed as error:
                state = f"{failure.message}; and {old[:12]} did not come up again either: {error.message}"
                then = "look at the log, then: cluster controller stop, cluster controller start"
        else:
            yield mutation("halt", f"stop {new[:12]}", halt, work.halt, work.stopped, timeout_s=300.0)
            state = f"no controller of {target.name} runs, and its database is that of {new[:12]}: {failure.message}"
            then = target.restore_hint(checkpoint)
    try:
        if reached not in ("nothing", "locked"):
            yield mutation("restore", "restore the record", restore, work.restore, work.restored)
        if reached != "nothing":
            yield mutation("unlock", "give the lock back", give, work.unlock, work.unlocked)
    except StepFailed as error:
        details.append(f"the record and the lock are not as they were: {error.message}")
    yield Outcome(status=status, state=state, next=then, details=tuple(details))


def _effects(target: Target, before: dict[str, Any], tree: dict[str, Any], skip: bool) -> tuple[str, ...]:
    running = before["tasks"].get("running", 0)
    lines = [
        f"ships tree {tree['id']} ({tree['branch']}, {tree['subject']}) in the place of {before['release']}",
        *tree["warnings"],
        f"{target.name} is without a controller for some seconds; {running} running tasks go on",
    ]
    if skip:
        lines.append("no checkpoint is taken")
    return tuple(lines)


class _Work:
    """What the events do, on the target of one restart."""

    def __init__(self, target: Target, checkpoint_timeout_s: float) -> None:
        self._t = target
        self._timeout_s = checkpoint_timeout_s
        self._tree: dict[str, Any] = {}
        self._before: dict[str, Any] = {}

    def begin(self, tree: dict[str, Any], before: dict[str, Any]) -> None:
        self._tree, self._before = tree, before

    # --- evidence ------------------------------------------------------------------------------------------------

    async def preflight(self, report: Report) -> dict[str, Any]:
        """Raises IrisError: this is no controller to be restarted now."""
        t = self._t
        state = await _off(lock.read, t.store)
        if state.holder is not None and state.holder.procedure != t.holder.procedure:
            raise lock.LockHeld(state, t.now_ms())
        status = await _off(t.host.status)
        if not status.running:
            raise IrisError(f"no controller of {t.name} runs: {status.detail}", hint="cluster controller start")
        if not (status.url and status.boot_id and status.release):
            raise IrisError(f"the controller of {t.name} does not serve: {status.detail}", hint="look at its log first")
        tasks = await _off(t.running)
        standing = (await _off(record.read, t.store)).record
        if standing is not None and standing.phase in (Phase.PENDING, Phase.ROLLBACK_REQUESTED):
            ours = standing.phase is Phase.PENDING and standing.image == status.release
            if not ours:
                raise IrisError(
                    f"the deployment of {standing.image[:12]} is {standing.phase}, and {status.release[:12]} runs",
                    hint="that deployment has to end first",
                )
        return {
            "release": status.release,
            "boot_id": status.boot_id,
            "tasks": tasks,
            "record": standing.to_json().decode() if standing is not None else "",
        }

    async def tree(self, report: Report) -> dict[str, Any]:
        return _as_value(await _off(self._t.freeze))

    def health(self, release: str) -> Callable[[Report], Any]:
        async def gather(report: Report) -> dict[str, Any]:
            try:
                status = await _off(self._t.host.await_healthy, HEALTH_S)
            except ControllerUnhealthy as error:
                report({"lines": list(error.lines)})
                raise
            if status.release != release:
                raise IrisError(f"{status.release[:12]} runs instead of {release[:12]}")
            return {"url": status.url, "boot_id": status.boot_id}

        return gather

    def same_schema(self, reached: str) -> Callable[[Report], Any]:
        async def gather(report: Report) -> bool:
            if reached == "stopped":
                return True  # the new release never ran
            new, old = self._tree["id"], self._before["release"]
            return list(await _off(self._t.schema, new)) == list(await _off(self._t.schema, old))

        return gather

    async def boot(self) -> str:
        return (await _off(self._t.host.status)).boot_id

    # --- lock and record -----------------------------------------------------------------------------------------

    async def lock(self) -> None:
        try:
            await _off(lock.acquire, self._t.store, self._t.holder)
        except lock.LockHeld as error:
            raise NotStarted(error.message, hint=error.hint) from error

    async def locked(self) -> World:
        holder = (await _off(lock.read, self._t.store)).holder
        return World.DONE if holder is not None and holder.procedure == self._t.holder.procedure else World.NOT_DONE

    async def unlock(self) -> None:
        await _off(lock.release, self._t.store, self._t.holder.procedure)

    async def unlocked(self) -> World:
        return World.NOT_DONE if await self.locked() is World.DONE else World.DONE

    async def _standing(self) -> record.Standing:
        return await _off(record.read, self._t.store)

    async def _write(self, made: RolloutRecord, standing: record.Standing) -> None:
        await _off(record.write, self._t.store, made, standing)

    def pending(self, checkpoint: str) -> Callable[[], Any]:
        async def do() -> None:
            now, new, old = self._t.now_ms(), self._tree["id"], self._before["release"]
            standing = await self._standing()
            if standing.record is not None and standing.record.phase is Phase.PENDING:
                # Its driver did not get to it; that it is healthy was seen.
                standing = record.Standing(record.committed(standing, old, now), standing.generation)
            made = record.pending(standing, new, checkpoint, now)
            await self._write(replace(made, previous_image=made.previous_image or old), standing)

        return do

    async def _phase(self) -> tuple[Phase | None, str, str]:
        found = (await self._standing()).record
        return (found.phase, found.image, found.rollback_checkpoint) if found is not None else (None, "", "")

    async def is_pending(self) -> World:
        return World.DONE if (await self._phase())[:2] == (Phase.PENDING, self._tree["id"]) else World.NOT_DONE

    def name_last(self, checkpoint: str) -> Callable[[], Any]:
        async def do() -> None:
            standing = await self._standing()
            record.committed(standing, self._tree["id"], 0)  # refuses unless it is pending for this release
            assert standing.record is not None
            made = replace(standing.record, rollback_checkpoint=checkpoint, updated_at_ms=self._t.now_ms())
            await self._write(made, standing)

        return do

    def names(self, checkpoint: str) -> Callable[[], Any]:
        async def look() -> World:
            return World.DONE if (await self._phase())[2] == checkpoint else World.NOT_DONE

        return look

    async def commit(self) -> None:
        standing = await self._standing()
        await self._write(record.committed(standing, self._tree["id"], self._t.now_ms()), standing)

    async def is_committed(self) -> World:
        return World.DONE if (await self._phase())[:2] == (Phase.COMMITTED, self._tree["id"]) else World.NOT_DONE

    async def restore(self) -> None:
        """Writes what stood before over our own pending record, and over nothing else."""
        standing = await self._standing()
        if await self.is_pending() is not World.DONE:
            return
        said = self._before["record"]
        made = (
            record.parse(said.encode())
            if said
            else RolloutRecord(Phase.COMMITTED, self._before["release"], updated_at_ms=self._t.now_ms())
        )
        await self._write(made, standing)

    async def restored(self) -> World:
        return World.NOT_DONE if await self.is_pending() is World.DONE else World.DONE

    # --- releases and checkpoints --------------------------------------------------------------------------------

    async def stage(self) -> None:
        built = await _off(self._t.build, _as_tree(self._tree))
        if built != self._tree["id"]:
            raise IrisError(f"{built[:12]} was built instead of {self._tree['id'][:12]}")
        await _off(self._t.host.stage, built)

    async def not_done(self) -> World:
        """What may be done twice."""
        return World.NOT_DONE

    async def save(self) -> str:
        return await _off(self._t.checkpoint, False, self._timeout_s)

    # --- the controller ------------------------------------------------------------------------------------------

    async def stop(self) -> str:
        """The checkpoint it wrote before it ended. Raises NotStarted: it goes on."""
        checkpoint = ""
        try:
            checkpoint = await _off(self._t.checkpoint, True, self._timeout_s)
        except ConnectFailed as error:
            # Its answer may be lost while it ends.
            if not await self._ended(LOST_ANSWER_S):
                raise NotStarted(f"{error.message}; the controller goes on", hint=error.hint) from error
        except IrisError as error:
            raise NotStarted(error.message, hint=error.hint) from error
        await self._ended(ENDING_S)
        await _off(self._t.host.stop)
        return checkpoint

    async def _ended(self, within_s: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while (await _off(self._t.host.status)).running:
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def stop_plainly(self) -> str:
        await _off(self._t.host.stop)
        return ""

    async def nothing_said(self) -> str:
        return ""

    async def stopped(self) -> World:
        return World.NOT_DONE if (await _off(self._t.host.status)).running else World.DONE

    async def start(self) -> None:
        await _off(self._t.host.start, self._tree["id"])

    async def _runs(self, release: str) -> World:
        status = await _off(self._t.host.status)
        return World.DONE if status.running and status.release == release else World.NOT_DONE

    async def started(self) -> World:
        return await self._runs(self._tree["id"])

    async def halt(self) -> None:
        await _off(self._t.host.stop)

    async def back(self) -> None:
        await _off(self._t.host.stop)
        await _off(self._t.host.start, self._before["release"])

    async def is_back(self) -> World:
        return await self._runs(self._before["release"])
