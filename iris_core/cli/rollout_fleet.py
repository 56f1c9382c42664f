"""From the selectors of a command line, or the console's choice, to the clusters of a rollout: which are named, and how they are reached.

Nothing is contacted here. Must never leave a cluster out silently: one that cannot be taken is refused by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_core.cli.rollout_site import Reached
from iris_core.cli.session import Session
from iris_core.contracts import IrisError, UsageFailed
from iris_core.procedures import rollout_scope
from iris_core.procedures.rollout_scope import Candidate

if TYPE_CHECKING:
    from iris_core.config.cluster import ClusterConfig
    from iris_core.live.clock import Clock
    from iris_core.procedures.rollout import Fleet
    from iris_core.procedures.source_tree import SourceTree

UPSTREAM: Final = "origin/main"


@dataclass(frozen=True, slots=True)
class Scope:
    """The clusters, in order; `named` says that somebody named exactly these."""

    candidates: tuple[Candidate, ...]
    named: bool

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [candidate.name for candidate in self.candidates]


def candidates(session: Session) -> list[Candidate]:
    """Every cluster that could be named, as its file describes it; that of --config is one by its own name. Raises UsageFailed."""
    from iris_core.config.cluster import load_config, named_clusters

    if session.config:
        config = load_config(Path(session.config))
        return [_candidate(config.name, config)]
    found = []
    for cluster in named_clusters():
        try:
            found.append(_candidate(cluster.name, load_config(cluster.path)))
        except IrisError as error:
            found.append(Candidate(cluster.name, rollout_scope.KINDS[0], 0, error.message))
    return found


def _candidate(name: str, config: ClusterConfig) -> Candidate:
    capacity = sum(group.max_slices for group in config.scale_groups.values())
    return Candidate(name, config.controller_on, capacity)


def scope(session: Session, clusters: str | None) -> Scope:
    """The clusters that `--clusters`, or the root options, name; without either all, in their order.

    Raises UsageFailed: one is not known, or cannot be taken.
    """
    from iris_core.config.places import LOCAL

    known = candidates(session)
    words = [word.strip() for word in clusters.split(",")] if clusters is not None else []
    if clusters is not None and not all(words):
        raise UsageFailed("--clusters is empty, or names an empty cluster", hint="write it as --clusters a,b")
    if not words and session.config:
        words = [known[0].name]
    if not words and session.cluster:
        words = [session.cluster]
    if LOCAL in words:
        raise UsageFailed("the local cluster lives and ends with whoever started it: nothing is rolled out to it")
    chosen = rollout_scope.named(known, words) if words else rollout_scope.ordered(known)
    rollout_scope.check(chosen)
    made = Scope(chosen, bool(words))
    for candidate in chosen:
        _reached(session, candidate)
    return made


def _reached(
    session: Session, candidate: Candidate, procedure: str = "", account: str = "", owner: str = ""
) -> Reached:
    """The cluster as this run reaches it. Raises UsageFailed, which names it."""
    from iris_core.cli.deployment import deployment

    own = Session(program=session.program, argv=session.argv, opener=session.opener)
    own.diagnostics, own.transport = session.diagnostics, session.transport
    if session.config:
        own.config = session.config
    else:
        own.cluster = candidate.name
    session.at_close(own.close)
    try:
        found = deployment(own)
        found.store()
    except UsageFailed as error:
        error.message = f"{candidate.name}: {error.message}"
        raise
    return Reached(own, found, procedure, account, owner)


def reached_all(session: Session, names: Sequence[str]) -> list[Reached]:
    """Clusters by name, to look at them. Raises UsageFailed."""
    return [_reached(session, candidate) for candidate in rollout_scope.named(candidates(session), names)]


@dataclass(frozen=True, slots=True)
class Shipping:
    """How a tree is looked at before it is shipped.

    Attributes:
        upstream: The remote branch that it is compared with.
        fetch: Whether that is fetched first.
        checks_command: What tests it, "" = nothing is configured.
    """

    upstream: str = UPSTREAM
    fetch: bool = True
    checks_command: str = ""

    def freeze(self, folder: Path) -> SourceTree:
        """The tree around a folder as it is now. Raises IrisError; without the remote there is nothing to fetch."""
        from iris_core.procedures.source_tree import freeze, has_remote

        return freeze(folder, upstream=self.upstream, fetch=self.fetch and has_remote(folder, self.upstream))


def fleet(
    session: Session, wanted: Scope, shipping: Shipping, folder: Path, clock: Clock, *, procedure: str, account: str,
    owner: str, checkpoint_timeout_s: float,
) -> Fleet:  # fmt: skip
    """What the procedure of that id works on, driven by that account, with smoke jobs of that owner. Raises UsageFailed."""
    from iris_core.procedures.rollout import Fleet

    return Fleet(
        procedure=procedure,
        sites=tuple(
            _reached(session, candidate, procedure, account, owner).site(candidate) for candidate in wanted.candidates
        ),
        named=wanted.named,
        freeze=lambda: shipping.freeze(folder),
        clock=clock,
        checks_command=shipping.checks_command,
        checkpoint_timeout_s=checkpoint_timeout_s,
    )
