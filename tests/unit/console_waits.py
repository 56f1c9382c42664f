"""How a test waits for a console: until something holds and its picture is drawn, however slow the machine is.

The console draws ten times a second at most, and less often where drawing is slow. A test never waits for that beat: it asks for the
turn itself, and goes on when the refresh behind it is done.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from textual._context import visible_screen_stack

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.pilot import Pilot

    from iris_tui.app import IrisApp

WAIT_S = 60


def text_of(app: IrisApp) -> str:
    """What is on the screen, below a dialog too: what is drawn here is drawn as the app itself would, and kept."""
    visible_screen_stack.set(app._background_screens)
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


def flush(app: IrisApp) -> None:
    """One turn of the flusher, also where the last one was slow."""
    screen = app.console_screen
    if screen is not None and screen.is_mounted:
        screen._not_before = 0.0
        screen.flush_now()


async def settled(app: IrisApp, pilot: Pilot[Any]) -> None:
    """What the console knows by now is on its screen."""
    await pilot.pause(0)
    flush(app)
    await pilot.pause(0)


async def until(app: IrisApp, pilot: Pilot[Any], condition: Callable[[], object]) -> None:
    """Until it holds, and what it was read from is drawn: a state is there a refresh before its picture. Raises AssertionError with the
    screen if it never holds."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, text_of(app)
        await pilot.pause()
        flush(app)
        await asyncio.sleep(0.002)
    await settled(app, pilot)


async def press(app: IrisApp, pilot: Pilot[Any], *keys: str) -> None:
    """Press them, one after the other, until what they did is drawn."""
    await pilot.press(*keys)
    await pilot.pause()
    await settled(app, pilot)
