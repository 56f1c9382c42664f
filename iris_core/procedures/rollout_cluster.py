"""One cluster of a rollout: how it is, the restart, a smoke job in the background, the watch, the verdict (rollout §1.5-1.8).

The restart is the procedure of `cluster controller restart`, with its own gate; what a rollout does besides stands at that gate, too. The
lock stays taken until the verdict, so that nobody ships anything else into the watch. What is decided on a verdict that fails is to
stop, or to roll back behind a gate of its own; there is no third way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError
from iris_core.procedures import lock, record
from iris_core.procedures import rollout_checks as checks
from iris_core.procedures import rollout_watch as watching
from iris_core.procedures.events import (
    STOP,
    Cancelled,
    Evidence,
    Gate,
    Grant,
    Mutation,
    Outcome,
    Procedure,
    Report,
    Status,
    Step,
    StepFailed,
    World,
)
from iris_core.procedures.nested import Inner, Parts
from iris_core.procedures.restart import GATE, Target, restart
from iris_core.procedures.rollout_checks import Check
from iris_core.procedures.seen_through import through

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from iris_core.live.clock import Clock
    from iris_core.procedures.downtime import Downtime
    from iris_core.procedures.rollout_scope import Candidate
    from iris_core.procedures.rollout_watch import Sample
    from iris_core.procedures.source_tree import SourceTree

SKIP: Final = "skip"
ROLL_BACK: Final = "roll back"
SMOKE_S: Final = 1_800.0
SMOKE_POLL_S: Final = 10.0
SMOKE_ARGV: Final = ("bash", "-c", "echo hello world")
SMOKE_LINES: Final = 20
UNLOCK: Final = "unlock"


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster, and by what means it is looked at and changed. Calls may block and may raise IrisError.

    Attributes:
        candidate: Its name, kind and capacity.
        target: What a restart into a tree works on.
        checks: What its kind needs, besides what every cluster does.
        sample: One look at it.
        downtime: Measures how long it does not answer.
        submit: Submits the smoke job of that name, once; its id.
        smoke: How the job of that id is: {"state", "ended", "passed", "lines"}, None if there is none.
        job_id: The id that the smoke job of that name has.
        roll_back: The procedure that goes back to what was before a restart.
    """

    candidate: Candidate
    target: Callable[[SourceTree], Target]
    checks: tuple[Check, ...]
    sample: Callable[[], Sample]
    downtime: Downtime
    submit: Callable[[str], str]
    smoke: Callable[[str], dict[str, Any] | None]
    job_id: Callable[[str], str]
    roll_back: Callable[[], Procedure] | None = None

    @property
    def name(self) -> str:
        """The cluster's, which has to be typed."""
        return self.candidate.name


@dataclass(slots=True)
class Taken:
    """How far one cluster came.

    Attributes:
        skipped: It was left as it is, by choice.
        shipped: It runs the new release.
        verdict: On its watch: {"passed", "concerns", "notes"}; None before.
        outcome: What ended it there, None while it goes on.
        before: The release that ran.
        notes: What the end of the rollout should say of it.
    """

    skipped: bool = False
    shipped: bool = False
    verdict: dict[str, Any] | None = None
    outcome: Outcome | None = None
    before: str = ""
    notes: list[str] = field(default_factory=list)


