"""The console's fleet screens against a real controller, driven by keys: what an operator does at 3 a.m. with a slice."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from textual.widgets import Button

from iris_core.client.endpoint import parse_url
from iris_core.live.clock import SystemClock
from iris_tui.app import IrisApp
from iris_tui.gate import GateScreen, MenuScreen
from iris_tui.session import Session
from tests.unit import console_waits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.contracts import AsyncClient


def steps(text: str, names: Sequence[str]) -> list[list[str]]:
    """Name, workers left and how many more without it, of each step of a funnel that is shown."""
    found = []
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.split()[:2] == ["STEP", "WANTS"])
    left_at = lines[start].index("LEFT") + len("LEFT")
    dropped_at = lines[start].index("IF DROPPED") + len("IF DROPPED")
    for line in lines[start + 2 : start + 2 + len(names)]:
        left = line[:left_at].split()[-1]
        dropped = line[left_at:dropped_at].strip()
        found.append([next(name for name in names if line.startswith(name)), left, dropped])
    return found


async def explain_and_preempt(url: str, job_id: str, slice_id: str) -> str:
    """Look why a job waits, from Jobs by one key; then preempt what runs on a slice, from Capacity. Returns the explanation."""

    async def connect() -> AsyncClient:
        from iris_core.client.aio import GrpcAsyncClient

        return GrpcAsyncClient(parse_url(url))

    session = Session("slices", connect, SystemClock())
    app = IrisApp(session)
    async with app.run_test(size=(200, 60)) as pilot:

        def screen() -> Any:
            return app.console_screen

        until = partial(console_waits.until, app, pilot)

        await until(
            lambda: screen() is not None and screen().place[0] == "jobs" and screen().store.get(job_id) and session.role
        )
        await until(lambda: screen().table.move_to(job_id))
        await pilot.press("w")
        await until(lambda: screen().place == ("explain", job_id) and screen().now.polled.loaded)
        await until(lambda: "STEP" in screen().now.text.text)
        explained: str = screen().now.text.text
        app.run_command("capacity")
        await until(lambda: screen().place[0] == "capacity" and screen().source.loaded)
        await until(lambda: screen().table.move_to(f"slice {slice_id}"))
        await until(lambda: screen().table.row.value.running == 4)
        await pilot.press("x")
        await until(lambda: isinstance(app.screen, MenuScreen))
        await pilot.press("p")
        await until(lambda: isinstance(app.screen, GateScreen) and app.focused is not None)
        gate = app.screen
        assert isinstance(gate, GateScreen)
        assert len(gate.plan.targets) == 4 and all(target.id.endswith(":0") for target in gate.plan.targets)
        gate.query_one("#gate-read", Button).press()
        await until(lambda: not gate.query_one("#gate-confirm", Button).disabled)
        gate.query_one("#gate-confirm", Button).press()
        await until(lambda: len(app.operations) == 1 and not app.operations.running)
    return explained
