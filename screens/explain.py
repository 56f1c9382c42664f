"""Explain: why a job or task waits, counted anew every few seconds; beside it, what would be if it asked for something else.

Both are the server's own counting, in the words that the command line prints; nothing is worked out here. What the second funnel
has in common with the first is dim, so that the difference is seen.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.containers import Container

from iris_core.live.explained import facts, tables
from iris_core.live.polled import Polled
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_core.model.ids import JobId, TaskId, parse_target
from iris_core.model.quoting import quote
from iris_core.model.text import one_line, visible
from iris_tui.aligned import aligned
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.screen import ConsoleScreen
from iris_tui.tabbed import PartText, polled_status
from iris_tui.widgets.pane import Pane
from screens.jobs_target import Target
from screens.targets import TargetActions

if TYPE_CHECKING:
    from textual.widget import Widget

    from iris_core.wire.gen.iris.v1.explain_pb2 import Explanation
    from iris_tui.session import Session

EVERY_S: Final = 3.0
WIDE: Final = 200
"""From this width on both explanations stand side by side."""
_LABEL: Final = 11
_NEVER, _WAITS, _NOW = 3, 2, 1  # ExplainVerdict


def lines_of(found: Explanation) -> list[tuple[str, Tone]]:
    """An explanation as lines: the facts, then the funnel and the other tables."""
    verdict = {_NEVER: Tone.BAD, _WAITS: Tone.WAIT, _NOW: Tone.GOOD}.get(found.verdict, Tone.PLAIN)
    tones = {"Cause": Tone.WAIT, "Verdict": verdict, "Warning": Tone.WARN}
    lines = [(f"{label:<{_LABEL}}{text}", tones.get(label, Tone.PLAIN)) for label, text in facts(found)]
    for table in tables(found):
        lines.append(("", Tone.PLAIN))
        rows = aligned(table.titles, table.right, [[visible(cell) for cell in row] for row in table.rows])
        if table.titles[0] == "STEP":
            # The first step that leaves none is what stops it; the row of all workers stands before the steps.
            stops = next((number for number, step in enumerate(found.funnel, 2) if not step.left), 0)
            rows = [
                (text, Tone.BAD if number and number == stops else tone) for number, (text, tone) in enumerate(rows)
            ]
        lines += rows
    return lines


class FunnelText(PartText):
    """The lines of one explanation; Escape drops the what-if before it leaves."""

    def do_close(self) -> None:
        screen = self.screen
        if isinstance(screen, ExplainScreen) and screen.words and not self.needle:
            screen.ask([])
        else:
            super().do_close()


class Funnel(Pane):
    """One explanation, read again every few seconds."""

    def __init__(self, polled: Polled[Explanation], title: str, *, id: str) -> None:
        self.text = FunnelText(title)
        super().__init__(self.text, id=id)
        self.polled = polled
        self._shown = -1
        self._other: frozenset[str] = frozenset()

    def ask_anew(self, polled: Polled[Explanation]) -> None:
        """Show this one from now on; what is still being read of the one before is nobody's answer."""
        self.polled, self._shown = polled, -1

    def refill(self, screen: ConsoleScreen, title: str, command: str, known: frozenset[str] = frozenset()) -> None:
        """Show what was read last; lines that are `known` already are dim."""
        polled = self.polled
        if polled.value is not None and (polled.version != self._shown or known != self._other):
            self._shown, self._other = polled.version, known
            lines = lines_of(polled.value)
            self.text.show([(text, Tone.DIM if text in known else tone) for text, tone in lines])
        self.set_status(polled_status(screen, polled, "explanation"))
        moment = datetime.fromtimestamp(polled.read_at_ms / 1000, UTC)
        right = [Run(f"as of {moment:%H:%M:%S} UTC", Tone.DIM)] if polled.loaded else []
        self.update_title([Run(title), Run(f"   {one_line(command)}", Tone.DIM)], right)


