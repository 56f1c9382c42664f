"""What the forms of the console have in common: a box of labelled fields, a fault below them, and buttons that go back or go on.

In a narrow terminal each label stands above its field, so that both can be read; the field that has the keys is never without it.
A form only takes values: what they come to is its own business.
"""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from iris_tui.keymap import ESCAPE

R = TypeVar("R")


class FormScreen(ModalScreen[R], Generic[R]):
    """One form. Subclasses compose a `.form-box` with a `.form-title`, `.label`s, `.field`s, a `.form-fault` and `.form-buttons`."""

    DEFAULT_CSS = """
    FormScreen { align: center middle; }
    FormScreen .form-box { max-width: 96%; height: auto; max-height: 100%; overflow-y: auto; scrollbar-size-vertical: 1; background: $surface; border: tall $primary; padding: 0 1; }
    FormScreen .form-title { text-style: bold; }
    FormScreen .label { color: $text-muted; }
    FormScreen .field { height: 1; }
    FormScreen .field Static { width: 18; color: $text-muted; }
    FormScreen Input { border: none; padding: 0; height: 1; width: 1fr; background: $background; }
    FormScreen Input:focus { background: $panel; }
    FormScreen .form-fault { color: $error; height: auto; display: none; }
    FormScreen .form-buttons { height: auto; margin-top: 1; align-horizontal: right; }
    FormScreen Button { margin-left: 2; min-width: 12; }
    FormScreen Button:focus { text-style: bold reverse; }
    FormScreen.-narrow .form-box { padding: 0; }
    FormScreen.-narrow .field { layout: vertical; height: auto; }
    FormScreen.-narrow .field Static { width: 1fr; }
    FormScreen.-narrow Button { margin-left: 1; }
    FormScreen.-narrow Button:first-of-type { margin-left: 0; }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (60, "-wide")]  # noqa: RUF012  (the kit declares it otherwise)
    VERTICAL_BREAKPOINTS = [(0, "-low"), (24, "-high")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(ESCAPE, "leave", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def set_focus(self, widget: Widget | None, scroll_visible: bool = True, from_app_focus: bool = False) -> None:
        """As everywhere, but that a field comes into sight with its label, which the widget alone knows nothing of."""
        super().set_focus(widget, scroll_visible=False, from_app_focus=from_app_focus)
        if scroll_visible:
            self.call_after_refresh(self._in_sight)

    def on_resize(self) -> None:
        """What has the keys stays in sight in a terminal that has become smaller."""
        self.call_after_refresh(self._in_sight)

    def _in_sight(self) -> None:
        widget = self.focused
        if widget is not None:
            field = widget.parent
            (field if isinstance(field, Widget) and field.has_class("field") else widget).scroll_visible(animate=False)

    def refuse(self, words: str) -> None:
        """Say what is wrong with what was given, where it can be seen."""
        fault = self.query_one(".form-fault", Static)
        fault.update(words)
        fault.display = True
        self.call_after_refresh(fault.scroll_visible, animate=False)

    def action_leave(self) -> None:
        """Nothing comes of it."""
        self.dismiss(None)
