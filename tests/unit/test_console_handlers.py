"""Handlers of events run once: Textual calls that of every class, so one that calls its base's would have it run twice."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path

import pytest

import iris_tui
from iris_tui.registry import SCREENS
from tests.unit.test_console_app import console

ROOT = Path(iris_tui.__file__).parents[1]


def calls_of_a_base(path: Path) -> list[str]:
    """`super().on_<something>(…)` in a handler, but for `on_event`, which is no handler."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr.startswith("on_")
            and node.func.attr != "on_event"
            and isinstance(node.func.value, ast.Call)
            and isinstance(node.func.value.func, ast.Name)
            and node.func.value.func.id == "super"
        ):
            found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def test_no_handler_calls_that_of_its_base() -> None:
    files = [*(ROOT / "iris_tui").rglob("*.py"), *(ROOT / "screens").rglob("*.py")]
    assert [place for path in files for place in calls_of_a_base(path)] == []


@pytest.mark.asyncio
async def test_a_list_has_one_flusher_and_one_subscription() -> None:
    async with console() as rig:
        rig.app.go("workers")
        await rig.until(lambda: rig.app.console_screen is not None and rig.app.console_screen.place[0] == "workers")
        screen = rig.app.console_screen
        assert screen is not None
        await rig.until(lambda: screen.is_mounted and any(worker.node is screen for worker in rig.app.workers))
        assert [worker.group for worker in rig.app.workers if worker.node is screen] == ["watch"]
        assert len([timer for timer in screen._timers if timer.name != "screen_update"]) == 1


@pytest.mark.asyncio
async def test_a_screen_that_is_shown_before_it_is_built_is_not_flushed() -> None:
    async with console() as rig:
        for name in SCREENS:
            if SCREENS[name].lists:
                rig.app.go(name)
                screen = rig.app.console_screen
                assert screen is not None and screen.place[0] == name
                screen.flush_now()
                await rig.until(partial(getattr, screen, "is_mounted"))