class ExplainScreen(ConsoleScreen, TargetActions):
    """Why one job or task waits."""

    SCOPES: ClassVar[tuple[str, ...]] = ("explain", "target")
    BINDINGS = bindings("explain", "target")
    CSS_PATH = "explain.tcss"

    def __init__(self, session: Session, subject: str) -> None:
        super().__init__(session)
        parsed = parse_target(subject)
        if not isinstance(parsed, (JobId, TaskId)):
            raise ModelError(f"{subject} is neither a job nor a task")
        self.subject = subject
        self.kind = "job" if isinstance(parsed, JobId) else "task"
        self.job_id = subject if isinstance(parsed, JobId) else parsed.job.text
        self.words: list[str] = []
        """The options of what is thought of as different, as the command line takes them."""
        self.now = Funnel(Polled(self._read, every_s=EVERY_S), f"Explain {one_line(subject)}", id="explain-now")
        self.what_if = self._other_funnel()

    def _other_funnel(self) -> Funnel:
        return Funnel(Polled(self._read_other, every_s=EVERY_S), "What if", id="explain-what-if")

    def body(self) -> Iterable[Widget]:
        with Container(id="funnels"):
            yield self.now
            yield self.what_if

    def on_mount(self) -> None:
        self.now.text.take_focus()

    def title_text(self) -> str:
        return f"explain {one_line(self.subject)}"

    def view_state(self) -> dict[str, Any]:
        return {"what_if": self.words} if self.words else {}

    def restore(self, state: dict[str, Any]) -> None:
        words = state.get("what_if", [])
        if isinstance(words, list):
            try:
                self.ask([str(word) for word in words])
            except ModelError:
                self.ask([])

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read(self) -> Explanation:
        return await self._explain([])

    async def _read_other(self) -> Explanation:
        return await self._explain(self.words)

    async def _explain(self, words: Sequence[str]) -> Explanation:
        from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

        changes = None
        if words:
            from iris_core.cli.what_if import from_words

            changes = from_words(words)
        client = self.session.client
        if self.kind == "job":
            job = pb.ExplainJobRequest(job_id=self.subject, what_if=changes)
            return (await client.call("ControllerService/ExplainJob", job, pb.ExplainJobResponse)).explanation
        task = pb.ExplainTaskRequest(task_id=self.subject, what_if=changes)
        return (await client.call("ControllerService/ExplainTask", task, pb.ExplainTaskResponse)).explanation

    def flush(self) -> None:
        for funnel in (self.now, self.what_if) if self.words else (self.now,):
            self._read_if_due(funnel.polled)
        self.now.refill(self, f"Why {one_line(self.subject)} waits", self.command([]))
        self.set_class(bool(self.words), "-what-if")
        self.set_class(self.size.width >= WIDE, "-wide")
        if self.words:
            known = (
                frozenset(line for line, _ in lines_of(self.now.polled.value)) if self.now.polled.value else frozenset()
            )
            self.what_if.refill(self, f"What if {one_line(shlex.join(self.words))}", self.command(self.words), known)

    def _read_if_due(self, polled: Polled[Explanation]) -> None:
        clock = self.session.clock
        # While nobody answers, the session's subscription is what tries.
        if polled.due(clock.monotonic()) and (not polled.loaded or polled.fault or self.link.current):
            work = polled.read(clock.monotonic(), clock.now_ms())
            self.run_worker(work, name="explain", group="explain", exit_on_error=False)

    def reload(self) -> None:
        """Count again now."""
        self.now.polled.want()
        self.what_if.polled.want()

    def command(self, words: Sequence[str]) -> str:
        """The command line that prints the same."""
        options = f" {shlex.join(words)}" if words else ""
        return f"iris-core {self.session.selector} {self.kind} explain {self.subject}{options}"

    # --- what the keys do --------------------------------------------------------------------------------------------

    def ask(self, words: Sequence[str]) -> None:
        """Think of something as different; of nothing: show the present alone. Raises ModelError."""
        from iris_core.cli.what_if import from_words

        from_words(words)
        self.words = list(words)
        self.what_if.ask_anew(Polled(self._read_other, every_s=EVERY_S))
        (self.what_if.text if words else self.now.text).take_focus()
        self.flush_now()

    def do_what_if(self, text: str) -> None:
        from iris_core.cli.what_if import from_words, split
        from screens.what_if_form import WhatIfForm

        if text:
            self.ask(split(text))
            return

        def chosen(words: list[str] | None) -> None:
            if words is not None:
                self.ask(words)

        self.app.push_screen(WhatIfForm(self.subject, self.now.polled.value, self.words, from_words), chosen)

    def do_as_it_is(self) -> None:
        self.ask([])

    def do_other(self) -> None:
        if self.words:
            (self.now.text if self.what_if.text.has_focus else self.what_if.text).take_focus()

    def do_scheduler(self) -> None:
        self.console.go("scheduler", f"job={quote(self.job_id)}")

    def chosen_target(self) -> Target | None:
        if self.kind == "job":
            return Target("job", self.subject, self.subject)
        return Target("task", self.subject, self.job_id, self.subject)

    def chosen_ids(self, kinds: Sequence[str]) -> list[str]:
        return [self.subject] if self.kind in kinds else []
