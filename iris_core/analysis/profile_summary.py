"""Where a whole job spends its CPU: the captures of all its tasks put together by sub-job (cli-auth-logs §4.5).

A sub-job is the job that a task belongs to, relative to the one that is asked about; its own tasks are `(root)`. Weights are seconds
in which a thread was seen at work. Captures are added one by one, so that a week of a large job needs the memory of its distinct
stacks and no more. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_core.analysis.stacks import Frame, leaf, library, normalised

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iris_core.analysis.stacks import Stack, Stacks

ROOT: Final = "(root)"


@dataclass(slots=True)
class Part:
    """The captures of one sub-job, one task or the whole job."""

    name: str
    captures: int = 0
    weight: float = 0.0
    tasks: set[str] = field(default_factory=set)
    stacks: Stacks = field(default_factory=dict)

    @property
    def hottest(self) -> str:
        """The function most time is spent in, compiled code counted to the nearest frame with a name."""
        ranked = self.leaves(1)
        return ranked[0][0] if ranked else ""

    def leaves(self, top: int) -> list[tuple[str, float]]:
        """The functions most time is spent in, each with its weight."""
        return self._ranked(lambda stack: leaf(stack).label, top)

    def libraries(self, top: int) -> list[tuple[str, float]]:
        """The packages and shared libraries whose own code runs most."""
        return self._ranked(lambda stack: library(stack[-1]), top)

    def heaviest(self, top: int) -> list[tuple[Stack, float]]:
        """The stacks seen most."""
        return sorted(self.stacks.items(), key=lambda item: (-item[1], item[0]))[:top]

    def _ranked(self, key: Callable[[Stack], str], top: int) -> list[tuple[str, float]]:
        sums: dict[str, float] = {}
        for stack, weight in self.stacks.items():
            name = key(stack)
            sums[name] = sums.get(name, 0.0) + weight
        return sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:top]

    def share(self, weight: float) -> float:
        """Of this part, 0 to 1."""
        return weight / self.weight if self.weight else 0.0


class ProfileSummary:
    """Of one job; `subjob` takes only that sub-job in, by its whole relative name or its last component."""

    def __init__(self, job_id: str, subjob: str = "") -> None:
        self.job_id = job_id
        self._subjob = subjob
        self.whole = Part(job_id)
        self._parts: dict[str, Part] = {}
        self._tasks: dict[str, Part] = {}
        self._names: dict[Frame, Frame] = {}
        self.seen: set[str] = set()
        """Every sub-job of which there is a capture, taken in or not."""

    def wants(self, task_id: str) -> bool:
        """Whether captures of that task belong here."""
        name = subjob_of(self.job_id, task_id)
        self.seen.add(name)
        return not self._subjob or self._subjob in (name, name.rpartition("/")[2])

    def add(self, task_id: str, stacks: Mapping[Stack, float]) -> None:
        """Takes one capture in."""
        name = subjob_of(self.job_id, task_id)
        parts = (
            self.whole,
            self._parts.setdefault(name, Part(name)),
            self._tasks.setdefault(task_id, Part(task_id)),
        )
        for part in parts:
            part.captures += 1
            part.tasks.add(task_id)
        for stack, weight in stacks.items():
            plain = self._plain(stack)
            if not plain:
                continue
            for part in parts:
                part.stacks[plain] = part.stacks.get(plain, 0.0) + weight
                part.weight += weight

    def parts(self) -> list[Part]:
        """The sub-jobs, heaviest first."""
        return sorted(self._parts.values(), key=lambda part: (-part.weight, part.name))

    def tasks(self) -> list[Part]:
        """The tasks, heaviest first."""
        return sorted(self._tasks.values(), key=lambda part: (-part.weight, part.name))

    def _plain(self, stack: Stack) -> Stack:
        """With the names that all captures share; the frame that names a process goes."""
        found = []
        for frame in stack:
            name = self._names.get(frame)
            if name is None:
                name = self._names[frame] = normalised(frame)
            if not (name.name.startswith("process *") and not name.file):
                found.append(name)
        return tuple(found)


def subjob_of(job_id: str, task_id: str) -> str:
    """The job of a task relative to `job_id`; `(root)` for its own tasks."""
    parent = task_id.rpartition("/")[0]
    return parent[len(job_id) + 1 :] if parent.startswith(f"{job_id}/") else ROOT
