"""Controller: how the process that decides is, what it waits for, and what can be asked of it.

What the lines say is `iris_core.live.controller_words`; nothing here asks the controller more than its own row of the Watch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.live import capture
from iris_core.live.controller_words import SOURCE, condition
from iris_core.live.samples import Samples
from iris_core.live.watch import Selector
from iris_tui import changes
from iris_tui.actions import BY_ID
from iris_tui.keymap import bindings
from iris_tui.row_menu import RowMenu
from iris_tui.widgets.chart import Chart, Unit
from screens.pulse import CONTROLLER, PulseFeed, PulseScreen, rows_of

if TYPE_CHECKING:
    from iris_core.live.feed import Feed
    from iris_core.live.fleet import Pulse
    from iris_tui.glyphs import Glyphs
    from iris_tui.session import Session

EVERY_MS = 5_000
"""A sample is taken this often."""
PARTS: Final = {"process": "its process", "lag": "its loop", "checkpoint": "its checkpoints", "store": "the log store"}
"""What a whole row says of itself; one of an earlier release, or one whose log store does not answer, says less."""


class ControllerScreen(PulseScreen, RowMenu):
    """One cluster's controller."""

    SCOPES: ClassVar[tuple[str, ...]] = ("controller", "overview")
    BINDINGS = bindings("controller", "overview")
    TITLE = "Controller"
    KIND = "controller"

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.lag = Samples()
        self.queue = Samples()
        self.memory = Samples()
        self.cpu = Samples()
        self._taken_ms = 0

    def make_feed(self) -> Feed[Any]:
        session = self.session
        selectors = [Selector("controller", CONTROLLER)]
        return PulseFeed(session.client, session.clock, selectors, rows_of, kinds=("controller",))

    def make_charts(self, glyphs: Glyphs) -> Iterable[Chart]:
        yield Chart("loop late (p99)", Unit.MS, glyphs)
        yield Chart("commands waiting", Unit.COUNT, glyphs)
        yield Chart("memory", Unit.BYTES, glyphs)
        yield Chart("cores used", Unit.CORES, glyphs)

    def samples(self) -> Sequence[Samples]:
        return (self.lag, self.queue, self.memory, self.cpu)

    def lines(self, now_ms: int) -> list[Pulse]:
        row = self.value("controller")
        return condition(row, now_ms, self.session.client.url) if row is not None else []

    def empty_words(self) -> tuple[str, ...]:
        return (
            "The controller says nothing of itself.",
            "One of an older release cannot; `cluster status` asks it once.",
        )

    def partial_words(self) -> str:
        row = self.value("controller")
        missing = [words for field, words in PARTS.items() if row is not None and not row.HasField(field)]
        return f"it says nothing of {' and '.join(missing)}" if missing else ""

    def remember(self, now_ms: int) -> bool:
        row = self.value("controller")
        if row is None:
            return False
        if not 0 <= now_ms - self._taken_ms < EVERY_MS:
            self._taken_ms = now_ms
            if row.lag.samples:
                self.lag.add(now_ms, row.lag.p99_ms)
            self.queue.add(now_ms, float(row.queued_commands))
            self.memory.add(now_ms, float(row.process.memory_rss_bytes))
            self.cpu.add(now_ms, row.process.cpu_millicores / 1000)
        return True

    def stop_watching(self, now_ms: int) -> None:
        self._taken_ms = 0
        for samples in self.samples():
            samples.add(now_ms, None)

    # --- doing -------------------------------------------------------------------------------------------------------

    def do_logs(self) -> None:
        self.console.go("logs", SOURCE)

    def do_profiles(self) -> None:
        self.console.go("profiles", f"source={SOURCE}")

    def do_capture(self, text: str) -> None:
        from screens.profiles import open_capture

        wanted = capture.parse(f"{SOURCE} {text}") if text else None
        open_capture(self.console, SOURCE, wanted)

    def do_checkpoint(self) -> None:
        changes.start(self.console, self.session, BY_ID["controller.checkpoint"], ["controller"])
