"""Which clusters a rollout takes, and in which order (rollout §1.2).

The order is known before any cluster is contacted, from what their files say: the lead pair first, then the smallest. A cluster that
this release cannot preflight is refused by name, and with it the whole rollout: leaving one out silently would be a decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from iris_core.config.cluster import unknown_cluster
from iris_core.contracts import UsageFailed
from iris_core.model.errors import shown

LEAD: Final = ("marin-dev", "marin")
"""These come first, in this order, where they are among the clusters."""
NEVER: Final = "ci-"
"""Clusters whose file starts so are made and ended by tests, and are no candidates."""
KINDS: Final = ("local", "manual")
"""Where this release can roll out."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cluster that could be taken.

    Attributes:
        name: As `--clusters` names it.
        kind: Where its controller runs, in the words of cluster files: local, manual (an SSH host), gcp, coreweave.
        capacity: The slices that its scale groups may have together.
        refusal: Why it cannot be taken, "" = it can.
    """

    name: str
    kind: str
    capacity: int
    refusal: str = ""

    def words(self) -> str:
        """`lab (controller=local, capacity=3 slices)`."""
        return f"{self.name} (controller={self.kind}, capacity={self.capacity} slices)"


def ordered(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """All candidates in the order of a rollout that names none."""
    chosen = [candidate for candidate in candidates if not candidate.name.startswith(NEVER)]

    def place(candidate: Candidate) -> tuple[int, int, str]:
        if candidate.name in LEAD:
            return LEAD.index(candidate.name), 0, ""
        return len(LEAD), candidate.capacity, candidate.name

    return tuple(sorted(chosen, key=place))


def named(candidates: Sequence[Candidate], names: Sequence[str]) -> tuple[Candidate, ...]:
    """Those of these names, in their order. Raises UsageFailed: one is not known, or named twice."""
    known = {candidate.name: candidate for candidate in candidates}
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UsageFailed(f"--clusters names {shown(name)} twice")
        if name not in known:
            raise unknown_cluster(name, known)
    return tuple(known[name] for name in names)


def check(chosen: Sequence[Candidate]) -> None:
    """Raises UsageFailed: there is none, or one that cannot be taken, by its name."""
    if not chosen:
        raise UsageFailed("there is no cluster to roll out to", hint="name one: --clusters NAME")
    for candidate in chosen:
        if candidate.kind not in KINDS:
            raise UsageFailed(
                f"{candidate.name}: this release does not roll out to {candidate.kind} clusters",
                hint="leave it out: --clusters names those that are taken",
            )
        if candidate.refusal:
            raise UsageFailed(
                f"{candidate.name}: {candidate.refusal}",
                hint="mend that, or leave it out: --clusters A,B names those that are taken",
            )