class Cluster:
    """The part of a rollout that is about one cluster; what came of it is in `taken`."""

    def __init__(
        self, procedure: str, site: Site, tree: SourceTree, clock: Clock, *, skippable: bool, timeout_s: float
    ) -> None:
        self.taken = Taken()
        self._procedure = procedure
        self._site = site
        self._tree = tree
        self._clock = clock
        self._skippable = skippable
        self._timeout_s = timeout_s
        self._smoke = ""
        self._boot = ""

    async def run(self) -> Parts:
        """The events. It yields no outcome: `taken` has it."""
        site, taken = self._site, self.taken
        yield Step(id="begin", title=f"{site.name}: {self._tree.id[:12]}")
        before = yield Evidence(id="snapshot", title=f"how {site.name} is before", gather=self._snapshot)
        taken.before = before["tree"]
        # Named after the time of the snapshot, which is in the journal: a run that goes on finds the job of the one before.
        self._smoke = f"deploy-smoke-{before['at_ms'] // 1000}"
        inner = Inner(
            "",
            restart(site.target(self._tree), checkpoint_timeout_s=self._timeout_s),
            gate=self._asked,
            keep=(UNLOCK,),
            hold_from="stop",
            around=self._measured,
        )
        failure: IrisError | None = None
        try:
            outcome: Outcome = yield inner
            taken.notes += outcome.details
            if inner.choice == SKIP:
                taken.skipped = True
                return
            if outcome.status is not Status.DONE:
                taken.outcome = outcome
            else:
                taken.shipped = True
                self._boot = str((inner.came.get("health") or {}).get("boot_id", ""))
                try:
                    yield Inner("", self._after(before), is_part=True)
                except (Cancelled, StepFailed) as raised:
                    failure = raised
        finally:
            site.downtime.stop()
        stopped: Cancelled | None = None
        for mutation in inner.kept[-1:]:
            # The restart's own, kept back: its lock is given back now that nobody may ship into the watch any more.
            given = replace(mutation, held=False)
            try:
                try:
                    yield given
                except Cancelled as raised:
                    stopped = raised
                    yield through(given)
            except StepFailed as raised:
                taken.notes.append(f"{site.name}: {lock.kept(raised.message, site.target(self._tree).program)}")
        if failure is not None:
            status = Status.CANCELLED if isinstance(failure, Cancelled) else Status.FAILED
            words = f"{site.name} runs {self._tree.id[:12]}, and nobody has watched it to the end: {failure.message}"
            state = taken.outcome.state if taken.outcome is not None else words
            taken.outcome = Outcome(status=status, state=state, next="look at it: rollout report")
        if stopped is not None and taken.outcome is None:
            raise stopped

    # --- after the restart -------------------------------------------------------------------------------------------

    async def _after(self, before: Sample) -> Parts:
        site, taken = self._site, self.taken
        yield Evidence(id="record", title=f"the record of {site.name}", gather=self._standing)
        yield Evidence(id="downtime", title=f"how long {site.name} did not answer", gather=self._downtime)
        yield Step(id="watching", title=f"{site.name}: watch")
        job, trouble = "", ""
        try:
            job = yield Mutation(
                id="smoke", title=f"submit {self._smoke}", gate=GATE, grant=self._grant, do=self._submit, look=self._submitted,
                result=self._job_id,
            )  # fmt: skip
        except StepFailed as error:
            trouble = f"the smoke job could not be submitted: {error.message}"
        try:
            watch = yield Evidence(
                id="watch", title=f"watch {site.name} for {watching.DURATION_S:g} s", gather=self._watch,
                resumed=self._watch, timeout_s=watching.DURATION_S * 6,
            )  # fmt: skip
        except StepFailed as error:
            watch = {"samples": []}
            trouble = trouble or f"the watch came to no end: {error.message}"
        smoke: dict[str, Any] | None = None
        if job:
            try:
                smoke = yield Evidence(
                    id="smoke-end", title=f"the end of {self._smoke}", gather=self._smoke_end(job), timeout_s=SMOKE_S + 120
                )  # fmt: skip
            except StepFailed as error:
                trouble = trouble or f"the smoke job is not known: {error.message}"
        verdict = yield Evidence(
            id="verdict", title=f"the verdict on {site.name}", gather=self._verdict(before, watch, smoke, trouble)
        )
        taken.verdict = verdict
        if verdict["passed"]:
            return
        words = "; ".join(verdict["concerns"])
        taken.outcome = Outcome(
            status=Status.FAILED,
            state=f"{site.name} runs {self._tree.id[:12]}, and its watch failed: {words}",
            next=f"look at it, then roll back if need be: {site.target(self._tree).controller('restart --rollback')}",
        )
        if site.roll_back is None:
            return
        choice = yield Gate(
            id="failed",
            title=f"The watch of {site.name} failed: {ROLL_BACK}",
            tier=1,
            effects=(*verdict["concerns"], "rolling back is asked for once more, with what it would lose"),
            undo=(f"stopping leaves {site.name} on {self._tree.id[:12]}, and every cluster after it as it is",),
            choices=(ROLL_BACK, STOP),
            approving=(ROLL_BACK,),
            evidence={"procedure": self._procedure, "verdict": verdict},
        )
        if choice != ROLL_BACK:
            return
        back: Outcome = yield Inner("rollback/", site.roll_back(), keep=(UNLOCK,), hold_from="stop")
        if back.status in (Status.DONE, Status.ROLLED_BACK):
            taken.shipped = False
            back = replace(back, status=Status.ROLLED_BACK)
        taken.outcome = replace(back, state=f"{back.state}; its watch had failed: {words}")

    # --- what is asked -----------------------------------------------------------------------------------------------

    @property
    def _grant(self) -> Grant:
        return Grant("submit", "job", self._site.job_id(self._smoke))

    def _asked(self, gate: Gate) -> Gate:
        """The restart's own question, and what a rollout does besides."""
        minutes = watching.DURATION_S / 60
        effects = (
            *gate.effects,
            f"then a smoke job runs there, {self._smoke}, and it is watched for {minutes:g} minutes, which nothing shortens",
        )
        choices = (*gate.choices, SKIP) if self._skippable else gate.choices
        return replace(gate, grants=(*gate.grants, self._grant), effects=effects, choices=choices)

    def _measured(self, mutation: Mutation) -> Mutation:
        """From when the controller is told to stop, it is looked how long it does not answer."""
        if mutation.id != "stop":
            return mutation

        async def do() -> Any:
            self._site.downtime.start()
            return await mutation.do()

        return replace(mutation, do=do)

    # --- evidence ----------------------------------------------------------------------------------------------------

    async def _snapshot(self, report: Report) -> Sample:
        return await asyncio.to_thread(self._site.sample)

    async def _standing(self, report: Report) -> dict[str, Any]:
        standing = (await asyncio.to_thread(record.read, self._site.target(self._tree).store)).record
        if standing is None:
            return {}
        return {
            "phase": str(standing.phase),
            "image": standing.image,
            "previous_image": standing.previous_image,
            "rollback_checkpoint": standing.rollback_checkpoint,
        }

    async def _downtime(self, report: Report) -> dict[str, Any]:
        """None where another run had begun the restart: then the journal's times bound it."""
        return {"seconds": await self._site.downtime.result()}

    async def _submit(self) -> str:
        return await asyncio.to_thread(self._site.submit, self._smoke)

    async def _submitted(self) -> World:
        found = await asyncio.to_thread(self._site.smoke, self._site.job_id(self._smoke))
        return World.NOT_DONE if found is None else World.DONE

    async def _job_id(self) -> str:
        return self._site.job_id(self._smoke)

    async def _watch(self, report: Report, earlier: Sequence[Sequence[Sample]] = ()) -> dict[str, Any]:
        return await watching.watch(self._site.sample, self._clock, report, boot=self._boot, earlier=earlier)

    def _smoke_end(self, job: str) -> Callable[[Report], Awaitable[dict[str, Any]]]:
        async def gather(report: Report) -> dict[str, Any]:
            until = self._clock.monotonic() + SMOKE_S
            found: dict[str, Any] | None = None
            problem = ""
            while True:
                try:
                    found = await asyncio.to_thread(self._site.smoke, job) or found
                    problem = ""
                except IrisError as error:
                    problem = error.message
                if found is not None and found["ended"]:
                    return {"job": job, **found}
                if self._clock.monotonic() >= until:
                    state = found["state"] if found is not None else problem or "not known"
                    return {"job": job, "state": state, "ended": False, "passed": False, "lines": []}
                await self._clock.sleep(SMOKE_POLL_S)

        return gather

    def _verdict(
        self, before: Sample, watch: dict[str, Any], smoke: dict[str, Any] | None, trouble: str
    ) -> Callable[[Report], Awaitable[dict[str, Any]]]:
        async def gather(report: Report) -> dict[str, Any]:
            samples = watch["samples"]
            # A journal of an older version has no word on what had failed before.
            certain = watch.get("failed")
            found = watching.concerns(before, samples, self._tree.id, certain) if samples else []
            if trouble:
                found.append(trouble)
            if smoke is not None and not smoke["passed"]:
                ended = "" if smoke["ended"] else f" after {SMOKE_S / 60:g} minutes"
                found.append(f"the smoke job {smoke['job']} is {smoke['state']}{ended}")
            return {"passed": not found, "concerns": found, "notes": watching.notes(before, samples)}

        return gather


def needs(site: Site, tree: SourceTree) -> tuple[Check, ...]:
    """All that is looked at before a cluster is asked for."""
    target = site.target(tree)

    def same() -> str:
        deployed, seen = target.host.status(), site.sample()
        if seen["boot_id"] != deployed.boot_id:
            raise IrisError(
                f"what answers is {seen['tree'][:12] or 'of no release'}, started as {seen['boot_id']}, and not the one that is "
                f"deployed: {deployed.release[:12]}, started as {deployed.boot_id or 'none'}",
                hint=f"end the one that was started by hand; then {target.controller('stop')}, and {target.controller('start')}",
            )
        return f"{seen['tree'][:12] or 'of no release'}"

    answers = Check("what answers is the controller that is deployed", "another one would not be replaced", same)
    return (*checks.of_controller(target), answers, *site.checks)


def preflight(site: Site, tree: SourceTree) -> Callable[[Report], Awaitable[list[dict[str, Any]]]]:
    """Looks at everything that the cluster needs."""

    async def gather(report: Report) -> list[dict[str, Any]]:
        return await checks.run(needs(site, tree), report)

    return gather
