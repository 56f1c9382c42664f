"""The form in which a user's budget is set: what they may spend at a time, and the highest band they may submit in.

It only takes the values; what they would do is said by the plan, at the gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Input, Static

from iris_core.config.budgets import MAX_LIMIT
from iris_core.live.user_columns import spends_text
from iris_core.model.bands import BANDS, band_label, parse_band
from iris_core.model.errors import ModelError, shown
from iris_core.model.text import one_line
from iris_tui.widgets.line_input import LineInput
from screens.form_screen import FormScreen

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from iris_core.wire.gen.iris.v1.budgets_pb2 import UserBudget

DEFAULT_BAND = "interactive"
_BANDS = ", ".join(band.label for band in BANDS)


def parse_limit(text: str) -> int:
    """What was typed as a limit; `unlimited` is 0. Raises ModelError."""
    word = text.strip().replace(",", "").replace("_", "")
    if word.lower() == "unlimited":
        return 0
    if not word.isdecimal() or int(word) > MAX_LIMIT:
        raise ModelError(f"a limit is a number from 0 to {MAX_LIMIT:,}, or unlimited, not {shown(text)}", field="limit")
    return int(word)


def parse_budget(text: str) -> tuple[str, int, int]:
    """User, limit and band of `USER LIMIT [BAND]`. Raises ModelError."""
    words = text.split()
    if len(words) not in (2, 3):
        raise ModelError("set-budget needs USER LIMIT [BAND]", hint="set-budget ada 8000 interactive; 0 = unlimited")
    return words[0], parse_limit(words[1]), parse_band(words[2] if len(words) == 3 else DEFAULT_BAND).value


class BudgetForm(FormScreen["tuple[int, int] | None"]):
    """Dismissed with limit and band, or None."""

    DEFAULT_CSS = """
    BudgetForm .form-box { width: 66; }
    BudgetForm .field { height: auto; margin-bottom: 1; }
    BudgetForm .field Static { width: 1fr; }
    """
    AUTO_FOCUS = "#budget-limit"

    def __init__(self, user_id: str, budget: UserBudget) -> None:
        super().__init__()
        self._user_id = user_id
        self._budget = budget

    def compose(self) -> ComposeResult:
        budget = self._budget
        band = band_label(budget.max_band) if budget.max_band else DEFAULT_BAND
        with Vertical(classes="form-box"):
            yield Static(f"Budget of {one_line(self._user_id)}", classes="form-title", markup=False)
            yield Static(f"{spends_text(budget)} now", classes="label", markup=False)
            with Vertical(classes="field"):
                yield Static("May spend at a time (0 = unlimited):", markup=False)
                yield LineInput(str(budget.budget_limit), id="budget-limit", compact=True)
            with Vertical(classes="field"):
                yield Static(f"Highest band they may submit in ({_BANDS}):", markup=False)
                yield LineInput(band, id="budget-band", compact=True)
            yield Static("", id="budget-fault", classes="form-fault", markup=False)
            with Horizontal(classes="form-buttons"):
                yield Button("Back (Esc)", id="budget-back", compact=True)
                yield Button("See what it does", id="budget-go", variant="primary", compact=True)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        if event.input.id == "budget-limit":
            self.query_one("#budget-band", Input).focus()
        else:
            self._take()

    @on(Button.Pressed, "#budget-go")
    def _take(self) -> None:
        try:
            limit = parse_limit(self.query_one("#budget-limit", Input).value)
            band = parse_band(self.query_one("#budget-band", Input).value).value
        except ModelError as error:
            self.refuse(str(error))
            return
        self.dismiss((limit, band))

    @on(Button.Pressed, "#budget-back")
    def _back(self) -> None:
        self.action_leave()
