"""Where a controller runs, and the way to it: started, stopped and looked at without asking it. Must never say what it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from iris_core.contracts.errors import IrisError


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """What is known of a controller process without asking it.

    Attributes:
        running: Something is there that serves, or is kept being started until it does.
        url: Where it serves, "" while it does not.
        pid: Of the controller, 0 while there is none.
        detail: How it stands, in a few words.
        release: What it was started from, "" = not known.
        boot_id: Of the controller that serves, "" while none does.
        failures: How often in a row it ended by itself since it was started, or since it last served for a while.
        ended_boot: Only while none runs: the boot that ended last, if it ended after a last checkpoint; "" = it did not, or that is not known.
        last_checkpoint: Of `ended_boot`: the checkpoint after which it changed nothing.
    """

    running: bool
    url: str
    pid: int
    detail: str
    release: str = ""
    boot_id: str = ""
    failures: int = 0
    ended_boot: str = ""
    last_checkpoint: str = ""


@dataclass(frozen=True, slots=True)
class StagedRelease:
    """A release that lies where its host can start it: the folder of its modules, and the interpreter that has what they need."""

    id: str
    python: str
    lib: Path


class ControllerUnhealthy(IrisError):
    """A controller was started and does not serve; `lines` are the last that it wrote."""

    def __init__(self, message: str, *, hint: str = "", lines: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.lines = tuple(lines)


class ControllerHost(Protocol):
    """A place where a controller runs: this machine now, SSH hosts, VMs and Kubernetes later.

    Every call may block for as long as it says, and may raise IrisError: the host cannot be reached, or refuses.
    """

    def stage(self, release: str) -> None:
        """Sees to it that a release can be started here, and that its interpreter loads it. Nothing that runs is touched."""
        ...

    def start(self, release: str) -> None:
        """Begins a controller of that release, and has it started again when it dies. Raises IrisError: one runs already."""
        ...

    def stop(self, kill_after_s: float | None = None) -> None:
        """Ends the controller, which drains first; workers and tasks stay. Nothing to end is no error.

        `kill_after_s`: one that hangs is killed after so long, None = after what it may take to drain.
        """
        ...

    def status(self) -> ControllerStatus: ...

    def await_healthy(self, timeout_s: float = 120.0) -> ControllerStatus:
        """Waits until it answers `/health`. Raises ControllerUnhealthy: not within the time, or it keeps ending by itself."""
        ...

    def logs(self, lines: int) -> Sequence[str]:
        """The last lines that controllers here wrote, oldest first."""
        ...

    def schema(self, release: str) -> Sequence[str]:
        """The migrations that a release knows, in order. Raises IrisError: it does not lie there."""
        ...

    def offline(self, release: str, words: Sequence[str], timeout_s: float = 600.0) -> str:
        """Runs `iris-controller WORDS` of a release where the state is, beside a controller that is stopped; what it printed.

        Raises IrisError, in its own words: it failed.
        """
        ...


class Tunnel(Protocol):
    """A way to reach a controller that is not directly reachable; open for the life of the command."""

    url: str

    @property
    def alive(self) -> bool:
        """Whether it still carries anything. One that broke stays broken: another one has to be opened."""
        ...

    def problem(self) -> str:
        """Why nothing comes through, as far as the way itself says, in one line; "" if it says nothing."""
        ...

    def close(self) -> None: ...
