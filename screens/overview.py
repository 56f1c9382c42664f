"""Overview: the pulse of the cluster on one screen, what is wrong said first, charts below it, every line a way to more.

What the lines say is `iris_core.live.fleet`, what the charts show `iris_core.live.fleet_history`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.contracts import IrisError
from iris_core.live.fleet import Pulse, pulse
from iris_core.live.fleet_history import MOST_ROWS, FleetHistory
from iris_core.live.watch import Selector
from iris_tui.keymap import bindings
from iris_tui.widgets.chart import Chart, Unit
from screens.pulse import CONTROLLER, FLEET, SCALE_GROUPS, PulseFeed, PulseScreen, rows_of

if TYPE_CHECKING:
    from iris_core.live.feed import Feed
    from iris_core.live.samples import Samples
    from iris_tui.glyphs import Glyphs
    from iris_tui.session import Session

HISTORY_S: Final = 20.0
"""The log store is asked for what was missed at most this often."""


class OverviewScreen(PulseScreen):
    """One cluster's pulse."""

    SCOPES: ClassVar[tuple[str, ...]] = ("overview",)
    BINDINGS = bindings("overview")
    TITLE = "Overview"

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.history = FleetHistory()
        self._asked_at = -1e9
        self._asking = False

    def make_feed(self) -> Feed[Any]:
        session = self.session
        selectors = [Selector("fleet", FLEET), Selector("controller", CONTROLLER), Selector("groups", SCALE_GROUPS)]
        return PulseFeed(
            session.client, session.clock, selectors, rows_of, kinds=("fleet", "controller", "scale_groups")
        )

    def make_charts(self, glyphs: Glyphs) -> Iterable[Chart]:
        yield Chart("waiting tasks", Unit.COUNT, glyphs)
        yield Chart("oldest wait", Unit.MS, glyphs)
        yield Chart("running tasks", Unit.COUNT, glyphs)
        yield Chart("failures a minute", Unit.COUNT, glyphs, filled=True)
        yield Chart("cores held", Unit.PERCENT, glyphs)
        yield Chart("accelerators held", Unit.PERCENT, glyphs)

    def samples(self) -> Sequence[Samples]:
        known = self.history
        return (known.waiting, known.wait_ms, known.running, known.failures, known.cpu_pct, known.devices_pct)

    def lines(self, now_ms: int) -> list[Pulse]:
        groups = [row.value for row in self.feed.store.rows.values() if row.kind == "scale_groups" and not row.gone]
        return pulse(self.value("fleet"), self.value("controller"), groups, now_ms)

    def empty_words(self) -> tuple[str, ...]:
        return ("The controller sends no pulse.", "One of an older release cannot; :jobs shows what it has.")

    def partial_words(self) -> str:
        known = self.value("fleet") is None or self.value("controller") is not None
        return "" if known else "the controller says nothing of itself"

    def remember(self, now_ms: int) -> bool:
        fleet = self.value("fleet")
        if fleet is not None:
            self.history.take(fleet, now_ms)
        return fleet is not None

    def stop_watching(self, now_ms: int) -> None:
        self.history.gap(now_ms)

    def begin_watching(self) -> None:
        now = self.session.clock.monotonic()
        if not self._asking and now - self._asked_at >= HISTORY_S:
            self._asked_at = now
            self._asking = True
            self.run_worker(self._load_history(), name="history of the cluster", group="history", exit_on_error=False)

    async def _load_history(self) -> None:
        """What the log store has of the time before; without it the charts begin now, which is no fault."""
        from iris_core.wire.gen.iris.v1 import stats_pb2 as pb

        request = pb.QueryRequest(sql=self.history.sql(self.session.clock.now_ms()), max_rows=MOST_ROWS)
        try:
            self.history.fill(await self.session.client.call("StatsService/Query", request, pb.QueryResponse))
        except (IrisError, ValueError):
            return
        finally:
            self._asking = False
