"""What is done on the rollout screen: begin, go on, answer, leave, end, report.

A base of `RolloutScreen`. It may only look on where the console is read-only, and where one of the clusters is, whichever is shown. What drives belongs to the console (`iris_tui.rollouts`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from iris_core.contracts import IrisError
from iris_core.live.faults import fault_text
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_core.procedures.approvals import Answer, Refused
from iris_core.procedures.events import STOP
from iris_tui.access import READ_ONLY, how_to_write
from iris_tui.threads import in_thread
from iris_tui.widgets.prompt import Question
from screens.rollout_gate import GatePanel
from screens.rollout_reads import Landing, RolloutReads

if TYPE_CHECKING:
    from iris_core.cli.rollout_runs import Known
    from iris_core.procedures.journal import Record
    from iris_tui.pages import Lines
    from iris_tui.rollouts import Driving, Rollouts
    from iris_tui.screen import ConsoleScreen
    from screens.rollout_text import FollowingText

    Base = ConsoleScreen
else:
    Base = object

ABORT: Final = "abort"


class RolloutActs(Base):
    """Mix into the screen, before the screen class."""

    text: FollowingText
    gate: GatePanel
    _history: list[str]
    """What was named to begin one."""
    opening = ""
    """What is on its way to be driven from here, in words; "" if nothing is."""

    def _show(self, procedure: str, *, everything: bool = False) -> None:
        """Show this one; "" = the list."""
        raise NotImplementedError

    # --- what it is about --------------------------------------------------------------------------------------------

    @property
    def rollouts(self) -> Rollouts:
        """Those of the console."""
        return self.console.rollouts

    @cached_property
    def reads(self) -> RolloutReads:
        """What is read; made when the screen is in its console."""
        return RolloutReads(self.session, self.rollouts)

    @property
    def shown(self) -> str:
        """The rollout that is shown, "" = the list of all."""
        return self.reads.shown

    @property
    def _known(self) -> Known | None:
        """What is known of it."""
        return self.reads.one.value

    @property
    def driving(self) -> Driving | None:
        """What is shown, if this console drives it."""
        driving = self.rollouts.driving
        return driving if driving is not None and driving.id == self.shown and not driving.over else None

    def _landing(self) -> Landing | None:
        """What could be taken from here: what this console may not change is refused by name."""
        landing = self.reads.landing.value
        if landing is None:
            return None
        locked = self.console.read_only_of([one.name for one in landing.candidates if not one.refusal])
        if not locked:
            return landing  # the same as long as nothing is read anew
        candidates = [
            replace(one, refusal=f"{READ_ONLY}; {how_to_write(one.name)}") if one.name in locked else one
            for one in landing.candidates
        ]
        return replace(landing, candidates=candidates)

    # --- doing -------------------------------------------------------------------------------------------------------

    def _require_write(self, clusters: Sequence[str] = ()) -> None:
        """Raises ModelError: this console changes nothing, or nothing of one of the clusters."""
        if self.session.read_only:
            raise ModelError("this console is read-only: it can only look on", hint=":write allows changes")
        if locked := self.console.read_only_of(clusters):
            raise ModelError(f"{one_line(', '.join(locked))}: {READ_ONLY}", hint=how_to_write(locked[0]))

    def _require_free(self) -> None:
        """Raises ModelError: nothing can be driven from here now."""
        self._require_write()
        self.rollouts.require_idle()

    def do_begin(self, text: str) -> None:
        self._require_free()
        if text:
            self._begin_to(text)
            return
        landing = self._landing()
        candidates = landing.candidates if landing is not None else []
        proposed = ",".join(candidate.name for candidate in candidates if not candidate.refusal)
        question = Question(
            "Roll out to, in this order: ",
            self._begin_to,
            cancel=self.text.take_focus,
            history=self._history,
        )
        self.prompt.ask(question, proposed)

    def _begin_to(self, text: str) -> None:
        self._require_free()
        self.text.take_focus()
        if not text.strip():
            raise ModelError("no cluster is named")
        begun = self.rollouts.begin(self.session, text.strip(), self._require_write)
        self._drive(begun, f"beginning a rollout to {text.strip()}")

    def do_resume(self, text: str) -> None:
        driving = self.rollouts.driving
        if driving is not None and not driving.over and text.strip() in ("", driving.id) and not self.driving:
            self._show(driving.id)  # it goes on already, and its question waits there
        else:
            self._go_on(text, end=False)

    def _go_on(self, text: str, *, end: bool) -> None:
        self._require_free()
        wanted = text.strip() or self.shown or None
        doing = "ending" if end else "going on with"
        opened = self.rollouts.go_on(self.session, wanted, self._require_write, end=end)
        self._drive(opened, f"{doing} {wanted or 'the rollout that was left'}")

    def _drive(self, opening: Awaitable[Driving], doing: str) -> None:
        # On the screen itself: a toast would lie on the question that comes, and take what is typed to it out of sight.
        self.opening = doing = one_line(f"{doing} …")

        async def work() -> None:
            try:
                self._show((await opening).id)
            except IrisError as error:
                self.console.say(fault_text(error), severity="error")
            except ModelError as error:
                self.console.say(str(error), severity="warning")
            finally:
                self.opening = ""

        # Of the console: it is begun also when this screen has been left meanwhile.
        self.console.run_worker(work(), name=doing, group="drive", exit_on_error=False)

    def do_answer(self) -> None:
        if self.driving is None or self.driving.asked is None:
            raise ModelError("nothing is asked here now")
        self.gate.take_focus()

    def on_gate_panel_answered(self, event: GatePanel.Answered) -> None:
        event.stop()
        driving = self.driving
        if driving is None or driving.asked is None or driving.asked.gate is not event.gate:
            return
        try:
            self._require_write(driving.run.arguments["clusters"])
        except ModelError as error:
            self.console.say(str(error), severity="warning")
            return
        reason = "stopped in the console" if event.choice == STOP else ""
        try:
            driving.answer(Answer(event.choice, typed=event.typed, reason=reason))
        except Refused as error:
            self.console.say(error.message, severity="warning")

    def on_gate_panel_left(self, event: GatePanel.Left) -> None:
        event.stop()
        self.text.take_focus()

    def do_lines(self) -> None:
        self.text.take_focus()

    def do_leave(self) -> None:
        driving = self.driving
        if driving is None:
            raise ModelError("this console does not drive it")
        driving.leave()

    def do_abort(self) -> None:
        known = self._known
        if known is None or known.ended:
            raise ModelError("there is no rollout here to be ended")
        self._require_write(known.clusters)

        def sure(text: str) -> None:
            self._require_write(known.clusters)
            if text.strip() != ABORT:
                raise ModelError(
                    f"{one_line(repr(text.strip()))} ends nothing: type {ABORT}; Escape leaves it as it is"
                )
            self.text.take_focus()
            if self.driving is not None:
                self.driving.abort()
            else:
                self._go_on(self.shown, end=True)

        label = f"Type {ABORT} to end {self.shown} and put right what it began: "
        self.prompt.ask(Question(one_line(label), sure, cancel=self.text.take_focus))

    def close_page(self) -> None:
        """One step back; where the console opened here there is none: to the list of all, and from there to the end, after asking."""
        here = self.console.history.here
        self.console.go_back()
        if self.console.history.here is not here:
            return
        if self.shown:
            self.do_all()
        else:
            self.console.do_quit()

    def do_all(self) -> None:
        self._show("", everything=True)

    def do_report(self) -> None:
        from iris_tui.pages import TextPage

        if not self.shown:
            raise ModelError("choose a rollout first", hint=":rollout ID shows one")
        shown, rollouts = self.shown, self.rollouts

        async def load() -> Lines:
            def work() -> list[Record]:
                from iris_core.cli import rollout_runs

                return rollout_runs.find(rollouts.folder(), shown).records

            from iris_core.procedures import rollout_report

            text = rollout_report.markdown(shown, await in_thread(work, name="read journal"))
            return [(line, Tone.BUSY if line.startswith("#") else Tone.PLAIN) for line in text.splitlines()]

        command = f"iris-core rollout report {shown}"
        self.console.push_screen(TextPage(self.session, f"Report of {one_line(shown)}", load, command=command))
