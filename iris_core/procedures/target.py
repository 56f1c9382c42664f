"""What a restart or a rollback of a controller works on, and by what means: values and calls, handed in by whoever puts the program together.

Must never know which kind of host or store is behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.contracts import ControllerHost
from iris_core.procedures.record import PROGRAM
from iris_core.procedures.source_tree import SourceTree

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore
    from iris_core.procedures.lock import Holder

HEALTH_S: Final = 120.0


def hangs(program: str = PROGRAM) -> str:
    """What leads out where a controller runs and neither serves nor ends; `program` begins its command lines."""
    controller = f"{program} cluster controller"
    return (
        f"one that hangs: {controller} stop, which kills it in the end, then {controller} start; "
        f"if its database is why: {program} runbook db-rollback"
    )


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that can be restored: where, when its snapshot was taken (epoch ms), and the last migration of its database."""

    path: str
    epoch_ms: int
    schema: str


@dataclass(frozen=True, slots=True)
class Lost:
    """What going back to a checkpoint drops: jobs submitted after it, older ones changed after it, the first few of their ids, when the
    newest was submitted (epoch ms), and a number that stands for which older ones changed."""

    submitted: int
    changed: int
    jobs: tuple[str, ...] = ()
    newest: int = 0
    which: int = 0


def _nothing() -> None:
    return None


def _none_whole(passed_over: list[str]) -> Saved | None:
    return None


def _named(path: str) -> Saved:
    return Saved(path, 0, "")


def _no_count(path: str) -> Lost:
    return Lost(0, 0)


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
        program: How a command line on this cluster begins, quoted for a shell: `iris-core --cluster=lab`.
        room: Looks whether the disks of the controller have room for the next one, and for going back. Raises IrisError: they have not.
        secrets: Resolves every secret that the controller needs from here. Raises IrisError: one cannot be had.
        newest_whole: The newest one of which all was read and found to be right, None if there is none; the list gets a line for each
            newer one, which is not.
        saved: The checkpoint of that path, found to be whole. Raises IrisError: it is not.
        lost: What going back to the checkpoint of that path drops, asked of the running controller.
        health_s: What a new controller may take until it answers `/health`.
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
    room: Callable[[], None] = _nothing
    secrets: Callable[[], None] = _nothing
    newest_whole: Callable[[list[str]], Saved | None] = _none_whole
    saved: Callable[[str], Saved] = _named
    lost: Callable[[str], Lost] = _no_count
    health_s: float = HEALTH_S
    program: str = PROGRAM

    def controller(self, words: str) -> str:
        """The command line of `cluster controller` with these words, on this cluster."""
        return f"{self.program} cluster controller {words}"
