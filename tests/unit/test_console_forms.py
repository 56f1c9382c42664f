"""The forms in every size of terminal: whatever has the keys can be seen, with its label, and a button says all it does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Button, Input, Static

from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import budgets_pb2
from screens.budget_form import BudgetForm
from screens.rerun import RerunForm
from screens.what_if_form import WhatIfForm
from tests.unit.test_console_app import console
from tests.unit.test_console_rerun import BEFORE, PLAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.widget import Widget

pytestmark = pytest.mark.asyncio

FORMS: dict[str, Any] = {
    "rerun": lambda: RerunForm(PLAIN, BEFORE),
    "budget": lambda: BudgetForm("ada", budgets_pb2.UserBudget(user_id="ada", budget_limit=8000)),
    "what-if": lambda: WhatIfForm("/ada/train", None, [], lambda words: None),
}


@pytest.mark.parametrize(
    "size", [(40, 10), (44, 24), (59, 12), (60, 10), (80, 24)], ids=lambda size: f"{size[0]}x{size[1]}"
)
@pytest.mark.parametrize("name", FORMS)
async def test_what_has_the_keys_is_seen_with_its_label(name: str, size: tuple[int, int]) -> None:
    async with console(size=size) as rig:
        form = FORMS[name]()
        rig.app.push_screen(form)
        await rig.until(lambda: rig.app.screen is form and isinstance(rig.app.focused, Input))

        def whole(widget: Widget) -> bool:
            place = form.find_widget(widget)
            return bool(place.region) and place.visible_region == place.region

        def seen(widget: Widget) -> bool:
            return rig.app.focused is widget and whole(widget)

        def label() -> Widget | None:
            field = rig.app.focused.parent if rig.app.focused is not None else None
            return field.query_one(Static) if field is not None and field.has_class("field") else None

        widgets = [widget for widget in form.focus_chain if isinstance(widget, Input | Button)]
        for key, order in (("down", widgets), ("up", widgets[::-1])):
            for widget in order:
                await rig.until(partial(seen, widget))
                if isinstance(widget, Input):
                    assert widget.size.width >= 15, (widget.id, widget.size)
                    await rig.until(lambda: (shown := label()) is not None and whole(shown))
                else:
                    assert str(widget.label) in rig.screen_text()
                if widget is not order[-1]:
                    await rig.keys(key)


def refused(words: Sequence[str]) -> None:
    raise ModelError(f"there is no such thing as {words[-1]}, wherever one looks for it")


@pytest.mark.parametrize("size", [(40, 20), (59, 20), (80, 24)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize(("name", "field"), [("budget", "budget-limit"), ("what-if", "what-if-cpu")])
async def test_what_a_form_refuses_is_said_in_sight(name: str, field: str, size: tuple[int, int]) -> None:
    async with console(size=size) as rig:
        form = FORMS[name]() if name == "budget" else WhatIfForm("/ada/train", None, [], refused)
        rig.app.push_screen(form)
        await rig.until(lambda: rig.app.screen is form and isinstance(rig.app.focused, Input))
        form.query_one(f"#{field}", Input).value = "no such thing"
        form._take()
        fault = form.query_one(".form-fault", Static)
        await rig.until(lambda: fault.display and str(fault.content))

        def seen() -> bool:
            place = form.find_widget(fault)
            return bool(place.region) and place.visible_region == place.region

        await rig.until(seen)
