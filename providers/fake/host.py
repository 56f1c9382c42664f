"""A place where a controller runs, of which a test decides what goes wrong: starts, stops and boot ids, without a process.

What it does is counted, so that a test sees whether something happened twice. A failure is scripted by the name of the call:
"untouched" fails before anything was changed, "after" fails when it has taken effect, "unknown" makes a look impossible.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

from iris_core.contracts import ControllerStatus, ControllerUnhealthy, IrisError


class FakeHost:
    """Implements ControllerHost and what a restart needs besides."""

    def __init__(self, release: str = "r1") -> None:
        self.release = release
        self.running = True
        self.boot = 1
        self.last_checkpoint = ("", "")
        """As a controller notes it when it ends: its boot, and the checkpoint after which it changed nothing."""
        self.calls: Counter[str] = Counter()
        self.effects: list[str] = []
        """What changed, in order."""
        self.unhealthy: set[str] = set()
        """Releases that never become healthy."""
        self.on_start: Callable[[str], None] = lambda release: None
        """What a release does at its boot."""
        self.on_offline: Callable[[Sequence[str]], str] = lambda words: ""
        """What `iris-controller WORDS` does, and prints."""
        self.schemas: dict[str, tuple[str, ...]] = {}
        """Of releases that are not of the usual one."""
        self._faults: dict[str, deque[str]] = {}

    def fault(self, call: str, *kinds: str) -> None:
        """The next calls of this name fail in these ways, one after the other ("" = no fault)."""
        self._faults.setdefault(call, deque()).extend(kinds)

    def _begin(self, call: str) -> str:
        self.calls[call] += 1
        faults = self._faults.get(call)
        kind = faults.popleft() if faults else ""
        if kind == "untouched":
            raise IrisError(f"{call}: the host refused the connection")
        return kind

    def _end(self, call: str, kind: str) -> None:
        self.effects.append(call)
        if kind == "after":
            raise IrisError(f"{call}: the connection broke")

    @property
    def boot_id(self) -> str:
        """Which start of the controller this is, "" while it does not run."""
        return f"boot-{self.boot}" if self.running else ""

    def status(self) -> ControllerStatus:
        self._begin("status")
        if not self.running:
            boot, checkpoint = self.last_checkpoint
            return ControllerStatus(
                False, "", 1, self.release, self.release, ended_boot=boot, last_checkpoint=checkpoint
            )
        return ControllerStatus(True, "http://fake:10000", 1, self.release, self.release, self.boot_id)

    def stage(self, release: str) -> None:
        """Put a release where it can be started."""
        kind = self._begin("stage")
        self._end(f"stage {release}", kind)

    def stop(self, kill_after_s: float | None = None) -> None:
        kind = self._begin("stop")
        self.running = False
        self._end("stop", kind)

    def start(self, release: str) -> None:
        """Start a release. Raises IrisError: one runs."""
        kind = self._begin("start")
        if self.running:
            raise IrisError("start: a controller runs already")
        self.release = release
        self.running = True
        self.boot += 1
        self.last_checkpoint = ("", "")
        self.on_start(release)
        self._end(f"start {release}", kind)

    def healthy(self) -> bool:
        """Whether it answers."""
        self._begin("healthy")
        return self.running and self.release not in self.unhealthy

    def await_healthy(self, timeout_s: float = 120.0) -> ControllerStatus:
        """Whether it answers, at once. Raises ControllerUnhealthy."""
        self._begin("await_healthy")
        if not self.running or self.release in self.unhealthy:
            raise ControllerUnhealthy(f"{self.release} is not healthy", lines=self.logs(30))
        return ControllerStatus(True, "http://fake:10000", 1, self.release, self.release, self.boot_id)

    def logs(self, lines: int) -> Sequence[str]:
        """What a controller of a release would have written."""
        return [f"starting {self.release}"][:lines]

    def schema(self, release: str) -> Sequence[str]:
        """The same for every release, unless a test says otherwise."""
        self._begin("schema")
        return self.schemas.get(release, ("0001_first",))

    def offline(self, release: str, words: Sequence[str], timeout_s: float = 600.0) -> str:
        """What the program of a release does beside a controller: as `on_offline` has it. What only shows something is no effect."""
        kind = self._begin("offline")
        said = self.on_offline(words)
        if "--show" not in words:
            self._end(f"offline {' '.join(words)}", kind)
        return said
