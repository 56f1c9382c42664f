"""Which slices are on their way, in words, by scale group and by the job that they are made for.

What is asked for because of a job is invisible in the fleet until its workers attach, so that every other reason speaks as if nothing
happened. Times are told as points in time: a line stays the same while its cause does. Must never decide anything.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_controller.state.slices import Lifecycle
from iris_core.live.wording import when

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_controller.autoscaling.groups import GroupState
    from iris_controller.autoscaling.planning import Launch
    from iris_controller.autoscaling.routing import Routing
    from iris_controller.state.slices import Slice

ASKED: Final = "asked for"
"""Of a slice that the provider has not promised yet."""
UNDER_WAY: Final = (ASKED, str(Lifecycle.BOOTING), str(Lifecycle.INITIALIZING))


@dataclass(slots=True)
class Coming:
    """The slices of one group that are not ready yet, by lifecycle; `since_ms` is when the first of them was made, 0 = none was."""

    stages: Counter[str] = field(default_factory=Counter)
    since_ms: int = 0

    def add(self, stage: str, since_ms: int = 0) -> None:
        self.stages[stage] += 1
        self.since_ms = min(self.since_ms or since_ms, since_ms or self.since_ms)

    @property
    def alone(self) -> bool:
        return self.stages.total() == 1

    def __str__(self) -> str:
        count = self.stages.total()
        slices = "1 slice is" if count == 1 else f"{count} slices are"
        return f"{slices} being made ({self.stage})"

    @property
    def stage(self) -> str:
        """How far they are: `booting since 2026-01-31 12:00:00 UTC`."""
        parts = [word if self.alone else f"{self.stages[word]} {word}" for word in UNDER_WAY if self.stages[word]]
        since = ""
        if self.since_ms:
            since = f"{' since' if self.alone else '; the first since'} {when(self.since_ms)} UTC"
        return ", ".join(parts) + since


def coming(rows: Iterable[Slice], states: Iterable[GroupState], launches: Iterable[Launch] = ()) -> dict[str, Coming]:
    """By group, the slices on their way, those of operators included once the provider has them. `launches` are asked for just now."""
    found: dict[str, Coming] = {}
    for row in rows:
        if row.lifecycle in (Lifecycle.BOOTING, Lifecycle.INITIALIZING):
            found.setdefault(row.scale_group, Coming()).add(str(row.lifecycle), row.created_at_ms)
    asked = [(state.name, state.requesting) for state in states] + [(launch.group, launch.count) for launch in launches]
    for group, count in asked:
        for _ in range(count):
            found.setdefault(group, Coming()).add(ASKED)
    return found


def by_job(routing: Routing, groups: Mapping[str, Coming]) -> dict[str, str]:
    """What is being made for each job that the routing gave such a slice, as the first half of why it waits."""
    words = {name: _for_it(name, found) for name, found in groups.items()}
    lines: dict[str, str] = {}
    for entry in routing.routed:
        word = words.get(entry.group)
        if word is not None:
            job_id = entry.demand.job_id
            lines[job_id] = f"{lines[job_id]}; {word}" if job_id in lines else word
    return lines


def _for_it(group: str, found: Coming) -> str:
    if found.alone:
        return f"a slice of {group} is being made for it ({found.stage})"
    # Every watcher of every waiting job gets this line: a count would change it with each slice.
    stages = ", ".join(word for word in UNDER_WAY if found.stages[word])
    since = f"; the first since {when(found.since_ms)} UTC" if found.since_ms else ""
    return f"slices of {group} are being made, also for it ({stages}{since})"
