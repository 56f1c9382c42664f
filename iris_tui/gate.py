"""The gate: what stands between an operator's key and a change of the cluster.

It names the verb, the cluster (its word, and PROD), the environment, exactly which targets, what it does to them, and the command line
that does the same. The focus is on Cancel; going ahead takes a second, deliberate step: moving to the other button (tier 1),
ticking a box first (tier 2), typing the cluster's name exactly (tier 3, never prefilled). In production a reason is asked for, elsewhere
one may be given. The targets are frozen when it opens; if one of them changes meanwhile it says so. A name or reason that was pasted is
marked, here and in the audit log. It decides and nothing more: sending is the caller's part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from iris_core.model.text import one_line
from iris_tui.keymap import ESCAPE
from iris_tui.themes import is_production
from iris_tui.widgets.line_input import LineInput

if TYPE_CHECKING:
    from textual.app import ComposeResult

SHOWN_TARGETS = 200
MOST_REASON = 400
"""Characters of a reason."""


@dataclass(frozen=True, slots=True)
class GateTarget:
    """One frozen target: its id, the generation it had, and a word on what it is doing."""

    id: str
    generation: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """It was confirmed: why, if somebody said so; whether anything was pasted; and the name that was typed at tier 3."""

    reason: str = ""
    pasted: bool = False
    typed: str = ""
    reason_pasted: bool = False
    """Whether it was the reason, or a part of it."""


@dataclass(frozen=True, slots=True)
class GatePlan:
    """What is to be confirmed.

    Attributes:
        verb: "Cancel", "Complete".
        button: What the button that goes ahead says; never a bare "Cancel", which dialogs use for going back.
        what: The targets in words: "1 job".
        effects: What will happen, one line each.
        command: The equivalent command line.
        hidden: How many of the targets the filter hides now.
        changed: Says which targets changed since the plan was made, "" if none.
        skipped: What was chosen and would not be touched, in one line.
        hints: What else is worth knowing.
        again: Why the gate is here once more: what was confirmed before had changed.
        before: What was decided then; its reason stands there again, its name is to be typed anew.
    """

    verb: str
    what: str
    tier: int
    cluster: str
    environment: str
    targets: tuple[GateTarget, ...]
    effects: tuple[str, ...]
    command: str
    hidden: int = 0
    changed: Callable[[], str] | None = None
    button: str = ""
    skipped: str = ""
    hints: tuple[str, ...] = ()
    again: str = ""
    before: Decision = Decision()


ROOM_FOR_KEYS: Final = 70
"""Columns of a terminal from which on the box says in full with which keys it is ticked."""


def _tick(on: bool, columns: int) -> Content:
    """A box that is empty until it is ticked, also without colours; its words fit."""
    keys = "(Tab goes here, Space ticks it)" if columns >= ROOM_FOR_KEYS else "(Tab)"
    return Content(f"[{'x' if on else ' '}] I have read the list{'' if on else f' {keys}'}")


class GateScreen(ModalScreen[Decision | None]):
    """Dismissed with a decision when it was confirmed, with None when not."""

    DEFAULT_CSS = """
    GateScreen { align: center middle; }
    GateScreen #gate { width: 74; max-width: 96%; height: auto; max-height: 95%; overflow-y: auto; background: $surface; border: tall $warning; padding: 0 1; }
    GateScreen.-production #gate { border: tall $error; }
    GateScreen #gate-title { text-style: bold; width: 1fr; }
    GateScreen #gate-cluster { width: 1fr; }
    GateScreen.-production #gate-cluster { color: $error; text-style: bold; }
    GateScreen #gate-targets { height: auto; max-height: 8; background: $background; margin: 0; }
    GateScreen #gate-changed, GateScreen #gate-pasted { color: $warning; text-style: bold; display: none; }
    GateScreen #gate-again { color: $warning; text-style: bold; }
    GateScreen #gate-hints { color: $text-muted; }
    GateScreen #gate-asked { layout: horizontal; height: auto; margin: 0; }
    GateScreen #gate-asked Static { width: auto; }
    GateScreen #gate-asked Input { width: 1fr; }
    GateScreen #gate-command { color: $text-muted; }
    GateScreen Horizontal { height: auto; margin-top: 1; align-horizontal: right; }
    GateScreen Button { margin-left: 2; min-width: 12; }
    GateScreen Button:focus { text-style: bold reverse; }
    GateScreen #gate-read { width: auto; margin: 1 0 0 0; background: $surface; }
    GateScreen Input { border: none; padding: 0; height: 1; }
    GateScreen Input { background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(ESCAPE, "refuse", show=False),
        Binding("right", "button(1)", show=False),
        Binding("left", "button(-1)", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
        Binding("space", "press", show=False),
    ]
    AUTO_FOCUS = "#gate-cancel"

    def __init__(self, plan: GatePlan) -> None:
        super().__init__()
        self.plan = plan
        self._read = False
        self._place = ""
        self._resized = False

    def compose(self) -> ComposeResult:
        plan = self.plan
        production = is_production(plan.environment)
        self.set_class(production, "-production")
        place = f"on {one_line(plan.cluster)}"
        if production:
            place = f"PROD  {place}"
        elif plan.environment and plan.environment != plan.cluster:
            place = f"{place} ({one_line(plan.environment)})"
        self._place = place
        with Vertical(id="gate"):
            yield Static(f"{plan.verb} {plan.what}?", id="gate-title", markup=False)
            yield Static(place, id="gate-cluster", markup=False)
            if plan.again:
                yield Static(one_line(f"Look again: {plan.again}"), id="gate-again", markup=False)
            with VerticalScroll(id="gate-targets", can_focus=False):
                yield Static("\n".join(self._target_lines()), markup=False)
            yield Static("\n".join(f"• {one_line(effect)}" for effect in plan.effects), id="gate-effects", markup=False)
            if plan.skipped:
                yield Static(f"left out: {one_line(plan.skipped)}", id="gate-skipped", markup=False)
            if plan.hints:
                yield Static("\n".join(one_line(hint) for hint in plan.hints), id="gate-hints", markup=False)
            yield Static("", id="gate-changed", markup=False)
            yield Static(f"same as: {one_line(plan.command)}", id="gate-command", markup=False)
            if plan.tier == 2:
                yield Button(_tick(False, self.app.size.width), id="gate-read", compact=True)
            if plan.tier >= 3:
                yield Static(f"Type the cluster's name, {one_line(plan.cluster)}, to go ahead:", markup=False)
                yield LineInput(id="gate-name", compact=True)
            with Horizontal(id="gate-asked"):
                yield Static("Reason (needed): " if production else "Reason (may be empty): ", markup=False)
                yield self._reason()
            yield Static("pasted, which the audit log will say", id="gate-pasted", markup=False)
            with Horizontal():
                yield Button("Back (Esc)", id="gate-cancel", compact=True)
                yield Button(
                    plan.button or plan.verb,
                    id="gate-confirm",
                    variant="error",
                    disabled=plan.tier >= 2 or production,
                    compact=True,
                )

    def _reason(self) -> LineInput:
        before = self.plan.before
        line = LineInput(before.reason, id="gate-reason", compact=True, max_length=MOST_REASON)
        line.pasted = before.reason_pasted
        return line

    def _target_lines(self) -> list[str]:
        targets = self.plan.targets
        lines = [f"{one_line(target.id)}  {one_line(target.note)}".rstrip() for target in targets[:SHOWN_TARGETS]]
        if len(targets) > SHOWN_TARGETS:
            lines.append(f"and {len(targets) - SHOWN_TARGETS:,} more")
        if self.plan.hidden:
            lines.append(f"{self.plan.hidden:,} of these are hidden by the filter")
        return lines

    def on_mount(self) -> None:
        self._open()
        self.set_interval(0.5, self._look)

    def _open(self) -> None:
        """The other button can be pressed once everything that is asked for was given."""
        plan = self.plan
        missing = (
            (plan.tier == 2 and not self._read)
            or (plan.tier >= 3 and self._value("#gate-name") != plan.cluster)
            or (is_production(plan.environment) and not self._value("#gate-reason").strip())
        )
        self.query_one("#gate-confirm", Button).disabled = missing
        self.query_one("#gate-pasted").display = self._pasted()

    def _value(self, name: str) -> str:
        return self.query_one(name, LineInput).value

    def _pasted(self) -> bool:
        return any(field.pasted and field.value for field in self.query(LineInput))

    def on_resize(self) -> None:
        self._resized = True
        for box in self.query("#gate-read").results(Button):
            box.label = _tick(self._read, self.app.size.width)
        self.call_after_refresh(self._settle)

    def _settle(self) -> None:
        self._stay_named()
        if self.focused is not None:
            # Lines wrapped anew moved it out of sight.
            self.call_after_refresh(self.focused.scroll_visible, animate=False)

    def _stay_named(self) -> None:
        """What is asked stands in the frame where the lines that say so can be scrolled away."""
        gate = self.query_one("#gate")
        named = f"{self.plan.verb} {self.plan.what}? {self._place}"
        gate.border_title = Content(one_line(named)) if gate.max_scroll_y else None

    def _look(self) -> None:
        """Say so if the targets are no longer what they were."""
        self._stay_named()
        if self._resized and self.focused is not None:
            self._resized = False
            self.focused.scroll_visible(animate=False)
        changed = self.plan.changed() if self.plan.changed is not None else ""
        widget = self.query_one("#gate-changed", Static)
        if changed:
            widget.update(one_line(f"changed since this opened: {changed}"))
        widget.display = bool(changed)

    @on(Button.Pressed, "#gate-read")
    def _ticked(self, event: Button.Pressed) -> None:
        self._read = not self._read
        event.button.label = _tick(self._read, self.app.size.width)
        self._open()

    @on(Input.Changed)
    def _typed(self) -> None:
        self._open()

    @on(Input.Submitted)
    def _entered(self) -> None:
        """Enter in a line of text only goes on: to the first thing that is missing, else to the button."""
        plan = self.plan
        if plan.tier >= 3 and self._value("#gate-name") != plan.cluster:
            self.query_one("#gate-name").focus()
        elif is_production(plan.environment) and not self._value("#gate-reason").strip():
            self.query_one("#gate-reason").focus()
        elif plan.tier == 2 and not self._read:
            self.query_one("#gate-read").focus()
        else:
            self.query_one("#gate-confirm").focus()

    def action_button(self, by: int) -> None:
        """To the next button, or the one before; a line of text moves its own cursor with these keys."""
        if by > 0:
            self.focus_next(Button)
        else:
            self.focus_previous(Button)

    def action_press(self) -> None:
        """The box is ticked with Space, as everywhere; the buttons that decide take Enter alone, so that no key typed ahead decides."""
        if isinstance(self.focused, Button) and self.focused.id == "gate-read":
            self.focused.press()

    @on(Button.Pressed, "#gate-confirm")
    def _confirmed(self) -> None:
        typed = self._value("#gate-name") if self.plan.tier >= 3 else ""
        reason = self.query_one("#gate-reason", LineInput)
        self.dismiss(Decision(reason.value.strip(), self._pasted(), typed, reason.pasted))

    @on(Button.Pressed, "#gate-cancel")
    def action_refuse(self) -> None:
        """Nothing is done."""
        self.dismiss(None)


class QuitScreen(ModalScreen[bool]):
    """Asks before the console ends. `note` says what else ends with it; with `stay`, Enter stays."""

    DEFAULT_CSS = """
    QuitScreen { align: center middle; }
    QuitScreen #quit { width: 60; max-width: 96%; height: auto; max-height: 100%; overflow-y: auto; background: $surface; border: tall $primary; padding: 0 1; }
    QuitScreen #quit-title { text-style: bold; }
    QuitScreen Horizontal { height: auto; margin-top: 1; align-horizontal: right; }
    QuitScreen Button { margin-left: 2; min-width: 12; }
    QuitScreen Button:focus { text-style: bold reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(f"{ESCAPE},n", "stay", show=False),
        Binding("y,q,ctrl+c,ctrl+q", "go", show=False),
        Binding("right,down", "app.focus_next", show=False),
        Binding("left,up", "app.focus_previous", show=False),
    ]
    AUTO_FOCUS = ".-first"

    def __init__(self, note: str, *, stay: bool = False) -> None:
        super().__init__()
        self._note = note
        self._stay = stay

    def compose(self) -> ComposeResult:
        with Vertical(id="quit"):
            yield Static("Quit the console?", id="quit-title", markup=False)
            yield Static(self._note, id="quit-note", markup=False)
            with Horizontal():
                yield Button("Quit (y)", id="quit-go", compact=True, classes="" if self._stay else "-first")
                yield Button("Stay (n)", id="quit-stay", compact=True, classes="-first" if self._stay else "")

    @on(Button.Pressed, "#quit-go")
    def action_go(self) -> None:
        self.dismiss(True)

    @on(Button.Pressed, "#quit-stay")
    def action_stay(self) -> None:
        self.dismiss(False)


class MenuScreen(ModalScreen[str]):
    """The action menu of a row: one letter per action, or arrows and Enter. Dismissed with an action's id, or ""."""

    DEFAULT_CSS = """
    MenuScreen { align: center middle; }
    MenuScreen #menu { width: 66; max-width: 96%; height: auto; max-height: 100%; overflow-y: auto; background: $surface; border: tall $primary; padding: 0 1; }
    MenuScreen #menu-title { text-style: bold; }
    MenuScreen #menu-note { color: $text-muted; }
    MenuScreen Button { width: 1fr; text-align: left; content-align: left middle; background: $surface; }
    MenuScreen Button:focus { text-style: bold reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(f"{ESCAPE},q,x", "close", show=False),
        Binding("down,j", "app.focus_next", show=False),
        Binding("up,k", "app.focus_previous", show=False),
    ]

    def __init__(self, title: str, entries: list[tuple[str, str, str]], note: str = "") -> None:
        """`entries`: key, action id, what it does."""
        super().__init__()
        self._title = title
        self._note = note
        self.entries = entries

    def compose(self) -> ComposeResult:
        with Vertical(id="menu"):
            yield Static(self._title, id="menu-title", markup=False)
            for key, action_id, title in self.entries:
                yield Button(Content(f"{key}  {title}"), name=action_id, compact=True)
            if self._note:
                yield Static(self._note, id="menu-note", markup=False)

    def on_key(self, event: object) -> None:
        character = getattr(event, "character", None)
        for key, action_id, _ in self.entries:
            if character == key:
                event.stop()  # type: ignore[attr-defined]
                self.dismiss(action_id)
                return

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.name or "")

    def action_close(self) -> None:
        self.dismiss("")
