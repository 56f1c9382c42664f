"""A rollout: one tree to one cluster after the other, with a person's word before each (rollout §1).

scope → preflight of all clusters → the tree, approved by its hash → cluster by cluster: snapshot, restart, smoke job, five minutes of
watching, verdict → the next one, or the end. The first failure ends it, for all clusters that come after. Silence is no approval; one that
was given is for one cluster and one tree, because gate and token name both. The tree is frozen once: what is tested, approved and
built for the last cluster is what was for the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError
from iris_core.procedures import rollout_checks as checks
from iris_core.procedures.events import (
    APPROVE,
    Cancelled,
    Evidence,
    Gate,
    Outcome,
    Procedure,
    Report,
    Status,
    Step,
    StepFailed,
)
from iris_core.procedures.nested import Inner, Parts, flat
from iris_core.procedures.rollout_cluster import Cluster, Site, Taken, preflight
from iris_core.procedures.source_tree import SourceTree, as_tree, as_value

if TYPE_CHECKING:
    from iris_core.live.clock import Clock
    from iris_core.procedures.journal import Record

NAME: Final = "rollout"
SCOPE: Final = "scope"
TREE: Final = "tree"
NEXT: Final = "next"
NEEDS: Final = "needs"
"""What is about one cluster has that cluster's name first, and nothing else has a `/`: so no name of a cluster makes two ids one."""
OLDER: Final = "preflight/"
TREE_S: Final = 300.0
CHECKPOINT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is rolled out to, and how.

    Attributes:
        procedure: The id of the rollout, so that an answer to one of its questions is none to another rollout's.
        sites: The clusters, in order.
        named: Somebody named exactly these, so that the order is not asked for once more.
        freeze: The tree, as it is now; may block.
        clock: Of the watch.
        checks_command: What tests a tree, "" = nothing is configured.
        checkpoint_timeout_s: For each checkpoint of a restart.
        older: It goes on with a journal of a version that had other ids.
    """

    procedure: str
    sites: tuple[Site, ...]
    named: bool
    freeze: Callable[[], SourceTree]
    clock: Clock
    checks_command: str = ""
    checkpoint_timeout_s: float = CHECKPOINT_S
    older: bool = False

    def needs(self, name: str) -> str:
        """The id of what is looked at of a cluster before anything is asked for."""
        return f"{OLDER}{name}" if self.older else f"{name}/{NEEDS}"


def is_older(records: Sequence[Record]) -> bool:
    """Whether a version with other ids wrote this journal."""
    looked = [str(record["event"]) for record in records if record["type"] == "gathering"]
    return any(name.startswith(OLDER) for name in looked) and not any(name.endswith(f"/{NEEDS}") for name in looked)


def rollout(fleet: Fleet) -> Procedure:
    """The procedure."""
    return flat(_rollout(fleet))


async def _rollout(fleet: Fleet) -> Parts:
    names = [site.name for site in fleet.sites]
    yield Step(id="begin", title=f"Roll out to {', '.join(names)}")
    yield Evidence(id="order", title="the clusters, in order", gather=_order(fleet.sites))
    if not fleet.named:
        choice = yield Gate(
            id=SCOPE,
            title=f"Roll out to these clusters, in this order: {', '.join(names)}",
            tier=1,
            effects=tuple(f"{number}. {site.candidate.words()}" for number, site in enumerate(fleet.sites, 1)),
            undo=("nothing is changed yet",),
            evidence={"procedure": fleet.procedure},
        )
        if choice != APPROVE:
            yield Outcome(status=Status.STOPPED, state="nothing was changed")
            return
    yield Step(id="looking", title="Look at the tree and at every cluster")
    found = yield Evidence(id="tree-state", title="the tree", gather=_frozen(fleet.freeze), timeout_s=TREE_S)
    tree = as_tree(found)
    failed: list[str] = []
    for site in fleet.sites:
        seen = yield Evidence(
            id=fleet.needs(site.name), title=f"what {site.name} needs", gather=preflight(site, tree), timeout_s=300.0
        )
        failed += [f"{site.name}: {check['what']}: {check['detail']}" for check in seen if not check["ok"]]
    if failed:
        yield Outcome(
            status=Status.FAILED,
            state=f"nothing was changed: {failed[0]}",
            next="mend it, then begin anew",
            details=tuple(failed[1:]),
        )
        return
    tested = None
    if fleet.checks_command:
        tested = yield Evidence(
            id="checks", title=f"the checks on {tree.id[:12]}", gather=_tested(tree, fleet.checks_command),
            timeout_s=checks.CHECKS_S,
        )  # fmt: skip
        if tested["exit"] != 0:
            yield Outcome(
                status=Status.FAILED,
                state=f"nothing was changed: the checks fail on {tree.id[:12]} with exit code {tested['exit']}",
                details=tuple(tested["lines"]),
            )
            return
    choice = yield _tree_gate(fleet.procedure, tree, names, found["warnings"], tested)
    if choice != APPROVE:
        yield Outcome(status=Status.STOPPED, state="nothing was changed")
        return
    taken: list[Taken] = []
    for number, site in enumerate(fleet.sites):
        following = fleet.sites[number + 1].name if number + 1 < len(fleet.sites) else ""
        cluster = Cluster(
            fleet.procedure, site, tree, fleet.clock, skippable=len(fleet.sites) > 1, timeout_s=fleet.checkpoint_timeout_s
        )  # fmt: skip
        taken.append(cluster.taken)
        try:
            yield Inner(f"{site.name}/", cluster.run(), is_part=True)
        except (Cancelled, StepFailed) as error:
            cluster.taken.outcome = _left(site.name, cluster.taken, error)
        if cluster.taken.outcome is not None:
            yield _end(tree, names, taken, cluster.taken.outcome)
            return
        if following and not cluster.taken.skipped:
            try:
                choice = yield _next_gate(fleet.procedure, cluster.taken, site.name, following, tree)
            except Cancelled:
                yield _end(tree, names, taken, Outcome(status=Status.CANCELLED, state=""))
                return
            if choice != APPROVE:
                yield _end(tree, names, taken, Outcome(status=Status.STOPPED, state=""))
                return
    yield _end(tree, names, taken, Outcome(status=Status.DONE, state=""))


def _left(name: str, taken: Taken, error: IrisError) -> Outcome:
    """How a cluster is that was left by something that its own part does not handle."""
    state = f"{name} runs the new release" if taken.shipped else f"{name} was not changed"
    if isinstance(error, Cancelled):
        return Outcome(status=Status.CANCELLED, state=state)
    unknown = isinstance(error, StepFailed) and error.unknown
    return Outcome(
        status=Status.UNKNOWN if unknown else Status.FAILED, state=f"{state}: {error.message}", next=error.hint
    )


def _tree_gate(
    procedure: str, tree: SourceTree, names: Sequence[str], warnings: Sequence[str], tested: dict[str, Any] | None
) -> Gate:
    short = tree.id[:12]
    if tested is None:
        proof = "no checks are configured: nothing here says that this tree works (--checks-command)"
    else:
        proof = f"its checks pass: {tested['command']}, in {tested['seconds']:g} s"
    return Gate(
        id=TREE,
        title=f"Ship tree {short} to {', '.join(names)}",
        name=short,
        effects=(
            f"{tree.branch}, {tree.base[:12] or 'no commit'} {tree.subject}",
            *warnings,
            proof,
            "each cluster is asked for on its own before it is changed",
        ),
        undo=("nothing is changed yet",),
        evidence={"procedure": procedure, "tree": tree.id, "clusters": list(names), "tested": tested},
    )


def _next_gate(procedure: str, taken: Taken, name: str, following: str, tree: SourceTree) -> Gate:
    return Gate(
        id=f"{name}/{NEXT}",
        title=f"{name} runs {tree.id[:12]} and is well: go on to {following}",
        tier=1,
        effects=(
            f"{following} is looked at; before it is changed, its name is asked for",
            f"stopping leaves {following} and what comes after it as it is",
        ),
        undo=(f"{name} can be rolled back: iris-core --cluster={name} cluster controller restart --rollback",),
        evidence={"procedure": procedure, "tree": tree.id, "from": name, "to": following, "verdict": taken.verdict},
    )


def _end(tree: SourceTree, names: Sequence[str], taken: Sequence[Taken], cause: Outcome) -> Outcome:
    """The end of the rollout, with where every cluster stands."""
    short = tree.id[:12]
    reached = dict(zip(names, taken, strict=False))
    said = names[len(taken) - 1] if cause.state else ""  # of that one the cause speaks
    shipped = [name for name, one in reached.items() if one.shipped and name != said]
    left = [name for name in names if name not in shipped and name != said]
    details = [f"{name}: {note}" for name, one in reached.items() for note in one.notes]
    parts = [cause.state] if cause.state else []
    if shipped:
        parts.append(f"{', '.join(shipped)} run{'s' if len(shipped) == 1 else ''} {short}")
    if left:
        parts.append(f"{', '.join(left)} {'was' if len(left) == 1 else 'were'} left as before")
    return Outcome(status=cause.status, state="; ".join(parts), next=cause.next, details=tuple(details))


# --- evidence --------------------------------------------------------------------------------------------------------


def _order(sites: Sequence[Site]) -> Callable[[Report], Any]:
    async def gather(report: Report) -> list[dict[str, Any]]:
        return [{"name": site.name, "kind": site.candidate.kind, "capacity": site.candidate.capacity} for site in sites]

    return gather


def _frozen(freeze: Callable[[], SourceTree]) -> Callable[[Report], Any]:
    async def gather(report: Report) -> dict[str, Any]:
        return as_value(await asyncio.to_thread(freeze))

    return gather


def _tested(tree: SourceTree, command: str) -> Callable[[Report], Any]:
    async def gather(report: Report) -> dict[str, Any]:
        return await checks.test_tree(tree, command)

    return gather
