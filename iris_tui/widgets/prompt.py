"""The one line in which something is typed: a filter, a pattern, a command.

While the text is wrong the box is red and a line below it points at the place and says what is wrong; whatever was shown
before stays, and stays labelled. Escape leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_tui.drawing import Run, padded
from iris_tui.widgets.line import Line
from iris_tui.widgets.line_input import LineInput

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.suggester import Suggester


@dataclass(slots=True)
class Question:
    """What is asked.

    Attributes:
        label: Short, before the box.
        check: Called with every change; raises ModelError if the text is wrong.
        submit: Called with the text on Enter if it is not wrong; may raise ModelError, too.
        cancel: Called on Escape.
        change: Called with every text that is not wrong, while it is typed.
        history: Earlier answers, newest last; arrows go through them.
        goes_on: What is typed goes on behind the text that is there, where it would replace it else.
    """

    label: str
    submit: Callable[[str], None]
    check: Callable[[str], object] | None = None
    change: Callable[[str], None] | None = None
    cancel: Callable[[], None] | None = None
    suggester: Suggester | None = None
    history: list[str] | None = None
    goes_on: bool = False


class PromptInput(LineInput):
    """The box; Escape and the arrows belong to the prompt."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("up", "earlier(-1)", show=False),
        Binding("down", "earlier(1)", show=False),
        Binding("tab", "take_suggestion", show=False),
    ]

    async def action_submit(self) -> None:
        """At once, not by a message: the next key may already be on its way."""
        self.query_ancestor(Prompt).submit(self.value)

    def action_leave(self) -> None:
        self.query_ancestor(Prompt).leave()

    def action_earlier(self, step: int) -> None:
        self.query_ancestor(Prompt).earlier(step)

    def action_take_suggestion(self) -> None:
        self.action_cursor_right()


class Prompt(Vertical):
    """Ask with `ask`; hidden while nothing is asked."""

    DEFAULT_CSS = """
    Prompt { height: auto; dock: bottom; display: none; margin-bottom: 1; background: $surface; }
    Prompt Horizontal { height: 1; }
    Prompt #prompt-label { width: auto; }
    Prompt PromptInput { height: 1; border: none; padding: 0; background: $surface; width: 1fr; }
    Prompt PromptInput:focus { border: none; }
    Prompt.-wrong PromptInput { background: $error 30%; color: $text; }
    Prompt.-wrong #prompt-label { background: $error; }
    Prompt #prompt-fault { display: none; }
    Prompt.-wrong #prompt-fault { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.label = Line(id="prompt-label")
        self.input = PromptInput(compact=True)
        self.fault = Line(id="prompt-fault")
        self._question: Question | None = None
        self._recalled = 0

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield self.label
            yield self.input
        yield self.fault

    @property
    def is_open(self) -> bool:
        """Whether something is asked now."""
        return self._question is not None

    def asks(self, label: str) -> bool:
        """Whether the question with this label is open."""
        return self._question is not None and self._question.label == label

    def ask(self, question: Question, value: str = "") -> None:
        """Show the box with a text in it and give it the focus."""
        self._question = question
        self._recalled = 0
        self.remove_class("-wrong")
        self.label.styles.width = len(question.label) + 2
        self.label.show([Run(f" {question.label} ", Tone.WARN)])
        with self.input.prevent(Input.Changed):
            self.input.value = value
        self.input.suggester = question.suggester
        self.input.cursor_position = len(value)
        self.input.select_on_focus = not question.goes_on
        self.display = True
        # At once: the next key may already be on its way.
        self.screen.set_focus(self.input, scroll_visible=False)
        self._look(value)

    def keys(self) -> list[tuple[str, str]]:
        """What the keys do while something is asked: only those that do something for this question."""
        question = self._question
        found = [("Enter", "Take it"), ("Esc", "Leave it as it was")]
        if question is not None and question.suggester is not None:
            found.insert(0, ("Tab", "Complete"))
        if question is not None and question.history:
            found.append(("↑", "Earlier ones"))
        return found

    def close(self) -> None:
        """Hide the box; nothing is asked any more."""
        self._question = None
        self.display = False
        self.remove_class("-wrong")

    def leave(self) -> None:
        """Escape: as it was."""
        question = self._question
        self.close()
        if question is not None and question.cancel is not None:
            question.cancel()

    def earlier(self, step: int) -> None:
        """Put an earlier answer into the box."""
        history = self._question.history if self._question is not None else None
        if not history:
            return
        self._recalled = min(max(self._recalled - step, 0), len(history))
        self.input.value = history[-self._recalled] if self._recalled else ""
        self.input.cursor_position = len(self.input.value)

    def _look(self, text: str) -> bool:
        """Check a text and show what is wrong with it; whether it is right."""
        question = self._question
        if question is None or question.check is None:
            return True
        try:
            question.check(text)
        except ModelError as error:
            self.show_fault(error)
            return False
        self.remove_class("-wrong")
        return True

    def show_fault(self, error: ModelError) -> None:
        """Turn the box red, with a mark under the place of the fault."""
        before = len(self._question.label) + 2 if self._question is not None else 0
        words = str(error)
        if error.position is None:
            self._say_fault(f" {words}")
            return
        words = words if "position" in words else f"position {error.position}: {words}"
        width, at = self.size.width, before + error.position
        if at + len(words) + 2 <= width or at < width // 3:
            self._say_fault(" " * at + f"▲ {words}")
        else:
            # No room right of the mark: the words stand before it.
            at = min(at, width - 1)
            self._say_fault(padded(words, at - 1) + " ▲")

    def _say_fault(self, text: str) -> None:
        self.fault.show([Run(text, Tone.BAD)])
        self.add_class("-wrong")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        question = self._question
        if question is not None and self._look(event.value) and question.change is not None:
            question.change(event.value)

    def submit(self, text: str) -> None:
        """Take an answer, if it is right."""
        question = self._question
        if question is None or not self._look(text):
            return
        try:
            self.close()
            question.submit(text)
        except ModelError as error:
            self.ask(question, text)
            self.show_fault(error)
            return
        if question.history is not None and text:
            if text in question.history:
                question.history.remove(text)
            question.history.append(text)
