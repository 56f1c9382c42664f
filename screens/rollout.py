"""Rollout: one tree to several clusters, step by step, each step's evidence before its question; also as somebody who looks on.

What is shown is read from the journal alone, whoever drives: this console, another one, or the command line. So the screen can be closed
and opened again at the same step, also by another account, and a follower sees what the driver sees; only the driver is asked. What
drives belongs to the console (`iris_tui.rollouts`), not to the screen. Must never change anything but by the answer to a gate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.containers import Container

from iris_core.live.samples import Samples
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_core.procedures.progress import Progress
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.screen import ConsoleScreen
from iris_tui.widgets.chart import Chart, Unit
from iris_tui.widgets.facts import Facts
from iris_tui.widgets.pane import Pane, State, Status
from screens import rollout_words as words
from screens.rollout_acts import RolloutActs
from screens.rollout_gate import GatePanel
from screens.rollout_text import FollowingText

if TYPE_CHECKING:
    from textual import events
    from textual.widget import Widget

    from iris_core.cli.rollout_runs import Known
    from iris_tui.rollouts import Driving
    from iris_tui.session import Session

SHORT_ROWS: Final = 34
TINY_ROWS: Final = 20
WRITING: Final = frozenset({"rollout.begin", "rollout.resume", "rollout.abort"})
"""What a console that is read-only does not offer."""
CHARTS: Final = (
    ("healthy workers", Unit.COUNT),
    ("running tasks", Unit.COUNT),
    ("pending tasks", Unit.COUNT),
    ("failed attempts", Unit.COUNT),
    ("loop late (p99)", Unit.MS),
    ("log store behind", Unit.MS),
)


class RolloutScreen(RolloutActs, ConsoleScreen):
    """See the module."""

    CSS_PATH = "rollout.tcss"
    SCOPES: ClassVar[tuple[str, ...]] = ("rollout",)
    BINDINGS = bindings("rollout")

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._all = False
        """The list is shown because somebody asked for it."""
        self.facts = Facts()
        self.text = FollowingText("rollout", self.close_page)
        self.pane = Pane(self.text)
        self.charts: list[Chart] = []
        self.gate = GatePanel()
        self._drawn: tuple[Any, ...] = ()
        self._history = []

    # --- building ----------------------------------------------------------------------------------------------------

    def title_text(self) -> str:
        return "rollout"

    def body(self) -> Iterable[Widget]:
        glyphs = self.console.glyphs
        self.text.wrap = True
        self.charts = [Chart(title, unit, glyphs) for title, unit in CHARTS]
        yield self.facts
        yield self.pane
        yield Container(*self.charts, id="rollout-charts")
        yield self.gate

    def on_mount(self) -> None:
        self.text.take_focus()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height < SHORT_ROWS, "-short")
        self.set_class(event.size.height < TINY_ROWS, "-tiny")

    def check_argument(self, argument: str) -> None:
        if argument and (len(argument.split()) > 1 or "/" in argument):
            raise ModelError(f"{one_line(argument)!r} is no rollout", hint="`rollouts` lists them")

    def accept(self, argument: str) -> None:
        if argument:
            self._show(argument)

    def view_state(self) -> dict[str, Any]:
        return {"rollout": self.shown} if self.shown else {}

    def restore(self, state: dict[str, Any]) -> None:
        if isinstance(state.get("rollout"), str):
            self._show(state["rollout"])

    def _show(self, procedure: str, *, everything: bool = False) -> None:
        """Show this one; "" = the list."""
        if procedure != self.shown or everything:
            self._all, self._drawn = everything, ()
            self.text.begin(at_end=bool(procedure))
            self.reads.show(procedure)
        self.reads.want()

    # --- live --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        due = self.reads.due()
        if due is not None:
            self.run_worker(self._read(due), name="read rollouts", group="rollouts", exit_on_error=False)
        self._draw()

    async def _read(self, due: Awaitable[None]) -> None:
        await due
        self._choose()

    def _choose(self) -> None:
        """Opened without a word, it shows what goes on: what this console drives, else the newest that has not ended."""
        landing = self.reads.landing.value
        if self.shown or self._all or landing is None:
            return
        driving = self.rollouts.driving
        open_ones = [one.id for one in landing.known if not one.ended and one.changed_something]
        if driving is not None and not driving.over:
            self._show(driving.id)
        elif open_ones:
            self._show(open_ones[0])

    # --- drawing -----------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        driving = self.driving
        asked = driving.asked if driving is not None else None
        if asked is not None and not self._has_evidence(asked.gate.id):
            asked = None
        known = self._known
        over = self.rollouts.driving
        fault = over.fault if over is not None and over.over and over.id == self.shown else self.reads.one.fault
        version = (
            self.shown, len(known.records) if known is not None else -1, known.driven if known is not None else None,
            None if self.shown else (self._landing(), self.reads.landing.fault), fault, driving is not None,
            driving.leaving if driving is not None else False, asked is not None, self.session.read_only, self.opening,
        )  # fmt: skip
        # A list that was read again is compared once: from then on it is the same object.
        before, self._drawn = self._drawn, version
        if version != before:
            if self.shown:
                self._draw_one(known, driving, fault)
            else:
                self._draw_landing()
        # After what it is about, and with it: a question that went and came would lose the focus, and what has been typed.
        if asked is None:
            self.gate.show(None)
        elif asked.gate is not self.gate.gate:
            self.gate.show(asked.gate, self._command(asked.gate), self.console.keymap.first("rollout.answer"))

    def _has_evidence(self, gate: str) -> bool:
        """Whether what the journal holds up to this question has been read, to be drawn: no question without its evidence."""
        records = self._known.records if self._known is not None else []
        last = next((record for record in reversed(records) if record["type"] == "asked"), None)
        return last is not None and last["event"] == gate

    def _draw_landing(self) -> None:
        found, fault = self._landing(), self.reads.landing.fault
        self.facts.show([[Run(self.opening, Tone.BUSY)]] if self.opening else [])
        self.set_class(False, "-watching")
        self.pane.update_title([Run("Rollouts")])
        if found is None:
            status = (
                Status(State.ERROR, "", (fault, "^r tries again now."))
                if fault
                else Status(State.LOADING, "", ("Reading the rollouts …",))
            )
            self.pane.set_status(status)
            return
        self.pane.set_status(Status(State.READY))
        first = self.console.keymap.first
        keys = (first("rollout.begin"), first("rollout.resume")) if not self.session.read_only else None
        self.text.show(list(words.landing(found, fault, keys)))

    def _draw_one(self, known: Known | None, driving: Driving | None, fault: str) -> None:
        self.pane.update_title([Run(f"Rollout {one_line(self.shown)}")])
        if known is None:
            lines = (fault, "`rollouts` lists those that there are.") if fault else ("Reading the journal …",)
            self.pane.set_status(Status(State.ERROR if fault else State.LOADING, "", lines))
            return
        records = known.records
        progress = Progress.of(records)
        tree = (progress.evidence.get("tree-state") or {}).get("id", "")
        leaving = driving is not None and driving.leaving
        top = [words.state(progress, ours=driving is not None, driven=known.driven, leaving=leaving)]
        top.append(Run(f"   tree {tree[:12]}" if tree else "", Tone.DIM))
        top.append(Run(f"   begun by {one_line(progress.started_by)}", Tone.DIM))
        facts = [top, words.standings(records)]
        if self.opening:
            facts.append([Run(self.opening, Tone.BUSY)])
        name, samples = words.watched(records)
        watching = bool(samples) and not progress.status and (
            f"{name}/verdict" not in progress.evidence
            or (progress.asked is not None and str(progress.asked["event"]).startswith(f"{name}/"))
        )  # fmt: skip
        if watching:
            facts.append(words.countdown(records, name, driven=known.driven or driving is not None))
        if fault:
            facts.append([Run(fault, Tone.BAD)])
        self.facts.show(facts)
        self.set_class(watching, "-watching")
        if watching:
            self._draw_charts(samples)
        self.pane.set_status(Status(State.READY))
        self.text.show(words.lines(records))

    def _draw_charts(self, samples: list[dict[str, Any]]) -> None:
        for chart, series in zip(self.charts, words.SERIES, strict=True):
            chart.show(Samples((int(sample["at_ms"]), words.numbers(sample)[series]) for sample in samples))

    def _command(self, gate: Any) -> str:
        return f"iris-core rollout resume {self.shown} --approve {gate.id}={gate.token()}"

    def reload(self) -> None:
        """Read again now."""
        self.reads.want()

    def idle_actions(self) -> frozenset[str]:
        driving, known = self.driving, self._known
        locked = self.session.read_only or (known is not None and self.console.read_only_of(known.clusters))
        idle = set(WRITING) if self.session.read_only else set()
        if locked:
            idle |= {"rollout.resume", "rollout.abort"}
        if driving is None or driving.asked is None:
            idle.add("rollout.answer")
        if driving is None:
            idle.add("rollout.leave")
        if known is None:
            idle.add("rollout.report")
        if driving is not None or (known is not None and (known.ended or known.driven)):
            idle.add("rollout.resume")
        if driving is not None:
            idle.add("rollout.begin")
        return super().idle_actions() | idle

    def do_times(self) -> None:
        for chart in self.charts:
            chart.local = not chart.local
            chart.refresh()
